"""Stage `point`: where the galaxy lies in the field, and its systemic velocity."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx

from rubix_like.parameters import Parameters
from rubix_like.scene import Scene
from rubix_like.setup import Setup
from rubix_like.stages.base import AbstractSceneStage, refuse_options


class Point(AbstractSceneStage):
    """Adds `observation.offset` (East, North) to positions and `.velocity_offset` to line-of-sight velocities."""

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Point":  # noqa: ARG003
        """No options."""
        refuse_options("point", options)
        return cls()

    def __call__(self, scene: Scene, parameters: Parameters) -> Scene:
        """The scene about the field's centre."""
        observation = parameters.observation
        moved = (
            scene.position.at[:, :2].add(observation.offset[None, :]),
            scene.velocity.at[:, 2].add(observation.velocity_offset),
        )
        return eqx.tree_at(lambda s: (s.position, s.velocity), scene, moved)
