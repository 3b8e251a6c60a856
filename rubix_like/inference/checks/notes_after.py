"""Notes on a fit that its reader should know before the numbers are used, in sentences."""

from collections.abc import Iterator, Mapping

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.cube.meta import SourceCounters
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.inference.checks.edges import advice_at_edge, edges_from
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.optima import other_optima
from rubix_like.inference.posterior.free import Free, shown
from rubix_like.inference.posterior.linearise import is_dense
from rubix_like.inference.search.optimisers import LEAST_SQUARES
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.words import listed

UNDETERMINED: float = 0.9
"""Standard deviation in units of the prior's above which the data say next to nothing of a parameter."""

CORRELATED: float = 0.95
"""|correlation| of two parameters that are determined together only."""

EXPLAINED: float = 0.8
"""|correlation| above which a known reason is added."""

ELSEWHERE: float = 1.0
"""Difference of the losses (half of chi^2's) of two starts that did not end at the same place."""

_TOGETHER: tuple[tuple[str, str, str], ...] = (
    ("inclination", "rotation_velocity", "velocities alone give V sin i; the light's shape, or a prior, must give i"),
    ("inclination", "rotation.velocity", "velocities alone give V sin i; the light's shape, or a prior, must give i"),
    ("inclination", "scale_height", "a thicker disc seen more edge-on looks as round; give a prior on its height"),
    ("psf.fwhm", "light.scale_length", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("psf.fwhm", "galaxy.disc_scale_length", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("psf.fwhm", "light.effective_radius", "a wider PSF makes a smaller galaxy as large; give the seeing as a prior"),
    ("log_age", "metallicity", "older stars and more metals redden alike; fit a wider range of wavelengths"),
    ("a_v", "log_age", "dust and older stars redden alike; fit a wider range of wavelengths"),
    ("a_v", "stellar_mass", "dust dims what more stars brighten; fit a wider range of wavelengths"),
)
"""Ends of the names of two parameters that are often correlated, and why."""


def notes_on_size(optimiser: str, n_latent: int, n_voxel: int) -> list[str]:
    """Says so where there is no room for the Jacobian of a least-squares fit."""
    if optimiser != LEAST_SQUARES or is_dense(n_latent, n_voxel):
        return []
    return [
        f"the Jacobian of {n_latent} numbers and {n_voxel} voxels is too large to be kept: steps were found by "
        f"conjugate gradients"
    ]


def notes_on_search(
    free: Free, starts: SearchState, best: Float[ndarray, " latent"], laplace: Laplace | None
) -> list[str]:
    """Notes on starts that failed, were given up, did not converge, or ended elsewhere than the best."""
    n_start, lowest = len(starts.loss), starts.best
    reasons = starts.reasons()
    notes = []
    if not starts.converged[lowest]:
        notes.append(f"the best start has not converged ({reasons[lowest]}); the values may be off")
    notes += [f"start {number + 1} failed: {reasons[number]}" for number in np.flatnonzero(starts.failed)]
    behind = np.where(starts.failed, np.nan, starts.loss - starts.loss[lowest])
    notes += [
        f"start {number + 1}, at a loss higher by {behind[number]:.3g}: {reasons[number]}"
        for number in np.flatnonzero(starts.given_up & (behind > ELSEWHERE))
    ]
    others = other_optima(free, starts, best, laplace)
    told = np.isin(np.arange(n_start) + 1, [number for own in others for number in own.starts])
    worse = np.flatnonzero((behind > ELSEWHERE) & ~starts.given_up & ~told)
    if len(worse):
        gaps = ", ".join(f"{behind[number]:.3g}" for number in worse)
        notes.append(f"{len(worse)} of {n_start} starts ended elsewhere, at a loss higher by {gaps}: local optima")
    return [*notes, *(own.sentence for own in others)]


def trouble_of(starts: SearchState) -> str:
    """Why the best end of a search is no maximum; empty where it has converged."""
    best = starts.best
    return "" if starts.converged[best] else f"the search has not converged ({starts.reasons()[best]})"


def notes_on_values(free: Free, best: Float[ndarray, " latent"], laplace: Laplace | str) -> list[str]:
    """Notes on values at the edge of their priors, and on what the data do not say."""
    notes = []
    normals = np.asarray(free.own_normals(np.asarray(best)))
    below, above = (free.split(sign * normals >= edges_from(free, sign)) for sign in (-1, 1))
    for own in free.parameters:
        far = below[own.name] | above[own.name]
        if far.any():
            names = listed(np.array(own.labels, dtype=object)[far.ravel()])
            advice = advice_at_edge(own, below[own.name], above[own.name])
            notes.append(f"{names} is at the edge of its prior ({shown(own.prior)}){advice}")
    if isinstance(laplace, str):
        return [*notes, f"no uncertainties: {laplace}"]
    known = np.where(laplace.without_effect(), 0.0, laplace.own_sigma)
    return [*notes, *notes_on_silence(laplace), *notes_on_spread(free, known, laplace.correlation)]


def notes_on_silence(laplace: Laplace) -> list[str]:
    """Notes on latents that the data say nothing of."""
    silent = np.array(laplace.free.labels, dtype=object)[laplace.without_effect()]
    if not len(silent):
        return []
    return [f"the data say nothing of {listed(silent)}: the model of what is fitted does not depend on it"]


def notes_on_spread(
    free: Free, sigma: Float[ndarray, " latent"], correlation: Float[ndarray, "latent latent"] | None
) -> list[str]:
    """Notes on values that the data hardly determine, or only in combination, by the covariance of the latents."""
    labels, notes = free.labels, []
    vague = np.array(labels, dtype=object)[sigma > UNDETERMINED]
    if len(vague):
        notes.append(f"the data hardly determine {listed(vague)}: its uncertainty is that of its prior")
    if correlation is None:
        return notes
    pairs = np.argwhere(np.triu(np.abs(correlation) > CORRELATED, k=1))
    if len(pairs):
        words = listed(f"{labels[i]} and {labels[j]} ({correlation[i, j]:+.3f})" for i, j in pairs)
        notes.append(f"determined together only (correlation): {words}")
    explained = np.argwhere(np.triu(np.abs(correlation) > EXPLAINED, k=1))
    for i, j in explained:
        notes += _why_together(labels[i], labels[j], float(correlation[i, j]))
    return notes


def _why_together(label: str, other: str, correlation: float) -> Iterator[str]:
    """Notes on the known reason for a correlation of two parameters."""
    for first, second, why in _TOGETHER:
        for left, right in ((label, other), (other, label)):
            if left.endswith(first) and right.endswith(second):
                yield f"{left} and {right} (correlation {correlation:+.2f}): {why}"


def notes_on_particles(counters: Mapping[str, SourceCounters], velocity_limit: float) -> list[str]:
    """Notes on particles that the best model cannot treat, source by source."""
    notes = []
    for name, own in counters.items():
        fast = int(own.n_beyond_velocity) + int(own.n_overflow)
        what = {STAR_SOURCE: name, DUST_COLUMN: "particles of gas with dust"}.get(name, f"particles of source '{name}'")
        words = f"of {int(own.n_particles)} {what}"
        if fast:
            notes.append(
                f"at the best values {fast} {words} are faster than the model is made for ({velocity_limit:.0f} km/s), "
                f"and it is wrong for them; raise engine.velocity_range and fit again"
            )
        if int(own.n_not_finite):
            notes.append(f"at the best values {int(own.n_not_finite)} {words} are not finite")
    return notes


def notes_on_precision() -> list[str]:
    """Notes on numbers of 32 bits."""
    if jax.dtypes.canonicalize_dtype(float) == np.float64:
        return []
    return [
        "computed with 32-bit numbers: losses are known to 1e-7 of themselves only, so that the search may end early "
        "and small uncertainties be off; call jax.config.update('jax_enable_x64', True) before anything else"
    ]
