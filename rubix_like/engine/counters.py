"""How many particles were outside, clamped, too fast or broken: sums beside the cube's, and a look at them."""

import logging
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.galaxy.limits import MOST_VELOCITY_RANGE, POSSIBLE
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.templates import TemplateAxes

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


def _wider(speed: float) -> str:
    """The remedy for particles that need `speed` (km/s); NaN where it is not known."""
    if speed > MOST_VELOCITY_RANGE:
        return f"check the unit of velocities (km/s): the fastest has {speed:.4g} with observation.velocity_offset"
    needed = "the largest speed of the particles" if math.isnan(speed) else f"{math.ceil(speed)} km/s"
    return f"set engine.velocity_range to {needed}"


def check_counters(
    counters: SourceCounters,
    what: str,
    velocity_limit: Float[Array | ndarray, ""],
    fastest: Callable[[], float] | None = None,
    maker: Callable[[], str | None] | None = None,
) -> None:
    """Raise ValueError for particles that the cube is wrong for; does nothing while tracing.

    `what` names the particles in a sentence, e.g. "stars"; where they are at hand, `fastest`: the largest speed (km/s)
    that they can have; `maker`: the first source or stage that made numbers which cannot be of them.
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
    wider = _wider(needed)
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
