"""Basis spectra against explicit reconstructions, their accuracy and what is exactly kept."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d

from rubix_like.engine.spectra.spectral_basis import find_basis

REST = np.cumsum(np.random.default_rng(1).uniform(0.5, 2.0, 600)) + 4000.0
WIDTH = REST[-1] - REST[0]
N_BIN = 150


def means(templates):
    return np.trapezoid(templates, REST, axis=1) / WIDTH


def seen_by_a_detector(templates, smooth=0.0):
    """Means over four nodes at a time, of 1.3 times the light, after a blur."""
    blurred = gaussian_filter1d(templates, smooth, axis=1) if smooth else templates
    return 1.3 * blurred.reshape(len(templates), N_BIN, 4).mean(axis=2)


def library(n=60, seed=2, roughness=1.0):
    """Smooth positive templates with lines, of very different brightness."""
    rng = np.random.default_rng(seed)
    x = (REST - REST.mean()) / WIDTH
    slope, curve = rng.normal(size=(2, n, 1))
    lines = np.exp(-0.5 * ((REST - rng.uniform(REST[0], REST[-1], (12, 1))) / rng.uniform(3, 20, (12, 1))) ** 2)
    depth = roughness * rng.uniform(0.0, 0.1, (n, 12))
    noise = roughness * gaussian_filter1d(rng.normal(size=(n, len(REST))), 10, axis=1)
    return 10 ** rng.uniform(-6, 3, (n, 1)) * np.exp(slope * x + curve * x**2 + 0.05 * noise - depth @ lines)


def reconstructed(found):
    return found.coefficients @ found.spectra


def errors_on_the_detector(found, templates, smooth=0.0):
    """Reconstruction less truth in every bin, relative to each template's mean on the detector."""
    truth, again = (seen_by_a_detector(x, smooth) for x in (templates, reconstructed(found)))
    return (again - truth) / truth.mean(axis=1, keepdims=True)


def find(templates, tolerance, smooth=0.0):
    return find_basis(templates, REST, seen_by_a_detector(templates, smooth), tolerance)


LIBRARY = library()


@pytest.mark.parametrize("rank", [2, 5, 20])
def test_templates_of_few_shapes_are_found_exactly(rank):
    """As many basis spectra as shapes: rounding takes none."""
    shapes = library(rank, seed=3)
    templates = np.random.default_rng(4).dirichlet(np.ones(rank), 60) @ (shapes / means(shapes)[:, None])
    templates *= 10 ** np.random.default_rng(5).uniform(-3, 3, (60, 1))
    found = find(templates, 1e-12)
    assert found.spectra.shape == (rank, len(REST))
    level = means(templates)[:, None]
    np.testing.assert_allclose(reconstructed(found) / level, templates / level, atol=1e-9)
    assert found.errors.residual < 1e-9


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_light_in_the_window_is_coefficient_0(tolerance):
    found = find(LIBRARY, tolerance)
    np.testing.assert_allclose(found.coefficients[:, 0] * WIDTH, np.trapezoid(LIBRARY, REST, axis=1), rtol=1e-12)
    integral = np.trapezoid(found.spectra, REST, axis=1)
    np.testing.assert_allclose(integral[0], WIDTH, rtol=1e-12)
    np.testing.assert_allclose(integral[1:], 0.0, atol=1e-12 * WIDTH)
    np.testing.assert_allclose(means(reconstructed(found)), means(LIBRARY), rtol=1e-12)


def test_the_first_spectrum_is_the_mean_shape():
    expected = (LIBRARY / means(LIBRARY)[:, None]).mean(axis=0)
    np.testing.assert_allclose(find(LIBRARY, 1e-3).spectra[0], expected, rtol=1e-12)


@pytest.mark.parametrize("smooth", [0.0, 3.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3])
def test_reported_errors_are_those_of_the_reconstruction(tolerance, smooth):
    found = find(LIBRARY, tolerance, smooth)
    error = errors_on_the_detector(found, LIBRARY, smooth)
    np.testing.assert_allclose(found.errors.residual, np.sqrt((error**2).mean(axis=1)).max(), rtol=1e-6)
    np.testing.assert_allclose(found.errors.local_error, np.abs(error).max(), rtol=1e-6)
    np.testing.assert_allclose(found.errors.flux_error, np.abs(error.mean(axis=1)).max(), rtol=1e-5)
    assert 0 < found.errors.flux_error < found.errors.residual < found.errors.local_error


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-4])
def test_the_tolerance_is_kept_with_the_fewest_spectra(tolerance):
    """A multiple of 8; 8 fewer of the best possible ones, by numpy's decomposition, would not do."""
    found = find(LIBRARY, tolerance)
    assert found.errors.residual <= tolerance
    rank = len(found.spectra)
    assert rank % 8 == 0 or rank == len(LIBRARY)
    seen = seen_by_a_detector(LIBRARY)
    shape = seen / means(LIBRARY)[:, None]
    rest = (shape - shape.mean(axis=0)) / shape.mean(axis=1, keepdims=True)
    left, values, right = np.linalg.svd(rest, full_matrices=False)
    fewer = max(rank - 9, 0)
    error = (left[:, :fewer] * values[:fewer]) @ right[:fewer] - rest
    assert np.sqrt((error**2).mean(axis=1)).max() > tolerance


def test_a_smaller_tolerance_takes_more_spectra():
    ranks = [len(find(LIBRARY, tolerance).spectra) for tolerance in (1e-1, 1e-2, 1e-3)]
    assert ranks == sorted(set(ranks))


def test_there_are_never_more_spectra_than_templates_and_then_they_are_exact():
    for n in (1, 2, 7, 30):
        templates = LIBRARY[:n]
        found = find(templates, 1e-14)
        assert len(found.spectra) == n
        assert found.coefficients.shape == (n, n)
        np.testing.assert_allclose(reconstructed(found), templates, atol=0, rtol=1e-9)
        assert found.errors.residual < 1e-9


def test_templates_of_one_shape():
    templates = np.outer(10.0 ** np.arange(-3, 4), LIBRARY[0])
    found = find(templates, 1e-3)
    np.testing.assert_allclose(reconstructed(found), templates, rtol=1e-12)
    assert found.errors.residual < 1e-12


def test_a_template_without_light_has_none():
    templates = np.concatenate([LIBRARY[:20], np.zeros((1, len(REST))), LIBRARY[20:]])
    found = find(templates, 1e-3)
    assert np.isfinite(found.spectra).all()
    np.testing.assert_array_equal(found.coefficients[20], 0.0)
    without = find(LIBRARY, 1e-3)
    assert len(found.spectra) == len(without.spectra)
    np.testing.assert_allclose(found.errors.residual, without.errors.residual, rtol=1e-6)
    kept = np.delete(reconstructed(found), 20, axis=0)
    np.testing.assert_allclose(kept, reconstructed(without), rtol=1e-6)


def test_the_brightness_of_a_template_does_not_matter():
    scale = 10.0 ** np.random.default_rng(6).uniform(-20, 20, (len(LIBRARY), 1))
    one, other = find(LIBRARY, 1e-3), find(scale * LIBRARY, 1e-3)
    assert len(one.spectra) == len(other.spectra)
    np.testing.assert_allclose(reconstructed(other) / scale, reconstructed(one), rtol=1e-6)


def test_flux_is_not_below_the_tolerance():
    """Templates that are zero over a third of the window: the rms alone would leave negative flux there."""
    rng = np.random.default_rng(7)
    edge = REST[0] + WIDTH * rng.uniform(0.3, 0.4, (60, 1))
    templates = LIBRARY / means(LIBRARY)[:, None] / (1 + np.exp(-(REST - edge) / 8.0)) * (edge - 20 < REST)
    tolerance = 5e-3
    found = find(templates, tolerance)
    seen = seen_by_a_detector(reconstructed(found))
    level = seen_by_a_detector(templates).mean(axis=1, keepdims=True)
    lowest = (seen / level).min()
    assert lowest < 0
    np.testing.assert_allclose(found.errors.lowest, lowest, rtol=1e-6)
    assert found.errors.lowest >= -tolerance
    assert found.errors.residual <= tolerance


def test_positive_templates_have_no_negative_flux():
    found = find(LIBRARY, 1e-3)
    assert found.errors.lowest == 0.0


@pytest.mark.parametrize("slope", [-4.0, 4.0])
def test_every_view_is_within_the_tolerance_of_its_own_mean(slope):
    """A steep spectrum: one part of the window is dim beside the other, but seen by itself."""
    templates = LIBRARY * np.exp(slope * (REST - REST[0]) / WIDTH)
    seen, tolerance, views = seen_by_a_detector(templates), 1e-3, (100, 50)
    halves = []
    for n_bin in (None, views):
        found = find_basis(templates, REST, seen, tolerance, n_bin)
        error = seen_by_a_detector(reconstructed(found)) - seen
        halves.append([error[:, half] / seen[:, half].mean(axis=1)[:, None] for half in (slice(100), slice(100, None))])
    assert np.sqrt((halves[0][0 if slope > 0 else 1] ** 2).mean(axis=1)).max() > tolerance
    rms = [np.sqrt((error**2).mean(axis=1)).max() for error in halves[1]]
    assert len(found.spectra) < len(templates)
    assert max(rms) <= tolerance
    np.testing.assert_allclose(found.errors.residual, max(rms), rtol=1e-6)
    np.testing.assert_allclose(found.errors.local_error, max(np.abs(error).max() for error in halves[1]), rtol=1e-6)
    np.testing.assert_allclose(found.errors.flux_error, max(np.abs(e.mean(axis=1)).max() for e in halves[1]), rtol=1e-5)


def test_detail_that_the_detector_cannot_resolve_takes_no_spectra():
    """Structure from node to node, different in each template, blurred away by the line spread."""
    rng = np.random.default_rng(8)
    rough = LIBRARY * (1 + 0.1 * rng.choice([-1.0, 1.0], LIBRARY.shape))
    ranks = {name: len(find(x, 1e-3, 12.0).spectra) for name, x in {"rough": rough, "smooth": LIBRARY}.items()}
    unblurred = len(find(rough, 1e-3).spectra)
    assert unblurred == len(LIBRARY)
    assert ranks["rough"] <= ranks["smooth"] + 8 < unblurred
    error = errors_on_the_detector(find(rough, 1e-3, 12.0), rough, 12.0)
    assert np.sqrt((error**2).mean(axis=1)).max() <= 1e-3
