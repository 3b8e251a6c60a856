"""What the detector sees of basis spectra at a velocity, against integrals in numpy, and between the velocity nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants, units
from scipy.special import ndtr
from small import instrument_settings

from rubix_like import SSPLibrary, load_config
from rubix_like.engine.spectra.velocity_nodes import detect, project, seen, window_of
from rubix_like.extend import WavelengthBins, make_setup, resolve
from rubix_like.instrument.detector import LineSpread, plan_response
from rubix_like.physics import bspline
from rubix_like.physics.rebin import Rebinner

LIGHT = 299792.458
REDSHIFT = 0.05
REST = np.arange(4600.0, 5150.0, 0.1)
GENERATOR = np.random.default_rng(11)
VELOCITY = np.array([0.0, 37.0, -250.0, 610.0])


def smooth_spectra(n=3):
    """Continua with lines of 6 A and wider."""
    centre, sigma, height = (GENERATOR.uniform(*ends, (n, 12, 1)) for ends in ((4650, 5100), (6.0, 12.0), (-0.2, 0.4)))
    lines = (height * np.exp(-0.5 * ((REST - centre) / sigma) ** 2)).sum(axis=1)
    return 1.0 + GENERATOR.uniform(-2e-4, 2e-4, (n, 1)) * (REST - 4875.0) + lines


SPECTRA = smooth_spectra()


def bins_of(sampling="linear", medium="vacuum", first=4990.0, n_wave=60):
    return WavelengthBins(first, 1.25 if sampling == "linear" else 1.1e-4, n_wave, sampling, medium)


def detector_of(bins, fwhm=None):
    """Response and rebinner. The library's own width is 1 A at rest; `fwhm` is the instrument's."""
    library = SSPLibrary(
        spectra=np.ones((2, 2, len(REST))),
        log_age=np.array([6.0, 10.0]),
        metallicity=np.array([0.01, 0.02]),
        rest_wavelength=REST,
        fwhm=np.full(len(REST), 1.0),
    )
    lsf = None if fwhm is None else {"fwhm": fwhm}
    settings = instrument_settings({"name": "muse", "lsf": lsf}).lsf
    fine_edges, response = plan_response(bins, LineSpread(bins, library.templates(), REDSHIFT, settings))
    return response, Rebinner.build(REST, fine_edges / (1 + REDSHIFT))


detect_compiled, project_compiled = jax.jit(detect), jax.jit(project)


def detected(detector, velocity):
    """At any number of velocities up to 40, compiled once."""
    padded = np.pad(velocity, (0, 40 - len(velocity)))
    return np.asarray(detect_compiled(*detector, jnp.asarray(SPECTRA), jnp.asarray(padded)))[: len(velocity)]


def vacuum_of(air):
    """Ciddor 1996, inverted by iteration."""
    vacuum = np.array(air)
    for _ in range(30):
        wavenumber2 = (1e4 / vacuum) ** 2
        vacuum = air * (1 + 5792105e-8 / (238.0185 - wavenumber2) + 167917e-8 / (57.362 - wavenumber2))
    return vacuum


def exact_means(bins, velocity):
    """Integral of the piecewise linear S(lambda / D) / D over every vacuum bin, by its width in the medium."""
    vacuum = vacuum_of(bins.edges) if bins.medium == "air" else bins.edges
    result = []
    for v in velocity:
        edges = np.clip(vacuum / ((1 + REDSHIFT) * np.exp(v / LIGHT)), REST[0], REST[-1])
        x = np.sort(np.concatenate([REST, edges]))
        y = np.array([np.interp(x, REST, spectrum) for spectrum in SPECTRA])
        running = np.concatenate(
            [np.zeros((len(y), 1)), np.cumsum(0.5 * (y[:, 1:] + y[:, :-1]) * np.diff(x), axis=1)], 1
        )
        result.append(np.diff(running[:, np.searchsorted(x, edges)], axis=1) / np.diff(bins.edges))
    return np.array(result)


@pytest.mark.parametrize(("sampling", "medium"), [("linear", "vacuum"), ("log", "air")])
def test_detect_is_the_exact_mean_over_each_bin(sampling, medium):
    bins = bins_of(sampling, medium)
    found = detected(detector_of(bins), VELOCITY)
    assert found.shape == (4, 3, 60)
    np.testing.assert_allclose(found, exact_means(bins, VELOCITY), rtol=1e-9)


def test_detect_holds_no_light_beyond_the_library():
    """Bins below the first node are empty, the one that holds it in part, at each velocity another."""
    bins = bins_of(first=REST[0] * (1 + REDSHIFT) - 30.0)
    found = detected(detector_of(bins), VELOCITY)
    np.testing.assert_allclose(found, exact_means(bins, VELOCITY), atol=1e-9)
    assert (found[:, :, :15] == 0).all()
    assert (found[:, :, -15:] > 0).all()


@pytest.mark.parametrize("fwhm", [2.5, 8.0])
def test_detect_with_a_line_spread(fwhm):
    """The Gaussian that is left of the instrument's width, by quadrature in steps of 1/25 A."""
    bins = bins_of()
    sigma = np.sqrt(fwhm**2 - (1 + REDSHIFT) ** 2) / np.sqrt(8 * np.log(2))
    observed = np.arange(4940.0, 5115.0, 0.04) + 0.02
    share = np.diff(ndtr((bins.edges[:, None] - observed) / sigma), axis=0)
    found = detected(detector_of(bins, fwhm), VELOCITY)
    for number, velocity in enumerate(VELOCITY):
        doppler = (1 + REDSHIFT) * np.exp(velocity / LIGHT)
        flux = np.array([np.interp(observed / doppler, REST, spectrum) for spectrum in SPECTRA]) / doppler
        np.testing.assert_allclose(found[number], flux @ share.T * 0.04 / 1.25, rtol=1e-6)


def matrix_of(detector, step, n_node, smooth=None, distance=1.0):
    nodes = (np.arange(n_node) - n_node // 2) * step
    smooth = np.ones(60, bool) if smooth is None else smooth
    arguments = detected(detector, nodes), bspline.prefilter(n_node), smooth, np.asarray(distance)
    return nodes, np.asarray(project_compiled(*jax.tree.map(jnp.asarray, arguments)))


def between(matrix, nodes, velocity):
    """Spectra at velocities, from the nodes' rows and the weights of a deposit."""
    first, weight = bspline.deposit(jnp.asarray(velocity / (nodes[1] - nodes[0]) + len(nodes) // 2), len(nodes))
    rows = matrix[np.asarray(first)[:, None] + np.arange(4)]
    return np.einsum("vj,vjrl->vrl", np.asarray(weight), rows)


def flux_of_one_lsun(distance):
    """1 Lsun at a luminosity distance in Mpc, in 1e-20 erg/s/cm2."""
    flux = constants.L_sun / (4 * np.pi * (distance * units.Mpc) ** 2)
    return flux.to_value(1e-20 * units.erg / units.s / units.cm**2)


@pytest.mark.parametrize("fwhm", [pytest.param(None, marks=pytest.mark.slow), 4.0])
def test_deposits_on_the_matrix_are_the_spectra_between_the_nodes(fwhm):
    """At the nodes exactly; between them the error falls as the fourth power of the step."""
    detector = detector_of(bins_of(), fwhm)
    velocity, factor = np.random.default_rng(12).uniform(-450, 450, 40), flux_of_one_lsun(50.0)
    truth = detected(detector, velocity)
    worst = []
    for step, n_node in ((200.0, 13), (100.0, 25)):
        nodes, matrix = matrix_of(detector, step, n_node, distance=50.0)
        assert matrix.shape == (n_node, 3, 60)
        at_nodes = between(matrix, nodes, nodes[1:-1]) / factor
        np.testing.assert_allclose(at_nodes, detected(detector, nodes[1:-1]), rtol=1e-10)
        worst.append(np.sqrt(((between(matrix, nodes, velocity) / factor - truth) ** 2).mean()))
    assert worst[0] < 2e-3
    assert 12 < worst[0] / worst[1] < 24


def test_bins_that_are_not_smooth_hold_the_values():
    """Where the library ends in the field a spline would overshoot: values are deposited as they are."""
    detector = detector_of(bins_of(first=REST[0] * (1 + REDSHIFT) - 30.0))
    smooth = np.arange(60) >= 40
    nodes, matrix = matrix_of(detector, 70.0, 13, smooth)
    values, factor = detected(detector, nodes), flux_of_one_lsun(1.0)
    rough = matrix[:, :, ~smooth] / factor
    np.testing.assert_allclose(rough, values[:, :, ~smooth], atol=1e-9)
    splined = np.einsum("jk,krl->jrl", bspline.prefilter(13), values)
    np.testing.assert_allclose(matrix[:, :, smooth] / factor, splined[:, :, smooth], rtol=1e-9)
    assert np.abs(splined[:, :, ~smooth] - rough).max() > 0.05
    within = between(matrix, nodes, GENERATOR.uniform(-350, 350, 200)) / factor
    assert within[:, :, ~smooth].min() >= -1e-12
    assert within[:, :, ~smooth].max() <= values.max()


def test_the_view_on_the_host_does_not_depend_on_jax_settings():
    """In 64 bits, as a run leaves JAX at 32: to the last bit, and without a warning of numbers that are cut."""
    wavelength = {"start": 5000, "stop": 5100, "step": 5}
    config = load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": {"name": "muse", "fov": "0.2 arcsec", "psf": None, "wavelength": wavelength},
            "engine": {"method": "basis", "velocity_range": 500},
        }
    )
    window = window_of(make_setup(config, resolve(config), None).sources["stars"])
    velocity = np.array([-300.0, 300.0])
    expected = seen(window, window.templates[:3], velocity)
    with jax.enable_x64(False):
        found = seen(window, window.templates[:3], velocity)
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(found, expected)
