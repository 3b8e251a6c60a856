"""`fit_populations` on spectra that numpy made: two bursts, their kinematics, the file, and what is refused."""

import foreign_cube
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from astropy.io import fits
from astropy.table import Table

import rubix_like as rl
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.inference.binned.bin_fits import BinSpectrum, profile_at
from rubix_like.inference.binned.bin_templates import make_templates
from rubix_like.inference.binned.population_maps import notes_on_misfit
from rubix_like.inference.populations.smoothness import smoothness_rows
from rubix_like.physics.cosmology import observed_distance

AGES = np.arange(8.0, 10.17, 0.12)
BURSTS = (8.6, 9.7)
"""log10(age / yr) of two bursts, each a normal distribution of `WIDTH` dex by mass within `AGES`, Z = 0.02."""

WIDTH, STEP, SIGNAL_TO_NOISE = 0.3, 10.0, 50.0
SPLIT = 9.3
TRUTH = ((3e8, 8e9, 80.0, 120.0), (1e9, 3e9, -60.0, 160.0))
"""Masses of both bursts in Msun, V and sigma in km/s, of two spaxels."""


def burst(place):
    """Lsun / Angstrom of a burst, per Msun."""
    nodes = np.linspace(AGES[0], AGES[-1], 61)
    shares = np.exp(-0.5 * ((nodes - place) / WIDTH) ** 2)
    total = 0.0
    for node, share in zip(nodes, shares / shares.sum(), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(foreign_cube.TRUTH, "galaxy.disc_log_age", node)
            wavelength, spectrum = foreign_cube.population(foreign_cube.POPSTAR)
        total = total + share * spectrum
    return wavelength, total


def spectrum_of(mass, spectra, velocity, sigma):
    """Flux of a sum of bursts with normal velocities, by a sum over these and foreign_cube's bins."""
    wavelength, places = spectra[0][0], np.linspace(-5, 5, 101)
    light = sum(own * burst[1] for own, burst in zip(mass, spectra, strict=True))
    weight = np.exp(-0.5 * places**2)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"FIRST": 3900.0, "LAST": 7000.0, "STEP": STEP}.items():
            patch.setattr(foreign_cube, name, value)
        patch.setattr(foreign_cube, "population", lambda _: (wavelength, light))
        every = foreign_cube.channel_spectra(velocity + sigma * places, None)
    return weight @ every / weight.sum()


@pytest.fixture(scope="module")
def observed():
    """Two spaxels with noise, and a third without data."""
    spectra = [burst(place) for place in BURSTS]
    flux = np.array([spectrum_of((one, two), spectra, *motion) for one, two, *motion in TRUTH])
    sigma = np.median(flux, axis=1, keepdims=True) / SIGNAL_TO_NOISE * np.ones_like(flux)
    flux = flux + sigma * np.random.default_rng(1).standard_normal(flux.shape)
    flux, sigma = (np.concatenate([own, own[:1]])[None] for own in (flux, sigma))
    used = np.ones(flux.shape, bool)
    used[0, 2] = False
    bins = WavelengthBins(3900.0, STEP, flux.shape[2], "linear", "air")
    return ObservedCube(flux, sigma**2, used, bins, Footprint.of(flux.shape, 0.2), source="numpy")


@pytest.fixture(scope="module")
def result(observed, tmp_path_factory):
    place = tmp_path_factory.mktemp("populations") / "populations.fits"
    return rl.fit_populations(
        observed, "popstar", redshift=0.02, log_ages=AGES, metallicities=[0.02], draws=200, output=place
    ), place


@pytest.mark.slow(25)
def test_two_bursts_and_their_kinematics_come_back(result):
    maps, _ = result
    found = maps.history([7.9, SPLIT, 10.3])
    nodes = np.linspace(AGES[0], AGES[-1], 61)
    shares = np.exp(-0.5 * ((nodes - np.array(BURSTS)[:, None]) / WIDTH) ** 2)
    shares /= shares.sum(axis=1, keepdims=True)
    for number, (*bursts, velocity, sigma) in enumerate(TRUTH):
        mass = np.array(bursts) @ shares
        half = 0.5 * (found.high - found.low)[number]
        for place, true in enumerate((mass[nodes < SPLIT].sum(), mass[nodes >= SPLIT].sum())):
            assert abs(found.value[number, place] - true) < 3 * half[place], (number, place)
            assert half[place] < 0.7 * true
        assert abs(maps.velocity[number] - velocity) < 3.5 * maps.velocity_error[number]
        assert abs(maps.sigma[number] - sigma) < 3.5 * maps.sigma_error[number]
        assert maps.velocity_error[number] < 35
        old = maps.populations.mean_log_age("mass")
        assert abs(old.value[number] - mass @ nodes / mass.sum()) < 3 * (old.high - old.low)[number] / 2
    by_mass, by_light = (maps.populations.mean_log_age(weighting).value for weighting in ("mass", "light"))
    assert (by_light < by_mass).all()
    assert (np.abs(maps.chi_square / maps.n_fitted - 1) < 5 * np.sqrt(2 / maps.n_fitted)).all()


@pytest.mark.slow(1)
def test_the_file_has_maps_and_a_table(result):
    maps, place = result
    with fits.open(place, checksum=True) as hdus:
        np.testing.assert_array_equal(hdus["BINS"].data, [[0, 1, -1]])
        ages = hdus["LOG_AGE_MASS"].data
        np.testing.assert_allclose(ages[0, :2], maps.populations.mean_log_age().value, rtol=1e-6)
        assert np.isnan(ages[0, 2])
        assert hdus["MASS"].header["BUNIT"] == "solMass"
        np.testing.assert_array_equal(hdus["WEIGHTS"].data, maps.populations.mass)
        assert hdus["SPECTRA"].header["CTYPE1"] == "AWAV"
        np.testing.assert_allclose(hdus["NODES"].data["LOG_AGE"], AGES)
    table = Table.read(place, hdu="TABLE")
    np.testing.assert_allclose(table["velocity"], maps.velocity)
    assert str(table["velocity"].unit) == "km / s"
    assert str(table["mass"].unit) == "solMass"


@pytest.mark.slow(10)
def test_slopes_over_velocity_and_dispersion_are_those_of_differences(observed):
    """The gradient of the variable projection by central differences, off the best place."""
    library = rl.load_ssp("popstar")
    distance = observed_distance("Planck18", 0.02, None)
    templates = make_templates(library, AGES, np.array([0.02]), observed.bins, None, 0.02, distance)
    sigma = np.sqrt(observed.variance[0, 0])
    spectrum = BinSpectrum(jnp.asarray(observed.flux[0, 0]), jnp.asarray(np.where(templates.covered, 1 / sigma, 0.0)))
    rows = jnp.asarray(smoothness_rows(np.array([-1.7]), AGES, templates.coefficients[:, 0]) / 3e8)

    @jax.jit
    def profile(motion):
        return profile_at(templates, spectrum, rows, jnp.asarray(3.0), motion)

    at = np.array([60.0, 150.0])
    own = profile(at)
    gradient = own.slopes.T @ own.residual
    for number, step in enumerate(np.eye(2) * 0.01):
        difference = (profile(at + step).objective - profile(at - step).objective) / 0.02
        assert float(gradient[number]) == pytest.approx(float(difference), rel=1e-5)


def test_bins_that_no_history_fits_are_told():
    """chi^2 of 1000 wavelengths: of scipy's distribution, 1 in 1000 and 1 in 10^8 are below and above 5 sigma."""
    likely, unlikely = scipy.stats.chi2.isf([1e-3, 1e-8], 1000)
    assert notes_on_misfit(np.array([1000.0, likely]), np.array([1000, 1000])) == ()
    (note,) = notes_on_misfit(np.array([1000.0, unlikely]), np.array([1000, 1000]))
    assert note.startswith("1 of 2 bins: chi^2 is more than 5 sigma above")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"redshift": None}, "redshift: expected that of the galaxy"),
        ({"ssp": None}, "ssp: expected an SSP library"),
        ({"log_ages": [9.0, 11.0]}, "log_ages: expected nodes within the library"),
        (
            {"bins": np.zeros((2, 2), int)},
            r"bins: expected None, a signal to noise, or whole numbers of shape \(1, 3\)",
        ),
        ({"kinematics": (0.0, 0.0)}, "dispersions above 0"),
        ({"regularisation": -1.0}, "regularisation: expected a number > 0"),
        ({"draws": 1}, "draws: expected"),
        ({"redshift": 0.0}, "distance: expected a luminosity distance above 0"),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused(given, words):
    shape = (1, 3, 4)
    bins = WavelengthBins(5000.0, 10.0, 4, "linear", "air")
    data = ObservedCube(np.ones(shape), np.ones(shape), np.ones(shape, bool), bins, Footprint.of(shape, 0.2))
    with pytest.raises(ConfigError, match=words):
        rl.fit_populations(data, **{"ssp": "popstar", "redshift": 0.02, **given})
