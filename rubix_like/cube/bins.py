"""Wavelength bins of a detector, of a cube and of its files (float64 on the host)."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Num
from numpy import ndarray
from numpy.typing import ArrayLike

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.config import WavelengthSettings
from rubix_like.errors import expect_count
from rubix_like.physics import air
from rubix_like.physics.air import Medium
from rubix_like.physics.units import expect_positive, given_numbers, plain_numbers

Sampling = Literal["linear", "log", "table"]

SAME_BINS: float = 1e-3
"""Largest difference of two grids of wavelengths that are the same, in bins."""

_LONGEST: float = 1e15
"""Angstrom (100 km), beyond all telescopes."""

_MOST_STRETCH: float = 1.75
"""How many times as long as the next a step between the centres of a table may be; a missing bin doubles it."""


@dataclass(frozen=True)
class WavelengthBins:
    """Contiguous detector bins: `edges` (wave + 1,) in Angstrom of `medium`, uniform in lambda or in ln lambda, or
    those of a table; quantities are converted.

    Of a table `nodes` are the edges and centres in turn, from the first edge to the last, and `step` is the mean width.
    """

    first: Any
    step: Any
    n_wave: int
    sampling: Sampling
    medium: Medium
    nodes: Any = ()

    def __post_init__(self) -> None:
        expect_fields(self)
        units = {"first": "Angstrom", "step": "dex" if self.sampling == "log" else "Angstrom"}
        given = {
            name: plain_numbers(getattr(self, name), unit, f"WavelengthBins.{name}") for name, unit in units.items()
        }
        vars(self).update(given)
        expect_count(self.n_wave, "WavelengthBins.n_wave")
        for name in units:
            expect_positive(given[name], f"WavelengthBins.{name}")
        nodes = np.asarray(plain_numbers(self.nodes, "Angstrom", "WavelengthBins.nodes"), dtype=np.float64)
        if nodes.ndim != 1 or not (np.all(nodes > 0) and np.all(nodes < np.inf) and np.all(np.diff(nodes) > 0)):
            raise ValueError("WavelengthBins.nodes: expected positive wavelengths that ascend, the edges and centres")
        vars(self).update(nodes=tuple(nodes.tolist()))
        self._check_edges()

    def _check_edges(self) -> None:
        """Raise ValueError for a table without its nodes, and for bins that reach beyond all light."""
        if self.sampling == "table" and len(self.nodes) != 2 * self.n_wave + 1:
            raise ValueError(
                f"WavelengthBins.nodes: expected the edges and centres of {self.n_wave} bins in turn, got "
                f"{len(self.nodes)} values; WavelengthBins.of_table(wavelength, edges, medium) makes them"
            )
        with np.errstate(over="ignore"):
            last = self.at(np.array([self.n_wave - 0.5]))[0]
        if not last < _LONGEST:
            unit = "dex" if self.sampling == "log" else "Angstrom"
            name = "step" if self.first < _LONGEST else "first"
            raise ValueError(
                f"WavelengthBins.{name}: expected bins below {_LONGEST:g} Angstrom, got {self.n_wave} in steps of "
                f"{self.step:g} {unit} from {self.first:g} Angstrom; the step of 'log' is in log10(wavelength)"
            )

    @classmethod
    def build(cls, settings: WavelengthSettings) -> "WavelengthBins":
        """Bins from an instrument's settings."""
        if settings.step is None:
            return cls.of_table(settings.centre_values, settings.edge_values, settings.medium)
        return cls(settings.start, settings.step, settings.n_wave, settings.sampling, settings.medium)

    @classmethod
    @named_arguments
    def of_table(cls, wavelength: ArrayLike, edges: ArrayLike, medium: Medium) -> "WavelengthBins":
        """Bins with these n centres and n + 1 edges (Angstrom in `medium`), which need not be even.

        Raises ValueError where centres and edges do not follow each other.
        """
        centres, borders = _centres_and_edges(wavelength, edges)
        n_wave = len(centres)
        nodes = np.empty(2 * n_wave + 1)
        nodes[::2], nodes[1::2] = borders, centres
        if not (np.isfinite(nodes).all() and nodes[0] > 0 and np.all(np.diff(nodes) > 0)):
            raise ValueError(
                f"wavelength: expected positive wavelengths that ascend, each between the edges of its bin (table)"
                f"{_came(centres, borders)}"
            )
        step = float(borders[-1] - borders[0]) / n_wave
        return cls(float(centres[0]), step, n_wave, "table", medium, tuple(nodes.tolist()))

    @classmethod
    @named_arguments
    def around(cls, wavelength: ArrayLike, medium: Medium) -> "WavelengthBins":
        """Bins with these centres, from half way to the neighbour below to half way to the one above.

        Raises ValueError for less than two, for those that do not ascend, and where bins seem to be missing, because a
        step is much longer than the next.
        """
        centres = _in_angstrom(wavelength)
        steps = np.diff(np.atleast_1d(centres))
        if centres.ndim != 1 or centres.size < 2 or not (np.isfinite(centres).all() and steps.min() > 0):
            raise ValueError(f"wavelength: expected at least two wavelengths, in ascending order{_came(centres)}")
        stretch = np.maximum(steps[1:] / steps[:-1], steps[:-1] / steps[1:])
        if stretch.size and stretch.max() > _MOST_STRETCH:
            place = int(np.argmax(stretch)) + 1
            raise ValueError(
                f"expected wavelengths whose steps change by less than a factor {_MOST_STRETCH:g} from one to the "
                f"next, got steps of {steps[place - 1]:.6g} and {steps[place]:.6g} Angstrom about {centres[place]:.6g}"
            )
        inner = 0.5 * (centres[1:] + centres[:-1])
        ends = centres[[0, -1]] + np.array([-0.5, 0.5]) * steps[[0, -1]]
        return cls.of_table(centres, [ends[0], *inner, ends[1]], medium)

    @classmethod
    @named_arguments
    def through(cls, wavelength: ArrayLike, edges: ArrayLike, sampling: Sampling, medium: Medium) -> "WavelengthBins":
        """The bins with these centres and edges (Angstrom in `medium`), such as a file keeps.

        The step of even ones is the roundest one that gives exactly these numbers, if there is one. Raises ValueError
        for numbers that are not those of such bins.
        """
        if sampling == "table":
            return cls.of_table(wavelength, edges, medium)
        centres, borders = _centres_and_edges(wavelength, edges)
        n_wave = len(centres)
        ends = centres[[0, -1]] if n_wave > 1 else borders
        refusal = ValueError(
            f"wavelength: expected positive wavelengths that ascend in even bins ({sampling}), each between the "
            f"edges of its bin{_came(centres, borders)}"
        )
        with np.errstate(all="ignore"):
            step = float(np.diff(np.log10(ends) if sampling == "log" else ends)[0]) / max(n_wave - 1, 1)
            if not (0 < step < np.inf and 0 < centres[0] < np.inf):
                raise refusal
            found = cls(float(centres[0]), step, n_wave, sampling, medium)
            rounded = (replace(found, step=float(f"{step:.{digits}g}")) for digits in range(6, 17))
            exact = (bins for bins in rounded if np.array_equal([*bins.wavelength, *bins.edges], [*centres, *borders]))
            found = next(exact, found)
            narrowest = np.diff(found.edges).min()
            off = max(found.offset(centres), np.max(np.abs(found.edges - borders)) / narrowest)
        if not (off < SAME_BINS and narrowest > 0):
            raise refusal
        return found

    @named_arguments
    def at(self, index: Num[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Wavelength (Angstrom, in `medium`) at fractional bin indices; whole numbers are bin centres."""
        index = np.asarray(index, dtype=np.float64)
        if self.sampling == "log":
            return self.first * 10.0 ** (self.step * index)
        if self.sampling == "table":
            nodes, (low, high) = np.array(self.nodes), self._end_widths
            within = np.interp(index, 0.5 * np.arange(len(nodes)) - 0.5, nodes)
            return within + np.minimum(index + 0.5, 0.0) * low + np.maximum(index - (self.n_wave - 0.5), 0.0) * high
        return self.first + self.step * index

    @named_arguments
    def place(self, wavelength: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Fractional bin indices of wavelengths (Angstrom, in `medium`), beyond the ends too: the inverse of `at`."""
        wavelength = np.asarray(wavelength, dtype=np.float64)
        if self.sampling == "log":
            return np.log10(wavelength / self.first) / self.step
        if self.sampling == "table":
            nodes, (low, high) = np.array(self.nodes), self._end_widths
            within = np.interp(wavelength, nodes, 0.5 * np.arange(len(nodes)) - 0.5)
            below, above = np.minimum(wavelength - nodes[0], 0.0), np.maximum(wavelength - nodes[-1], 0.0)
            return within + below / low + above / high
        return (wavelength - self.first) / self.step

    @named_arguments
    def width_at(self, wavelength: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Width (Angstrom) of a bin at wavelengths: of a table interpolated between the bins' centres."""
        if self.sampling == "log":
            return wavelength * np.log(10.0) * self.step
        if self.sampling == "table":
            return np.interp(wavelength, self.wavelength, np.diff(self.edges))
        return np.full_like(wavelength, self.step, dtype=np.float64)

    @property
    def _end_widths(self) -> tuple[float, float]:
        """Beyond the ends of a table bins go on as wide as the last."""
        return self.nodes[2] - self.nodes[0], self.nodes[-1] - self.nodes[-3]

    @property
    def wavelength(self) -> Float[ndarray, " wave"]:
        """Bin centres in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave))

    @property
    def edges(self) -> Float[ndarray, " edge"]:
        """Bin edges in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave + 1) - 0.5)

    @named_arguments
    def part(self, start: int, stop: int) -> "WavelengthBins":
        """The bins `start` to `stop` (exclusive); raises ValueError for others than those from 0 to `n_wave`."""
        if not 0 <= start < stop <= self.n_wave:
            raise ValueError(f"bins: expected 0 <= start < stop <= {self.n_wave}, got start {start} and stop {stop}")
        if self.sampling == "table":
            return self.of_table(self.wavelength[start:stop], self.edges[start : stop + 1], self.medium)
        return replace(self, first=float(self.wavelength[start]), n_wave=stop - start)

    @named_arguments
    def offset(self, wavelength: Float[ndarray, " wave"]) -> float:
        """How far as many wavelengths lie from the centres, at most, in bins."""
        return float(np.max(np.abs(wavelength - self.wavelength) / np.diff(self.edges)))

    @named_arguments
    def agrees(self, other: "WavelengthBins") -> bool:
        """Whether others are the same bins, but for rounding."""
        alike = (self.n_wave, self.sampling, self.medium) == (other.n_wave, other.sampling, other.medium)
        return alike and self.distance(other) < SAME_BINS

    @named_arguments
    def distance(self, other: "WavelengthBins") -> float:
        """How far as many other bins lie from these, at most, in bins: their centres, or the edges of a table, whose
        centres are but labels."""
        if self.sampling != "table":
            return self.offset(other.wavelength)
        widths = np.diff(self.edges)
        off = np.abs(other.edges - self.edges)
        return float(max(np.max(off[:-1] / widths), np.max(off[1:] / widths)))

    @named_arguments
    def to_vacuum(self, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
        """Vacuum wavelengths of wavelengths in `medium`."""
        wavelength = _in_angstrom(wavelength)
        return air.to_vacuum(wavelength) if self.medium == "air" else wavelength


def _in_angstrom(wavelength: ArrayLike, place: str = "wavelength") -> Float[ndarray, "..."]:
    return np.asarray(given_numbers(wavelength, "Angstrom", place), dtype=np.float64)


def _centres_and_edges(
    wavelength: ArrayLike, edges: ArrayLike
) -> tuple[Float[ndarray, " wave"], Float[ndarray, " edge"]]:
    centres, borders = _in_angstrom(wavelength), _in_angstrom(edges, "edges")
    if centres.ndim != 1 or not centres.size or borders.shape != (centres.size + 1,):
        raise ValueError(f"wavelength: expected n centres and n + 1 edges, got {centres.shape} and {borders.shape}")
    return centres, borders


def _came(centres: Float[ndarray, "..."], edges: Float[ndarray, "..."] | None = None) -> str:
    """The ends of wavelengths that were refused, with what to do about descending ones, in the words of an error."""
    given = {"wavelength": centres} if edges is None else {"wavelength": centres, "edges": edges}
    ends = (f"{name} {array.flat[0]:.7g} ... {array.flat[-1]:.7g}" for name, array in given.items() if array.size)
    descends = centres.size > 1 and centres.flat[-1] < centres.flat[0]
    return f", got {', '.join(ends) or 'none'}" + ("; reverse them, and the fluxes: values[::-1]" if descends else "")


class AbstractBinned:
    """The wavelengths of what has `bins`."""

    bins: WavelengthBins

    @property
    def wavelength(self) -> Float[ndarray, " wave"]:
        """Bin centres in Angstrom, in `medium` (float64)."""
        return self.bins.wavelength

    @property
    def wave_edges(self) -> Float[ndarray, " edge"]:
        """Bin edges in Angstrom, in `medium` (float64)."""
        return self.bins.edges

    @property
    def medium(self) -> Medium:
        """The medium of the wavelengths: "air" or "vacuum"."""
        return self.bins.medium

    @property
    def sampling(self) -> Sampling:
        """How the bins are spaced: "linear", "log" or by a "table"."""
        return self.bins.sampling
