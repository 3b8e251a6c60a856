"""Fits, samples and simulations of components in lines, beside cubes that numpy made from rings of points."""

import foreign_rings
import numpy as np
import pytest
from astropy import units
from astropy.cosmology import Planck18
from scipy.special import gammaincinv
from small import muse_hdus, write_fits

import rubix_like as rl

REDSHIFT = 0.02
KPC = float(Planck18.angular_diameter_distance(REDSHIFT).to_value("kpc") * units.arcsec.to("rad"))
"""kpc of an arcsec."""

EDGES = np.arange(6680.0, 6712.0 + 0.5, 1.0)
INSTRUMENT = {"n_spaxel": 10, "spaxel": 0.5, "seeing": 0.8, "edges": EDGES, "fwhm": 2.0, "redshift": REDSHIFT}
LENGTH, DISPERSION, FLUX = 0.5, 40.0, 1e5
"""kpc, km/s, 1e-20 erg/s/cm2."""

SHARE = LENGTH / KPC
SERSIC_B = gammaincinv(4, 0.5)
"""Of the index 2."""


def growth(radius):
    return radius / (radius + SHARE)


DISC = {
    "scale_length": SHARE,
    "flux": FLUX,
    "dispersion": DISPERSION,
    "speed": lambda r: 180 * 2 / np.pi * np.arctan(r * KPC / 0.3),
    "light": lambda r, phi: np.ones_like(r),
    "streaming": lambda r, phi: np.zeros_like(r),
    "angles": lambda r: (np.full_like(r, 55.0), np.full_like(r, 120.0)),
}
COMPONENT = {
    "name": "gas",
    "lines": {"wavelengths": "Ha", "flux": f"{FLUX * 1e-20:g} erg/s/cm2"},
    "light": {"profile": "exponential", "scale_length": f"{LENGTH} kpc"},
    "rotation": {"curve": "arctan", "velocity": "180 km/s", "turnover_radius": "0.3 kpc"},
    "dispersion": f"{DISPERSION} km/s",
}
CASES = {
    "warp": (
        {
            "angles": lambda r: (
                55 + 10 * np.maximum(r * KPC - 0.5, 0),
                120 - 15 * np.maximum(r * KPC - 0.5, 0),
            )
        },
        {"warp": {"start": "0.5 kpc", "tilt": "2 deg/kpc", "turn": "-2 deg/kpc"}},
        {"warp.tilt": ({"normal": [0, 20]}, 10.0), "warp.turn": ({"normal": [0, 20]}, -15.0)},
    ),
    "asymmetry": (
        {
            "light": lambda r, phi: 1 + 0.3 * growth(r) * np.cos(phi - np.radians(40)),
            "streaming": lambda r, phi: 25 * growth(r) * np.cos(2 * (phi - np.radians(20))),
        },
        {"asymmetry": {"light_1": 0.1, "light_angle_1": 20, "streaming_2": 10, "streaming_angle_2": 20}},
        {
            "asymmetry.light_1": ({"uniform": [-0.5, 0.5]}, 0.3),
            "asymmetry.light_angle_1": ({"normal": [30, 30]}, 40.0),
            "asymmetry.streaming_2": ({"normal": [0, 30]}, 25.0),
        },
    ),
    "mass_model": (
        {
            "speed": lambda r: np.sqrt(
                np.maximum(
                    foreign_rings.freeman_disc(r * KPC, 3e9, 0.6)
                    + foreign_rings.isothermal_halo(r * KPC, 4e8, 1.0)
                    - DISPERSION**2 * r / SHARE,
                    0,
                )
            )
        },
        {
            "rotation": {
                "curve": "mass_model", "disc_mass": "2e9 Msun", "disc_scale_length": "0.6 kpc",
                "halo": "isothermal", "halo_density": "3e8 Msun/kpc3", "halo_radius": "1 kpc",
            }
        },
        {
            "rotation.disc_mass": ({"log_normal": ["3e9 Msun", 0.5]}, 3e9),
            "rotation.halo_density": ({"log_normal": ["4e8 Msun/kpc3", 0.5]}, 4e8),
        },
    ),
    "sersic": (
        {"light": lambda r, phi: np.exp(r / SHARE - SERSIC_B * np.sqrt(r * KPC / 0.6))},
        {"light": {"profile": "sersic", "effective_radius": "0.5 kpc", "index": 0.7}},
        {
            "light.index": ({"uniform": [0.5, 6]}, 2.0),
            "light.effective_radius": ({"log_normal": ["0.5 kpc", 0.3]}, 0.6),
            "lines.flux": ({"log_normal": ["1e-15 erg/s/cm2", 0.3]}, FLUX / 0.997),  # within 10 effective radii
        },
    ),
}  # fmt: skip
"""Name -> what numpy's disc has instead, sections of the component, and free parameters with their prior and truth."""


def configuration(sections, free, **fit):
    priors = {f"galaxy.gas.{name}": prior for name, (prior, _) in free.items()}
    return {
        "galaxy": {"reader": "components", "components": [COMPONENT | sections]},
        "ssp": {"library": "popstar"},
        "observation": {"redshift": REDSHIFT, "inclination": 50, "position_angle": 120},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": 0.8}, "lsf": {"fwhm": 2.0}},
        "pipeline": "lines",
        "engine": {"method": "basis", "velocity_range": 600},
        "devices": {"data": 1},
        "fit": {"free": {"observation.inclination": {"uniform": [30, 80]}, **priors}, "starts": 1, **fit},
    }


def data_of(path, changes, noise=1 / 30):
    """The file of numpy's cube without noise, its errors a 30th of the brightest voxel."""
    flux = np.moveaxis(foreign_rings.ring_cube(DISC | changes, INSTRUMENT), 2, 0).astype(np.float32)
    centre, step = 0.5 * (INSTRUMENT["n_spaxel"] + 1), INSTRUMENT["spaxel"] / 3600
    cards = {"CTYPE3": "WAVE", "CRVAL3": EDGES[:2].mean(), "CD3_3": EDGES[1] - EDGES[0]}
    cards |= {"CRPIX1": centre, "CRPIX2": centre, "CD1_1": -step, "CD2_2": step}
    variance = np.full_like(flux, (noise * flux.max()) ** 2)
    return write_fits(path, *muse_hdus(flux, variance, np.zeros(flux.shape, np.int32), **cards))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("warp", marks=pytest.mark.long),
        pytest.param("asymmetry", marks=pytest.mark.long),
        pytest.param("mass_model", marks=pytest.mark.slow(8)),
        pytest.param("sersic", marks=pytest.mark.slow(10)),
    ],
)
def test_the_truth_comes_back(case, tmp_path):
    changes, sections, free = CASES[case]
    found = rl.fit(configuration(sections, free), data_of(tmp_path / "cube.fits", changes))
    assert found.converged
    truth = {f"galaxy.gas.{name}": true for name, (_, true) in free.items()} | {"observation.inclination": 55.0}
    for name, true in truth.items():
        assert abs(found.values[name] - true) < 0.3 * found.sigma[name], name
        assert found.sigma[name] < 0.3 * abs(true), name  # so that this says something


PLAIN = {
    "lines.flux": ({"log_normal": ["1e-15 erg/s/cm2", 0.3]}, FLUX),
    "dispersion": ({"normal": ["40 km/s", "5 km/s"]}, DISPERSION),
}


@pytest.mark.long
def test_draws_are_about_the_truth_as_widely_as_the_fit_says(tmp_path):
    """NUTS and Laplace's approximation, of three parameters that the data determine well."""
    data, config = data_of(tmp_path / "cube.fits", {}), configuration({}, PLAIN)
    best = rl.fit(config, data)
    drawn = rl.sample(config, data, fitted=best, sampling={"nuts": {"chains": 2, "warmup": 40, "draws": 40}})
    truth = {"galaxy.gas.lines.flux": FLUX, "galaxy.gas.dispersion": DISPERSION, "observation.inclination": 55.0}
    for name, true in truth.items():
        assert abs(best.values[name] - true) < 0.3 * best.sigma[name], name
        assert abs(drawn.mean[name] - true) < best.sigma[name], name
        assert 0.6 < drawn.sigma[name] / best.sigma[name] < 1.6, name


@pytest.mark.slow(6)
def test_simulations_are_the_cubes_of_the_formula():
    """Of other fluxes, dispersions and inclinations than the configuration's, on 1 and on 8 devices."""
    draws = {
        "galaxy.gas.lines.flux": [5e4, 2e5],
        "galaxy.gas.dispersion": [60.0, 45.0],
        "observation.inclination": [35.0, 65.0],
    }
    config = configuration({}, PLAIN)
    del config["fit"]
    config["instrument"] |= {
        "fov": INSTRUMENT["n_spaxel"] * INSTRUMENT["spaxel"],
        "pixel_scale": INSTRUMENT["spaxel"],
        "wavelength": {"start": EDGES[0] + 0.5, "stop": EDGES[-1] - 0.5, "step": 1.0, "medium": "vacuum"},
    }
    made = rl.simulate(config, draws=draws)
    for number, flux in enumerate(np.asarray(made.flux, np.float64)):
        light, sigma, tilt = (values[number] for values in draws.values())
        changes = {"flux": light, "dispersion": sigma, "angles": lambda r, tilt=tilt: (0 * r + tilt, 0 * r + 120.0)}
        expected = foreign_rings.ring_cube(DISC | changes, INSTRUMENT)
        error = (flux - expected) / expected.max()
        assert np.abs(error).max() < 1.5e-2
        assert np.sqrt(np.mean(error**2)) < 1e-3
    other = rl.simulate({**config, "devices": {"data": 8}}, draws=draws)
    np.testing.assert_allclose(other.flux, made.flux, rtol=0, atol=1e-5 * np.max(made.flux))


@pytest.mark.long
def test_stars_at_rest_are_planned_for():
    """Nothing of it moves; twice the mass has twice the light."""
    stars = {
        "name": "stars",
        "mass": "1e9 Msun",
        "light": {"profile": "gaussian", "sigma": "0.5 kpc"},
        "population": {"log_age": 9.5, "metallicity": 0.02},
    }
    config = configuration({}, {}) | {"pipeline": "stellar", "galaxy": {"reader": "components", "components": [stars]}}
    del config["fit"], config["engine"]["velocity_range"]
    config["instrument"] |= {"fov": 3.0, "pixel_scale": 0.5, "wavelength": {"start": 5000, "stop": 5100, "step": 10}}
    made = rl.simulate(config, draws={"galaxy.stars.mass": [1e9, 2e9]})
    np.testing.assert_allclose(made.flux[1], 2 * np.asarray(made.flux[0]), rtol=1e-5)
    assert np.asarray(made.flux).min() > 0
