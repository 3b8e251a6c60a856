"""Components of gas: their lines against a thin disc's cube that numpy made from the formula."""

from math import erf

import foreign_cube
import jax
import numpy as np
import pytest

from rubix_like import ConfigError, Pipeline, load_config, load_galaxy
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.extend import resolve
from rubix_like.forward.sources.lines import component_templates
from rubix_like.galaxy.components.smooth import SmoothGalaxy
from rubix_like.inference.posterior.fit_model import leaf_at, with_leaves

SMALL = {"N_SPAXEL": 10, "MARGIN": 6, "FINE": 10, "FIRST": 6660.0, "LAST": 6740.0}
"""Constants of the foreign cube."""

HALPHA, NITROGEN, PARTNER = 6564.632, 6585.273, 6549.861
"""Vacuum Angstrom (NIST) of Ha and [N II] 6583, 6548."""

FLUX, RATIO, BRANCHING = 2e5, 0.4, 1 / 2.942
"""1e-20 erg/s/cm2 of Ha, [N II] 6583 over it, and 6548 over 6583."""

DISC = {
    "name": "gas",
    "lines": {"wavelengths": ["Ha", "[N II] 6583"], "flux": "2e-15 erg/s/cm2", "ratios": [RATIO]},
    "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
    "rotation": {"curve": "arctan", "velocity": "210 km/s", "turnover_radius": "0.4 kpc"},
    "dispersion": "45 km/s",
}


def configuration(*components, **changes):
    return load_config(
        {
            "galaxy": {"reader": "components", "components": list(components or (DISC,))},
            "pipeline": "lines",
            "observation": {"redshift": 0.02, "inclination": 50, "position_angle": 120},
            "instrument": {
                "name": "muse",
                "fov": 5.0,
                "pixel_scale": 0.5,
                "wavelength": {"start": 6660, "stop": 6740, "step": 1.25},
                "psf": {"kind": "gaussian", "fwhm": 0.9},
                "lsf": {"fwhm": "2.5 Angstrom", "includes_pixel": False},
            },
            "engine": {"method": "basis"},
            "devices": {"data": 1},
        },
        changes,
    )


def cube_of(config):
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy)(galaxy)


def foreign(fwhm):
    """The cube of numpy."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(foreign_cube, name, value)
        return foreign_cube.foreign_line_flux(
            {HALPHA: FLUX, NITROGEN: FLUX * RATIO, PARTNER: FLUX * RATIO * BRANCHING}, fwhm
        )


@pytest.mark.parametrize("lsf", [2.5, None])
def test_the_cube_is_that_of_the_formula(lsf):
    """Errors relative to the brightest voxel. Without a line spread the emitters' lines have a width of their own,
    taken off the dispersion; numpy's are as wide as one of its channels."""
    changes = {} if lsf else {"instrument.lsf": None}
    flux = np.asarray(cube_of(configuration(**changes)).flux, np.float64)
    expected = foreign(lsf or 0.1)
    error = (flux - expected) / expected.max()
    assert np.abs(error).max() < 4e-3
    assert np.sqrt(np.mean(error**2)) < 2e-4
    assert flux.sum() == pytest.approx(expected.sum(), rel=1e-3)


@pytest.mark.parametrize("method", ["direct", "basis"])
@pytest.mark.parametrize("step", [10, 30])
def test_lines_narrower_than_half_a_bin_are_integrals_over_the_bins(step, method):
    """By numpy: a Gaussian of half a bin, but at most 500 km/s, over each bin of 10 (of 448 km/s) or 30 Angstrom."""
    bins = {"instrument.wavelength": {"start": 6600, "stop": 6810, "step": step, "medium": "vacuum"}}
    still = {"name": "gas", "light": {"profile": "point"}, "lines": {"wavelengths": "Ha", "flux": FLUX}}
    config = configuration(still, **bins, **{"instrument.lsf": None, "instrument.psf": None, "engine.method": method})
    spectrum = np.asarray(cube_of(config).flux, np.float64).sum(axis=(0, 1))
    centre, edges = HALPHA * 1.02, 6600 + step * (np.arange(len(spectrum) + 1) - 0.5)
    sigma = min(0.5 * step / 6600 * 299792.458, 500) / 299792.458 * centre
    expected = FLUX * np.diff([0.5 * erf((edge - centre) / sigma / 2**0.5) for edge in edges]) / step
    np.testing.assert_allclose(spectrum, expected, atol=3e-3 * expected.max())
    assert spectrum.sum() * step == pytest.approx(FLUX, rel=1e-3)


PARAMETERS = {
    "lines.flux": 1e-3,
    "lines.ratios": 1e-3,
    "dispersion": 1e-3,
    "rotation.velocity": 1e-3,
    "light.scale_length": 1e-4,
    "inclination": 1e-3,
}
"""Parameters of the component, and relative (of the inclination absolute) steps of their differences."""


@pytest.mark.slow(8)
def test_slopes_are_those_of_differences():
    """The whole cube, times fixed random numbers, in 64 bits."""
    config = configuration(**{"engine.precision": "float64", "galaxy.points": 4096})
    base = config.galaxy.build(config)
    points = base.points((4096,))
    pipeline = Pipeline.from_config(config, base.emitters(points))
    weight = np.random.default_rng(2).normal(size=pipeline(base.emitters(points)).flux.shape)

    @jax.jit
    def total(galaxy):
        return (pipeline(galaxy.emitters(points)).flux * weight).sum()

    slopes = jax.grad(total)(base).components[0]
    for name, step in PARAMETERS.items():
        value = np.asarray(leaf_at(base.components[0], name))
        change = step * (value if value.any() else np.ones_like(value))
        ends = [
            total(SmoothGalaxy((with_leaves(base.components[0], {name: value + sign * change}),), base.names))
            for sign in (1, -1)
        ]
        found = float(np.sum(leaf_at(slopes, name)))
        assert found == pytest.approx(float((ends[0] - ends[1]) / (2 * change.sum())), rel=2e-4), name


def rows_of(*components):
    return ComponentsReader(components=components).build().line_rows


def test_templates_have_the_lines_and_their_partners():
    """One template for each line that has a brightness; [N II] 6548 and [O III] 4959 come with their brighter lines,
    unless they are given themselves or doublets are off."""
    given = ["Ha", "[N II] 6583", 5008.24]
    found = component_templates(rows_of(DISC | {"lines": {"wavelengths": given, "flux": 1.0, "ratios": [1, 2]}}))
    assert found.lines == ("Ha", "[N II] 6583", "[N II] 6548", "5008.24")
    np.testing.assert_allclose(found.table, [[1, 0, 0, 0], [0, 1, BRANCHING, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(found.wavelength, [HALPHA, NITROGEN, PARTNER, 5008.24])
    both = DISC | {"lines": {"wavelengths": ["[N II] 6583", "[N II] 6548"], "flux": 1.0, "ratios": [0.5]}}
    np.testing.assert_array_equal(component_templates(rows_of(both)).table, np.eye(2))
    alone = DISC | {"lines": {"wavelengths": "[O III] 5007", "flux": 1.0, "doublets": False}}
    np.testing.assert_array_equal(component_templates(rows_of(alone)).table, [[1]])


STARS = {
    "name": "stars",
    "mass": "1e9 Msun",
    "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
    "population": {"log_age": 9.5, "metallicity": 0.02},
}
POINT = {"light": {"profile": "point"}, "dispersion": "20 km/s"}


@pytest.mark.slow(8)
def test_stars_and_gas_of_several_components_add_up():
    """A galaxy of stars and two points of gas, one by flux and one by luminosity: its lines are those of the points."""
    luminosity = 4 * np.pi * (90e6 * 3.0856775814913673e18) ** 2 * 3e-16  # erg/s for 3e-16 erg/s/cm2 at 90 Mpc
    points = [
        POINT | {"name": "one", "lines": {"wavelengths": "Ha", "flux": "1e-16 erg/s/cm2"}},
        POINT | {"name": "two", "lines": {"wavelengths": "Ha", "luminosity": f"{luminosity:.8e} erg/s"}},
    ]
    changes = {"pipeline": "stellar_lines", "observation.distance": "90 Mpc", "ssp": {"library": "popstar"}}
    changes |= {"galaxy.points": 4096, "instrument.psf": None}
    both = cube_of(configuration(STARS, *points, **changes))
    alone = cube_of(configuration(STARS, **changes | {"pipeline": "stellar"}))
    light = (np.asarray(both.flux, np.float64) - np.asarray(alone.flux, np.float64)).sum(axis=(0, 1)) * 1.25
    assert light.sum() == pytest.approx(4e-16 / 1e-20, rel=1e-4)
    assert int(both.source_counters["lines"].n_particles) == 2 * 4096
    assert int(both.counters.n_particles) == 4096


WITHOUT_LIGHT = {key: value for key, value in DISC.items() if key != "lines"}
ONE = {"wavelengths": "Ha", "flux": 1.0}


@pytest.mark.parametrize(
    ("components", "changes", "words"),
    [
        ([WITHOUT_LIGHT], {}, "expected mass and population for stars, or lines for gas, got none of them"),
        ([DISC | {"mass": 1e9}], {}, "got mass and lines"),
        (
            [WITHOUT_LIGHT | {"lines": {"wavelengths": "Ha"}}],
            {},
            "flux or the luminosity of the first line, got neither",
        ),
        ([WITHOUT_LIGHT | {"lines": ONE | {"luminosity": 1.0}}], {}, "got both"),
        ([WITHOUT_LIGHT | {"lines": ONE | {"ratios": [1, 2]}}], {}, "so 0, got 2"),
        ([DISC | {"dispersion": {"profile": "from_height"}}], {}, "for gas, whose mass is not known; got from_height"),
        ([DISC], {"pipeline": "stellar"}, "set pipeline: lines"),
        ([DISC, STARS], {}, "set pipeline: stellar_lines"),
        ([DISC], {"lines": {"wavelengths": "Hb"}}, "expected null beside a component with lines of its own"),
        ([DISC | {"lines": ONE | {"wavelengths": "Halfa"}}], {}, r"galaxy\.gas\.lines\.wavelengths: unknown line"),
        ([DISC | {"lines": ONE | {"wavelengths": ["Ha", "Halpha"], "ratios": 1}}], {}, "got 'Ha' twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused(components, changes, words):
    with pytest.raises(ConfigError, match=words):
        resolve(configuration(*components, **changes))
