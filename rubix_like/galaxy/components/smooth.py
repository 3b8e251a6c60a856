"""A galaxy of smooth components, and the emitters that stand for it: star particles at quadrature points."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.components.deformations import Asymmetry, Warp
from rubix_like.galaxy.components.dispersions import AbstractDispersion
from rubix_like.galaxy.components.heights import AbstractHeight
from rubix_like.galaxy.components.light import AbstractLight
from rubix_like.galaxy.components.populations import AbstractPopulation
from rubix_like.galaxy.components.quadrature import Axis, Densities, Points, make_points
from rubix_like.galaxy.components.rotation import AbstractRotation
from rubix_like.galaxy.particles import Galaxy, Stars

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

_TINY = 1e-20
"""Msun / kpc^2."""


class SmoothComponent(eqx.Module):
    """One component: how much mass (Msun at birth) lies where, how it moves, and which stars it has.

    The leaves have the names and units of the settings (`config.readers.components.ComponentSettings`). A dispersion
    may be a number. `center` (arcsec, East and North), `inclination` and `position_angle` (deg) are those of the whole
    galaxy plus the component's own.
    """

    mass: Scalar
    light: AbstractLight
    height: AbstractHeight
    rotation: AbstractRotation | None
    dispersion: Scalar | AbstractDispersion
    population: AbstractPopulation
    center: Float[Array, "2"]
    inclination: Scalar
    position_angle: Scalar
    warp: Warp | None = None
    asymmetry: Asymmetry | None = None

    def emitters(self, points: Points) -> Stars:
        """Star particles at these points, whose masses add up to the component's; pure, differentiable."""
        points = jax.tree.map(jnp.asarray, points)
        radius, z = _scaled(points.radius, self.light.scale), _scaled(points.height, self.height.scale)
        born = self.population.born(points.age, points.metallicity, radius)
        share = self.light.surface(points.radius.place) * points.radius.place * points.radius.weight
        column = self._column(jnp.mean(share))
        share = share * points.speed.weight * self.height.density(points.height.place) * points.height.weight
        growth = points.radius.place / (1 + points.radius.place)
        share = share * born.weight * self._brightness(points.azimuth, growth)
        sigma, drift = self._pressure(points.radius.place, column)
        level = jnp.zeros_like(radius)
        cosine, sine = jnp.cos(points.azimuth), jnp.sin(points.azimuth)
        speed = level if self.rotation is None else self.rotation.speed(radius, drift)
        around, outwards = self._velocity(speed, points.azimuth, radius, growth)
        tilt, turn = (level, level) if self.warp is None else self.warp.angles(radius)
        return Stars(
            position=jnp.stack([radius * cosine, radius * sine, z], axis=1),
            velocity=jnp.stack([outwards * cosine - around * sine, outwards * sine + around * cosine, level], axis=1),
            initial_mass=self.mass * (share / jnp.sum(share)),
            log_age=born.log_age,
            metallicity=born.metallicity,
            random_velocity=sigma * points.speed.place,
            east=level + self.center[0],
            north=level + self.center[1],
            tilt=tilt + self.inclination,
            twist=turn + self.position_angle,
        )

    def _brightness(self, azimuth: Places, growth: Places) -> Places:
        return jnp.ones_like(azimuth) if self.asymmetry is None else self.asymmetry.brightness(azimuth, growth)

    def _velocity(self, speed: Places, azimuth: Places, radius: Places, growth: Places) -> tuple[Places, Places]:
        """Along the azimuth and outwards."""
        if self.asymmetry is None:
            return speed, jnp.zeros_like(speed)
        return self.asymmetry.velocity(speed, azimuth, radius, growth)

    def _column(self, integral: Scalar) -> Callable[[Places], Places]:
        """Surface density (Msun / kpc^2) over R / scale, whose integral over places is known."""
        scale = jnp.where(self.light.scale > 0, self.light.scale, 1.0).astype(self.mass.dtype)
        return lambda place: self.mass / (2 * jnp.pi * scale**2 * integral) * self.light.surface(place)

    def _pressure(self, place: Places, column: Callable[[Places], Places]) -> tuple[Places, Places]:
        """Dispersion (km/s), and sigma^2 d ln(Sigma sigma^2) / d ln R."""

        def sigma(at: Places) -> Places:
            own = self.dispersion
            if not isinstance(own, AbstractDispersion):
                return jnp.broadcast_to(own, at.shape)
            return own.sigma(self.light.scale.astype(at.dtype) * at, column(at), self.height.scale.astype(at.dtype))

        def pressure(at: Places) -> Places:
            return column(at) * sigma(at) ** 2

        _, slope = jax.jvp(pressure, (place,), (jnp.ones_like(place),))
        return sigma(place), place * slope / jnp.maximum(column(place), _TINY)

    def densities(self) -> Densities:
        """What the points are spread by, on the host."""
        return Densities(
            surface=lambda place: np.asarray(self.light.surface(jnp.asarray(place)), np.float64),
            vertical=lambda place: np.asarray(self.height.density(jnp.asarray(place)), np.float64),
            highest=self.height.highest,
        )


def _scaled(axis: Axis, scale: Scalar) -> Places:
    """Places in kpc, in the precision of the points."""
    place = jnp.asarray(axis.place)
    return place * scale.astype(place.dtype)


class SmoothGalaxy(eqx.Module):
    """Components by name: what a fit's parameters `galaxy.NAME.KEY` are leaves of."""

    components: tuple[SmoothComponent, ...]
    names: tuple[str, ...] = eqx.field(static=True)

    def emitters(self, points: Sequence[Points]) -> Galaxy:
        """The galaxy of all components' emitters, for the points of each."""
        parts = [own.emitters(at) for own, at in zip(self.components, points, strict=True)]
        return Galaxy(stars=jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))

    def points(self, numbers: Sequence[int], part: int = 0, n_part: int = 1) -> tuple[Points, ...]:
        """Quadrature points of each component, as many as said (`quadrature.lattice`); host arrays."""
        return tuple(
            make_points(own.densities(), number, part, n_part)
            for own, number in zip(self.components, numbers, strict=True)
        )


@jax.jit
def emitted(galaxy: SmoothGalaxy, points: tuple[Points, ...]) -> Galaxy:
    """`galaxy.emitters(points)`, compiled."""
    return galaxy.emitters(points)


def as_leaf(value: Any) -> Array:
    """A number, or several, as an array in JAX's default precision."""
    return jnp.asarray(np.asarray(value, jax.dtypes.canonicalize_dtype(float)))
