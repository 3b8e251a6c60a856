"""Pictures of fits: the numbers that are drawn, and the files that appear."""

from dataclasses import replace

import numpy as np
import pytest
from astropy import units
from command_line import main
from scipy.special import ndtr
from small_results import fit_result, sample_result

from rubix_like import ConfigError
from rubix_like.extend import Footprint, WavelengthBins
from rubix_like.inference.checks.finite_points import Discreteness
from rubix_like.inference.results.result_pictures import view_of
from rubix_like.plots.figure import save_drawings
from rubix_like.plots.fit_pictures import (
    LATENT_GRID,
    MOST_NAMED,
    MOST_PAIRED,
    FitView,
    Inferred,
    Trace,
    contour,
    density,
    draw_fit_spectra,
    draw_pulls,
    draw_traces,
    drawings,
    fit_images,
    light,
    light_residual,
    paired,
    ranked_spaxels,
    reduced_chi_square,
    runs,
    velocity_residual,
)
from rubix_like.plots.images import SkyOffsets, scale_of

COVARIANCE = np.array([[0.04, 0.012], [0.012, 0.01]])


def make_inferred(truth=(50.0, 5.0)):
    prior = np.stack([20 + 60 * ndtr(LATENT_GRID), 30 * LATENT_GRID])
    labels = ("observation.inclination", "observation.velocity_offset")
    return Inferred(labels, ("deg", "km/s"), np.array([0.1, 0.3]), COVARIANCE, prior, np.array(truth))


def make_view(n_y=4, n_x=5, shift=0.0, noise=1.0):
    """Spectra with one line, the data shifted by `shift` km/s per column; one spaxel and eight bins are left out."""
    random = np.random.default_rng(1)
    bins = WavelengthBins(4850.5, 1.0, 100, "linear", "vacuum")
    wavelength = bins.wavelength
    y, x = np.mgrid[:n_y, :n_x]
    brightness = 100.0 * np.exp(-np.hypot(y - 1.1, x - 2.8) / 2)[..., None]

    def spectrum(velocity):
        center = 4900.0 * (1 + np.asarray(velocity) / 299792.458)
        return brightness * (1 - 0.4 * np.exp(-0.5 * ((wavelength - center[..., None]) / 3) ** 2))

    model = spectrum(np.zeros((n_y, n_x)))
    sigma = 0.02 * brightness * np.ones_like(model)
    flux = spectrum(shift * (x - 2.0)) + noise * sigma * random.standard_normal(model.shape)
    inverse_sigma = 1 / sigma
    inverse_sigma[..., 40:48] = 0
    inverse_sigma[0, 0] = 0
    flux[0, 0] = np.nan
    traces = (
        Trace(np.array([90.0, 20.0, 10.0]), np.array([9.0, 2.0, 1e-3])),
        Trace(np.array([80.0]), np.ones(1), False),
    )
    sky = SkyOffsets(Footprint(n_y, n_x, 0.5), ((-0.5, 0.0), (0.0, 0.5)), ((n_x - 1) / 2, (n_y - 1) / 2), None)
    return FitView("mock", sky, bins, flux, model, inverse_sigma, traces, make_inferred())


def new_figure():
    from matplotlib.figure import Figure  # noqa: PLC0415

    return Figure()


def test_light_and_residuals_count_fitted_voxels_only():
    view = make_view()
    used = np.r_[0:40, 48:100]
    np.testing.assert_allclose(light(view, view.flux)[1, 2], view.flux[1, 2, used].sum(), rtol=1e-12)
    assert np.isnan(light(view, view.flux)[0, 0])
    pull = (view.flux - view.model)[1, 2, used] * view.inverse_sigma[1, 2, used]
    np.testing.assert_allclose(reduced_chi_square(view)[1, 2], np.mean(pull**2), rtol=1e-12)
    np.testing.assert_allclose(light_residual(view)[1, 2], pull.sum() / np.sqrt(len(used)), rtol=1e-9)
    assert np.isnan(reduced_chi_square(view)[0, 0])
    assert np.isnan(view.residual[1, 2, 40:48]).all()


def test_the_velocity_residual_finds_the_shift_of_a_line():
    velocity, sigma = velocity_residual(make_view(shift=5.0, noise=0.0))
    np.testing.assert_allclose(velocity[2], [-10, -5, 0, 5, 10], rtol=0.05, atol=1e-9)
    assert np.isnan(velocity[0, 0])
    noisy, _ = velocity_residual(make_view(n_y=40))
    found = noisy[1:] / sigma[1, 1]
    assert 0.8 < np.std(found) < 1.2


def test_a_spaxel_that_is_brighter_throughout_is_not_shifted():
    view = make_view(noise=0.0)
    velocity, _ = velocity_residual(replace(view, flux=1.1 * view.flux))
    np.testing.assert_allclose(velocity[1:], 0.0, atol=1e-9)


def test_spaxels_by_brightness():
    view = make_view()
    brightness = light(view, view.flux)
    ranks = {name: np.sum(brightness < brightness[y, x]) for name, (x, y) in ranked_spaxels(view).items()}
    assert ranks == {"brightest": 18, "median": 9, "faint": 2}
    only = view.inverse_sigma * (np.arange(20).reshape(4, 5) == 7)[..., None]
    assert ranked_spaxels(replace(view, inverse_sigma=only)) == {"brightest": (2, 1)}
    assert runs(np.array([True, False, True, True, False, True])) == [(0, 1), (2, 4), (5, 6)]
    assert runs(np.zeros(3, bool)) == []


def test_the_panels_of_the_spectra():
    figure = new_figure()
    view = make_view()
    draw_fit_spectra(figure, view)
    upper, lower = figure.axes[:2]
    data, model = (line.get_ydata() for line in upper.get_lines())
    assert np.isnan(data[40:48]).all()
    np.testing.assert_array_equal(data[:40], view.flux[1, 3, :40])
    np.testing.assert_array_equal(model, view.model[1, 3])
    np.testing.assert_array_equal(lower.get_lines()[0].get_ydata(), view.residual[1, 3])
    (shade,) = upper.patches
    np.testing.assert_allclose((shade.get_x(), shade.get_width()), (view.bins.edges[40], 8.0))
    assert [axes.get_title().partition(" ")[0] for axes in figure.axes[::2]] == [
        "brightest",
        "median",
        "faint",
    ]


def test_the_steps_are_drawn_above_the_lowest_loss():
    figure = new_figure()
    draw_traces(figure, make_view().traces)
    upper, lower = figure.axes
    first, _, second, _ = upper.get_lines()
    np.testing.assert_allclose(first.get_ydata(), [80.0, 10.0, 1e-4])
    np.testing.assert_allclose(second.get_ydata(), [70.0])
    assert [text.get_text() for text in upper.get_legend().get_texts()] == ["start 1", "start 2 (not converged)"]
    np.testing.assert_allclose(lower.get_lines()[0].get_ydata(), [9.0, 2.0, 1e-3])


def test_contours_hold_their_share_of_the_probability():
    inferred = make_inferred()
    random = np.random.default_rng(2).multivariate_normal(inferred.latent, COVARIANCE, 20000)
    values = np.stack([inferred.value(n, random[:, n]) for n in range(2)], axis=1)
    from matplotlib.path import Path  # noqa: PLC0415

    for share in (0.68, 0.95):
        inside = Path(contour(inferred, 0, 1, share).T).contains_points(values)
        np.testing.assert_allclose(inside.mean(), share, atol=0.01)
    standard = np.random.default_rng(2).standard_normal((20000, 2))
    values = np.stack([inferred.value(n, standard[:, n]) for n in range(2)], axis=1)
    inside = Path(contour(inferred, 0, 1, 0.68, prior=True).T).contains_points(values)
    np.testing.assert_allclose(inside.mean(), 0.68, atol=0.01)


def test_densities_are_those_of_the_prior():
    value, height = density(make_inferred(), 0, 0.0, 1.0)
    middle = (value > 25) & (value < 75)
    np.testing.assert_allclose(height[middle], 1 / 60, rtol=2e-3)
    value, height = density(make_inferred(), 1, 0.3, 0.1)
    np.testing.assert_allclose(np.trapezoid(height, value), 1.0, rtol=1e-3)
    np.testing.assert_allclose(value[np.argmax(height)], 9.0, atol=0.2)


def test_pulls_against_prior_and_truth():
    inferred = make_inferred(truth=(50.0, 5.0))
    np.testing.assert_allclose(inferred.true_latent(), [0.0, 1 / 6], atol=1e-6)
    np.testing.assert_allclose(inferred.pull(), [0.1 / 0.2, (0.3 - 1 / 6) / 0.1], rtol=1e-5)
    assert np.isnan(make_inferred(truth=(90.0, np.nan)).true_latent()).all()
    figure = new_figure()
    draw_pulls(figure, inferred)
    prior, truth = figure.axes
    np.testing.assert_allclose(prior.get_lines()[1].get_xdata(), [0.1, 0.3])
    np.testing.assert_allclose(truth.get_lines()[1].get_xdata(), inferred.pull())
    names = [text.get_text() for text in prior.get_yticklabels()]
    assert names[1].startswith("observation.velocity_offset = 9 ± 3 km/s")


def test_of_many_parameters_only_the_best_determined_are_paired():
    count = MOST_NAMED + 1
    sigma = np.linspace(1.0, 0.1, count)
    labels = tuple(f"stars.log_age[{n}]" for n in range(count))
    prior = np.broadcast_to(LATENT_GRID, (count, LATENT_GRID.size))
    many = Inferred(labels, ("",) * count, np.zeros(count), np.diag(sigma**2), prior)
    assert list(paired(many.sigma)) == list(range(count - MOST_PAIRED, count))
    figure = new_figure()
    draw_pulls(figure, many)
    (axes,) = figure.axes
    assert axes.get_ylabel().startswith(f"{count} parameters")


def test_the_maps():
    view = make_view()
    titles = [image.title for image in fit_images(view)]
    assert titles[:2] == ["data: white light", "model: white light"]
    np.testing.assert_allclose(fit_images(view)[0].values[1:], light(view, view.flux)[1:] / 0.25)
    faint = replace(view, inverse_sigma=view.inverse_sigma * np.where(np.arange(5) == 2, 0.1, 1.0)[:, None])
    shift = fit_images(faint)[4].values
    assert np.isnan(shift[:, 2]).all()
    assert np.isfinite(shift[1:, [0, 1, 3, 4]]).all()
    with_velocity = fit_images(replace(view, velocity=np.ones((4, 5))))
    assert with_velocity[-1].title == "model: mean velocity"
    assert scale_of(np.array([[1.0, 9.0]]), "deviation").low == -scale_of(np.array([[1.0, 9.0]]), "deviation").high


def test_what_there_is_not_is_not_drawn(tmp_path):
    bare = replace(make_view(), traces=(), inferred=None)
    assert [ending for ending, _, _ in drawings(bare)] == ["spectra", "maps"]
    with pytest.raises(ConfigError, match="ending in"):
        save_drawings(bare.title, drawings(bare), tmp_path / "fit", ".jpg", overwrite=False)
    assert not list(tmp_path.iterdir())


def test_the_arrays_of_a_result():
    result = fit_result()
    view = view_of(result, {"observation.offset": [-0.4, 1.3]})
    np.testing.assert_allclose(view.flux, np.asarray(result.model.flux) + 0.5, rtol=1e-6)
    assert view.inverse_sigma[1, 2, 3] == 0
    assert (np.delete(view.inverse_sigma.ravel(), np.ravel_multi_index((1, 2, 3), (3, 5, 4))) == 0.5).all()
    first, second = view.traces
    np.testing.assert_array_equal(first.loss, [90.0, 20.0, 10.0])
    np.testing.assert_array_equal(second.gradient_norm, [8.0])
    assert (first.converged, second.converged) == (True, False)
    inferred = view.inferred
    assert inferred.labels == ("observation.inclination", "observation.offset[0]", "observation.offset[1]")
    assert inferred.units == ("deg", "arcsec", "arcsec")
    np.testing.assert_allclose(inferred.value(0, inferred.latent[0]), 20 + 60 * ndtr(0.5), rtol=1e-4)
    np.testing.assert_allclose(inferred.value(2, inferred.latent[2]), 1.0, rtol=1e-12)
    np.testing.assert_allclose(inferred.pull(), [np.nan, (-1.0 + 0.8) / 0.2, (2.0 - 2.6) / 0.3], rtol=1e-9)
    assert view_of(replace(result, laplace=None)).inferred is None
    assert view_of(result).inferred.truth is None
    in_minutes = view_of(result, {"observation.offset": [-0.4 / 60, 1.3 / 60] * units.arcmin}).inferred
    np.testing.assert_allclose(in_minutes.truth, inferred.truth, rtol=1e-12)
    for wrong in (3 * units.kpc, np.ma.masked, "3 arcsec"):
        with pytest.raises(ValueError, match=r"truth\['observation.offset'\]: expected"):
            view_of(result, {"observation.offset": wrong})
    assert view.title == "fit of 3 numbers   ·   χ² / 56 = 0.2143"


def test_the_first_line_says_where_finite_draws_make_the_errors():
    """Only where the model describes the data: else all errors are too small, and more draws do not mend that."""
    result = fit_result()
    shift, sigma = np.array([0.5, 0.0, 0.1]), np.array([0.1, 0.2, 0.3])
    grain = Discreteness(result.free, result.latent, shift, sigma, 1000, 8000, "random", "stars")
    told = replace(result, discreteness=grain)
    assert result.summary().splitlines()[0] == result.verdict.sentence
    assert told.summary().splitlines()[0] == (
        f"{result.verdict.sentence}; but the errors of 1 of 3 values are mostly those of finite draws: "
        f"set galaxy.n_stars: 5120 and galaxy.draws: sobol"
    )
    wrong = replace(result.verdict, p=0.0, reduced=9.0)
    assert "finite draws" not in replace(told, verdict=wrong).summary().splitlines()[0]


@pytest.mark.slow
def test_the_command_draws_a_result(tmp_path, capsys):
    path = fit_result().write(tmp_path / "fit.h5")
    assert main(["plot", str(path), "--output", str(tmp_path / "p.svg")]) == 0
    assert capsys.readouterr().out.count("Picture: ") == 5
    pictures = sorted(file.name for file in tmp_path.glob("*.svg"))
    assert pictures == [f"p_{ending}.svg" for ending in ("maps", "pairs", "pulls", "spectra", "steps")]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit.h5", *pictures]
    words = {
        "maps": "data − model: white light",
        "pairs": "(arcsec)",
        "pulls": "observation.offset[1]",
        "steps": "start 2",
    }
    for ending, word in words.items():
        assert word in (tmp_path / f"p_{ending}.svg").read_text()


@pytest.mark.parametrize(("make", "kind"), [(fit_result, "a fit"), (sample_result, "a sampling")])
def test_what_goes_with_cubes_only_is_refused(tmp_path, capsys, make, kind):
    path = make().write(tmp_path / "result.h5")
    for option in (["--html"], ["--spaxel", "1,1"], ["--band", "4760-4770"], ["--maps", "m.fits"]):
        assert main(["plot", str(path), *option]) == 2
        assert f"{option[0]}: expected a cube, got the result of {kind}" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["result.h5"]
