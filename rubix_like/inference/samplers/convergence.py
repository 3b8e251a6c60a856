"""Whether chains have converged and how much their draws are worth, by ArviZ, and that in sentences.

R-hat (rank-normalised and folded) and effective sample sizes: Vehtari, Gelman, Simpson, Carpenter & Buerkner (2021,
Bayesian Analysis 16, 667); E-BFMI: Betancourt (2016, arXiv:1604.00695).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.inference.checks.notes import notes_on_spread
from rubix_like.inference.checks.uncertainties import advice_at_edge, edges_from
from rubix_like.inference.posterior.fit_model import Free, shown
from rubix_like.inference.posterior.posterior import MOST_DENSE
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import listed, percent

MOST_R_HAT: float = 1.01
"""R-hat above which chains do not agree (Vehtari et al. 2021)."""

LEAST_ESS: float = 100.0
"""Effective sample size, for each chain, below which means and limits are rough (Vehtari et al. 2021)."""

LEAST_BFMI: float = 0.3
"""E-BFMI below which the energies change too slowly from draw to draw (Betancourt 2016)."""

AT_THE_EDGE: float = 0.16
"""Share of the draws beyond `edges.edges_from`, from which on a value is at the edge of its prior."""

APART: float = 4.0
"""Distance of the means of two chains that are in different places, in units of both chains' standard deviations."""

_FEWEST = 4
"""The least number of draws of a chain for which ArviZ computes diagnostics."""


@dataclass(frozen=True, eq=False)
class Convergence:
    """R-hat and effective sample sizes of every number, in the order of the labels; NaN where there is none.

    | field | shape | |
    |---|---|---|
    | r_hat | (latent,) | spread of all draws over that within the chains: 1 where they agree; NaN for one chain |
    | ess_bulk, ess_tail | (latent,) | independent draws that would be worth as much, for means and for limits |
    | e_bfmi | (chain,) | mean squared change of the energy over its variance: low where tails are hard to reach |

    Variational draws have no R-hat and no E-BFMI; they are worth half their number, every second one being the mirror
    image of the one before.
    """

    r_hat: Float[ndarray, " latent"]
    ess_bulk: Float[ndarray, " latent"]
    ess_tail: Float[ndarray, " latent"]
    e_bfmi: Float[ndarray, " chain"]


def convergence_of(sampled: Sampled, values: Float[ndarray, "chain draw latent"]) -> Convergence:
    """R-hat, effective sample sizes and E-BFMI of draws; `values` are in the order of the labels.

    Numbers that do not change within a chain have none. Raises ConfigError where ArviZ is missing.
    """
    n_chain, n_draw, n_latent = values.shape
    nothing = np.full(n_latent, np.nan)
    if not sampled.is_chain:
        many = np.full(n_latent, n_chain * n_draw / 2)
        return Convergence(nothing, many, many, np.full(n_chain, np.nan))
    arviz = import_optional("arviz", "the convergence of chains")
    r_hat, bulk, tail = nothing.copy(), nothing.copy(), nothing.copy()
    moving = _moving(values).all(axis=0) & np.isfinite(values).all(axis=(0, 1))
    for index in np.flatnonzero(moving) if n_draw >= _FEWEST else ():
        draws = np.asarray(values[:, :, index], np.float64)
        r_hat[index] = arviz.rhat(draws) if n_chain > 1 else np.nan
        bulk[index], tail[index] = arviz.ess(draws, method="bulk"), arviz.ess(draws, method="tail")
    return Convergence(r_hat, bulk, tail, _bfmi(arviz, sampled))


def _bfmi(arviz: Any, sampled: Sampled) -> Float[ndarray, " chain"]:
    """NaN where there are no energies, or too few, or where they do not change."""
    if sampled.n_draw < _FEWEST or "energy" not in sampled.statistics:
        return np.full(sampled.n_chain, np.nan)
    energy = np.asarray(sampled.statistics["energy"], np.float64)
    moving = _moving(energy[:, :, None])[:, 0]
    safe = np.where(moving[:, None], energy, np.arange(sampled.n_draw))
    return np.where(moving, arviz.bfmi(safe), np.nan)


def _moving(values: Float[ndarray, "chain draw latent"]) -> Bool[ndarray, "chain latent"]:
    """Whether each number has changed within a chain."""
    return values.max(axis=1) > values.min(axis=1)


def trouble_of_chains(found: Convergence) -> str:
    """Why draws are not those of the posterior; empty where nothing is known against them."""
    highest = float(np.max(np.nan_to_num(found.r_hat, nan=0.0), initial=0.0))
    return f"the chains do not agree (R-hat up to {highest:.4g})" if highest > MOST_R_HAT else ""


def notes_on_sampling(sampler: AbstractSampler, free: Free, sampled: Sampled, found: Convergence) -> list[str]:
    """Notes to read before draws are used, the sampler's among them."""
    if not sampled.is_chain:
        return [*sampler.notes(sampled), *_on_values(free, sampled.latent)]
    section = f"fit.sampling.{sampler.settings.section_name}"
    return [
        *_on_chains(free, sampled, found, section),
        *sampler.notes(sampled),
        *_on_energies(found, section),
        *_on_values(free, sampled.latent),
    ]


def _on_chains(free: Free, sampled: Sampled, found: Convergence, section: str) -> Iterator[Note]:
    """Notes on chains that do not agree, or say little."""
    if sampled.n_draw < _FEWEST:
        yield Note(
            "chains.short",
            f"{sampled.n_draw} draws of a chain say nothing of its convergence; raise {section}.draws",
            WARNING,
        )
        return
    labels, n_chain = np.array(free.labels, dtype=object), sampled.n_chain
    stuck = np.flatnonzero(~_moving(sampled.latent).any(axis=1)) + 1
    if len(stuck):
        yield Note(
            "chains.stuck",
            f"chain {listed(map(str, stuck))} never moved: its draws are one point; raise {section}.warmup",
            WARNING,
        )
    yield from _on_places(free, sampled)
    if n_chain == 1:
        yield Note(
            "chains.single",
            "there is one chain: R-hat, which compares chains, cannot be had; sample at least 4 to see if they agree",
            WARNING,
        )
    apart = found.r_hat > MOST_R_HAT
    if apart.any():
        yield Note(
            "chains.disagree",
            f"R-hat is above {MOST_R_HAT} for {_worst(labels, found.r_hat, apart, '.4f')}: the chains do not agree "
            f"yet; raise {section}.draws and {section}.warmup",
            WARNING,
        )
    least = np.fmin(found.ess_bulk, found.ess_tail)
    few = least < LEAST_ESS * n_chain
    if few.any():
        yield Note(
            "chains.few_draws",
            f"the effective sample size is below {LEAST_ESS * n_chain:.0f} ({LEAST_ESS:.0f} for each chain) for "
            f"{_worst(labels, -least, few, '.0f')}: means and limits are rough; raise {section}.draws",
            WARNING,
        )


def _on_places(free: Free, sampled: Sampled) -> Iterator[Note]:
    """Notes on chains far from the one with the lowest loss."""
    mean, sd = sampled.latent.mean(axis=1), sampled.latent.std(axis=1)
    loss = np.asarray(sampled.statistics["loss"]).mean(axis=1)
    lowest = int(np.argmin(np.where(np.isfinite(loss), loss, np.inf)))
    distance = np.abs(mean - mean[lowest]) / np.maximum(np.hypot(sd, sd[lowest]), np.finfo(float).tiny)
    away = distance > APART
    others = np.flatnonzero(away.any(axis=1))
    if not len(others):
        return
    names = listed(label for label, is_away in zip(free.labels, away.any(axis=0), strict=True) if is_away)
    gaps = ", ".join(f"{loss[chain] - loss[lowest]:+.3g}" for chain in others)
    chains = listed(str(chain + 1) for chain in others)
    yield Note(
        "chains.several_maxima",
        f"chain {chains} of {sampled.n_chain} is in another place than chain {lowest + 1} (mean loss {gaps}), in "
        f"{names}: the posterior has several maxima, and how much each weighs is not known; narrow the priors to one",
        WARNING,
    )


def _on_energies(found: Convergence, section: str) -> Iterator[Note]:
    """Notes on chains whose energy changes slowly."""
    slow = np.flatnonzero(found.e_bfmi < LEAST_BFMI)
    if len(slow):
        chains = listed(f"{chain + 1} ({found.e_bfmi[chain]:.2f})" for chain in slow)
        yield Note(
            "chains.energy",
            f"E-BFMI is below {LEAST_BFMI} for chain {chains}: the tails of the posterior are reached slowly, and "
            f"may be missing; narrow the priors or raise {section}.warmup",
            WARNING,
        )


def _on_values(free: Free, latent: Float[ndarray, "chain draw latent"]) -> Iterator[Note]:
    """Notes on values at the edge of their priors, that are not determined, or only together."""
    flat = np.asarray(free.own_normals(latent)).reshape(-1, latent.shape[2])
    below, above = (free.split(np.mean(sign * flat > edges_from(free, sign), axis=0)) for sign in (-1, 1))
    for parameter in free.parameters:
        low, high = below[parameter.name], above[parameter.name]
        share = low + high
        if np.any(share > AT_THE_EDGE):
            at_edge = share > AT_THE_EDGE
            advice = advice_at_edge(parameter, *(at_edge & (side > 0.5 * AT_THE_EDGE) for side in (low, high)))
            names = listed(np.array(parameter.labels, dtype=object)[at_edge.ravel()])
            yield Note(
                "prior.edge",
                f"up to {percent(share.max())} of the draws of {names} are at the edge of its prior "
                f"({shown(parameter.prior)}){advice}",
                WARNING,
            )
    sigma = flat.std(axis=0)
    correlation = None
    if 1 < flat.shape[1] <= MOST_DENSE and len(flat) > 1:
        scaled = (flat - flat.mean(axis=0)) / np.where(sigma > 0, sigma, 1)
        correlation = scaled.T @ scaled / len(flat)
    yield from notes_on_spread(free, sigma, correlation)


def _worst(labels: ndarray, badness: ndarray, chosen: ndarray, form: str) -> str:
    """The chosen labels, the worst first, with their numbers."""
    order = [index for index in np.argsort(-badness) if chosen[index]]
    return listed(f"{labels[index]} ({abs(badness[index]):{form}})" for index in order)
