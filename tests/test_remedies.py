"""Remedies of messages, followed: the input is refused with the remedy, and the remedy as given makes it right."""

import dataclasses
import re
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import h5py
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from astropy.units import Quantity
from command_line import main
from small import make_cube, muse

import rubix_like as rl
from rubix_like.extend import (
    AbstractGalaxyModel,
    WavelengthBins,
    import_library,
    parse_quantity,
    read_table,
    resource,
    write_table,
)

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 20},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": {"name": "muse", "fov": "2 arcsec"},
    "devices": {"data": 1},
}
SHORT = {**RUN, "instrument": muse(5000, 5060, 20, "2 arcsec")}
"""Four bins."""

CONFIGURATION = {
    "key": ({"instrument.pixelscale": 0.4}, "'pixel_scale'", {"instrument.pixel_scale": 0.4}, 0.4),
    "unit": ({"instrument.pixel_scale": "3 kpc"}, "'0.8 arcsec'", {"instrument.pixel_scale": "0.8 arcsec"}, 0.8),
    "section": ({"enginee.method": "basis"}, "'engine'", {"engine.method": "basis"}, "basis"),
    "ending": ({"output.path": "cube.txt"}, "'cube.fits'", {"output.path": "cube.fits"}, Path("cube.fits")),
    "number": ({"galaxy.n_stars": "many"}, "expected a whole number", {"galaxy.n_stars": "7"}, 7),
    "distance": (
        {"observation.redshift": 0},
        "(e.g. 10 Mpc)",
        {"observation.distance": "10 Mpc", "observation.redshift": 0},
        10,
    ),
    "kind of PSF": (
        {"instrument.psf.kind": "mofat"},
        "'moffat'",
        {"instrument.psf.kind": "moffat", "instrument.psf.beta": 2.5},
        "moffat",
    ),
    "curve": (
        {"dust": {"a_v": 1, "curve": "calzeti"}},
        "'calzetti'",
        {"dust.curve": "calzetti", "dust.a_v": 1},
        "calzetti",
    ),
    "none": ({"noise": "none"}, "write null", {"noise": "null"}, None),
    "line spread": (
        {"instrument.lsf": {"fwhm": 2.5, "resolving_power": 2000}},
        "exactly one of: polynomial; fwhm;",
        {"instrument.lsf.fwhm": 2.5, "instrument.lsf.polynomial": "null"},
        (2.5,),
    ),
    "logarithmic bins": (
        {"instrument.wavelength.sampling": "log"},
        "expected wavelength.step beside it",
        {"instrument.wavelength.step": 1e-4, "instrument.wavelength.sampling": "log"},
        1e-4,
    ),
    "gaps": (
        {"systematics.gaps": [5000, 5100]},
        "[[5000, 5100]]",
        {"systematics.gaps": [[5000, 5100]]},
        ((5000, 5100),),
    ),
    "arms of none": ({"instrument.join": True}, "join: false", {"instrument.join": False}, False),
    "arm of none": ({"instrument.arm": "red"}, "expected null", {"instrument.arm": "null"}, None),
    "name of an arm": (
        {"instrument": {"name": "manga_arms", "arm": "gren"}},
        "blue, red",
        {"instrument.arm": "blue", "instrument.name": "manga_arms"},
        "blue",
    ),
    "key of an arm": (
        {"instrument": {"name": "manga_arms", "wavelength": {"stop": 6000}}},
        "arms.blue.wavelength",
        {"instrument.arms.blue.wavelength.stop": 6000, "instrument.name": "manga_arms"},
        6000,
    ),
    "compressed twice": (
        {"output.compression": "gzip", "output.path": "cube.fits.gz"},
        "write 'cube.fits'",
        {"output.compression": "gzip", "output.path": "cube.fits"},
        "gzip",
    ),
    "quantized": (
        {"output.quantize": 16},
        "{compression: rice, quantize: 16}",
        {"output.quantize": 16, "output.compression": "rice"},
        16,
    ),
    "key of no section": (
        {"instrument.lsf.R": 2000},
        "'instrument.lsf.R'; known: fwhm, includes_pixel, polynomial, resolving_power",
        {"instrument.lsf.resolving_power": 2000, "instrument.lsf.polynomial": "null"},
        (2000,),
    ),
    "sigma of a PSF": (
        {"instrument.psf": {"kind": "gaussian", "sigma": 0.3}},
        "give fwhm, 2.355 times",
        {"instrument.psf.fwhm": 0.7065, "instrument.psf.kind": "gaussian"},
        0.7065,
    ),
    "sigma of an LSF": (
        {"instrument.lsf": {"sigma": 50}},
        "give fwhm in Angstrom, 2.355 times",
        {"instrument.lsf.resolving_power": 2546, "instrument.lsf.polynomial": "null"},
        (2546,),
    ),
    "resolving power alone": (
        {"instrument.lsf": 3000},
        "or {resolving_power: 3000}",
        {"instrument.lsf.resolving_power": 3000, "instrument.lsf.polynomial": "null"},
        (3000,),
    ),
    "screen of particles": (
        {"dust": {"kind": "particles", "a_v": 1}},
        "or kind: screen",
        {"dust.kind": "screen", "dust.a_v": 1},
        "screen",
    ),
    "key of another section": (
        {"instrument.inclinaton": 30},
        "did you mean 'observation.inclination'",
        {"observation.inclination": 30},
        30,
    ),
    "key of an aperture": (
        {"instrument.aperture": {"shape": "circle", "diameter": 1}},
        "aperture.diameter'; give size, the diameter",
        {"instrument.aperture.size": 1, "instrument.aperture.shape": "circle"},
        (1,),
    ),
    "key of a data set": (
        {"fit.data": {"b": {"cube": "b.fits", "weight": 2}}},
        "'fit.data.b.weight'; known: aperture, bins,",
        {"fit.data.b.sigma": 2, "fit.data.b.cube": "b.fits"},
        2,
    ),
    "kind of a data set": (
        {"fit.data": {"b": {"file": "b.fits"}}},
        "give the file as what it is: cube, image, spectrum or fibres",
        {"fit.data.b.cube": "b.fits"},
        Path("b.fits"),
    ),
    "nuisance of a data set": (
        {"fit.data": {"b": {"cube": "b.fits", "scale": {"log_normal": [1, 0.1]}}}},
        "did you mean 'fit.data.b.nuisance.scale'",
        {"fit.data.b.nuisance.scale": {"log_normal": [1, 0.1]}, "fit.data.b.cube": "b.fits"},
        {"log_normal": (1, 0.1)},
    ),
    "degrees of an aperture": (
        {"fit.data": {"b": {"spectrum": "b.txt", "aperture": {"size": 0.0008}}}},
        "fit.data.b.aperture.size: expected 0.01 to 3600 arcsec, got 0.0008; numbers without a unit are in arcsec",
        {"fit.data.b.aperture.size": "3 arcsec", "fit.data.b.spectrum": "b.txt"},
        (3,),
    ),
    "cells of an aperture": (
        {"fit.data": {"b": {"spectrum": "b.txt", "aperture": {"size": 3, "pixel_scale": 1e-4}}}},
        "pixel_scale: expected at most 1000 cells along a side, so at least 0.003 arcsec",
        {"fit.data.b.aperture.pixel_scale": 0.003, "fit.data.b.aperture.size": 3, "fit.data.b.spectrum": "b.txt"},
        0.003,
    ),
    "years for Myr": (
        {"nebular.oldest": 3e7, "pipeline": "nebular"},
        "nebular.oldest: expected a number <= 20000, got 30000000.0 (without a unit: in Myr)",
        {"nebular.oldest": "3e7 yr", "pipeline": "nebular"},
        30,
    ),
    "years for Myr of birth clouds": (
        {"dust": {"kind": "particles", "birth_age": 1e7}},
        "dust.birth_age: expected a number <= 20000, got 10000000.0 (without a unit: in Myr)",
        {"dust.birth_age": "1e7 yr", "dust.kind": "particles"},
        10,
    ),
    "slope without its sign": (
        {"dust": {"a_v": 0.3, "curve": "power_law", "slope": 0.7}},
        "dust.slope: expected an exponent <= 0, as dust dims blue light most, got 0.7; give -0.7",
        {"dust.slope": -0.7, "dust.curve": "power_law", "dust.a_v": 0.3},
        -0.7,
    ),
    "step of logarithmic bins": (
        {"instrument.wavelength": {"sampling": "log", "step": 1.25}},
        "instrument.wavelength.step: expected at most 0.5882 dex, twice from start to stop, got 1.25 dex; with "
        "sampling: log the step is in dex, e.g. 1e-4",
        {"instrument.wavelength.step": 1e-4, "instrument.wavelength.sampling": "log"},
        1e-4,
    ),
    "step beyond the last bin": (
        {"instrument.wavelength": {"start": 5000, "stop": 5040, "step": 100}},
        "instrument.wavelength.step: expected at most 80 Angstrom, twice from start to stop, got 100 Angstrom; give "
        "a smaller one, or for a single bin stop: 5000",
        {"instrument.wavelength.stop": 5000, "instrument.wavelength.start": 5000, "instrument.wavelength.step": 100},
        5000,
    ),
    "micron for Angstrom": (
        {"instrument.wavelength": {"start": 0.5, "stop": 0.504, "step": 1e-4}},
        "instrument.wavelength.start: expected a number >= 30, got 0.5 (without a unit: in Angstrom)",
        {"instrument.wavelength.start": "0.5 um", "instrument.wavelength.stop": "0.504 um"},
        pytest.approx(5000),
    ),
    "name of a library": (
        {"ssp": {"name": "popstar"}},
        "'ssp.name'; give library, e.g. library: popstar",
        {"ssp.library": "popstar"},
        "popstar",
    ),
    "table for a path": (
        {"output.path": np.zeros(1, [("x", float)])},
        "output.path: expected numbers, texts or paths, got a value of type ndarray; save it as a file, and give its",
        {"output.path": "cube.fits"},
        Path("cube.fits"),
    ),
    "maps": ({"output.maps": "maps.txt"}, ".fits or .fits.gz", {"output.maps": "maps.fits"}, Path("maps.fits")),
    "layout with noise": (
        {"output.layout": "manga", "instrument.wavelength.medium": "vacuum"},
        "(e.g. noise: {signal_to_noise: 50})",
        {"output.layout": "manga", "instrument.wavelength.medium": "vacuum", "noise": {"signal_to_noise": 50}},
        "manga",
    ),
    "layout's medium": (
        {"output.layout": "manga", "noise": {"signal_to_noise": 50}},
        "instrument.wavelength.medium: vacuum",
        {"output.layout": "manga", "instrument.wavelength.medium": "vacuum", "noise": {"signal_to_noise": 50}},
        "manga",
    ),
    "two kinds of noise": (
        {"noise": {"signal_to_noise": 30, "exposure": {"time": "1 h"}}},
        "set the other to null",
        {"noise.signal_to_noise": 30, "noise.exposure": "null"},
        30,
    ),
    "nucleus": (
        {"nebular.source": "agn", "pipeline": "nebular"},
        "agn: {log_luminosity: 44}",
        {"nebular.agn.log_luminosity": 44, "nebular.source": "agn", "pipeline": "nebular"},
        44,
    ),
    "prior": (
        {"fit.free": {"observation.inclination": [10, 80]}},
        "{uniform: [0, 1]}",
        {"fit.starts": 2, "fit.free": {"observation.inclination": {"uniform": [0, 1]}}},
        2,
    ),
    "likelihood": (
        {"fit.likelihood": {"kind": "gaussian", "degrees_of_freedom": 3}},
        "leave it out",
        {"fit.likelihood.kind": "gaussian"},
        "gaussian",
    ),
}
"""Overrides, the remedy in the message, overrides that follow it, and the value of the setting then."""

CHECK = ("check", "quickstart", "--set", "galaxy.n_stars=20", "devices.data=1")
LISTED = ("check", "closed.yaml", "--catalogue")
PLOT = ("plot", "cube.fits")
CATALOGUE = ("run", "closed.yaml", "--catalogue", "list.csv", "--plot")
COMMANDS = {
    "configuration": (("check", "quikstart", *CHECK[2:]), "did you mean 'quickstart'?", CHECK),
    "command": (("chek", *CHECK[1:]), "(choose from ", CHECK),
    "option": (("check", "quickstart", "--sett", *CHECK[3:]), "did you mean --set", CHECK),
    "kind of list": (("list", "instrumnts"), "(choose from ", ("list", "instruments")),
    "setting without a value": ((*CHECK, "noise"), "noise=null", (*CHECK, "noise=null")),
    "key of a setting": ((*CHECK, "galaxy.n_star=9"), "'n_stars'", (*CHECK, "galaxy.n_stars=9")),
    "library": (("ssp", "info", "popstr"), "`rubix-like ssp list`", ("ssp", "list")),
    "no cube": (("plot",), "the following arguments are required: CUBE", ("plot", "--help")),
    "bracket": (("check", "open.yaml"), "every bracket and quote closed", ("check", "closed.yaml")),
    "tab": (("check", "tab.yaml"), "indented by spaces", ("check", "closed.yaml")),
    "key twice": (("check", "twice.yaml"), "the key 'devices' is given twice", ("check", "closed.yaml")),
    "tag": (("check", "tag.yaml"), "write the value alone", ("check", "closed.yaml")),
    "spaxel": ((*PLOT, "--spaxel", "here"), "(column and row, counted from 0, e.g. 12,7)", (*PLOT, "--spaxel", "2,1")),
    "spaxel outside": ((*PLOT, "--spaxel", "12,7"), "from (0, 0) to (4, 2)", (*PLOT, "--spaxel", "4,2")),
    "band": ((*PLOT, "--band", "5000"), "(e.g. 5000-5100)", (*PLOT, "--band", "4750-4752")),
    "band outside": (
        (*PLOT, "--band", "1-2"),
        "within the cube's 4749.90 to 4754.90",
        (*PLOT, "--band", "4749.9-4754"),
    ),
    "picture": ((*PLOT, "--output", "a.jpg"), "ending in .png, .pdf, .svg", (*PLOT, "--output", "a.png")),
    "picture of others": (
        (*PLOT, "--output", "mine.png"),
        "give --overwrite",
        (*PLOT, "--output", "mine.png", "--overwrite"),
    ),
    "picture elsewhere": ((*PLOT, "--output", "mine.png"), "(--output ...)", (*PLOT, "--output", "other.png")),
    "picture of a catalogue": (
        (*CATALOGUE, "--output", "many", "--overwrite"),
        "move it, or give another folder (--output ...)",
        (*CATALOGUE, "--output", "others"),
    ),
    "new": (("new", "mine.txt"), "ending in .yaml or .yml", ("new", "mine.yaml")),
    "new, there": (("new", "tab.yaml"), "replace it with --overwrite", ("new", "tab.yaml", "--overwrite")),
    "list with semicolons": ((*LISTED, "semicolons.csv"), "separated by commas", (*LISTED, "list.csv")),
    "column of a list": ((*LISTED, "column.csv"), "did you mean 'galaxy'?", (*LISTED, "list.csv")),
    "views": (("check", "closed.yaml", "--views", "list.csv"), "--catalogue LIST.csv beside it", (*LISTED, "list.csv")),
}
"""A command, the remedy in its message, and the command that follows it."""

COLUMNS = ("x", "y", "z", "vx", "vy", "vz", "mass", "age", "Z")
UNITS = {"age": {"column": "age", "unit": "Gyr"}}
"""What the message on a column without a unit says."""
RENAMED = {"age": {"column": "t", "unit": "Gyr"}}
TABLES = {
    "unit": ("table/", COLUMNS, {}, "{columns: {age: {column: ..., unit: Gyr}}}", {"columns": UNITS}),
    "column": ("table/", (*COLUMNS[:7], "t", "Z"), {}, "galaxy.columns: {age: COLUMN}", {"columns": RENAMED}),
    "no ages": ("table/", (*COLUMNS[:7], "other", "Z"), {}, "set galaxy.ages: recipe", {"ages": "recipe"}),
    "a column twice": (
        "galaxy.columns.position",
        (*COLUMNS[:3], "vx", "vy", "vz", *COLUMNS[6:]),
        {"columns": {**UNITS, "position": ["x", "y", "y"]}},
        "expected different columns for x, y and z",
        {"columns": {**UNITS, "position": ["x", "y", "z"]}},
    ),
    "positions that are velocities": (
        "galaxy.columns.position",
        COLUMNS,
        {"columns": {**UNITS, "position": ["vx", "vy", "vz"]}},
        "give them as velocity",
        {"columns": {**UNITS, "velocity": ["vx", "vy", "vz"]}},
    ),
    "one number for a vector": (
        "galaxy.columns.position",
        COLUMNS,
        {"columns": {**UNITS, "position": "x"}},
        "got 'x', a column of single numbers; name all three, e.g. position: [x, y, z]",
        {"columns": {**UNITS, "position": ["x", "y", "z"]}},
    ),
    "no velocities": (
        "table/",
        (*COLUMNS[:3], "a", "b", "c", *COLUMNS[6:]),
        {"columns": UNITS},
        "velocities: zero",
        {"columns": UNITS, "velocities": "zero"},
    ),
}
"""The place that the message names, columns of a table, settings, the remedy, and settings that follow it."""


@pytest.mark.parametrize(("bad", "remedy", "followed", "right"), CONFIGURATION.values(), ids=CONFIGURATION)
def test_remedies_of_configurations(bad, remedy, followed, right):
    with pytest.raises(rl.ConfigError) as refused:
        rl.load_config(RUN, bad)
    assert remedy in str(refused.value)
    found = rl.load_config(RUN, followed)
    for key in next(iter(followed)).split("."):
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    assert found == right


SNAPSHOT = {
    "reader": "table",
    "path": "stars.csv",
    "neighbours": 16,
    "columns": {"age": {"column": "age", "unit": "Gyr"}},
}
GAS = {"name": "gas", "light": {"profile": "exponential", "scale_length": 3}}
FAINT = {**GAS, "lines": {"wavelengths": "Ha", "flux": 2e-15}}
HALPHA = {"pipeline": "lines", "instrument.wavelength": {"start": 6870, "stop": 6910, "step": 10}}
NO_ORIENT = {"pipeline": "own.yaml", "observation.inclination": 60}
NOTES = {
    "distance in kpc": ({"observation.distance": 229900}, "is 1e+03 times that of redshift 0.05"),
    "wavelengths in nm": ({"instrument.wavelength": {"start": 480, "stop": 483}}, "numbers without a unit are in Ang"),
    "window of no place": ({"noise": {"signal_to_noise": 50, "width": 50}}, "no effect without noise.wavelength"),
    "LSF in nm": ({"instrument.lsf": {"wavelength": [480, 930], "fwhm": [2, 3]}}, "lsf.wavelength reach from 480 to"),
    "smoothing of none": ({"engine.smoothing.largest": 5}, "engine.smoothing has no effect with deposit nearest"),
    "neighbours of no smoothing": ({"galaxy": SNAPSHOT}, "galaxy.neighbours has no effect"),
    "radius of no alignment": ({"observation.align_radius": "5 kpc"}, "observation.align_radius has no effect"),
    "inclination without a stage": (NO_ORIENT, "inclination has no effect: the pipeline 'own' has no stage 'orient'"),
    "flux without its unit": (
        {"galaxy": {"reader": "components", "components": [FAINT]}, **HALPHA},
        "galaxy.gas.lines.flux: 2e-15 x 1e-20 erg/s/cm2 is fainter than any line that is observed; give the unit",
    ),
    "library per 1e4 Msun": ({"ssp.library": "bright.h5"}, "check that its spectra are in Lsun"),
    "opaque screen": ({"dust": {"a_v": 1000}}, "dust.a_v: 1000 mag dims every bin by"),
    "coarse image": (
        {"instrument.psf": {"kind": "image", "file": "psf.fits", "file_scale": 1}},
        "psf.file_scale: 1 arcsec, the side of a pixel of psf.fits, is larger than a spaxel (0.2 arcsec)",
    ),
    "library in nm": ({"ssp.library": "nm.h5"}, "check that its rest_wavelength is in Angstrom"),
}
"""Settings that are possible, though not what one means, and what a note on the pipeline says."""


@pytest.fixture(scope="module")
def noted(tmp_path_factory):
    """A folder with the files that such settings name, and the notes without them."""
    folder = tmp_path_factory.mktemp("noted")
    (folder / "own.yaml").write_text("scene: [point]\npaint: [stars]\ncube: [psf, noise]\n", encoding="utf-8")
    y, x = np.mgrid[-10:11, -10:11]
    fits.writeto(folder / "psf.fits", np.exp(-(x**2 + y**2) / 4))
    popstar = read_table(resource("data", "popstar"))
    write_table(dataclasses.replace(popstar, rest_wavelength=popstar.rest_wavelength / 10), folder / "nm.h5")
    write_table(dataclasses.replace(popstar, spectra=popstar.spectra * 1e4), folder / "bright.h5")
    return folder, rl.Pipeline.from_config(SHORT).notes


@pytest.mark.parametrize(("overrides", "words"), NOTES.values(), ids=NOTES)
def test_notes_on_settings_that_mean_something_else(overrides, words, noted, monkeypatch):
    folder, plain_notes = noted
    monkeypatch.chdir(folder)
    assert not any(words in note for note in plain_notes)
    assert any(words in note for note in rl.Pipeline.from_config(rl.load_config(SHORT, overrides)).notes)


def test_remedies_of_the_reach_of_psfs(tmp_path):
    """Images with far too large pixels are refused at once; the widest FWHM that is named is taken."""

    def planned(psf):
        instrument = {**muse(5000, 5060, 20, "1 arcsec"), "psf": psf}
        return rl.Pipeline.from_config({**RUN, "instrument": instrument})

    fits.writeto(tmp_path / "psf.fits", np.ones((61, 61)))
    image = {"kind": "image", "file": str(tmp_path / "psf.fits")}
    with pytest.raises(rl.ConfigError, match=r"^instrument.psf.file_scale: .* by pixels of 250 spaxels each; give"):
        planned({**image, "file_scale": 50})
    with pytest.raises(rl.ConfigError, match="at most 126 arcsec in place of 127,"):
        planned({"fwhm": 127})
    for psf in ({**image, "file_scale": 0.05}, {"fwhm": 126}):
        assert planned(psf).frame.n_x == 5


def test_remedies_of_apertures_smaller_than_a_spaxel():
    aperture = {"instrument.aperture": {"shape": "circle", "size": 5e-4}}
    with pytest.raises(rl.ConfigError, match=r"^instrument.aperture.size: expected at least one spaxel, 0.2 arcsec"):
        rl.Pipeline.from_config(rl.load_config(SHORT, aperture))


def test_a_psf_image_beside_the_middle_is_told(caplog):
    for name, row in (("middle", 30), ("beside", 42)):
        image = np.zeros((61, 61))
        image[row, 30] = 1
        fits.writeto(f"{name}.fits", image)
        psf = {"kind": "image", "file": f"{name}.fits", "file_scale": 0.05}
        rl.Pipeline.from_config(rl.load_config(SHORT, {"instrument.psf": psf}))
        assert ("moved by (0, 0.6) arcsec" in caplog.text) is (name == "beside")


def test_nested_parameters_are_named_by_dotted_keys():
    with pytest.raises(rl.ConfigError, match=r"'observation', which is a section; name its numbers by dotted keys"):
        rl.Pipeline.from_config(SHORT)(rl.load_galaxy(SHORT), {"observation": {"inclination": 40}})


def code_of(arguments):
    try:
        return main(list(arguments))
    except SystemExit as error:
        return error.code


@pytest.mark.parametrize(("bad", "remedy", "followed"), COMMANDS.values(), ids=COMMANDS)
def test_remedies_of_the_command_line(bad, remedy, followed, tmp_path, monkeypatch, capsys, jax_settings):
    monkeypatch.chdir(tmp_path)
    text = "galaxy: {reader: synthetic, n_stars: 20}\nobservation: {redshift: 0.05}\ninstrument: {name: muse, fov: 2}\n"
    Path("closed.yaml").write_text(text + "devices: {data: 1}\n")
    Path("open.yaml").write_text(text + "devices: {data: 1\n")
    Path("tab.yaml").write_text(text + "devices:\n\tdata: 1\n")
    Path("twice.yaml").write_text(text + "devices: {data: 1}\ndevices: {data: 1}\n")
    Path("tag.yaml").write_text(text + "devices: !!python/dict {data: 1}\n")
    Path("list.csv").write_text("name,galaxy.seed\na,1\n")
    Path("semicolons.csv").write_text("name;galaxy.seed\na;1\n")
    Path("column.csv").write_text("name,galxy.seed\na,1\n")
    Path("mine.png").write_text("mine")
    Path("many").mkdir()
    Path("many/a.png").write_text("mine")
    make_cube().write("cube.fits")
    assert code_of(bad) == 2
    assert remedy in capsys.readouterr().err
    assert code_of(followed) == 0


@pytest.mark.parametrize("path", [".", "", "no.fits"])
def test_what_is_no_cube_is_named(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert code_of(["plot", path]) == 2
    assert "cube" in capsys.readouterr().err


def test_files_of_python_objects_are_refused_without_advice_to_run_them(tmp_path):
    path = tmp_path / "spectra_emiles_9.0.npz"
    np.savez(
        path, **dict.fromkeys(("templates", "masses", "lam", "ages", "metals", "fwhm"), np.array([{}, None], object))
    )
    with pytest.raises(ValueError, match="write arrays of numbers by numpy.save") as refused:  # noqa: RUF043
        import_library(path)
    assert "allow_pickle" not in str(refused.value)


@pytest.mark.parametrize(("place", "columns", "settings", "remedy", "followed"), TABLES.values(), ids=TABLES)
def test_remedies_of_tables(place, columns, settings, remedy, followed, tmp_path):
    path = tmp_path / "stars.csv"
    random = np.random.default_rng(1)
    values = np.column_stack([random.normal(size=(30, 6)), np.full((30, 3), [1e5, 2.0, 0.02])])
    np.savetxt(path, values, delimiter=",", header=",".join(columns), comments="")
    galaxy = {"reader": "table", "path": str(path)}
    with pytest.raises(ValueError, match=place) as refused:
        rl.load_galaxy({**RUN, "galaxy": {**galaxy, **settings}})
    assert remedy in str(refused.value)
    stars = rl.load_galaxy({**RUN, "galaxy": {**galaxy, **followed}}).stars
    assert len(stars.position) == 30
    np.testing.assert_allclose(stars.initial_mass, 1e5, rtol=1e-6)
    if "columns" in followed:
        np.testing.assert_allclose(stars.log_age, np.log10(2e9), rtol=1e-6)
    if "velocities" in followed:
        assert not np.any(stars.velocity)


def write_tables(file):
    """Two tables, each of which may hold the stars."""
    for number, name in enumerate(("old", "young"), start=1):
        group = file.create_group(name)
        group.update({key: np.arange(30.0) * number for key in ("x", "y", "z", "vx", "vy", "vz")})
        group.update({"mass": np.full(30, 1e5 * number), "log_age": np.full(30, 9.0), "Z": np.full(30, 0.02)})


def write_snapshot(file, label, **without):
    """A snapshot with the marks of EAGLE and Magneticum, of which a label tells them apart."""
    header = {"RunLabel": label, "Time": 0.8, "Redshift": 0.25, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7}
    file.create_group("Header").attrs.update({**header, "BoxSize": 0.0})
    columns = {"Coordinates": (30, 3), "Velocity": (30, 3), "Mass": 30, "InitialMass": 30, "Metallicity": 30}
    for name, shape in columns.items():
        if name not in without:
            data = file.create_dataset(f"PartType4/{name}", data=np.random.default_rng(1).uniform(0.001, 0.01, shape))
            data.attrs.update({"aexp-scale-exponent": 0.0, "h-scale-exponent": 0.0, "CGSConversionFactor": 0.0})
    file["PartType4/StellarFormationTime"] = np.full(30, 0.5)


SNAPSHOTS = {
    "tables": (write_tables, {"reader": "table"}, "{columns: {table: old}}", {"columns": {"table": "old"}}),
    "kinds": (
        lambda file: write_snapshot(file, "EAGLE Magneticum"),
        {},
        "galaxy: {reader: eagle}",
        {"reader": "eagle"},
    ),
    "no velocities": (
        lambda file: write_snapshot(file, "EAGLE", Velocity=0),
        {},
        "galaxy.velocities: zero",
        {"velocities": "zero"},
    ),
}
"""A file of HDF5, settings, the remedy in the message, and settings that follow it."""


@pytest.mark.parametrize(("write", "settings", "remedy", "followed"), SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_remedies_of_snapshots(write, settings, remedy, followed, tmp_path):
    with h5py.File(tmp_path / "galaxy.hdf5", "w") as file:
        write(file)
    galaxy = {"path": str(tmp_path / "galaxy.hdf5"), **settings}
    with pytest.raises(ValueError, match=re.escape(remedy)):
        rl.load_galaxy({**RUN, "galaxy": galaxy})
    stars = rl.load_galaxy({**RUN, "galaxy": {**galaxy, **followed}}).stars
    assert stars.position.shape == (30, 3)
    assert np.any(stars.velocity) == ("velocities" not in followed)


FIT = {**SHORT, "fit": {"data": "no.fits", "free": {"galaxy.stellar_mass": {"log_uniform": [1e9, 1e11]}}}}
ARGUMENTS = {
    "fit": (rl.fit, "overwite", "overwrite"),
    "sample": (rl.sample, "restrat", "restart"),
    "simulate": (rl.simulate, "reestart", "restart"),
}


@pytest.mark.parametrize(("call", "misspelt", "argument"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_remedies_of_arguments(call, misspelt, argument):
    with pytest.raises(rl.ConfigError, match=rf"^{misspelt}: .*; did you mean '{argument}'\?$"):
        call(FIT, **{misspelt: True})
    with pytest.raises((rl.ConfigError, FileNotFoundError)) as refused:  # there are no such data, and no priors
        call(FIT, "no.fits" if call is not rl.simulate else None, **{argument: True, "quiet": True, "seed": -1})
    assert argument not in str(refused.value)


@pytest.mark.parametrize("call", [rl.fit, rl.sample, rl.simulate])
def test_remedies_of_what_is_to_go_on(call):
    with pytest.raises(rl.ConfigError, match="resume: expected resume=True or restart=True, got both; leave one"):
        call(FIT, output="a.h5", resume=True, restart=True)
    with pytest.raises(rl.ConfigError, match="resume: expected the output of what is to go on, got none; give it as"):
        call(FIT, resume=True)


@pytest.mark.parametrize(
    ("argument", "value", "place"),
    [
        ("draws", 100, "{'nuts': {'draws': ...}}"),
        ("n_draws", 100, "{'nuts': {'draws': ...}}"),
        ("method", "geovi", "{'method': ...}"),
        ("nuts", {"draws": 100}, "{'nuts': {...}}"),
    ],
)
def test_remedies_of_arguments_that_are_the_samplers(argument, value, place):
    words = rf"^{argument}: unknown argument of sample; give it as sampling={re.escape(place)}$"
    with pytest.raises(rl.ConfigError, match=words):
        rl.sample(FIT, **{argument: value})


COMPONENTS = [
    {
        "name": name,
        "mass": 1e10,
        "light": {"profile": "exponential", "scale_length": 3},
        "population": {"history": "single", "log_age": 9.5, "metallicity": 0.02},
    }
    for name in ("disc", "bulge")
]
SMOOTH = {"galaxy": {"reader": "components", "components": COMPONENTS}}
FREE = {
    "setting": (
        "observation.redshift",
        {},
        "expected a parameter, got a setting that is fixed; leave it out (parameters of 'observation': observation.",
    ),
    "misspelt setting": ("observation.redshif", {}, "'observation.redshif'; known: observation.inclination, observ"),
    "no section": ("data.b.scale", {}, "unknown parameter 'data.b.scale'; known: observation.inclination, "),
    "half of a name": ("galaxy.mass", {}, "did you mean 'galaxy.stellar_mass'"),
    "mass of components": ("galaxy.mass", SMOOTH, "did you mean 'galaxy.disc.mass' or 'galaxy.bulge.mass'"),
    "total mass of components": ("galaxy.stellar_mass", SMOOTH, "'galaxy.disc.mass' or 'galaxy.bulge.mass'"),
    "component": ("galaxy.disk.mass", SMOOTH, "did you mean 'disc'"),
    "fixed key of a component": (
        "galaxy.disc.rotation.radii",
        SMOOTH,
        "got a setting that is fixed; leave it out (parameters of its section: galaxy.disc.rotation.speeds)",
    ),
}
"""A free parameter, sections of the configuration, and the remedy."""


@pytest.mark.parametrize(("name", "sections", "remedy"), FREE.values(), ids=FREE)
def test_remedies_of_free_parameters(name, sections, remedy):
    with pytest.raises(rl.ConfigError, match=re.escape(remedy)):
        rl.log_posterior({**SHORT, **sections}, make_cube(), {name: {"log_uniform": [1e9, 1e11]}}, sigma=1)


class Ring(AbstractGalaxyModel):
    """Five stars."""

    mass: float = 1e9
    velocity: float = 100.0
    count: int = eqx.field(static=True, default=5)
    units: ClassVar = {"mass": "Msun", "velocity": "km/s"}

    def draws(self):
        return np.ones(self.count)

    def sample(self, draws):
        velocity = jnp.stack([self.velocity * draws, 0 * draws, 0 * draws], axis=1)
        return rl.Galaxy(rl.Stars(0 * velocity, velocity, self.mass * draws / self.count, 9 * draws, 0.02 * draws))


class WholeRing(Ring):
    """A mass that is no parameter."""

    mass: int = 1000000000


class Fixed(AbstractGalaxyModel):
    """No parameter at all."""

    mass: int = 1000000000


OF_MODELS = {
    "no float": ("galaxy.mass", Fixed(), "expected a float field of Fixed, which has none"),
    "no beginning": ("velocity", Ring(), "unknown parameter 'velocity'; did you mean 'galaxy.velocity'?"),
    "misspelt": ("galaxy.velocty", Ring(), "did you mean 'galaxy.velocity'?"),
    "static": ("galaxy.count", Ring(), "of the model; its float fields that are not static: galaxy.mass, galaxy.veloc"),
    "whole number": ("galaxy.mass", WholeRing(), "'mass' of WholeRing, a field of the int 1000000000, which is none"),
}
"""A free parameter, a model of one's own, and what the error says."""


@pytest.mark.parametrize(("name", "model", "remedy"), OF_MODELS.values(), ids=OF_MODELS)
def test_remedies_of_free_parameters_of_models(name, model, remedy):
    with pytest.raises(rl.ConfigError, match=re.escape(remedy)):
        rl.log_posterior({**SHORT, "galaxy": None}, make_cube(), {name: {"normal": [1e9, 10]}}, sigma=1, model=model)


def test_whole_numbers_in_fields_of_floats_are_floats():
    config = rl.load_config({**RUN, "galaxy": None, "instrument": muse(5000, 5060, 20, "1 arcsec")})
    galaxy = Ring().sample(Ring().draws())
    cube = rl.Pipeline.from_config(rl.load_config(config, {"noise.signal_to_noise": 30}), galaxy)(galaxy)
    free = {"galaxy.mass": {"log_uniform": ["1e8 Msun", "1e10 Msun"]}}
    losses = [
        rl.log_posterior(config, cube, free, model=model)(np.zeros(1))
        for model in (Ring(), Ring(mass=1000000000, velocity=100))
    ]
    assert losses[0] == losses[1]


DATA_OF_MODELS = {
    "logarithm of a mass": (
        {"free": {"galaxy.stellar_mass": {"log_normal": [10.3, 0.3]}}},
        "fit.free.galaxy.stellar_mass: expected a prior with whose median the model's light is seen, got a median mass "
        "of 10.3 Msun",
    ),
    "metres per second": (
        {"free": {"observation.velocity_offset": {"uniform": [-200000, 200000]}}},
        "fit.free.observation.velocity_offset: expected priors with which nothing is faster than 83333.3 km/s",
    ),
    "sigma in cgs": ({"sigma": 1e-21}, "is fit.sigma, 1e-21, in another unit? Give it in 1e-20 erg/s/cm2/Angstrom"),
}
"""Settings of a fit and the words of the error."""


FREE_VELOCITY = {"observation.velocity_offset": {"normal": [0, 50]}}


@pytest.fixture(scope="module")
def mock():
    """A configuration, and a cube of it with noise."""
    config = rl.load_config({**RUN, "instrument": muse(5000, 5060, 20, "1 arcsec"), "engine": {"deposit": "tsc"}})
    galaxy = rl.load_galaxy(config)
    return config, rl.Pipeline.from_config(rl.load_config(config, {"noise.signal_to_noise": 30}), galaxy)(galaxy)


@pytest.mark.parametrize(("settings", "words"), DATA_OF_MODELS.values(), ids=DATA_OF_MODELS)
def test_remedies_of_fits_of_other_units(settings, words, mock):
    config, cube = mock
    cube = dataclasses.replace(cube, variance=None) if "sigma" in settings else cube
    with pytest.raises(ValueError, match=re.escape(words)):
        rl.fit(config, cube, **{"free": FREE_VELOCITY, "quiet": True, **settings})


def test_exclusions_without_effect_are_told(mock):
    config, cube = mock
    free = FREE_VELOCITY
    notes = rl.log_posterior(config, cube, free, exclude=[[500, 504], [5030, 5050]]).notes
    told = [note for note in notes if "has no effect: it holds no bins of the data, which lie at 5000.00" in note]
    assert len(told) == 1
    assert told[0].startswith("fit.exclude[0]: [500.0, 504.0]")


def test_remedies_of_stages_in_another_list(tmp_path):
    path, text = tmp_path / "own.yaml", "scene: [{}point]\npaint: [stars]\ncube: [{}psf]\n"
    path.write_text(text.format("", "orient, "))
    with pytest.raises(rl.ConfigError, match=r"cube: 'orient' is a scene stage; name it under scene$"):
        rl.load_config(RUN, {"pipeline": str(path)})
    path.write_text(text.format("orient, ", ""))
    rl.load_config(RUN, {"pipeline": str(path)})


def test_remedies_of_wavelengths_that_descend():
    centres, edges = np.arange(5000.0, 5003), np.arange(4999.5, 5003)
    words = r"got wavelength 5002 ... 5000, edges 5002.5 ... 4999.5; reverse them"
    with pytest.raises(ValueError, match=words):
        WavelengthBins.of_table(centres[::-1], edges[::-1], "air")
    assert WavelengthBins.of_table(centres, edges, "air").n_wave == 3


def test_remedies_of_arguments_of_quantities():
    with pytest.raises(ValueError, match=re.escape("got a unit; swap them: parse_quantity('3 kpc', 'kpc')")):
        parse_quantity("kpc", "3 kpc")
    assert parse_quantity("3 kpc", "kpc") == 3


def test_remedies_of_likelihoods():
    """Each is named once."""
    config = {**FIT, "fit": {**FIT["fit"], "likelihood": {"kind": "cauchy"}}}
    with pytest.raises(rl.ConfigError, match=r"unknown likelihood 'cauchy'; known: gaussian, .*student_t") as refused:
        rl.fit(config, make_cube(), sigma=1, accept_implausible=True, quiet=True)
    assert str(refused.value).count("student_t") == 1


def test_remedies_of_speeds():
    """The speed that the message names is that of the fastest star."""
    galaxy = rl.load_galaxy({**SHORT, "observation": {"redshift": 0.05, "velocity_offset": -300}})
    velocity = np.zeros((20, 3))
    velocity[3], velocity[4] = (0, 0, 1234.0), (3000, 4000, 0)
    stars = {name: getattr(galaxy.stars, name) for name in ("position", "initial_mass", "log_age", "metallicity")}
    fast = rl.Galaxy(rl.Stars(**stars, velocity=velocity))
    narrow = rl.load_config(SHORT, {"engine.velocity_range": 1000})
    with pytest.raises(ValueError, match=r"set engine.velocity_range to 5000 km/s, or build") as refused:
        rl.Pipeline.from_config(narrow)(fast)
    assert "got 1 of 20 stars beyond" in str(refused.value)
    wide = rl.Pipeline.from_config(rl.load_config(SHORT, {"engine.velocity_range": 5000}))
    assert int(wide(fast).counters.n_beyond_velocity) == 0
    with pytest.raises(ValueError, match=r"set engine.velocity_range to 14000 km/s, or build .*velocity_offset"):
        wide(fast, {"observation.velocity_offset": 9000})
    wide = rl.Pipeline.from_config(rl.load_config(SHORT, {"engine.velocity_range": 14000}))
    assert int(wide(fast, {"observation.velocity_offset": 9000}).counters.n_beyond_velocity) == 0


def test_remedies_of_files_that_are_no_library(tmp_path):
    path, table = tmp_path / "notes.txt", read_table(resource("data", "popstar"))
    path.write_text("mine")
    with pytest.raises(rl.ConfigError, match=r"a file that is no SSP library; .*overwrite=True.*another path"):
        write_table(table, path, overwrite=False)
    assert path.read_text() == "mine"
    write_table(table, path.with_suffix(".h5"), overwrite=False)
    write_table(table, path, overwrite=True)
    np.testing.assert_array_equal(rl.load_ssp(path).spectra, rl.load_ssp("popstar").spectra)


def test_remedies_of_text_with_a_unit():
    parameters = rl.Pipeline.from_config({**SHORT, "observation": {**RUN["observation"], "inclination": 30}}).parameters
    with pytest.raises(rl.ConfigError, match=r"by astropy.units.Quantity\(text\)") as refused:
        parameters.changed({"observation.inclination": "0.5 rad"})
    assert "another configuration" not in str(refused.value)
    changed = parameters.changed({"observation.inclination": Quantity("0.5 rad")})
    np.testing.assert_allclose(changed.observation.inclination, np.degrees(0.5), rtol=1e-6)


LONE_VALUES = {
    "instrument": ("muse", "name"),
    "ssp": ("popstar", "library"),
    "dust": (0.3, "a_v"),
    "galaxy": ("synthetic", "reader"),
    "observation": (0.05, "redshift"),
    "noise": (50, "signal_to_noise"),
    "engine": ("basis", "method"),
    "output": ("cube.h5", "path"),
    "lines": ("Ha", "wavelengths"),
    "devices": (1, "data"),
    "simulate": (7, "n"),
}
"""A section, a value in its place, and the key that the message says."""


@pytest.mark.parametrize(("section", "value", "key"), [(name, *own) for name, own in LONE_VALUES.items()])
def test_remedies_of_values_in_place_of_sections(section, value, key):
    with pytest.raises(rl.ConfigError, match=re.escape(f"write {section}: {{{key}: {value}}}")):
        rl.load_config({**RUN, section: value})
    found = getattr(rl.load_config({**RUN, section: {key: value}}), section)
    assert str(value) in str(getattr(found, key))


def test_priors_given_as_draws():
    drawn = {"observation.inclination": {"uniform": [10, 80]}}
    with pytest.raises(rl.ConfigError, match="give priors as priors="):
        rl.simulate(SHORT, draws=drawn)
    assert 10 <= rl.simulate(SHORT, n=1, priors=drawn).parameters["observation.inclination"][0] <= 80


MAPS = {
    "v_fit": "it is in cube.maps.fitted().after, of a run with products: {losvd: {}}",
    "gas_mass": "give the run products: {gas: true}",
    "a_v_mass": "give the run products: {dust: true}",
}


def test_remedies_of_maps():
    """The message on a map that is missing gives the setting that makes it, and the name that there is."""
    run = {**SHORT, "galaxy": {**RUN["galaxy"], "n_gas": 20}, "dust": {"a_v": 1}}
    galaxy = rl.load_galaxy(run)
    mapped, whole = (
        rl.Pipeline.from_config({**run, "products": products}, galaxy)(galaxy)
        for products in ({"losvd": None}, {"losvd": {}, "gas": True, "dust": True})
    )
    bare = dataclasses.replace(mapped, maps=None)
    for name, meant in {"age": "age", "velocty": "velocity"}.items():
        with pytest.raises(ValueError, match=r"give the run products: \{losvd: null\}") as refused:
            bare.map(name)
        assert ("did you mean 'velocity'" in str(refused.value)) == (name == "velocty")
        assert mapped.map(meant).shape == (10, 10)
    fitted = whole.maps.fitted().after
    for name, remedy in MAPS.items():
        with pytest.raises(ValueError, match=re.escape(remedy)):
            mapped.map(name)
        assert getattr(fitted, name).shape == (10, 10)


def test_remedies_of_arguments_without_their_names():
    with pytest.raises(
        TypeError, match=r"^load_instrument: .*; expected \(name, \*\*overrides\), of which .* by name$"
    ):
        rl.load_instrument("muse", "5 arcsec")
    assert rl.load_instrument("muse", fov="5 arcsec").pixel_scale == 0.2
    with pytest.raises(TypeError, match=r"^Cube.map: .*; expected \(name, \*, before_psf=False\), of which"):
        make_cube().map("velocity", True)


def test_remedies_of_curves_of_products():
    for key, value in {"filters": ["sdss r"], "band": "mass"}.items():
        with pytest.raises(
            rl.ConfigError, match=rf"^products.{key}: expected a curve of speclite \(such as sdss2010-r"
        ):
            rl.Pipeline.from_config({**SHORT, "products": {"losvd": None, key: value}})


def test_cubes_are_no_libraries():
    make_cube().write("cube.fits")
    with pytest.raises(ValueError, match=r"^cube.fits: expected an SSP library, got a cube .* `rubix-like ssp list`"):
        rl.load_ssp("cube.fits")


def test_circles_beyond_the_field_are_told(caplog):
    cube = make_cube()
    cube.spectrum(radius=0.2)
    assert not caplog.text
    cube.spectrum(radius=30)
    assert "radius: 100 % of the circle lies outside the field, and its light is missing" in caplog.text


def write_parts(folder, numbers=(0, 1, 2)):
    """A snapshot in three files of 30 stars, whose headers tell so."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        with h5py.File(folder / f"snap_099.{number}.hdf5", "w") as file:
            write_snapshot(file, "EAGLE")
            file["Header"].attrs.update({"NumFilesPerSnapshot": 3, "NumPart_ThisFile": [0, 0, 0, 0, 30, 0]})


def lose(folder):
    write_parts(folder, (0, 2))
    return "", lambda: write_parts(folder, (1,)) or ""


def cut(folder):
    write_parts(folder)
    path = folder / "snap_099.1.hdf5"
    path.write_bytes(path.read_bytes()[:2000])
    return "", lambda: write_parts(folder, (1,)) or ""


def add(name):
    def act(folder):
        write_parts(folder)
        other = folder / name
        other.write_bytes((folder / "snap_099.1.hdf5").read_bytes())
        return "snap_099.0.hdf5", lambda: other.unlink() or "snap_099.0.hdf5"

    return act


def mix(folder):
    write_parts(folder)
    (folder / "snap_100.0.hdf5").write_bytes((folder / "snap_099.1.hdf5").read_bytes())
    return "", lambda: "snap_099.*.hdf5"


def misname(folder):
    write_parts(folder)
    return "snap_99.*.hdf5", lambda: "snap_099.*.hdf5"


def name_twice(folder):
    write_parts(folder)
    names = [f"snap_099.{number}.hdf5" for number in range(3)]
    return [*names, names[0]], lambda: names


def rename(folder):
    """Files without numbers, which can only be meant as parts where they are listed."""
    write_parts(folder)
    for number, name in enumerate("abc"):
        with h5py.File((folder / f"snap_099.{number}.hdf5").rename(folder / f"{name}.hdf5"), "a") as file:
            file["Header"].attrs["NumFilesPerSnapshot"] = 1
    return "*.hdf5", lambda: ["a.hdf5", "b.hdf5", "c.hdf5"]


PARTS = {
    "missing part": (lose, "1 are missing in '{folder}': snap_099.1.hdf5; download them"),
    "damaged part": (cut, "download"),
    "part of another snapshot": (add("snap_099.3.hdf5"), "there is 'snap_099.3.hdf5'; remove the files"),
    "part twice": (add("snap_099.01.hdf5"), "part 1 is there twice: snap_099.01.hdf5, snap_099.1.hdf5; remove one"),
    "two snapshots": (mix, "name the files by a pattern, e.g. snap_099.*.hdf5"),
    "no file": (misname, "set it to the files of a snapshot"),
    "named twice": (name_twice, "name it once"),
    "no parts": (rename, "list them one by one"),
}
"""What is done to the files of a snapshot, which gives `galaxy.path` before and after the remedy, and the remedy."""


@pytest.mark.parametrize(("act", "remedy"), PARTS.values(), ids=PARTS)
def test_remedies_of_snapshots_in_parts(act, remedy, tmp_path):
    def load(names):
        paths = [str(folder / name) for name in names] if isinstance(names, list) else str(folder / names)
        return rl.load_galaxy({**RUN, "galaxy": {"path": paths}})

    folder = tmp_path / "snapdir"
    names, follow = act(folder)
    with pytest.raises((ValueError, OSError), match=re.escape(remedy.format(folder=folder))):
        load(names)
    assert load(follow()).stars.position.shape == (90, 3)


PLANS = {
    "PSF": ({"instrument.psf.fwhm": 0.8}, {"instrument.psf.fwhm": 5}),
    "wings of a PSF": (
        {"instrument.psf": {"kind": "moffat", "fwhm": 0.8, "beta": 3}},
        {"instrument.psf.fwhm": 1, "instrument.psf.beta": 2.5},
    ),
    "narrow lines": (
        {
            "pipeline": "lines",
            "instrument.wavelength": {"start": 5200, "stop": 5300, "step": 1.25},
            "instrument.lsf": None,
            "engine.method": "basis",
            "lines": {"wavelengths": "[O III] 5007", "particles": "stars", "velocity_dispersion": 60},
        },
        {"lines.velocity_dispersion": 20},
    ),
}
"""What a pipeline is planned for, and parameters of a call beyond it."""


@pytest.mark.parametrize(("settings", "parameters"), PLANS.values(), ids=PLANS)
def test_remedies_of_parameters_beyond_the_plan(settings, parameters):
    """A pipeline of the configuration with these values takes them."""
    config = rl.load_config({**RUN, "instrument": muse(5000, 5060, 20, "2 arcsec")}, settings)
    galaxy = rl.load_galaxy(config)
    with pytest.raises(rl.ConfigError) as refused:
        rl.Pipeline.from_config(config, galaxy)(galaxy, parameters)
    for name, value in parameters.items():
        assert f"{name} of {value}" in str(refused.value)
    assert "rl.Pipeline.from_config with" in str(refused.value)
    followed = rl.load_config(config, parameters)
    assert np.isfinite(rl.Pipeline.from_config(followed, galaxy)(galaxy, parameters).flux).all()


def test_remedies_of_widths_that_are_equal_name_the_one_beyond_its_plan(tmp_path):
    """Each kind of lines is planned for half of its configured width."""
    stages = tmp_path / "two.yaml"
    stages.write_text("description: two\nscene: [orient, point]\npaint: [lines, nebulae]\ncube: []\n")
    lines = {"wavelengths": "[O III] 5007", "particles": "stars", "velocity_dispersion": 30}
    nebular = {"source": "stars", "velocity_dispersion": 60, "continuum": False}
    engine = {"method": "basis", "tolerance": 1e-6, "velocity_range": 300}
    sections = {"pipeline": str(stages), "lines": lines, "nebular": nebular, "engine": engine}
    config = rl.load_config({**RUN, "instrument": muse(5250, 5263, 1.25), **sections})
    widths = {"lines.velocity_dispersion": 25, "nebular.velocity_dispersion": 25}
    with pytest.raises(
        rl.ConfigError, match=r"^parameters\['nebular.velocity_dispersion'\]: expected at least 30 km/s"
    ):
        rl.Pipeline.from_config(config).chosen(widths)
    rl.Pipeline.from_config(rl.load_config(config, {"nebular.velocity_dispersion": 25})).chosen(widths)


def test_remedies_of_lengths_beyond_the_plan():
    def smoothed(length):
        return rl.Galaxy(rl.Stars(**vars(stars) | {"smoothing_length": np.full(20, length)}))

    config = rl.load_config({**RUN, "instrument": muse(5000, 5060, 20, "6 arcsec"), "engine": {"deposit": "smoothed"}})
    stars = rl.load_galaxy(RUN).stars
    planned = rl.Pipeline.from_config(config, smoothed(0.1))
    with pytest.raises(rl.ConfigError, match=r"got 0.5; plan a pipeline for this galaxy"):
        planned(smoothed(0.5))
    assert np.isfinite(planned(smoothed(0.05)).flux).all()
    followed = rl.Pipeline.from_config(config, smoothed(0.5))(smoothed(0.5))
    assert np.max(followed.flux) < np.max(planned(smoothed(0.1)).flux)


def test_remedies_of_priors_of_wide_psfs():
    instrument = {**muse(5000, 5060, 20, "1 arcsec"), "psf": {"fwhm": 0.4}}
    config = rl.load_config({**RUN, "instrument": instrument, "engine": {"deposit": "tsc"}})
    galaxy = rl.load_galaxy(config)
    seen = rl.Pipeline.from_config(rl.load_config(config, {"noise.signal_to_noise": 30}), galaxy)(galaxy)
    with pytest.raises(
        rl.ConfigError, match=r"psf.fwhm: the prior reaches 998.7 .*at most 126 arcsec in place"
    ) as error:
        rl.log_posterior(config, seen, {"instrument.psf.fwhm": {"uniform": [0.1, 1000]}})
    assert "psf.beta" not in str(error.value)
    limit = 1000 * 0.2 * 2 * np.sqrt(2 * np.log(2)) / np.sqrt(-2 * np.log(1 - 0.999))
    assert 126 <= limit < 127


def test_remedies_of_models_and_galaxies_that_are_not_made():
    class Cloud(AbstractGalaxyModel):
        mass: float = 1e9

        def draws(self):
            return np.arange(5.0)

        def sample(self, draws):
            filled, still = jnp.ones_like(draws), jnp.zeros((5, 3))
            return rl.Galaxy(rl.Stars(still, still, self.mass * filled, 9 * filled, 0.02 * filled))

    config = rl.load_config({**RUN, "galaxy": None, "instrument": muse(5000, 5060, 20, "1 arcsec")})
    galaxy = Cloud().sample(Cloud().draws())
    cube = rl.Pipeline.from_config(rl.load_config(config, {"noise.signal_to_noise": 30}), galaxy)(galaxy)
    settings = {"free": {"galaxy.mass": {"log_uniform": [1e8, 1e10]}}}
    with pytest.raises(rl.ConfigError, match=r"got the class Cloud; call it: Cloud\(\)$"):
        rl.log_posterior(config, cube, **settings, model=Cloud)
    assert np.isfinite(rl.log_posterior(config, cube, **settings, model=Cloud())(np.zeros(1)))
    unopened = rl.open_galaxy(RUN)
    with pytest.raises(rl.ConfigError, match=r"write `with rl.open_galaxy\(config\) as parts:`"):
        unopened.n_stars  # noqa: B018
    with unopened as parts:
        assert parts.n_stars == 20


def test_remedies_of_the_degree_of_a_continuum():
    config = rl.load_config({**RUN, "instrument": muse(5000, 5060, 20, "1 arcsec")})
    with pytest.raises(rl.ConfigError, match=r"fit.polynomial.degree: expected a number <= 30, got 50"):
        rl.load_config(config, {"fit.polynomial": 50})
    assert rl.load_config(config, {"fit.polynomial": 30}).fit.polynomial.degree == 30
    sections = rl.load_config(config, {"fit.data.a.nuisance.polynomial": 3}).fit.data
    assert sections["a"].nuisance.polynomial.degree == 3
