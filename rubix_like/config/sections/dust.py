"""Settings of dust: a uniform screen, or the dust of the galaxy's gas."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import OLDEST, Integer, InUnit, Mag, Myr, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import nearest
from rubix_like.physics.dust_curves import find_curve

DUST_COLUMN: str = "dust_column"
"""The name in a pipeline of the field that kind particles needs."""

KINDS: tuple[str, ...] = ("screen", "particles")

Kelvin = Annotated[float, InUnit("K")]
Opacity = Annotated[float, InUnit("mag pc2 / Msun")]


def _known_curve(value: str) -> str:
    find_curve(value)
    return value


def _checked_by_curve(value: float | None, info: Any) -> float | None:
    """R(V) or a slope, which the curve among the settings before it allows: of birth clouds, theirs."""
    is_birth = info.field_name == "birth_slope"
    curve = (info.data.get("birth_curve") if is_birth else None) or info.data.get("curve")
    if value is not None and curve is not None:
        check = find_curve(curve).check_r_v if info.field_name == "r_v" else find_curve(curve).check_slope
        check(value)
    return value


def _above_birth_clouds(value: float, info: Any) -> float:
    """A largest A(V) that is no less than that of birth clouds with a separate curve."""
    has_curve = info.data.get("birth_curve") is not None or info.data.get("birth_slope") is not None
    if has_curve and value < info.data.get("a_v_birth", 0.0):
        raise ValueError(f"expected at least a_v_birth ({info.data['a_v_birth']:g} mag), got {value:g} mag")
    return value


Curve = Annotated[str, AfterValidator(_known_curve)]
OfCurve = Annotated[Number | None, AfterValidator(_checked_by_curve)]
"""A number that the curve allows."""


def _own_r_v(curve: str, r_v: float | None) -> float:
    return find_curve(curve).r_v if r_v is None else r_v


class DustSettings(AbstractSettings):
    """A screen of dust in front of all the light: flux x 10^(-0.4 a_v A(lambda) / A(V))."""

    kind: Literal["screen"] = "screen"
    """screen: the same dust in front of all the light."""
    a_v: Annotated[Mag, Field(ge=0, le=1e6), Parameter()]
    """Attenuation in V."""
    curve: Curve = "calzetti"
    """calzetti (starbursts), cardelli or gordon (Milky Way), smc, kriek_conroy, power_law, a class of
    dust_extinction (such as G24_SMCAvg), or another curve that is installed."""
    r_v: OfCurve = None
    """A(V) / E(B-V); null: the curve's own."""
    slope: OfCurve = None
    """Of the curves kriek_conroy and power_law, d log A / d log lambda (beside Calzetti's); null: the curve's own."""
    place: Literal["galaxy", "foreground"] = "galaxy"
    """galaxy: dust at the galaxy's redshift, k at lambda / (1 + z); foreground: dust of the Milky Way, k at lambda."""

    @property
    def resolved_r_v(self) -> float:
        """`r_v`; where it is null, that of the curve."""
        return _own_r_v(self.curve, self.r_v)

    @property
    def compiled(self) -> str:
        """The settings that a compiled program depends on."""
        return self.kind


class ParticleDustSettings(AbstractSettings):
    """Dust of the gas particles: a source is dimmed by the column in front of it, A(V) = opacity x column."""

    instead: ClassVar[Mapping[str, str]] = {
        "a_v": "the gas in front of a star gives its A(V), which opacity scales; a screen is foreground: {a_v: 0.1}, "
        "or kind: screen"
    }

    kind: Literal["particles"]
    """particles: the dust of the galaxy's gas, each star behind its own column of it."""
    curve: Curve = "cardelli"
    """How attenuation depends on wavelength: the names of kind screen."""
    r_v: OfCurve = None
    """A(V) / E(B-V); null: the curve's own."""
    slope: OfCurve = None
    """As of kind screen."""
    dust_to_metal: Annotated[Number, Field(ge=0, le=1), Parameter()] = 0.4
    """Mass of dust per mass of metals in gas that has dust; without effect where the gas has a dust_mass."""
    opacity: Annotated[Opacity, Field(ge=0), Parameter()] = 4.9
    """A(V) in mag per Msun/pc2 of dust; 4.9: Bohlin et al. 1978, ApJ 224, 132, with 0.01 of dust per gas."""
    cold: Annotated[Kelvin, Field(ge=0)] | None = 8000.0
    """Temperature in K below which gas has dust, beside the gas that forms stars; null: all gas has."""
    hot_dust: Literal["none", "torrey"] = "none"
    """torrey: gas above `cold` has dust, too, if it has cooled out of the halo: T < 10^6 K (rho / 10^10 h^2 Msun
    kpc^-3)^(1/4) (Torrey et al. 2012, MNRAS 427, 2224)."""
    a_v_birth: Annotated[Mag, Field(ge=0, le=1e6), Parameter()] = 0.0
    """A(V) of the birth clouds of young stars, beside that of the column."""
    birth_age: Annotated[Myr, Field(gt=0, le=OLDEST)] = 10.0
    """Age in Myr at which stars begin to leave their birth clouds."""
    birth_curve: Curve | None = None
    """Curve of the birth clouds, with its own R(V); null: `curve`. Charlot & Fall 2000 have {curve: power_law,
    birth_slope: -1.3}."""
    birth_slope: OfCurve = None
    """Slope of the birth clouds' curve; null: that of `curve`, or with a birth_curve its own."""
    largest: Annotated[Mag, Field(gt=0, le=100, validate_default=True), AfterValidator(_above_birth_clouds)] = 10.0
    """Largest A(V) whose colour is computed: beyond it the light gets fainter, but no redder."""
    cells: Annotated[Integer, Field(ge=4, le=512)] = 256
    """Cells along the longer side of the painted field, and along the line of sight, that columns are resolved by."""
    foreground: (
        Annotated[
            DustSettings,
            BeforeValidator(lambda value: {"place": "foreground", **value} if isinstance(value, Mapping) else value),
        ]
        | None
    ) = None
    """A screen in front of the galaxy, beside its own dust: {a_v: 0.1, curve: gordon}; null: none."""

    @property
    def resolved_r_v(self) -> float:
        """`r_v`; where it is null, that of the curve."""
        return _own_r_v(self.curve, self.r_v)

    @property
    def has_birth_clouds(self) -> bool:
        """Whether birth clouds have a separate curve."""
        return self.birth_curve is not None or self.birth_slope is not None

    @property
    def resolved_birth_curve(self) -> str:
        """`birth_curve`; where it is null, `curve`."""
        return self.curve if self.birth_curve is None else self.birth_curve

    @property
    def resolved_birth_r_v(self) -> float:
        """R(V) of the birth clouds' curve: that of `birth_curve` where there is one."""
        return self.resolved_r_v if self.birth_curve is None else _own_r_v(self.birth_curve, None)

    @property
    def compiled(self) -> str:
        """The settings that a compiled program depends on: all but the parameters."""
        return self.model_dump_json(exclude={"dust_to_metal", "opacity", "a_v_birth", "foreground"})


def _kind_of(value: object) -> str:
    """The tag of a section's kind; `config.messages` leaves it out of the names of keys."""
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return "kind=particles" if kind == "particles" else "kind=screen"


def _check_kind(value: object) -> object:
    kind = value.get("kind", "screen") if isinstance(value, Mapping) else "screen"
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}{nearest(str(kind), KINDS)}")
    return value


Dust = Annotated[
    Annotated[DustSettings, Tag("kind=screen")] | Annotated[ParticleDustSettings, Tag("kind=particles")],
    Discriminator(_kind_of),
    BeforeValidator(_check_kind),
]
"""The section `dust` of a run: a screen, or with `kind: particles` the dust of the gas."""
