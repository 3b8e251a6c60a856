"""How probable the residuals of a fit are if its model is true, and how far values move with half of the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import chdtr, chdtrc, ndtr

from rubix_like.inference.checks.data_halves import HALVES
from rubix_like.inference.checks.misfit import AXES, Half, Residue, Sums

Places = int | Sequence[int] | None
"""Of the noise scale and of the likelihood's parameters among the latents; None where they are not free."""

FEWEST: int = 20
"""The least number of pairs, spaxels or bins for a test."""

_KNOWN = 1e-2
"""Of a combination of latents p (1 - p), p the part of its information in a half, from which on halves are compared."""

_BEYOND_NOISE = 3.0
"""Smaller movements, in standard deviations expected of a true model, count as none."""


@dataclass(frozen=True)
class Moves:
    """Shifts of latents with half of the data, and the standard deviation of that for a model that is true."""

    step: Float[ndarray, "half latent"]
    scatter: Float[ndarray, "half latent"]


def probabilities(residue: Residue, latent: Float[ndarray, " latent"], free_scale: Places = None) -> dict[str, float]:
    """Probabilities of residuals at least as large, or as correlated, for each test by name.

    `free_scale`: places of the noise scale, and of the likelihood's parameters, among the latents (None: they are not
    free); with them chi^2 says nothing.
    """
    found: dict[str, float] = {}
    chi_square = residue.chi_square
    size = 1.0 if float(chi_square.mean) <= 0 else float(chi_square.value) / float(chi_square.mean)
    if free_scale is None:
        found["chi^2"] = _of_squares(chi_square)
    for name, own in residue.sets.items():
        found |= {f"{test} of {name}": p for test, p in tests_of_set(residue, own, free_scale).items()}
    found |= _of_axes(residue, size, free_scale)
    return found | _of_halves(residue, latent, free_scale)


def tests_of_set(residue: Residue, own: Residue, free_scale: Places) -> dict[str, float]:
    """Probabilities of one of several sets of data; with a free noise scale, its chi^2 against that of all."""
    alone = own.chi_square
    size = 1.0 if float(alone.mean) <= 0 else float(alone.value) / float(alone.mean)
    return {"chi^2": _of_squares(chi_square_of_set(residue, own, free_scale)), **_of_axes(own, size, free_scale)}


def chi_square_of_set(residue: Residue, own: Residue, free_scale: Places) -> Sums:
    """chi^2 of one of several sets of data; with a free noise scale, in units of that of all."""
    whole, alone = residue.chi_square, own.chi_square
    unit = 1.0 if free_scale is None or float(whole.mean) <= 0 else float(whole.value) / float(whole.mean)
    return alone._replace(value=alone.value / unit)


def _of_axes(residue: Residue, size: float, free_scale: Places) -> dict[str, float]:
    """Probabilities of neighbours along each axis, and of the light of spaxels and bins; `size`: chi^2 over what is
    expected."""
    found: dict[str, float] = {}
    for number, axis in enumerate(AXES):
        pairs = Sums(*(float(np.asarray(sums)[number]) for sums in residue.neighbours))
        if pairs.size < FEWEST:
            continue
        found[f"correlation along {axis}"] = _of_products(pairs)
        found[f"runs along {axis}"] = float(ndtr(-_runs(pairs, float(residue.agreeing[number])) * min(1.0, size)))
    unit = 1.0 if free_scale is None else max(size, 1e-12)
    squares = {"light of the spaxels": residue.spaxels, "light of the bins": residue.bins, **(residue.squares or {})}
    found |= {
        name: _of_squares(summed._replace(value=summed.value / unit))
        for name, summed in squares.items()
        if float(summed.size) >= FEWEST
    }
    found |= {
        name: _of_products(summed) for name, summed in (residue.maps or {}).items() if float(summed.size) >= FEWEST
    }
    return found


def excess_of(chi_square: Sums) -> float:
    """The standard deviations by which chi^2 is above what is expected if the model is true; NaN without any."""
    variance = float(chi_square.variance)
    return (float(chi_square.value) - float(chi_square.mean)) / np.sqrt(variance) if variance > 0 else float("nan")


def together(found: Mapping[str, float]) -> float:
    """The lowest probability times the number of tests (Bonferroni's correction); NaN where there is none."""
    known = [own for own in found.values() if np.isfinite(own)]
    return min(1.0, len(known) * min(known)) if known else float("nan")


def too_small(residue: Residue) -> float:
    """Probability of a chi^2 that is as low."""
    scale, degrees = _scaled(residue.chi_square)
    return float(chdtr(degrees, float(residue.chi_square.value) / scale)) if degrees > 0 else float("nan")


def moves_of(residue: Residue, latent: Float[ndarray, " latent"], free_scale: Places = None) -> Moves | None:
    """Shifts from the best fit to that of each half, by one Gauss-Newton step; the noise scale, if it is free, stays.

    None without derivatives.
    """
    if residue.whole is None or residue.halves is None:
        return None
    kept = _kept(len(latent), free_scale)
    steps, scatters = (np.full((2 * len(residue.pairs), len(latent)), np.nan) for _ in range(2))
    whole = _Part.of(residue.whole, None, latent, kept)
    for number in range(len(steps)):
        own = _Part.of(residue.halves, number, latent, kept)
        inverse = np.linalg.inv(own.precision)
        score, covariance = _score(own, whole)
        steps[number, kept] = -inverse @ score
        scatters[number, kept] = np.sqrt(np.maximum(np.diag(inverse @ covariance @ inverse), 0.0))
    return Moves(steps, scatters)


def furthest(moves: Moves, sigma: Float[ndarray, " latent"]) -> Float[ndarray, " latent"]:
    """The longest movement of each latent that noise does not explain, in units of its standard deviation; 0: none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        real = np.abs(moves.step) > _BEYOND_NOISE * moves.scatter
        length = np.where(real, np.abs(moves.step) / sigma, 0.0)
    return np.max(np.nan_to_num(length), axis=0)


def _of_products(sums: Sums) -> float:
    """Probability of a sum of products of neighbours: normal, for many of them."""
    return float(ndtr(-(float(sums.value) - float(sums.mean)) / np.sqrt(float(sums.variance))))


def _of_squares(sums: Sums) -> float:
    """Probability of a sum of squares: chi^2's distribution of this mean and variance (Welch 1938 and Satterthwaite
    1946)."""
    scale, degrees = _scaled(sums)
    return float(chdtrc(degrees, float(sums.value) / scale)) if degrees > 0 else float("nan")


def _scaled(sums: Sums) -> tuple[float, float]:
    mean, variance = float(sums.mean), float(sums.variance)
    return (0.5 * variance / mean, 2 * mean**2 / variance) if mean > 0 and variance > 0 else (1.0, 0.0)


def _runs(pairs: Sums, agreeing: float) -> float:
    """Excess of neighbours with the same sign (few runs) above half of all: in standard deviations.

    For a correlation rho of neighbours the expected share is 1/2 + asin(rho) / pi (Sheppard 1899).
    """
    _, mean, variance, size, of_particles = (float(number) for number in pairs)
    expected = size * (0.5 + np.arcsin(np.clip(mean / size, -1, 1)) / np.pi)
    return (agreeing - expected) / (0.5 * np.sqrt(size * variance / (variance - of_particles)))


@dataclass(frozen=True)
class _Part:
    """Sums of a part of the data: J^T J + 1, J^T r + latent, J^T U, of the latents that are kept."""

    precision: Float[ndarray, "kept kept"]
    gradient: Float[ndarray, " kept"]
    other_draws: Float[ndarray, "kept draw"]

    @classmethod
    def of(
        cls, part: Half, number: int | None, latent: Float[ndarray, " latent"], kept: Int[ndarray, " kept"]
    ) -> "_Part":
        matrix, gradient, other = (np.asarray(own if number is None else own[number], np.float64) for own in part)
        return cls(matrix[np.ix_(kept, kept)] + np.eye(len(kept)), (gradient + latent)[kept], other[kept])


def _kept(n_latent: int, free_scale: Places) -> Int[ndarray, " kept"]:
    """All latents but those of the likelihood."""
    left_out = () if free_scale is None else np.atleast_1d(free_scale)
    return np.setdiff1d(np.arange(n_latent, dtype=np.int64), left_out)


def _score(half: _Part, whole: _Part) -> tuple[Float[ndarray, " kept"], Float[ndarray, "kept kept"]]:
    """The gradient of a half at the maximum of the whole (a Gauss-Newton step away, where the search has not quite got
    there), and its covariance if the model is true: A_h - A_h A^-1 A_h, and what other draws add."""
    share = np.linalg.solve(whole.precision, half.precision).T
    score = half.gradient - share @ whole.gradient
    other = half.other_draws - share @ whole.other_draws
    covariance = half.precision - share @ half.precision
    if other.shape[1]:
        covariance = covariance + other @ other.T / other.shape[1]
    return score, 0.5 * (covariance + covariance.T)


def _of_halves(residue: Residue, latent: Float[ndarray, " latent"], free_scale: Places) -> dict[str, float]:
    """Probability that both halves want the same values: the gradient of one at the maximum of both, by its covariance,
    in the combinations of latents that both halves constrain."""
    if residue.whole is None or residue.halves is None:
        return {}
    kept, found = _kept(len(latent), free_scale), {}
    whole = _Part.of(residue.whole, None, latent, kept)
    if not np.isfinite(whole.precision).all() or not len(kept):
        return {}
    lower = np.linalg.cholesky(whole.precision)
    for number, names in enumerate(residue.pairs):
        own = _Part.of(residue.halves, 2 * number, latent, kept)
        score, covariance = _score(own, whole)
        share = np.linalg.solve(lower, np.linalg.solve(lower, own.precision).T)
        part, directions = np.linalg.eigh(0.5 * (share + share.T))
        chosen = np.linalg.solve(lower.T, directions[:, part * (1 - part) > _KNOWN])
        if not chosen.shape[1]:
            continue
        along, spread = chosen.T @ score, chosen.T @ covariance @ chosen
        square = np.maximum(along @ np.linalg.solve(spread, along), 0.0)
        half = " half" if residue.pairs is HALVES else ""
        found[f"{names[0]} against {names[1]}{half}"] = float(chdtrc(chosen.shape[1], square))
    return found
