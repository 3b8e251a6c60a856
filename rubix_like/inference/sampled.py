"""What a sampler hands over: the draws of the latents, how they were made, and by which keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Shaped, UInt32
from numpy import ndarray

Method = Literal["nuts", "geovi", "mgvi"]

METHODS: Mapping[Method, str] = {"nuts": "NUTS", "geovi": "geoVI", "mgvi": "MGVI"}
"""Their names in sentences."""

Statistics = Mapping[str, Shaped[ndarray, "chain draw"]]
"""Name -> one number of every draw."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Draws of the latents from the posterior, or from an approximation of it; host arrays.

    | field | shape | |
    |---|---|---|
    | method | | "nuts", "geovi" or "mgvi" (variational inference: one chain, every second draw a mirror image) |
    | latent | (chain, draw, latent) | of which the priors are standard normal |
    | statistics | (chain, draw) by name | `loss`, -ln(posterior) + constant; of NUTS also `acceptance_rate`, |
    | | | `n_leapfrog`, `diverging` (bool), `tree_depth` and `energy` |
    | keys | (key, 2) | the random keys, one of each chain or pair of draws |
    | step_size | (chain,) or None | of NUTS's leapfrog steps, in standard deviations of the posterior |
    | notes | | sentences on what should be known of them |
    """

    method: Method
    latent: Float[ndarray, "chain draw latent"]
    statistics: Statistics
    keys: UInt32[ndarray, "key 2"]
    step_size: Float[ndarray, " chain"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def n_chain(self) -> int:
        """How many chains there are."""
        return self.latent.shape[0]

    @property
    def n_draw(self) -> int:
        """How many draws a chain has."""
        return self.latent.shape[1]

    @property
    def is_chain(self) -> bool:
        """Whether each draw depends on the one before."""
        return self.method == "nuts"
