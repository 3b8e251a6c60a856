"""The pictures of a fit's result, or of its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube import NOT_FITTED
from rubix_like.inference.free import Free, FreeParameter
from rubix_like.inference.result import FitResult
from rubix_like.plots.fit_pictures import draw_fit
from rubix_like.plots.fit_view import LATENT_GRID, FitView, Inferred, Trace
from rubix_like.plots.sky import sky_of


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
    model, residual = result.model, result.residual
    flux = np.asarray(model.flux, dtype=np.float64)
    used = (np.asarray(residual.mask) & NOT_FITTED) == 0
    variance = np.where(used, np.asarray(residual.variance, dtype=np.float64), 1.0)
    velocity = None if model.mean_v_los is None else np.asarray(model.mean_v_los, dtype=np.float64)
    return FitView(
        title=_title(result),
        sky=sky_of(model),
        wavelength=np.asarray(model.wavelength, dtype=np.float64),
        wave_edges=np.asarray(model.wave_edges, dtype=np.float64),
        medium=model.medium,
        flux=flux + np.asarray(residual.flux, dtype=np.float64),
        model=flux,
        inverse_sigma=np.where(used, 1 / np.sqrt(variance), 0.0),
        traces=_traces(result),
        inferred=_inferred(result, truth or {}),
        velocity=velocity,
    )


def _title(result: FitResult) -> str:
    """What was fitted, and how well."""
    meta, quality = result.model.meta, result.quality
    words = [f"fit of {len(result.labels)} numbers", f"χ² / {quality.degrees_of_freedom} = {quality.reduced:.4g}"]
    words += [str(meta["instrument"])] if meta.get("instrument") else []
    words += [] if result.converged else ["not converged"]
    return "   ·   ".join(words)


def _traces(result: FitResult) -> tuple[Trace, ...]:
    """The steps of every start that were made."""
    starts, traces = result.starts, []
    for loss, norm, converged in zip(starts.trace_loss, starts.trace_gradient_norm, starts.converged, strict=True):
        made = np.isfinite(loss)
        traces.append(Trace(loss[made], norm[made], bool(converged)))
    return tuple(traces)


def _inferred(result: FitResult, truth: Mapping[str, Any]) -> Inferred | None:
    """None without a Laplace approximation."""
    if result.laplace is None:
        return None
    parameters = result.free.parameters
    return Inferred(
        labels=result.labels,
        units=tuple(own.unit for own in parameters for _ in range(own.size)),
        latent=result.latent,
        covariance=result.laplace.covariance,
        prior=np.concatenate([_prior_nodes(own) for own in parameters]),
        truth=_flat(result.free, truth) if truth else None,
    )


def _prior_nodes(parameter: FreeParameter) -> Float[ndarray, "parameter node"]:
    """Values of one parameter's numbers at the latents of LATENT_GRID."""
    latent = jnp.asarray(LATENT_GRID.reshape(-1, *(1 for _ in parameter.shape)))
    values = parameter.prior.value(jnp.broadcast_to(latent, (len(LATENT_GRID), *parameter.shape)))
    return np.asarray(values, dtype=np.float64).reshape(len(LATENT_GRID), -1).T


def _flat(free: Free, truth: Mapping[str, Any]) -> Float[ndarray, " parameter"]:
    """In the order of the labels; NaN where nothing is known."""
    known = [np.broadcast_to(np.asarray(truth.get(own.name, np.nan), float), own.shape) for own in free.parameters]
    return np.concatenate([np.ravel(values) for values in known])
