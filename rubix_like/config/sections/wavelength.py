"""Settings of a detector's spectral bins: even ones, or those of a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from rubix_like.config.quantities import WITH_UNITS, Angstrom, Number, PositiveAngstrom, parse_quantity
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.words import reason_of

FIT_TOLERANCE: float = 1e-3
"""Fraction of a step (of a spaxel) by which a range may fall short of its last bin (spaxel) and still hold it."""

STEP_UNITS: dict[str, str] = {"linear": "Angstrom", "log": "dex"}

_OF_TABLES = ("edges", "centres", "bins_per_fwhm")
_DECIMALS = 3
"""Of Angstrom, to which the edges of bins per FWHM are rounded."""

_CELLS_PER_BIN = 64
_MOST_BINS = 1_000_000


def whole_steps(count: float) -> int:
    """How many whole steps `count` holds, forgiving a shortfall of `FIT_TOLERANCE`."""
    return math.floor(count + FIT_TOLERANCE)


def _read_edges(value: object) -> object:
    """The numbers of a text file, where `value` is its path; else the value."""
    if not isinstance(value, str | Path):
        return value
    try:
        return tuple(np.atleast_1d(np.loadtxt(Path(value).expanduser(), dtype=np.float64, ndmin=1)).tolist())
    except UNREADABLE as error:
        raise ValueError(
            f"expected a list of wavelengths, or the path of a text file with one number (Angstrom) a line, got "
            f"'{value}' ({reason_of(error)})"
        ) from error


SHORTEST: float = 30.0
"""Angstrom: spectra begin beyond it, and wavelengths that were meant in micron lie below it."""

_Hidden = Field(exclude_if=lambda value: value is None)
_OfFile = WithJsonSchema(
    {
        "anyOf": [
            {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}, "minItems": 2},
            {"type": "string", "description": "path of a text file, one number (Angstrom) a line"},
            {"type": "null"},
        ]
    }
)


class WavelengthSettings(AbstractSettings):
    """The detector's spectral bins, by the centres of the first and the last, or by their edges."""

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=[]))

    sampling: Literal["linear", "log", "table"] = "linear"
    """Bins of equal width in wavelength, or in its logarithm, or those of a table."""
    medium: Literal["air", "vacuum"]
    """Medium of start, stop, step, of the LSF and of the cube's own axis."""
    start: Annotated[Angstrom, Field(ge=SHORTEST)]
    """Centre of the first bin in Angstrom; of a table the first bin is the one with the first centre from there on."""
    stop: PositiveAngstrom
    """Centre of the last bin in Angstrom; of a table the last bin is the one with the last centre up to there."""
    step: Annotated[
        float | None, Field(gt=0), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]})
    ]
    """Bin width: Angstrom where sampling is linear, dex where it is log; null for a table."""
    edges: Annotated[tuple[PositiveAngstrom, ...] | None, BeforeValidator(_read_edges), _OfFile, _Hidden] = None
    """Edges of all bins in ascending order (Angstrom), or a text file of them; makes sampling a table."""
    centres: Annotated[tuple[PositiveAngstrom, ...] | None, BeforeValidator(_read_edges), _OfFile, _Hidden] = None
    """Wavelengths that stand for the bins of a table; null: the middles of their edges."""
    bins_per_fwhm: Annotated[Number | None, Field(gt=0), _Hidden] = None
    """A table from start to stop with so many bins per FWHM of the instrument's lsf; becomes `edges`."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: object) -> object:
        """`sampling: table` and its ends and step, where edges or bins per FWHM are given."""
        if not isinstance(data, Mapping) or all(data.get(key) is None for key in _OF_TABLES):
            return data
        whole: dict[str, Any] = {"sampling": "table", "step": None, **data}
        edges = _read_edges(whole.get("edges"))
        if isinstance(edges, Sequence) and len(edges) > 1:
            whole |= {"edges": edges, "start": whole.get("start", edges[0]), "stop": whole.get("stop", edges[-1])}
        return whole

    @field_validator("step", mode="before")
    @classmethod
    def _parse_step(cls, value: object, info: Any) -> object:
        sampling = info.data.get("sampling", "")
        if sampling == "table":
            if value is not None:
                raise ValueError(f"expected null for the bins of a table, whose edges say their widths, got {value!r}")
            return None
        unit = STEP_UNITS.get(sampling)
        return parse_quantity(value, unit) if unit else 1.0  # a wrong sampling is a separate error

    @field_validator("step")
    @classmethod
    def _check_one_bin(cls, value: float | None, info: Any) -> float | None:
        """A step at most twice as wide as start to stop, unless these are the same."""
        start, stop = info.data.get("start", math.inf), info.data.get("stop", 0.0)
        if value is None or stop <= start:
            return value
        is_log = info.data.get("sampling") == "log"
        span = math.log10(stop / start) if is_log else stop - start
        if value > 2 * span:
            unit = STEP_UNITS["log" if is_log else "linear"]
            remedy = "with sampling: log the step is in dex, e.g. 1e-4" if is_log else "give a smaller one"
            raise ValueError(
                f"expected at most {2 * span:.4g} {unit}, twice from start to stop, got {value:g} {unit}; {remedy}, or "
                f"for a single bin stop: {start:g}"
            )
        return value

    @field_serializer("step")
    def _format_step(self, value: float | None, info: Any) -> float | str | None:
        if value is None:
            return None
        return f"{value!r} {STEP_UNITS[self.sampling]}" if (info.context or {}).get(WITH_UNITS) else value

    @model_validator(mode="after")
    def _check_order(self) -> "WavelengthSettings":
        if self.stop < self.start:
            raise ValueError(f"expected start <= stop, got {self.start} and {self.stop} Angstrom")
        if self.step is not None and self._span / self.step > _MOST_BINS:
            raise ValueError(f"expected at most {_MOST_BINS} bins, got more by a step of {self.step:g}")
        return self

    @model_validator(mode="after")
    def _check_table(self) -> "WavelengthSettings":
        given = [key for key in _OF_TABLES if getattr(self, key) is not None]
        if self.sampling != "table":
            if given:
                raise ValueError(f"expected sampling: table beside {given[0]}, got {self.sampling}")
            return self
        if len({*given} - {"centres"}) != 1 or given == ["centres", "bins_per_fwhm"]:
            raise ValueError(
                f"expected edges (a list, or a file) or bins_per_fwhm for sampling: table, got "
                f"{' and '.join(given) or 'neither'}"
            )
        if self.edges is not None:
            self._check_edges(np.array(self.edges))
        return self

    def _check_edges(self, edges: Float[ndarray, " edge"]) -> None:
        if len(edges) < 2 or np.any(np.diff(edges) <= 0):
            raise ValueError("edges: expected two or more in ascending order, got others")
        middles = 0.5 * (edges[1:] + edges[:-1])
        centres = middles if self.centres is None else np.array(self.centres)
        if centres.shape != middles.shape or np.any(centres <= edges[:-1]) or np.any(centres >= edges[1:]):
            raise ValueError(f"centres: expected one within each of the {len(middles)} bins, got {len(centres)}")
        if not self._chosen(centres).any():
            raise ValueError(
                f"expected the centre of a bin from start to stop ({self.start:g} to {self.stop:g} Angstrom), got bins "
                f"from {edges[0]:g} to {edges[-1]:g} Angstrom"
            )

    @property
    def n_wave(self) -> int:
        """Number of bins: those whose centre is not beyond `stop` (by more than `FIT_TOLERANCE` of a step)."""
        if self.step is None:
            return len(self.centre_values)
        return whole_steps(self._span / self.step) + 1

    @property
    def _span(self) -> float:
        """From the centre of the first bin to the end of the range, in the unit of `step`."""
        return math.log10(self.stop / self.start) if self.sampling == "log" else self.stop - self.start

    @property
    def edge_values(self) -> Float[ndarray, " edge"]:
        """Edges (Angstrom) of the bins of a table."""
        chosen = np.flatnonzero(self._chosen(self._every_centre))
        return np.array(self.edges)[chosen[0] : chosen[-1] + 2]

    @property
    def centre_values(self) -> Float[ndarray, " wave"]:
        """Centres (Angstrom) of the bins of a table."""
        every = self._every_centre
        return every[self._chosen(every)]

    @property
    def _every_centre(self) -> Float[ndarray, " every"]:
        if self.centres is not None:
            return np.array(self.centres)
        edges = np.array(self.edges)
        return 0.5 * (edges[1:] + edges[:-1])

    def _chosen(self, centres: Float[ndarray, " every"]) -> ndarray:
        """Which bins of a table lie from `start` to `stop`."""
        return (centres >= self.start * (1 - 1e-12)) & (centres <= self.stop * (1 + 1e-12))

    def reaches(self, low: float, high: float) -> bool:
        """Whether a bin has wavelengths (Angstrom) between these."""
        if self.step is None:
            first, last = self.edge_values[[0, -1]]
        else:
            steps = self.step * np.array([-0.5, self.n_wave - 0.5])
            first, last = self.start * 10.0**steps if self.sampling == "log" else self.start + steps
        return bool(first < high and low < last)

    def widths(self, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
        """Width (Angstrom) of a bin at wavelengths."""
        if self.step is None:
            return np.interp(wavelength, self.centre_values, np.diff(self.edge_values))
        return self.step * np.log(10) * wavelength if self.sampling == "log" else np.full_like(wavelength, self.step)


def merged_wavelength(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's bins overridden key by key; refuses to read the preset's step in another unit.

    Edges, or bins per FWHM, replace the preset's step, edges also its range; a step replaces a preset's table.
    """
    sampling = override.get("sampling")
    if any(override.get(key) is not None for key in _OF_TABLES):
        stays = {"medium"} if override.get("edges") is not None else {"medium", "start", "stop"}
        return {**{key: value for key, value in preset.items() if key in stays}, "sampling": "table", **override}
    if "step" not in override and sampling in STEP_UNITS and sampling != preset.get("sampling", "linear"):
        raise ConfigError(
            f"wavelength.sampling: {sampling} changes the unit of wavelength.step to {STEP_UNITS[sampling]}; "
            f"expected wavelength.step beside it, got none"
        )
    if override.get("step") is not None and any(key in preset for key in _OF_TABLES):
        preset = {"sampling": "linear"} | {
            key: value for key, value in preset.items() if key not in (*_OF_TABLES, "sampling")
        }
    return {**preset, **override}


def joined_bins(arms: Mapping[str, WavelengthSettings]) -> WavelengthSettings:
    """The bins of several arms together, which lie on one grid and leave no gap.

    Raises ValueError where they do not.
    """
    ordered = sorted(arms.items(), key=lambda entry: entry[1].start)
    begin, first = ordered[0]
    end, place = first.start, "join: expected arms whose bins lie on one grid without a gap"
    for name, bins in ordered:
        if bins.step is None or (bins.sampling, bins.medium, bins.step) != (first.sampling, first.medium, first.step):
            raise ValueError(
                f"{place}, even and with one medium and step, got {bins.step} and {first.step} ({bins.sampling} and "
                f"{first.sampling}, {bins.medium} and {first.medium}); set join: false"
            )
        is_log = bins.sampling == "log"
        shift = (math.log10(bins.start / first.start) if is_log else bins.start - first.start) / bins.step
        whole = round(shift)
        if abs(shift - whole) > FIT_TOLERANCE:
            near = first.start * 10 ** (whole * bins.step) if is_log else first.start + whole * bins.step
            raise ValueError(
                f"{place}, got arms.{name}.wavelength.start {bins.start:.10g}, which is {shift:.4f} bins from that of "
                f"arms.{begin}; set it to {near:.10g}"
            )
        width = float(bins.widths(np.array([end]))[0])
        if bins.start > end + (1 + FIT_TOLERANCE) * width:
            raise ValueError(f"{place}, got one that ends at {end:g} and one that begins at {bins.start:g} Angstrom")
        end = max(end, bins.stop)
    return first.model_copy(update={"stop": end})


def edges_per_fwhm(start: float, stop: float, per_fwhm: float, fwhm: Callable[[ndarray], ndarray]) -> tuple[float, ...]:
    """Edges of bins as wide as FWHM / `per_fwhm`, the first about `start` and the last at or before `stop` (Angstrom).

    With N(lambda) = integral of per_fwhm / FWHM(lambda) d lambda edges lie where N - N(start) + 1/2 is a whole number.
    Raises ValueError for more than a million bins.
    """
    ends = np.array([start, stop])
    widths = fwhm(ends) / per_fwhm
    first, last = ends + np.array([-1.0, 1.0]) * 2 * widths
    narrowest = float(np.min(fwhm(np.linspace(start, stop, 4096)))) / per_fwhm
    if not (narrowest > 0 and first > 0) or (stop - start) / narrowest > _MOST_BINS:
        raise ValueError(
            f"bins_per_fwhm: expected at most {_MOST_BINS} bins, none from below 0 Angstrom, got a narrowest one of "
            f"{narrowest:g} Angstrom from {start:g} to {stop:g}"
        )
    grid = np.linspace(first, last, max(4096, math.ceil((last - first) / narrowest * _CELLS_PER_BIN)))
    density = per_fwhm / fwhm(grid)
    number = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(grid))])
    begin, end = np.interp(ends, grid, number)
    edges = np.interp(begin - 0.5 + np.arange(whole_steps(end - begin) + 2), number, grid)
    return tuple(np.round(edges, _DECIMALS).tolist())
