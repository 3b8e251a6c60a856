"""What a galaxy's file lacks, what follows from it, and which settings make up for it."""

from dataclasses import dataclass, field

import numpy as np

from rubix_like.readers.ages import age_source
from rubix_like.readers.field_map import REQUIRED, Family
from rubix_like.readers.gas import IONISED_FROM, PRIMORDIAL_HYDROGEN
from rubix_like.readers.particles import Snapshot


@dataclass(frozen=True)
class Consequence:
    """A sentence about something missing, and the keys under `galaxy:` without which the file is refused."""

    text: str
    settings: dict[str, str] = field(default_factory=dict)


def missing_of_stars(snapshot: Snapshot, group: str) -> tuple[Consequence, ...]:
    """What a group of stars lacks."""
    there = snapshot.quantities("stars", group)
    found = list(_required(snapshot, "stars", group))
    if "velocity" not in there:
        found.append(
            Consequence("no velocities: galaxy.velocities: zero makes a cube without motions", {"velocities": "zero"})
        )
    if age_source({name: np.empty(0) for name in there}) is None:
        found.append(Consequence("no ages: galaxy.ages: recipe draws them from a stated history", {"ages": "recipe"}))
    if "metallicity" not in there:
        found.append(
            Consequence("no metallicities: galaxy.ages: recipe draws them, too, from a gradient", {"ages": "recipe"})
        )
    if "initial_mass" not in there:
        text = "no masses at birth: the mass now over the surviving fraction of the SSP library"
        found.append(Consequence(f"{text} (taken equal where the library has none)"))
    if "smoothing_length" not in there:
        found.append(
            Consequence(
                "no smoothing lengths: engine.deposit: smoothed takes them from the distances to the neighbours"
            )
        )
    return tuple(found)


def missing_of_gas(snapshot: Snapshot, group: str) -> tuple[Consequence, ...]:
    """What a group of gas lacks."""
    there = set(snapshot.quantities("gas", group))
    found = list(_required(snapshot, "gas", group))
    if "velocity" not in there:
        found.append(Consequence("no velocities: the gas is left out unless galaxy.velocities is zero"))
    if "metallicity" not in there:
        found.append(Consequence("no metallicities: the gas is left out"))
    found += [*_temperature(there), *_smoothing(there)]
    others = ("density", "star_formation_rate", "hydrogen_fraction", "oxygen_fraction")
    absent = [name for name in others if name not in there]
    if absent:
        found.append(Consequence(f"also not there: {', '.join(absent)}"))
    return tuple(found)


def _temperature(there: set[str]) -> list[Consequence]:
    if "temperature" in there:
        return []
    if "internal_energy" not in there:
        return [Consequence("no temperatures, nor an internal_energy that would tell them")]
    hydrogen = "hydrogen_fraction" if "hydrogen_fraction" in there else f"a hydrogen fraction of {PRIMORDIAL_HYDROGEN}"
    if "electron_abundance" in there:
        return [Consequence(f"no temperatures: they follow from internal_energy, electron_abundance and {hydrogen}")]
    text = f"no temperatures: they follow from internal_energy and {hydrogen}, the gas being taken as neutral below"
    return [Consequence(f"{text} {IONISED_FROM:g} K and ionised above")]


def _smoothing(there: set[str]) -> list[Consequence]:
    if "smoothing_length" in there:
        return []
    follows = "density" in there
    return [Consequence(f"no smoothing lengths{': they follow from mass and density' if follows else ''}")]


def _required(snapshot: Snapshot, family: Family, group: str) -> tuple[Consequence, ...]:
    there = snapshot.quantities(family, group)
    lacking = [name for name in REQUIRED[family] if name not in there]
    places = ", ".join(f"{name} ({snapshot.field_name(family, name, group)})" for name in lacking)
    return (Consequence(f"no {places}: the file cannot be read without"),) if lacking else ()
