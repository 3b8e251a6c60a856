"""The pictures of the results of fits and of samplings, or of their files."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.meta import NOT_FITTED
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.posterior.fit_model import Free, FreeParameter
from rubix_like.inference.results.results import FitResult, SampleResult
from rubix_like.physics.units import plain_numbers
from rubix_like.plots.figure import Drawing, save_drawings
from rubix_like.plots.fit_pictures import (
    AtEdge,
    FitView,
    Inferred,
    Trace,
    drawings,
    fine_nodes,
    paired,
    triangle_size,
)
from rubix_like.plots.images import sky_of
from rubix_like.plots.sample_pictures import (
    MOST_LARGE,
    Corner,
    Followed,
    SampleView,
    draw_corner,
    draw_followed,
    draw_predictive,
    predictive_size,
)
from rubix_like.runtime.words import counted

FIT_PICTURES: tuple[str, ...] = ("steps", "spectra", "maps", "pairs", "pulls")
SAMPLE_PICTURES: tuple[str, ...] = ("corner", "trace", "predictive")
"""Ends of the names of the pictures of a fit and of a sampling."""


def save_fit_pictures(
    result: FitResult | str | Path,
    stem: str | Path,
    truth: Mapping[str, Any] | None = None,
    suffix: str = ".png",
    *,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Draw a result (or its file) as `STEM_steps.png`, `_spectra`, `_maps`, `_pairs` and `_pulls`; return the paths.

    `truth`: values that the data were made of, by dotted name, where they are known. Without a Laplace approximation
    there are no `_pairs` and `_pulls`. Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg),
    ValueError for another file, OSError if one cannot be read or written.
    """
    found = result if isinstance(result, FitResult) else FitResult.read(result)
    view = view_of(found, truth)
    return save_drawings(view.title, drawings(view), stem, suffix, overwrite=overwrite)


def view_of(result: FitResult, truth: Mapping[str, Any] | None = None) -> FitView:
    """The arrays of a result that are drawn."""
    normal, inferred = result.laplace, None
    if normal is not None:
        chosen = np.arange(len(result.labels))
        inferred = inferred_of(result.free, chosen, normal.own_latent, normal.own_covariance, truth or {})
        edges, reaches = result.edges, list(result.limits().values())
        known = zip(edges.index, reaches, edges.latent, edges.density, strict=True)
        inferred = replace(
            inferred,
            limits={int(index): AtEdge(reach.words(), latent, density) for index, reach, latent, density in known},
        )
    meta, quality = result.model.meta, result.quality
    words = [
        f"fit of {counted(len(result.labels), 'number')}",
        f"χ² / {quality.degrees_of_freedom} = {quality.reduced:.4g}",
    ]
    words += [str(meta["instrument"])] if meta.get("instrument") else []
    words += [] if result.converged else ["not converged"]
    words += ["the model does not describe the data"] if result.verdict.misfit else []
    view = cubes_view("   ·   ".join(words), result.model, result.residual)
    starts, traces = result.starts, []
    for loss, norm, converged in zip(starts.trace_loss, starts.trace_gradient_norm, starts.converged, strict=True):
        steps = np.isfinite(loss)
        traces.append(Trace(loss[steps], norm[steps], bool(converged)))
    return replace(view, traces=tuple(traces), inferred=inferred)


def cubes_view(title: str, model: Cube, residual: Cube) -> FitView:
    """The arrays that are drawn of a model and of data less model."""
    flux = np.asarray(model.flux, dtype=np.float64)
    used = (np.asarray(residual.mask) & NOT_FITTED) == 0
    variance = np.where(used, np.asarray(residual.variance, dtype=np.float64), 1.0)
    velocity = None if model.mean_v_los is None else np.asarray(model.mean_v_los, dtype=np.float64)
    return FitView(
        title=title,
        sky=sky_of(model),
        bins=model.bins,
        flux=flux + np.asarray(residual.flux, dtype=np.float64),
        model=flux,
        inverse_sigma=np.where(used, 1 / np.sqrt(variance), 0.0),
        velocity=velocity,
    )


def inferred_of(
    free: Free,
    chosen: Int[ndarray, " parameter"],
    latent: Float[ndarray, " parameter"],
    covariance: Float[ndarray, "parameter parameter"],
    truth: Mapping[str, Any],
) -> Inferred:
    """A normal distribution of the chosen latents, which count as `free.labels` does, and the maps to their values."""
    owners = [(parameter, index) for parameter in free.parameters for index in range(parameter.size)]
    owners = [owners[int(number)] for number in chosen]
    for name in truth:
        if name not in free.names:
            raise ConfigError(f"truth: expected names of free parameters, got '{name}'{suggest(name, free.names)}")
    known = {}
    for parameter in free.parameters:
        number = plain_numbers(truth.get(parameter.name), parameter.unit, f"truth['{parameter.name}']")
        known[parameter.name] = np.broadcast_to(np.asarray(number, float), parameter.shape)
    nodes = fine_nodes(latent, np.sqrt(np.diag(covariance)))
    return Inferred(
        labels=tuple(free.labels[number] for number in chosen),
        units=tuple(owner.unit for owner, _ in owners),
        latent=latent,
        covariance=covariance,
        prior=np.stack([_values(*owner, at) for owner, at in zip(owners, nodes, strict=True)]),
        truth=free.join(known)[chosen] if truth else None,
        nodes=nodes,
    )


def _values(parameter: FreeParameter, index: int, latent: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    prior: Any = jax.tree.map(lambda leaf: np.broadcast_to(leaf, parameter.shape).ravel()[index], parameter.prior)
    return np.asarray(prior.value(jnp.asarray(latent)), dtype=np.float64)


MOST_FOLLOWED: int = 12
"""Largest number of traces in the picture of draws."""

_SMALL, _LARGE = 1.2, 1.7
"""Sides of a panel of the corner plot, where there are many of them, and few."""

_NARROWEST = 5.8
"""Least width of the corner plot (inches): there is room for its legend."""


def save_sample_pictures(
    result: SampleResult | str | Path,
    stem: str | Path,
    truth: Mapping[str, Any] | None = None,
    suffix: str = ".png",
    *,
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Draw samples (or their file) as `STEM_corner.png`, `_trace` (of chains) and `_predictive`; return the paths.

    `truth`: values that the data were made of, by dotted name, where they are known. Raises ConfigError (no matplotlib,
    another suffix than .png, .pdf or .svg), ValueError for another file, OSError if one cannot be read or written.
    """
    found = result if isinstance(result, SampleResult) else SampleResult.read(result)
    view = sample_view(found, truth or {})
    return save_drawings(view.title, sample_drawings(view), stem, suffix, overwrite=overwrite)


def sample_drawings(view: SampleView) -> Iterator[Drawing]:
    """The pictures, in the order of their files."""
    count = len(view.corner.drawn.labels)
    width, height = triangle_size(count, _SMALL if count > MOST_LARGE else _LARGE)
    yield "corner", (max(width, _NARROWEST), height), lambda figure: draw_corner(figure, view.corner)
    if view.followed:
        yield "trace", (10.0, 1.15 * len(view.followed) + 1.0), lambda figure: draw_followed(figure, view)
    if view.cubes.used.any():
        yield "predictive", predictive_size(view), lambda figure: draw_predictive(figure, view)


def sample_view(result: SampleResult, truth: Mapping[str, Any]) -> SampleView:
    """The arrays of a result that are drawn."""
    values = result.free.join(result.values)
    diverging = np.asarray(result.statistics.get("diverging", np.zeros(result.latent.shape[:2])), bool)
    n_diverging = int(diverging.sum())
    words = [f"{result.title}: {result.size_words}"]
    words += [f"{n_diverging} diverged"] if n_diverging else []
    words += ["the model does not describe the data"] if result.verdict.misfit else []
    instrument = result.predictive.meta.get("instrument")
    title = "   ·   ".join([*words, *([str(instrument)] if instrument else [])])
    return SampleView(
        title=title,
        corner=_corner(result, values, diverging, truth),
        followed=_followed(result, values) if result.is_chain else (),
        diverging=diverging,
        cubes=cubes_view(title, result.predictive, result.residual),
        model_sigma=np.sqrt(np.asarray(result.model.variance, dtype=np.float64)),
        predicted_sigma=np.sqrt(np.asarray(result.predictive.variance, dtype=np.float64)),
    )


def _corner(
    result: SampleResult, values: Float[ndarray, "chain draw latent"], diverging: ndarray, truth: Mapping[str, Any]
) -> Corner:
    normals = np.asarray(result.free.own_normals(result.latent))
    chosen = paired(normals.reshape(-1, normals.shape[2]).std(axis=0))
    latent = normals[:, :, chosen]
    flat = latent.reshape(-1, len(chosen))
    apart = (latent - latent.mean(axis=1, keepdims=True)).reshape(flat.shape)
    mean, covariance = flat.mean(axis=0), np.atleast_2d(np.cov(flat, rowvar=False, ddof=0))
    drawn, limits = inferred_of(result.free, chosen, mean, covariance, truth), result.limits()
    places = {number: AtEdge(limits[label].words()) for number, label in enumerate(drawn.labels) if label in limits}
    laplace = None
    if result.laplace is not None:
        best, covariance = result.laplace.own_latent[chosen], result.laplace.own_covariance[np.ix_(chosen, chosen)]
        laplace = inferred_of(result.free, chosen, best, covariance, {})
    return Corner(
        drawn=replace(drawn, limits=places),
        laplace=laplace,
        latent=flat,
        values=values[:, :, chosen].reshape(flat.shape),
        within=apart.T @ apart / len(apart),
        diverging=diverging.ravel(),
    )


def _followed(result: SampleResult, values: Float[ndarray, "chain draw latent"]) -> tuple[Followed, ...]:
    """The loss, and the numbers of which the draws are worth least, in the order of the labels."""
    found, labels = result.diagnostics, result.labels
    units = [parameter.unit for parameter in result.free.parameters for _ in range(parameter.size)]
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
