"""Settings of a galaxy of smooth components (`galaxy: {reader: components, components: [...]}`)."""

import functools
import keyword
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, InstanceOf, SerializeAsAny, field_validator, model_validator

from rubix_like.config.parameters import Declaration, Parameter, declarations
from rubix_like.config.plug_ins import READING
from rubix_like.config.quantities import (
    Arcsec,
    Degree,
    Integer,
    InUnit,
    Kms,
    Kpc,
    Msun,
    Number,
    as_tuple,
    parse_quantity,
)
from rubix_like.config.readers.component_kinds import SECTIONS, AbstractKind, SigmaFromHeight, ThinHeight
from rubix_like.config.sections.products import Line
from rubix_like.config.settings import AbstractSettings
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from rubix_like.config.run_config import RunConfig
    from rubix_like.galaxy.components.smooth import SmoothGalaxy
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo

LEAST_POINTS: int = 64
MOST_POINTS: int = 1 << 22

Light = Annotated[SerializeAsAny[InstanceOf[AbstractKind]], BeforeValidator(SECTIONS["light"].read), SECTIONS["light"]]
Height = Annotated[
    SerializeAsAny[InstanceOf[AbstractKind]], BeforeValidator(SECTIONS["height"].read), SECTIONS["height"]
]
Rotation = Annotated[
    SerializeAsAny[InstanceOf[AbstractKind]], BeforeValidator(SECTIONS["rotation"].read), SECTIONS["rotation"]
]
Profile = Annotated[SerializeAsAny[InstanceOf[AbstractKind]], SECTIONS["dispersion"]]
Population = Annotated[
    SerializeAsAny[InstanceOf[AbstractKind]], BeforeValidator(SECTIONS["population"].read), SECTIONS["population"]
]


def _read_dispersion(value: object) -> object:
    """A section of a kind, or a number in km/s for all radii."""
    if isinstance(value, Mapping):
        return SECTIONS["dispersion"].read(value)
    return value if isinstance(value, AbstractKind) else parse_quantity(value, "km/s")


class WarpSettings(AbstractSettings):
    """Inclination and position angle that change linearly with the radius beyond `start`."""

    start: Annotated[Kpc, Field(ge=0), Parameter(moves=True)] = 0.0
    """Radius where the warp begins."""
    tilt: Annotated[float, InUnit("deg / kpc"), Parameter(moves=True)] = 0.0
    """Slope of the inclination along the radius."""
    turn: Annotated[float, InUnit("deg / kpc"), Parameter(moves=True)] = 0.0
    """Slope of the position angle along the radius."""


Share = Annotated[Number, Field(ge=-0.5, le=0.5), Parameter()]
Angle = Annotated[Degree, Parameter()]
Ratio = Annotated[Number, Field(ge=0)]


class AsymmetrySettings(AbstractSettings):
    """Harmonics m = 1, 2 over the azimuth in the plane, from the receding major axis; 0 at the centre."""

    light_1: Share = 0.0
    """Amplitude of m = 1 in the light, relative."""
    light_angle_1: Angle = 0.0
    """Azimuth where m = 1 is brightest."""
    light_2: Share = 0.0
    """Amplitude of m = 2 in the light, relative."""
    light_angle_2: Angle = 0.0
    """Azimuth where m = 2 is brightest."""
    streaming_1: Annotated[Kms, Parameter()] = 0.0
    """Amplitude of m = 1 in the speed."""
    streaming_angle_1: Angle = 0.0
    """Azimuth where m = 1 is fastest."""
    streaming_2: Annotated[Kms, Parameter()] = 0.0
    """Amplitude of m = 2 in the speed."""
    streaming_angle_2: Angle = 0.0
    """Azimuth where m = 2 is fastest."""
    kinematic_twist: Annotated[float, InUnit("deg / kpc"), Parameter()] = 0.0
    """By how much the line of nodes of the rotation turns along the radius, in the plane."""


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
    height: Height = ThinHeight()
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

    warp: WarpSettings | None = None
    """A linear warp; null: flat."""
    asymmetry: AsymmetrySettings | None = None
    """Harmonics of light and streaming, and a kinematic twist; null: round."""

    @model_validator(mode="after")
    def _check_light(self) -> "ComponentSettings":
        given = [name for name in ("mass", "population", "lines") if getattr(self, name) is not None]
        if given not in (["mass", "population"], ["lines"]):
            raise ValueError(
                f"component '{self.name}': expected mass and population for stars, or lines for gas, got "
                f"{' and '.join(given) or 'none of them'}"
            )
        if self.lines is not None and isinstance(self.dispersion, SigmaFromHeight):
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
    as many as the data need."""

    @field_validator("components")
    @classmethod
    def _check_names(cls, value: tuple[ComponentSettings, ...]) -> tuple[ComponentSettings, ...]:
        if not value:
            raise ValueError("expected at least one component, got none; docs/components.md has an example")
        twice = [name for name, number in Counter(own.name for own in value).items() if number > 1]
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
    for section, own in SECTIONS.items():
        for name in own.registry.usable_names():
            for key, declared in declarations(own.registry.find(name), f"{section}.").items():
                found.setdefault(key, declared)
    return found


_NotNegativeKms = Annotated[Kms, Field(ge=0)]
