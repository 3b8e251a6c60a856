"""Small things that many tests need: sections of a run, a few stars, cubes, observed cubes and their files."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from astropy.io import fits
from scipy.sparse import csr_array

from rubix_like import Counters, Cube, Galaxy, Maps, ObservedCube, Stars, load_config
from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces, FibreSpectra
from rubix_like.cube.maps import MapLabel, MapSet
from rubix_like.extend import Footprint, Meta, WavelengthBins

BLUR = {"psf": {"fwhm": "0.4 arcsec"}, "lsf": {"fwhm": "25 Angstrom"}}
"""PSF and LSF of small fields; the LSF is wider than the packaged library's."""


def muse(start=5000, stop=5300, step=10, fov="1 arcsec", **others):
    """The section `instrument` of a small field of MUSE, without PSF and LSF but for the `others`."""
    wavelength = {"start": start, "stop": stop, "step": step}
    return {"name": "muse", "fov": fov, "psf": None, "lsf": None, "wavelength": wavelength, **others}


def instrument_settings(section):
    """The checked section `instrument`, with all that the preset of its name states."""
    return load_config({"observation": {"redshift": 0.05}, "instrument": section}).instrument


def psf_settings(section):
    """The checked section `instrument.psf`; what it leaves out of a Gaussian is MUSE's."""
    return instrument_settings({"name": "muse", "psf": section}).psf


def exposure_settings(**section):
    """The checked section `noise.exposure`."""
    run = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}, "noise": {"exposure": section}}
    return load_config(run).noise.exposure


OUTSIDE_SSP, OUTSIDE_APERTURE, SPREAD_FROM_BEYOND, NOT_FITTED = 1, 2, 4, 8
SATURATED, COSMIC_RAY, NO_DATA, DETECTOR_GAP = 16, 32, 64, 128
"""Bits of a cube's mask, as they stand in its files."""

BEHIND_DUST = {
    "dust": {"a_v": 0.3, "curve": "calzetti"},
    "engine": {
        "precision": "float64",
        "method": "direct",
        "deposit": "nearest",
        "oversampling": 1,
        "velocity_range": 600,
    },
    "devices": {"data": 1},
}
"""Sections of a run of few stars, painted one by one behind a screen of dust."""

TWO_FREE = {
    "free": {
        "observation.velocity_offset": {"normal": [0, 100]},
        "galaxy.stellar_mass": {"log_normal": [1e10, 0.5]},
    },
    "starts": 1,
}
"""Of the section `fit`: two parameters that spectra of a small disc determine."""


def fit_section(**settings):
    """The section `fit` of a run with these settings, checked and complete."""
    run = {"observation": {"redshift": 0.05}, "instrument": muse(), "fit": {"free": TWO_FREE["free"], **settings}}
    return load_config(run).fit


def small_disc(n_stars):
    """The sections `galaxy` and `observation` of a synthetic disc for a fit."""
    return {
        "galaxy": {"reader": "synthetic", "n_stars": n_stars, "draws": "sobol"},
        "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    }


def few_stars(number: int, extent: float) -> Galaxy:
    """Stars of one mass at random places (standard deviation `extent` in kpc), the same for the same number."""
    rng = np.random.default_rng(1)
    return Galaxy(
        stars=Stars(
            position=rng.normal(0, extent, (number, 3)),
            velocity=rng.normal(0, 50, (number, 3)),
            initial_mass=np.full(number, 1e8),
            log_age=rng.uniform(9, 10, number),
            metallicity=rng.uniform(0.01, 0.03, number),
        )
    )


def mock_data(shape: tuple[int, int, int], **arrays: np.ndarray) -> ObservedCube:
    """Data of this shape (y, x, wave), from 5000 Angstrom in bins of 10: flux and variance 1, every voxel used, but
    for the `arrays` that are given."""
    own = {"flux": np.ones(shape), "variance": np.ones(shape), "used": np.ones(shape, bool)} | arrays
    return ObservedCube(
        **own,
        bins=WavelengthBins(5000.0, 10.0, shape[2], "linear", "air"),
        footprint=Footprint.of(shape, 0.2),
        source="a mock",
    )


def make_cube(
    n_y: int = 3, n_x: int = 5, n_wave: int = 4, sampling: str = "linear", medium: str = "air", **changes
) -> Cube:
    random = np.random.default_rng(1)
    flux = random.uniform(1, 2, (n_y, n_x, n_wave)).astype(np.float32)
    first, step = (3622.0 * 10**0.5e-4, 1e-4) if sampling == "log" else (4749.9 + 0.625, 1.25)
    fields = {
        "flux": jnp.asarray(flux),
        "mask": jnp.asarray(random.integers(0, 4, flux.shape), dtype=jnp.int32),
        "bins": WavelengthBins(first, step, n_wave, sampling, medium),
        "footprint": Footprint.of(flux.shape, 0.2),
        "meta": Meta({"ra": 150.0, "dec": 40.0}),
    }
    return Cube(**{**fields, **changes})


def white_light(cube: Cube) -> np.ndarray:
    """Flux of every spaxel (1e-20 erg/s/cm2): F_lambda times the width of the bin, over bins whose mask is 0."""
    good = np.where(np.asarray(cube.mask) == 0, np.asarray(cube.flux, dtype=np.float64), 0.0)
    return good @ np.diff(cube.wave_edges)


def fibre_spectra(cube: Cube) -> FibreSpectra:
    """Three spectra with noise, of which the spaxels of a cube are mixed."""
    random = np.random.default_rng(4)
    (n_y, n_x), n_wave = cube.shape[:2], cube.shape[2]
    near, ones = np.broadcast_to(np.arange(3, dtype=np.int32), (n_y, 3)), np.ones(3)
    weights = CubeWeights(near, random.uniform(0.1, 1, (n_y, n_x, 3)), np.ones((n_y, n_x)), 3)
    places = FibrePlaces(ones, ones, np.arange(1, 4), np.ones(3, dtype=int), ones, ones, 1.0)
    flux = random.uniform(1, 2, (3, n_wave))
    return FibreSpectra(flux, flux**2, None, places, weights, np.zeros(n_wave, dtype=np.int32))


def mixed_fibres(variance: np.ndarray, weights: np.ndarray, shape: tuple[int, int], **others) -> FibreSpectra:
    """Fibres without light, with these variances (fibre, wave), of which the spaxels are mixed: `weights` (spaxel,
    fibre) in a field of `shape`."""
    linear = CubeWeights.of_matrix(csr_array(weights), shape, weights.sum(axis=1).reshape(shape))
    zeros, ones = np.zeros((2, len(variance))), np.ones((2, len(variance)))
    places = FibrePlaces(*zeros, *ones.astype(int), *ones, radius=0.1)
    bad = np.zeros(variance.shape[1], np.int32)
    return FibreSpectra(np.zeros(variance.shape), variance, None, places, linear, bad, **others)


def make_maps(n_y: int = 3, n_x: int = 5) -> Maps:
    """All images are 1; one filter, one field."""
    moments = ("v", "sigma", "log_age", "age", "metallicity")
    names = ["number", "birth_mass", "mass", "light", *(f"{name}_{by}" for name in moments for by in ("light", "mass"))]
    images = {name: np.ones((n_y, n_x), np.float32) for name in names}
    field = {"surface_density": images["mass"]}
    both = MapSet(**images, flux=np.ones((n_y, n_x, 1), np.float32), fields=field)
    return Maps(
        before=both,
        after=both,
        mask=np.zeros((n_y, n_x), np.int32),
        velocity=None,
        counters=None,
        filters=("V",),
        band="detector",
        fit_particles=10,
        footprint=Footprint(n_y, n_x, 0.2),
        meta=Meta({"object": "disc", "redshift": 0.05}),
        fields=(MapLabel("surface_density", "solMass kpc-2", "surface density of stars"),),
    )


YAML = "galaxy:\n  reader: synthetic\n  n_stars: 50000\n\nnote: 'café'  \n12\n"


def full_cube(sampling: str = "linear", medium: str = "air", **changes) -> Cube:
    cube = make_cube(sampling=sampling, medium=medium)
    fields = {
        "variance": 1 + cube.flux**2,
        "lsf_fwhm": np.linspace(2.5, 2.6, 4),
        "counters": Counters(n_particles=100, n_outside=3, mass_outside=1.5e9, mass_total=1e10),
        "meta": Meta(
            {
                "ra": 150.0,
                "dec": 40.0,
                "config": YAML,
                "object": "Galaxy é\n1",
                "redshift": 0.05,
                "luminosity_distance": float("inf"),
                "inclination": None,
                "seed": 3,
                "exact": True,
                "one": "1",
                "empty": "",
            }
        ),
        **changes,
    }
    return dataclasses.replace(cube, **fields)


def vacuum_cube(sampling="log", **changes):
    return full_cube(sampling, **{"medium": "vacuum", **changes})


def noisy_cube(n_y=5, n_x=6, n_wave=40, **changes):
    random = np.random.default_rng(3)
    shape = (n_y, n_x, n_wave)
    mask = np.zeros(shape, np.int32)
    mask[..., :3] |= 1
    mask[0, 0] |= 2
    fields = {
        "flux": random.normal(20, 5, shape).astype(np.float32),
        "variance": random.uniform(4, 9, shape).astype(np.float32),
        "mask": mask,
        "meta": Meta({"object": "disc", "ra": 150.0, "dec": 60.0, "redshift": 0.05, "luminosity_distance": 230.0}),
        **changes,
    }
    return make_cube(n_y, n_x, n_wave, **fields)


N_WAVE, N_Y, N_X = 5, 3, 4


STEP = 0.2 / 3600


SKY = {
    "CTYPE1": "RA---TAN",
    "CTYPE2": "DEC--TAN",
    "CUNIT1": "deg",
    "CUNIT2": "deg",
    "CRVAL1": 150.0,
    "CRVAL2": 2.0,
    "CRPIX1": 2.5,
    "CRPIX2": 2.0,
    "CD1_1": -STEP,
    "CD1_2": 0.0,
    "CD2_1": 0.0,
    "CD2_2": STEP,
}


MUSE = SKY | {
    "CTYPE3": "AWAV",
    "CUNIT3": "Angstrom",
    "CRVAL3": 4750.0,
    "CRPIX3": 1.0,
    "CD3_3": 1.25,
    "BUNIT": "10**(-20)*erg/s/cm**2/Angstrom",
}


FLUX = 1.0 + np.arange(N_WAVE * N_Y * N_X, dtype=np.float32).reshape(N_WAVE, N_Y, N_X)
"""As in the file: (wave, y, x)."""


def image(data, cards, name=None):
    hdu = fits.PrimaryHDU(data) if name is None else fits.ImageHDU(data, name=name)
    for keyword, value in cards.items():
        if value is not None:
            hdu.header[keyword] = value
    return hdu


def write_fits(path: Path, *hdus) -> Path:
    first = () if isinstance(hdus[0], fits.PrimaryHDU) else (fits.PrimaryHDU(),)
    fits.HDUList([*first, *hdus]).writeto(path)
    return path


def muse_hdus(flux=FLUX, variance=None, mask=None, primary=None, **cards):
    """PRIMARY, DATA, STAT, DQ as the pipeline of MUSE writes them, some cards changed (None: left out)."""
    variance = np.full_like(FLUX, 4.0) if variance is None else variance
    mask = np.zeros(FLUX.shape, np.int32) if mask is None else mask
    header = MUSE | cards
    unit = {"BUNIT": "(10**(-20)*erg/s/cm**2/Angstrom)**2"}
    return [
        image(None, {"INSTRUME": "MUSE", "OBJECT": "NGC 1"} | (primary or {})),
        image(flux, header, "DATA"),
        image(variance, header | unit, "STAT"),
        image(mask, {}, "DQ"),
    ]
