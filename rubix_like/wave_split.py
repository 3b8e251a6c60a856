"""How the bins of the detector are spread over the devices of a mesh, and what devices tell each other of them."""

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

Pad = Literal["edge", "zero"]
PER_BIN: str = "per_bin"
"""Key of a field's metadata: (axis, how it is padded)."""


@dataclass(frozen=True)
class WaveSplit:
    """`n_wave` bins in `n_shard` neighbouring parts of the same size, the last ones padded; `axes`: of the mesh.

    Inside the model, each device holds one part of every spectrum; without axes all of it. Methods are for code that
    runs on each device of the mesh (in `shard_map`).
    """

    n_wave: int = 0
    n_shard: int = 1
    axes: tuple[str, ...] = ()

    @property
    def n_own(self) -> int:
        """Bins of one part, padding included."""
        return -(-self.n_wave // self.n_shard)

    @property
    def n_padded(self) -> int:
        """Bins of all parts together."""
        return self.n_own * self.n_shard

    @property
    def is_whole(self) -> bool:
        """Whether every device holds all bins."""
        return not self.axes

    def first(self) -> Int[Array, ""]:
        """The first bin of the own part."""
        if self.is_whole:
            return jnp.zeros((), jnp.int32)
        return lax.axis_index(self.axes) * self.n_own

    def add_up(self, own: Float[Array, "..."]) -> Float[Array, "..."]:
        """The sum of all parts' values."""
        return own if self.is_whole else lax.psum(own, self.axes)

    def gather(self, own: Float[Array, " own"]) -> Float[Array, " wave"]:
        """A vector over all bins, from the parts of it; without the padding."""
        if self.is_whole:
            return own
        return lax.all_gather(own, self.axes, tiled=True)[: self.n_wave]


WHOLE = WaveSplit()
"""Every device holds all bins."""


def per_bin(axis: int = -1, *, pad: Pad = "edge") -> dict[str, tuple[int, Pad]]:
    """Says of a module's array that it has the detector's bins along `axis`, so a device holds those of its own part.

    `name: Float[Array, " wave"] = equinox.field(metadata=per_bin())`. `pad`: what follows the last bin where the parts
    are not even: its value again, or 0 (bool: False).
    """
    return {PER_BIN: (axis, pad)}
