"""Quadrature points of a smooth component: a lattice rule, spread by importance on the host, fixed inside jit.

The light of a component is an integral over radius, azimuth, height, the velocity along the line of sight, age and
metallicity. A rank-1 lattice rule takes the same N points for all of these axes together,

    u_k = ((k + 1/2) z / N) mod 1,     k = 0 ... N - 1,

with an error that falls faster than 1 / N for smooth integrands, where a product of rules would need as many points as
the product of the numbers along all axes. `VECTOR` was found component by component: of 400 candidates that with the
least worst-case error P_2 (Sloan & Joe 1994, Lattice Methods for Multiple Integration) at N = 2^12 to 2^18 together.
Where a density f lies on an axis, the points have the density q, about f^0.6, and the weight 1 / q: what is bright gets
many points, and what is faint gets some. Radii of a profile whose shape depends on parameters follow it inside jit
(`radii_of`), so that there are points where its light is, whatever shape the points were made for.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float
from numpy import ndarray

VECTOR: tuple[int, ...] = (1, 882091, 280171, 421347, 896333, 530171)
"""Generating vector of the lattice, one number for each axis in the order of the fields of `Points`."""

FLATTER: float = 0.6
"""Power of a density on an axis that its points are spread by."""

LEFT_OUT: float = 2e-5
"""Share of a profile's mass beyond the outermost points."""

WIDEST_NORMAL: float = 4.5
"""Standard deviations of a normal distribution up to which there are points (7e-6 lie beyond)."""

LARGEST_RADIUS: float = 40.0
"""Scale lengths beyond which no profile has points."""

_GRID = 8192

_DARK = 1e-30
"""Surface density below which there is no light, of profiles that are about 1 at their scale."""

_FEWEST = 1e-12
"""Least density of points, of the largest: where there are next to none, weights stay finite."""


class Axis(eqx.Module):
    """Places along one axis in units of its scale, and weights such that sum(weight f(place)) / N is its integral."""

    place: Float[Array | ndarray, " point"]
    weight: Float[Array | ndarray, " point"]


class Points(eqx.Module):
    """The points of one component.

    | field | place in units of | weight for |
    |---|---|---|
    | radius | the light's scale, of the profile that the points were made for | d(place) |
    | turn | a number in (0, 1) that the radius follows from | |
    | azimuth | radians | the same for all |
    | speed | the dispersion along the line of sight | a normal distribution, which is in it |
    | height | the scale height | d(place) |
    | age | a number in (0, 1) | the same for all |
    | metallicity | a number in (0, 1) | the same for all |
    """

    radius: Axis
    turn: Float[Array | ndarray, " point"]
    azimuth: Float[Array | ndarray, " point"]
    speed: Axis
    height: Axis
    age: Float[Array | ndarray, " point"]
    metallicity: Float[Array | ndarray, " point"]

    @property
    def n_point(self) -> int:
        """Number of points."""
        return len(self.azimuth)


class Densities(NamedTuple):
    """What points are spread by: surface density over the radius and vertical density over the height, both in units of
    their scales; the height from `lowest` to `highest`."""

    surface: Callable[[Float[ndarray, " place"]], Float[ndarray, " place"]]
    vertical: Callable[[Float[ndarray, " place"]], Float[ndarray, " place"]]
    highest: float


def lattice(n_point: int, part: int = 0, n_part: int = 1) -> Float[ndarray, "point axis"]:
    """Points of one of `n_part` parts of the rule with n_point * n_part points: together they are the whole rule, and
    each is the rule of `n_point` points, moved."""
    number = np.arange(n_point, dtype=np.int64) * n_part + part
    turns = (2 * number[:, None] + 1) * np.asarray(VECTOR, np.int64) % (2 * n_point * n_part)
    return turns / (2.0 * n_point * n_part)


def make_points(densities: Densities, n_point: int, part: int = 0, n_part: int = 1) -> Points:
    """The points of a component with these densities; host arrays in JAX's default precision."""
    radius, azimuth, speed, height, age, metallicity = lattice(n_point, part, n_part).T
    grid = _radial_grid()
    density = densities.surface(grid)
    mass = _cumulative(grid, grid * density)
    end = int(np.searchsorted(mass, (1 - LEFT_OUT) * mass[-1])) + 1
    made = Points(
        radius=spread_along(grid[: end + 1], lambda place: place ** (1 / FLATTER) * densities.surface(place), radius),
        turn=radius,
        azimuth=2 * np.pi * azimuth,
        speed=normal(speed),
        height=spread_along(np.linspace(-densities.highest, densities.highest, _GRID), densities.vertical, height),
        age=age,
        metallicity=metallicity,
    )
    dtype = jax.dtypes.canonicalize_dtype(float)
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), made)


def normal(uniform: Float[ndarray, " point"]) -> Axis:
    """Places of a standard normal distribution, with the weights of their mass."""
    width = 1 / np.sqrt(FLATTER)
    end = scipy.special.ndtr(WIDEST_NORMAL / width)
    place = width * scipy.special.ndtri(1 - end + uniform * (2 * end - 1))
    weight = np.exp(-0.5 * place**2 * (1 - FLATTER)) * width * (2 * end - 1)
    return Axis(place, weight)


def _radial_grid() -> Float[ndarray, " place"]:
    return np.concatenate([[0.0], np.geomspace(1e-4, LARGEST_RADIUS, _GRID)])


def radii_of(surface: Callable[[Array], Array | ndarray], turn: Float[Array | ndarray, " point"]) -> Axis:
    """Radii of a surface density whose parameters may be traced: where its mass is, up to where all but `LEFT_OUT` is.

    Places are inverted from the integral of q = R surface^0.6, linear between the nodes of a grid; weights are 1 / q,
    so that both are smooth in the parameters and their derivatives are those of the sum.
    """
    grid = jnp.asarray(_radial_grid(), turn.dtype)

    def spread(place: Array) -> Array:
        return place * jnp.maximum(jnp.asarray(surface(place)), _DARK) ** FLATTER

    mass, share = (
        jnp.concatenate([jnp.zeros_like(grid[:1]), jnp.cumsum(0.5 * jnp.diff(grid) * (density[1:] + density[:-1]))])
        for density in (grid * surface(grid), spread(grid))
    )
    end = jnp.interp((1 - LEFT_OUT) * mass[-1], mass, grid)
    within = jnp.interp(end, grid, share)
    place = jnp.interp(turn * within, share, grid)
    density = spread(place)
    return Axis(place, within / jnp.maximum(density, _FEWEST * jnp.max(density)))


def spread_along(
    grid: Float[ndarray, " place"],
    density: Callable[[Float[ndarray, " place"]], Float[ndarray, " place"]],
    uniform: Float[ndarray, " point"],
) -> Axis:
    """Places on a grid with the density f^0.6, and the inverse of what they have of it: linear between the grid's."""
    share = _cumulative(grid, density(grid) ** FLATTER)
    share /= share[-1]
    interval = np.clip(np.searchsorted(share, uniform, side="right") - 1, 0, len(grid) - 2)
    slope = np.diff(grid)[interval] / np.diff(share)[interval]
    return Axis(grid[interval] + (uniform - share[interval]) * slope, slope)


def _cumulative(grid: Float[ndarray, " place"], values: Float[ndarray, " place"]) -> Float[ndarray, " place"]:
    return np.concatenate([[0.0], np.cumsum(0.5 * np.diff(grid) * (values[1:] + values[:-1]))])
