"""How many particles were outside, clamped, too fast or broken: sums beside the cube's, and a look at them."""

import logging
from collections.abc import Mapping

import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.cube.meta import Counters
from rubix_like.galaxy.scene import Scene

Scalar = Float[Array | ndarray, ""]


def count(
    scene: Scene,
    outside_templates: Mapping[str, Bool[Array, " particle"]],
    half_field: tuple[Scalar, Scalar],
    velocity_limit: Scalar,
) -> Counters:
    """Counts (padding left out) and birth masses in Msun.

    `outside_templates`: by name of a templates' axis, which particles lie beyond it; `half_field`: half the field's
    (width, height) in arcsec.
    """
    scene = lax.stop_gradient(scene)
    values = (scene.position[:, 0], scene.position[:, 1], scene.v_los)
    values += (scene.initial_mass, scene.log_age, scene.metallicity)
    finite = jnp.stack([jnp.isfinite(value) for value in values]).all(axis=0)
    outside = (jnp.abs(scene.position[:, 0]) > half_field[0]) | (jnp.abs(scene.position[:, 1]) > half_field[1])
    nowhere = jnp.zeros_like(finite)
    age, metallicity = (outside_templates.get(name, nowhere) for name in ("age", "metallicity"))

    def number(which: Bool[Array, " particle"]) -> Float[Array, ""]:
        return jnp.sum(scene.weight * which.astype(scene.weight.dtype))

    def mass(which: Bool[Array, " particle"]) -> Float[Array, ""]:
        return jnp.sum(scene.initial_mass * which.astype(scene.weight.dtype))

    everything = jnp.ones_like(finite)
    return Counters(
        n_particles=number(everything),
        n_outside=number(outside),
        n_clamped_age=number(age),
        n_clamped_metallicity=number(metallicity),
        n_beyond_velocity=number(jnp.abs(scene.v_los) > velocity_limit),
        n_overflow=number(nowhere),
        n_not_finite=number(~finite),
        mass_total=mass(everything),
        mass_outside=mass(outside),
        mass_clamped_age=mass(age),
        mass_clamped_metallicity=mass(metallicity),
    )


def check_counters(counters: Counters, velocity_limit: Float[Array | ndarray, ""]) -> None:
    """Raise ValueError for particles that the cube is wrong for; does nothing while tracing."""
    if isinstance(counters.n_not_finite, Tracer):
        return
    broken, fast, total = (int(n) for n in (counters.n_not_finite, counters.n_beyond_velocity, counters.n_particles))
    if int(counters.n_outside) == total:
        logging.getLogger("rubix_like").warning("all %d stars are outside the field: the cube is empty", total)
    if broken:
        raise ValueError(
            f"galaxy: expected finite positions, velocities, masses, ages and metallicities, got {broken} of {total} "
            f"stars with others; rubix_like.validate(galaxy) names them"
        )
    if int(counters.n_overflow):
        raise ValueError(
            f"galaxy: expected few stars faster than the velocity nodes of method 'basis' (as planned), got "
            f"{int(counters.n_overflow)} of {total} stars more; build the pipeline from this galaxy, or raise "
            f"engine.velocity_range"
        )
    if fast:
        raise ValueError(
            f"galaxy: expected line-of-sight velocities within {float(velocity_limit):.0f} km/s (as planned), got "
            f"{fast} of {total} stars beyond; raise engine.velocity_range or build the pipeline from this galaxy"
        )
