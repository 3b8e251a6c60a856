"""The groups, datasets and attributes of a file that no field map fits, and the start of a field map for it."""

import re
from typing import Any

from rubix_like.config.yaml_files import format_yaml
from rubix_like.readers.containers.container import AbstractContainer, as_text
from rubix_like.readers.fields.field_map import QUANTITIES
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
    lines = []
    for group in container.groups():
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
    group, fields = max(groups.items(), key=_likeness, default=("PartType4", {}))
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


def _likeness(found: tuple[str, dict[str, Any]]) -> tuple[int, bool]:
    """How much a group with its guessed datasets looks like stars."""
    group, fields = found
    return len(fields), re.search(r"star|PartType4", group, re.IGNORECASE) is not None


def _guess(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    found = {}
    for name in names:
        for quantity, pattern in _GUESSES.items():
            if quantity not in found and re.match(pattern, name, re.IGNORECASE):
                found[quantity] = _place(name)
    return found


def _place(name: str) -> dict[str, Any]:
    """A dataset, or the three of a vector whose first is x or vx."""
    if name.lower() not in {"x", "vx"}:
        return {"dataset": name}
    following = {"x": "yz", "X": "YZ"}[name[-1]]
    return {"stack": [name, *(name[:-1] + axis for axis in following)]}


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
