"""Field maps: where a simulation's files store each quantity, its unit, and its powers of a and h."""

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from rubix_like.arguments import named_arguments
from rubix_like.config.messages import explain
from rubix_like.config.plug_ins import FIELD_MAP_GROUP, FIELD_MAPS, field_map_names
from rubix_like.config.quantities import Integer, Number, Texts, as_tuple, check_equivalent, check_unit
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import SUFFIXES, find_file, read_section
from rubix_like.constants import COLUMN_UNITS
from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.registry import load_plug_in, plug_in_names, plug_in_place
from rubix_like.runtime.resources import resource, resource_names


class LabelSettings(AbstractSettings):
    """Datasets in which every particle carries the number of its halo and subhalo; of several names the first."""

    halo: Texts = ()
    subhalo: Texts = ()
    within_halo: bool = False
    """Whether the numbers of subhaloes start anew in every halo."""


Family = Literal["stars", "gas"]
FAMILIES: tuple[Family, ...] = ("stars", "gas")

_UNITS = COLUMN_UNITS | dict.fromkeys(("birth_time", "lookback_time", "age"), "yr")

QUANTITIES: dict[str, str] = {
    name: _UNITS.get(name, "")
    for name in (
        "position",
        "velocity",
        "mass",
        "initial_mass",
        "birth_scale_factor",
        "birth_redshift",
        "birth_time",
        "lookback_time",
        "age",
        "log_age",
        "metallicity",
        "smoothing_length",
        "density",
        "temperature",
        "internal_energy",
        "electron_abundance",
        "star_formation_rate",
        "hydrogen_fraction",
        "oxygen_fraction",
        "hi_fraction",
        "h2_fraction",
        "dust_mass",
    )
}
"""What a field map may name, and the unit that it is read into. Lookback times are those from birth until today
(redshift 0) in astropy's Planck15; they are used in cosmological runs only."""

VECTORS = frozenset({"position", "velocity"})

REQUIRED: dict[Family, tuple[str, ...]] = {"stars": ("position", "mass"), "gas": ("position", "mass")}


def _as_places(value: object) -> object:
    places = as_tuple(value)
    return tuple(map(str, places)) if isinstance(places, tuple) else places


HeaderPlaces = Annotated[tuple[str, ...], BeforeValidator(_as_places)]
Integers = Annotated[tuple[Integer, ...], BeforeValidator(as_tuple)]
Kinds = Annotated[tuple[Literal["hdf5", "gadget-binary", "table", "pynbody"], ...], BeforeValidator(as_tuple)]


class FieldSettings(AbstractSettings):
    """One quantity: value = stored number x unit x a^a x h^h, read into the unit of `QUANTITIES`."""

    dataset: Texts = ()
    """Dataset in the group; of several names the first that the file has."""
    stack: tuple[str, ...] = ()
    """Three datasets that make up a vector, instead of `dataset`."""
    unit: str = ""
    """Unit of the stored numbers (astropy); empty: a pure number."""
    a: Number = 0.0
    """Power of the scale factor."""
    h: Number = 0.0
    """Power of h = H0 / (100 km/s/Mpc)."""
    columns: Integers | None = None
    """Columns of a dataset of shape (N, k): one, or several that are added up; -1 is the last one; null: all of a
    vector, else (N,)."""
    width: Integer | None = None
    """Number of columns that the dataset must have, where other codes store other columns by its name; null: any."""
    one_minus: bool = False
    """Whether the quantity is 1 minus what is stored (hydrogen from metals and helium)."""
    divide_by: str | None = None
    """A dataset of the same group and unit by which the stored numbers are divided (masses of metals)."""
    fraction_of: str | None = None
    """The quantity that the stored number is a fraction of (dust of `mass`): the two are multiplied."""
    at_least: Number | None = None
    """Smaller stored numbers count as this one (a negative rate that stands for a time)."""
    mass_table: bool = False
    """Whether a missing dataset is replaced by the Header's MassTable entry of the group's particle type."""
    trust: Literal["file", "map"] = "file"
    """Whether unit and powers in the dataset's own attributes, where it has them, go before those stated here."""
    times: Number = 1.0
    """Pure number beside the unit, also where the file states the unit (radius of the kernel over its stored width)."""
    otherwise: "FieldSettings | None" = None
    """Where the file keeps the quantity if it has nothing of the above."""
    note: str = ""
    """What users should know; printed by `inspect` and in the documentation."""

    @property
    def names(self) -> tuple[str, ...]:
        """All datasets that the quantity may be in."""
        return (*self.dataset, *self.stack, *(self.otherwise.names if self.otherwise else ()))

    @property
    def is_fraction(self) -> bool:
        """Whether any place of the quantity holds a fraction of another quantity."""
        return self.fraction_of is not None or (self.otherwise is not None and self.otherwise.is_fraction)

    def find(
        self, present: Collection[str], shape_of: Callable[[str], tuple[int, ...]]
    ) -> tuple["FieldSettings", tuple[str, ...]] | None:
        """The settings that hold, and the datasets to read, for a group that has the datasets `present`.

        `shape_of` gives the shape of a dataset; it is called only where a `width` is stated.
        """
        if self.stack and all(name in present for name in self.stack):
            return self, self.stack
        name = next((name for name in self.dataset if name in present), None)
        if name is not None:
            if self.width is not None:
                is_wide = shape_of(name)[1:] == (self.width,)
            else:  # a sum of columns with an alternative needs columns
                is_wide = self.columns is None or self.otherwise is None or len(shape_of(name)) > 1
            has_divisor = self.divide_by is None or self.otherwise is None or self.divide_by in present
            if is_wide and has_divisor:
                return self, (name,)
        return self.otherwise.find(present, shape_of) if self.otherwise else None

    @field_validator("unit")
    @classmethod
    def _check_unit(cls, value: str) -> str:
        return check_unit(value)

    @model_validator(mode="after")
    def _check_dataset(self) -> "FieldSettings":
        if bool(self.dataset) == bool(self.stack):
            raise ValueError("expected either dataset or stack")
        if self.stack and len(self.stack) != 3:
            raise ValueError(f"stack: expected three datasets, got {len(self.stack)}")
        return self


class KeepSettings(AbstractSettings):
    """Which particles count: those whose stored value of `dataset` is above a limit."""

    dataset: str
    above: Number = 0.0
    others: str = "particles"
    """What the others are, for the notes (e.g. wind cells)."""


class FamilySettings(AbstractSettings):
    """Stars or gas: the groups that hold them and their quantities."""

    groups: Texts
    isolated_groups: Texts = ()
    """Groups of more of them in runs without expansion (disc and bulge stars of the initial conditions)."""
    keep: KeepSettings | None = None
    fields: dict[str, FieldSettings]

    @field_validator("fields")
    @classmethod
    def _check_names(cls, value: dict[str, FieldSettings]) -> dict[str, FieldSettings]:
        for name, field in value.items():
            if name not in QUANTITIES:
                raise ValueError(f"unknown quantity '{name}'{suggest(name, QUANTITIES)}")
            _check_physical_type(name, field)
            _check_whole(name, field, value)
        return value


class HeaderSettings(AbstractSettings):
    """Places of what holds for all particles: attributes as Group/Name, the first that is there.

    A number in place of a name is that number, for files without a header.
    """

    cosmological: HeaderPlaces = ("Header/ComovingIntegrationOn", "Parameters/ComovingIntegrationOn")
    """1 for a cosmological run, 0 for one without expansion: goes before the guess of `expansion: auto`."""
    time: HeaderPlaces = ("Header/Time",)
    """Time of a snapshot without expansion, in the unit of the stars' birth times."""
    scale_factor: HeaderPlaces = ("Header/Time",)
    redshift: HeaderPlaces = ("Header/Redshift",)
    h: HeaderPlaces = ("Header/HubbleParam",)
    omega_m: HeaderPlaces = ("Header/Omega0",)
    omega_l: HeaderPlaces = ("Header/OmegaLambda",)
    box_size: Texts = ("Header/BoxSize",)
    """One side or three, in the unit, and with the powers, of the stars' position."""
    flat: bool = False
    """Whether Omega_Lambda = 1 - Omega_m where it is missing."""
    unit_length: HeaderPlaces = (
        "Header/UnitLength_in_cm",
        "Header/UnitLength_In_CGS",
        "Parameters/UnitLength_in_cm",
        "Header/Unit length in cgs (U_L)",
        "Units/Unit length in cgs (U_L)",
    )
    """The run's own units in CGS: where stated they go before the field map's, as a dataset's own attributes do."""
    unit_mass: HeaderPlaces = (
        "Header/UnitMass_in_g",
        "Header/UnitMass_In_CGS",
        "Parameters/UnitMass_in_g",
        "Header/Unit mass in cgs (U_M)",
        "Units/Unit mass in cgs (U_M)",
    )
    unit_velocity: HeaderPlaces = (
        "Header/UnitVelocity_in_cm_per_s",
        "Header/UnitVelocity_In_CGS",
        "Parameters/UnitVelocity_in_cm_per_s",
        "Header/Unit velocity in cgs (U_V)",
    )
    unit_time: HeaderPlaces = ("Header/Unit time in cgs (U_t)", "Units/Unit time in cgs (U_t)")
    """Gives the unit of velocity where the file states none."""
    simulation: Texts = ()
    """The name of the run, for the output."""
    mass_table: str = "Header/MassTable"


class AttributeSettings(AbstractSettings):
    """Attributes in which a dataset states its own unit: value = stored x cgs x a^a x h^h, or value = stored x unit."""

    cgs: Texts = ()
    """Of several names the first that the dataset has."""
    a: str = ""
    h: str = ""
    physical: str = ""
    """An attribute that is 1 where the stored values are physical, whatever `a` and `h` say."""
    unit: str = ""
    """Instead of the others: the attribute with the name of the unit (astropy)."""


class RecogniseSettings(AbstractSettings):
    """One way to recognise the kind: all that is stated must hold."""

    has: tuple[str, ...] = ()
    """Datasets (Group/Dataset), groups or attributes (Group@Name, Group/Dataset@Name) that the file has."""
    lacks: tuple[str, ...] = ()
    matches: dict[str, str] = Field(default_factory=dict)
    """Attribute (Group@Name) -> regular expression found in its text, capitals ignored."""

    @field_validator("matches")
    @classmethod
    def _check_patterns(cls, value: dict[str, str]) -> dict[str, str]:
        for pattern in value.values():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"expected a regular expression, got '{pattern}' ({error})") from error
        return value

    @model_validator(mode="after")
    def _check_positive(self) -> "RecogniseSettings":
        if not (self.has or self.matches):
            raise ValueError("expected at least one entry of has or matches: every file lacks something")
        return self


class RecognisedBy(AbstractSettings):
    """The keys of a field map that tell its files from others."""

    container: Kinds = ("hdf5",)
    recognise: tuple[RecogniseSettings, ...] = ()
    over: tuple[str, ...] = ()


class FieldMap(AbstractSettings):
    """How one simulation's files are read."""

    title: str
    """The simulation's name for people."""
    source: str
    """Where units and names were published."""
    container: Kinds = ("hdf5",)
    """Kinds of file that have these groups and datasets, one or several."""
    recognise: tuple[RecogniseSettings, ...] = ()
    """Ways to recognise it; one must hold. None: only by name."""
    over: tuple[str, ...] = ()
    """Field maps that give way to this one where both fit."""
    expansion: Literal["always", "auto", "never"] = "always"
    """Whether runs are cosmological; always: yes, unless the header denies it (`cosmological`, or Omega_m = 0); auto:
    as always, and without `cosmological` also no where Time x (1 + Redshift) is not 1, or where Omega_m and one of
    these are missing."""
    header: HeaderSettings = HeaderSettings()
    attributes: AttributeSettings | None = None
    fixed_units: bool = False
    """Whether every file has the units stated here, or those of its header: a dataset that states another unit
    (`attributes.cgs`) is refused as damaged."""
    labels: LabelSettings | None = None
    """Membership of haloes and subhaloes, for selections without a catalogue."""
    stars: FamilySettings
    gas: FamilySettings | None = None
    name: Annotated[str, Field(exclude=True)] = ""
    """Set from the file's name."""

    @property
    def is_known(self) -> bool:
        """Whether it is packaged, or comes from an entry point: neither the user's nor made for a table."""
        return self.name in field_map_names()

    def family(self, family: Family) -> FamilySettings:
        """The settings of stars or gas; without groups and fields where the file has no gas."""
        return self.stars if family == "stars" else self.gas or FamilySettings(groups=(), fields={})


@named_arguments
def load_field_map(name: str, place: str = "galaxy.reader") -> FieldMap:
    """The field map of a name (packaged or from an entry point) or in a .yaml file; raises ConfigError."""
    if name in resource_names(FIELD_MAPS):
        path = resource(FIELD_MAPS, name)
    elif name in plug_in_names(FIELD_MAP_GROUP):
        path = load_plug_in("field map", FIELD_MAP_GROUP, name)
        if not isinstance(path, str | os.PathLike):
            where = plug_in_place("field map", FIELD_MAP_GROUP, name)
            raise ConfigError(f"{where}: expected the path of a YAML file, got {path!r}")
        path = Path(path)
    elif Path(name).suffix in SUFFIXES:
        path = find_file(FIELD_MAPS, name)
    else:
        raise ConfigError(f"{place}: unknown simulation '{name}'{suggest(name, field_map_names())}")
    return _read(name, path, path.stat().st_mtime_ns if path.is_file() else 0)


@functools.lru_cache(maxsize=256)
def _read(name: str, path: Path, changed: int) -> FieldMap:  # noqa: ARG001  (a changed file is read again)
    return parse_field_map(read_section(path) | {"name": name}, str(path))


def parse_field_map(section: Mapping[str, object], place: str) -> FieldMap:
    """A checked field map from plain data; `place` names it in errors."""
    try:
        return FieldMap.model_validate(dict(section))
    except ValidationError as error:
        raise ConfigError(explain(error, FieldMap, place)) from error


def load_recognised_by(name: str) -> "RecognisedBy | FieldMap":
    """Only the recognising keys of a packaged map (three times faster than the whole); of any other map, the whole."""
    if name not in resource_names(FIELD_MAPS):
        return load_field_map(name)
    section = read_section(resource(FIELD_MAPS, name))
    return RecognisedBy.model_validate({key: section[key] for key in RecognisedBy.model_fields if key in section})


def _check_physical_type(name: str, field: FieldSettings) -> None:
    check_equivalent(name, field.unit, QUANTITIES[name] if field.fraction_of is None else "")
    if field.otherwise:
        _check_physical_type(name, field.otherwise)


def _check_whole(name: str, field: FieldSettings, fields: Mapping[str, FieldSettings]) -> None:
    """Raise ValueError where `fraction_of` names no quantity of the map, a vector, or another fraction."""
    whole = field.fraction_of
    if whole is not None:
        if whole not in fields or whole in VECTORS or fields[whole].is_fraction:
            possible = [other for other in fields if other not in VECTORS and not fields[other].is_fraction]
            raise ValueError(
                f"{name}: fraction_of: expected a quantity of the same particles that is stored itself, got "
                f"'{whole}'{suggest(whole, possible)}"
            )
        check_equivalent(f"{name}: fraction_of: {whole}", QUANTITIES[whole], QUANTITIES[name])
    if field.otherwise:
        _check_whole(name, field.otherwise, fields)


def dataset_words(field: FieldSettings, datasets: tuple[str, ...] = ()) -> str:
    """`GFM_Metals[:, 4]`, `sum(Metals[:, 1:11])`, `1 - Metallicity`, `Dust x mass`.

    The names are all of the field, or `datasets`.
    """
    names = datasets or field.dataset or field.stack
    if field.columns is not None and len(field.columns) == 1:
        names = tuple(f"{name}[:, {field.columns[0]}]" for name in names)
    elif field.columns is not None:  # they are added up
        first, last = field.columns[0], field.columns[-1]
        is_range = field.columns == tuple(range(first, last + 1))
        chosen = f"{first}:{last + 1}" if is_range else str(list(field.columns))
        names = tuple(f"sum({name}[:, {chosen}])" for name in names)
    text = (", " if field.stack else " or ").join(names)
    if field.divide_by is not None:
        text += f" / {field.divide_by}"
    if field.fraction_of is not None:
        text += f" x {field.fraction_of}"
    return f"1 - {text}" if field.one_minus else text


def unit_words(unit: str, a: float, h: float) -> str:
    """`Mpc x a^1 x h^-1`; `1` for a pure number."""
    powers = [f"{name}^{power:g}" for name, power in (("a", a), ("h", h)) if power]
    return " x ".join([unit.strip() or "1", *powers])


Places = dict[str, tuple[FieldSettings, tuple[str, ...]]]
"""The field of each quantity, and the datasets that it is read from."""

Vector = Float[ndarray, "3"]
Vectors = Float[ndarray, "particle 3"]

Table = dict[str, Float[ndarray, "..."]]
"""Columns by quantity, with the same number of rows."""


def row_count(table: Table) -> int:
    """Number of rows of a table."""
    return len(next(iter(table.values()), ()))


def stacked(parts: list[Table]) -> Table:
    """Tables one below the other; a column that one of them lacks is NaN there."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: values for part in parts for name, values in part.items()}
    return {
        name: np.concatenate([part.get(name, np.full((row_count(part), *values.shape[1:]), np.nan)) for part in parts])
        for name, values in columns.items()
    }
