"""The pictures of a posterior's samples, or of their file: numbers pair by pair, chains, what is predicted."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.inference.results.fit_pictures_of import cubes_view, inferred_of
from rubix_like.inference.results.sample_result import SampleResult, flat_values
from rubix_like.plots.fits.fit_parameters import MOST_PAIRED, triangle_size
from rubix_like.plots.fits.fit_view import AtEdge, Inferred
from rubix_like.plots.fits.sample_corner import MOST_LARGE, draw_corner
from rubix_like.plots.fits.sample_predictive import draw_predictive, predictive_size
from rubix_like.plots.fits.sample_trace import draw_followed
from rubix_like.plots.fits.sample_view import Corner, Followed, SampleView
from rubix_like.plots.picture_files import Drawing, save_drawings
from rubix_like.runtime.words import counted

MOST_FOLLOWED: int = 12
"""Numbers that are drawn draw by draw."""

_SMALL, _LARGE = 1.2, 1.7
"""Sides of a panel of the corner plot, where there are many of them, and few."""

_NARROWEST = 5.8
"""Of its widths: there is room for its legend."""


def save_sample_pictures(
    result: SampleResult | str | Path, stem: str | Path, truth: Mapping[str, Any] | None = None, suffix: str = ".png"
) -> tuple[Path, ...]:
    """Draw samples (or their file) as `STEM_corner.png`, `_trace` (of chains) and `_predictive`; return the paths.

    `truth`: values that the data were made of, by dotted name, where they are known. Raises ConfigError (no matplotlib,
    another suffix than .png, .pdf or .svg), ValueError for another file, OSError if one cannot be read or written.
    """
    found = result if isinstance(result, SampleResult) else SampleResult.read(result)
    view = sample_view(found, truth or {})
    return save_drawings(view.title, sample_drawings(view), stem, suffix)


def sample_drawings(view: SampleView) -> Iterator[Drawing]:
    """What there is to draw, in the order of the files."""
    count = len(view.corner.drawn.labels)
    width, height = triangle_size(count, _SMALL if count > MOST_LARGE else _LARGE)
    yield "corner", (max(width, _NARROWEST), height), lambda figure: draw_corner(figure, view.corner)
    if view.followed:
        yield "trace", (10.0, 1.15 * len(view.followed) + 1.0), lambda figure: draw_followed(figure, view)
    if view.cubes.used.any():
        yield "predictive", predictive_size(view), lambda figure: draw_predictive(figure, view)


def sample_view(result: SampleResult, truth: Mapping[str, Any]) -> SampleView:
    """The arrays of a result that are drawn."""
    values = flat_values(result.free, result.values)
    diverging = np.asarray(result.statistics.get("diverging", np.zeros(result.latent.shape[:2])), bool)
    title = _title(result, int(diverging.sum()))
    return SampleView(
        title=title,
        corner=_corner(result, values, diverging, truth),
        followed=_followed(result, values) if result.is_chain else (),
        diverging=diverging,
        cubes=cubes_view(title, result.predictive, result.residual),
        model_sigma=np.sqrt(np.asarray(result.model.variance, dtype=np.float64)),
        predicted_sigma=np.sqrt(np.asarray(result.predictive.variance, dtype=np.float64)),
    )


def _title(result: SampleResult, n_diverging: int) -> str:
    """How the draws were made, and how many."""
    chains = f"{counted(result.n_chain, 'chain')} of " if result.is_chain else ""
    words = [f"{result.title}: {chains}{counted(result.n_draw, 'draw')}"]
    words += [f"{n_diverging} diverged"] if n_diverging else []
    words += ["the model does not describe the data"] if result.verdict.matters else []
    instrument = result.predictive.meta.get("instrument")
    return "   ·   ".join([*words, *([str(instrument)] if instrument else [])])


def best_known(latent: Float[ndarray, "chain draw latent"]) -> Int[ndarray, " chosen"]:
    """The numbers that are drawn pair by pair: those that the data say most of, in their own order."""
    sigma = latent.reshape(-1, latent.shape[2]).std(axis=0)
    return np.sort(np.argsort(sigma, kind="stable")[:MOST_PAIRED])


def _corner(
    result: SampleResult, values: Float[ndarray, "chain draw latent"], diverging: ndarray, truth: Mapping[str, Any]
) -> Corner:
    chosen = best_known(result.latent)
    latent = result.latent[:, :, chosen]
    flat = latent.reshape(-1, len(chosen))
    apart = (latent - latent.mean(axis=1, keepdims=True)).reshape(flat.shape)
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat, rowvar=False, ddof=0))
    drawn, limits = inferred_of(result.free, chosen, mean, covariance, truth), result.limits()
    places = {number: limits[label] for number, label in enumerate(drawn.labels) if label in limits}
    return Corner(
        drawn=replace(drawn, limits={number: AtEdge(own.words()) for number, own in places.items()}),
        laplace=_laplace(result, chosen),
        latent=flat,
        values=values[:, :, chosen].reshape(flat.shape),
        within=apart.T @ apart / len(apart),
        diverging=diverging.ravel(),
    )


def _laplace(result: SampleResult, chosen: Int[ndarray, " chosen"]) -> Inferred | None:
    """None where there are too many numbers for it."""
    normal = result.laplace
    if normal is None:
        return None
    return inferred_of(result.free, chosen, normal.latent[chosen], normal.covariance[np.ix_(chosen, chosen)], {})


def _followed(result: SampleResult, values: Float[ndarray, "chain draw latent"]) -> tuple[Followed, ...]:
    """The loss, and the numbers of which the draws are worth least, in their own order."""
    found, labels = result.diagnostics, result.labels
    units = [own.unit for own in result.free.parameters for _ in range(own.size)]
    worth = np.fmin(found.ess_bulk, found.ess_tail)
    chosen = np.sort(np.argsort(np.nan_to_num(worth, nan=-1.0), kind="stable")[:MOST_FOLLOWED])
    loss = Followed("−ln(posterior) + constant", "", np.asarray(result.statistics["loss"], np.float64))
    numbers = [
        Followed(
            labels[number],
            units[number],
            values[:, :, number],
            float(found.r_hat[number]),
            float(found.ess_bulk[number]),
            float(found.ess_tail[number]),
        )
        for number in chosen
    ]
    return (loss, *numbers)
