"""Stage `orient`: turn the galaxy to its inclination and position angle, and put emitters where they are on the sky."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractSceneStage, refuse_options
from rubix_like.galaxy.scene import Scene, rotate
from rubix_like.physics.rotations import sky_rotation


class Orient(AbstractSceneStage):
    """Rotates by `observation.inclination` and `.position_angle` (`geometry.sky_rotation`); not where null.

    Emitters of smooth components are turned by angles of their own beside these, then moved on the sky and along the
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
    """The scene turned, each emitter by its own angles."""
    if "tilt" in scene.on_sky:
        angles = inclination + scene.on_sky["tilt"], position_angle + scene.on_sky["twist"]
        turn = jax.vmap(lambda vector, i, pa: rotate(vector[None], sky_rotation(i, pa))[0])
        turned = turn(scene.position, *angles), turn(scene.velocity, *angles)
    else:
        rotation = sky_rotation(inclination, position_angle)
        turned = rotate(scene.position, rotation), rotate(scene.velocity, rotation)
    return eqx.tree_at(lambda s: (s.position, s.velocity), scene, turned)


def _placed(scene: Scene) -> Scene:
    """The scene with what its emitters bring for the observer's frame."""
    on_sky, none = scene.on_sky, jnp.zeros_like(scene.amount)
    moved = jnp.stack([on_sky.get("east", none), on_sky.get("north", none), none], axis=1)
    faster = scene.velocity.at[:, 2].add(on_sky.get("random_velocity", none))
    return eqx.tree_at(lambda s: (s.position, s.velocity), scene, (scene.position + moved, faster))
