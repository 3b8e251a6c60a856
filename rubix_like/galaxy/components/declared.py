"""Declarations of what a kind of profile is set by, on the fields of the module that uses it.

A kind is one class: its name as a class variable called as the key of its section (`profile`, `curve`, `history`), and
fields made by `parameter` and `fixed`. Settings, limits, the JSON schema, tables of the documentation and parameters of
fits follow from them (`config.readers.components`). Within a section a key means the same, with the same unit and
limits, in every kind, so that `galaxy.NAME.SECTION.KEY` names one parameter.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx

REQUIRED = ...
"""The default of what has to be given."""


class Setting(NamedTuple):
    """Values that can be given for a field: a number in `unit` (empty: a pure one) within `limits`, as pydantic names
    them; a list of at least `shortest` such numbers; or one of the `choices`. `mark`: of a parameter, arguments of
    `config.parameters.Parameter`."""

    unit: str
    doc: str
    default: Any
    limits: Mapping[str, Any]
    shortest: int | None = None
    choices: tuple[str, ...] = ()
    mark: Mapping[str, Any] | None = None


def parameter(
    unit: str,
    doc: str,
    *,
    default: Any = REQUIRED,
    shortest: int | None = None,
    moves: bool = False,
    axis: str | None = None,
    role: str = "",
    **limits: Any,
) -> Any:
    """A leaf that can be set, fitted and sampled."""
    mark = {"moves": moves, "axis": axis, "role": role}
    return eqx.field(metadata={"setting": Setting(unit, doc, default, limits, shortest, mark=mark)})


def fixed(
    unit: str,
    doc: str,
    *,
    default: Any = REQUIRED,
    shortest: int | None = None,
    choices: tuple[str, ...] = (),
    **limits: Any,
) -> Any:
    """A static field that can be set, but not fitted."""
    return eqx.field(static=True, metadata={"setting": Setting(unit, doc, default, limits, shortest, choices)})
