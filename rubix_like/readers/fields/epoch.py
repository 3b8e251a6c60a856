"""The epoch of a snapshot: scale factor, Hubble parameter, cosmology, and the periodic box."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from rubix_like.physics.cosmology import MatterAndLambda, snapshot_cosmology
from rubix_like.readers.containers.container import AbstractContainer, as_number, as_text
from rubix_like.readers.fields.field_map import FieldMap

SAME_TIME: float = 1e-3
"""How far two statements of one scale factor or time may differ, as a ratio."""

ROUNDING: float = 1e-4
"""How far a scale factor may be above 1: the last step of a run may end a little after redshift 0."""


@dataclass(frozen=True)
class Epoch:
    """Scale factor and h (1 for a run without expansion), the snapshot's `time` as stored, cosmology and box.

    `box_size`: the three sides as stored (unit of the stars' position), None where nothing is periodic. `cosmology` is
    None for a run without expansion; `is_isolated` where the header, or the field map, says that it is one.
    """

    scale_factor: float
    h: float
    time: float
    box_size: tuple[float, float, float] | None
    cosmology: MatterAndLambda | None
    cosmology_text: str
    simulation: str
    is_isolated: bool = False

    @property
    def redshift(self) -> float | None:
        """1 / a - 1; None for a run without expansion."""
        return None if self.cosmology is None else 1 / self.scale_factor - 1

    @property
    def universe_age(self) -> float | None:
        """Age of the Universe in yr, None for a run without expansion."""
        return None if self.cosmology is None else self.cosmology.age(1 / self.scale_factor - 1)


def read_epoch(container: AbstractContainer, field_map: FieldMap) -> Epoch:
    """The epoch in the header of a file; raises ValueError where something is missing or impossible."""
    header = field_map.header
    simulation = next((text for place in header.simulation if (text := as_text(_stored(container, place)))), "")
    box_size = _box_size(container, header.box_size)
    expands = _expands(container, field_map)
    if not expands:
        h = first_number(container, header.h) or 1.0
        time = first_number(container, header.time) or 0.0
        text = "none (a run without expansion)"
        return Epoch(1.0, h, time, box_size, None, text, simulation, is_isolated=expands is not None)
    scale_factor = _scale_factor(container, field_map)
    h, omega_m = _needed(container, field_map, "h"), _needed(container, field_map, "omega_m")
    omega_l = first_number(container, header.omega_l) if header.flat else _needed(container, field_map, "omega_l")
    omega_l = 1.0 - omega_m if omega_l is None else omega_l
    text = f"H0={100 * h:g}, Omega_m={omega_m:g}, Omega_Lambda={omega_l:g} (snapshot)"
    try:
        cosmology = snapshot_cosmology(h, omega_m, omega_l)
    except ValueError as error:
        raise ValueError(f"{container.name}: {error}") from error
    return Epoch(scale_factor, h, scale_factor, box_size, cosmology, text, simulation)


def _box_size(container: AbstractContainer, places: tuple[str, ...]) -> tuple[float, float, float] | None:
    """Sides of the periodic box as stored; None where they are 0 or not stated. Raises ValueError for other numbers."""
    stated = next((place for place in places if _stored(container, place) is not None), None)
    if stated is None:
        return None
    stored = _stored(container, stated)
    sides = [side for side in map(as_number, np.asarray(stored).reshape(-1)) if side is not None and side >= 0]
    if len(sides) == 1:
        sides *= 3
    if len(sides) != 3 or (min(sides) == 0 < max(sides)):
        raise ValueError(
            f"{container.name}: {stated}: expected the side of a periodic box, or its three sides, or 0 for none, got "
            f"{stored}; correct it, or download the file again"
        )
    x, y, z = sides
    return (x, y, z) if x else None


def side_words(sides: Sequence[float] | ndarray) -> str:
    """The side of a cubic box, or the three of another one."""
    texts = [f"{side:g}" for side in sides]
    return texts[0] if len(set(texts)) == 1 else " x ".join(texts)


def _expands(container: AbstractContainer, field_map: FieldMap) -> bool | None:
    """Whether the run is cosmological, by the field map or the header; None where neither tells.

    A scale factor and a redshift that agree prove it, unless the header states Omega_m = 0.
    """
    if field_map.expansion == "never":
        return False
    header = field_map.header
    stated = first_number(container, header.cosmological)
    if stated is not None:
        return stated > 0
    omega_m, time = first_number(container, header.omega_m), first_number(container, header.scale_factor)
    redshift = first_number(container, header.redshift)
    if omega_m == 0:
        return False
    differ = time is not None and redshift is not None and abs(time * (1.0 + redshift) - 1.0) >= SAME_TIME
    agree = time is not None and redshift is not None and not differ
    if field_map.expansion == "always" or agree:
        return True
    return None if omega_m is None else not differ


def _scale_factor(container: AbstractContainer, field_map: FieldMap) -> float:
    """The scale factor, or 1 / (1 + redshift) where it is missing."""
    header = field_map.header
    redshift = first_number(container, header.redshift)
    stored = first_number(container, header.scale_factor)
    if stored is None and (redshift is None or redshift <= -1):
        stored = _needed(container, field_map, "scale_factor")
    scale_factor = 1.0 / (1.0 + (redshift or 0.0)) if stored is None else stored
    group = _group(header.scale_factor[0])
    place = f"{container.name}: {group}" if group else f"header of the field map '{field_map.title}'"
    if not 0.01 < scale_factor <= 1.0 + ROUNDING:
        raise ValueError(
            f"{place}: expected a scale factor {_name(header.scale_factor[0])} in (0.01, 1], got {scale_factor}; "
            f"{field_map.title} is read as a cosmological simulation: is the file of another one?"
        )
    if redshift is not None and abs(scale_factor * (1.0 + redshift) - 1.0) > SAME_TIME:
        raise ValueError(
            f"{place}: expected scale factor = 1 / (1 + redshift), got {scale_factor} and redshift {redshift}; "
            f"correct the one that is wrong"
        )
    return min(scale_factor, 1.0)


def _needed(container: AbstractContainer, field_map: FieldMap, key: str) -> float:
    """The number at `header.KEY` of the field map; raises ValueError where there is none."""
    places = getattr(field_map.header, key)
    number = first_number(container, places)
    if number is not None:
        return number
    group, name = _group(places[0]), _name(places[0])
    also = {"scale_factor": " (or header.redshift)", "omega_l": " (or header.flat: true)"}.get(key, "")
    remedy = (
        f"download the file again as the simulation's team gives it, or correct header.{key}{also} in the field map "
        f"'{field_map.name}'"
    )
    if group not in container.groups():
        raise ValueError(f"{container.name}: no group {group}; {container.contents()}; {remedy}")
    found = ", ".join(sorted(container.attributes(group))) or "none"
    raise ValueError(f"{container.name}: {group} has no attribute {name} that is a number; it has {found}; {remedy}")


def first_number(container: AbstractContainer, places: tuple[str, ...]) -> float | None:
    """The first of several attributes that is a number."""
    return next((number for place in places if (number := as_number(_stored(container, place))) is not None), None)


def _stored(container: AbstractContainer, place: str) -> object:
    """The attribute at a place; a field map may state a number in place of an attribute's name."""
    try:
        return float(place)
    except ValueError:
        return container.attribute(_group(place), _name(place))


def _group(place: str) -> str:
    return place.rpartition("/")[0]


def _name(place: str) -> str:
    return place.rpartition("/")[2]
