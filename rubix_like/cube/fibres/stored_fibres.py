"""Spectra, places and weights of fibres in an HDF5 file, beside the cube that was made of them."""

import dataclasses
from typing import Any

import numpy as np

from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.fibres.spaxel_correlations import SpaxelCorrelations

_SPECTRA = ("flux", "variance", "truth", "bits")

_PAIRS = ("first", "second", "values", "wavelength")

_PARTS: dict[str, type[FibrePlaces] | type[CubeWeights]] = {"places": FibrePlaces, "weights": CubeWeights}

_PER_FIBRE = 200
"""Bytes, more than all that is kept of a fibre in an exposure beside its spectrum."""


def write_fibres(fibres: FibreSpectra, group: Any) -> None:
    """Write them into an empty group of an open file; `contributions` are left out."""
    group.attrs["layout"] = fibres.layout
    group.attrs["description"] = "spectra that the cube was made of, flux of a spaxel = sum of weights times flux"
    for name in (*_SPECTRA, "mask"):
        if getattr(fibres, name) is not None:
            _store(group, name, getattr(fibres, name))
    for part in _PARTS:
        _store_part(group.create_group(part), getattr(fibres, part))


def _store_part(group: Any, part: FibrePlaces | CubeWeights) -> None:
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if isinstance(value, int | float | str):
            group.attrs[field.name] = value
        elif value is not None:
            _store(group, field.name, value)


def _store(group: Any, name: str, value: Any) -> None:
    """An array in one chunk, of which it is known on reading whether it is damaged (fletcher32)."""
    values = np.asarray(value)
    group.create_dataset(name, data=values, chunks=values.shape, fletcher32=True)


def load_fibres(group: Any) -> FibreSpectra:
    """The spectra of a group that `write_fibres` filled; raises ValueError for arrays that do not go together."""
    arrays = {name: group[name][()] for name in (*_SPECTRA, "mask") if name in group}
    made: dict[str, Any] = {}
    for part, kind in _PARTS.items():
        inside = group[part]
        values = {name: dataset[()] for name, dataset in inside.items()}
        numbers = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in inside.attrs.items()
        }
        made[part] = kind(**values, **numbers)
    shape, weights = arrays["flux"].shape, made["weights"]
    spectra = [arrays[name].shape for name in _SPECTRA if name in arrays]
    if set(spectra) != {shape} or weights.n_fibre != shape[0] or len(made["places"]) != shape[0]:
        raise ValueError(f"fibres: expected spectra, places and weights of {shape[0]} fibres, got others")
    return FibreSpectra(
        **{name: arrays.get(name) for name in (*_SPECTRA, "mask")}, **made, layout=str(group.attrs["layout"])
    )


def write_correlations(correlations: SpaxelCorrelations, group: Any) -> None:
    """Write them into an empty group of an open file."""
    group.attrs["description"] = "correlations of the pairs of spaxels (first, second), numbered row after row"
    for name in _PAIRS:
        _store(group, name, getattr(correlations, name))


def load_correlations(group: Any, shape: tuple[int, int]) -> SpaxelCorrelations:
    """Those of a group that `write_correlations` filled, of a cube with so many rows and columns; raises ValueError for
    arrays that do not go together."""
    arrays = {name: group[name][()] for name in _PAIRS}
    (n_pair,), n_plane = arrays["first"].shape, len(arrays["wavelength"])
    pairs = np.stack([arrays["first"], arrays["second"]])
    if arrays["values"].shape != (n_plane, n_pair) or not ((pairs >= 0) & (pairs < shape[0] * shape[1])).all():
        raise ValueError(f"correlations: expected pairs of {shape[0] * shape[1]} spaxels, got others")
    return SpaxelCorrelations(**arrays, shape=shape)


def fibres_bytes(weights: CubeWeights, n_wave: int, bytes_per_bin: int) -> int:
    """Bytes of such a group, at most, with so many bytes for a bin of one spectrum."""
    arrays = sum(np.asarray(own).nbytes for own in (weights.near, weights.weights, weights.coverage))
    return arrays + weights.n_fibre * (n_wave * bytes_per_bin + _PER_FIBRE)
