"""The registries, and stages and sources as a run builds them, with their numbers in the precision of a test."""

from rubix_like.config.plug_ins import (
    CUBE_STAGES,
    FIELDS,
    FILE_LAYOUTS,
    KERNELS,
    METHODS,
    PAINT_STAGES,
    READERS,
    SCENE_STAGES,
    SYSTEMATIC_STAGES,
)
from rubix_like.runtime.mesh.mesh import as_dtype

REGISTRIES = {
    "fields": FIELDS,
    "scene": SCENE_STAGES,
    "paint": PAINT_STAGES,
    "cube": CUBE_STAGES,
    "systematics": SYSTEMATIC_STAGES,
    "readers": READERS,
    "methods": METHODS,
    "kernels": KERNELS,
    "layouts": FILE_LAYOUTS,
}
"""What can be extended by a name -> its registry."""


def build_stage(kind, name, setup, options=None, dtype="float64"):
    """The member `name` of a kind of stages, built for a run."""
    planned = (setup, setup.sources[name]) if kind == "paint" else (setup,)
    return as_dtype(REGISTRIES[kind].find(name).build(*planned, options or {}), dtype)
