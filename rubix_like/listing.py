"""Tables of what a configuration can name, with one line about each."""

import inspect

from rubix_like.config import load_pipeline
from rubix_like.readers import READERS
from rubix_like.readers.field_map import field_map_names, load_field_map
from rubix_like.registry import Registry
from rubix_like.resources import resource, resource_names
from rubix_like.stages import CUBE_STAGES, PAINT_STAGES, SCENE_STAGES

Rows = list[tuple[str, str]]


def stage_rows() -> Rows:
    """Name, kind and first line of the description of every stage."""
    rows = []
    for kind, registry in (("scene", SCENE_STAGES), ("paint", PAINT_STAGES), ("cube", CUBE_STAGES)):
        rows += [(name, f"{kind}: {text}") for name, text in _described(registry)]
    return rows


def reader_rows() -> Rows:
    """Name and first line of the description of every reader, then the simulations with a field map."""
    return _described(READERS) + [(name, load_field_map(name).title) for name in field_map_names()]


def pipeline_rows() -> Rows:
    """Name, description and stages of every packaged pipeline."""
    rows = []
    for name in resource_names("pipelines"):
        pipeline = load_pipeline(name)
        stages = " -> ".join(stage.name for stage in (*pipeline.scene, *pipeline.paint, *pipeline.cube))
        rows.append((name, f"{pipeline.description} [{stages}]"))
    return rows


def config_rows() -> Rows:
    """Name and file of every packaged configuration."""
    return [(name, str(resource("configs", name))) for name in resource_names("configs")]


def _described(registry: Registry) -> Rows:
    return [(name, (inspect.getdoc(registry.find(name)) or "").split("\n")[0]) for name in registry.names()]
