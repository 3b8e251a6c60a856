"""What a painter does: particles in, a partial cube out that devices can add up, a cube in the end."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from rubix_like.lookup import TemplateTable
from rubix_like.scene import Scene
from rubix_like.setup import Setup


class AbstractPainter(eqx.Module):
    """One way to turn stars into light in spaxels and detector bins (`direct`; `basis` follows).

    A *partial* is a pytree of arrays that is linear in the particles' light: chunks and devices are added up, then
    `project` makes the cube. `contribution` sees one chunk of particles and is recomputed in the backward pass;
    `add` must be linear in the partial and the contribution, so that no partial is kept for it. `table` is what ages
    and metallicities are looked up in.
    """

    table: eqx.AbstractVar[TemplateTable]

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup) -> "AbstractPainter":
        """The painter for one run."""

    @abstractmethod
    def chunk(self, limit: int, n_corner: int) -> int:
        """Particles per chunk, at most `limit`, when each touches `n_corner` spaxels."""

    @abstractmethod
    def empty(self, n_spaxel: int) -> Any:
        """A partial without light."""

    @abstractmethod
    def contribution(
        self, scene: Scene, index: Int[Array, "particle corner"], weight: Float[Array, "particle corner"]
    ) -> Any:
        """What one chunk of particles adds, given its spaxels and weights (index n_spaxel = outside)."""

    @abstractmethod
    def add(self, partial: Any, contribution: Any) -> Any:
        """The partial with one chunk's contribution."""

    @abstractmethod
    def project(self, partial: Any) -> tuple[Float[Array, "spaxel wave"], Float[Array, "spaxel 2"]]:
        """Flux density per detector bin (1e-20 erg/s/cm2/Angstrom), and the sums of light and of light times v_los."""
