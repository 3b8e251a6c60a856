"""Settings of the files and of what is selected from them: a halo or subhalo, a sphere, a box; the galaxy's centre."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from rubix_like.config.quantities import Integer, parse_number, parse_quantity
from rubix_like.config.settings import AbstractSettings


def _parse_length(value: object) -> float | str:
    """A bare number as it is; text with a unit in kpc, as text."""
    try:
        return parse_number(value)
    except ValueError:
        pass
    try:
        return f"{parse_quantity(value, 'kpc')!r} kpc"
    except ValueError as error:
        raise ValueError(
            f"expected a bare number (in the file's own unit) or a physical length such as '30 kpc', got {value!r}"
        ) from error


def _check_positive(value: float | str) -> float | str:
    if to_kpc(value, 1.0) <= 0:
        raise ValueError(f"expected more than 0, got {value}")
    return value


Length = Annotated[
    float | str,
    BeforeValidator(_parse_length),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "description": "in the file's own unit"},
                {"type": "string", "description": "physical length with its unit, e.g. '30 kpc'"},
            ]
        }
    ),
]
"""A bare number in the file's own unit of length (as stored there: often comoving, with h), or a physical length."""

AUTO = "auto"

Paths = Path | Annotated[tuple[Path, ...], Field(min_length=1)]
"""One path, which may stand for several files, or a list of files, which are taken as they are."""

Place = tuple[Length, Length, Length]
Extent = Annotated[Length, AfterValidator(_check_positive)]


def to_kpc(value: float | str, file_unit: float) -> float:
    """A `Length` in kpc; `file_unit`: kpc per unit of length of the file."""
    return parse_quantity(value, "kpc") if isinstance(value, str) else value * file_unit


class SphereSettings(AbstractSettings):
    """All particles within a radius; in a periodic box by their nearest images."""

    center: Place | None = None
    """Each coordinate in the file's own unit or with a unit (physical); null: `galaxy.center`, else the catalogue's."""
    radius: Extent
    """In the file's own unit, or with a unit (physical)."""


def _three(value: object) -> object:
    return value if isinstance(value, list | tuple) else (value, value, value)


class BoxSettings(AbstractSettings):
    """All particles in a box along the axes of the simulation; in a periodic box by their nearest images."""

    center: Place | None = None
    """Each coordinate in the file's own unit or with a unit (physical); null: `galaxy.center`, else the catalogue's."""
    size: Annotated[tuple[Extent, Extent, Extent], BeforeValidator(_three)]
    """Full side lengths, one for all or three, in the file's own unit or with a unit (physical)."""


class AbstractSelection(AbstractSettings):
    """Which files are read and what is selected from them: particles that fulfil all that is given."""

    reader: str = AUTO
    """'auto' (recognise), the name of a simulation (`rubix-like list readers`), 'table' or a field map's .yaml file."""
    path: Paths
    """A file, or the files of one snapshot: a list, a pattern (snap_099.*.hdf5), a folder, or the first of them."""
    center: Place | None = None
    """The galaxy's centre, each coordinate in the file's own unit (as a catalogue gives it) or with a unit (physical);
    null: the catalogue's position of the halo or subhalo, else found by the shrinking sphere."""
    catalogue: Paths | None = None
    """Group catalogue of the snapshot (fof_subhalo_tab_*.hdf5): a file, a pattern, a folder or the first of several;
    null: halo and subhalo are numbers that the particles carry themselves (EAGLE, SWIFT)."""
    halo: Annotated[Integer, Field(ge=0)] | None = None
    """Number of the halo: from 0 in a catalogue, else as the particles carry it."""
    subhalo: Annotated[Integer, Field(ge=0)] | None = None
    """Number of the subhalo: from 0 in the whole catalogue, else as the particles carry it (EAGLE: within its halo)."""
    sphere: SphereSettings | None = None
    box: BoxSettings | None = None

    @model_validator(mode="after")
    def _check_catalogue(self) -> "AbstractSelection":
        if self.catalogue and self.halo is None and self.subhalo is None:
            raise ValueError("catalogue: expected 'halo' or 'subhalo' beside it, got neither")
        return self
