"""Stages of a pipeline, in three kinds; each is found by name and built from its options in the pipeline's YAML."""

from rubix_like.registry import Registry
from rubix_like.stages.base import (
    AbstractComponent,
    AbstractCubeStage,
    AbstractSceneStage,
    PaintedCube,
    Spatial,
    StageReport,
)

SCENE_STAGES = Registry(
    "scene stage",
    "rubix_like.scene_stages",
    {"orient": "rubix_like.stages.orient:Orient", "point": "rubix_like.stages.point:Point"},
    needs=("build",),
)
PAINT_STAGES = Registry(
    "paint stage",
    "rubix_like.paint_stages",
    {"stars": "rubix_like.stages.stars:StarsComponent"},
    needs=("build",),
)
CUBE_STAGES = Registry(
    "cube stage",
    "rubix_like.cube_stages",
    {
        "psf": "rubix_like.stages.psf:PSFStage",
        "dust": "rubix_like.stages.dust:Dust",
        "degrade_lsf": "rubix_like.stages.degrade_lsf:DegradeLSF",
        "aperture": "rubix_like.stages.aperture:Aperture",
        "noise": "rubix_like.stages.noise:Noise",
    },
    needs=("build",),
)

__all__ = [
    "CUBE_STAGES",
    "PAINT_STAGES",
    "SCENE_STAGES",
    "AbstractComponent",
    "AbstractCubeStage",
    "AbstractSceneStage",
    "PaintedCube",
    "Spatial",
    "StageReport",
]
