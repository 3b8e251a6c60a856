"""Settings of snapshots and cut-outs of simulations: the files, what is selected, and what the files do not tell."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rubix_like.config.plug_ins import READING, TABLE
from rubix_like.config.quantities import (
    Dex,
    Gyr,
    Integer,
    InUnit,
    Number,
    Texts,
    check_unit,
    parse_number,
    parse_quantity,
)
from rubix_like.config.settings import AbstractSettings, WithSchema
from rubix_like.errors import suggest
from rubix_like.galaxy.limits import LARGEST_LOG_AGE
from rubix_like.runtime.places import found_at
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

if TYPE_CHECKING:
    from rubix_like.galaxy.galaxy_parts import GalaxyParts
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo

OLDEST: float = 12.0
"""Gyr: when stars began to form where nothing else is said, unless the Universe is younger."""

_DEFAULTS: dict[str, dict[str, float]] = {
    "constant": {"youngest": 0.1},
    "exponential": {"youngest": 0.1, "timescale": 3.0},
    "delayed": {"youngest": 0.1, "timescale": 3.0},
    "burst": {},
}
"""History -> the keys beside `oldest` that describe it, and what they are where they are not given (Gyr)."""


class AgeRecipe(AbstractSettings):
    """The recipe for ages and metallicities of stars without them; the same file always gets the same ones.

    The history is the mass that is in stars now by the time of its birth: star formation that is constant from
    `oldest` to `youngest`, falls as exp(-s / timescale) or runs as s exp(-s / timescale), s being the time since
    `oldest`; or a burst, all stars `oldest` ago.
    """

    history: Literal["constant", "exponential", "delayed", "burst"] = "constant"
    """Formation history of the mass that is in stars now."""
    oldest: Annotated[Gyr, Field(gt=0, le=10 ** (LARGEST_LOG_AGE - 9))] | None = None
    """When star formation began, in Gyr before the snapshot; null: 12, or the Universe's age where that is less."""
    youngest: Annotated[Gyr, Field(ge=0)] | None = None
    """When it ended, in Gyr before the snapshot; null: 0.1. A burst has none."""
    timescale: Annotated[Gyr, Field(gt=0)] | None = None
    """Timescale of exponential and delayed, in Gyr; null: 3."""
    metallicity: Annotated[Number, Field(gt=0, le=0.1)] = 0.02
    """Median metal mass fraction at the galaxy's centre."""
    metallicity_gradient: Annotated[float, InUnit("dex / kpc")] = -0.03
    """Slope of the median log10 Z with the distance from the galaxy's centre, in dex/kpc."""
    scatter: Annotated[Dex, Field(ge=0)] = 0.1
    """Standard deviation of log10 Z (normal) about the median, in dex."""
    seed: Annotated[Integer, Field(ge=0, lt=2**64)] = 1
    """Another seed gives other stars."""

    @model_validator(mode="after")
    def _check_keys(self) -> "AgeRecipe":
        known = _DEFAULTS[self.history]
        alien = [key for key in ("youngest", "timescale") if getattr(self, key) is not None and key not in known]
        if alien:
            words = " and ".join(("oldest", *known))
            raise ValueError(f"the history {self.history} is described by {words}; got {', '.join(alien)}")
        if self.oldest is not None and self.oldest <= self.in_gyr("youngest"):
            raise ValueError(
                f"oldest: expected more than youngest ({self.in_gyr('youngest'):g} Gyr), got {self.oldest:g}"
            )
        return self

    def span(self, universe_age: float | None) -> tuple[float, float]:
        """(oldest, youngest) in Gyr; `universe_age` (yr) is the Universe's at the snapshot (None: no limit).

        Raises ValueError where stars would be older than the Universe.
        """
        limit = math.inf if universe_age is None else universe_age / 1e9
        oldest, youngest = self.oldest or min(OLDEST, limit), self.in_gyr("youngest")
        if oldest > limit:
            raise ValueError(
                f"galaxy.ages.oldest: expected at most {limit:.4g} Gyr, the Universe's age at the snapshot, got "
                f"{oldest:g} Gyr; choose less, or leave it out"
            )
        if oldest <= youngest:
            raise ValueError(
                f"galaxy.ages.youngest: expected less than {oldest:.4g} Gyr, the Universe's age at the snapshot, got "
                f"{youngest:g} Gyr"
            )
        return oldest, youngest

    def describe_ages(self, universe_age: float | None) -> str:
        """The ages in a few words, for headers."""
        oldest, youngest = self.span(universe_age)
        timescale = f", timescale {self.in_gyr('timescale'):g} Gyr" if "timescale" in _DEFAULTS[self.history] else ""
        span = f"{oldest:.4g}" if self.history == "burst" else f"{oldest:.4g}-{youngest:g}"
        return f"recipe: {self.history} {span} Gyr{timescale}, seed {self.seed}"

    def describe_metallicities(self) -> str:
        """The metallicities in a few words, for headers."""
        return f"recipe: {self.metallicity:g}, {self.metallicity_gradient:g} dex/kpc, scatter {self.scatter:g} dex"

    def in_gyr(self, key: str) -> float:
        """A key that depends on the history, in Gyr; 0 where the history has none."""
        given = {"youngest": self.youngest, "timescale": self.timescale}[key]
        return _DEFAULTS[self.history].get(key, 0.0) if given is None else given


def _parse(value: object) -> object:
    words = {"file": None, "recipe": {}}
    if isinstance(value, str) and value in words:
        return words[value]
    if value is not None and not isinstance(value, Mapping | AgeRecipe):
        raise ValueError(f"expected file, recipe, or a section such as {{history: constant}}, got {value!r}")
    for key in value if isinstance(value, Mapping) else ():
        if key not in AgeRecipe.model_fields:
            raise ValueError(f"unknown key '{key}'{suggest(str(key), AgeRecipe.model_fields)}")
    return value


Ages = Annotated[
    AgeRecipe | None,
    BeforeValidator(_parse),
    WithSchema(lambda section: {"anyOf": [{"enum": ["file", "recipe"]}, section]}),
]
"""`file` (None), `recipe` (all defaults) or a section."""


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


class BoxSettings(AbstractSettings):
    """All particles in a box along the axes of the simulation; in a periodic box by their nearest images."""

    center: Place | None = None
    """Each coordinate in the file's own unit or with a unit (physical); null: `galaxy.center`, else the catalogue's."""
    size: Annotated[
        tuple[Extent, Extent, Extent],
        BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value, value, value)),
    ]
    """Full side lengths, one for all or three, in the file's own unit or with a unit (physical)."""


class ColumnSettings(AbstractSettings):
    """The column of a quantity, or the three of a vector, and the unit of its numbers."""

    column: Texts
    unit: str | None = None
    """A unit that astropy knows, e.g. Gyr or 1e10 Msun; null: the one that the file states."""

    @field_validator("column")
    @classmethod
    def _check_number(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) not in {1, 3}:
            raise ValueError(f"expected one column, or three of a vector, got {len(value)}")
        if len(set(value)) != len(value):
            raise ValueError(f"expected different columns for x, y and z, got {list(value)}")
        return value

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, value: str | None) -> str | None:
        return value if value is None else check_unit(value)


_NAMES = [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
_WITH_UNIT = {
    "type": "object",
    "properties": {"column": {"anyOf": _NAMES}, "unit": {"type": ["string", "null"]}},
    "required": ["column"],
    "additionalProperties": False,
}

Column = Annotated[
    ColumnSettings | None,
    BeforeValidator(lambda value: {"column": value} if isinstance(value, str | list | tuple) else value),
    WithJsonSchema({"anyOf": [*_NAMES, _WITH_UNIT, {"type": "null"}]}),
]
"""`m` and `[x, y, z]` stand for `{column: m}` and `{column: [x, y, z]}`."""


class TableSettings(AbstractSettings):
    """Which table and columns hold the stars or the gas, e.g. `age: {column: t, unit: Gyr}`; null: recognised."""

    table: str | None = None
    """The table (FITS extension, HDF5 group or dataset); null: the only one, or by its name."""
    position: Column = None
    velocity: Column = None
    mass: Column = None
    initial_mass: Column = None
    """Mass at birth."""
    age: Column = None
    log_age: Column = None
    """log10(age / yr)."""
    birth_scale_factor: Column = None
    birth_redshift: Column = None
    """This and the scale factor need the snapshot's redshift, HubbleParam and Omega0 in the file."""
    metallicity: Column = None
    """Mass fraction Z of metals."""
    smoothing_length: Column = None
    density: Column = None
    temperature: Column = None
    internal_energy: Column = None
    """Per mass."""
    electron_abundance: Column = None
    """Electrons per hydrogen nucleus."""
    star_formation_rate: Column = None
    hydrogen_fraction: Column = None
    oxygen_fraction: Column = None
    hi_fraction: Column = None
    """Neutral hydrogen as a fraction of the gas mass, H2 left out where it has a column of its own."""
    h2_fraction: Column = None
    """Molecular hydrogen as a fraction of the gas mass."""
    dust_mass: Column = None

    def named(self) -> dict[str, ColumnSettings]:
        """The quantities whose columns are named in the settings."""
        return {name: value for name, value in self if isinstance(value, ColumnSettings)}


SmoothingChoice = Literal["auto", "file", "neighbours"]

NEIGHBOURS: int = 32
"""Neighbours within a smoothing length: as IllustrisTNG's StellarHsml, and the support of a cubic spline in GADGET."""


class SnapshotReader(AbstractSettings):
    """Snapshots and cut-outs of simulations (field maps), recognised from the file."""

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
    velocities: Literal["file", "zero"] = "file"
    """'zero' for files without velocities: all particles, stars and gas, are at rest."""
    ages: Ages = None
    """'recipe', or a section that states it, for stars without ages or metallicities in the file; null: file."""
    smoothing_length: SmoothingChoice = "auto"
    """Of stars, for engine.deposit smoothed: the file's, by their neighbours, or auto: the file's where usable."""
    neighbours: Annotated[Integer, Field(ge=1)] = NEIGHBOURS
    """How many other stars are within a smoothing length by neighbours."""

    columns: TableSettings | None = None
    """Of a plain table: the columns of its stars that are not recognised by their names, and their units."""
    gas: TableSettings | None = None
    """Of a plain table: those of its gas."""

    @model_validator(mode="after")
    def _check_together(self) -> "SnapshotReader":
        if self.catalogue and self.halo is None and self.subhalo is None:
            raise ValueError("catalogue: expected 'halo' or 'subhalo' beside it, got neither")
        if self.reader not in {AUTO, TABLE} and (self.columns or self.gas):
            raise ValueError(f"expected columns and gas only with reader: {TABLE}, got them with '{self.reader}'")
        return self

    def load(self, report: Report = silent) -> "tuple[Galaxy, GalaxyInfo]":
        """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
        return found_at(READING["load_snapshot"])(self, report)

    def open_galaxy(
        self, report: Report = silent, team: AbstractProcessGroup = SINGLE
    ) -> "AbstractContextManager[GalaxyParts]":
        """The galaxy, to be read part by part; each process of the `team` reads its share for its frame."""
        return found_at(READING["open_snapshot_galaxy"])(self, report, team)

    def has_more_stars(self, limit: int) -> bool:
        """Whether the file has more than `limit` stars, selected or not; a small file is not opened for it."""
        return found_at(READING["snapshot_has_more_stars"])(self, limit)
