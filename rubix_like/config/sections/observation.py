"""Settings of an observation: several pointings, the radius of its alignment, and what several observations change."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from rubix_like.config.plug_ins import detector_sections
from rubix_like.config.quantities import Arcsec, Degree, parse_number, parse_quantity
from rubix_like.config.settings import AbstractSettings, read_with_sections, schema_with_sections
from rubix_like.physics.centering import Radius


def parse_radius(value: object) -> Radius:
    """The radius in `value`: a bare number in half-mass radii, or text with a unit of length; above 0.

    Raises ValueError for anything else.
    """
    if isinstance(value, Radius):
        return value
    words = f"expected a number of half-mass radii (e.g. 2) or a length (e.g. '5 kpc') above 0, got {value!r}"
    try:
        radius = Radius(parse_number(value))
    except ValueError:
        try:
            radius = Radius(parse_quantity(value, "kpc"), in_kpc=True)
        except ValueError as error:
            raise ValueError(words) from error
    if not 0 < radius.number < math.inf:
        raise ValueError(words)
    return radius


_LENGTH = {"type": "string", "description": "number and unit of length, e.g. '5 kpc'"}
_IN_RADII = {"type": "number", "exclusiveMinimum": 0, "description": "in half-mass radii of the stars"}

AlignRadius = Annotated[
    Radius,
    PlainValidator(parse_radius),
    PlainSerializer(Radius.written),
    WithJsonSchema({"anyOf": [_IN_RADII, _LENGTH]}),
]

Displacement = Annotated[Arcsec, Field(ge=-3600, le=3600)]


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ValueError(
            f"expected letters, digits, '.', '_', '+' and '-', the first a letter or digit (it ends the name of a "
            f"file), got '{name}'"
        )
    return name


class PointingSettings(AbstractSettings):
    """One pointing: where its field lies, and how it is turned."""

    offset: tuple[Displacement, Displacement] = (0.0, 0.0)
    """(East, North) of this field's centre from `observation.ra`, `.dec` in arcsec, in the plane that touches the sky
    there; at most one degree."""
    field_angle: Degree | None = None
    """deg; of this field's +y axis, from North (at `observation.ra`, `.dec`) through East; null:
    `observation.field_angle`."""
    name: Annotated[str, Field(max_length=60), AfterValidator(_check_name)] | None = None
    """Ends the name of its file: letters, digits, '.', '_', '+', '-'; null: its number, from 1."""


def labels(pointings: tuple[PointingSettings, ...]) -> tuple[str, ...]:
    """The pointings' names, or their numbers from 1."""
    return tuple(pointing.name or str(number) for number, pointing in enumerate(pointings, start=1))


def _check_labels(pointings: tuple[PointingSettings, ...]) -> tuple[PointingSettings, ...]:
    """Refuse two pointings whose files would have one name, also where names ignore case."""
    names = labels(pointings)
    twice = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if twice:
        raise ValueError(
            f"expected a name of its own for each pointing, got {', '.join(repr(name) for name in twice)} more than "
            f"once (a pointing without a name is called by its number)"
        )
    return pointings


Pointings = Annotated[tuple[PointingSettings, ...], Field(min_length=1), AfterValidator(_check_labels)]
"""At least one pointing; their names differ."""


SHARED_KEYS: Mapping[str, tuple[frozenset[str], str]] = {
    "observation": (
        frozenset({"redshift", "distance", "cosmology", "align", "align_radius", "inclination", "position_angle"}),
        "every observation sees the same galaxy",
    ),
    "engine": (frozenset({"precision", "slab"}), "all particles are held in one way"),
    "output": (frozenset({"path", "configuration"}), "files are called after the observations"),
}
"""Keys that hold for all observations of a run, by section, and why."""


class _SectionKeys(AbstractSettings):
    """Some keys of a plug-in's section."""

    model_config = ConfigDict(extra="allow")


class ObservationChanges(AbstractSettings):
    """One of several observations of a galaxy: the settings that it has instead of those of the run.

    An instrument with a `name`, and the sections `noise`, `systematics` and `products`, replace those of the run; of
    the other sections only the keys given do. Beside these there may be the section of a plug-in's stage on the cube.
    Names of observations end names of files, as those of pointings do.
    """

    model_config = ConfigDict(extra="allow")

    instead: ClassVar[Mapping[str, str]] = {
        name: f"give it beside observations: every observation sees the same {name}"
        for name in ("galaxy", "ssp", "dust", "lines", "nebular")
    }

    instrument: dict[str, Any] | None = None
    """The section of another instrument, with a `name`, or keys of the run's instrument."""
    observation: dict[str, Any] | None = None
    """Pointing and offset of this observation alone: `ra`, `dec`, `offset`, `field_angle`, `velocity_offset`,
    `pointings`, `mosaic`."""
    pipeline: str | None = None
    """Its own list of stages, as `pipeline` of a run."""
    engine: dict[str, Any] | None = None
    """Keys of the section, without `precision` and `slab`."""
    noise: dict[str, Any] | None = None
    """null: none. A `seed` that is not stated is 1000003 higher for each observation, or arm, before this one."""
    systematics: dict[str, Any] | None = None
    """As `noise`."""
    products: dict[str, Any] | None = None
    """Its own maps; null: none."""
    output: dict[str, Any] | None = None
    """`layout`, `maps`, `compression` and `quantize`."""

    @model_validator(mode="wrap")
    @classmethod
    def _read_sections(cls, given: Any, handler: Callable[[Any], "ObservationChanges"]) -> "ObservationChanges":
        """Take keys of the sections of plug-ins' stages on the cube; what they hold is checked with the run's."""
        if not isinstance(given, Mapping):
            return handler(given)
        named = {name: _SectionKeys for name in detector_sections() if name in given}
        return read_with_sections(cls, given, handler, named)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return schema_with_sections(cls, schema, handler, dict.fromkeys(detector_sections(), _SectionKeys))

    @field_validator("observation", "engine", "output")
    @classmethod
    def _check_keys(cls, value: dict[str, Any] | None, info: Any) -> dict[str, Any] | None:
        keys, reason = SHARED_KEYS[info.field_name]
        for key in value or {}:
            if key in keys:
                raise ValueError(
                    f"expected keys of one observation, got '{key}', which holds for all ({reason}); give "
                    f"{info.field_name}.{key} beside observations"
                )
        return value

    @model_serializer(mode="wrap")
    def _stated(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The settings that are stated: null is none of a section, and not that of the run."""
        return {name: value for name, value in handler(self).items() if name in self.model_fields_set}

    def overrides(self) -> dict[str, Any]:
        """The changes by dotted key, as `load_config` takes overrides."""
        stated = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        stated |= {name: dict(keys.model_extra or {}) for name, keys in (self.model_extra or {}).items()}
        found = {name: value for name, value in stated.items() if name in REPLACED}
        for name, value in stated.items():
            if name in REPLACED or value is None:
                continue
            if name == "instrument":
                found |= instrument_overrides(value)
            else:
                found |= {name: value} if name == "pipeline" else {f"{name}.{key}": value[key] for key in value}
        return found


def _check_observations(value: object) -> object:
    """The observations without those that are null; ValueError for names that files or dotted keys cannot have."""
    if not isinstance(value, Mapping):
        return value
    for name in value:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or len(name) > 60:
            raise ValueError(
                f"expected names of at most 60 letters, digits and _, the first a letter (they end names of files), "
                f"got {name!r}"
            )
        if isinstance(value[name], str):
            raise ValueError(
                f"expected a section '{name}', got {value[name]!r}; write {name}: {{instrument: {{name: "
                f"{value[name]}}}}}"
            )
    lowered = {name: f"{name.lower()}_" for name in value}
    for name, begin in lowered.items():
        like = next((other for other, word in lowered.items() if other != name and word.startswith(begin)), None)
        if like is not None:
            raise ValueError(
                f"expected names that differ in more than capitals, none of which begins with another and _ (files of "
                f"its arms and pointings are called so), got '{name}' and '{like}'; rename one"
            )
    return {name: changes for name, changes in value.items() if changes is not None}


Observations = Annotated[dict[str, ObservationChanges], Field(min_length=1), BeforeValidator(_check_observations)]
"""At least one observation by name; null leaves one out."""

REPLACED = ("noise", "systematics", "products")
"""Sections that an observation replaces as a whole."""

_PARTS = ("wavelength", "psf", "detector")
"""Sections of an instrument that are merged key by key."""


def instrument_overrides(section: Mapping[str, Any]) -> dict[str, Any]:
    """The changes of an instrument by dotted key: one with a name is another instrument, else the keys that are given
    are laid over the instrument that is there."""
    if "name" in section or "based_on" in section:
        return {"instrument": dict(section)}
    found: dict[str, Any] = {}
    for key, value in section.items():
        if key in _PARTS and isinstance(value, Mapping) and "kind" not in value:
            found |= {f"instrument.{key}.{name}": part for name, part in value.items()}
        else:
            found[f"instrument.{key}"] = value
    return found
