"""Tables along the detector's bins on a mesh: which of their axes is spread over devices, and the padding of it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from rubix_like.wave_split import PER_BIN, WaveSplit


def wave_specs(tree: Any, axes: tuple[str, ...]) -> Any:
    """For every array of a pytree of modules its PartitionSpec: `per_bin` axes over `axes`, all else whole."""
    leaves, marks, structure = _marked(tree)

    def spec(leaf: Any, mark: tuple[int, str] | None) -> PartitionSpec:
        if mark is None or not axes:
            return PartitionSpec()
        return PartitionSpec(*(None,) * _axis(leaf, mark), axes)

    return jax.tree.unflatten(structure, [spec(*own) for own in zip(leaves, marks, strict=True)])


def padded(tree: Any, split: WaveSplit) -> Any:
    """The pytree with its `per_bin` arrays padded to `split.n_padded` bins, each as it was declared.

    Arrays of numpy stay on the host. Raises ValueError for one that does not hold `split.n_wave` bins.
    """
    leaves, marks, structure = _marked(tree)

    def pad(leaf: Any, mark: tuple[int, str] | None) -> Any:
        if mark is None:
            return leaf
        axis = _axis(leaf, mark)
        if leaf.shape[axis] != split.n_wave:
            raise ValueError(
                f"a table along the bins: expected {split.n_wave} bins along axis {axis}, got shape {leaf.shape}; say "
                f"by per_bin(axis) which axis the bins lie along"
            )
        if split.n_padded == split.n_wave:
            return leaf
        widths = [(0, 0)] * leaf.ndim
        widths[axis] = (0, split.n_padded - split.n_wave)
        array = np if isinstance(leaf, np.ndarray) else jnp
        return array.pad(leaf, widths, mode="edge" if mark[1] == "edge" else "constant")

    return jax.tree.unflatten(structure, [pad(*own) for own in zip(leaves, marks, strict=True)])


def _marked(tree: Any) -> tuple[list[Any], list[tuple[int, str] | None], Any]:
    """The leaves, what `per_bin` says of each (None: nothing), and the structure."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [leaf for _, leaf in pairs], [_mark(tree, path) for path, _ in pairs], structure


def _mark(node: Any, path: tuple[Any, ...]) -> tuple[int, str] | None:
    """(axis, padding) of the first field on the way to a leaf that is along the bins."""
    for key in path:
        match key:
            case GetAttrKey(name=name):
                metadata = {field.name: field.metadata for field in dataclasses.fields(node)}[name]
                if PER_BIN in metadata:
                    return metadata[PER_BIN]
                node = getattr(node, name)
            case SequenceKey(idx=place) | DictKey(key=place):
                node = node[place]
            case _:
                raise TypeError(f"tables: expected modules, tuples, lists and dictionaries, got {type(node).__name__}")
    return None


def _axis(leaf: Any, mark: tuple[int, str]) -> int:
    """The axis along the bins, counted from the first; raises ValueError where the array does not have it."""
    axis, _ = mark
    if not -leaf.ndim <= axis < leaf.ndim:
        raise ValueError(f"a table along the bins: expected an axis {axis}, got shape {leaf.shape}")
    return axis % leaf.ndim
