"""The scene: particles that shine, in the observer's frame."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.galaxy.limits import LARGEST, SMALLEST_METALLICITY, limits_of
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.physics.units import expect_positive, plain_numbers

_ROUNDING = 1e-5
"""Relative excess over limits, and dex below an age of 0, that 32-bit numbers may have."""

ON_SKY: tuple[str, ...] = ("random_velocity", "east", "north", "tilt", "twist")
"""Columns of stars that hold in the observer's frame."""


class Scene(eqx.Module):
    """The particles of one source as the observer sees them, on the axes (East, North, away from us); after the stage
    `point` on those of the field (against the columns, along the rows, away), the same where the field is not turned.

    | field | shape | unit |
    |---|---|---|
    | position | (particle, 3) | arcsec from the field's centre; the depth is scaled like the other two |
    | velocity | (particle, 3) | km/s; the third component is the line-of-sight velocity, + = receding |
    | amount | (particle,) | how much of its template each one shines (stars: Msun at birth); padding has none |
    | coordinates | (particle,) by axis | place between the templates (stars: `age`, log10 yr; `metallicity`, log10) |
    | weight | (particle,) | 1 for a particle, 0 for padding; constant under differentiation |
    | smoothing_length | (particle,) or None | arcsec |
    | fields | by name | what the pipeline's fields hold; none while they are summed |
    | on_sky | (particle,) by name | of emitters: `ON_SKY`, in the units of `Stars` |
    | possible | (particle,) or None | whether its masses, age, fractions and so on can be (`galaxy.limits`) |
    """

    position: Float[Array, "particle 3"]
    velocity: Float[Array, "particle 3"]
    amount: Float[Array, " particle"]
    coordinates: dict[str, Float[Array, " particle"]]
    weight: Float[Array, " particle"]
    smoothing_length: Float[Array, " particle"] | None = None
    fields: Mapping[str, Any] = eqx.field(default_factory=dict)
    on_sky: dict[str, Float[Array, " particle"]] = eqx.field(default_factory=dict)
    possible: Bool[Array, " particle"] | None = None

    @property
    def v_los(self) -> Float[Array, " particle"]:
        """Line-of-sight velocity in km/s, + = receding."""
        return self.velocity[:, 2]


def without_dark(scene: Scene) -> Scene:
    """The scene with a weight of 0 and no velocity where the amount is 0: such particles are in no count, and their
    velocities need not be planned for."""
    dark = scene.amount <= 0  # not where it is NaN, which is to be counted
    return dataclasses.replace(
        scene,
        velocity=jnp.where(dark[:, None], jnp.zeros_like(scene.velocity), scene.velocity),
        weight=jnp.where(dark, jnp.zeros_like(scene.weight), scene.weight),
    )


def without_impossible(scene: Scene) -> Scene:
    """The scene with NaN as the amount of particles that cannot be, so that no sum over them passes for a number."""
    if scene.possible is None:
        return scene
    return dataclasses.replace(scene, amount=jnp.where(scene.possible, scene.amount, jnp.nan))


def rotate(vectors: Float[Array, "particle 3"], rotation: Float[Array, "3 3"]) -> Float[Array, "particle 3"]:
    """`rotation @ vector` for each particle, at full precision also where a matrix product would be rounded (TF32)."""
    return (vectors[:, None, :] * rotation[None, :, :]).sum(axis=-1)


@named_arguments
def to_scene(
    particles: Stars | Gas,
    amount: Float[Array | ndarray, " particle"],
    coordinates: Mapping[str, Float[Array, " particle"]],
    alignment: Float[Array | ndarray, "3 3"] | None,
    arcsec_per_kpc: Float[Array | ndarray, ""],
) -> Scene:
    """Particles on the galaxy's body axes (or, without `alignment`, on the axes of the arrays), scaled to arcsec.

    `amount` is how much of its template each one shines, `coordinates` its place on the templates' axes, by name.
    Raises ValueError for columns of another length, and for a scale that is no positive number (not while tracing).
    """
    count = np.shape(particles.position)[:1]
    for name, column in {"amount": amount, **coordinates}.items():
        if np.shape(column) != count:
            raise ValueError(f"to_scene: {name}: expected shape {count}, as many as particles, got {np.shape(column)}")
    arcsec_per_kpc = plain_numbers(arcsec_per_kpc, "arcsec / kpc", "to_scene: arcsec_per_kpc")
    if isinstance(arcsec_per_kpc, float | int | np.ndarray):
        expect_positive(arcsec_per_kpc, "to_scene: arcsec_per_kpc")
    if isinstance(alignment, np.ndarray | jax.Array) and not isinstance(alignment, Tracer):
        is_rotation = np.shape(alignment) == (3, 3) and np.allclose(alignment @ alignment.T, np.eye(3), atol=1e-4)
        if not is_rotation:
            raise ValueError(f"to_scene: alignment: expected a rotation of shape (3, 3), got {np.asarray(alignment)!r}")
    amount = jnp.asarray(amount)
    weight = jnp.ones_like(amount) if particles.weight is None else lax.stop_gradient(jnp.asarray(particles.weight))
    position, velocity = jnp.asarray(particles.position), jnp.asarray(particles.velocity)
    if alignment is not None:
        position, velocity = rotate(position, jnp.asarray(alignment)), rotate(velocity, jnp.asarray(alignment))
    length = particles.smoothing_length
    columns = {} if isinstance(particles, Gas) else {name: getattr(particles, name) for name in ON_SKY}
    return Scene(
        position=position * arcsec_per_kpc,
        velocity=velocity,
        amount=amount * weight,
        coordinates=dict(coordinates),
        weight=weight,
        smoothing_length=None if length is None else jnp.asarray(length) * arcsec_per_kpc,
        on_sky={name: jnp.asarray(column) for name, column in columns.items() if column is not None},
        possible=_possible(particles),
    )


def _possible(particles: Stars | Gas) -> Bool[Array, " particle"]:
    """Whether no number of a particle is beyond the limits that `validate` knows, but for rounding to 32 bits; what is
    not finite is for those who read it."""
    possible = jnp.ones(np.shape(particles.position)[:1], bool)
    for name, column in vars(particles).items():
        if column is not None and np.ndim(column) == 1 and name in LARGEST:
            values, (low, high) = lax.stop_gradient(jnp.asarray(column)), limits_of(name)
            low += -_ROUNDING if name == "log_age" else SMALLEST_METALLICITY
            possible &= ~((values < low) | (values > high + _ROUNDING * max(high, 1.0)))
    return possible
