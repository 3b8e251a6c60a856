"""Populations as masses on a grid of age and metallicity, with draws: means, histories of star formation, tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from astropy.table import Column, Table
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.inference.described_trees import described_as

PERCENTILES: tuple[float, float, float] = (50.0, 15.865, 84.135)

_TOO_SURE = 0.15
"""Error of a total mass, in units of it, below which it has been found too small (docs/free-form-populations.md)."""

Weighting = Literal["mass", "light"]


class Interval(NamedTuple):
    """Of each population: the median of the draws, and the values that 16 and 84 % of them lie below."""

    value: Float[ndarray, "*n"]
    low: Float[ndarray, "*n"]
    high: Float[ndarray, "*n"]

    @staticmethod
    def of(draws: Float[ndarray, "draw *n"]) -> "Interval":
        """Median and 16th and 84th percentiles of draws along the first axis."""
        return Interval(*np.percentile(draws, PERCENTILES, axis=0))


@dataclass(frozen=True, eq=False)
class Populations:
    """Free-form populations: of the components of a galaxy, or of the bins of a cube.

    `draws` are from the posterior, so that all that is read of them has an uncertainty. `mass` is that of the model
    that is shown: of bins the mean of the draws, of components and where a strength is given that of the highest
    posterior with a smoothness prior of strength `smoothness`. All masses are at birth, in Msun.
    """

    labels: tuple[str, ...]
    log_age: Float[ndarray, " age"] = field(metadata=described_as("log10(age / yr) of the nodes"))
    metallicity: Float[ndarray, " metal"] = field(metadata=described_as("metal mass fraction of the nodes"))
    mass: Float[ndarray, "population metal age"] = field(
        metadata=described_as("masses at birth of the model that is shown", "Msun")
    )
    draws: Float[ndarray, "draw population metal age"] = field(metadata=described_as("drawn masses at birth", "Msun"))
    smoothness: Float[ndarray, " population"] = field(
        metadata=described_as("strength of the smoothness prior of the fit")
    )
    light_per_mass: Float[ndarray, "metal age"] = field(
        metadata=described_as("mean light of the nodes' templates in the fitted range, per mass; only ratios matter")
    )

    def total_mass(self) -> Interval:
        """Mass at birth, Msun."""
        return Interval.of(self.draws.sum(axis=(2, 3)))

    def mean_log_age(self, weighting: Weighting = "mass") -> Interval:
        """Mean of log10(age / yr), weighted by mass at birth or by light in the fitted range."""
        return Interval.of(self._mean(self.log_age[None, :], weighting))

    def mean_log_metallicity(self, weighting: Weighting = "mass") -> Interval:
        """Mean of log10 of the metal mass fraction, weighted alike."""
        return Interval.of(self._mean(np.log10(self.metallicity)[:, None], weighting))

    def mean_age(self, weighting: Weighting = "mass") -> Interval:
        """Mean age in Gyr, weighted alike."""
        return Interval.of(self._mean(10 ** (self.log_age[None, :] - 9), weighting))

    @named_arguments
    def history(self, edges: Sequence[float] | Float[ndarray, " edge"]) -> Interval:
        """Mass formed between neighbouring `edges` of log10(age / yr), (population, bin), Msun.

        The mass of a node lies evenly over its cell, up to halfway to its neighbours and as far beyond the outermost
        ones. Raises ValueError for edges that do not increase, or leave a bin outside all cells.
        """
        ends = np.asarray(edges, float)
        if ends.ndim != 1 or len(ends) < 2 or np.any(np.diff(ends) <= 0):
            raise ValueError(f"history: expected increasing edges of log10(age / yr), got {list(np.ravel(ends))}")
        cells = _cells(self.log_age)
        low, high = np.maximum(ends[:-1, None], cells[:-1]), np.minimum(ends[1:, None], cells[1:])
        share = np.maximum(high - low, 0.0) / np.diff(cells)
        if not (share > 0).any(axis=1).all():
            empty = int(np.argmin((share > 0).any(axis=1)))
            raise ValueError(
                f"history: expected bins within the nodes' cells, {cells[0]:.4g} to {cells[-1]:.4g}, got one from "
                f"{ends[empty]:g} to {ends[empty + 1]:g}"
            )
        return Interval.of(np.einsum("dpma,ba->dpb", self.draws, share))

    def columns(self) -> Mapping[str, tuple[Interval, str]]:
        """What a table and maps show, by name, with its unit."""
        return {
            "mass": (self.total_mass(), "Msun"),
            "log_age_mass": (self.mean_log_age("mass"), ""),
            "log_age_light": (self.mean_log_age("light"), ""),
            "log_metallicity_mass": (self.mean_log_metallicity("mass"), ""),
            "log_metallicity_light": (self.mean_log_metallicity("light"), ""),
        }

    def to_table(self) -> Any:
        """An `astropy.table.Table` with a row for each population: its label, and the median of each of `columns`, with
        what 16 (`_low`) and 84 % (`_high`) of the draws lie below."""
        table = Table({"population": list(self.labels)})
        for name, (own, unit) in self.columns().items():
            for suffix, values in zip(("", "_low", "_high"), own, strict=True):
                table[f"{name}{suffix}"] = Column(values, unit=unit or None)
        return table

    def _mean(self, values: ndarray, weighting: Weighting) -> Float[ndarray, "draw population"]:
        if weighting not in ("mass", "light"):
            raise ValueError(f"weighting: expected 'mass' or 'light', got {weighting!r}")
        shares = self.draws if weighting == "mass" else self.draws * self.light_per_mass
        total = shares.sum(axis=(2, 3))
        return np.einsum("dpma,ma->dp", shares, np.broadcast_to(values, self.light_per_mass.shape)) / np.where(
            total > 0, total, np.nan
        )


def notes_on_masses(found: Mapping[str, Populations]) -> list[str]:
    """A note for each total mass whose error is often too small, as old stars are hardly seen beneath younger ones."""
    notes = []
    for name, own in found.items():
        mass = own.total_mass()
        error = float(np.max(0.5 * (mass.high - mass.low) / mass.value))
        if error < _TOO_SURE:
            notes.append(
                f"{name}: the error of the total mass ({100 * error:.2g} %) is too small for many histories: "
                f"of mocks with errors below {100 * _TOO_SURE:g} %, 38 % had the true mass within the error in place "
                f"of 68 %, as masses come out too high where there are few old stars; take the upper end as a limit"
            )
    return notes


def _cells(nodes: Float[ndarray, " node"]) -> Float[ndarray, " edge"]:
    """Edges of the nodes' cells; 0.2 dex for a single node."""
    if len(nodes) == 1:
        return nodes[0] + np.array([-0.1, 0.1])
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    return np.concatenate([[2 * nodes[0] - middle[0]], middle, [2 * nodes[-1] - middle[-1]]])
