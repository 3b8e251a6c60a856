"""A galaxy of smooth components, and the emitters that stand for it: star particles at quadrature points."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.components.declared import parameter
from rubix_like.galaxy.components.light import OF_ONE_SHAPE, AbstractHeight, AbstractLight, LineLight, LineRow
from rubix_like.galaxy.components.populations import AbstractPopulation, Born
from rubix_like.galaxy.components.quadrature import Axis, Densities, Points, make_points, radii_of
from rubix_like.galaxy.components.rotation import AbstractDispersion, AbstractRotation
from rubix_like.galaxy.particles import Galaxy, Stars

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]


_share = functools.partial(parameter, "", default=0.0, ge=-0.5, le=0.5)
_angle = functools.partial(parameter, "deg", default=0.0)
_speed = functools.partial(parameter, "km/s", default=0.0)


class Warp(eqx.Module):
    """Inclination and position angle that change linearly with the radius beyond `start`."""

    start: Scalar = parameter("kpc", "Radius where the warp begins.", default=0.0, moves=True, ge=0)
    tilt: Scalar = parameter("deg / kpc", "Slope of the inclination along the radius.", default=0.0, moves=True)
    turn: Scalar = parameter("deg / kpc", "Slope of the position angle along the radius.", default=0.0, moves=True)

    def angles(self, radius: Places) -> tuple[Places, Places]:
        """deg that are added to the inclination and the position angle at these radii (kpc)."""
        beyond = jnp.maximum(radius - self.start, 0.0)
        return self.tilt * beyond, self.turn * beyond


class Asymmetry(eqx.Module):
    """Harmonics m = 1, 2 over the azimuth phi in the plane, from the receding major axis; 0 at the centre.

    Light: 1 + g sum_m a_m cos m (phi - phi_m). Speed: + g sum_m s_m cos m (phi - psi_m). g = R / (R + scale of the
    light) lets them vanish at the centre. Kinematic twist: the direction of the rotation is turned by k R, so that its
    line of nodes is.
    """

    light_1: Scalar = _share("Amplitude of m = 1 in the light, relative.")
    light_angle_1: Scalar = _angle("Azimuth where m = 1 is brightest.")
    light_2: Scalar = _share("Amplitude of m = 2 in the light, relative.")
    light_angle_2: Scalar = _angle("Azimuth where m = 2 is brightest.")
    streaming_1: Scalar = _speed("Amplitude of m = 1 in the speed.")
    streaming_angle_1: Scalar = _angle("Azimuth where m = 1 is fastest.")
    streaming_2: Scalar = _speed("Amplitude of m = 2 in the speed.")
    streaming_angle_2: Scalar = _angle("Azimuth where m = 2 is fastest.")
    kinematic_twist: Scalar = parameter(
        "deg / kpc",
        "By how much the line of nodes of the rotation turns along the radius, in the plane.",
        default=0.0,
    )

    def brightness(self, azimuth: Places, growth: Places) -> Places:
        """Factor on the light."""
        one = self.light_1 * jnp.cos(azimuth - jnp.deg2rad(self.light_angle_1))
        two = self.light_2 * jnp.cos(2 * (azimuth - jnp.deg2rad(self.light_angle_2)))
        return 1 + growth * (one + two)

    def velocity(self, speed: Places, azimuth: Places, radius: Places, growth: Places) -> tuple[Places, Places]:
        """Velocities along the azimuth and outwards (km/s)."""
        one = self.streaming_1 * jnp.cos(azimuth - jnp.deg2rad(self.streaming_angle_1))
        two = self.streaming_2 * jnp.cos(2 * (azimuth - jnp.deg2rad(self.streaming_angle_2)))
        turned = jnp.deg2rad(self.kinematic_twist) * radius
        return speed * jnp.cos(turned) + growth * (one + two), speed * jnp.sin(turned)


_TINY = 1e-20
"""Msun / kpc^2."""

_DARK_STARS = 9.0, 0.02
"""log10(age / yr) and metal mass fraction of emitters without stars: those of no mass."""

_LEAST_DISPERSION = 1e-3
"""km/s, of the velocities of emitters whose lines are as wide as their dispersion."""


class SmoothComponent(eqx.Module):
    """One component: how much mass (Msun at birth) lies where, how it moves, and which stars it has; or instead of
    mass and population the `lines` that its gas shines in.

    The leaves have the names and units of the settings (`config.readers.components.ComponentSettings`). A dispersion
    may be a number. `center` (arcsec, East and North), `inclination` and `position_angle` (deg) are those of the whole
    galaxy plus those of the component.
    """

    mass: Scalar | None
    light: AbstractLight
    height: AbstractHeight
    rotation: AbstractRotation | None
    dispersion: Scalar | AbstractDispersion
    population: AbstractPopulation | None
    center: Float[Array, "2"]
    inclination: Scalar
    position_angle: Scalar
    warp: Warp | None = None
    asymmetry: Asymmetry | None = None
    lines: LineLight | None = None

    def emitters(self, points: Points) -> Stars:
        """Particles at these points, whose masses, or light in lines, add up to the component's; pure, differentiable.

        `line_light` is that of the component's lines, None without any.
        """
        points = jax.tree.map(jnp.asarray, points)
        is_fixed = isinstance(self.light, OF_ONE_SHAPE)
        disc = points.radius if is_fixed else radii_of(self.light.surface, points.turn)
        radius, z = _scaled(disc, self.light.scale), _scaled(points.height, self.height.scale)
        born = self._born(points, radius)
        share = self.light.surface(disc.place) * disc.place * disc.weight
        column = self._column(jnp.mean(share))
        share = share * points.speed.weight * self.height.density(points.height.place) * points.height.weight
        growth = disc.place / (1 + disc.place)
        share = share * born.weight * self._brightness(points.azimuth, growth)
        sigma, drift = self._pressure(disc.place, column)
        level = jnp.zeros_like(radius)
        cosine, sine = jnp.cos(points.azimuth), jnp.sin(points.azimuth)
        speed = level if self.rotation is None else self.rotation.speed(radius, drift)
        around, outwards = self._velocity(speed, points.azimuth, radius, growth)
        tilt, turn = (level, level) if self.warp is None else self.warp.angles(radius)
        return Stars(
            position=jnp.stack([radius * cosine, radius * sine, z], axis=1),
            velocity=jnp.stack([outwards * cosine - around * sine, outwards * sine + around * cosine, level], axis=1),
            initial_mass=level if self.mass is None else self.mass * (share / jnp.sum(share)),
            log_age=born.log_age,
            metallicity=born.metallicity,
            random_velocity=self._not_in_lines(sigma) * points.speed.place,
            east=level + self.center[0],
            north=level + self.center[1],
            tilt=tilt + self.inclination,
            twist=turn + self.position_angle,
            line_light=None if self.lines is None else self.lines.shared(share / jnp.sum(share)),
        )

    def _born(self, points: Points, radius: Places) -> Born:
        """The stars at the points; of gas stars of no mass."""
        if self.population is not None:
            return self.population.born(points.age, points.metallicity, radius)
        one = jnp.ones_like(radius)
        return Born(_DARK_STARS[0] * one, _DARK_STARS[1] * one, one)

    def _not_in_lines(self, sigma: Places) -> Places:
        """The dispersion less what the lines are as wide as, in squares."""
        if self.lines is None:
            return sigma
        return jnp.sqrt(jnp.maximum(sigma**2 - self.lines.width.astype(sigma.dtype) ** 2, _LEAST_DISPERSION**2))

    def _brightness(self, azimuth: Places, growth: Places) -> Places:
        return jnp.ones_like(azimuth) if self.asymmetry is None else self.asymmetry.brightness(azimuth, growth)

    def _velocity(self, speed: Places, azimuth: Places, radius: Places, growth: Places) -> tuple[Places, Places]:
        if self.asymmetry is None:
            return speed, jnp.zeros_like(speed)
        return self.asymmetry.velocity(speed, azimuth, radius, growth)

    def _column(self, integral: Scalar) -> Callable[[Places], Places]:
        """Surface density (Msun / kpc^2) over R / scale, whose integral over places is known."""
        mass = jnp.ones_like(self.light.scale) if self.mass is None else self.mass
        scale = jnp.where(self.light.scale > 0, self.light.scale, 1.0).astype(mass.dtype)
        return lambda place: mass / (2 * jnp.pi * scale**2 * integral) * self.light.surface(place)

    def _pressure(self, place: Places, column: Callable[[Places], Places]) -> tuple[Places, Places]:
        """Dispersion (km/s), and sigma^2 d ln(Sigma sigma^2) / d ln R."""

        def sigma(at: Places) -> Places:
            dispersion = self.dispersion
            if not isinstance(dispersion, AbstractDispersion):
                return jnp.broadcast_to(dispersion, at.shape)
            return dispersion.sigma(
                self.light.scale.astype(at.dtype) * at, column(at), self.height.scale.astype(at.dtype)
            )

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
    place = jnp.asarray(axis.place)
    return place * scale.astype(place.dtype)


class SmoothGalaxy(eqx.Module):
    """Components by name: what a fit's parameters `galaxy.NAME.KEY` are leaves of."""

    components: tuple[SmoothComponent, ...]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def line_rows(self) -> tuple[LineRow, ...]:
        """All lines of the components, in the order of the columns of `line_light`."""
        every = [row for component in self.components if component.lines is not None for row in component.lines.rows]
        return tuple(dict.fromkeys(every))

    def emitters(self, points: Sequence[Points]) -> Galaxy:
        """The galaxy of all components' emitters, for the points of each."""
        parts = [
            self._with_all_lines(component, component.emitters(at))
            for component, at in zip(self.components, points, strict=True)
        ]
        return Galaxy(stars=jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))

    def _with_all_lines(self, component: SmoothComponent, made: Stars) -> Stars:
        """A component's emitters with a column for each line of the galaxy, where it has any."""
        rows = self.line_rows
        if not rows:
            return made
        component_rows = () if component.lines is None else component.lines.rows
        light = [
            jnp.zeros_like(made.initial_mass)
            if row not in component_rows or made.line_light is None
            else made.line_light[:, component_rows.index(row)]
            for row in rows
        ]
        return dataclasses.replace(made, line_light=jnp.stack(light, axis=1))

    def points(self, numbers: Sequence[int], part: int = 0, n_part: int = 1) -> tuple[Points, ...]:
        """Quadrature points of each component, as many as said (`quadrature.lattice`); host arrays."""
        return tuple(
            make_points(component.densities(), number, part, n_part)
            for component, number in zip(self.components, numbers, strict=True)
        )


@jax.jit
def emitted(galaxy: SmoothGalaxy, points: tuple[Points, ...]) -> Galaxy:
    """`galaxy.emitters(points)`, compiled."""
    return galaxy.emitters(points)


def as_leaf(value: Any) -> Array:
    """A number, or several, as an array in JAX's default precision."""
    return jnp.asarray(np.asarray(value, jax.dtypes.canonicalize_dtype(float)))
