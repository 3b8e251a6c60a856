"""Dataclasses whose fields say what they mean, and the one way in which such a tree goes to HDF5 and comes back.

A field is described by its metadata: `name: Float[ndarray, " latent"] = field(metadata=described_as("what it means"))`.
Its annotation says the rest: arrays (of jaxtyping) become datasets with the attributes `unit` and `description`, whose
type and shape are checked when they are read; numbers, truth values and text become attributes of the group.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from numpy import ndarray

_NO_SIZES: Mapping[str, int] = MappingProxyType({})


def described_as(meaning: str, unit: str = "") -> dict[str, str]:
    """Metadata of a field: what it means, in which unit; the field is then written and read."""
    return {"description": meaning, "unit": unit}


def write_tree(tree: Any, group: Any) -> None:
    """Write the described fields of a dataclass into an HDF5 group."""
    for field in _described_fields(tree):
        value = getattr(tree, field.name)
        if _axes(field.type) is None:
            group.attrs[field.name] = value
        else:
            add_dataset(group, field.name, value, **field.metadata)


def read_tree(kind: type, group: Any, sizes: Mapping[str, int] = _NO_SIZES) -> dict[str, Any]:
    """The described fields of a dataclass from an HDF5 group, by name.

    `sizes`: of axes that are known, by the names that the annotations give them; an axis of several fields must have
    the same size in all of them. A field with a default may be missing, as in files of older versions. Raises
    ValueError for another type or shape, KeyError for what is missing.
    """
    known, found = dict(sizes), {}
    for field in _described_fields(kind):
        axes = _axes(field.type)
        if field.default is not dataclasses.MISSING and field.name not in (group.attrs if axes is None else group):
            continue
        if axes is None:
            found[field.name] = field.type(group.attrs[field.name])
        else:
            dataset = group[field.name]
            values = numbers_of(dataset)
            fits = values.ndim == len(axes) and values.dtype.name in field.type.dtypes
            if not fits or any(known.get(axis, size) != size for axis, size in zip(axes, values.shape, strict=True)):
                shape = ", ".join(str(known.get(axis, axis)) for axis in axes)
                raise ValueError(
                    f"{dataset.name}: expected {field.type.__name__.partition('[')[0].lower()} numbers of shape "
                    f"({shape}), got {values.dtype} of shape {values.shape}"
                )
            known.update(zip(axes, values.shape, strict=True))
            found[field.name] = values
    return found


def add_dataset(group: Any, name: str, data: Any, description: str, unit: str = "", **options: Any) -> None:
    """Write a dataset that says what is in it; `options` are h5py's."""
    group.create_dataset(name, data=data, **options).attrs.update({"unit": unit, "description": description})


def texts_of(dataset: Any) -> Any:
    """The text, or array of texts, in a dataset; raises ValueError for a group."""
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(f"{dataset.name}: expected text, got a group")
    return dataset.asstr()[()]


def numbers_of(dataset: Any, shape: tuple[int, ...] | None = None, *, finite: bool = False) -> ndarray:
    """The numbers in a dataset; raises ValueError for anything else in it, and for another `shape` (None: any)."""
    values = np.asarray(dataset[()])
    if values.dtype.kind not in "fiub" or shape not in (None, values.shape):
        wanted = "numbers" if shape is None else f"numbers of shape {shape}"
        raise ValueError(f"{dataset.name}: expected {wanted}, got {values.dtype} of shape {values.shape}")
    if finite and not np.isfinite(values).all():
        raise ValueError(f"{dataset.name}: expected finite numbers, got others")
    return values


def _described_fields(kind: Any) -> Iterator[Any]:
    return (field for field in dataclasses.fields(kind) if "description" in field.metadata)


def _axes(annotation: Any) -> tuple[str, ...] | None:
    """The names of the axes of an array's annotation; None for a number or text."""
    words = getattr(annotation, "dim_str", None)
    return None if words is None else tuple(words.split())
