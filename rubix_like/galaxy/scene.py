"""The scene: star particles in the observer's frame."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.particles import Stars


class Scene(eqx.Module):
    """Star particles as the observer sees them, on the axes (East, North, away from us); after the stage `point` on
    those of the field (against the columns, along the rows, away), which are the same where the field is not turned.

    | field | shape | unit |
    |---|---|---|
    | position | (particle, 3) | arcsec from the field's centre; the depth is scaled like the other two |
    | velocity | (particle, 3) | km/s; the third component is the line-of-sight velocity, + = receding |
    | initial_mass | (particle,) | Msun at birth; padding has none |
    | log_age, metallicity | (particle,) | log10(age / yr), metal mass fraction |
    | mass | (particle,) or None | Msun now; None where the galaxy does not say |
    | weight | (particle,) | 1 for a particle, 0 for padding; constant under differentiation |
    | smoothing_length | (particle,) or None | arcsec |
    """

    position: Float[Array, "particle 3"]
    velocity: Float[Array, "particle 3"]
    initial_mass: Float[Array, " particle"]
    log_age: Float[Array, " particle"]
    metallicity: Float[Array, " particle"]
    weight: Float[Array, " particle"]
    mass: Float[Array, " particle"] | None = None
    smoothing_length: Float[Array, " particle"] | None = None

    @property
    def v_los(self) -> Float[Array, " particle"]:
        """Line-of-sight velocity in km/s, + = receding."""
        return self.velocity[:, 2]


def rotate(vectors: Float[Array, "particle 3"], rotation: Float[Array, "3 3"]) -> Float[Array, "particle 3"]:
    """`rotation @ vector` for each particle, at full precision also where a matrix product would be rounded (TF32)."""
    return (vectors[:, None, :] * rotation[None, :, :]).sum(axis=-1)


def to_scene(
    stars: Stars, alignment: Float[Array | ndarray, "3 3"] | None, arcsec_per_kpc: Float[Array | ndarray, ""]
) -> Scene:
    """Stars on the galaxy's body axes (or, without `alignment`, on the axes of the arrays), scaled to arcsec."""
    mass = jnp.asarray(stars.initial_mass)
    weight = jnp.ones_like(mass) if stars.weight is None else lax.stop_gradient(jnp.asarray(stars.weight))
    position, velocity = jnp.asarray(stars.position), jnp.asarray(stars.velocity)
    if alignment is not None:
        position, velocity = rotate(position, jnp.asarray(alignment)), rotate(velocity, jnp.asarray(alignment))
    length = stars.smoothing_length
    return Scene(
        position=position * arcsec_per_kpc,
        velocity=velocity,
        initial_mass=mass * weight,
        log_age=jnp.asarray(stars.log_age),
        metallicity=jnp.asarray(stars.metallicity),
        weight=weight,
        mass=None if stars.mass is None else jnp.asarray(stars.mass) * weight,
        smoothing_length=None if length is None else jnp.asarray(length) * arcsec_per_kpc,
    )
