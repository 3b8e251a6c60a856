"""Pictures of samples: the numbers that are drawn, and the files that appear."""

import functools
import sys
from dataclasses import replace

import numpy as np
import pytest
from command_line import main
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from small import NOT_FITTED, make_cube

from rubix_like import ConfigError, SampleResult
from rubix_like.inference.checks.uncertainties import Laplace
from rubix_like.inference.checks.verdict import Quality, Scatter, Verdict
from rubix_like.inference.posterior.fit_model import Free, FreeParameter
from rubix_like.inference.posterior.priors import LogNormal, Normal, Uniform
from rubix_like.inference.results.result_pictures import (
    MOST_FOLLOWED,
    sample_drawings,
    sample_view,
    save_sample_pictures,
)
from rubix_like.inference.results.results import values_of
from rubix_like.inference.samplers.convergence import Convergence
from rubix_like.plots.fit_pictures import MOST_PAIRED, contour
from rubix_like.plots.sample_pictures import (
    CONTOURS,
    DRAW_COLOR,
    LAPLACE_COLOR,
    TRUTH_COLOR,
    banded_spectra,
    density_of,
    draw_corner,
    draw_followed,
    draw_predictive,
    predictive_images,
)

N_DRAW = 400
N_CHAIN = 2

PARAMETERS = (
    FreeParameter(Uniform(20.0, 80.0), "observation.inclination", (), "deg"),
    FreeParameter(Normal(0.0, 0.5), "observation.offset", (2,), "arcsec"),
    FreeParameter(LogNormal(1e10, 0.3), "galaxy.stellar_mass", (), "Msun"),
)


def latents(n_latent, scale):
    """Draws of correlated latents, the first of them with a tail."""
    random = np.random.default_rng(4)
    draws = random.standard_normal((N_CHAIN, N_DRAW, n_latent))
    draws[..., 1] = 0.9 * draws[..., 0] + 0.3 * draws[..., 1]
    draws[..., 0] += 0.4 * draws[..., 0] ** 2
    return scale * draws + 0.2


def make_result(parameters=PARAMETERS, scale=0.05, method="nuts"):
    """Draws of which nothing was computed; the second voxel of one spaxel was left out."""
    free = Free(parameters)
    latent = latents(free.n_latent, scale)
    latent = latent if method == "nuts" else latent[:1]
    random = np.random.default_rng(5)
    diverging = np.zeros(latent.shape[:2], bool)
    diverging[0, [3, 70]] = True
    loss = 0.5 * np.sum(((latent - 0.2) / scale) ** 2, axis=2)
    statistics = {"loss": loss, "diverging": diverging} if method == "nuts" else {"loss": loss}
    covariance = scale**2 * np.eye(free.n_latent)
    best = np.full(free.n_latent, 0.2)
    mask = np.zeros((3, 5, 4), np.int32)
    mask[1, 2, 3] = NOT_FITTED
    plain = make_cube(mask=np.zeros((3, 5, 4), np.int32))
    flux = 100.0 + np.arange(60.0).reshape(3, 5, 4)
    model = replace(plain, flux=flux, variance=np.full((3, 5, 4), 9.0))
    numbers = np.arange(free.n_latent, dtype=float)
    return SampleResult(
        free=free,
        method=method,
        latent=latent,
        values=values_of(free, latent),
        statistics=statistics,
        step_size=np.full(N_CHAIN, 0.5) if method == "nuts" else None,
        keys=np.zeros((N_CHAIN, 2), np.uint32),
        diagnostics=Convergence(1 + numbers / 1000, 700 - numbers, 600 - numbers, np.ones(len(latent))),
        best=best,
        laplace=Laplace(free, best, np.linalg.inv(covariance) - np.eye(free.n_latent), covariance),
        quality=Quality(12.0, 59, free.n_latent, 8.0),
        verdict=Verdict(0.5, {"chi^2": 0.5}, 0.5, 1.0, False, np.zeros(free.n_latent)),
        scatter=Scatter(59, 50.0, 0.7, 0.95),
        model=model,
        predictive=replace(model, variance=np.full((3, 5, 4), 25.0), mask=mask),
        residual=replace(
            model, flux=4.0 * random.standard_normal((3, 5, 4)), variance=np.full((3, 5, 4), 16.0), mask=mask
        ),
        config="",
        versions={},
    )


@functools.cache
def view_of(method="nuts"):
    """With the truth of two of the numbers."""
    truth = {"observation.inclination": 53.0, "observation.offset": [np.nan, 0.1]}
    return sample_view(make_result(method=method), truth)


@functools.cache
def corner_panels():
    """The panels of the corner plot by row and column, with their figure."""
    figure = Figure(figsize=(8, 8))
    draw_corner(figure, view_of().corner)
    count = len(view_of().corner.drawn.labels)
    return figure, np.array(figure.axes).reshape(count, count)


def lines_of(axes, color):
    return [line for line in axes.get_lines() if line.get_color() == color]


def share_inside(path, points):
    return path.contains_points(points).mean()


def test_contours_enclose_their_share_of_the_draws():
    _, panels = corner_panels()
    values = view_of().corner.values
    for row in range(4):
        for column in range(row):
            (drawn,) = [own for own in panels[row, column].collections if isinstance(own, QuadContourSet)]
            outer, inner = drawn.get_paths()
            pair = values[:, [column, row]]
            np.testing.assert_allclose(share_inside(outer, pair), CONTOURS[1], atol=0.015)
            np.testing.assert_allclose(share_inside(inner, pair), CONTOURS[0], atol=0.015)
    np.testing.assert_allclose(CONTOURS, [0.3935, 0.8647], atol=1e-4)


@pytest.mark.parametrize("correlation", [0.0, 0.9999])
def test_densities_of_normal_draws_have_their_heights_at_one_and_two_sigma(correlation):
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    draws = np.random.default_rng(1).multivariate_normal([3.0, -2.0], covariance, 20000)
    found = density_of(draws, np.cov(draws.T))
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, found.latent.reshape(2, -1) - np.array([[3.0], [-2.0]]))
    radius = np.hypot(*white).reshape(found.height.shape)
    for level, sigma in zip(found.levels, (1, 2), strict=True):
        assert radius[found.height > level].max() < 1.15 * sigma
        assert radius[found.height < level].min() > 0.85 * sigma


def test_of_few_draws_or_of_a_constant_there_are_no_contours():
    draws = np.random.default_rng(1).standard_normal((30, 2))
    assert density_of(draws, np.eye(2)) is not None
    assert density_of(draws[:10], np.eye(2)) is None
    assert density_of(draws * [1.0, 0.0], np.diag([1.0, 0.0])) is None


def test_histograms_have_their_quantiles_and_the_truth():
    _, panels = corner_panels()
    corner = view_of().corner
    for number in range(4):
        axes = panels[number, number]
        marks = [line.get_xdata()[0] for line in lines_of(axes, DRAW_COLOR)]
        np.testing.assert_allclose(marks, np.quantile(corner.values[:, number], [0.16, 0.5, 0.84]))
    (true,) = lines_of(panels[0, 0], TRUTH_COLOR)
    assert true.get_xdata()[0] == 53.0
    across, up = lines_of(panels[2, 0], TRUTH_COLOR)
    assert (across.get_xdata()[0], up.get_ydata()[0]) == (53.0, 0.1)
    low, high = panels[0, 0].get_xlim()
    values = corner.values[:, 0]
    assert low < 53.0 < high
    assert np.mean((values > low) & (values < high)) > 0.99


def test_intervals_are_in_the_units_of_the_ticks():
    figure, panels = corner_panels()
    figure.draw_without_rendering()
    mass = view_of().corner.values[:, 3]
    low, middle, high = np.quantile(mass, [0.16, 0.5, 0.84]) / 1e10
    assert panels[3, 3].get_title() == f"{middle:.3f} +{high - middle:.3f} −{middle - low:.3f}"
    assert panels[3, 3].get_xlabel() == "stellar mass\n($10^{10}$ Msun)"
    ticks = [float(text.get_text()) for text in panels[3, 3].get_xticklabels()]
    assert all(0.5 < tick < 2 for tick in ticks)


def test_the_gaussian_approximation_is_drawn_over_the_draws():
    _, panels = corner_panels()
    one, two = lines_of(panels[3, 0], LAPLACE_COLOR)
    for line, share in ((one, CONTOURS[0]), (two, CONTOURS[1])):
        np.testing.assert_array_equal(line.get_xydata().T, contour(view_of().corner.laplace, 0, 3, share))
    bare = sample_view(replace(make_result(), laplace=None), {}).corner
    figure = Figure()
    draw_corner(figure, bare)
    assert not any(lines_of(axes, color) for axes in figure.axes for color in (LAPLACE_COLOR, TRUTH_COLOR))
    assert len(figure.legends[0].get_texts()) == 3


def test_draws_that_diverged_are_marked():
    figure, panels = corner_panels()
    result = make_result()
    (crosses,) = [line for line in panels[1, 0].get_lines() if line.get_marker() == "x"]
    inclination, east = result.values["observation.inclination"], result.values["observation.offset"][..., 0]
    np.testing.assert_array_equal(crosses.get_xdata(), inclination[0, [3, 70]])
    np.testing.assert_array_equal(crosses.get_ydata(), east[0, [3, 70]])
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "2 diverged"
    assert "2 diverged" in view_of().title


@functools.cache
def many():
    """Of 20 numbers the last are the best determined, and have the least worth of draws."""
    parameters = (FreeParameter(Normal(0.0, 0.5), "stars.log_age", (20,)),)
    return make_result(parameters, scale=np.linspace(0.9, 0.1, 20))


def test_of_many_numbers_those_that_matter_are_drawn():
    view = sample_view(many(), {})
    labels = tuple(f"stars.log_age[{number}]" for number in range(20))
    assert len(view.corner.drawn.labels) == MOST_PAIRED
    assert view.corner.drawn.labels == labels[-MOST_PAIRED:]
    assert [own.name for own in view.followed[1:]] == list(labels[-MOST_FOLLOWED:])
    worst = replace(many().diagnostics, ess_tail=np.where(np.arange(20) == 2, np.nan, 600.0))
    worst = replace(worst, ess_bulk=np.where(np.arange(20) == 2, np.nan, np.arange(20.0) + 1))
    stuck = sample_view(replace(many(), diagnostics=worst), {})
    assert [own.name for own in stuck.followed[1:]] == list(labels[:MOST_FOLLOWED])


def test_values_of_narrow_posteriors_are_exact():
    result = make_result(scale=1e-5)
    corner = sample_view(result, {}).corner
    for number in range(4):
        found = corner.drawn.value(number, corner.latent[:, number])
        values = corner.values[:, number]
        np.testing.assert_allclose(found, values, rtol=0, atol=1e-3 * values.std())


def test_chains_are_drawn_draw_by_draw():
    figure = Figure()
    view = view_of()
    draw_followed(figure, view)
    panels = np.array(figure.axes).reshape(-1, 2)
    assert panels.shape == (1 + 4, 2)
    result = make_result()
    first, second, *ticks = panels[1, 0].get_lines()
    np.testing.assert_array_equal(first.get_ydata(), result.values["observation.inclination"][0])
    np.testing.assert_array_equal(second.get_ydata(), result.values["observation.inclination"][1])
    np.testing.assert_array_equal(ticks[0].get_xdata(), [3, 70])
    assert not len(ticks[1].get_xdata())
    np.testing.assert_array_equal(panels[0, 0].get_lines()[0].get_ydata(), result.statistics["loss"][0])
    titles = [axes.get_title() for axes in panels[:, 0]]
    assert titles[0] == "−ln(posterior) + constant"
    assert titles[4] == "galaxy.stellar_mass ($10^{10}$ Msun)   ·   R-hat 1.003   ·   bulk ESS 697   ·   tail ESS 597"
    assert [text.get_text() for text in panels[0, 0].get_legend().get_texts()] == ["chain 1", "chain 2"]
    assert len(panels[2, 1].patches) == N_CHAIN


def test_one_chain_has_no_r_hat():
    result = make_result()
    found = replace(result.diagnostics, r_hat=np.full(4, np.nan))
    figure = Figure()
    draw_followed(figure, sample_view(replace(result, diagnostics=found), {}))
    assert not any("R-hat" in axes.get_title() for axes in figure.axes)


def test_what_is_predicted_spaxel_by_spaxel():
    result, view = make_result(), view_of()
    together, brightest, faint = banded_spectra(view)
    used = np.asarray(result.residual.mask) == 0
    assert (~used).sum() == 1
    data = np.asarray(result.predictive.flux) + np.asarray(result.residual.flux)
    np.testing.assert_allclose(together.compared.flux, np.sum(data * used, axis=(0, 1)))
    np.testing.assert_allclose(together.noise_sigma, 4 * np.sqrt(used.sum(axis=(0, 1))))
    np.testing.assert_allclose(together.model_sigma, 3.0 * used.sum(axis=(0, 1)))
    np.testing.assert_allclose(together.predicted_sigma**2, (together.noise_sigma**2 + together.model_sigma**2))
    np.testing.assert_allclose(brightest.compared.residual, np.asarray(result.residual.flux)[2, 4] / 4)
    np.testing.assert_allclose(brightest.predicted_sigma, 5.0)
    assert faint.compared.title.startswith("faint spaxel")


def test_maps_of_what_is_predicted():
    result = make_result()
    data, difference, spread = predictive_images(view_of())
    width = np.diff(np.asarray(result.model.wave_edges))
    flux, residual = np.asarray(result.predictive.flux), np.asarray(result.residual.flux)
    np.testing.assert_allclose(data.values[0], ((flux + residual) @ width)[0] / 0.2**2)
    sigma = 4 * np.sqrt(np.sum(width**2))
    np.testing.assert_allclose(difference.values[0], (residual @ width)[0] / sigma, rtol=1e-6)
    np.testing.assert_allclose(spread.values[0], 3 * width.sum() / sigma)
    used = np.array([True, True, True, False])
    np.testing.assert_allclose(spread.values[1, 2], 3 * width[used].sum() / (4 * np.sqrt(np.sum(width[used] ** 2))))


def test_the_panels_of_what_is_predicted():
    figure = Figure(layout="constrained")
    draw_predictive(figure, view_of())
    upper, lower, *_ = figure.axes
    data, model = (line.get_ydata() for line in upper.get_lines())
    together = banded_spectra(view_of())[0]
    np.testing.assert_allclose(data, together.compared.flux)
    np.testing.assert_allclose(model, together.compared.model)
    predicted, of_model = (band.get_paths()[0].get_extents().height for band in lower.collections[:2])
    np.testing.assert_allclose(predicted, 2 * np.max(together.predicted_sigma / together.noise_sigma))
    np.testing.assert_allclose(of_model, 2 * np.max(together.model_sigma / together.noise_sigma))
    assert sum(bool(axes.images) for axes in figure.axes) == 3


def test_variational_draws_have_no_traces():
    endings = [ending for ending, *_ in sample_drawings(view_of("geovi"))]
    assert endings == ["corner", "predictive"]
    assert [ending for ending, *_ in sample_drawings(view_of())] == ["corner", "trace", "predictive"]
    assert view_of("geovi").title == "geoVI: 400 draws"


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="ending in"):
        save_sample_pictures(make_result(), tmp_path / "fit", suffix=".jpg")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_nothing_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'rubix-like\[plots\]'"):
        make_result().plot(tmp_path / "fit")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_pictures_are_the_same_every_time(tmp_path):
    result = make_result(PARAMETERS[1:2], method="geovi")
    for name in ("a", "b"):
        paths = result.plot(tmp_path / name)
        assert [path.name for path in paths] == [f"{name}_corner.png", f"{name}_predictive.png"]
    for ending in ("corner", "predictive"):
        assert (tmp_path / f"a_{ending}.png").read_bytes() == (tmp_path / f"b_{ending}.png").read_bytes()


@pytest.mark.slow
def test_the_command_draws_samples(tmp_path, capsys):
    path = make_result().write(tmp_path / "fit_samples.h5")
    assert main(["plot", str(path), "--output", str(tmp_path / "p.svg")]) == 0
    assert capsys.readouterr().out.count("Picture: ") == 3
    pictures = [f"p_{ending}.svg" for ending in ("corner", "predictive", "trace")]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fit_samples.h5", *pictures]
    words = {"corner": "(arcsec)", "predictive": "data − predicted: white light", "trace": "tail ESS 599"}
    for ending, word in words.items():
        assert word in (tmp_path / f"p_{ending}.svg").read_text()
