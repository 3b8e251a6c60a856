"""The stars or the gas of one group of a file: its rows, its quantities, what is missing and what is not used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config.plug_ins import TABLE
from rubix_like.galaxy.limits import FRACTIONS, NOT_NEGATIVE, SMALLEST_METALLICITY
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.snapshot_files import JoinedContainer
from rubix_like.readers.derived_columns import age_source, log_ages
from rubix_like.readers.fields.epoch import Conversion
from rubix_like.readers.fields.field_map import Family, FieldSettings, dataset_words, unit_words
from rubix_like.readers.fields.snapshot_particles import Snapshot, count_notes
from rubix_like.readers.inspection.missing import missing_of_gas, missing_of_stars, stored_shape, unused_datasets
from rubix_like.readers.selection.row_ranges import SLAB_ROWS
from rubix_like.runtime.notes import WARNING, Note

MEDIAN_ROWS: int = 1 << 21
"""Rows that the median is taken of at most: of more, every second, third ... row."""


@dataclass(frozen=True)
class Range:
    """Statistics of the finite values of the rows that count: `smallest`, `median`, `largest`, sum (None without any).

    `n_values` is their number, `n_positive` are above 0; `n_nan` and `n_infinite` count in all rows, `n_below` (`low`)
    and `n_above` (`high`) in those that count.
    """

    smallest: float | None = None
    median: float | None = None
    largest: float | None = None
    total: float = 0.0
    n_values: int = 0
    n_positive: int = 0
    n_nan: int = 0
    n_infinite: int = 0
    n_below: int = 0
    n_above: int = 0


def measure_range(
    slabs: Iterable[tuple[Float[ndarray, "..."], Bool[ndarray, "..."]]],
    n_rows: int,
    low: float = -np.inf,
    high: float = np.inf,
) -> tuple[Range, ...]:
    """The range of `n_rows` rows that come as (values, which rows count); of a vector one for each component."""
    step = -(-n_rows // MEDIAN_ROWS)
    middles: list[list[ndarray]] = []
    found: list[Range] = []
    first = 0
    for values, kept in slabs:
        components = (values if values.ndim > 1 else values[:, None]).T
        found = found or [Range() for _ in components]
        middles = middles or [[] for _ in components]
        chosen = slice(-first % step, None, step)
        for index, component in enumerate(components):
            counted = np.isfinite(component) & kept
            good, before = component[counted], found[index]
            ends = [end for end in (before.smallest, before.largest) if end is not None]
            ends += [float(good.min()), float(good.max())] if good.size else []
            found[index] = Range(
                smallest=min(ends, default=None),
                largest=max(ends, default=None),
                total=before.total + float(good.sum()),
                n_values=before.n_values + good.size,
                n_positive=before.n_positive + int(np.count_nonzero(good > 0)),
                n_nan=before.n_nan + int(np.isnan(component).sum()),
                n_infinite=before.n_infinite + int(np.isinf(component).sum()),
                n_below=before.n_below + int(np.count_nonzero(good < low)),
                n_above=before.n_above + int(np.count_nonzero(good > high)),
            )
            middles[index].append(component[chosen][counted[chosen]])
        first += len(values)
    medians = [float(np.median(sample)) if sample.size else None for sample in map(np.concatenate, middles)]
    return tuple(replace(range_, median=median) for range_, median in zip(found, medians, strict=True)) or (Range(),)


SUMMED: tuple[str, ...] = ("mass", "initial_mass", "star_formation_rate", "dust_mass")
"""Quantities whose sum is a property of the galaxy."""


@dataclass(frozen=True)
class GroupRows:
    """A group that holds stars or gas, and how many rows it has."""

    snapshot: Snapshot
    family: Family
    group: str
    n_rows: int

    def kept(self, start: int, stop: int) -> Bool[ndarray, " particle"]:
        """Which rows count; all if the dataset that decides is damaged."""
        everything = np.ones(stop - start, dtype=bool)
        try:
            kept = self.snapshot.kept(self.family, self.group, start, stop)
        except ValueError:
            return everything
        return kept if kept.shape == everything.shape else everything


@dataclass(frozen=True)
class FieldReport:
    """A row of the table: `conversion` as `Mpc x a^1 x h^-1 = 1475.6 kpc`, `origin` where that is stated.

    The range is in `unit`, times and ages in Gyr; of a vector `smallest` and `largest` are those of all components,
    and `axes` has (smallest, median, largest) of x, y and z. Of anything else `n_values` are finite and count, of these
    `n_positive` are above 0. `problems` are reasons why the file cannot be read as it
    is, `remark` is good to know.
    """

    quantity: str
    dataset: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    conversion: str = ""
    origin: str = ""
    unit: str = ""
    smallest: float | None = None
    median: float | None = None
    largest: float | None = None
    total: float | None = None
    n_values: int | None = None
    n_positive: int | None = None
    axes: tuple[tuple[float | None, float | None, float | None], ...] = ()
    remark: str = ""
    problems: tuple[str, ...] = ()


def without_name(snapshot: Snapshot, error: Exception) -> str:
    """The message of an error without the name of the file."""
    return str(error).removeprefix(f"{snapshot.container.name}: ")


def _report(rows: GroupRows, quantity: str, field: FieldSettings, datasets: tuple[str, ...]) -> FieldReport:
    snapshot, group = rows.snapshot, rows.group
    start = FieldReport(quantity, dataset_words(field, datasets))
    try:
        shape = snapshot.container.shape(group, datasets[0])
        start = replace(start, shape=shape)
        dtype = snapshot.container.read(group, datasets[0], 0, min(rows.n_rows, 1)).dtype
        start = replace(start, dtype=dtype.newbyteorder("=").name)
        conversion = snapshot.conversion(quantity, field, group, datasets[0])
        low, high = -np.inf, np.inf
        if quantity in FRACTIONS:
            low, high = SMALLEST_METALLICITY, 1.0
        elif quantity in NOT_NEGATIVE:
            low = 0.0
        found = measure_range(_slabs(rows, quantity), shape[0] if shape else 0, low, high)
    except ValueError as error:
        return replace(start, problems=(without_name(snapshot, error),))
    unit, scale = ("Gyr", 1e-9) if conversion.to_unit == "yr" else (conversion.to_unit, 1.0)
    axes = tuple(
        (_scaled(range_.smallest, scale), _scaled(range_.median, scale), _scaled(range_.largest, scale))
        for range_ in found
    )
    is_vector = len(axes) > 1
    origin = "table" if snapshot.field_map.name == TABLE else "map"
    return replace(
        start,
        smallest=min((value for value, _, _ in axes if value is not None), default=None),
        median=None if is_vector else next(iter(axes), (None,) * 3)[1],
        largest=max((value for _, _, value in axes if value is not None), default=None),
        total=found[0].total if quantity in SUMMED else None,
        n_values=None if is_vector else found[0].n_values,
        n_positive=None if is_vector else found[0].n_positive,
        axes=axes if is_vector else (),
        conversion=conversion_words(conversion, conversion.factor(snapshot.epoch) * scale, unit),
        origin=origin if conversion.origin == "field map" else "file",
        unit=unit,
        remark="; ".join(filter(None, (conversion.remark, field.note))),
        problems=_problems(found, quantity),
    )


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def conversion_words(conversion: Conversion, factor: float, unit: str) -> str:
    """`Mpc x a^1 x h^-1 = 1475.6 kpc`, `unit` being kpc; empty for pure numbers that are taken as they are."""
    stated = unit_words(conversion.unit, conversion.a, conversion.h)
    if stated == "1" and factor == 1.0:
        return ""
    return stated if stated == unit else f"{stated} = {factor:.6g} {unit}".rstrip()


def _slabs(rows: GroupRows, quantity: str) -> Iterator[tuple[Float[ndarray, "..."], Bool[ndarray, "..."]]]:
    for start in range(0, rows.n_rows, SLAB_ROWS):
        stop = min(start + SLAB_ROWS, rows.n_rows)
        values = rows.snapshot.column(rows.family, rows.group, quantity, start, stop, checked=False)
        yield values, rows.kept(start, start + len(values))


def _problems(found: tuple[Range, ...], quantity: str) -> tuple[str, ...]:
    counts = {
        "NaN": sum(component.n_nan for component in found),
        "infinite": sum(component.n_infinite for component in found),
        "negative": sum(component.n_below for component in found),
        "above 1": sum(component.n_above for component in found),
    }
    texts = [f"{count} {what}" for what, count in counts.items() if count]
    if counts["above 1"] and quantity in FRACTIONS:
        texts.append("expected mass fractions: is it in solar units?")
    return tuple(texts)


def _ages(snapshot: Snapshot, rows: list[FieldReport]) -> tuple[FieldReport, ...]:
    """The ages that follow from the births, in Gyr: from smallest, median and largest, as ages fall with births."""
    measured = {row.quantity: row for row in rows if row.median is not None}
    source = age_source({name: np.empty(0) for name in measured})
    if source is None or source == "age":
        return ()
    row = measured[source]
    place = f"from {row.dataset}"
    values = np.array([row.smallest, row.median, row.largest], dtype=np.float64) * (1e9 if row.unit == "Gyr" else 1.0)
    try:
        log_age = log_ages(snapshot, {source: values})
    except ValueError as error:
        return (FieldReport("age", place, unit="Gyr", problems=(without_name(snapshot, error),)),)
    assert log_age is not None
    ages = np.sort(10 ** (log_age - 9)).tolist()
    return (FieldReport("age", place, unit="Gyr", smallest=ages[0], median=ages[1], largest=ages[2]),)


def light_of_gas(fields: Sequence[FieldReport]) -> tuple[str, ...]:
    """One sentence each on star formation, abundances, dust, neutral hydrogen and maps of a group of gas."""
    found = {row.quantity: row for row in fields}
    abundances = "neither oxygen_fraction nor metallicity"
    if "oxygen_fraction" in found and "hydrogen_fraction" in found:
        abundances = "O/H from oxygen_fraction and hydrogen_fraction"
    elif "oxygen_fraction" in found:
        abundances = "O/H from oxygen_fraction and a usual share of hydrogen (no hydrogen_fraction)"
    elif "metallicity" in found:
        abundances = "O/H from metallicity in solar proportions (no oxygen_fraction)"
    neutral = [name for name in ("hi_fraction", "h2_fraction") if name in found]
    maps = [words for name, words in _MAPS.items() if name in found] if "mass" in found else ["none (no mass)"]
    return (
        _star_formation(found),
        f"abundances: {abundances}",
        _dust(found),
        f"neutral hydrogen: {' and '.join(neutral) or 'neither hi_fraction nor h2_fraction'}",
        f"maps (products.gas: true): {', '.join(maps)}",
    )


_MAPS = {
    "mass": "gas mass",
    "velocity": "velocity and dispersion",
    "metallicity": "metallicity",
    "star_formation_rate": "star formation rate",
    "hi_fraction": "neutral hydrogen",
    "h2_fraction": "molecular hydrogen",
}
"""Maps that `products.gas: true` makes, by the column that each needs beside the mass."""


def _star_formation(found: Mapping[str, FieldReport]) -> str:
    row = found.get("star_formation_rate")
    if row is None:
        return "nebulae: none around forming stars (no star_formation_rate); young stars ionise nebulae without it"
    if not row.n_values:
        return "nebulae: star_formation_rate has no number that can be read"
    if not row.n_positive:
        return f"nebulae: none around forming stars: star_formation_rate is 0 in all {row.n_values} particles"
    if "metallicity" not in found:
        return "nebulae: none around forming stars (no metallicity, by which they ionise)"
    return (
        f"nebulae: around forming stars: star_formation_rate is above 0 in {row.n_positive} of {row.n_values} "
        f"particles, {row.total:.5g} {row.unit} in all"
    )


def _dust(found: Mapping[str, FieldReport]) -> str:
    row = found.get("dust_mass")
    if row is not None and not row.n_values:
        return "dust: dust_mass has no number that can be read"
    if row is not None:
        return f"dust: dust_mass, {row.total:.5g} {row.unit} in all"
    if "metallicity" in found:
        return "dust: no dust_mass; metallicity and mass give it for a stated dust-to-metal ratio"
    return "dust: neither dust_mass nor metallicity"


_COUNT = "NumPart_ThisFile"
"""Attribute of the Header in which Gadget's descendants count a file's particles by type."""


@dataclass(frozen=True)
class GroupReport:
    """Stars or gas of one group: `n_rows` stored, `n_left_out` of them not read as they are `others`.

    `light` says what light gas can make, and from which columns (`light_of_gas`; empty for stars). `notes` are what is
    missing and what follows, `needed` the keys under `galaxy:` that make up for it, `problems`
    reasons why the group is refused, `unused` the datasets that the field map does not name.
    """

    family: str
    group: str
    n_rows: int
    n_left_out: int
    others: str
    fields: tuple[FieldReport, ...]
    light: tuple[str, ...]
    notes: tuple[str, ...]
    needed: dict[str, str]
    problems: tuple[str, ...]
    unused: tuple[str, ...]


def report_group(rows: GroupRows) -> GroupReport:
    """All that can be said of a group; no value in it raises."""
    snapshot, family, group = rows.snapshot, rows.family, rows.group
    places = snapshot.places(family, group)
    fields = [_report(rows, quantity, field, datasets) for quantity, (field, datasets) in places.items()]
    mass = 0.0 if "mass" in places else snapshot.table_mass(family, group)
    if mass:
        place, total = f"{snapshot.field_map.header.mass_table}[{group[-1]}]", mass * rows.n_rows
        fields.append(FieldReport("mass", place, unit="Msun", smallest=mass, median=mass, largest=mass, total=total))
    fields += _ages(snapshot, fields) if family == "stars" else ()
    slabs = [(start, min(start + SLAB_ROWS, rows.n_rows)) for start in range(0, rows.n_rows, SLAB_ROWS)]
    missing = missing_of_stars(snapshot, group) if family == "stars" else missing_of_gas(snapshot, group)
    shapes = {name: stored_shape(snapshot.container, group, name) for name in unused_datasets(snapshot, family, group)}
    return GroupReport(
        family=family,
        group=group,
        n_rows=rows.n_rows,
        n_left_out=sum(int(np.count_nonzero(~rows.kept(start, stop))) for start, stop in slabs),
        others=snapshot.others(family),
        fields=tuple(fields),
        light=light_of_gas(fields) if family == "gas" else (),
        notes=(
            *(Note("file.missing", found.text) for found in missing if not found.is_refused),
            *_count_notes(snapshot.container, group, rows.n_rows),
        ),
        needed={key: value for found in missing for key, value in found.settings.items()},
        problems=(
            *(f"{group}: {found.text}" for found in missing if found.is_refused),
            *(f"{group}: {row.dataset}: {text}" for row in fields for text in row.problems),
        ),
        unused=tuple(name if shape == f"({rows.n_rows})" else f"{name} {shape}" for name, shape in shapes.items()),
    )


def _count_notes(container: AbstractContainer, group: str, n_rows: int) -> list[str]:
    """Notes where the header counts other numbers of particles than there are rows."""
    notes = [note for note in count_notes(container) if note.startswith(f"{group} ")]
    if isinstance(container, JoinedContainer) or not group[-1:].isdigit():
        return notes
    counts = np.asarray(container.attribute("Header", _COUNT)).reshape(-1)
    index = int(group[-1])
    if counts.dtype.kind in "iuf" and counts.size > index and counts[index] != n_rows:
        notes.append(
            Note(
                "file.counts",
                f"the Header's {_COUNT} is {counts[index]}, the file has {n_rows} rows: those are read",
                WARNING,
            )
        )
    return notes
