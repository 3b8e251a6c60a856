"""`rubix-like inspect` on files that rubix-like wrote: what they are, and how to look at them."""

import json
import shutil

import numpy as np
import pytest
from command_line import main
from small import make_cube, make_maps
from small_results import fit_result, sample_result

import rubix_like as rl
from rubix_like import Cube, __version__
from rubix_like.cli import inspect_command as made_files
from rubix_like.extend import Meta, resource
from rubix_like.runs.batch.records import COLUMNS
from rubix_like.runtime.files.writers import OPENED_BY

RUN = {"object": "disc", "instrument": "MUSE", "redshift": 0.05, "pipeline": "stellar", "note_1": "a note"}
CUBE = make_cube(variance=np.ones((3, 5, 4), np.float32), lsf_fwhm=np.full(4, 2.5), meta=Meta(RUN))
SIZE = "5 x 3 spaxels of 0.2 arcsec, 4 bins from 4749.90 to 4754.90 Angstrom (air, linear)"
WRITTEN = f"written by     rubix_like {__version__}, 20"
WRITERS = {
    "cube.fits": CUBE.write,
    "cube.fits.gz": CUBE.write,
    "cube.h5": CUBE.write,
    "rice.fits": lambda path: CUBE.write(path, compression="rice", quantize=16),
    "gzip.h5": lambda path: make_cube().write(path, compression="gzip"),
    "plain.fits": lambda path: make_cube(mask=np.zeros((3, 5, 4), np.int32)).write(path),
    "manga.fits": lambda path: make_cube(medium="vacuum", variance=CUBE.variance).write(path, layout="manga"),
    "cube_maps.fits": lambda path: make_maps().write(path),
    "fit.h5": lambda path: fit_result().write(path),
    "samples.h5": lambda path: sample_result().write(path),
    "library.h5": lambda path: shutil.copy(resource("data", "popstar"), path),
    "lines.h5": lambda path: shutil.copy(resource("data", "mappings-hii"), path),
}
PLANES = "planes         DATA (flux, float32), STAT (variance, float32), DQ (mask, uint8), VAR (the variance again"
MADE = ["galaxy         disc", "instrument     MUSE", "redshift       0.05", "pipeline       stellar", "Note: a note"]


@pytest.fixture
def made(tmp_path):
    """Writes the file of that name into the folder that one is in."""
    return lambda name: WRITERS[name](tmp_path / name)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("cube.fits", ["kind           cube", WRITTEN, *MADE, SIZE, "Look at it: rubix-like plot cube.fits --html"]),
        ("cube.fits.gz", ["kind           cube", WRITTEN, SIZE, "compression    gzip of the whole file"]),
        ("rice.fits", [PLANES, "compression    rice_1 of DATA, DQ, gzip_2 of STAT, VAR"]),
        (
            "gzip.h5",
            [
                "planes         flux (float32), mask (int32)",
                "compression    gzip",
                "maps           none beside it (gzip_m",
            ],
        ),
        ("plain.fits", ["planes         DATA (flux, float32), no variance: no noise model, no mask: no voxel is"]),
        (
            "cube.h5",
            [
                "compression    none",
                "kind           cube",
                WRITTEN,
                *MADE,
                SIZE,
                "Look at it: rubix-like plot cube.h5 --html",
            ],
        ),
        ("manga.fits", ["kind        cube for other programs", "layout      manga", "Open it with:"]),
        (
            "cube_maps.fits",
            [
                "kind           maps",
                WRITTEN,
                "Maps of 5 x 3 spaxels of 0.2 arcsec, weighted by light in detector: mass",
            ],
        ),
        (
            "fit.h5",
            ["kind        result of a fit", "Verdict: the model describes", "Look at it: rubix-like plot fit.h5"],
        ),
        pytest.param(
            "samples.h5",
            ["kind        result of a sampling", "Verdict: the model", "In Python: result = rubix_like.Sam"],
            marks=pytest.mark.slow,
        ),
        ("library.h5", ["kind  SSP library", "Look at it: rubix-like ssp info library.h5"]),
        ("lines.h5", ["kind  table of nebular lines", "Look at it: rubix-like nebular info lines.h5"]),
    ],
)
def test_a_file_of_ours_says_what_it_is(made, capsys, name, lines):
    made(name)
    assert main(["inspect", name]) == 0
    text, errors = capsys.readouterr()
    assert errors == ""
    for line in lines:
        assert any(own.startswith(line) for own in text.splitlines()), line


def test_json_holds_facts_and_summary(made, capsys):
    made("cube.fits")
    assert main(["inspect", "cube.fits", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["kind"] == "cube"
    assert SIZE in found["summary"]


def test_a_damaged_file_of_ours_is_refused(made, tmp_path, capsys):
    made("cube.fits")
    whole = (tmp_path / "cube.fits").read_bytes()
    (tmp_path / "cube.fits").write_bytes(whole[:-2880])
    assert main(["inspect", "cube.fits"]) == 2
    assert "cube.fits is not a complete cube of rubix_like" in capsys.readouterr().err


def test_maps_are_no_cube(made):
    made("cube_maps.fits")
    with pytest.raises(ValueError, match=r"cube_maps.fits is not a complete cube of rubix_like \(it holds maps\)"):
        Cube.read("cube_maps.fits")


@pytest.mark.slow
def test_maps_are_drawn_alone(made, tmp_path, capsys):
    made("cube_maps.fits")
    assert main(["plot", "cube_maps.fits", "--output", "maps.svg"]) == 0
    assert capsys.readouterr().out == "Picture: maps.svg\n"
    text = (tmp_path / "maps.svg").read_text()
    assert ">surface density of stars, after the PSF<" in text
    assert "before the PSF" not in text
    assert main(["plot", "cube_maps.fits", "--html"]) == 2
    assert "--html: expected a cube, got the file of maps, cube_maps.fits" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"cube_maps.fits", "maps.svg"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cube.fits", r"is a cube that rubix-like wrote; expected a galaxy's particles; open it with rl.load_cube\('"),
        ("cube.h5", "is a cube .* rl.load_cube"),
        ("manga.fits", "is a cube for other programs .* astropy.io.fits.open"),
        ("cube_maps.fits", "is a file of maps .* rl.Maps.read"),
        ("fit.h5", "is the result of a fit .* rl.FitResult.read"),
        ("library.h5", "is an SSP library .* rl.load_ssp"),
    ],
)
def test_what_is_no_galaxy_says_what_it_is(made, name, words):
    made(name)
    with pytest.raises(rl.ConfigError, match=words):
        rl.load_galaxy(name)


def test_every_kind_of_file_is_described_and_opened():
    assert set(OPENED_BY) == set(made_files._KINDS)


def test_the_folder_of_a_catalogue(tmp_path, capsys):
    """Entries by state, room on the disk, and why some failed."""
    (tmp_path / "records").mkdir()
    (tmp_path / "disc.fits").write_bytes(b" " * 2880)
    states = {"disc": ("done", ""), "far": ("failed", "ValueError: no stars"), "next": ("waiting", "")}
    lines = [",".join(COLUMNS)]
    for name, (state, error) in states.items():
        known = {"name": name, "status": state, "error": error}
        lines.append(",".join(known.get(column, "") for column in COLUMNS))
    (tmp_path / "summary.csv").write_text("\n".join(lines) + "\n")
    assert main(["inspect", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    for words in ("3: 1 done, 1 failed, 1 waiting", "Failed: far: ValueError: no stars", "catalogue", "kB"):
        assert words in told
    (tmp_path / "summary.csv").write_text("a,b\n1,2\n")
    assert main(["inspect", str(tmp_path)]) == 2
    assert "expected the summary of a catalogue" in capsys.readouterr().err
