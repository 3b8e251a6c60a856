"""The id of a run's data tables: it changes with every one of them, and with nothing else."""

import dataclasses

import h5py
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from nebular_files import write_nebular
from small import full_cube, muse

import rubix_like as rl
from rubix_like import load_nebular
from rubix_like.extend import Meta, make_setup, resolve
from rubix_like.forward import cube_header
from rubix_like.forward.cube_header import describe_tables

DETECTOR = {"collecting_area": 2.0, "throughput": 0.25, "read_noise": 4.0, "dark_current": 7.2}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A sky, a PSF and a table of lines in files, and the same with one number changed."""
    folder = tmp_path_factory.mktemp("tables")
    table = load_nebular("mappings-hii")
    for name, change in {"one": 1.0, "other": 1.001}.items():
        emission = np.array([50.0, 60.0 * change])
        Table({"wavelength": [3000.0, 9000.0], "emission": emission}).write(folder / f"{name}.ecsv")
        image = np.pad(np.ones((3, 3)), 4)
        image[5, 5] *= 2 * change
        fits.writeto(folder / f"{name}.fits", image)
        changed = table.per_photon.copy()
        changed[..., 0] *= change
        write_nebular(dataclasses.replace(table, per_photon=changed), folder / f"{name}.h5")
    return folder


def run(files, **overrides):
    """A run with all tables."""
    base = {
        "galaxy": {"reader": "synthetic", "n_stars": 10},
        "observation": {"redshift": 0.01, "align": "none"},
        "instrument": muse(
            psf={"kind": "image", "file": str(files / "one.fits"), "file_scale": "0.1 arcsec"},
            lsf={"fwhm": "25 Angstrom"},
            detector=DETECTOR,
        ),
        "pipeline": "nebular",
        "nebular": {"table": str(files / "one.h5")},
        "dust": {"a_v": 0.5},
        "products": {"losvd": None, "filters": ["bessell-V"]},
        "engine": {"method": "direct"},
        "noise": {"exposure": {"time": "600 s", "sky": str(files / "one.ecsv")}},
    }
    return rl.load_config(base, overrides=overrides)


@pytest.fixture(scope="module")
def setup(files):
    config = run(files)
    return make_setup(config, resolve(config), None)


@pytest.fixture(scope="module")
def known(setup):
    return describe_tables(setup)


def test_every_table_has_an_id(known):
    parts = ("ssp", "lines", "psf", "lsf", "detector", "sky", "dust", "filters")
    assert set(known) == {"context", *(f"context_{part}" for part in parts)}
    assert len(set(known.values())) == len(known)
    assert all(len(own) == 12 and int(own, 16) >= 0 for own in known.values())


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("lines", "nebular.table", "other.h5"),
        ("psf", "instrument.psf.file", "other.fits"),
        ("psf", "instrument.psf.file_scale", 0.12),
        ("lsf", "instrument.lsf.fwhm", 25.1),
        ("detector", "instrument.detector.throughput", 0.26),
        ("sky", "noise.exposure.sky", "other.ecsv"),
        ("sky", "noise.exposure.sky", "dark"),
        ("filters", "products.filters", ["bessell-R"]),
    ],
)
def test_another_table_changes_its_id_and_that_of_all(files, setup, known, part, key, value):
    value = str(files / value) if str(value).startswith("other") else value
    other = dataclasses.replace(setup, config=run(files, **{key: value}))
    assert changed(known, describe_tables(other)) == {"context", f"context_{part}"}


def changed(one, other):
    assert set(one) == set(other)
    return {name for name in one if one[name] != other[name]}


def test_one_number_of_the_library_and_the_version_change_it(setup, known, monkeypatch):
    spectra = setup.library.spectra.copy()
    spectra[2, 50, 600] *= 1.00001
    other = dataclasses.replace(setup, library=dataclasses.replace(setup.library, spectra=spectra))
    assert changed(known, describe_tables(other)) == {"context", "context_ssp"}
    monkeypatch.setattr(cube_header, "__version__", "99.0")
    assert changed(known, describe_tables(setup)) == {"context"}


def test_places_and_the_observation_do_not_change_it(files, known, tmp_path):
    """Nor the names of files, nor a date in one of them."""
    for name in ("one.h5", "one.ecsv"):
        (tmp_path / name).write_bytes((files / name).read_bytes())
    image = fits.getdata(files / "one.fits")
    fits.writeto(tmp_path / "one.fits", image, fits.Header({"DATE": "2026-11-23"}))
    config = run(
        tmp_path,
        **{
            "output.path": "elsewhere.fits",
            "observation.inclination": 30,
            "instrument.fov": "2 arcsec",
            "galaxy.n_stars": 20,
            "noise.seed": 3,
            "dust.a_v": 0.6,
        },
    )
    assert changed(known, describe_tables(make_setup(config, resolve(config), None))) == set()


def test_lines_alone_have_their_own_and_no_library(files):
    config = rl.load_config(
        {
            "galaxy": {"reader": "synthetic", "n_gas": 10},
            "observation": {"redshift": 0.01, "align": "none"},
            "instrument": muse(detector=None),
            "pipeline": "lines",
            "lines": {"wavelengths": ["Hb", "[O III] 5007"], "ratios": [1, 2]},
            "engine": {"method": "direct"},
        }
    )
    both = (config, rl.load_config(config, overrides={"lines.ratios": [1, 3]}))
    one, other = (dict(rl.Pipeline.from_config(own).frame.meta) for own in both)
    assert {name for name in one if name.startswith("context")} == {"context", "context_templates_lines"}
    assert {"context", "context_templates_lines"} <= changed(one, other)


def test_it_is_in_the_header_of_every_layout(tmp_path):
    cube = full_cube(medium="vacuum", meta=Meta({"ra": 150.0, "dec": 2.0, "redshift": 0.1, "context": "0123456789ab"}))
    for layout in ("default", "manga", "hsim"):
        path = cube.write(tmp_path / f"{layout}.fits", layout)
        assert fits.getval(path, "CONTEXT") == "0123456789ab"
    with h5py.File(cube.write(tmp_path / "cube.h5")) as file:
        assert file.attrs["context"] == file["meta/context"].asstr()[()] == "0123456789ab"
