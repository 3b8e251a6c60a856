"""A painter turns particles into a partial cube that devices can add up, and the sum of these into a cube.

The partial of `direct` is light in (spaxel, fine bin), which line spread and detector bins take to the cube. That of
`basis` is coefficients in (spaxel, velocity node, basis spectrum), which one matrix product takes there; a deposit
kernel (`engine/kernels`) adds the particles to its rows, as it does for the maps of `products`.
"""

import dataclasses
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.galaxy.limits import MOST_VELOCITY_RANGE, POSSIBLE
from rubix_like.galaxy.scene import Scene
from rubix_like.instrument.blur import blur
from rubix_like.physics.templates import Corners, TemplateAxes
from rubix_like.runtime.mesh.mesh import DeviceLayout

Scalar = Float[Array | ndarray, ""]


def count(scene: Scene, axes: TemplateAxes, field: Footprint, velocity_limit: Scalar) -> SourceCounters:
    """Counts (padding left out) and amounts of a source's particles.

    `axes` are those of its templates; `field`: that of the instrument.
    """
    scene = lax.stop_gradient(scene)
    coordinates = tuple(scene.coordinates[name] for name in axes.coordinate_names)
    values = (scene.position[:, 0], scene.position[:, 1], scene.v_los, scene.amount, *coordinates)
    possible = jnp.stack([jnp.isfinite(value) for value in values] + [scene.amount >= 0]).all(axis=0)
    possible = possible if scene.possible is None else possible & scene.possible
    beyond_x, beyond_y = (jnp.abs(scene.position[:, axis]) > 0.5 * side for axis, side in enumerate(field.sides))
    outside = beyond_x | beyond_y
    clamped = {name: axes.outside(name, coordinates) for name in axes.coordinate_names}

    def number(which: Bool[Array, " particle"]) -> Float[Array, ""]:
        return jnp.sum(scene.weight * which.astype(scene.weight.dtype))

    def amount(which: Bool[Array, " particle"]) -> Float[Array, ""]:
        return jnp.sum(scene.amount * which.astype(scene.weight.dtype))

    everything = jnp.ones_like(possible)
    return SourceCounters(
        n_particles=number(everything),
        n_outside=number(outside),
        n_clamped={name: number(which) for name, which in clamped.items()},
        n_beyond_velocity=number(jnp.abs(scene.v_los) > velocity_limit),
        n_overflow=number(~everything),
        n_not_finite=number(~possible),
        amount_total=amount(everything),
        amount_outside=amount(outside),
        amount_clamped={name: amount(which) for name, which in clamped.items()},
    )


def no_counts(axes: TemplateAxes, dtype: Any) -> SourceCounters:
    """Counters at zero for a source with these axes, all of one dtype, to be added to."""
    zero, by_axis = jnp.zeros((), dtype), {name: jnp.zeros((), dtype) for name in axes.coordinate_names}
    return SourceCounters(zero, zero, by_axis, zero, zero, zero, zero, zero, by_axis)


def check_counters(
    counters: SourceCounters,
    what: str,
    velocity_limit: Float[Array | ndarray, ""],
    fastest: Callable[[], float] | None = None,
    maker: Callable[[], str | None] | None = None,
) -> None:
    """Raise ValueError for particles that the cube is wrong for; does nothing while tracing.

    `what` names the particles in a sentence, e.g. "stars". Where they are at hand, `fastest` gives the largest speed
    (km/s) that they can have, and `maker` the first source or stage that made impossible numbers.
    """
    if isinstance(counters.n_not_finite, Tracer):
        return
    counters = jax.device_get(counters)
    broken, fast, total = (int(n) for n in (counters.n_not_finite, counters.n_beyond_velocity, counters.n_particles))
    if not total:
        logging.getLogger("rubix_like").warning("no %s shine: the cube has no light of theirs", what)
    elif int(counters.n_outside) == total:
        logging.getLogger("rubix_like").warning(
            "all %d %s are outside the field: the cube has no light of theirs", total, what
        )
    if broken:
        found = None if maker is None else maker()
        remedy = "rubix_like.validate(galaxy) names them"
        if found is not None and found.startswith("stage"):
            remedy = f"the {found} makes them; repair it"
        elif found is not None and found in what:
            remedy = f"{remedy}; if it does not, repair the {found}"
        raise ValueError(f"galaxy: expected {POSSIBLE}, got {broken} of {total} {what} with others; {remedy}")
    if not (fast or int(counters.n_overflow)):
        return
    needed = math.nan if fastest is None else fastest()
    wider = "set engine.velocity_range to the largest speed of the particles"
    if needed > MOST_VELOCITY_RANGE:
        wider = f"check the unit of velocities (km/s): the fastest has {needed:.4g} with observation.velocity_offset"
    elif not math.isnan(needed):
        wider = f"set engine.velocity_range to {math.ceil(needed)} km/s"
    if fast and needed < float(velocity_limit):
        raise ValueError(
            f"scene: expected line-of-sight velocities within {float(velocity_limit):.0f} km/s (as planned), got "
            f"{fast} of {total} {what} beyond, though the galaxy's are at most {needed:.4g} km/s; repair the stage on "
            f"the scene that makes them faster, or set engine.velocity_range to what it makes"
        )
    if int(counters.n_overflow):
        raise ValueError(
            f"galaxy: expected few {what} faster than the velocity nodes of method 'basis' (as planned), got "
            f"{int(counters.n_overflow)} of {total} {what} more; build the pipeline from this galaxy, or {wider}"
        )
    if fast:
        raise ValueError(
            f"galaxy: expected line-of-sight velocities within {float(velocity_limit):.0f} km/s (as planned), got "
            f"{fast} of {total} {what} beyond; {wider}, or build the pipeline from this galaxy "
            f"with that observation.velocity_offset, which plans for the fastest and names speeds that cannot be"
        )


class View(eqx.Module):
    """A painter's view of a chunk of particles.

    | field | shape | |
    |---|---|---|
    | amount | (particle,) | amount of a template that each one shines, in the templates' unit; 0 for padding |
    | coordinates | (particle,) each | place on the templates' axes; A(V) of layers of dust, mag |
    | v_los | (particle,) | km/s, + = receding |
    | spaxel, share | (particle, corner) | flat spaxel indices (n_spaxel = outside) and weights that sum to 1 |
    """

    amount: Float[Array, " particle"]
    coordinates: tuple[Float[Array, " particle"], ...]
    v_los: Float[Array, " particle"]
    spaxel: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]

    def corners(self, axes: TemplateAxes) -> Corners:
        """The templates around each particle: the only one where there are no axes."""
        return corners_of(axes, self.amount, self.coordinates)

    def each_corner(self, axes: TemplateAxes) -> list[tuple[Int[Array, " particle"], Float[Array, " particle"]]]:
        """(index, weight) arrays over particles for each of the templates around, as `corners` has them together."""
        if axes.names:
            return axes.each_corner(self.coordinates)
        return [(jnp.zeros(len(self.amount), jnp.int32), jnp.ones_like(self.amount))]


def corners_of(
    axes: TemplateAxes, amount: Float[Array, " particle"], coordinates: tuple[Float[Array, " particle"], ...]
) -> Corners:
    """The templates around particles at these coordinates: the only one where there are no axes."""
    if axes.names:
        return axes.corners(coordinates)
    return Corners(jnp.zeros((len(amount), 1), jnp.int32), jnp.ones_like(amount)[:, None])


Look = Callable[..., tuple[View, SourceCounters]]
"""Function from a chunk of a source's particles to the painter's view of them and their counters. A second argument is
the `SpaxelGrid` that the view is on, where that is not the run's."""


class Sum(Enum):
    """The way in which the parts of an array of a partial, one on each device, become the whole."""

    PARTICLES = "particles"
    """Sums over particles: added up along "data"; equal along "wave"."""
    BINS = "bins"
    """(spaxel, wave), also sums over particles: added up along "data", where each device may keep its bins."""
    ROWS = "rows"
    """(spaxel, k), also sums over particles: added up along "data", where each device keeps its spaxels."""
    EVERYTHING = "everything"
    """Sums over particles and bins: added up along "data" and "wave"."""


class AbstractPainter(eqx.Module):
    """One way to turn particles into light in spaxels and detector bins: `direct` or `basis`.

    A *partial* is a pytree of arrays that is linear in the particles' light: devices are added up, as `sums` says, then
    `project` makes the cube. Particles are looked up on `axes`; `velocity_limit` is the largest |v_los| (km/s) that it
    can paint. Inside the model it sees the bins of its device's part of the layout.
    """

    axes: eqx.AbstractVar[TemplateAxes]
    velocity_limit: eqx.AbstractVar[Float[Array | ndarray, ""]]

    @abstractmethod
    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[Any, SourceCounters]:
        """The partial, and the counters, of all particles at hand, at most `chunk` of them at a time."""

    @property
    @abstractmethod
    def n_coefficient(self) -> int:
        """Numbers per spaxel that `project` multiplies with a matrix; 0 where it does not."""

    @abstractmethod
    def laid_out(self, layout: DeviceLayout) -> "AbstractPainter":
        """The painter with tables along the detector's bins that can be cut evenly into parts (on the host)."""

    @property
    @abstractmethod
    def sums(self) -> tuple[Sum, ...]:
        """The way in which each array of its partial, in the order of the leaves, is added up."""

    @abstractmethod
    def project(
        self, partial: Any, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """Flux density per detector bin (1e-20 erg/s/cm2/Angstrom), and the sums of light and of light times v_los.

        `spatial` takes columns over the painted cells, (spaxel, k), to the spaxels that are seen; it is applied where
        that costs least, and may depend on wavelength (`Images`). The bins are those of the device's part of
        `layout.split`.
        """

    @abstractmethod
    def report(self) -> Mapping[str, int | float]:
        """Its sizes and accuracy (on the host), for headers and summaries; empty where it is exact."""


class AbstractInnerPainter(AbstractPainter):
    """A painter that leaves the light to an `inner` one, whose partials and sizes it has."""

    inner: eqx.AbstractVar[AbstractPainter]

    @property
    def n_coefficient(self) -> int:
        """`n_coefficient` of the inner painter."""
        return self.inner.n_coefficient

    def laid_out(self, layout: DeviceLayout) -> "AbstractInnerPainter":
        """The painter with the inner one laid out."""
        return dataclasses.replace(self, inner=self.inner.laid_out(layout))

    @property
    def sums(self) -> tuple[Sum, ...]:
        """`sums` of the inner painter."""
        return self.inner.sums

    def project(
        self, partial: Any, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The inner painter's cube."""
        return self.inner.project(partial, spatial, layout)

    def report(self) -> dict[str, int | float]:
        """The inner painter's report."""
        return dict(self.inner.report())


class PainterPair(AbstractPainter):
    """The light of both painters; a partial is a pair of theirs.

    Both look particles up on axes of equal names, in the same order; particles beyond those of `first` are counted.
    `label` stands before the words that `second` reports.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    first: AbstractPainter
    second: AbstractPainter
    label: str = eqx.field(static=True)

    @classmethod
    def of(cls, first: AbstractPainter, second: AbstractPainter, label: str) -> "PainterPair":
        """The pair, for particles that both can paint; ValueError for painters of other axes."""
        if first.axes.names != second.axes.names:
            raise ValueError(
                f"two painters of one source: expected axes of the same names, got {first.axes.names} and "
                f"{second.axes.names}"
            )
        limit = np.minimum(np.asarray(first.velocity_limit), np.asarray(second.velocity_limit))
        return cls(first.axes, np.asarray(limit), first, second, label)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[tuple[Any, Any], SourceCounters]:
        """The partials of both, and counters of the particles, with the larger of the two overflows."""
        first, counters = self.first.paint(look, particles, grid, chunk)
        second, others = self.second.paint(look, particles, grid, chunk)
        overflow = jnp.maximum(counters.n_overflow, others.n_overflow)
        return (first, second), eqx.tree_at(lambda c: c.n_overflow, counters, overflow)

    @property
    def n_coefficient(self) -> int:
        """The sum of both."""
        return self.first.n_coefficient + self.second.n_coefficient

    def laid_out(self, layout: DeviceLayout) -> "PainterPair":
        """The pair of both, laid out."""
        return dataclasses.replace(self, first=self.first.laid_out(layout), second=self.second.laid_out(layout))

    @property
    def sums(self) -> tuple[Sum, ...]:
        """`sums` of the first, then of the second."""
        return *self.first.sums, *self.second.sums

    def project(
        self, partial: tuple[Any, Any], spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The sum of both."""
        flux, moments = self.first.project(partial[0], spatial, layout)
        more_flux, more_moments = self.second.project(partial[1], spatial, layout)
        return flux + more_flux, moments + more_moments

    def report(self) -> dict[str, int | float]:
        """The report of the first, and that of the second under the label."""
        others = {f"{self.label}_{name}": value for name, value in self.second.report().items()}
        return {**self.first.report(), **others}


class SpreadPainter(AbstractInnerPainter):
    """The light of an inner painter, of a `share` of every particle's amount.

    With a `kernel` (weights of cells around a particle, sum 1) it is convolved with it, once, after all sums; `margin`
    more cells are painted on each side, no more than the kernel reaches, whose light is spread into the field. With a
    `place` on the axis `moved` all particles lie there.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    inner: AbstractPainter
    share: Float[Array | ndarray, ""]
    place: Float[Array | ndarray, ""] | None
    kernel: Float[Array | ndarray, "side side"] | None
    moved: str = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[Any, SourceCounters]:
        """The inner painter's partial on the grid with its margin."""
        wide = self.wide(grid)

        def look_at_changed(chunk_of_particles: Any) -> tuple[View, SourceCounters]:
            view, counters = look(chunk_of_particles, wide)
            return self.changed(view), counters

        return self.inner.paint(look_at_changed, particles, wide, chunk)

    def wide(self, grid: SpaxelGrid) -> SpaxelGrid:
        """The grid with its margin."""
        if not self.margin:
            return grid
        return dataclasses.replace(grid, footprint=grid.footprint.painted(self.margin))

    def changed(self, view: View) -> View:
        """The particles' share of light, where `place` says between the templates."""
        amount, coordinates = view.amount * self.share, list(view.coordinates)
        if self.place is not None:
            place = self.axes.names.index(self.moved)
            coordinates[place] = jnp.full_like(coordinates[place], self.place)
        return dataclasses.replace(view, amount=amount, coordinates=tuple(coordinates))

    def project(
        self, partial: Any, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The inner painter's cube, of images that are convolved with the kernel before they are seen."""
        return self.inner.project(partial, spatial.after(self.wide(spatial.grid), self.spread), layout)

    def spread(self, images: Float[Array, "y x k"]) -> Float[Array, "inner_y inner_x k"]:
        """Images of the wide grid convolved with the kernel, without their margin; beyond them there is no light."""
        if self.kernel is None:
            return images
        beyond = len(self.kernel) // 2 - self.margin
        padded = jnp.pad(images, ((beyond, beyond), (beyond, beyond), (0, 0)))
        return blur(padded, jnp.asarray(self.kernel).astype(images.dtype))
