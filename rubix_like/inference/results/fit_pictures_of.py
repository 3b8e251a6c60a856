"""The pictures of a fit's result, or of its file."""

from collections.abc import Mapping
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
from rubix_like.inference.posterior.free import Free, FreeParameter
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.plots.fits.fit_pictures import draw_fit
from rubix_like.plots.fits.fit_view import AtEdge, FitView, Inferred, Trace, fine_nodes
from rubix_like.plots.sky_offsets import sky_of
from rubix_like.runtime.words import counted


def save_fit_pictures(
    result: FitResult | str | Path, stem: str | Path, truth: Mapping[str, Any] | None = None, suffix: str = ".png"
) -> tuple[Path, ...]:
    """Draw a result (or its file) as `STEM_steps.png`, `_spectra`, `_maps`, `_pairs` and `_pulls`; return the paths.

    `truth`: values that the data were made of, by dotted name, where they are known. Without a Laplace approximation
    there are no `_pairs` and `_pulls`. Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg),
    ValueError for another file, OSError if one cannot be read or written.
    """
    found = result if isinstance(result, FitResult) else FitResult.read(result)
    return draw_fit(view_of(found, truth), stem, suffix)


def view_of(result: FitResult, truth: Mapping[str, Any] | None = None) -> FitView:
    """The arrays of a result that are drawn."""
    normal, inferred = result.laplace, None
    if normal is not None:
        chosen = np.arange(len(result.labels))
        inferred = inferred_of(result.free, chosen, normal.latent, normal.covariance, truth or {})
        inferred = replace(inferred, limits=_limits(result))
    view = cubes_view(_title(result), result.model, result.residual)
    return replace(view, traces=_traces(result), inferred=inferred)


def _limits(result: FitResult) -> dict[int, AtEdge]:
    """Of the values at the edges of their priors, by their places among the labels."""
    edges, reaches = result.edges, list(result.limits().values())
    known = zip(edges.index, reaches, edges.latent, edges.density, strict=True)
    return {int(index): AtEdge(reach.words(), latent, density) for index, reach, latent, density in known}


def cubes_view(title: str, model: Cube, residual: Cube) -> FitView:
    """What is drawn of a model and of data less model."""
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


def _title(result: FitResult) -> str:
    """What was fitted, and how well."""
    meta, quality = result.model.meta, result.quality
    words = [
        f"fit of {counted(len(result.labels), 'number')}",
        f"χ² / {quality.degrees_of_freedom} = {quality.reduced:.4g}",
    ]
    words += [str(meta["instrument"])] if meta.get("instrument") else []
    words += [] if result.converged else ["not converged"]
    words += ["the model does not describe the data"] if result.verdict.matters else []
    return "   ·   ".join(words)


def _traces(result: FitResult) -> tuple[Trace, ...]:
    """The steps of every start that were made."""
    starts, traces = result.starts, []
    for loss, norm, converged in zip(starts.trace_loss, starts.trace_gradient_norm, starts.converged, strict=True):
        made = np.isfinite(loss)
        traces.append(Trace(loss[made], norm[made], bool(converged)))
    return tuple(traces)


def inferred_of(
    free: Free,
    chosen: Int[ndarray, " parameter"],
    latent: Float[ndarray, " parameter"],
    covariance: Float[ndarray, "parameter parameter"],
    truth: Mapping[str, Any],
) -> Inferred:
    """A normal distribution of the chosen latents, which count as `free.labels` does, and the maps to their values."""
    owners = [(parameter, index) for parameter in free.parameters for index in range(parameter.size)]
    own = [owners[int(number)] for number in chosen]
    labels, true = free.labels, _flat(free, truth)
    nodes = fine_nodes(latent, np.sqrt(np.diag(covariance)))
    return Inferred(
        labels=tuple(labels[number] for number in chosen),
        units=tuple(owner.unit for owner, _ in own),
        latent=latent,
        covariance=covariance,
        prior=np.stack([_values(*owner, at) for owner, at in zip(own, nodes, strict=True)]),
        truth=true[chosen] if truth else None,
        nodes=nodes,
    )


def _values(parameter: FreeParameter, index: int, latent: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """Of one of a parameter's numbers, whose prior may have numbers of its own."""
    own: Any = jax.tree.map(lambda leaf: np.broadcast_to(leaf, parameter.shape).ravel()[index], parameter.prior)
    return np.asarray(own.value(jnp.asarray(latent)), dtype=np.float64)


def _flat(free: Free, truth: Mapping[str, Any]) -> Float[ndarray, " parameter"]:
    """In the order of the labels; NaN where nothing is known. ConfigError for what is not free."""
    for name in truth:
        if name not in free.names:
            raise ConfigError(f"truth: expected names of free parameters, got '{name}'{suggest(name, free.names)}")
    known = [np.broadcast_to(np.asarray(truth.get(own.name, np.nan), float), own.shape) for own in free.parameters]
    return np.concatenate([np.ravel(values) for values in known])
