"""Tables of what a configuration can name, with one line about each."""

import inspect

from rubix_like.config import load_pipeline
from rubix_like.errors import ConfigError
from rubix_like.readers import READERS
from rubix_like.readers.field_map import field_map_names, load_field_map
from rubix_like.readers.table_map import TABLE
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
    readers = _described(READERS)
    taken = {name for name, _ in readers}
    readers.append((TABLE, "Plain tables (FITS, ECSV, CSV, Parquet, npz, HDF5), by the names of their columns"))
    return readers + [(name, _title(name)) for name in field_map_names() if name not in taken]


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
    return [(name, _first_line(registry, name)) for name in registry.names()]


def _first_line(registry: Registry, name: str) -> str:
    """Of a member's description; what is wrong with a member from outside that cannot be used."""
    try:
        return (inspect.getdoc(registry.find(name)) or "").split("\n")[0]
    except ConfigError as error:
        return f"cannot be used: {error}"


def _title(name: str) -> str:
    try:
        return load_field_map(name).title
    except ConfigError as error:
        return f"cannot be used: {error}"
