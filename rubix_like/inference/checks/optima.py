"""Maxima of a posterior beside the best one, among the places where the starts of a search ended."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.words import counted, listed

AS_LIKELY: float = 4.5
"""Largest difference of the losses of two optima that are both told: the density is 1 % there, as at 3 sigma."""

FAR: float = 5.0
"""Distance, in standard deviations of a latent, of two places that are not the same."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Another maximum: its latents, its values in the order of `free.labels`, how much higher its loss (half of chi^2
    and of the squared latents) is, which values differ by more than 5 sigma, and the starts (from 1) that ended there.
    """

    free: Free
    latent: Float[ndarray, " latent"]
    excess: float
    differing: tuple[str, ...]
    starts: tuple[int, ...]

    @property
    def values(self) -> Float[ndarray, " latent"]:
        """The values there, in the parameters' units."""
        return np.asarray(self.free.flat(self.latent))

    @property
    def sentence(self) -> str:
        """A sentence on where it is."""
        which = counted(len(self.starts), "start")
        return (
            f"{which} ended at another place that fits {'as' if self.excess <= 1 else 'almost as'} well (loss higher "
            f"by {self.excess:.2g}); it differs in {listed(self.differing)}"
        )


def other_optima(
    free: Free, starts: SearchState, best: Float[ndarray, " latent"], laplace: Laplace | None
) -> tuple[Optimum, ...]:
    """Places where other starts converged at a loss higher by at most `AS_LIKELY`, best first, each place once.

    Two ends are at one place if no latent differs by more than `FAR` standard deviations of the best one's Gaussian
    approximation; without that approximation no place is told from another, and there are none.
    """
    if laplace is None:
        return ()
    excess = starts.loss - starts.loss[starts.best]
    near = np.flatnonzero(starts.converged & (excess <= AS_LIKELY))
    places: list[tuple[ndarray, list[int]]] = [(np.asarray(best), [])]
    for number in near[np.argsort(excess[near], kind="stable")]:
        latent = starts.latent[number]
        same = [own for place, own in places if not _apart(latent, place, laplace).any()]
        if same:
            same[0].append(int(number))
        else:
            places.append((latent, [int(number)]))
    labels = np.array(free.labels, dtype=object)
    return tuple(
        Optimum(
            free=free,
            latent=latent,
            excess=float(excess[numbers[0]]),
            differing=tuple(labels[_apart(latent, np.asarray(best), laplace)]),
            starts=tuple(number + 1 for number in numbers),
        )
        for latent, numbers in places[1:]
    )


def _apart(one: ndarray, other: ndarray, laplace: Laplace) -> ndarray:
    return np.abs(one - other) > FAR * laplace.sigma
