"""Stage `orient`: turn the galaxy to its inclination and position angle."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractSceneStage, refuse_options
from rubix_like.galaxy.scene import Scene, rotate
from rubix_like.physics.rotations import sky_rotation


class Orient(AbstractSceneStage):
    """Rotates by `observation.inclination` and `.position_angle` (`geometry.sky_rotation`); not where null."""

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Orient":  # noqa: ARG003
        """No options."""
        refuse_options("orient", options)
        return cls()

    def __call__(self, scene: Scene, parameters: Parameters) -> Scene:
        """The scene on the axes (East, North, away)."""
        inclination, position_angle = parameters.observation.inclination, parameters.observation.position_angle
        if inclination is None or position_angle is None:
            return scene
        rotation = sky_rotation(inclination, position_angle)
        turned = rotate(scene.position, rotation), rotate(scene.velocity, rotation)
        return eqx.tree_at(lambda s: (s.position, s.velocity), scene, turned)
