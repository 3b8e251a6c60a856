"""Stages on the scene: the observer's frame, the pointing, and dust in front of the stars."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters, screen_a_v
from rubix_like.forward.stages.base import (
    AbstractSceneStage,
    AbstractSpectraStage,
    PaintedCube,
    refuse_noisy,
    refuse_options,
)
from rubix_like.galaxy.scene import Scene, rotate
from rubix_like.physics.dust_curves import find_curve
from rubix_like.physics.rotations import field_rotation, sky_rotation
from rubix_like.runtime.mesh.bin_split import per_bin


class Orient(AbstractSceneStage):
    """Rotates by `observation.inclination` and `.position_angle` (`geometry.sky_rotation`); not where null.

    Emitters of smooth components are turned by their angles beside these, then moved on the sky and along the
    line of sight.
    """

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Orient":  # noqa: ARG003
        """No options."""
        refuse_options("orient", options)
        return cls()

    def __call__(self, scene: Scene, parameters: Parameters) -> Scene:
        """The scene on the axes (East, North, away)."""
        inclination, position_angle = parameters.observation.inclination, parameters.observation.position_angle
        if inclination is not None and position_angle is not None:
            scene = _turned(scene, inclination, position_angle)
        return _placed(scene) if scene.on_sky else scene


def _turned(scene: Scene, inclination: Float[Array, ""], position_angle: Float[Array, ""]) -> Scene:
    if "tilt" in scene.on_sky:
        angles = inclination + scene.on_sky["tilt"], position_angle + scene.on_sky["twist"]
        turn = jax.vmap(lambda vector, i, pa: rotate(vector[None], sky_rotation(i, pa))[0])
        turned = turn(scene.position, *angles), turn(scene.velocity, *angles)
    else:
        rotation = sky_rotation(inclination, position_angle)
        turned = rotate(scene.position, rotation), rotate(scene.velocity, rotation)
    return eqx.tree_at(lambda s: (s.position, s.velocity), scene, turned)


def _placed(scene: Scene) -> Scene:
    on_sky, none = scene.on_sky, jnp.zeros_like(scene.amount)
    moved = jnp.stack([on_sky.get("east", none), on_sky.get("north", none), none], axis=1)
    faster = scene.velocity.at[:, 2].add(on_sky.get("random_velocity", none))
    return eqx.tree_at(lambda s: (s.position, s.velocity), scene, (scene.position + moved, faster))


class Point(AbstractSceneStage):
    """Move the scene from the sky to the field.

    Adds `observation.offset` (East, North) to positions and `.velocity_offset` to line-of-sight velocities, then turns
    both onto the field's axes by `.field_angle` (`geometry.field_rotation`); not where null.
    """

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Point":  # noqa: ARG003
        """No options."""
        refuse_options("point", options)
        return cls()

    def __call__(self, scene: Scene, parameters: Parameters) -> Scene:
        """The scene on the field's axes, about the field's centre."""
        observation = parameters.observation
        position = scene.position.at[:, :2].add(observation.offset[None, :])
        velocity = scene.velocity.at[:, 2].add(observation.velocity_offset)
        if observation.field_angle is not None:
            rotation = field_rotation(observation.field_angle)
            position, velocity = rotate(position, rotation), rotate(velocity, rotation)
        return eqx.tree_at(lambda s: (s.position, s.velocity), scene, (position, velocity))


class Dust(AbstractSpectraStage):
    """A uniform dust screen dims the flux by a_v A(lambda) / A(V) magnitudes; identity when the run has no dust.

    `relative` is A(lambda) / A(V) at the centres of the bins, in vacuum: at the rest wavelengths of the galaxy's
    redshift or at the observed ones. It is the same for all spaxels, so it commutes with any PSF. The moments (mean
    velocities) keep the light before the screen as their weight.
    """

    relative: Float[Array | ndarray, " wave"] | None = eqx.field(metadata=per_bin())

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Dust":
        """The run's curve on the detector's bins; no options. Raises ConfigError where the curve is not defined."""
        refuse_options("dust", options)
        bins = setup.instrument.bins
        return cls(relative=relative_attenuation(setup, bins.to_vacuum(bins.wavelength)))

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube behind the screen; raises ConfigError after noise."""
        share = screen_transmission(self.relative, parameters)
        if share is None:
            return cube
        refuse_noisy("dust", cube, "it would dim the noise, too, and not its variance")
        return eqx.tree_at(lambda c: c.flux, cube, cube.flux * share[None, :])


def screen_transmission(
    screen: Float[Array | ndarray, " wave"] | None, parameters: Parameters
) -> Float[Array, " wave"] | None:
    """The share of light that the run's screen lets through, 10^(-0.4 a_v A(lambda) / A(V)); `screen`: A(lambda) /
    A(V), None: no screen."""
    a_v = screen_a_v(parameters)
    if screen is None or a_v is None:
        return None
    return jnp.power(10.0, -0.4 * a_v * jnp.asarray(screen))


def relative_attenuation(setup: Setup, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"] | None:
    """A(lambda) / A(V) of the run's screen at observed vacuum wavelengths (Angstrom); None without one.

    Raises ConfigError where the curve is not defined.
    """
    dust = setup.config.screen
    if dust is None:
        return None
    stretch = 1.0 + setup.config.observation.redshift if dust.place == "galaxy" else 1.0
    return find_curve(dust.curve)(wavelength / stretch, dust.resolved_r_v, dust.slope)
