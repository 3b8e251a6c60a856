"""Free-form populations of a spectrum that numpy made, and those of pPXF with the same templates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import rubix_like as rl
from rubix_like.extend import Populations
from rubix_like.inference.populations.weight_draws import Reduced, draw_by_ratios, neighbours_of

pytestmark = pytest.mark.slow

LIGHT_SPEED, REDSHIFT, VELOCITY, SIGMA = 299792.458, 0.02, 40.0, 150.0
STEP, SIGNAL_TO_NOISE = 0.0012, 60.0
"""Step of ln(wavelength), 360 km/s."""

AGES = np.arange(8.0, 10.15, 0.2)
METALS = (0.008, 0.02, 0.05)


def sums_over_bins(wavelength, spectra, log_edges, stretch):
    """Means of piecewise linear spectra (template, wave) over bins of ln(wavelength) that are stretched, in numpy."""
    to = np.exp(log_edges) / stretch
    steps = 0.5 * np.diff(wavelength) * (spectra[:, 1:] + spectra[:, :-1])
    whole = np.concatenate([np.zeros((len(spectra), 1)), np.cumsum(steps, axis=1)], axis=1)
    index = np.clip(np.searchsorted(wavelength, to) - 1, 0, len(wavelength) - 2)
    offset = to - wavelength[index]
    slope = (spectra[:, index + 1] - spectra[:, index]) / (wavelength[index + 1] - wavelength[index])
    integral = whole[:, index] + offset * (spectra[:, index] + 0.5 * slope * offset)
    return np.diff(integral, axis=1) / np.diff(np.exp(log_edges))


@pytest.fixture(scope="module")
def templates():
    """SSPs of the nodes: linear in log10(age) and log10(Z) between those of popstar."""
    library = rl.load_ssp("popstar")
    ages = [np.interp(AGES, library.log_age, unit) for unit in np.eye(len(library.log_age))]
    metals = [np.interp(np.log10(METALS), np.log10(library.metallicity), unit) for unit in np.eye(6)]
    table = np.einsum("mz,an,mar->znr", metals, ages, library.spectra)
    return library.rest_wavelength, table.reshape(-1, table.shape[2])


def populations_of(design, target, light):
    """Draws of non-negative masses, from templates (wave, node) and a spectrum in units of the errors."""
    orthogonal, upper = np.linalg.qr(design)
    problem = Reduced(jnp.asarray(upper), jnp.asarray(orthogonal.T @ target), jnp.zeros((0, len(light))))
    first = jnp.asarray(scipy.optimize.nnls(design, target)[0])
    neighbours = neighbours_of(np.log10(METALS), AGES, light)
    draws = np.asarray(
        jax.jit(lambda key: draw_by_ratios(problem, first, neighbours, key, 100, 400))(jax.random.key(1))
    )
    shape = (len(METALS), len(AGES))
    return Populations(
        labels=("spectrum",),
        log_age=AGES,
        metallicity=np.array(METALS),
        mass=np.mean(draws, axis=0).reshape(1, *shape),
        draws=draws.reshape(-1, 1, *shape),
        smoothness=np.ones(1),
        light_per_mass=light.reshape(shape),
    )


def test_ages_and_metallicities_are_those_of_ppxf(client, templates):
    """Light- and mass-weighted means are the true ones within their errors, and no farther from them than those of
    pPXF, whose regularisation is another prior and which finds the velocities, too."""
    fit = client("ppxf.ppxf").ppxf
    wavelength, table = templates
    log_edges = np.arange(np.log(3900.0), np.log(7000.0), STEP)
    places = np.linspace(-5, 5, 101)
    shares = np.exp(-0.5 * places**2) / np.exp(-0.5 * places**2).sum()
    masses = np.zeros((len(METALS), len(AGES)))
    masses[1] = 5e8 * np.exp(-0.5 * ((AGES - 8.9) / 0.25) ** 2) + 5e9 * np.exp(-0.5 * ((AGES - 9.8) / 0.25) ** 2)
    masses[[0, 2]] = 0.4 * masses[1]
    seen = 0.0
    for place, share in zip(places, shares, strict=True):
        stretch = (1 + REDSHIFT) * np.exp((VELOCITY + SIGMA * place) / LIGHT_SPEED)
        seen = seen + 1e-7 * share * sums_over_bins(wavelength, table, log_edges, stretch)
    flux = masses.ravel() @ seen
    error = np.full_like(flux, np.median(flux) / SIGNAL_TO_NOISE)
    flux += error * np.random.default_rng(4).standard_normal(len(flux))
    ours = populations_of((seen / error).T, flux / error, seen.mean(axis=1))

    edges = np.arange(np.log(3300.0), np.log(7600.0), STEP)
    fine = sums_over_bins(wavelength, table, edges, 1.0).T
    mean = fine.mean(axis=0)
    normalised = (fine / mean).reshape(-1, len(METALS), len(AGES))
    own = fit(
        normalised,
        flux / np.median(flux),
        error / np.median(flux),
        STEP * LIGHT_SPEED,
        [VELOCITY, SIGMA],
        moments=2,
        degree=-1,
        mdegree=0,
        lam=np.exp(0.5 * (log_edges[1:] + log_edges[:-1])) / (1 + REDSHIFT),
        lam_temp=np.exp(0.5 * (edges[1:] + edges[:-1])),
        regul=3.0,
        reg_dim=(len(METALS), len(AGES)),
        reg_ord=2,
        quiet=True,
    )
    by_light = own.weights.reshape(len(METALS), len(AGES))
    for weighting, weights in (("light", by_light), ("mass", by_light / mean.reshape(by_light.shape))):
        for found, axis in (
            (ours.mean_log_age(weighting), AGES[None, :]),
            (ours.mean_log_metallicity(weighting), np.log10(METALS)[:, None]),
        ):
            given = (masses.ravel() * (mean if weighting == "light" else 1.0)).reshape(by_light.shape)
            true, theirs = (np.sum(own * axis) / np.sum(own) for own in (given, weights))
            half, off = 0.5 * (found.high[0] - found.low[0]), abs(found.value[0] - true)
            assert off < 3 * half + 0.01, (weighting, true, found)
            assert off < abs(theirs - true) + half, (weighting, true, theirs, found)
            assert abs(theirs - true) < 0.2, (weighting, true, theirs)
            assert half < 0.15
    assert (np.abs(own.sol - [VELOCITY, SIGMA]) < 3 * own.error).all()
