"""Python takes quantities, columns of tables and masked arrays wherever YAML takes a number with a unit."""

import dataclasses
import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants
from astropy import units as u
from astropy.table import Column, MaskedColumn
from astropy.utils.masked import Masked
from independent import air_to_vacuum
from small import few_stars, mock_data, muse

import rubix_like as rl
from rubix_like.extend import (
    AbstractGalaxyModel,
    AbstractQuantile,
    AbstractSettings,
    Footprint,
    Kpc,
    LineTemplates,
    SSPTable,
    TemplateAxes,
    Templates,
    WavelengthBins,
    to_vacuum,
)

SHAPE = (2, 2, 3)
PLACES = np.ones((2, 3))
RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 20},
    "observation": {"redshift": 0.05, "inclination": 30, "align": "none"},
    "instrument": muse(5000, 5060, 20, "2 arcsec"),
    "engine": {"method": "direct", "velocity_range": 1000, "deposit": "tsc"},
    "devices": {"data": 1},
}
FREE = {"fit": {"free": {"observation.inclination": {"uniform": [5, 85]}}, "starts": 1}}
FLUX = 1e-20 * u.erg / u.s / u.cm**2 / u.AA
RADIAN = 57.29577951308232
"""deg."""


class Disc(AbstractGalaxyModel):
    """A model with a speed."""

    speed: float
    units = {"speed": "km/s"}  # noqa: RUF012

    def emitters(self, parameters):
        del parameters
        return few_stars(5, 0.1)


class Half(AbstractQuantile):
    """Uniform from 0 to `high`."""

    kind = "half"
    numbers = ("high",)
    high: float

    def quantile(self, probability):
        return self.high * probability


class Reach(AbstractSettings):
    """The settings of a plug-in."""

    radius: Kpc
    steps: tuple[Kpc, ...] = ()


def overridden(key, value):
    return functools.reduce(getattr, key.split("."), rl.load_config(RUN, {key: value}))


def nested(**observation):
    return rl.load_config({**RUN, "observation": {**RUN["observation"], **observation}}).observation


@functools.cache
def pipeline():
    return rl.Pipeline.from_config(rl.load_config(RUN))


@functools.cache
def posterior():
    return rl.log_posterior({**RUN, **FREE}, mock_data((10, 10, 4)))


def stars(**columns):
    one = np.ones(2)
    plain = {"position": PLACES, "velocity": PLACES, "initial_mass": one, "log_age": 9 * one, "metallicity": 0.02 * one}
    return rl.Stars(**{**plain, **columns})


def gas(**columns):
    return rl.Gas(**{"position": PLACES, "velocity": PLACES, "mass": np.ones(2), **columns})


def observed(**arrays):
    return mock_data(SHAPE, **arrays)


def chosen(value):
    tree = eqx.tree_at(lambda p: p.observation.inclination, pipeline().parameters, value)
    return pipeline().chosen(tree)[0].observation.inclination


LIGHT = np.full((2, 2, 4), 1e-3)
AXES = TemplateAxes((np.array([6.0, 7.0]),), ("age",))


def ssp_table(rest_wavelength, spectra=LIGHT):
    """A library of four wavelengths."""
    words = ("a", "vacuum", "Chabrier", 0.02, "c", "l", "s")
    axes = np.array([6.0, 7.0]), np.array([0.01, 0.02])
    return SSPTable(*words, spectra, *axes, rest_wavelength, np.ones(4))


def janskys(flux):
    """f_lambda = f_nu c / lambda^2 in the vacuum, at vacuum wavelengths of 1e4 Angstrom and more."""
    bins = WavelengthBins(10000.0, 10.0, 3, "linear", "vacuum")
    cube = rl.ObservedCube(
        flux=flux, variance=None, used=np.ones(SHAPE, bool), bins=bins, footprint=Footprint(2, 2, 0.2)
    )
    wavelength = (10000.0 + 10.0 * np.arange(3)) * u.AA
    return cube.flux[0, 0] / (1e-6 * u.Jy * constants.c / wavelength**2).to_value(FLUX)


TAKEN = {
    "override": (lambda: overridden("observation.inclination", 0.5 * u.rad), 0.5 * RADIAN),
    "override, 0-d array": (lambda: overridden("observation.inclination", np.array(40.0)), 40),
    "override, array": (lambda: overridden("observation.offset", [60, 120] * u.mas), (0.06, 0.12)),
    "override, list": (lambda: overridden("observation.offset", [0.001 * u.arcmin, 2]), (0.06, 2)),
    "override, jax": (lambda: overridden("observation.offset", jnp.array([1.0, 2.0])), (1, 2)),
    "override, scaled unit": (lambda: overridden("galaxy.stellar_mass", 2 * u.Unit("1e10 Msun")), 2e10),
    "override, pure number": (lambda: overridden("observation.redshift", 5 * u.percent), 0.05),
    "section": (lambda: nested(inclination=0.5 * u.rad).inclination, 0.5 * RADIAN),
    "sections of lists": (lambda: nested(pointings=[{"offset": [1, 2] * u.arcmin}]).pointings[0].offset, (60, 120)),
    "instrument": (lambda: rl.load_instrument("muse", pixel_scale=0.01 * u.arcmin).pixel_scale, 0.6),
    "settings of a plug-in": (lambda: Reach(radius=3 * u.Mpc, steps=[1, 2] * u.pc).steps, (0.001, 0.002)),
    "disc": (lambda: rl.SyntheticGalaxy(rotation_velocity=250e3 * u.m / u.s).rotation_velocity, 250),
    "parameter by name": (
        lambda: pipeline().parameters.changed({"observation.inclination": 0.5 * u.rad}).observation.inclination,
        0.5 * RADIAN,
    ),
    "parameter in the tree": (lambda: chosen(0.5 * u.rad), 0.5 * RADIAN),
    "parameter by name, list": (
        lambda: pipeline().parameters.changed({"observation.offset": [1 * u.arcmin, 2]}).observation.offset,
        (60, 2),
    ),
    "air wavelengths": (lambda: to_vacuum([500, 656.28] * u.nm), air_to_vacuum([5000, 6562.8])),
    "air wavelengths of bins": (
        lambda: WavelengthBins(5000.0, 1.0, 3, "linear", "air").to_vacuum([0.5] * u.um),
        air_to_vacuum([5000]),
    ),
    "table of an SSP library": (
        lambda: ssp_table(np.arange(500, 504) * u.nm).rest_wavelength,
        [5000, 5010, 5020, 5030],
    ),
    "fluxes of an SSP library": (
        lambda: ssp_table(np.arange(500, 504), 1e-30 * np.ones((2, 2, 4)) * u.Lsun / u.nm / u.kg).spectra[0, 0],
        np.full(4, 1e-31 * constants.M_sun.value),
    ),
    "vector of a posterior": (
        lambda: posterior()([50] * u.percent) - posterior()(np.array([0.5])),
        0,
    ),
    "stars, array": (lambda: stars(velocity=PLACES * 1e3 * u.m / u.s).velocity, PLACES),
    "stars, column": (lambda: stars(position=Column(PLACES, unit="pc")).position, PLACES / 1e3),
    "stars, masked column": (lambda: stars(initial_mass=MaskedColumn([3.0, 4.0])).initial_mass, [3, 4]),
    "stars, percent": (lambda: stars(metallicity=[2, 3] * u.percent).metallicity, [0.02, 0.03]),
    "gas": (lambda: gas(density=[1, 2] * u.Msun / u.pc**3).density, [1e9, 2e9]),
    "age of the Universe": (
        lambda: rl.validate(few_stars(3, 1.0), 14 * u.Gyr).stars.log_age,
        few_stars(3, 1).stars.log_age,
    ),
    "bins": (lambda: WavelengthBins(500 * u.nm, 1 * u.nm, 3, "linear", "air").wavelength, [5000, 5010, 5020]),
    "bins, table": (lambda: WavelengthBins.around([0.5, 0.501] * u.um, "air").wavelength, [5000, 5010]),
    "footprint": (lambda: Footprint(2, 2, 0.01 * u.arcmin).pixel_scale, 0.6),
    "observed flux": (lambda: observed(flux=np.ones(SHAPE) * 1e-18 * u.Unit("erg/(s cm2 AA)")).flux, 100),
    "observed flux per Hz": (lambda: janskys(np.ones(SHAPE) * u.uJy), 1),
    "observed brightness": (lambda: observed(flux=np.ones(SHAPE) * FLUX / u.arcsec**2).flux, 0.04),
    "observed variance": (lambda: observed(variance=np.ones(SHAPE) * (10 * FLUX) ** 2).variance, 100),
    "observed place": (lambda: dataclasses.replace(observed(), ra=1 * u.hourangle, dec=0.0).ra, 15),
    "observed range": (lambda: observed().crop(500.5 * u.nm, 502.5 * u.nm).wavelength, [5010, 5020]),
    "masked flux": (
        lambda: observed(flux=np.ma.masked_array(np.ones(SHAPE), np.arange(12).reshape(SHAPE) == 5)).used,
        np.arange(12).reshape(SHAPE) != 5,
    ),
    "masked variance": (
        lambda: observed(variance=Masked(np.ones(SHAPE) * FLUX**2, np.arange(12).reshape(SHAPE) == 7)).used,
        np.arange(12).reshape(SHAPE) != 7,
    ),
    "posterior, value": (
        lambda: posterior().to_physical(posterior().to_unconstrained({"observation.inclination": 0.5 * u.rad}))[
            "observation.inclination"
        ],
        0.5 * RADIAN,
    ),
    "posterior, data": (
        lambda: (
            posterior().with_data(np.full((10, 10, 4), 1e-18) * u.Unit("erg/(s cm2 AA)"))._posterior.likelihood.flux
        ),
        100,
    ),
    "posterior, masked data": (
        lambda: (
            posterior()
            .with_data(np.ma.masked_less(np.arange(400.0).reshape(10, 10, 4), 300))
            ._posterior.likelihood.flux
        ),
        np.where(np.arange(400) < 300, 0, np.arange(400)).reshape(10, 10, 4),
    ),
}


@pytest.mark.parametrize(("taken", "expected"), TAKEN.values(), ids=TAKEN)
def test_quantities_are_converted_and_what_is_masked_left_out(taken, expected):
    np.testing.assert_allclose(np.asarray(taken(), np.float64), expected, rtol=1e-6)


MASKED = np.ma.masked_array([1.0, 1e20], [False, True])
REFUSED = {
    "override": (
        lambda: overridden("observation.inclination", 3 * u.kpc),
        "observation.inclination: expected a quantity",
    ),
    "logarithmic unit": (
        lambda: overridden("dust.a_v", u.Magnitude(2)),
        "dust.a_v: expected a number with a plain unit, got 2.0 mag",
    ),
    "override of a number": (lambda: overridden("observation.redshift", 3 * u.kpc), "observation.redshift: expected"),
    "masked override": (
        lambda: overridden("observation.offset", MASKED),
        "offset: expected values without a mask, got 1",
    ),
    "masked section": (lambda: nested(inclination=np.ma.masked), "inclination: expected values without a mask"),
    "disc": (lambda: rl.SyntheticGalaxy(rotation_velocity=3 * u.kg), "SyntheticGalaxy.rotation_velocity: expected a q"),
    "disc of no mass": (
        lambda: rl.SyntheticGalaxy(stellar_mass=-1e10),
        "SyntheticGalaxy.stellar_mass: expected .* > 0",
    ),
    "disc of no size": (lambda: rl.SyntheticGalaxy(disc_scale_length=-1.0), "disc_scale_length: expected a number > 0"),
    "disc of nan": (lambda: rl.SyntheticGalaxy(disc_dispersion=np.nan), "disc_dispersion: expected a finite quantity"),
    "disc on the device": (lambda: rl.SyntheticGalaxy(gas_fraction=jnp.array(-1.0)), "gas_fraction: expected .* >= 0"),
    "masked disc": (
        lambda: rl.SyntheticGalaxy(turnover_radius=np.ma.masked),
        "turnover_radius: expected values without",
    ),
    "stars": (lambda: stars(position=PLACES * u.km / u.s), "Stars.position: expected a quantity in kpc, got .* km / s"),
    "ages": (lambda: stars(log_age=[1, 2] * u.Gyr), "Stars.log_age: expected numbers without a unit, got .* Gyr"),
    "masked stars": (
        lambda: stars(initial_mass=MASKED),
        "Stars.initial_mass: expected values without a mask, got 1 of 2",
    ),
    "masked column": (
        lambda: stars(mass=MaskedColumn([1.0, 2.0], mask=[0, 1])),
        "Stars.mass: expected values without a mask",
    ),
    "masked gas": (lambda: gas(mass=Masked([1, 2] * u.Msun, mask=[0, 1])), "Gas.mass: expected values without a mask"),
    "parameter": (
        lambda: pipeline().parameters.changed({"observation.inclination": 3 * u.kpc}),
        "observation.inclination.*expected a quantity in deg, got .* kpc",
    ),
    "parameter, list": (
        lambda: pipeline().parameters.changed({"observation.offset": [[1, 2] * u.kpc]}),
        "observation.offset.*expected a quantity in arcsec, got .* kpc",
    ),
    "vector of a posterior": (lambda: posterior()([1.0] * u.kpc), "expected a vector of 1 numbers .* kpc"),
    "masked vector": (lambda: posterior()(np.ma.masked_array([1.0], True)), "expected a vector of 1 numbers"),
    "masked vector's values": (
        lambda: posterior().to_physical(np.ma.masked_array([1.0], True)),
        "expected a vector of 1 numbers",
    ),
    "masked SSP library": (
        lambda: ssp_table(np.ma.masked_array(np.arange(500, 504), [0, 0, 1, 0])),
        "SSPTable.rest_wavelength: expected values without a mask, got 1 of 4",
    ),
    "templates": (
        lambda: Templates("t", AXES, np.arange(4) * u.kg, np.ones((2, 4)), np.ones(4), (0.0, 9.0)),
        "Templates.rest_wavelength: expected a quantity in Angstrom, got .* kg",
    ),
    "lines": (
        lambda: LineTemplates("l", AXES, ("Ha",), np.ones(1), np.ones((2, 1)), np.ones(1) * u.K),
        "LineTemplates.thermal: expected a quantity in km/s, got .* K",
    ),
    "age of the Universe": (
        lambda: rl.validate(few_stars(3, 1.0), 3 * u.kpc),
        "universe_age: expected a quantity in yr",
    ),
    "bins": (
        lambda: WavelengthBins(3 * u.kg, 1.0, 3, "linear", "air"),
        "WavelengthBins.first: expected a quantity in A",
    ),
    "footprint": (lambda: Footprint(2, 2, 3 * u.kpc), "Footprint.pixel_scale: expected a quantity in arcsec"),
    "observed flux": (lambda: observed(flux=np.ones(SHAPE) * u.kpc), "ObservedCube.flux: expected a flux density, got"),
    "observed variance": (
        lambda: observed(variance=np.ones(SHAPE) * FLUX),
        "ObservedCube.variance: expected .* power 2",
    ),
    "cube": (
        lambda: rl.Cube(np.ones(SHAPE) * u.kg, np.zeros(SHAPE, int), observed().bins, observed().footprint),
        "Cube.flux: expected a quantity in 1e-20",
    ),
    "draws": (
        lambda: rl.simulate(RUN, draws={"observation.inclination": [0.5, 1.0] * u.kpc}),
        "draws.observation.inclination: expected a quantity in deg, got .* kpc",
    ),
    "masked draws": (
        lambda: rl.simulate(RUN, draws={"observation.inclination": MASKED}),
        "draws.observation.inclination: expected values without a mask",
    ),
    "prior": (
        lambda: rl.simulate(RUN, priors={"observation.inclination": {"uniform": [1 * u.kpc, 2 * u.kpc]}}, n=2),
        "free.observation.inclination: uniform: expected a quantity in deg",
    ),
    "own prior": (
        lambda: rl.simulate(RUN, priors={"observation.inclination": Half(1 * u.rad)}, n=2),
        "expected the numbers of a prior in the unit of its parameter",
    ),
    "model": (
        lambda: rl.log_posterior({**RUN, **FREE}, mock_data((10, 10, 4)), model=Disc(3 * u.kpc)),
        "Disc.speed: expected a quantity in km/s, got .* kpc",
    ),
    "with_data": (
        lambda: posterior().with_data(np.ones((10, 10, 4)) * u.kpc),
        "with_data: flux: expected a flux density",
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_another_physical_type_and_masked_values_are_refused_by_name(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_draws_and_priors_are_in_the_units_that_they_have():
    """Half a radian is 28.6 deg, as a value, and as an end of a prior."""
    draws = {"observation.inclination": np.array([0.5, 1.0]) * u.rad}
    found = rl.simulate(RUN, draws=draws, n=2).parameters["observation.inclination"]
    np.testing.assert_allclose(found, [0.5 * RADIAN, RADIAN], rtol=1e-12)
    prior = {"observation.inclination": {"uniform": [0.5 * u.rad, 0.51 * u.rad]}}
    found = rl.log_posterior(RUN, mock_data((10, 10, 4)), prior).to_physical(np.zeros(1))["observation.inclination"]
    np.testing.assert_allclose(found, 0.505 * RADIAN, rtol=1e-6)


def test_a_recorded_configuration_keeps_quantities_as_text():
    fit = {"free": {"dust.a_v": {"uniform": [0 * u.mag, 1 * u.mag]}}, "start": {"dust.a_v": [0.5, 0.6] * u.mag}}
    config = rl.load_config({**RUN, "fit": fit})
    assert config.fit.start == {"dust.a_v": ["0.5 mag", "0.6 mag"]}
    assert rl.load_config({**RUN, "fit": config.fit.model_dump()}).to_yaml() == config.to_yaml()
