"""Settings of a pipeline: four ordered lists, one for each kind of thing that is made or worked on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from rubix_like.config.messages import explain
from rubix_like.config.plug_ins import CUBE_STAGES, FIELDS, PAINT_STAGES, SCENE_STAGES
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import find_file, read_section
from rubix_like.errors import ConfigError
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.resources import resource_names


class StageSettings(AbstractSettings):
    """One stage: its registered name and its options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


def _parse_stage(entry: object) -> object:
    """`name` and `{name: {option: value}}` as the fields of `StageSettings`."""
    if isinstance(entry, str):
        return {"name": entry}
    if isinstance(entry, Mapping) and len(entry) == 1:
        (name, options), *_ = entry.items()
        if not isinstance(options, Mapping | None):
            raise ValueError(f"expected the options of '{name}' as 'key: value' pairs, got {options!r}")
        return {"name": name, "options": dict(options or {})}
    if isinstance(entry, StageSettings) or (isinstance(entry, Mapping) and set(entry) == {"name", "options"}):
        return entry
    raise ValueError(f"expected a name, or a name with options (name: {{key: value}}), got {entry!r}")


LISTS: Mapping[str, Registry] = {
    "fields": FIELDS,
    "scene": SCENE_STAGES,
    "paint": PAINT_STAGES,
    "cube": CUBE_STAGES,
}
"""List of a pipeline -> the members that it can name."""

Stages = tuple[Annotated[StageSettings, BeforeValidator(_parse_stage)], ...]


class PipelineSettings(AbstractSettings):
    """A pipeline: fields, stages on the scene, sources that are painted, stages on the cube, each in order."""

    name: str
    description: str = ""
    fields: Stages = ()
    """Sums over all particles of a kind, made before anything is painted: maps, and what stages read."""
    scene: Stages = ()
    """Scene to scene: geometry."""
    paint: Annotated[Stages, Field(min_length=1)]
    """Sources that shine into the cube: stars."""
    cube: Stages = ()
    """Cube to cube: PSF, dust, aperture, noise."""

    @field_validator(*LISTS)
    @classmethod
    def _check_names(cls, value: Stages, info: Any) -> Stages:
        """Refuse what is not registered; nothing is imported for it."""
        registry = LISTS[info.field_name]
        for name in (stage.name for stage in value if stage.name not in registry):
            right = next((key for key, other in LISTS.items() if name in other), None)
            if right is not None:
                raise ValueError(f"'{name}' is a {LISTS[right].kind}; name it under {right}")
            registry.check(name)
        return value

    @property
    def stages(self) -> Stages:
        """Sources and stages in order, without the fields."""
        return (*self.scene, *self.paint, *self.cube)

    def has_field(self, name: str) -> bool:
        """Whether a field of that name is summed."""
        return name in {field.name for field in self.fields}

    def has_cube_stage(self, name: str) -> bool:
        """Whether a stage of that name works on the cube."""
        return name in {stage.name for stage in self.cube}

    @property
    def blurs(self) -> bool:
        """Whether the PSF works on the cube: by itself, or with the fibres that it is seen through."""
        return self.has_cube_stage("psf") or self.has_cube_stage("fibres")

    @property
    def blurs_first(self) -> bool:
        """Whether the PSF comes before all other stages of the cube."""
        return bool(self.cube) and self.cube[0].name in ("psf", "fibres")


def load_pipeline(name: str) -> PipelineSettings:
    """The pipeline called `name`: a packaged one or the path of a .yaml file; raises ConfigError if it is not valid."""
    path = find_file("pipelines", name)
    data = {"name": Path(path).stem, **read_section(path)}
    try:
        return PipelineSettings.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, PipelineSettings, str(path))) from error


def stage_names(pipeline: object) -> tuple[str, ...]:
    """The stages and sources of a user pipeline; none of a packaged one, or of one that is not valid."""
    if not isinstance(pipeline, str | Path) or str(pipeline) in resource_names("pipelines"):
        return ()
    try:
        settings = load_pipeline(str(pipeline))
    except ConfigError:
        return ()
    return tuple(stage.name for stage in settings.stages)
