"""Tables along the detector's bins on a mesh: which of their axes is spread over devices, and the padding of it."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.tree_util import DictKey, GetAttrKey, SequenceKey, tree_map_with_path

from rubix_like.runtime.mesh.bin_split import PER_BIN, BinSplit, Pad


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
    """What `per_bin` says of a field, whose `name` is that of its class and its own."""

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
