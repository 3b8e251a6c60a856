"""Dataclasses whose fields say what they mean, and the one way in which such a tree goes to HDF5 and comes back.

A field is described by its metadata: `name: Float[ndarray, " latent"] = field(metadata=described_as("what it means"))`.
Its annotation says the rest: arrays (of jaxtyping) become datasets with the attributes `unit` and `description`, whose
type and shape are checked when they are read; numbers, truth values and text become attributes of the group; cubes and
dataclasses become groups; mappings become groups of such members, in which text is a dataset. What may be None, what
has a default and members of mappings may be missing.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args, get_origin

import h5py
import numpy as np
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.hdf5_cube import read_group, write_group

_NO_SIZES: Mapping[str, int] = MappingProxyType({})


def described_as(meaning: str, unit: str = "", at: str = "") -> dict[str, str]:
    """Metadata of a field: what it means, in which unit; the field is then written and read. `at`: its place in the
    group where that is not its name; "." is the group itself."""
    return {"description": meaning, "unit": unit, "at": at}


def write_tree(tree: Any, group: Any) -> None:
    """Write the described fields of a dataclass into an HDF5 group; those that are None are left out."""
    for field in _described_fields(tree):
        value, name = getattr(tree, field.name), field.metadata["at"] or field.name
        if isinstance(value, str | bool | int | float | np.generic):
            group.attrs[name] = value
        else:
            _write(_kind_of(field.type), value, group, name, field.metadata)


def _write(kind: Any, value: Any, group: Any, name: str, metadata: Mapping[str, str]) -> None:
    match value:
        case None:
            return
        case Cube():
            write_group(in_parts(value), group.create_group(name))
        case str():
            group[name] = value
        case Mapping():
            inside = group.create_group(name, track_order=True) if value else None
            for member, content in value.items():
                _write(get_args(kind)[1], content, inside, member, metadata)
        case _ if dataclasses.is_dataclass(value):
            write_tree(value, group.require_group(name))
        case _:
            add_dataset(group, name, value, metadata["description"], metadata["unit"], _axes(kind) or ())


def read_tree(kind: Any, group: Any, sizes: Mapping[str, int] = _NO_SIZES, **others: Any) -> dict[str, Any]:
    """The described fields of a dataclass from an HDF5 group, by name.

    `sizes`: of axes that are known, by the names that the annotations give them; an axis of several fields must have
    the same size in all of them. `others`: fields that are not described, of the dataclasses within; `labels` of a
    member of a mapping are its name. A field with a default may be missing, as in files of older versions. Raises
    ValueError for another type or shape, KeyError for what is missing.
    """
    known = dict(sizes)
    return {field.name: _read_field(field, group, known, sizes, others) for field in _described_fields(kind)}


def _read_field(
    field: Any, group: Any, known: dict[str, int], sizes: Mapping[str, int], others: Mapping[str, Any]
) -> Any:
    """The value of a field; `known`: sizes of the axes of the tree that it belongs to, `sizes`: those of all trees."""
    annotation, name = field.type, field.metadata["at"] or field.name
    if annotation in (str, bool, int, float):
        if name in group.attrs:
            return annotation(group.attrs[name])
    elif _is_in(annotation, group, name):
        return _read(_kind_of(annotation), group[name], known, sizes, others)
    if type(None) in get_args(annotation):
        return None
    if get_origin(annotation) is not None:
        return {}
    if field.default is dataclasses.MISSING:
        raise KeyError(f"{group.name.rstrip('/')}/{name} is missing")
    return field.default


def _is_in(annotation: Any, group: Any, name: str) -> bool:
    """Whether there is something of a field; of a dataclass one of its fields at least, as it may share its group."""
    kind = _kind_of(annotation)
    if name not in group or not dataclasses.is_dataclass(kind) or kind is Cube:
        return name in group
    names = [field.metadata["at"] or field.name for field in _described_fields(kind)]
    return any(name_ in group[name] or name_ in group[name].attrs for name_ in names)


def _read(kind: Any, stored: Any, known: dict[str, int], sizes: Mapping[str, int], others: Mapping[str, Any]) -> Any:
    if _axes(kind) is not None:
        return _read_array(kind, stored, known)
    if kind is Cube:
        return read_group(stored)
    if kind is str:
        return texts_of(stored)
    if dataclasses.is_dataclass(kind):
        plain = {field.name for field in dataclasses.fields(kind) if "description" not in field.metadata}
        given = {name: others[name] for name in plain & others.keys()}
        return kind(**read_tree(kind, stored, sizes, **others), **given)  # pyright: ignore[reportCallIssue]
    member = get_args(kind)[1]
    return {name: _read(member, inside, known, sizes, {**others, "labels": (name,)}) for name, inside in stored.items()}


def _read_array(kind: Any, dataset: Any, known: dict[str, int]) -> ndarray:
    """An array of the type and shape of its annotation, whose axes are known from then on."""
    axes, values = _axes(kind) or (), numbers_of(dataset)
    fits = values.ndim == len(axes) and (not isinstance(kind.dtypes, tuple) or values.dtype.name in kind.dtypes)
    if not fits or any(known.get(axis, size) != size for axis, size in zip(axes, values.shape, strict=True)):
        shape = ", ".join(str(known.get(axis, axis)) for axis in axes)
        raise ValueError(
            f"{dataset.name}: expected {kind.__name__.partition('[')[0].lower()} numbers of shape ({shape}), got "
            f"{values.dtype} of shape {values.shape}"
        )
    known.update(zip(axes, values.shape, strict=True))
    return values


def add_dataset(
    group: Any, name: str, data: Any, description: str, unit: str = "", axes: Sequence[str] = (), **options: Any
) -> None:
    """Write a dataset that says what is in it, the names of its first axes included; `options` are h5py's."""
    dataset = group.create_dataset(name, data=data, **options)
    dataset.attrs.update({"unit": unit, "description": description})
    for dimension, axis in zip(dataset.dims, axes, strict=False):
        dimension.label = "" if axis.isdigit() else axis.strip("*_")


def name_axes(file: Any) -> None:
    """Give all axes in a file the names of their labels as netCDF-4 does, by which xarray opens it: by dimension scales
    at its top, which hold the axis's indices unless they are there. Where a name is taken, the axis's length follows
    it."""
    datasets: list[Any] = []
    file.visititems(lambda _, found: datasets.append(found) if isinstance(found, h5py.Dataset) else None)
    datasets.sort(key=lambda dataset: dataset.name.count("/"))  # of the whole result before those of single sets
    for dataset in datasets:
        taken: list[str] = []
        for dimension, size in zip(() if dataset.is_scale else dataset.dims, dataset.shape or (), strict=False):
            label = dimension.label or "axis"
            names = (label, *(f"{label}_{size}{end}" for end in ("", "_2", "_3", "_4")))
            taken.append(next(name for name in names if name not in taken and _names_axis(file, name, size)))
            dimension.attach_scale(file[taken[-1]])


def _names_axis(file: Any, name: str, size: int) -> bool:
    """Whether a name stands for axes of this size; a new one does from now on."""
    if name not in file:
        add_dataset(file, name, np.arange(size, dtype=np.int32), "index along this axis")
        file[name].make_scale(name)
    return isinstance(file[name], h5py.Dataset) and file[name].is_scale and file[name].shape == (size,)


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


def _kind_of(annotation: Any) -> Any:
    given = get_args(annotation)
    return next(kind for kind in given if kind is not type(None)) if type(None) in given else annotation


def _axes(annotation: Any) -> tuple[str, ...] | None:
    """The names of the axes of an array's annotation; None for a number or text."""
    words = getattr(annotation, "dim_str", None)
    return None if words is None else tuple(words.split())
