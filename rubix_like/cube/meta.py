"""The record of a run in its cube: the values of the header, and the counts of particles."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Num

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.runtime.notes import Note, as_notes, tagged, tags_of

MetaValue = str | int | float | bool | None

Scalar = Num[Array | np.ndarray, ""]


LINE_OF_SIGHT: str = "line_of_sight"
"""In the counters of dust, the key of gas that lies in front of all grids or behind them; it is put at their ends."""

NO_DUST: str = (
    "there is no gas, or none of it has dust (no metals, or neither cold nor forming stars: dust.cold, dust.hot_dust)"
)
"""Why a galaxy has no dust of particles, for notes."""


RUN_WORDS: Mapping[str, str] = {
    "object": "galaxy",
    "instrument": "instrument",
    "redshift": "redshift",
    "ssp_library": "SSP library",
    "pipeline": "pipeline",
    "method": "method",
}
"""Entry of `Meta` -> what it is called where people are shown what a cube or maps were made of."""


class Meta(Mapping[str, MetaValue]):
    """The record of a run: an immutable and hashable mapping, so that it can be a static part of a pytree.

    Values are strings, numbers, booleans or None; anything else raises TypeError. `1`, `1.0` and `True` are different.
    """

    __slots__ = ("_items",)

    @named_arguments
    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items: tuple[tuple[str, MetaValue], ...] = tuple((k, _plain(k, v)) for k, v in (items or {}).items())

    def __getitem__(self, key: str) -> MetaValue:
        return dict(self._items)[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._typed())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Meta) and self._typed() == other._typed()

    @property
    def notes(self) -> tuple[Note, ...]:
        """The notes of the run, as its header keeps them (`note_1` ..., with `tags_of_notes`)."""
        texts = [str(value) for key, value in self.items() if key.startswith("note_")]
        return tagged(texts, str(self.get("tags_of_notes") or "").split(", "))

    def exposure_times(self, number: int) -> list[float] | None:
        """s at each of so many dithers of fibres, all its exposures (`noise.exposure.count`) together; None without a
        physical exposure."""
        each, common, count = (self.get(f"exposure_{key}") for key in ("times", "time", "count"))
        together = float(count) if isinstance(count, int | float) else 1.0
        if isinstance(each, str):
            return [float(time) * together for time in each.split(", ")]
        return [float(common) * together] * number if isinstance(common, int | float) else None

    def __repr__(self) -> str:
        shown = []
        for key, value in self.items():
            lines = value.splitlines() if isinstance(value, str) else ()
            words = repr(value) if len(lines) < 2 else f"{lines[0] + ' ...'!r} ({len(lines)} lines)"
            shown.append(f"{key!r}: {words}")
        return f"Meta({{{', '.join(shown)}}})"

    def replace(self, **changes: MetaValue) -> "Meta":
        """A copy with some values changed or added."""
        return Meta({**self, **changes})

    def _typed(self) -> frozenset[tuple[str, type, MetaValue]]:
        return frozenset((key, type(value), value) for key, value in self._items)


def _plain(key: str, value: Any) -> MetaValue:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, int | float | bool):
        return value
    raise TypeError(f"meta '{key}': expected a string, number, boolean or None, got {type(value).__name__}")


class Counters(eqx.Module):
    """How many stars, and how much birth mass (Msun), a run could not treat in full (scalar arrays).

    `n_outside`: outside the field. `n_clamped_age`, `n_clamped_metallicity`: beyond the SSP library, taken at its
    limit. `n_clamped_a_v`: behind more particle dust than colours are computed for. `n_beyond_velocity`: beyond the
    planned velocity range. `n_overflow`: fast stars that method `basis` had no room for. `n_not_finite`: with a value
    that is not finite, or that cannot be: negative mass, log10(age / yr) above 10.3, metallicity above 1.
    """

    n_particles: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_outside: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_clamped_age: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_clamped_metallicity: Scalar = eqx.field(default=0, converter=jnp.asarray)
    mass_outside: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_clamped_age: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_clamped_metallicity: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_total: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    n_beyond_velocity: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_overflow: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_not_finite: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_clamped_a_v: Scalar = eqx.field(default=0, converter=jnp.asarray)
    mass_clamped_a_v: Scalar = eqx.field(default=0.0, converter=jnp.asarray)

    def __post_init__(self) -> None:
        expect_fields(self)

    def __repr__(self) -> str:
        concrete = np.ndarray | np.generic | jax.Array | int | float
        if any(isinstance(number, Tracer) or not isinstance(number, concrete) for number in vars(self).values()):
            return "Counters(traced)"
        shown = {
            name: np.array2string(np.asarray(number), formatter={"float_kind": lambda value: f"{value:.7g}"})
            for name, number in vars(self).items()
            if np.any(number)
        }
        return f"Counters({', '.join(f'{name}={number}' for name, number in shown.items())})"


class SourceCounters(eqx.Module):
    """How many particles of one source, and how much of their amount, a run could not treat in full (scalar arrays).

    `n_outside`: outside the field. `n_clamped`, by axis: beyond the source's templates, taken at their limit.
    `n_beyond_velocity`: beyond the planned velocity range. `n_overflow`: fast particles that method `basis` had no room
    for. `n_not_finite`: with a value that is not finite, or that cannot be (as in `Counters`). Amounts are in the unit
    that the templates are per.
    """

    n_particles: Scalar
    n_outside: Scalar
    n_clamped: Mapping[str, Scalar]
    n_beyond_velocity: Scalar
    n_overflow: Scalar
    n_not_finite: Scalar
    amount_total: Scalar
    amount_outside: Scalar
    amount_clamped: Mapping[str, Scalar]


def flat_counters(counters: Mapping[str, SourceCounters]) -> dict[str, Scalar]:
    """The counters of sources as plain numbers for a file, by names like "lines/n_outside", "lines/n_clamped/age"."""
    flat = {}
    for source, counts in counters.items():
        for name, value in vars(counts).items():
            by_axis = {f"/{axis}": number for axis, number in value.items()} if isinstance(value, dict) else {"": value}
            flat |= {f"{source}/{name}{axis}": number for axis, number in by_axis.items()}
    return flat


def source_counters(flat: Mapping[str, Any]) -> dict[str, SourceCounters]:
    """The counters of sources from the numbers that `flat_counters` made of them."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        source, name, *axis = key.split("/")
        counts = found.setdefault(source, {"n_clamped": {}, "amount_clamped": {}})
        if axis:
            counts[name][axis[0]] = jnp.asarray(value)
        else:
            counts[name] = jnp.asarray(value)
    return {source: SourceCounters(**counts) for source, counts in found.items()}


def note_entries(sentences: Iterable[str]) -> dict[str, str]:
    """Entries of `Meta` that keep notes: the text of each, and the severities and keys of all in one."""
    notes = as_notes(sentences)
    if not notes:
        return {}
    texts = {f"note_{number}": note.text for number, note in enumerate(notes, start=1)}
    return texts | {"tags_of_notes": ", ".join(tags_of(notes))}


NOISE_KEYS: tuple[str, ...] = (
    "signal_to_noise",
    "signal_to_noise_definition",
    "exposure_time",
    "exposure_times",
    "exposure_count",
    "sky",
    "noise_model",
    "noise_seed",
)
"""Entries of `Cube.meta` that `describe_noise` makes; a cube without noise has none of them."""

SYSTEMATICS_KEYS: tuple[str, ...] = ("systematics", "systematics_seed")
"""Entries of `Cube.meta` on systematic errors; a cube without has none of them."""

FIT_KEYS: tuple[str, ...] = ("fit_name", "fit_value", "fit_sigma", "fit_unit")
"""Beginnings of the entries of `Cube.meta` for each number of a fit; `_1` and so on follow."""

_MOST_NUMBERS = 99
"""Most numbers of a fit that a header holds."""


def with_fitted(
    meta: Meta,
    labels: Iterable[str],
    values: Float[np.ndarray, " number"],
    sigma: Float[np.ndarray, " number"],
    units: Iterable[str],
) -> Meta:
    """The record with the first 99 numbers of a fit: name, value, standard deviation and unit of each; angles of the
    observation also where a run's header has them."""
    fitted: dict[str, MetaValue] = {}
    for number, (label, value, error, unit) in enumerate(zip(labels, values, sigma, units, strict=True), start=1):
        if number > _MOST_NUMBERS:
            break
        row = (label, float(value), float(error) if np.isfinite(error) else None, unit or None)
        fitted |= {f"{key}_{number}": entry for key, entry in zip(FIT_KEYS, row, strict=True)}
        name = label.removeprefix("observation.")
        if name != label and name in meta:
            fitted[name] = float(value)
    return meta.replace(**fitted)


OUTSIDE_SSP: int = 1
"""Mask bit: the bin lies (partly) outside the wavelengths of the SSP library."""

OUTSIDE_APERTURE: int = 2
"""Mask bit: the spaxel lies outside the instrument's aperture."""

SPREAD_FROM_BEYOND: int = 4
"""Mask bit: after `degrade_lsf` the bin holds light that is taken to be beyond the detector's end as it is at it."""

NOT_FITTED: int = 8
"""Mask bit: of the residuals of a fit, the voxel was left out of it."""

SATURATED: int = 16
"""Mask bit: a pixel of the detector held more electrons than it can."""

COSMIC_RAY: int = 32
"""Mask bit: a cosmic ray was found."""

NO_DATA: int = 64
"""Mask bit: the voxel lies in a region without data."""

DETECTOR_GAP: int = 128
"""Mask bit: the bin lies in a gap of the detector."""

COUNTER_PREFIX: str = "counters."
"""Keys of the stars' counters in the CONFIG table."""

SOURCE_PREFIX: str = "source_counters/"
"""Keys of the counters of other sources there."""

Row = tuple[str, str]


def split_rows(values: Mapping[str, MetaValue]) -> list[Row]:
    """The rows of `values`, in their order."""
    rows = []
    for key, value in values.items():
        if not isinstance(value, str):
            rows.append((key, json.dumps(value)))
            continue
        for line in value.split("\n"):
            printable = line.isascii() and line.isprintable() and line == line.rstrip()
            rows.append((key, line if printable and _unquoted(line) is line else json.dumps(line)))
    return rows


def join_rows(rows: Iterable[Row]) -> dict[str, MetaValue]:
    """The values of rows made by `split_rows`."""
    values: dict[str, list[MetaValue]] = {}
    for key, line in rows:
        values.setdefault(key, []).append(_unquoted(line))
    return {key: parts[0] if len(parts) == 1 else "\n".join(map(str, parts)) for key, parts in values.items()}


def _unquoted(line: str) -> MetaValue:
    """The scalar that `line` is in JSON, else `line` itself."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return line if isinstance(value, list | dict) else value
