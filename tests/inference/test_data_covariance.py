"""Fits with the covariance of spaxels that the data give, against normal distributions by numpy and scipy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from astropy.io import fits
from small import BEHIND_DUST, few_stars

import rubix_like as rl
from rubix_like import ConfigError, Pipeline, load_config, log_posterior
from rubix_like.cube.fibres.covariance import SpaxelCorrelations
from rubix_like.inference.likelihoods.kinds import make_data_covariance

CONFIG = {
    **BEHIND_DUST,
    "observation": {"redshift": 0.02, "distance": "90 Mpc", "align": "none"},
    "instrument": {
        "name": "manga_fibres",
        "fibres": {"bundle": "manga-19", "rings": 1},
        "fov": "7 arcsec",
        "aperture": None,
        "psf": {"kind": "gaussian", "fwhm": 1.5},
        "lsf": None,
        "wavelength": {"sampling": "linear", "medium": "vacuum", "start": 4690, "stop": 4720, "step": 10},
    },
    "noise": {"signal_to_noise": 30, "keep_truth": True},
    "fit": {"free": {"dust.a_v": {"log_normal": [0.3, 1]}}, "starts": 1, "candidates": 1, "discreteness": None},
}
AT = {"dust.a_v": 0.3}


@functools.cache
def galaxy():
    return few_stars(40, 0.3)


@functools.cache
def cube():
    return Pipeline.from_config(load_config(CONFIG))(galaxy())


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The cube as MaNGA's and SAMI's files have it, and with its fibres in HDF5."""
    path = tmp_path_factory.mktemp("cubes")
    names = {"manga": "manga.fits", "sami": "sami.fits", None: "cube.h5"}
    return {layout: cube().write(path / name, *([layout] if layout else [])) for layout, name in names.items()}


def read_by_astropy(path):
    """Flux, variance and the matrix of GCORREL of a file, spaxels row after row."""
    with fits.open(path) as hdus:
        flux, ivar = (np.asarray(hdus[name].data, float).transpose(1, 2, 0) for name in ("FLUX", "IVAR"))
        table = hdus["GCORREL"].data
        n_y, n_x = flux.shape[:2]
        first, other = (table[f"INDX{axis}_C2"] * n_x + table[f"INDX{axis}_C1"] for axis in "IJ")
        matrix = np.zeros((n_y * n_x, n_y * n_x))
        matrix[first, other] = matrix[other, first] = table["RHOIJ"]
    return flux * 1e3, np.where(ivar > 0, 1e6 / np.where(ivar > 0, ivar, 1), 0), matrix


@functools.cache
def usual(path):
    return log_posterior(CONFIG, str(path), galaxy=galaxy())


@functools.cache
def fitted_with(path, covariance):
    return log_posterior(CONFIG, str(path), galaxy=galaxy(), likelihood={"covariance": covariance})


def matrices_of(posed, matrix, variance):
    """Chosen spaxels of each bin, with their covariance."""
    chosen = np.asarray(posed.problem.posterior.likelihood.inverse_sigma) > 0
    for number in range(chosen.shape[2]):
        kept = np.flatnonzero(chosen[:, :, number])
        sigma = np.sqrt(variance[:, :, number].ravel()[kept])
        yield number, kept, matrix[np.ix_(kept, kept)] * np.outer(sigma, sigma)


def test_the_likelihood_is_the_multivariate_normal_distribution_of_the_file(files):
    """By scipy with the covariance that astropy reads; the chosen spaxels are as many as spectra (seven fibres at three
    dithers), and the noise of every other one follows from theirs to 5 %."""
    flux, variance, matrix = read_by_astropy(files["manga"])
    made = usual(files["manga"])
    x = made.to_unconstrained({"dust.a_v": 0.5})
    residual = (flux - made.flux(x)).reshape(-1, flux.shape[2])
    expected = 0.0
    for number, kept, covariance in matrices_of(made, matrix, variance):
        normal = scipy.stats.multivariate_normal(np.zeros(len(kept)), covariance)
        expected += normal.logpdf(residual[kept, number])
        assert 19 <= len(kept) <= 21
        rest = matrix - matrix[:, kept] @ np.linalg.solve(matrix[np.ix_(kept, kept)], matrix[kept])
        assert np.diag(rest).max() < 0.05
    assert made.log_likelihood(x) == pytest.approx(expected, rel=1e-6)
    assert any("errors are correlated between spaxels as the data say" in note for note in made.notes)


def test_errors_are_those_of_generalised_least_squares(files):
    """sigma^-2 = sum of t^T C^-1 t with the slope t of the model by numpy; by the pseudo-inverse of the whole matrix,
    with the truth of all spaxels, it is the same. As if spaxels were independent it is 3.9 times smaller."""
    flux, variance, matrix = read_by_astropy(files["manga"])
    made, step = usual(files["manga"]), 1e-4
    x = made.to_unconstrained(AT)
    ends = [(made.residuals(x + change), made.flux(x + change)) for change in (step, -step)]
    jacobian, slope = ((high - low) / (2 * step) for high, low in zip(*ends, strict=True))
    found, slope = (jacobian @ jacobian - 1) ** -0.5, slope.reshape(-1, flux.shape[2])
    chosen = sum(
        slope[kept, n] @ np.linalg.solve(c, slope[kept, n]) for n, kept, c in matrices_of(made, matrix, variance)
    )
    whole = alone = 0.0
    for number in range(flux.shape[2]):
        good = np.flatnonzero(variance[:, :, number].ravel() > 0)
        inverse = np.linalg.pinv(matrix[np.ix_(good, good)], rcond=1e-4, hermitian=True)
        scaled = slope[good, number] / np.sqrt(variance[:, :, number].ravel()[good])
        whole += scaled @ inverse @ scaled
        alone += scaled @ scaled
    assert found == pytest.approx(chosen**-0.5, rel=1e-5)
    assert found == pytest.approx(whole**-0.5, rel=1e-4)
    assert 3 < found / alone**-0.5 < 5


def test_chi_square_of_residuals_of_that_covariance_is_their_number(files):
    """2000 residuals by numpy of all spaxels in each bin; mean and variance of chi^2, and of it taking them as
    independent, whose mean is right and whose variance is not."""
    observed = rl.read_observed(files["manga"])
    _, _, matrix = read_by_astropy(files["manga"])
    used = observed.used
    found = make_data_covariance(observed.correlations, observed.wavelength, used)
    values, vectors = np.linalg.eigh(matrix)
    half = vectors * np.sqrt(np.maximum(values, 0))
    normal = np.random.default_rng(5).standard_normal((2000, len(matrix), used.shape[2]))
    residuals = np.einsum("ij,djw->diw", half, normal).reshape(2000, *used.shape)
    masked = jnp.asarray(np.where(found.chosen, residuals, 0))
    whitened = jax.vmap(lambda rows: found.errors.residuals(rows, rows, rows, rows))(masked)
    squares, count = np.sum(np.asarray(whitened) ** 2, axis=(1, 2, 3)), int(found.chosen.sum())
    assert squares.mean() == pytest.approx(count, abs=4 * np.sqrt(2 * count / 2000))
    assert squares.var() == pytest.approx(2 * count, rel=0.15)
    alone = np.sum(np.where(used, residuals, 0) ** 2, axis=(1, 2, 3))
    assert alone.var() > 5 * 2 * used.sum()


def test_all_files_of_a_cube_give_its_covariance(files):
    """HDF5 keeps the spectra of the fibres. SAMI's layout leaves out pairs that are further than two spaxels apart, as
    MaNGA's recipe has them."""
    x = usual(files["manga"]).to_unconstrained({"dust.a_v": 0.7})
    found = {name: usual(files[name]) for name in ("manga", None)}
    rise = {name: posed.log_likelihood(x) - posed.log_likelihood(0 * x) for name, posed in found.items()}
    assert rise[None] == pytest.approx(rise["manga"], rel=0.02)
    of_python = log_posterior(CONFIG, cube(), galaxy=galaxy())
    assert of_python.log_likelihood(x) == pytest.approx(found[None].log_likelihood(x), rel=1e-6)
    assert any("too small: expected correlations that noise can have" in note for note in usual(files["sami"]).notes)


def test_fits_that_do_not_use_it_say_so(files):
    words = "does not use: errors are too small; "
    student = log_posterior(CONFIG, str(files["manga"]), galaxy=galaxy(), likelihood={"kind": "student_t"})
    for posed, remedy in (
        (fitted_with(files["manga"], None), "set fit.likelihood.covariance: auto"),
        (student, "it does not go with fit.likelihood.kind: student"),
    ):
        assert any(words + remedy in note for note in posed.notes)


def test_what_cannot_be_used_is_refused(files):
    observed = rl.read_observed(files["manga"])
    bare = dataclasses.replace(observed, correlations=None)
    for data, likelihood, words in (
        (observed, {"kind": "student_t", "covariance": "data"}, "expected kind gaussian, got 'student_t'"),
        (bare, {"covariance": "data"}, r"fit\.likelihood\.covariance: expected data that give correlations"),
    ):
        with pytest.raises(ConfigError, match=words):
            log_posterior(CONFIG, data, galaxy=galaxy(), likelihood=likelihood)
    with pytest.raises(ConfigError, match="expected correlations of"):
        make_data_covariance(observed.correlations, observed.wavelength, observed.used[1:])
    with pytest.raises(ConfigError, match=r"for each, or set fit\.likelihood\.covariance: null"):
        usual(files["manga"]).with_data(observed.flux, 1.0)


def test_data_of_fibres_that_have_lost_their_correlations_are_noted(tmp_path):
    """In the layout default, of one cube and of a set; not with null or a matrix, nor for spectra of fibres."""
    path, words = cube().write(tmp_path / "cube.fits"), "if the data come from fibres too, errors are too small; HDF5"
    identity = {"between": "wavelengths", "matrix": np.eye(len(cube().wavelength)).tolist()}
    given = log_posterior(CONFIG, str(path), galaxy=galaxy(), likelihood={"covariance": identity})
    for posed, is_noted in ((usual(path), True), (fitted_with(path, None), False), (given, False)):
        assert any(words in note for note in posed.notes) == is_noted
    both = log_posterior(CONFIG, {"lost": str(path), "spectra": {"fibres": cube()}}, galaxy=galaxy())
    assert [note.partition(":")[0] for note in both.notes if words in note] == ["lost"]


def spread_light(n_side=10, n_fibre=25):
    """Correlations of spaxels of fibres with Gaussian weights, by numpy."""
    places = np.random.default_rng(0).uniform(0, n_side - 1, (n_fibre, 2))
    spaxels = np.stack(np.meshgrid(*2 * (np.arange(n_side),), indexing="ij"), axis=-1).reshape(-1, 1, 2)
    weights = np.exp(-np.sum((spaxels - places) ** 2, axis=2) / (2 * 1.4**2))
    sigma = np.sqrt(np.sum(weights**2, axis=1))
    return weights @ weights.T / np.outer(sigma, sigma)


def test_spaxels_without_data_in_the_bin_of_a_plane_are_correlated_there_as_at_the_nearest():
    """They are no independent ones in the bins near: the same spaxels are chosen, with the same factors. Spaxels that
    no plane knows are left out, and counted."""
    matrix, shape, wavelength = spread_light(), (10, 10), np.linspace(4000, 9000, 6)
    used, blank = np.ones((*shape, 6), bool), matrix.copy()
    blank[:30] = blank[:, :30] = 0

    def made(*planes):
        planes = [scipy.sparse.csr_array(plane) for plane in planes]
        return make_data_covariance(
            SpaxelCorrelations.of_planes(planes, np.array([4700.0, 8000.0]), shape), wavelength, used
        )

    whole, found, never = made(matrix, matrix), made(matrix, blank), made(blank, blank)
    np.testing.assert_array_equal(found.chosen, whole.chosen)
    for part, expected in zip(found.errors.parts, whole.errors.parts, strict=True):
        np.testing.assert_allclose(part.inverse, expected.inverse)
    assert "left out" not in found.note
    assert not never.chosen[:3].any()
    assert "of 100 spaxels" in never.note
    assert "; 30 % of the voxels are left out" in never.note


def test_correlations_and_covariances_are_shown_on_a_line():
    plane = scipy.sparse.csr_array(spread_light())
    correlations = SpaxelCorrelations.of_planes([plane, plane], np.array([4700.0, 8000.0]), (10, 10))
    assert repr(correlations) == "SpaxelCorrelations(10 x 10 spaxels, 2 planes, 4700-8000 Angstrom)"
    assert str(correlations.covariance(np.ones((10, 10)), 5000.0)) == "StoredCovariance(10 x 10 spaxels)"


def test_what_masks_leave_out_is_told():
    """Masks that differ in each of many bins: bins share factors, and the spaxels that all of them have."""
    matrix, wavelength = spread_light(), np.linspace(4000, 9000, 120)
    correlations = SpaxelCorrelations.of_planes([scipy.sparse.csr_array(matrix)], np.array([5000.0]), (10, 10))
    used = np.random.default_rng(1).random((10, 10, 120)) > 0.02
    found = make_data_covariance(correlations, wavelength, used)
    lost = 100 * np.sum(used & ~found.chosen & ~found.dependent) / used.sum()
    assert 1 < lost < 20
    assert f"; {lost:.2g} % of the voxels are left out, as masks differ between bins" in found.note
    with pytest.raises(ConfigError, match="expected spaxels with data in neighbouring bins"):
        make_data_covariance(correlations, wavelength, np.zeros_like(used))


def test_it_is_the_same_on_eight_devices(files):
    x = usual(files["manga"]).to_unconstrained({"dust.a_v": 0.5})
    config = load_config(CONFIG, overrides={"devices": {"data": 4, "wave": 2}})
    made = log_posterior(config, str(files["manga"]), galaxy=galaxy())
    value, slope = made.value_and_gradient(x)
    expected, expected_slope = usual(files["manga"]).value_and_gradient(x)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-10)


def test_sets_of_data_use_their_own(files):
    """Two sets with the same data have twice the likelihood; `fit.likelihood.covariance: null` holds for all."""
    sets = {name: str(files["manga"]) for name in ("one", "other")}
    both = log_posterior(CONFIG, sets, galaxy=galaxy())
    x = both.to_unconstrained({"dust.a_v": 0.5})
    assert both.log_likelihood(x) == pytest.approx(2 * usual(files["manga"]).log_likelihood(x), rel=1e-9)
    without = log_posterior(CONFIG, {"one": sets["one"]}, galaxy=galaxy(), likelihood={"covariance": None})
    words = "does not use: errors are too small; set fit.likelihood.covariance: auto"
    assert any(note.startswith("one: ") and words in note for note in without.notes)
    given = {"one": {"cube": sets["one"], "covariance": "data"}}
    with pytest.raises(ConfigError, match=r"one\.covariance: expected auto or null beside fit\.likelihood\.kind"):
        log_posterior(CONFIG, given, galaxy=galaxy(), likelihood={"kind": "student_t"})


@pytest.mark.slow(20)
def test_a_fit_of_a_mock_of_manga_uses_its_covariance(files):
    """Value within its error, a true model without misfit, and pictures of all spaxels; as if they were independent the
    error is 3.9 times smaller."""
    found = rl.fit(CONFIG, str(files["manga"]), galaxy=galaxy())
    alone = rl.fit(CONFIG, str(files["manga"]), galaxy=galaxy(), likelihood={"covariance": None})
    name = "dust.a_v"
    assert found.converged
    assert abs(found.values[name] - AT[name]) < 4 * found.sigma[name]
    assert 3 < found.sigma[name] / alone.sigma[name] < 5
    assert not found.verdict.misfit
    assert found.quality.n_voxel == np.count_nonzero(usual(files["manga"]).problem.posterior.likelihood.inverse_sigma)
    assert found.quality.reduced == pytest.approx(1, abs=4 * np.sqrt(2 / found.quality.n_voxel))
    good = np.asarray(found.residual.mask) == 0
    assert good.sum() == rl.read_observed(files["manga"]).used.sum()
