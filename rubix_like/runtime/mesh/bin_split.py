"""How the bins of the detector are spread over the devices of a mesh, and what devices tell each other of them."""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, tree_map_with_path
from jaxtyping import Array, Bool, Float, Int, Num

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError

Pad = Literal["edge", "zero"]
PER_BIN: str = "per_bin"
"""Key of a field's metadata: (axis, how it is padded)."""


@dataclass(frozen=True)
class BinSplit:
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
        """The first bin of the device's part."""
        if self.is_whole:
            return jnp.zeros((), jnp.int32)
        return lax.axis_index(self.axes) * self.n_own

    def add_up(self, own: Float[Array, "..."]) -> Float[Array, "..."]:
        """The sum of all parts' values."""
        return own if self.is_whole else lax.psum(own, self.axes)

    def gather(self, own: Float[Array, " own"]) -> Float[Array, " wave"]:
        """A vector over all bins, from its parts; without the padding. Never for a cube."""
        if self.is_whole:
            return own
        return lax.all_gather(own, self.axes, tiled=True, to="invarying")[: self.n_wave]

    def gather_rows(self, own: Num[Array, "row own"]) -> Num[Array, "row wave"]:
        """A few spectra over all bins, from the parts of them; without the padding. Never for a cube."""
        if self.is_whole:
            return own
        return lax.all_gather(own, self.axes, axis=1, tiled=True, to="invarying")[:, : self.n_wave]

    def without_padding(self, own: Float[Array, "... own"]) -> Float[Array, "... own"]:
        """The device's part with 0 where there is no bin of the detector, as a sum over bins needs it."""
        if self.n_padded == self.n_wave:
            return own
        return jnp.where(self._real(own), own, jnp.zeros_like(own))

    def with_neighbours(self, own: Float[Array, "... own"], reach: int) -> Float[Array, "... longer"]:
        """The device's part and `reach` bins on each side of it, as whatever acts along wavelength needs them.

        Beyond the detector's ends, the first and the last bin go on. The neighbours send each other their borders: two
        exchanges however many devices there are. Raises ConfigError where a neighbour does not hold that many bins.
        """
        widths = [(0, 0)] * (own.ndim - 1) + [(reach, reach)]
        if self.is_whole or reach == 0:
            return jnp.pad(own, widths, mode="edge")
        if reach > self.n_own:
            raise ConfigError(
                f"devices: expected parts of at least {reach} bins, as far as a stage reaches along wavelength, got "
                f"{self.n_own} ({self.n_wave} bins on {self.n_shard} devices); use fewer devices, or devices.output: "
                f"replicated"
            )
        first, last = self.first(), self.n_wave - 1 - self.first()
        own = self._continued(own)
        places = self._places()
        steps = list(itertools.pairwise(places))
        below = lax.ppermute(own[..., -reach:], self.axes, steps)
        above = lax.ppermute(own[..., :reach], self.axes, [(high, low) for low, high in steps])
        below = jnp.where(first == 0, own[..., :1], below)
        above = jnp.where(last < self.n_own, own[..., -1:], above)
        return jnp.concatenate([below, own, above], axis=-1)

    def _places(self) -> list[int]:
        """The numbers by which `ppermute` knows the devices of the parts: it counts along the axes in the order of the
        mesh, whatever that of `axes`."""
        mesh = jax.sharding.get_abstract_mesh()
        names = [name for name in mesh.axis_names if name in self.axes]
        numbers = np.arange(self.n_shard).reshape([mesh.shape[name] for name in names])
        return numbers.transpose([names.index(name) for name in self.axes]).ravel().tolist()

    def _real(self, part: Float[Array, "... part"]) -> Bool[Array, "... part"]:
        """Which bins are the detector's, in the shape of `part`."""
        number = lax.broadcasted_iota(jnp.int32, part.shape, part.ndim - 1)
        return number < self.n_wave - self.first()

    def _continued(self, part: Float[Array, "... part"]) -> Float[Array, "... part"]:
        """The part with the detector's last bin instead of padding; in a part that is all padding, anything."""
        if self.n_padded == self.n_wave:
            return part
        last = jnp.clip(self.n_wave - 1 - self.first(), 0, self.n_own - 1)
        return jnp.where(self._real(part), part, lax.dynamic_slice_in_dim(part, last, 1, axis=-1))


WHOLE = BinSplit()
"""Every device holds all bins."""


@named_arguments
def per_bin(axis: int = -1, *, pad: Pad = "edge") -> dict[str, tuple[int, Pad]]:
    """Says of a module's array that it has the detector's bins along `axis`, so a device holds those of its own part.

    `name: Float[Array, " wave"] = equinox.field(metadata=per_bin())`. `pad`: what follows the last bin where the parts
    are not even: its value again, or 0 (bool: False). Raises ConfigError for another `axis` or `pad`.
    """
    return {PER_BIN: (axis, pad)}


def wave_specs(tree: Any, axes: tuple[str, ...]) -> Any:
    """For every array of a pytree of modules its PartitionSpec: `per_bin` axes over `axes`, all else whole."""

    def spec(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        mark = _mark(tree, path)
        if mark is None or not axes:
            return PartitionSpec()
        return PartitionSpec(*(None,) * mark.axis_of(leaf), axes)

    return tree_map_with_path(spec, tree)


def padded(tree: Any, split: BinSplit) -> Any:
    """The pytree with its `per_bin` arrays padded to `split.n_padded` bins, each as it was declared.

    Arrays of numpy stay on the host. Raises ValueError for one that does not hold `split.n_wave` bins.
    """

    def pad(path: tuple[Any, ...], leaf: Any) -> Any:
        mark = _mark(tree, path)
        if mark is None:
            return leaf
        axis = mark.axis_of(leaf)
        if leaf.shape[axis] != split.n_wave:
            raise ValueError(
                f"{mark.name}: expected {split.n_wave} bins along axis {axis}, got shape {leaf.shape}; say by "
                f"per_bin(axis) which axis the bins lie along"
            )
        if split.n_padded == split.n_wave:
            return leaf
        widths = [(0, 0)] * leaf.ndim
        widths[axis] = (0, split.n_padded - split.n_wave)
        array = np if isinstance(leaf, np.ndarray) else jnp
        return array.pad(leaf, widths, mode="edge" if mark.pad == "edge" else "constant")

    return tree_map_with_path(pad, tree)


class _Mark(NamedTuple):
    """The mark that `per_bin` puts on a field, whose `name` is that of its class and that of the field."""

    name: str
    axis: int
    pad: Pad

    def axis_of(self, leaf: Any) -> int:
        """The axis along the bins, counted from the first; raises ValueError where the array does not have it."""
        if not -leaf.ndim <= self.axis < leaf.ndim:
            raise ValueError(f"{self.name}: expected an axis {self.axis} along the bins, got shape {leaf.shape}")
        return self.axis % leaf.ndim


def _mark(node: Any, path: tuple[Any, ...]) -> _Mark | None:
    """The mark of the first field on the way to a leaf that has one; None where none has."""
    for key in path:
        match key:
            case GetAttrKey(name=name):
                fields = dataclasses.fields(node) if dataclasses.is_dataclass(node) else ()
                for field in fields:
                    if field.name == name and PER_BIN in field.metadata:
                        return _Mark(f"{type(node).__name__}.{name}", *field.metadata[PER_BIN])
                node = getattr(node, name)
            case SequenceKey(idx=place) | DictKey(key=place):
                node = node[place]
            case _:
                raise TypeError(f"tables: expected modules, tuples, lists and dictionaries, got {type(node).__name__}")
    return None
