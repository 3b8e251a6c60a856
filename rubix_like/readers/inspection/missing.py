"""List what a galaxy's file lacks, the consequences, and the settings that supply it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rubix_like.config.plug_ins import TABLE, field_map_names
from rubix_like.config.yaml_files import format_yaml
from rubix_like.errors import suggest
from rubix_like.readers.containers.container import AbstractContainer, as_text
from rubix_like.readers.derived_columns import IONISED_FROM, PRIMORDIAL_HYDROGEN, SOURCES, age_source
from rubix_like.readers.fields.field_map import QUANTITIES, REQUIRED, VECTORS, Family
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.runtime.words import counted

MOST_ATTRIBUTES: int = 40
"""Attributes of one place that are shown."""

_GUESSES: dict[str, str] = {
    "position": r"^(coordinates?|positions?|pos|x)$",
    "velocity": r"^(velocit(y|ies)|vel|vx)$",
    "mass": r"^(mass(es)?|m)$",
    "initial_mass": r"^(gfm_)?(initial|birth)_?mass(es)?$",
    "birth_scale_factor": r"^(gfm_)?(stellar)?(formation_?time|birth_?scale_?factors?)$",
    "age": r"^(stellar_?)?ages?$",
    "metallicity": r"^(gfm_|smoothed_?)?(metallicit(y|ies)|metal_?mass_?fractions?)$",
}
"""Names that datasets of each quantity often have."""

_UNITS = {**{name: QUANTITIES[name] for name in ("position", "velocity", "mass", "initial_mass")}, "age": "Gyr"}


def structure_lines(container: AbstractContainer) -> tuple[str, ...]:
    """A line for every group, dataset (shape and type) and attribute; damaged ones say so."""
    try:
        groups = container.groups()
    except ValueError as error:
        return (str(error),)
    lines = []
    for group in groups:
        lines += [group, *_attribute_lines(container, group)]
        lines += [f"    {name}  {stored_words(container, group, name)}" for name in dataset_names(container, group)]
    return tuple(lines)


def stored_shape(container: AbstractContainer, group: str, dataset: str) -> str:
    """`(7524, 3)`, `(7524)`, or why the shape is unknown."""
    try:
        return shape_words(container.shape(group, dataset))
    except ValueError as error:
        return str(error).removeprefix(f"{container.name}: ")


def shape_words(shape: tuple[int, ...]) -> str:
    """The shape in words, such as `(7524, 3)` or `(7524)`."""
    return str(shape).replace(",)", ")")


def stored_words(container: AbstractContainer, group: str, dataset: str) -> str:
    """`(7524, 3) float64`, or why these are unknown."""
    try:
        dtype = container.read(group, dataset, 0, 0).dtype.newbyteorder("=").name
    except ValueError as error:
        return str(error).removeprefix(f"{container.name}: ")
    return f"{stored_shape(container, group, dataset)} {dtype}"


def skeleton(container: AbstractContainer) -> str:
    """The start of a field map in YAML: the group that looks most like stars, its datasets guessed by their names."""
    groups = {group: _guess(dataset_names(container, group)) for group in container.groups()}
    group, fields = max(
        groups.items(),
        key=lambda found: (len(found[1]), re.search(r"star|PartType4", found[0], re.IGNORECASE) is not None),
        default=("PartType4", {}),
    )
    for quantity in ("position", "mass"):
        fields.setdefault(quantity, {"dataset": f"NAME_OF_{quantity.upper()}"})
    units = {name: {"unit": unit} for name, unit in _UNITS.items()}
    ordered = {name: fields[name] | units.get(name, {}) for name in QUANTITIES if name in fields}
    return format_yaml(
        {
            "title": "My simulation",
            "source": "where its units are documented",
            "expansion": "auto",
            "stars": {"groups": group, "fields": ordered},
        }
    )


def _guess(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Datasets by quantity; x or vx is the first of the three of a vector."""
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        place: dict[str, Any] = {"dataset": name}
        if name.lower() in {"x", "vx"}:
            place = {"stack": [name[:-1] + axis for axis in ("xyz" if name[-1] == "x" else "XYZ")]}
        for quantity, pattern in _GUESSES.items():
            if quantity not in found and re.match(pattern, name, re.IGNORECASE):
                found[quantity] = place
    return found


def dataset_names(container: AbstractContainer, group: str) -> tuple[str, ...]:
    """The datasets of a group; none where the group is damaged."""
    try:
        return container.datasets(group)
    except ValueError:
        return ()


def _attribute_lines(container: AbstractContainer, group: str) -> list[str]:
    try:
        names = container.attributes(group)
        texts = [f"    @{name} = {_shown(container.attribute(group, name))}" for name in names[:MOST_ATTRIBUTES]]
    except ValueError as error:
        return [f"    {str(error).removeprefix(f'{container.name}: ')}"]
    more = len(names) - MOST_ATTRIBUTES
    return [*texts, f"    ... and {counted(more, 'more attribute')}"] if more > 0 else texts


def _shown(value: object) -> str:
    text = as_text(value) if isinstance(value, bytes | str) else " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


_EXAMPLES = {"position": "[..., ..., ...]", "velocity": "[..., ..., ...]", "age": "{column: ..., unit: Gyr}"}
"""How the columns of a quantity are named in the settings."""


@dataclass(frozen=True)
class Consequence:
    """A sentence about something missing, and the keys under `galaxy:` without which the file is refused.

    `is_refused` where no key makes up for it.
    """

    text: str
    settings: dict[str, str] = field(default_factory=dict)
    is_refused: bool = False


def missing_of_stars(snapshot: Snapshot, group: str) -> tuple[Consequence, ...]:
    """The consequences of what a group of stars lacks."""
    there = snapshot.quantities("stars", group)
    found = list(required(snapshot, "stars", group))
    if "velocity" not in there:
        start = f"no velocities: {_place(snapshot, group, 'velocity')}"
        text = f"{start}galaxy.velocities: zero makes a cube without motions"
        found.append(Consequence(text, {"velocities": "zero"}))
    if age_source({name: np.empty(0) for name in there}) is None:
        quantity = next((name for name in SOURCES if name in snapshot.field_map.stars.fields), "age")
        text = f"no ages: {_place(snapshot, group, quantity)}galaxy.ages: recipe draws them from a stated history"
        found.append(Consequence(text, {"ages": "recipe"}))
    if "metallicity" not in there:
        start = f"no metallicities: {_place(snapshot, group, 'metallicity')}"
        text = f"{start}galaxy.ages: recipe draws them, too, from a gradient"
        found.append(Consequence(text, {"ages": "recipe"}))
    if "initial_mass" not in there:
        text = "no masses at birth: the mass now over the surviving fraction of the SSP library"
        found.append(Consequence(f"{text} (taken equal where the library has none)"))
    if "smoothing_length" not in there:
        text = "no smoothing lengths: engine.deposit: smoothed takes them from the distances to the neighbours"
        found.append(Consequence(text))
    return tuple(found)


def missing_of_gas(snapshot: Snapshot, group: str) -> tuple[Consequence, ...]:
    """The consequences of what a group of gas lacks."""
    there = set(snapshot.quantities("gas", group))
    found = list(required(snapshot, "gas", group))
    if "velocity" not in there:
        found.append(Consequence("no velocities: the gas is left out unless galaxy.velocities is zero"))
    if "metallicity" not in there:
        found.append(Consequence("no metallicities: the gas has no map of them, and forming stars no nebulae"))
    hydrogen = "hydrogen_fraction" if "hydrogen_fraction" in there else f"a hydrogen fraction of {PRIMORDIAL_HYDROGEN}"
    if "temperature" not in there and "internal_energy" not in there:
        found.append(Consequence("no temperatures, nor an internal_energy that would tell them"))
    elif "temperature" not in there and "electron_abundance" in there:
        text = f"no temperatures: they follow from internal_energy, electron_abundance and {hydrogen}"
        found.append(Consequence(text))
    elif "temperature" not in there:
        text = f"no temperatures: they follow from internal_energy and {hydrogen}, the gas being taken as neutral below"
        found.append(Consequence(f"{text} {IONISED_FROM:g} K and ionised above"))
    if "smoothing_length" not in there:
        follows = ": they follow from mass and density" if "density" in there else ""
        found.append(Consequence(f"no smoothing lengths{follows}"))
    if "density" not in there:
        found.append(Consequence("no densities"))
    return tuple(found)


def required(snapshot: Snapshot, family: Family, group: str) -> tuple[Consequence, ...]:
    """The consequences of lacking what stars and gas need: stars are refused, gas is left out."""
    there = snapshot.quantities(family, group)
    lacking = [name for name in REQUIRED[family] if name not in there]
    if not lacking:
        return ()
    if snapshot.field_map.name == TABLE:
        text = f"no {' and '.join(lacking)} recognised; {_columns(snapshot, family, group, lacking)}"
    else:
        absent = {name: " or ".join(_absent(snapshot, family, group, name)) or name for name in lacking}
        places = [
            f"{name} ({group}/{place}{_nearest(snapshot, family, group, name)})" for name, place in absent.items()
        ]
        text = f"no {', '.join(places)}"
    if family == "gas":
        return (Consequence(f"{text}: the gas is left out"),)
    return (Consequence(f"{text}: the file cannot be read without", is_refused=True),)


def unused_datasets(snapshot: Snapshot, family: Family, group: str) -> tuple[str, ...]:
    """The datasets of a group that the field map does not name."""
    fields = snapshot.field_map.family(family).fields.values()
    named = {name for field in fields for name in (*field.names, field.divide_by)}
    return tuple(name for name in dataset_names(snapshot.container, group) if name not in named)


def _place(snapshot: Snapshot, group: str, quantity: str) -> str:
    """The place of the stars' quantity in a table or a user field map; empty where nobody can tell."""
    if snapshot.field_map.name == TABLE:
        there = unused_datasets(snapshot, "stars", group)
        return f"{_columns(snapshot, 'stars', group, [quantity])}; or " if there else ""
    absent = _absent(snapshot, "stars", group, quantity)
    if not absent or snapshot.field_map.name in field_map_names():
        return ""
    near = _nearest(snapshot, "stars", group, quantity)
    return f"the field map names {' or '.join(absent)}, not in {group}{f'{near} Or ' if near else '; or '}"


def _absent(snapshot: Snapshot, family: Family, group: str, quantity: str) -> list[str]:
    """The datasets that the field map names for a quantity and that the group has not."""
    field = snapshot.field_map.family(family).fields.get(quantity)
    present = dataset_names(snapshot.container, group)
    return [name for name in field.names if name not in present] if field else []


def _nearest(snapshot: Snapshot, family: Family, group: str, quantity: str) -> str:
    """`; did you mean 'v'?` for the unused dataset whose name is nearest to one that the field map names.

    For a vector also the only unused one that has three columns.
    """
    unused = unused_datasets(snapshot, family, group)
    absent = _absent(snapshot, family, group, quantity)
    near = next((hint for name in absent if "did you mean" in (hint := suggest(name, unused))), "")
    triples = [name for name in unused if stored_shape(snapshot.container, group, name).endswith(", 3)")]
    if not near and absent and quantity in VECTORS and len(triples) == 1:
        return f"; did you mean '{triples[0]}'?"
    return near


def _columns(snapshot: Snapshot, family: Family, group: str, quantities: Sequence[str]) -> str:
    key = "columns" if family == "stars" else "gas"
    examples = [f"{name}: {_EXAMPLES.get(name, '...')}" for name in quantities]
    unused = ", ".join(unused_datasets(snapshot, family, group)) or "none"
    return f"name the columns, galaxy.{key}: {{{', '.join(examples)}}} (not used: {unused})"
