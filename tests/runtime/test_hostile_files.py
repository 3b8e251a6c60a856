"""Files made to crash, to hang or to fill the memory: each is refused in one line, before what would do it is done."""

import bz2
import functools
import gzip
import lzma
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from damage import write_illustris
from small import full_cube, muse_hdus, psf_settings, write_fits
from small_results import fit_result, sample_result
from snapshot_reading import reader_of
from ssp_files import dsps

from rubix_like import ConfigError, Cube, FitResult, SampleResult, load_config, load_ssp, read_observed
from rubix_like.config.yaml_files import DEEPEST, MOST_BYTES, MOST_NODES, format_yaml, parse_yaml
from rubix_like.extend import import_library, load_field_map
from rubix_like.instrument.instrument import read_mask
from rubix_like.instrument.psf_images import load_psf_image
from rubix_like.readers.containers.table_files import yaml_units
from rubix_like.runs.batch.entries import read_rows
from rubix_like.runtime.files.fits_opening import ALWAYS_UNPACKED, check_packed
from rubix_like.runtime.files.hdf5_files import opened_hdf5

REPOSITORY = Path(__file__).resolve().parents[2]


def own_source(path, place, source="."):
    """The dataset becomes a virtual one whose source is itself."""
    with h5py.File(path, "r+") as file:
        shape, attributes = file[place].shape, dict(file[place].attrs)
        del file[place]
        layout = h5py.VirtualLayout(shape, "f8")
        layout[...] = h5py.VirtualSource(source, place, shape)
        file.create_virtual_dataset(place, layout).attrs.update(
            {name: value for name, value in attributes.items() if not name.startswith("DIMENSION")}
        )
    return path


def write_library(folder, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(folder / "cache"))
    return import_library(dsps.write_sample(folder))


FILES = {
    "galaxy": (lambda folder, _: write_illustris(folder / "a.hdf5"), "PartType4/Masses"),
    "cube": (lambda folder, _: full_cube().write(folder / "a.h5"), "flux"),
    "fit": (lambda folder, _: fit_result().write(folder / "a.h5"), "latent/best"),
    "samples": (lambda folder, _: sample_result().write(folder / "a.h5"), "latent/draws"),
    "library": (write_library, "spectra"),
    "library of others": (lambda folder, _: dsps.write_sample(folder), "ssp_flux"),
}
"""What writes a file of each kind, and a dataset in it."""
READ = {
    "galaxy": lambda path: reader_of(path=path).load(),
    "cube": Cube.read,
    "fit": FitResult.read,
    "samples": SampleResult.read,
    "library": load_ssp,
    "library of others": import_library,
}


@pytest.fixture(scope="module")
def copy_of(tmp_path_factory):
    """`copy_of(kind, folder)`: a copy of a file of this kind, each of which is written once."""
    written = {}
    with pytest.MonkeyPatch.context() as patch:
        for number, (kind, (write, _)) in enumerate(FILES.items()):
            folder = tmp_path_factory.mktemp(f"kind_{number}")
            path = write(folder, patch) or folder / "a.h5"
            written[kind] = path.name, path.read_bytes()

    def copy(kind, folder):
        name, content = written[kind]
        (folder / name).write_bytes(content)
        return folder / name

    return copy


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("damage", ["own source", "own source by name", "external storage", "link elsewhere"])
def test_hdf5_that_leads_round_or_elsewhere_is_refused(kind, damage, tmp_path, copy_of):
    """By the library alone, reading a dataset that is its own source ends the process (SIGSEGV)."""
    path, place = copy_of(kind, tmp_path), FILES[kind][1]
    if damage.startswith("own source"):
        own_source(path, place, path.name if "name" in damage else ".")
    else:
        with h5py.File(path, "r+") as file:
            shape = file[place].shape
            del file[place]
            if damage == "external storage":
                file.create_dataset(place, shape, "f8", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])
            else:
                file[place] = h5py.ExternalLink("../elsewhere.hdf5", "x")
    words = {
        "own source": "its own source",
        "own source by name": "its own source",
        "external storage": "/etc/hostname",
        "link elsewhere": r"\.\./elsewhere\.hdf5.*outside",
    }
    with pytest.raises(ValueError, match=words[damage]) as caught:
        READ[kind](path)
    assert path.name in str(caught.value)
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_circle_by_way_of_other_files_is_found_and_a_chain_is_read(tmp_path):
    def virtual(path, place, source, name):
        layout = h5py.VirtualLayout((3,), "f8")
        layout[...] = h5py.VirtualSource(source, name, (3,))
        with h5py.File(path, "a") as file:
            file.create_virtual_dataset(place, layout)

    virtual(tmp_path / "a.h5", "x", "b.h5", "y")
    virtual(tmp_path / "b.h5", "y", "c.h5", "z")
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["z"] = [1.0, 2.0, 3.0]
    with opened_hdf5(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["x"][()], [1.0, 2.0, 3.0])
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["z"] = h5py.SoftLink("/w")
    virtual(tmp_path / "c.h5", "w", "a.h5", "x")
    with (
        pytest.raises(ValueError, match=r"is, by its sources, its own source"),
        opened_hdf5(tmp_path / "a.h5"),
    ):
        pass


READ_EACH = """
import pathlib, sys
from rubix_like.runtime.files.hdf5_files import opened_hdf5
for path in sys.argv[1:]:
    try:
        with opened_hdf5(pathlib.Path(path)):
            pass
    except ValueError as error:
        print(error)
"""


def test_texts_that_end_the_process_in_hdf5_are_refused(tmp_path):
    """512 zeroed bytes in the global heap: HDF5 itself goes round in it for ever. An attribute whose type of variable
    length is neither a sequence nor a text: HDF5 ends the process."""
    content, paths = sample_result().write(tmp_path / "samples.h5").read_bytes(), []
    heap, text_type = content.find(b"GCOL"), content.find(bytes([0x19, 1, 1, 0, 16, 0, 0, 0]))
    assert heap > 0
    assert text_type > 0
    for start, damage in ((heap + 16, bytes(512)), (heap + 40, bytes(512)), (text_type + 1, bytes([3]))):
        paths.append(tmp_path / f"{start}.h5")
        paths[-1].write_bytes(content[:start] + damage + content[start + len(damage) :])
    command = [sys.executable, "-c", READ_EACH, *map(str, paths)]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert all("heap of texts at byte" in line for line in lines[:2])
    assert "type of variable length is unknown" in lines[2]


def aliases(levels, width):
    lines = ["a0: &a0 [" + ", ".join("x" * width) + "]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


BOMBS = {
    "aliases": (aliases(10, 9), f"{MOST_NODES} values, with those that aliases repeat"),
    "alias of itself": ("a: &a [*a]", "before or within it"),
    "too long": ("a: " + "x" * (10 << 20), f"at most {MOST_BYTES} (characters|bytes)"),
    "too many": ("a:\n" + "- 1\n" * (MOST_NODES + 1), f"{MOST_NODES} values"),
    "too deep": ("a: " + "[" * 3000, f"{DEEPEST} levels"),
    "a tag": ("a: !!int ''", "got the tag"),
    "400 digits": ("a: " + "9" * 400, "numbers of at most 40 characters, got one of 400"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_is_counted_before_anything_is_made_of_it(bomb, tmp_path):
    text, message = BOMBS[bomb]
    path = tmp_path / "run.yaml"
    path.write_text(text)
    begun = time.monotonic()
    for read in (load_config, load_field_map)[: 1 if bomb == "too many" else 2]:
        with pytest.raises(ConfigError, match=message) as caught:
            read(str(path))
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 500
    if not bomb.startswith("too"):
        with pytest.raises(ConfigError, match=message):
            load_config("quickstart", overrides={"observation.redshift": text})
    assert time.monotonic() - begun < 20


def test_yaml_in_tables_is_counted_too(tmp_path):
    """astropy's own reading of the head of an ECSV file with an alias bomb never ends."""
    path = tmp_path / "table.ecsv"
    head = f"---\ndatatype:\n- {{name: mass, datatype: float64}}\nmeta:\n{textwrap.indent(aliases(10, 9), '  ')}\n"
    path.write_text("# %ECSV 1.0\n" + textwrap.indent(head, "# ") + "mass\n1.0\n")
    with pytest.raises(OSError, match=rf"table\.ecsv.*{MOST_NODES} values"):
        reader_of(path=path).load()
    with pytest.raises(ConfigError, match=f"{MOST_NODES} values"):
        yaml_units(aliases(10, 9).splitlines())


def test_yaml_of_ours_is_far_from_the_limits():
    names = sorted((REPOSITORY / "configs").glob("*.yaml")) + sorted(
        (REPOSITORY / "configs" / "instruments").glob("*.yaml")
    )
    assert max(path.stat().st_size for path in names) < MOST_BYTES / 10
    data = {"a": [1.0] * (MOST_NODES - 5), "b": "9" * 400}
    assert parse_yaml(format_yaml(data), "text") == data
    assert parse_yaml("a: &x {b: [1, 2]}\nc: *x", "text")["c"] == {"b": [1, 2]}


def packed_zeros(path, size):
    zeros = bytes(size)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": functools.partial(lzma.compress, preset=0)}
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("lam.npy", zeros)
    else:
        path.write_bytes(pack[path.suffix](zeros))
    return path


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".npz"])
def test_what_unpacks_to_too_much_is_refused(suffix, tmp_path):
    path = packed_zeros(tmp_path / f"a{suffix}", ALWAYS_UNPACKED + 1)
    with pytest.raises(ValueError, match=r"would become .* bytes, expected at most 100 .* unpack it yourself"):
        check_packed(path)
    check_packed(packed_zeros(tmp_path / f"b{suffix}", 1 << 20))


def test_a_packed_bomb_is_refused_by_every_reader(tmp_path):
    path = packed_zeros(tmp_path / "a.fits.gz", ALWAYS_UNPACKED + 1)
    for read in (read_observed, Cube.read, lambda own: read_mask(own, (2, 2))):
        with pytest.raises(ValueError, match=r"would become"):
            read(path)


@pytest.mark.parametrize("kind", FILES)
def test_hdf5_that_was_not_copied_whole_is_refused(kind, tmp_path, copy_of):
    path = copy_of(kind, tmp_path)
    content = path.read_bytes()
    for share in (0.01, 0.3, 0.7, 0.99):
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises((ValueError, OSError), match=path.name):
            READ[kind](path)


@pytest.mark.parametrize("damage", ["npy header", "npy shape", "npy end", "bitpix", "naxis"])
def test_damaged_masks_are_refused(damage, tmp_path):
    path = tmp_path / ("mask.npy" if damage.startswith("npy") else "mask.fits")
    if path.suffix == ".npy":
        np.save(path, np.ones((4, 4)))
        changes = {"npy header": (b"'descr'", b"'dxscr'"), "npy shape": (b"(4, 4)", b"(4, -)"), "npy end": (b"}", b"(")}
    else:
        table = fits.BinTableHDU.from_columns([fits.Column("A", "E", array=np.ones(3))])
        fits.HDUList([fits.PrimaryHDU(), table, fits.ImageHDU(np.ones((4, 4)))]).writeto(path)
        changes = {
            "bitpix": (b"BITPIX  =                  -64", b"BITPIX  =                   99"),
            "naxis": (b"NAXIS   =                    2", b"NAXIS   =                   2x"),
        }
    old, new = changes[damage]
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(ConfigError, match=r"instrument\.aperture\.file: expected a .*mask\.") as caught:
        read_mask(path, (4, 4))
    assert "\n" not in str(caught.value)


def test_a_column_whose_name_is_a_number_is_refused(tmp_path):
    path = full_cube().write(tmp_path / "cube.fits")
    content = path.read_bytes()
    place = content.index(b"TTYPE1  =")
    old = content[place : place + 80]
    path.write_bytes(content.replace(old, b"TTYPE1  =                    0".ljust(80)))
    with pytest.raises(ValueError, match=r"cube\.fits is not a complete cube of rubix_like"):
        Cube.read(path)
    table = tmp_path / "table.fits"
    fits.BinTableHDU.from_columns([fits.Column("mass", "E", array=np.ones(3))], name="stars").writeto(table)
    table.write_bytes(table.read_bytes().replace(b"TTYPE1  = 'mass    '", b"TTYPE1  =          0"))
    with pytest.raises((ValueError, OSError), match=r"table\.fits"):
        reader_of(path=table).load()


@pytest.mark.parametrize("card", ["NAXIS1", "PCOUNT", "END"])
def test_fits_headers_without_an_end_are_refused(card, tmp_path):
    """astropy goes back in the file by a negative size, and never comes to its end."""
    path = write_fits(tmp_path / "cube.fits", *muse_hdus())
    content = path.read_bytes()
    place = content.index(b"XTENSION")
    if card == "END":
        content = content[:place] + (b"XTENSION= 'IMAGE   '".ljust(80) + b" " * 80 * 36 * 400)
    else:
        start = content.index(card.encode(), place)
        content = content[:start] + f"{card:8}=                  -64".ljust(80).encode() + content[start + 80 :]
    path.write_bytes(content)
    for read in (read_observed, Cube.read, lambda own: read_mask(own, (4, 4))):
        with pytest.raises(ValueError, match=r"cube\.fits.*(NAXIS1|PCOUNT|END)"):
            read(path)


@pytest.mark.parametrize("value", [h5py.Empty("f8"), h5py.SoftLink("/ssp_flux"), np.zeros(0), "text"])
def test_libraries_with_no_numbers_are_refused(value, tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    path = dsps.write_sample(tmp_path) or next(tmp_path.glob("*.h5"))
    with h5py.File(path, "r+") as file:
        del file["ssp_flux"]
        file["ssp_flux"] = value
    with pytest.raises(ValueError, match=path.name):
        import_library(path)


@pytest.mark.parametrize(("n_digit", "n_hole"), [(200_000, 0), (0, 1 << 40)])
def test_a_list_with_endless_cells_is_refused(n_digit, n_hole, tmp_path):
    """Also one of a terabyte without a line break (a hole in the file), before it is in memory."""
    path = tmp_path / "list.csv"
    path.write_text("name,observation.inclination\na," + "9" * n_digit)
    os.truncate(path, path.stat().st_size + n_hole)
    with pytest.raises(ConfigError, match=r"list\.csv: expected CSV"):
        read_rows(path, "list")


@pytest.mark.usefixtures("jax_settings")
def test_a_bug_ends_in_one_line_and_with_traceback_is_shown(monkeypatch, capsys):
    def broken(_rows):
        raise ZeroDivisionError("of ours\nin two lines")

    monkeypatch.setattr("rubix_like.cli.ssp_command.table_lines", broken)
    assert main(["ssp", "list"]) == 70
    line = capsys.readouterr().err
    assert line.startswith("rubix-like: a bug: ZeroDivisionError: of ours in two lines; run again with --traceback")
    assert line.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        main(["--traceback", "ssp", "list"])


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_ctrl_c_while_packages_are_imported_ends_in_one_line(seconds):
    script = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "import rubix_like.__main__ as command; print('begun', flush=True); raise SystemExit(command.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "check", "quickstart"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    *before, last = err.splitlines()
    assert last.startswith("rubix-like: interrupted")
    assert before in ([], ["loading the galaxy ..."])  # a fast machine has imported them by then


def test_the_console_script_is_the_one_that_catches_ctrl_c():
    text = (REPOSITORY / "pyproject.toml").read_text()
    assert 'rubix-like = "rubix_like.__main__:main"' in text


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("fit", "parameters/observation.inclination/sigma", np.zeros((), [("a", "f4"), ("b", "S3")])),
        ("fit", "parameters/observation.offset/sigma", b"text"),
        ("fit", "latent/best", [0.0, np.nan, 1.0]),
        ("fit", "starts/status", [1, 99]),
        ("fit", "starts/loss", [1.0]),
        ("samples", "e_bfmi", [[1.0, 1.0, 1.0]]),
        ("samples", "latent/draws", np.full((3, 200, 6), np.inf)),
        ("samples", "statistics/loss", [1.0]),
        ("samples", "@method", "guess"),
    ],
)
def test_results_that_do_not_fit_together_are_refused(kind, place, value, tmp_path, copy_of):
    path = copy_of(kind, tmp_path)
    with h5py.File(path, "r+") as file:
        if place.startswith("@"):
            file.attrs[place[1:]] = value
        else:
            del file[place]
            file[place] = value
    with pytest.raises(ValueError, match="is not a complete"):
        READ[kind](path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("flux", lambda values: values * np.nan),
        ("variance", lambda values: -values),
        ("wavelength", lambda values: values * 0),
        ("wave_edges", lambda values: values[::-1]),
    ],
)
def test_cubes_whose_values_cannot_be_are_refused(name, change, tmp_path):
    path = full_cube().write(tmp_path / "cube.h5")
    with h5py.File(path, "r+") as file:
        file[name][...] = change(file[name][...])
    with pytest.raises(
        ValueError, match=rf"cube\.h5 is not a complete cube .*{'wavelength' if 'wave' in name else name}"
    ):
        Cube.read(path)


def test_psf_images_without_a_scale_that_can_be_read_are_refused(tmp_path):
    path = tmp_path / "psf.fits"
    image = fits.PrimaryHDU(np.ones((3, 3)))
    image.header.update({"CDELT1": -1e-5, "CDELT2": 1e-5, "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN"})
    image.writeto(path)
    path.write_bytes(path.read_bytes().replace(b"CTYPE1  = 'RA---TAN'", b"CTYPE1  = -1        "))
    with pytest.raises(ConfigError, match="world coordinates that can be read"):
        load_psf_image(psf_settings({"kind": "image", "file": path}))


def test_virtual_data_without_their_source_are_refused(tmp_path):
    """HDF5 gives zeros for them."""
    path = tmp_path / "cube.h5"
    layout = h5py.VirtualLayout((3,), "f4")
    layout[:] = h5py.VirtualSource("absent.h5", "flux", (3,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("flux", layout)
        assert not file["flux"][()].any()
    with pytest.raises(ValueError, match=r"source .*absent\.h5.* is not there"), opened_hdf5(path):
        pass
