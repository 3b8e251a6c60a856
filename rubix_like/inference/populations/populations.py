"""Free-form populations: what is planned for a fit of them; as results means, histories of star formation, tables."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from astropy.table import Column, Table
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.engine.basis import BasisPainter
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.galaxy.components.populations import FreeFormStars, SingleStars
from rubix_like.galaxy.components.rotation import FromHeight
from rubix_like.galaxy.components.smooth import SmoothGalaxy
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.populations.mixtures import Mixtures, star_painter
from rubix_like.inference.populations.weight_draws import smoothness_rows
from rubix_like.runtime.notes import WARNING, Note

PERCENTILES: tuple[float, float, float] = (50.0, 15.865, 84.135)

_TOO_SURE = 0.15
"""Error of a total mass, in units of it, below which it has been found too small (docs/free-form-populations.md)."""

Weighting = Literal["mass", "light"]


class Interval(NamedTuple):
    """The median of each population's draws, and the values that 16 and 84 % of them lie below."""

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
        """The columns of a table and of maps, by name, with their units."""
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
        for name, (interval, unit) in self.columns().items():
            for suffix, values in zip(("", "_low", "_high"), interval, strict=True):
                table[f"{name}{suffix}"] = Column(values, unit=unit or None)
        return table

    def _mean(self, values: ndarray, weighting: Weighting) -> Float[ndarray, "draw population"]:
        if weighting not in ("mass", "light"):
            raise ValueError(f"weighting: expected 'mass' or 'light', got {weighting!r}")
        shares = self.draws if weighting == "mass" else self.draws * self.light_per_mass
        total = shares.sum(axis=(2, 3))
        return (shares * values).sum(axis=(2, 3)) / np.where(total > 0, total, np.nan)


def notes_on_masses(found: Mapping[str, Populations]) -> list[Note]:
    """A note for each total mass whose error is often too small, as old stars are hardly seen beneath younger ones."""
    notes = []
    for name, populations in found.items():
        mass = populations.total_mass()
        error = float(np.max(0.5 * (mass.high - mass.low) / mass.value))
        if error < _TOO_SURE:
            text = (
                f"{name}: the error of the total mass ({100 * error:.2g} %) is too small for many histories: of mocks "
                f"with errors below {100 * _TOO_SURE:g} %, 38 % had the true mass within the error in place of 68 %, "
                f"as masses come out too high where there are few old stars; take the upper end as a limit"
            )
            notes.append(Note("populations.total_mass", text, WARNING))
    return notes


def _cells(nodes: Float[ndarray, " node"]) -> Float[ndarray, " edge"]:
    """Edges of the nodes' cells; 0.2 dex for a single node."""
    if len(nodes) == 1:
        return nodes[0] + np.array([-0.1, 0.1])
    middle = 0.5 * (nodes[1:] + nodes[:-1])
    return np.concatenate([[2 * nodes[0] - middle[0]], middle, [2 * nodes[-1] - middle[-1]]])


_FIRST_STRENGTH = 1.0
"""Of the first search, for weights in units of their mean."""


def solved_stars(galaxy: SmoothGalaxy) -> dict[int, FreeFormStars]:
    """The free-form populations that a fit solves for, by the number of their component."""
    populations = enumerate(component.population for component in galaxy.components)
    return {number: stars for number, stars in populations if isinstance(stars, FreeFormStars) and stars.is_solved}


def without_spread_ages(galaxy: SmoothGalaxy) -> SmoothGalaxy:
    """The galaxy to choose quadrature points for: those that are solved for shine alike everywhere."""
    alike, components = SingleStars(jnp.asarray(9.5), jnp.asarray(0.02), jnp.zeros(())), list(galaxy.components)
    for number in solved_stars(galaxy):
        components[number] = dataclasses.replace(components[number], population=alike)
    return SmoothGalaxy(tuple(components), galaxy.names)


def method_for_mixtures(reader: object, galaxy: SmoothGalaxy | None, method: str) -> str:
    """The method that solving for populations needs, `method` where none are solved for; ConfigError for `direct`.

    `reader`: the settings of the galaxy; `galaxy`: the components that are given in their place.
    """
    if galaxy is None and isinstance(reader, ComponentsReader):
        galaxy = reader.build()
    if galaxy is None or not solved_stars(galaxy):
        return method
    if method == "direct":
        raise ConfigError(
            "engine.method: expected 'auto' or 'basis' for a free-form population that a fit solves for, got 'direct'"
        )
    return "basis"


def mixtures_of(
    base: SmoothGalaxy,
    pipeline: Pipeline,
    settings: FitSettings,
    flux: Float[Array, "y x wave"],
    inverse_sigma: Float[Array, "y x wave"],
) -> Mixtures | None:
    """All that solving for the populations of components needs, given the data; None where none are solved for.

    Raises ConfigError for settings that do not go with it.
    """
    solved = solved_stars(base)
    if not solved:
        return None
    _check_solvable(base, tuple(solved), pipeline, settings)
    painter = star_painter(pipeline.tables)
    coefficients, rows, strength, of_row = [], [], [], []
    for place, stars in enumerate(solved.values()):
        coefficients.append(_coefficients(painter, stars))
        axes = np.log10(stars.metallicities), np.array(stars.log_ages)
        rows.append(len(coefficients[-1]) * smoothness_rows(*axes, coefficients[-1][:, 0]))
        of_row += [place] * len(rows[-1])
        strength.append(_FIRST_STRENGTH if stars.smoothness is None else stars.smoothness)
    return Mixtures(
        coefficients=tuple(jnp.asarray(array, flux.dtype) for array in coefficients),
        smoothness=jnp.asarray(scipy.linalg.block_diag(*rows), flux.dtype),
        strength=jnp.asarray(strength, flux.dtype),
        flux=flux,
        inverse_sigma=inverse_sigma,
        of_row=tuple(of_row),
        solved=tuple(solved),
        others=tuple(number for number in range(len(base.components)) if number not in solved),
    )


def _coefficients(painter: BasisPainter, stars: FreeFormStars) -> Float[np.ndarray, "node rank"]:
    """The nodes' templates on the basis spectra, between those of the library."""
    log_age, metallicity = stars.nodes
    places = {"age": log_age, "metallicity": np.log10(metallicity)}
    pairs = zip(painter.axes.names, painter.axes.nodes, strict=True)
    corners = painter.axes.corners(tuple(jnp.asarray(places[name], nodes.dtype) for name, nodes in pairs))
    table = np.asarray(painter.coefficients, np.float64)[np.asarray(corners.index)]
    return np.einsum("nc,ncr->nr", np.asarray(corners.weight, np.float64), table)


def with_solved_weights(galaxy: SmoothGalaxy, found: Mapping[str, Populations]) -> SmoothGalaxy:
    """The components whose free-form populations and masses are those that were found."""
    components = list(galaxy.components)
    for number, stars in solved_stars(galaxy).items():
        name = galaxy.names[number]
        if name in found:
            mass, dtype = found[name].mass[0], np.asarray(components[number].mass).dtype
            population = dataclasses.replace(stars, weights=np.asarray(mass / mass.sum(), dtype).reshape(-1))
            changed = {"population": population, "mass": np.asarray(mass.sum(), dtype)}
            components[number] = dataclasses.replace(components[number], **changed)
    return SmoothGalaxy(tuple(components), galaxy.names)


def _check_solvable(base: SmoothGalaxy, solved: tuple[int, ...], pipeline: Pipeline, settings: FitSettings) -> None:
    what = "for a free-form population that a fit solves for"
    remedy = "give the population's weights, or leave this out"
    if pipeline.plan.sources != (STAR_SOURCE,):
        raise ConfigError(f"pipeline: expected stars alone {what}, got {', '.join(pipeline.plan.sources)}; {remedy}")
    painter = star_painter(pipeline.tables)
    if painter.colours is not None:
        raise ConfigError(f"dust: expected a screen or null {what}, got dust of kind particles; {remedy}")
    if painter.outliers is not None:
        raise ConfigError(
            f"engine.velocity_range: expected the largest speed in km/s {what}, got null with stars so fast that they "
            f"would be painted singly; give it, e.g. 1000 km/s"
        )
    taken = [key for key in ("polynomial", "noise_scale", "model_error") if getattr(settings, key) is not None]
    taken += [] if settings.likelihood.plain else ["likelihood"]
    if taken:
        raise ConfigError(f"fit.{taken[0]}: expected the default {what}, got a section; {remedy}")
    for number in solved:
        name, component = f"galaxy.{base.names[number]}", base.components[number]
        for key, why in (("mass", "follows from the weights"), ("population.weights", "is solved for")):
            if f"{name}.{key}" in settings.free:
                raise ConfigError(
                    f"fit.free.{name}.{key}: expected no prior {what}, since it {why}, got one; leave it out of "
                    f"fit.free, or give the population's weights"
                )
        if isinstance(component.dispersion, FromHeight):
            raise ConfigError(
                f"{name}.dispersion: expected a dispersion that does not depend on the mass {what}, got 'from_height'; "
                f"take a number or 'exponential'"
            )
