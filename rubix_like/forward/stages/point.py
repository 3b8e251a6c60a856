"""Stage `point`: where the galaxy lies in the field, how the field is turned, and the systemic velocity."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractSceneStage, refuse_options
from rubix_like.galaxy.scene import Scene, rotate
from rubix_like.physics.rotations import field_rotation


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
