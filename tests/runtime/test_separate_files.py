"""What is read is never replaced by what is written, whatever the name under which it is given."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from small import make_cube

from rubix_like import ConfigError, fit, run, run_catalogue, sample
from rubix_like.extend import resource
from rubix_like.runtime.files.outputs import check_separate

INSTRUMENT = {"name": "muse", "fov": 1, "wavelength": {"start": 5000, "stop": 5010}, "psf": None, "lsf": None}
FREE = {"observation.inclination": {"uniform": ["10 deg", "80 deg"]}}


@pytest.mark.parametrize("way", ["same", "relative", "symlink", "folder link", "hard link", "to be made"])
def test_a_file_is_known_by_any_of_its_names(way):
    Path("data").mkdir()
    read, written = Path("data/galaxy.hdf5"), Path("cube.h5")
    if way != "to be made":
        read.write_text("stars")
    if way in {"same", "to be made"}:
        written = read.absolute()
    elif way == "relative":
        written = Path("data/../data/galaxy.hdf5")
    elif way == "symlink":
        written.symlink_to(read)
    elif way == "folder link":
        Path("there").symlink_to("data")
        written = Path("there/galaxy.hdf5")
    else:
        os.link(read, written)
    with pytest.raises(
        ConfigError, match=rf"output: .* got '.*{written.name}', which is .*galaxy.hdf5' \(galaxy.path\)"
    ):
        check_separate([Path("other.fits"), written], [("galaxy.path", read)], "output")
    check_separate([Path("other.h5")], [("galaxy.path", read), ("galaxy.path", Path("nothing"))], "output")


def write_files():
    """One of each that a run may read; of a galaxy's only the names are looked at."""
    for name in ("galaxy.0.hdf5", "galaxy.1.hdf5", "groups.hdf5", "fitted.h5"):
        Path(name).write_text("data")
    fits.PrimaryHDU(np.ones((3, 3))).writeto("psf.fits")
    fits.PrimaryHDU(np.ones((5, 5))).writeto("mask.fits")
    fits.PrimaryHDU(np.ones((5, 5, 5))).writeto("data.fits")
    shutil.copy(resource("skies", "dark"), "sky.fits")
    shutil.copy(resource("data", "popstar"), "library.h5")


def settings(**sections):
    return {
        "galaxy": {"path": "galaxy.0.hdf5", "catalogue": "groups.hdf5", "subhalo": 0, "reader": "illustris"},
        "observation": {"redshift": 0.1},
        "instrument": INSTRUMENT,
        "output": {"path": "cube.fits"},
        **sections,
    }


PSF = {"instrument": {**INSTRUMENT, "psf": {"kind": "image", "file": "psf.fits", "file_scale": 0.2}}}
MASK = {"instrument": {**INSTRUMENT, "aperture": {"shape": "mask", "file": "mask.fits"}}}


@pytest.mark.parametrize(
    ("sections", "output", "lost"),
    [
        ({}, "galaxy.0.hdf5", "galaxy.path"),
        ({}, "galaxy.1.hdf5", "galaxy.path"),
        ({}, "groups.hdf5", "galaxy.catalogue"),
        (PSF, "psf.fits", "instrument.psf.file"),
        (MASK, "mask.fits", "instrument.aperture.file"),
        ({"ssp": {"library": "library.h5"}}, "library.h5", "ssp.library"),
        ({"noise": {"exposure": {"time": 100, "sky": "sky.fits"}}}, "sky.fits", "noise.exposure.sky"),
        ({"products": {"band": None}, "output": {"maps": "link.fits"}, **PSF}, "cube.fits", "instrument.psf.file"),
        ({"noise": {"signal_to_noise": 9, "keep_truth": True}, **PSF}, "link.fits", "instrument.psf.file"),
    ],
)
def test_a_run_replaces_nothing_that_it_reads(tmp_path, sections, output, lost):
    """Siblings of a numbered file, a group catalogue, maps and truth are among them."""
    write_files()
    (tmp_path / "link.fits").symlink_to("psf.fits")
    (tmp_path / "link_truth.fits").symlink_to("psf.fits")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=rf"output: expected other files than those that are read.*\({lost}\)"):
        run(settings(**sections), output=output)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_configuration_and_the_lists_are_read_too(capsys, jax_settings):
    write_files()
    Path("run.yaml").write_text(json.dumps(settings()))
    Path("cube.fits").symlink_to("run.yaml")
    with pytest.raises(ConfigError, match=r"output: .*'cube.fits', which is 'run.yaml' \(configuration\)"):
        run("run.yaml")
    assert main(["run", "run.yaml"]) == 2
    assert "'cube.fits', which is 'run.yaml' (CONFIG)" in capsys.readouterr().err
    Path("cubes").mkdir()
    Path("cubes/summary.csv").write_text("name,galaxy.subhalo\na,0\n")
    with pytest.raises(ConfigError, match=r"output: .*summary.csv', which is 'cubes/summary.csv' \(catalogue\)"):
        run_catalogue(settings(), "cubes/summary.csv", output="cubes")
    Path("cubes/a.fits").symlink_to("../galaxy.1.hdf5")
    with pytest.raises(ConfigError, match=r"output: .*a.fits', which is 'galaxy.1.hdf5' \(a source\)"):
        run_catalogue(settings(), [{"name": "a", "galaxy.subhalo": 0}], output="cubes")
    assert Path("cubes/summary.csv").read_text() == "name,galaxy.subhalo\na,0\n"


@pytest.mark.parametrize(
    ("command", "options", "lost"),
    [
        (fit, {"output": "link.h5"}, "fit.data"),
        (fit, {"output": "data.h5"}, "fit.data"),
        (sample, {"output": "link.h5"}, "fit.data"),
        (sample, {"output": "fitted.h5", "fitted": "fitted.h5"}, "fitted"),
        (sample, {"output": "fit.h5"}, "result of the fit"),
        (sample, {"output": "library.h5"}, "ssp.library"),
    ],
)
def test_a_fit_replaces_nothing_that_it_reads(command, options, lost):
    """Also where the cube of the model, fit_model.fits, would do so."""
    write_files()
    Path("link.h5").symlink_to("data.fits")
    Path("data_model.fits").symlink_to("data.fits")
    config = settings(galaxy={"reader": "synthetic"}, ssp={"library": "library.h5"}, fit={"free": FREE})
    with pytest.raises(ConfigError, match=rf"fit\.(sampling\.)?output: expected other files.*\({lost}\)"):
        command(config, "data.fits", **options)


def test_pictures_and_libraries_replace_nothing_that_they_are_made_from(tmp_path, monkeypatch, capsys, jax_settings):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    write_files()
    Path("data.fits").unlink()
    make_cube().write("data.fits")
    for name in ("data.png", "library.png"):
        Path(name).symlink_to(f"{Path(name).stem}.{'fits' if name == 'data.png' else 'h5'}")
    assert main(["plot", "data.fits", "--output", "data.png"]) == 2
    assert "'data.png', which is 'data.fits' (CUBE)" in capsys.readouterr().err
    assert main(["ssp", "compare", "popstar", "library.h5", "--output", "library.png"]) == 2
    assert "'library.png', which is 'library.h5' (B)" in capsys.readouterr().err
    assert main(["ssp", "import", "library.h5", "--name", "own"]) == 0
    kept = next((tmp_path / "cache").rglob("own.h5"))
    content = kept.read_bytes()
    assert main(["ssp", "import", str(kept), "--name", "own"]) == 2
    assert f"which is '{kept}' (FILE)" in capsys.readouterr().err
    assert kept.read_bytes() == content
