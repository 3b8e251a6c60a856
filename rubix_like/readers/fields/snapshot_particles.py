"""Particles of a snapshot, slab by slab: stored numbers become named columns in our units (float64)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.config.plug_ins import TABLE
from rubix_like.galaxy.limits import check_magnitudes, require
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.snapshot_files import JoinedContainer
from rubix_like.readers.containers.snapshot_files import row_count as group_rows
from rubix_like.readers.fields.epoch import Conversion, Epoch, find_conversion, read_epoch, side_words
from rubix_like.readers.fields.field_map import (
    FAMILIES,
    REQUIRED,
    VECTORS,
    Family,
    FamilySettings,
    FieldMap,
    FieldSettings,
    Places,
    Table,
    Vector,
    row_count,
    stacked,
)
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import counted

TIMES = frozenset({"birth_time"})

EXPANSIONS = frozenset({"birth_scale_factor", "birth_redshift", "lookback_time"})

_BY_ZERO = "other numbers are divided by these: leave these particles out or download the file again"


@dataclass(frozen=True)
class Snapshot:
    """An open file with the field map that fits it: particles by family and row, in kpc, km/s, Msun, yr.

    Positions and velocities are those of the simulation's box (physical, not relative to a galaxy).
    """

    container: AbstractContainer
    field_map: FieldMap
    epoch: Epoch
    _groups: dict[Family, dict[str, int]] = field(default_factory=dict, init=False, compare=False)
    _places: dict[tuple[Family, str], Places] = field(default_factory=dict, init=False, compare=False)

    def groups(self, family: Family) -> dict[str, int]:
        """The groups with stars or gas and their numbers of rows; ValueError where these differ within a group."""
        if family not in self._groups:
            settings = self.field_map.family(family)
            named = (*settings.groups, *(settings.isolated_groups if self.epoch.is_isolated else ()))
            found = {group: self._rows(settings, group) for group in named if self.container.datasets(group)}
            self._groups[family] = {group: n_rows for group, n_rows in found.items() if n_rows}
        return self._groups[family]

    def count(self, family: Family) -> int:
        """Number of rows of stars or gas in the file, before any selection."""
        return sum(self.groups(family).values())

    def places(self, family: Family, group: str) -> Places:
        """The field and the datasets of each quantity of `group`; births are times only in a run without expansion."""
        if (family, group) not in self._places:
            present = set(self.container.datasets(group))
            found: Places = {}
            for name, field in self.field_map.family(family).fields.items():
                place = field.find(present, lambda dataset: self.container.shape(group, dataset))
                if place is not None and name not in self.idle:
                    found[name] = place

            def has_whole(whole: str | None) -> bool:
                return whole is None or whole in found or (whole == "mass" and self.table_mass(family, group) > 0)

            there = {name: place for name, place in found.items() if has_whole(place[0].fraction_of)}
            self._places[family, group] = there
        return self._places[family, group]

    @property
    def idle(self) -> frozenset[str]:
        """The quantities that mean nothing in such a run: times of birth with expansion, redshifts without."""
        return TIMES if self.epoch.cosmology is not None else EXPANSIONS

    @property
    def length(self) -> float:
        """kpc per unit of length of the file: that of the stars' positions, and of the box."""
        return self._star_factor("position")

    @property
    def box_size(self) -> Vector | None:
        """Sides of the periodic box in kpc, None where nothing is periodic."""
        return None if self.epoch.box_size is None else np.array(self.epoch.box_size) * self.length

    @property
    def now(self) -> float:
        """Time of a snapshot without expansion, in yr on the clock of the stars' birth times."""
        return self.epoch.time * self._star_factor("birth_time")

    def quantities(self, family: Family, group: str) -> tuple[str, ...]:
        """The quantities that `group` has, the mass of the Header's MassTable included."""
        found = tuple(self.places(family, group))
        return found if "mass" in found or not self.table_mass(family, group) else (*found, "mass")

    def field_name(self, family: Family, quantity: str, group: str) -> str:
        """The place where a quantity would be: `group/dataset`."""
        field = self.field_map.family(family).fields.get(quantity)
        return f"{group}/{' or '.join(field.names) if field else quantity}"

    def others(self, family: Family) -> str:
        """The particles that the field map leaves out, and by which rule, in words."""
        keep = self.field_map.family(family).keep
        return f"{keep.others} ({keep.dataset} <= {keep.above:g})" if keep else "particles"

    def missing(self, family: Family, quantity: str, otherwise: str = "") -> str:
        """The sentence for a quantity that is needed and that a group lacks; `otherwise`: what else may be done."""
        lacking = [group for group in self.groups(family) if quantity not in self.quantities(family, group)]
        group = next(iter(lacking), family)
        name = self.field_name(family, quantity, group)
        remedy = "take or download a file with it"
        if self.field_map.name == TABLE:
            remedy = f"name its column (galaxy.{'columns' if family == 'stars' else 'gas'}: {{{quantity}: COLUMN}})"
        remedy = f"{remedy}, or {otherwise}" if otherwise else remedy
        stored = self.container.datasets(group)
        if quantity in self.idle and any(dataset in stored for dataset in name.removeprefix(f"{group}/").split(" or ")):
            if self.field_map.name == TABLE:
                header = "store redshift, HubbleParam and Omega0 of the snapshot as meta data (attributes) of the file"
            else:
                header = "correct the header if it is wrong"
            return (
                f"{self.container.name}: {name} ({quantity}) gives no ages: the cosmology of the file is "
                f"{self.epoch.cosmology_text}; {header}, or {remedy}"
            )
        return f"{self.container.name}: {name} is missing; {self.container.contents(group)}; {remedy}"

    def _star_factor(self, quantity: str) -> float:
        for group in self.groups("stars"):
            if quantity in (places := self.places("stars", group)):
                field, datasets = places[quantity]
                return self.conversion(quantity, field, group, datasets[0]).factor(self.epoch)
        raise ValueError(self.missing("stars", quantity))

    def conversion(self, quantity: str, field: FieldSettings, group: str, dataset: str) -> Conversion:
        """The conversion of a dataset to our units."""
        return find_conversion(quantity, field, f"{group}/{dataset}", self.container, self.field_map)

    def read(self, family: Family, start: int, stop: int, quantities: Collection[str] | None = None) -> Table:
        """The rows `start` to `stop` of stars or gas, those left out by the field map's `keep` included as `kept` = 0.

        Columns are what any of the family's groups has, of `quantities` where these are given; a group without one of
        them has NaN there; `row` counts through the family's groups. Only datasets that are needed are read. Raises
        ValueError with file, dataset and row for what is missing, of another shape, unreadable or infinite.
        """
        parts = [
            self._read_group(family, group, begin, end, quantities)
            | {"row": np.arange(first + begin, first + end, dtype=np.float64)}
            for group, first, begin, end in self.stretches(family, start, stop)
        ]
        table = stacked(parts) if parts else {"row": np.zeros(0)}
        known = self.available(family)
        lacking = [name for name in known if name not in table and (quantities is None or name in quantities)]
        count = row_count(table)
        return table | {name: np.full((count, 3) if name in VECTORS else (count,), np.nan) for name in lacking}

    def stretches(self, family: Family, start: int, stop: int) -> list[tuple[str, int, int, int]]:
        """(group, its first row in the family, first and last row within the group) of these rows, none empty."""
        found, first = [], 0
        for group, n_rows in self.groups(family).items():
            begin, end = max(start - first, 0), min(stop - first, n_rows)
            if begin < end:
                found.append((group, first, begin, end))
            first += n_rows
        return found

    def available(self, family: Family) -> tuple[str, ...]:
        """The quantities that any group of the family has."""
        return tuple(dict.fromkeys(name for group in self.groups(family) for name in self.quantities(family, group)))

    def _rows(self, settings: FamilySettings, group: str) -> int:
        """Rows of the group; all the datasets that are read must have as many."""
        present = self.container.datasets(group)
        named = [name for field in settings.fields.values() for name in field.names]
        counts = {name: self.container.shape(group, name)[:1] for name in dict.fromkeys(named) if name in present}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name} {count[0] if count else 'a single number'}" for name, count in counts.items())
            raise ValueError(
                f"{self.container.name}: {group}: expected as many rows in every dataset, got {text}; the file is "
                f"damaged or was cut out wrongly"
            )
        shape = next(iter(counts.values()), ())
        return shape[0] if shape else 0

    def _read_group(
        self, family: Family, group: str, start: int, stop: int, quantities: Collection[str] | None
    ) -> Table:
        for quantity in REQUIRED[family]:
            if quantity not in self.quantities(family, group):
                raise ValueError(self.missing(family, quantity))
        table: Table = {}
        for quantity in self.places(family, group):
            if quantities is None or quantity in quantities:
                table[quantity] = self.column(family, group, quantity, start, stop, known=table)
        if "mass" not in table and (quantities is None or "mass" in quantities):
            table["mass"] = np.full(stop - start, self.table_mass(family, group))
        if quantities is None or "kept" in quantities:
            table["kept"] = self.kept(family, group, start, stop).astype(np.float64)
        return table

    def kept(self, family: Family, group: str, start: int, stop: int) -> Bool[ndarray, " particle"]:
        """Which rows the field map's `keep` leaves in."""
        keep = self.field_map.family(family).keep
        if keep is None or keep.dataset not in self.container.datasets(group):
            return np.ones(stop - start, dtype=bool)
        return self._stored(group, keep.dataset, None, False, start, stop) > keep.above

    def column(
        self,
        family: Family,
        group: str,
        quantity: str,
        start: int,
        stop: int,
        *,
        checked: bool = True,
        known: Mapping[str, ndarray] = MappingProxyType({}),
    ) -> ndarray:
        """Rows of one quantity in its unit; raises ValueError where they cannot be read or, `checked`, are absurd.

        `known`: quantities of these rows that have been read already, for fractions of them.
        """
        field, datasets = self.places(family, group)[quantity]
        vector = quantity in VECTORS and not field.stack
        stored = [self._stored(group, name, field.columns, vector, start, stop, checked) for name in datasets]
        values = np.stack(stored, axis=1) if field.stack else stored[0]
        if field.at_least is not None:
            values = np.maximum(values, field.at_least)
        if field.divide_by is not None:
            divisor = self._stored(group, field.divide_by, None, False, start, stop, checked)
            place = f"{self.container.name}: {group}/{field.divide_by}"
            require((divisor > 0) | (not checked), divisor, place, "values > 0", _BY_ZERO)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                values = values / divisor
        if field.one_minus:
            values = 1.0 - values
        factor = self.conversion(quantity, field, group, datasets[0]).factor(self.epoch)
        whole: float | ndarray = 1.0
        if field.fraction_of is not None and field.fraction_of in known:
            whole = known[field.fraction_of]
        elif field.fraction_of is not None and field.fraction_of in self.places(family, group):
            whole = self.column(family, group, field.fraction_of, start, stop, checked=checked)
        elif field.fraction_of is not None:
            whole = self.table_mass(family, group)
        with np.errstate(over="ignore", invalid="ignore"):
            values = values * factor * whole
        if checked:
            place = f"{self.container.name}: {group}/{' '.join(datasets)}"
            check_magnitudes(quantity, values, place)
            if quantity == "position" and self.epoch.box_size is not None:
                sides = np.array(self.epoch.box_size) * factor
                check_magnitudes(quantity, sides, f"{self.container.name}: side of the periodic box")
                remedy = "the file is damaged there, or its BoxSize is in another unit"
                expected = f"positions in or near the box of {side_words(sides)} kpc"
                require(np.abs(values) <= 2 * sides, values, place, expected, remedy)
        return values

    def _stored(
        self,
        group: str,
        name: str,
        columns: tuple[int, ...] | None,
        vector: bool,
        start: int,
        stop: int,
        checked: bool = True,
    ) -> ndarray:
        """Rows of a dataset as float64: (N, 3) for a vector, else (N,), chosen columns added up."""
        place = f"{self.container.name}: {group}/{name}"
        shape = self.container.shape(group, name)
        is_good, expected = shape[1:] == (), "(N,)"
        if vector:
            is_good, expected = shape[1:] == (3,), "(N, 3)"
        elif columns is not None:
            fewest = max(max(columns) + 1, -min(columns))
            is_good = (len(shape) == 2 and shape[1] >= fewest) or (columns == (0,) and len(shape) == 1)
            expected = f"(N, {fewest} or more)"
        if not is_good:
            raise ValueError(
                f"{place}: expected shape {expected}, got {shape}; is the file one of {self.field_map.title}?"
            )
        raw, title = self.container.read(group, name, start, stop), self.field_map.title
        if raw.dtype.kind not in "fiu":
            raise ValueError(f"{place}: expected numbers, got {raw.dtype}; is the file one of {title}?")
        if self.field_map.is_known and raw.dtype.kind in "iu":
            raise ValueError(
                f"{place}: expected numbers with decimals, as {title} stores them, got whole ones ({raw.dtype}): what "
                f"was rounded away is lost; download the file again"
            )
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is named below
            values = np.asarray(raw, dtype=np.float64)
        remedy = "leave these particles out or download the file again"
        require(np.isfinite(values) | (not checked), values, place, "finite values", remedy)
        if columns is None or values.ndim == 1:
            return values
        with np.errstate(over="ignore"):
            return values[:, list(columns)].sum(axis=1)

    def table_mass(self, family: Family, group: str) -> float:
        """Msun of each particle of a group by the Header's MassTable; 0 where there is none or it is not used."""
        field = self.field_map.family(family).fields.get("mass")
        if field is None or not field.mass_table or not group[-1:].isdigit():
            return 0.0
        where, _, name = self.field_map.header.mass_table.rpartition("/")
        masses = np.asarray(self.container.attribute(where, name)).reshape(-1)
        index = int(group[-1])
        if masses.dtype.kind not in "fiu" or masses.size <= index:
            return 0.0
        conversion = find_conversion("mass", field, f"{group}/{field.dataset[0]}", self.container, self.field_map)
        return float(masses[index]) * conversion.factor(self.epoch)


def find_whole_numbers(snapshot: Snapshot) -> list[str]:
    """Datasets of the file's quantities, as `group/dataset`, whose numbers are whole; of each one row is read."""
    container = snapshot.container
    return [
        f"{group}/{name}"
        for family in FAMILIES
        for group in snapshot.groups(family)
        for _, names in snapshot.places(family, group).values()
        for name in names
        if container.read(group, name, 0, 1).dtype.kind in "iu"
    ]


def check_parts(container: AbstractContainer, field_map: FieldMap) -> None:
    """Raise ValueError where files of one snapshot differ in epoch, cosmology, box or a dataset's unit."""
    if not isinstance(container, JoinedContainer):
        return
    first = container.parts[0]
    epoch = read_epoch(first, field_map)
    stated: dict[str, Conversion] = {}
    for part in container.parts:
        part_epoch = read_epoch(part, field_map)
        for name in ("scale_factor", "h", "time", "box_size", "cosmology_text", "simulation"):
            expected, got = getattr(epoch, name), getattr(part_epoch, name)
            if got != expected:
                raise ValueError(
                    f"{part.name}: expected the {name} of {first.name} ({expected}), got {got}; they are no parts of "
                    f"one snapshot"
                )
        found = Snapshot(part, field_map, epoch)
        groups: list[tuple[Family, str]] = [(family, group) for family in FAMILIES for group in found.groups(family)]
        places = [(family, group, *item) for family, group in groups for item in found.places(family, group).items()]
        for family, group, quantity, (settings, (name, *_)) in places:
            conversion = found.conversion(quantity, settings, group, name)
            before = stated.setdefault(f"{family} {group} {quantity}", conversion)
            if before != conversion:
                raise ValueError(
                    f"{part.name}: {group}/{name}: expected the unit and powers that files before it state "
                    f"({before.unit} a^{before.a:g} h^{before.h:g}), got {conversion.unit} a^{conversion.a:g} "
                    f"h^{conversion.h:g}"
                )


def count_notes(container: AbstractContainer) -> tuple[str, ...]:
    """A note for every particle type whose total in the Header differs from the number in all files together."""
    low, high = (
        np.asarray(container.attribute("Header", name)).reshape(-1)
        for name in ("NumPart_Total", "NumPart_Total_HighWord")
    )
    if low.dtype.kind not in "fiu":
        return ()
    notes = []
    for group in container.groups():
        kind = int(group[-1]) if group.startswith("PartType") and group[-1].isdigit() else low.size
        if kind >= low.size or not np.isfinite(low[kind]):
            continue
        upper = int(high[kind]) << 32 if high.dtype.kind in "iu" and kind < high.size else 0
        stated, found = int(low[kind]) + upper, group_rows(container, group)
        if stated != found:
            notes.append(
                Note(
                    "file.counts",
                    f"{group} has {counted(found, 'row')} in all files together, but the Header tells of {stated}",
                    WARNING,
                )
            )
    return tuple(notes)
