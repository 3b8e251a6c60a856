"""Settings of a galaxy of smooth components (`galaxy: {reader: components, components: [...]}`).

Settings of warp, asymmetry, and the kinds of light, height, rotation, dispersion and population are made from the
fields of the package's modules (`galaxy.components.declared`) when a component is first read, as these modules need
JAX.
"""

import dataclasses
import functools
import inspect
import itertools
import keyword
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    InstanceOf,
    SerializeAsAny,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from rubix_like.config.parameters import Declaration, Parameter, declarations
from rubix_like.config.plug_ins import READING
from rubix_like.config.quantities import (
    Arcsec,
    Degree,
    Integer,
    InUnit,
    Kms,
    Msun,
    Number,
    as_tuple,
    parse_quantity,
)
from rubix_like.config.sections.products import Line
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import Registry

if TYPE_CHECKING:
    from rubix_like.config.run_config import RunConfig
    from rubix_like.galaxy.components.smooth import SmoothGalaxy
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo

LEAST_POINTS: int = 64
MOST_POINTS: int = 1 << 22

_NAMING = frozenset({"profile", "curve", "history"})
"""Keys that name a kind."""


class AbstractKind(AbstractSettings):
    """The settings of one kind: the key that names it, its parameters, and other keys that are fixed. Plug-ins derive
    from it; `built_by` names their equinox module, with a leaf for each parameter."""

    built_by: ClassVar[str]

    def build(self) -> Any:
        """The module with its parameters as leaves, other keys as they are."""
        return _module_of(self, found_at("rubix_like.galaxy.components.smooth:as_leaf"))


def _module_of(kind: AbstractKind, as_leaf: Any) -> Any:
    leaves = declarations(type(kind))
    given = {name: getattr(kind, name) for name in type(kind).model_fields if name not in _NAMING}
    return found_at(kind.built_by)(**{key: as_leaf(value) if key in leaves else value for key, value in given.items()})


class AbstractDeclaredKind(AbstractKind):
    """The settings of a kind of the package: those of its module's fields."""

    @model_validator(mode="after")
    def _check_together(self) -> "AbstractDeclaredKind":
        """The module refuses, with ValueError, values that do not go together."""
        _module_of(self, functools.partial(np.asarray, dtype=float))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by values: classes that are made here are not found by their names."""
        (name,) = (name for name, section in SECTIONS.items() if type(self) in section.built_in.values())
        return _read_kind, (name, self.model_dump())


def _read_kind(section: str, values: dict[str, Any]) -> AbstractKind:
    return SECTIONS[section].read(values)


def _setting(field: "dataclasses.Field[Any]") -> tuple[Any, Any]:
    """The type of a setting, and its default and description, by what a module declares."""
    declared = field.metadata["setting"]
    number = Annotated[float, InUnit(declared.unit)] if declared.unit else Number
    form: Any = Annotated[number, Field(**declared.limits)] if declared.limits else number
    if declared.choices:
        form = Literal[declared.choices]
    elif declared.shortest is not None:
        form = Annotated[tuple[form, ...], Field(min_length=declared.shortest or None)]
    elif declared.default is None:
        form = form | None
    if declared.mark is not None:
        form = Annotated[form, Parameter(**declared.mark)]
    return form, Field(declared.default, description=declared.doc)


def declared_settings(module: type) -> dict[str, Any]:
    """Types, defaults and descriptions of the settings that the fields of an equinox module declare, by name."""
    return {field.name: _setting(field) for field in dataclasses.fields(module)}


_MAKING = threading.RLock()


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """A section of a component that has kinds: their name, their entry-point group, the class that all of the package
    derive from, the key that names one, and the kind without that key. Without `group` and `key` the class itself is
    the one kind."""

    kind: str
    base: str
    group: str = ""
    key: str = ""
    usual: str | None = None

    @property
    def built_in(self) -> Mapping[str, type[AbstractKind]]:
        """The settings of the package's kinds, in the order of their modules."""
        with _MAKING:  # threads that read their first component at once would make two classes of each kind
            return self._built_in

    @functools.cached_property
    def _built_in(self) -> Mapping[str, type[AbstractKind]]:
        base = found_at(self.base)
        if not self.key:
            return {self.kind: self._settings_of(base)}
        members = vars(sys.modules[base.__module__]).values()
        modules = [kind for kind in members if isinstance(kind, type) and issubclass(kind, base) and kind is not base]
        return {getattr(module, self.key): self._settings_of(module) for module in modules}

    def _settings_of(self, module: type) -> type[AbstractKind]:
        settings: dict[str, Any] = {"built_by": (ClassVar[str], f"{module.__module__}:{module.__qualname__}")}
        if self.key:
            name = getattr(module, self.key)
            settings[self.key] = (Literal[name], name if name == self.usual else ...)
        settings |= declared_settings(module)
        summary = (inspect.getdoc(module) or "").partition("\n\n")[0]
        return create_model(module.__name__, __base__=AbstractDeclaredKind, __doc__=summary, **settings)

    @functools.cached_property
    def registry(self) -> Registry:
        """The names of all kinds, those from outside among them."""
        places = {name: kind.built_by for name, kind in self.built_in.items()}
        return Registry(self.kind, self.group, places, needs=("model_validate", "build"))

    def find(self, name: str) -> type[AbstractKind]:
        """The settings of a kind; raises ConfigError with the nearest known name if there is none."""
        return self.built_in[name] if name in self.built_in else self.registry.find(name)

    def kinds(self) -> list[type[AbstractKind]]:
        """The settings of all kinds that can be used."""
        return [self.find(name) for name in self.registry.usable_names()] if self.key else list(self.built_in.values())

    def read(self, value: object) -> Any:
        """The settings of the kind that a section names; raises ConfigError for one that there is not."""
        if value is None:
            return value
        if isinstance(value, AbstractKind):
            others = [section.built_in.values() for section in SECTIONS.values() if section is not self]
            from_outside = bool(self.key) and not isinstance(value, tuple(itertools.chain(*others)))
            if from_outside or isinstance(value, tuple(self.built_in.values())):
                return value
        if self.key:
            words = f"the key '{self.key}': one of {', '.join(self.registry.names())}"
        else:
            words = f"the keys {', '.join(self.built_in[self.kind].model_fields)}"
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected a section with {words}; got {value!r}")
        name = value.get(self.key, self.usual) if self.key else self.kind
        if not isinstance(name, str):
            raise ConfigError(f"expected {words}; got {name!r}")
        kind = self.find(name)
        unknown = [str(key) for key in value if key not in kind.model_fields]
        if unknown:
            what = f"of the {self.kind} '{name}'" if self.key else f"of {self.kind}"
            raise ConfigError(
                "; ".join(f"unknown key '{key}' {what}{suggest(key, kind.model_fields)}" for key in unknown)
            )
        return kind.model_validate({self.key: name, **value} if self.key else value)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """JSON schema of any kind, or null."""
        return {"anyOf": [*(handler(kind.__pydantic_core_schema__) for kind in self.kinds()), {"type": "null"}]}


_MODULES = "rubix_like.galaxy.components"

SECTIONS: Mapping[str, Section] = {
    "light": Section("light profile", f"{_MODULES}.light:AbstractLight", "rubix_like.light_profiles", "profile"),
    "height": Section("height", f"{_MODULES}.light:AbstractHeight", "rubix_like.heights", "profile"),
    "rotation": Section(
        "rotation curve", f"{_MODULES}.rotation:AbstractRotation", "rubix_like.rotation_curves", "curve"
    ),
    "dispersion": Section("dispersion", f"{_MODULES}.rotation:AbstractDispersion", "rubix_like.dispersions", "profile"),
    "population": Section(
        "population", f"{_MODULES}.populations:AbstractPopulation", "rubix_like.populations", "history", usual="single"
    ),
    "warp": Section("warp", f"{_MODULES}.smooth:Warp"),
    "asymmetry": Section("asymmetry", f"{_MODULES}.smooth:Asymmetry"),
}
"""The sections of a component; kinds of those that have any are announced from outside as settings with
`build() -> eqx.Module` (docs/components.md)."""

_Kind = SerializeAsAny[InstanceOf[AbstractKind]]
Light = Annotated[_Kind, BeforeValidator(SECTIONS["light"].read), SECTIONS["light"]]
Height = Annotated[_Kind, BeforeValidator(SECTIONS["height"].read), SECTIONS["height"]]
Rotation = Annotated[_Kind, BeforeValidator(SECTIONS["rotation"].read), SECTIONS["rotation"]]
Profile = Annotated[_Kind, SECTIONS["dispersion"]]
Population = Annotated[_Kind, BeforeValidator(SECTIONS["population"].read), SECTIONS["population"]]
Warp = Annotated[_Kind, BeforeValidator(SECTIONS["warp"].read), SECTIONS["warp"]]
Asymmetry = Annotated[_Kind, BeforeValidator(SECTIONS["asymmetry"].read), SECTIONS["asymmetry"]]


def _read_dispersion(value: object) -> object:
    """A section of a kind, or a number in km/s for all radii."""
    is_section = isinstance(value, Mapping | AbstractKind)
    return SECTIONS["dispersion"].read(value) if is_section else parse_quantity(value, "km/s")


Ratio = Annotated[Number, Field(ge=0)]


class ComponentLinesSettings(AbstractSettings):
    """Emission lines that a component of gas shines in."""

    wavelengths: Annotated[tuple[Line, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Names from `rubix-like list lines` (Ha), or wavelengths at rest, in vacuum."""
    flux: Annotated[Annotated[float, InUnit("1e-20 erg / (s cm2)"), Field(gt=0)] | None, Parameter()] = None
    """Flux of the first line, of the whole component as it is seen; null: `luminosity` is given."""
    luminosity: Annotated[Annotated[float, InUnit("Lsun"), Field(gt=0)] | None, Parameter()] = None
    """Luminosity of the first line; null: `flux` is given."""
    ratios: Annotated[tuple[Ratio, ...], BeforeValidator(as_tuple), Parameter()] = ()
    """Brightness of each further line over that of the first; one fewer than lines."""
    doublets: bool = True
    """Whether a line brings the fainter one from the same upper level, at the ratio of atomic physics: [N II] 6583
    that at 6548, [O III] 5007 that at 4959. Lines that are given themselves are left as they are."""

    @model_validator(mode="after")
    def _check_together(self) -> "ComponentLinesSettings":
        if (self.flux is None) == (self.luminosity is None):
            raise ValueError(
                f"expected either the flux or the luminosity of the first line, got "
                f"{'neither' if self.flux is None else 'both'}; give one, e.g. flux: 1e-15 erg/s/cm2"
            )
        if len(self.ratios) != len(self.wavelengths) - 1:
            raise ValueError(
                f"expected a ratio for each line but the first, which has the flux, so {len(self.wavelengths) - 1}, "
                f"got {len(self.ratios)}"
            )
        return self


class ComponentSettings(AbstractSettings):
    """One smooth component; its parameters are named galaxy.NAME.KEY and galaxy.NAME.SECTION.KEY."""

    name: str
    """The component's name in the names of its parameters."""
    mass: Annotated[Annotated[Msun, Field(gt=0)] | None, Parameter(role="mass")] = None
    """Mass of the component at birth; null: it is gas, with `lines`."""
    light: Light
    """Surface density in the component's plane."""
    height: Height = Field({"profile": "thin"}, validate_default=True)
    """Vertical profile."""
    rotation: Rotation | None = None
    """Rotation curve; null: at rest."""
    dispersion: Annotated[Annotated[Kms, Field(ge=0)] | Profile, BeforeValidator(_read_dispersion), Parameter()] = 0.0
    """Dispersion of velocities along any axis: one for all radii, or a section with a profile."""
    population: Population | None = None
    """Ages and metallicities of the stars; null: it is gas, with `lines`."""
    lines: ComponentLinesSettings | None = None
    """Emission lines of a component of gas; null: it has stars, with `mass` and `population`."""
    center: Annotated[tuple[Arcsec, Arcsec], Parameter(moves=True, role="centre")] = (0.0, 0.0)
    """East and North of the component's centre from the galaxy's."""
    inclination: Annotated[Degree, Parameter(moves=True, role="inclination")] = 0.0
    """Inclination of the component, added to that of the observation."""
    position_angle: Annotated[Degree, Parameter(moves=True, role="position_angle")] = 0.0
    """Position angle of the component, added to that of the observation."""

    warp: Warp | None = None
    """A linear warp; null: flat."""
    asymmetry: Asymmetry | None = None
    """Harmonics of light and streaming, and a kinematic twist; null: round."""

    @model_validator(mode="after")
    def _check_light(self) -> "ComponentSettings":
        given = [name for name in ("mass", "population", "lines") if getattr(self, name) is not None]
        if given not in (["mass", "population"], ["lines"]):
            raise ValueError(
                f"component '{self.name}': expected mass and population for stars, or lines for gas, got "
                f"{' and '.join(given) or 'none of them'}"
            )
        if self.lines is not None and getattr(self.dispersion, "profile", None) == "from_height":
            raise ValueError(
                f"component '{self.name}': expected a dispersion in km/s, or one that falls exponentially, for gas, "
                f"whose mass is not known; got from_height"
            )
        return self

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not value.isidentifier() or keyword.iskeyword(value):
            raise ValueError(f"expected a word of letters, digits and underscores, such as 'disc', got '{value}'")
        if value in ComponentsReader.model_fields:
            raise ValueError(f"'{value}' is a key of the section galaxy; give the component another name")
        return value


class ComponentsReader(AbstractSettings):
    """Smooth components, each made of emitters at quadrature points (`rubix_like.galaxy.components`)."""

    reader: Literal["components"] = "components"
    components: tuple[ComponentSettings, ...]
    """The components, each with a name, a mass, and the sections of its kinds (docs/components.md)."""
    points: Annotated[Integer, Field(ge=LEAST_POINTS, le=MOST_POINTS)] | None = None
    """Quadrature points of every component; null: as many as its size, its motion and the instrument need; in a fit
    as many as the errors of the data need, by the error at the best fit."""

    @field_validator("components")
    @classmethod
    def _check_names(cls, value: tuple[ComponentSettings, ...]) -> tuple[ComponentSettings, ...]:
        if not value:
            raise ValueError("expected at least one component, got none; docs/components.md has an example")
        twice = [name for name, number in Counter(component.name for component in value).items() if number > 1]
        if twice:
            raise ValueError(f"expected a name of its own for every component, got '{twice[0]}' twice; rename one")
        return value

    def build(self, run: "RunConfig | None" = None) -> "SmoothGalaxy":
        """The components' parameters as array leaves."""
        return found_at(READING["build_components"])(self, run)

    def load(self, run: "RunConfig | None" = None) -> "tuple[Galaxy, GalaxyInfo]":
        """The emitters, as many as the run needs; without one 16384 for every component."""
        return found_at(READING["load_components"])(self, run)


@functools.cache
def component_declarations() -> dict[str, Declaration]:
    """Every parameter that a component can have, by its name below that of the component."""
    found = declarations(ComponentSettings)
    found["dispersion"] = Declaration("dispersion", "km/s", Parameter(), _NotNegativeKms, ComponentSettings)
    for name, section in SECTIONS.items():
        for kind in section.kinds():
            for key, declared in declarations(kind, f"{name}.").items():
                found.setdefault(key, declared)
    return found


_NotNegativeKms = Annotated[Kms, Field(ge=0)]
