"""For every kind of file: how it is changed, how it is read in a child, and the command that a user would give."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from small import psf_settings
from snapshot_reading import open_snapshot, reader_of

from rubix_like import (
    Cube,
    FitResult,
    Instrument,
    SampleResult,
    load_config,
    load_galaxy,
    load_instrument,
    load_nebular,
    load_simulations,
    load_ssp,
    read_observed,
)
from rubix_like.cube.observed.observed_spectrum import read_fibres
from rubix_like.extend import import_library
from rubix_like.inference import checkpoint
from rubix_like.inference.likelihoods.kinds import make_correlation
from rubix_like.inference.search.search_state import SearchState
from rubix_like.inference.simulation.simulation_files import describe_set
from rubix_like.instrument.instrument import read_mask
from rubix_like.instrument.psf_images import load_psf_image
from rubix_like.instrument.sky import load_sky
from rubix_like.nebular import SHELF
from rubix_like.runs.batch.entries import read_entries
from rubix_like.ssp.formats import FORMATS

from . import impossible, mutations
from .settings import CONFIG

Change = Callable[[Path, np.random.Generator], str]

FINGERPRINT = {"data": "a", "model": "b"}

FIT = {
    **CONFIG,
    "instrument": {**CONFIG["instrument"], "wavelength": {"start": 4740, "stop": 4770, "step": 1.25}},
    "fit": {
        "free": {"galaxy.stellar_mass": {"log_uniform": [1e9, 1e11]}},
        "starts": 1,
        "candidates": 1,
        "accept_implausible": True,
    },
}

FIBRES = {
    "name": "manga",
    "fibres": {"bundle": "manga-19", "dead": [4]},
    "fov": "9.5 arcsec",
    "psf": {"kind": "gaussian", "fwhm": 1.5},
    "lsf": None,
    "wavelength": {"sampling": "linear", "medium": "vacuum", "start": 4700, "stop": 7100, "step": 300},
}


@dataclass(frozen=True)
class Kind:
    """`changes`: one is chosen for a case; `read`: reads a file and tells what is impossible in it; `words`: the
    command for a file; `most`: the largest flux of the cube that it may write (None: not known);
    `warm`: reads without starting
    JAX (None: nothing can be)."""

    name: str
    changes: tuple[Change, ...]
    read: Callable[[Path], list[str]]
    words: Callable[[Path], list[str]]
    most: float | None = None
    warm: Callable[[Path], Any] | None = None


def _galaxy(path: Path, **settings: Any) -> list[str]:
    return impossible.of_galaxy(load_galaxy({**CONFIG, "galaxy": {"path": str(path), **settings}}))


def _open(path: Path) -> None:
    with open_snapshot(reader_of(path=path)) as snapshot:
        snapshot.read("stars", 0, snapshot.count("stars"))
        str(snapshot.epoch)


def _config(path: Path) -> list[str]:
    config = load_config(path)
    return _of_settings(config.model_dump(mode="python"), "") + _of_instrument(Instrument.build(config.instrument))


def _instrument(path: Path) -> list[str]:
    return _of_instrument(load_instrument(str(path)))


def _of_instrument(instrument: Instrument) -> list[str]:
    found = impossible.of_numbers("spaxels", [instrument.n_x, instrument.n_y], 1)
    return found + impossible.of_numbers("pixel_scale", instrument.pixel_scale, 1e-12)


def _of_settings(value: Any, name: str) -> list[str]:
    if isinstance(value, dict):
        return [found for key, own in value.items() for found in _of_settings(own, f"{name}.{key}")]
    if isinstance(value, list | tuple):
        return [found for own in value for found in _of_settings(own, name)]
    return impossible.of_numbers(name, value) if isinstance(value, float) else []


def _catalogue(path: Path) -> list[str]:
    entries = read_entries(CONFIG, path, folder=path.parent / "cubes")
    names = [entry.name for entry in entries]
    found = [] if len(set(names)) == len(names) else ["two entries of one name"]
    outside = [entry.path for entry in entries if entry.path.resolve().parent != (path.parent / "cubes").resolve()]
    return found + [f"{place} is outside of the folder" for place in outside]


def _ssp(path: Path) -> list[str]:
    return impossible.of_library(load_ssp(import_library(path, "damaged")))


def _nebular(path: Path) -> list[str]:
    table = load_nebular(SHELF.import_file(path, "damaged"))
    found = impossible.of_numbers("O/H", table.axes["oxygen_abundance"], 2.0, 12.0)
    found += impossible.of_numbers("log U", table.axes["log_u"], -10.0, 5.0)
    found += impossible.of_numbers("temperature", table.temperature, 100.0, 1e6)
    found += impossible.of_numbers("energy per photon", table.per_photon, 0.0, 2e-10)
    return found + impossible.of_numbers("Ha per photon", table.line("Ha"), 5e-13, 5e-12)


def _observed(path: Path) -> list[str]:
    cube = read_observed(path)
    found = impossible.of_flux(cube.flux, cube.variance, cube.used)
    found += impossible.of_numbers("wavelength", cube.wavelength, 1e-3, 1e9)
    return found if (np.diff(cube.wavelength) > 0).all() else [*found, "wavelengths do not ascend"]


def _survey(path: Path) -> list[str]:
    """A cube with correlations; one in our layout by `Cube.read`, too."""
    cube = read_observed(path)
    found, rho = _observed(path), cube.correlations
    if rho is not None:
        found += impossible.of_numbers("correlation", rho.values, -1.001, 1.001)
    return found + (_cube(path) if path.name != "survey.fits" else [])


def _rss(path: Path) -> list[str]:
    fibres = read_fibres(path)
    spectra = fibres.spectra
    found = impossible.of_flux(spectra.flux, spectra.variance, spectra.used)
    seen = spectra.used[:, 0]
    return found + impossible.of_numbers("places", [fibres.east[seen], fibres.north[seen]])


def _zarr(path: Path) -> list[str]:
    """Every voxel of the whole cube shines."""
    cube = Cube.read(path)
    dark = not (np.asarray(cube.flux) != 0).all() or not (np.asarray(cube.variance) != 0).all()
    return _of_cube(cube) + (["flux or variance of 0, which was never written"] if dark else [])


def _training(path: Path) -> list[str]:
    made = load_simulations(path)
    describe_set(path)
    assert made.flux is not None
    found = impossible.of_numbers("wavelength", made.wavelength, 1e-3, 1e9)
    found += [own for values in made.parameters.values() for own in impossible.of_numbers("parameters", values)]
    dark = [name for name in ("flux", "variance") if not (np.asarray(getattr(made, name)) != 0).all()]
    return found + [f"{name} of 0, which was never written" for name in dark]


def _covariance(path: Path) -> list[str]:
    likelihood = {"covariance": {"between": "wavelengths", "matrix": str(path)}}
    config = load_config({**FIT, "fit": {**FIT["fit"], "likelihood": likelihood}})
    made = make_correlation(config.fit.likelihood.covariance, np.ones((2, 2, 5), bool))
    return impossible.of_numbers("inverse", made.inverse) + impossible.of_numbers("determinant", made.log_determinant)


def _sky(path: Path) -> list[str]:
    sky = load_sky(str(path))
    found = impossible.of_numbers("emission", sky.emission, 0.0)
    found += impossible.of_numbers("transmission", sky.transmission, 0.0, 1.0)
    found += impossible.of_numbers("wavelength", sky.wavelength, 0.0)
    return found if (np.diff(sky.wavelength) > 0).all() else [*found, "wavelengths do not ascend"]


def _of_cube(cube: Cube) -> list[str]:
    found = impossible.of_flux(cube.flux, cube.variance)
    found += impossible.of_numbers("wavelength", cube.wavelength, 1e-3, 1e9)
    found += impossible.of_numbers("pixel_scale", cube.pixel_scale, 1e-12)
    ascending = (np.diff(np.asarray(cube.wavelength)) > 0).all()
    return found if ascending else [*found, "wavelengths do not ascend"]


def _cube(path: Path) -> list[str]:
    return _of_cube(Cube.read(path))


def _psf(path: Path) -> list[str]:
    planes, scale, wavelength = load_psf_image(psf_settings({"kind": "image", "file": path}))
    found = impossible.of_numbers("psf", planes, 0.0) + impossible.of_numbers("scale", scale, 1e-6, 3.6e5)
    ascending = wavelength is None or (len(wavelength) == len(planes) and (np.diff(wavelength) > 0).all())
    return found if ascending else [*found, "wavelengths of planes do not ascend"]


def _mask(path: Path) -> list[str]:
    mask = read_mask(path, (4, 4))
    return [] if mask.dtype == bool and mask.any() and mask.shape == (4, 4) else ["a mask of nothing"]


def _checkpoint(path: Path) -> list[str]:
    kept = checkpoint.load_checkpoint(path, FINGERPRINT, SearchState.from_arrays)
    if kept is None:
        return ["nothing was found"] if path.exists() else []
    lengths = {len(own) for own in (kept.start, kept.latent, kept.loss, kept.gradient_norm, kept.n_step, kept.status)}
    found = [] if lengths == {len(kept.loss)} else [f"starts of several numbers: {lengths}"]
    checkpoint.kept_notes(path)
    kept.reasons()
    return found + impossible.of_numbers("start", kept.start)


def _fit(path: Path) -> list[str]:
    result = FitResult.read(path)
    found = impossible.of_numbers("latent", result.latent) + _of_cube(result.model)
    found += [own for values in result.values.values() for own in impossible.of_numbers("values", values)]
    str(result.summary())
    return found + _of_cube(result.residual)


def _samples(path: Path) -> list[str]:
    result = SampleResult.read(path)
    found = impossible.of_numbers("latent", result.latent) + _of_cube(result.predictive)
    shape = result.latent.shape[:2]
    found += [f"{name}: {own.shape}" for name, own in result.values.items() if own.shape[:2] != shape]
    str(result.summary())
    return found


def _run(path: Path, settings: dict[str, Any], changed: dict[str, Any]) -> list[str]:
    """Write the configuration beside the file, and the words of its run."""
    place = path.parent / "run.yaml"
    place.write_text(json.dumps({**settings, **changed}))
    return ["run", str(place), "--output", str(path.parent / "out.fits")]


def _with_instrument(path: Path, **changed: Any) -> list[str]:
    return _run(path, CONFIG, {"instrument": {**CONFIG["instrument"], **changed}})


def _fitted(path: Path, data: str, **changed: Any) -> list[str]:
    place = path.parent / "run.yaml"
    place.write_text(json.dumps(FIT | changed))
    return ["fit", str(place), "--data", data, "--output", str(path.parent / "fit.h5")]


def _fibres_fitted(path: Path) -> list[str]:
    place = path.parent / "run.yaml"
    place.write_text(
        json.dumps(FIT | {"instrument": FIBRES, "fit": FIT["fit"] | {"data": {"rss": {"fibres": str(path)}}}})
    )
    return ["fit", str(place), "--output", str(path.parent / "fit.h5")]


def _plotted(path: Path) -> list[str]:
    return ["plot", str(path), "--output", str(path.parent / "picture.png")]


def _often(*changes: Change) -> tuple[Change, ...]:
    """These, each of one weight, and seldom something else in the file's place."""
    return changes * (12 // len(changes)) + (mutations.change_place,)


HDF5 = _often(mutations.change_bytes, mutations.change_hdf5)
FITS = _often(mutations.change_bytes, mutations.change_card, mutations.change_hdu)
TEXT = _often(*(mutations.change_line, mutations.change_number) * 4, mutations.change_bytes)
NPZ = _often(mutations.change_npz, mutations.change_bytes)


def _of_suffix(path: Path, rng: np.random.Generator) -> str:
    """A change for a file of any kind: by its ending."""
    by_suffix = {".h5": HDF5, ".hdf5": HDF5, ".fits": FITS, ".npz": NPZ, ".npy": NPZ, ".ecsv": TEXT, ".lines": TEXT}
    changes = by_suffix.get(path.suffix, _often(mutations.change_bytes))
    return changes[rng.integers(len(changes))](path, rng)


MASS = 1e11
"""More than the stars of any whole file here have, in Msun."""

for _formats in (FORMATS, SHELF.formats):
    for _name in _formats.names():
        _formats.find(_name)  # imported once, before children are forked

KINDS: tuple[Kind, ...] = (
    Kind("galaxy", HDF5, _galaxy, lambda path: _run(path, CONFIG, {"galaxy": {"path": str(path)}}), warm=_open),
    Kind(
        "gadget",
        _often(mutations.change_bytes),
        lambda path: _galaxy(path, ages="recipe"),
        lambda path: _run(path, CONFIG, {"galaxy": {"path": str(path), "ages": "recipe"}}),
        warm=_open,
    ),
    Kind(
        "config",
        TEXT,
        _config,
        lambda path: ["run", str(path), "--output", str(path.parent / "out.fits")],
        warm=_config,
    ),
    Kind(
        "instrument",
        TEXT,
        _instrument,
        lambda path: _run(path, CONFIG, {"instrument": {"name": str(path)}}),
        impossible.flux_limit(MASS),
        _instrument,
    ),
    Kind(
        "catalogue",
        TEXT,
        _catalogue,
        lambda path: [*_run(path, CONFIG, {})[:2], "--catalogue", str(path), "--output", str(path.parent / "cubes")],
        warm=_catalogue,
    ),
    Kind(
        "ssp",
        (_of_suffix,),
        _ssp,
        lambda path: ["ssp", "import", str(path), "--name", "damaged", "--overwrite"],
        warm=_ssp,
    ),
    Kind(
        "nebular",
        (_of_suffix,),
        _nebular,
        lambda path: ["nebular", "import", str(path), "--name", "damaged", "--overwrite"],
        warm=_nebular,
    ),
    Kind("observed", FITS, _observed, lambda path: _fitted(path, str(path)), warm=_observed),
    *(
        Kind(name, FITS, read, lambda path, changed=changed: _fitted(path, str(path), **changed))
        for name, read, changed in (
            ("wave-tab", _observed, {}),
            ("manga", _survey, {"instrument": FIBRES}),
            ("sami", _survey, {"instrument": FIBRES}),
        )
    ),
    Kind("rss", FITS, _rss, _fibres_fitted),
    Kind("zarr", (mutations.change_inside,), _zarr, _plotted),
    Kind("training", (mutations.change_inside,), _training, lambda path: ["inspect", str(path)]),
    Kind(
        "covariance",
        NPZ,
        _covariance,
        lambda path: _fitted(
            path,
            str(path.parent / "data.fits"),
            fit=FIT["fit"] | {"likelihood": {"covariance": {"between": "wavelengths", "matrix": str(path)}}},
        ),
    ),
    Kind(
        "sky",
        (_of_suffix,),
        _sky,
        lambda path: _run(path, CONFIG, {"noise": {"exposure": {"time": "1 h", "sky": str(path)}}}),
        impossible.flux_limit(MASS),
        _sky,
    ),
    Kind("cube-fits", FITS, _cube, _plotted),
    Kind("cube-hdf5", HDF5, _cube, _plotted),
    Kind(
        "psf",
        FITS,
        _psf,
        lambda path: _with_instrument(path, psf={"kind": "image", "file": str(path)}),
        impossible.flux_limit(MASS),
        _psf,
    ),
    Kind(
        "psf-planes",
        FITS,
        _psf,
        lambda path: _with_instrument(path, psf={"kind": "image", "file": str(path)}),
        impossible.flux_limit(MASS),
        _psf,
    ),
    Kind(
        "mask",
        (_of_suffix,),
        _mask,
        lambda path: _with_instrument(path, aperture={"shape": "mask", "file": str(path)}),
        impossible.flux_limit(MASS),
    ),
    Kind("checkpoint", NPZ, _checkpoint, lambda path: _fitted(path, str(path.parent / "data.fits"))),
    Kind("fit", HDF5, _fit, _plotted),
    Kind("samples", HDF5, _samples, _plotted),
)
