"""Kinds of light, height, rotation, dispersion and population that a smooth component can have, and their keys.

A kind is a class of settings with the key of its section (`profile`, `curve`, `history`) and its numbers; `built_by`
names the equinox module (`galaxy.components`) that has a leaf for each of them. Within a section a key means the same,
with the same unit and limits, in every kind, so that `galaxy.NAME.SECTION.KEY` names one parameter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from rubix_like.config.parameters import Parameter, declarations
from rubix_like.config.plug_ins import DISPERSIONS, HEIGHTS, LIGHT_PROFILES, POPULATIONS, ROTATION_CURVES
from rubix_like.config.quantities import Gyr, InUnit, Kms, Kpc, Msun, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.galaxy.limits import LARGEST_LOG_AGE
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import Registry

PositiveKpc = Annotated[Kpc, Field(gt=0)]
Length = Annotated[PositiveKpc, Parameter(moves=True)]
ScaleLength = Annotated[PositiveKpc, Parameter(moves=True, role="scale_length")]
HalfLight = Annotated[PositiveKpc, Parameter(moves=True, role="half_light_radius")]
Width = Annotated[PositiveKpc, Parameter(moves=True, role="width")]
Turnover = Annotated[PositiveKpc, Parameter()]
Velocity = Annotated[Kms, Parameter(role="rotation")]
NotNegativeKms = Annotated[Kms, Field(ge=0)]
Dispersion = Annotated[NotNegativeKms, Parameter()]
LogAge = Annotated[Number, Field(ge=6.0, le=LARGEST_LOG_AGE), Parameter(axis="age")]
BinEdge = Annotated[Number, Field(ge=6.0, le=LARGEST_LOG_AGE)]
MetalNode = Annotated[Number, Field(gt=0, le=0.1)]
Metallicity = Annotated[Number, Field(gt=0, le=0.1), Parameter(axis="metallicity")]
Gradient = Annotated[float, InUnit("dex / kpc"), Parameter()]
Scatter = Annotated[float, InUnit("dex"), Field(ge=0), Parameter()]


_USUAL_AGES = (7.0, 7.5, 8.0, 8.4, 8.7, 9.0, 9.2, 9.4, 9.6, 9.8, 10.0, 10.1)
_USUAL_METALLICITIES = (0.004, 0.008, 0.02, 0.05)
"""Nodes of a free-form population, within most libraries."""

_NAMING = frozenset({"profile", "curve", "history"})
"""Keys that name a kind."""


class AbstractKind(AbstractSettings):
    """The settings of one kind: the key that names it, its parameters, and other keys that are fixed. Plug-ins derive
    from it, too."""

    built_by: ClassVar[str]

    def build(self) -> Any:
        """The module with its parameters as leaves, other keys as they are."""
        as_leaf, leaves = found_at("rubix_like.galaxy.components.smooth:as_leaf"), declarations(type(self))
        given = {name: getattr(self, name) for name in type(self).model_fields if name not in _NAMING}
        return found_at(self.built_by)(**{key: as_leaf(own) if key in leaves else own for key, own in given.items()})


class ExponentialLight(AbstractKind):
    """exp(-R / `scale_length`)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Exponential"
    profile: Literal["exponential"]
    scale_length: ScaleLength
    """Scale length of the exponential."""


class TruncatedLight(AbstractKind):
    """An exponential with another scale length beyond a radius."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Truncated"
    profile: Literal["truncated"]
    scale_length: ScaleLength
    """Scale length of the exponential."""
    truncation_radius: Length
    """Where the profile turns to the outer scale length."""
    outer_scale_length: Length
    """Scale length beyond the truncation."""


class SersicLight(AbstractKind):
    """Sersic's law, in the plane of the component."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Sersic"
    profile: Literal["sersic"]
    effective_radius: HalfLight
    """Radius within which half of the light is, face-on."""
    index: Annotated[Number, Field(ge=0.5, le=8), Parameter(moves=True)]
    """Sersic's n: 1 for an exponential, 4 for de Vaucouleurs' law."""


class RingLight(AbstractKind):
    """A ring that is Gaussian across."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Ring"
    profile: Literal["ring"]
    radius: Width
    """Radius of the ring."""
    width: Length
    """Standard deviation across the ring."""


class GaussianLight(AbstractKind):
    """exp(-R^2 / 2 `sigma`^2)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Gaussian"
    profile: Literal["gaussian"]
    sigma: Width
    """Standard deviation along an axis."""


class PointLight(AbstractKind):
    """All light at the component's centre."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:PointOfLight"
    profile: Literal["point"]


class ThinHeight(AbstractKind):
    """All light in the plane."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:Thin"
    profile: Literal["thin"] = "thin"


class SechSquaredHeight(AbstractKind):
    """sech^2(z / `scale_height`)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:SechSquared"
    profile: Literal["sech2"]
    scale_height: Length
    """Height h of the vertical profile."""


class ExponentialScaleHeight(AbstractKind):
    """exp(-|z| / `scale_height`)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.light:ExponentialHeight"
    profile: Literal["exponential"]
    scale_height: Length
    """Height h of the vertical profile."""


class ArctanCurve(AbstractKind):
    """V (2 / pi) arctan(R / R_t)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:Arctan"
    curve: Literal["arctan"]
    velocity: Velocity
    """V of the rotation curve; below 0 it turns the other way."""
    turnover_radius: Turnover
    """R_t of the rotation curve."""


class TanhCurve(AbstractKind):
    """V tanh(R / R_t)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:Tanh"
    curve: Literal["tanh"]
    velocity: Velocity
    """V of the rotation curve; below 0 it turns the other way."""
    turnover_radius: Turnover
    """R_t of the rotation curve."""


class MultiParameterCurve(AbstractKind):
    """V (1 + x)^beta / (1 + x^gamma)^(1 / gamma), x = R_t / R."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:MultiParameter"
    curve: Literal["multi_parameter"]
    velocity: Velocity
    """V of the rotation curve; below 0 it turns the other way."""
    turnover_radius: Turnover
    """R_t of the rotation curve."""
    beta: Annotated[Number, Field(ge=-1, lt=1), Parameter()] = 0.0
    """Above 0 the curve falls outside, below 0 it rises."""
    gamma: Annotated[Number, Field(gt=0, le=50), Parameter()] = 2.0
    """How sharp the turnover is."""


class SplineCurve(AbstractKind):
    """A natural cubic spline through the speeds at given radii, and 0 at the centre."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:Spline"
    curve: Literal["spline"]
    radii: Annotated[tuple[PositiveKpc, ...], Field(min_length=2)]
    """Radii of the knots, increasing."""
    speeds: Annotated[tuple[Kms, ...], Parameter(role="rotation")]
    """Speed at each knot."""

    @model_validator(mode="after")
    def _check_knots(self) -> "SplineCurve":
        if len(self.speeds) != len(self.radii) or np.any(np.diff(self.radii) <= 0):
            raise ValueError(
                f"expected increasing radii and a speed for each, got radii {list(self.radii)} and {len(self.speeds)} "
                f"speeds"
            )
        return self


class MassModelCurve(AbstractKind):
    """Circular speed of a disc, a bulge and a halo, less the asymmetric drift of the component."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:MassModel"
    curve: Literal["mass_model"]
    disc_mass: Annotated[Msun, Field(ge=0), Parameter()] = 0.0
    """Mass of the thin exponential disc."""
    disc_scale_length: Turnover = 1.0
    """Scale length of the disc's mass."""
    bulge_mass: Annotated[Msun, Field(ge=0), Parameter()] = 0.0
    """Mass of the Hernquist bulge."""
    bulge_effective_radius: Turnover = 1.0
    """Projected half-mass radius of the bulge."""
    halo: Literal["nfw", "burkert", "isothermal"] = "nfw"
    """Profile of the halo's density."""
    halo_density: Annotated[float, InUnit("Msun / kpc3"), Field(ge=0), Parameter()] = 0.0
    """Density of the halo: rho_s (nfw), or that at the centre."""
    halo_radius: Turnover = 10.0
    """Scale radius of the halo: r_s (nfw), or that of the core."""


class ExponentialSigma(AbstractKind):
    """From `central` at the centre to `floor`, its square falling as exp(-2 R / `scale_length`)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:ExponentialDispersion"
    profile: Literal["exponential"]
    central: Dispersion
    """Dispersion at the centre."""
    scale_length: Turnover
    """Length over which the dispersion falls by e."""
    floor: Dispersion = 0.0
    """Dispersion far out."""


class SigmaFromHeight(AbstractKind):
    """What holds the component's own mass up at its scale height."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.rotation:FromHeight"
    profile: Literal["from_height"]
    mass_factor: Annotated[Number, Field(gt=0), Parameter()] = 1.0
    """All mass over that of the component."""


class SinglePopulation(AbstractKind):
    """One age, one metallicity at each radius."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:SingleStars"
    history: Literal["single"] = "single"
    log_age: LogAge
    """log10(age / yr), e.g. 9.5 for 3.2 Gyr; the median where ages scatter."""
    metallicity: Metallicity
    """Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters."""
    metallicity_gradient: Gradient = 0.0
    """Slope of log10 Z along the radius."""


class LogNormalPopulation(AbstractKind):
    """Normal distributions of log10 age and log10 Z."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:LogNormalStars"
    history: Literal["log_normal"]
    log_age: LogAge
    """log10(age / yr), e.g. 9.5 for 3.2 Gyr; the median where ages scatter."""
    age_scatter: Scatter = 0.1
    """Standard deviation of log10 age."""
    metallicity: Metallicity
    """Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters."""
    metallicity_scatter: Scatter = 0.0
    """Standard deviation of log10 Z."""
    metallicity_gradient: Gradient = 0.0
    """Slope of log10 Z along the radius."""


class TauPopulation(AbstractKind):
    """Star formation that falls as exp(-t / tau)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:Tau"
    history: Literal["tau"]
    oldest: LogAge
    """log10(age / yr) of the first stars."""
    tau: Annotated[Gyr, Field(gt=0), Parameter()]
    """Timescale of the star formation."""
    metallicity: Metallicity
    """Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters."""
    metallicity_gradient: Gradient = 0.0
    """Slope of log10 Z along the radius."""


class DelayedTauPopulation(AbstractKind):
    """Star formation that goes as t exp(-t / tau)."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:DelayedTau"
    history: Literal["delayed_tau"]
    oldest: LogAge
    """log10(age / yr) of the first stars."""
    tau: Annotated[Gyr, Field(gt=0), Parameter()]
    """Timescale of the star formation."""
    metallicity: Metallicity
    """Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters."""
    metallicity_gradient: Gradient = 0.0
    """Slope of log10 Z along the radius."""


class ContinuityPopulation(AbstractKind):
    """Constant star formation in bins of age; the logarithms of ratios between neighbours are the parameters."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:Continuity"
    history: Literal["continuity"]
    edges: Annotated[tuple[BinEdge, ...], Field(min_length=3)]
    """log10(age / yr) of the edges of the bins, increasing."""
    log_ratios: Annotated[tuple[Number, ...], Parameter()]
    """Natural logarithm of the star formation rate of each bin over that of the next older one; one fewer than bins."""
    metallicity: Metallicity
    """Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters."""
    metallicity_gradient: Gradient = 0.0
    """Slope of log10 Z along the radius."""

    @model_validator(mode="after")
    def _check_bins(self) -> "ContinuityPopulation":
        if len(self.log_ratios) != len(self.edges) - 2 or np.any(np.diff(self.edges) <= 0):
            raise ValueError(
                f"expected increasing edges and a ratio for each two neighbouring bins, got edges {list(self.edges)} "
                f"and {len(self.log_ratios)} log_ratios"
            )
        return self


class FreeFormPopulation(AbstractKind):
    """The mass of stars at every node of a grid of age and metallicity."""

    built_by: ClassVar[str] = "rubix_like.galaxy.components.populations:FreeFormStars"
    history: Literal["free_form"]
    log_ages: Annotated[tuple[BinEdge, ...], Field(min_length=1)] = _USUAL_AGES
    """log10(age / yr) of the nodes, increasing."""
    metallicities: Annotated[tuple[MetalNode, ...], Field(min_length=1)] = _USUAL_METALLICITIES
    """Metal mass fractions Z of the nodes, increasing."""
    weights: Annotated[tuple[Annotated[Number, Field(ge=0)], ...], Parameter()] = ()
    """Mass at birth at each node (only ratios matter), those of the lowest metallicity first; left out: a fit solves
    for them, and a run has the same mass at every node."""
    smoothness: Annotated[Number, Field(gt=0)] | None = None
    """Strength of the smoothness prior on weights that a fit solves for; null: from the data, draws by ratios."""

    @model_validator(mode="after")
    def _check_nodes(self) -> "FreeFormPopulation":
        for name, nodes in (("log_ages", self.log_ages), ("metallicities", self.metallicities)):
            if np.any(np.diff(nodes) <= 0):
                raise ValueError(f"expected increasing {name}, got {list(nodes)}")
        n_node = len(self.log_ages) * len(self.metallicities)
        if self.weights and len(self.weights) != n_node:
            raise ValueError(
                f"expected a weight for each of {n_node} nodes ({len(self.metallicities)} metallicities of "
                f"{len(self.log_ages)} log_ages each), got {len(self.weights)}"
            )
        if self.weights and not sum(self.weights) > 0:
            raise ValueError("expected weights of which at least one is above 0, got zeros alone")
        return self


@dataclass(frozen=True, eq=False)
class Section:
    """A section of a component: the registry of its kinds, the key that names one, and the kind without it."""

    registry: Registry
    key: str
    usual: str | None = None

    def read(self, value: object) -> object:
        """The settings of the kind that a section names; raises ConfigError for one that there is not."""
        if value is None or isinstance(value, AbstractKind):
            return value
        words = f"the key '{self.key}': one of {', '.join(self.registry.names())}"
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected a section with {words}; got {value!r}")
        name = value.get(self.key, self.usual)
        if not isinstance(name, str):
            raise ConfigError(f"expected {words}; got {name!r}")
        kind = self.registry.find(name)
        unknown = [str(key) for key in value if key not in kind.model_fields]
        if unknown:
            what = f"of the {self.registry.kind} '{name}'"
            raise ConfigError(
                "; ".join(f"unknown key '{key}' {what}{suggest(key, kind.model_fields)}" for key in unknown)
            )
        return kind.model_validate({self.key: name} | dict(value))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """JSON schema of any kind, or null."""
        kinds = [self.registry.find(name) for name in self.registry.usable_names()]
        return {"anyOf": [*(handler(kind.__pydantic_core_schema__) for kind in kinds), {"type": "null"}]}


SECTIONS: Mapping[str, Section] = {
    "light": Section(LIGHT_PROFILES, "profile"),
    "height": Section(HEIGHTS, "profile"),
    "rotation": Section(ROTATION_CURVES, "curve"),
    "dispersion": Section(DISPERSIONS, "profile"),
    "population": Section(POPULATIONS, "history", "single"),
}
"""The sections of a component that have kinds."""
