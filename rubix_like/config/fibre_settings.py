"""Settings of a bundle of fibres: where they lie, how they are exposed, and how a cube is made of their spectra."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from rubix_like.config.quantities import (
    Angstrom,
    Arcsec,
    Degree,
    Integer,
    InUnit,
    Number,
    as_tuple,
    one_or_many,
)
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import find_file, read_section
from rubix_like.errors import ConfigError
from rubix_like.runtime.resources import resource_names

KIND: str = "bundles"
"""Kind of the packaged files that bundles are described by."""

_LARGEST = 3600.0
_FARTHEST_FROM_ZENITH = 75.0

Place = tuple[
    Annotated[Arcsec, Field(ge=-_LARGEST, le=_LARGEST)],
    Annotated[Arcsec, Field(ge=-_LARGEST, le=_LARGEST)],
]
"""(East, North) along the field's axes in arcsec: x to the left, y up."""

Factors = Annotated[tuple[Annotated[Number, Field(gt=0)], ...], Field(min_length=1)]


class FibreCubeSettings(AbstractSettings):
    """How a cube is made of the fibres' spectra: each spaxel is a weighted mean of the fibres near it.

    shepard: the weight of a fibre is exp(-r^2 / (2 sigma^2)) up to the distance `limit` from the spaxel's centre
    (MaNGA; CALIFA with numbers of its own). drizzle: it is the area that the fibre's disc, its diameter multiplied by
    `drop`, has in common with the spaxel (SAMI).
    """

    method: Literal["shepard", "drizzle"]
    sigma: Annotated[Arcsec, Field(gt=0)] | None = None
    """Of shepard: width of the Gaussian weight."""
    limit: Annotated[Arcsec, Field(gt=0)] | None = None
    """Of shepard: distance up to which fibres count."""
    drop: Annotated[Number, Field(gt=0, le=1)] | None = None
    """Of drizzle: diameter of the disc that is drizzled, in diameters of the fibre."""
    coverage: Annotated[Number, Field(gt=0, le=1)] | None = None
    """Spaxels with less than this fraction of the median sum of weights are masked; null: those without any fibre."""

    @model_validator(mode="after")
    def _check_method(self) -> "FibreCubeSettings":
        needed = ("sigma", "limit") if self.method == "shepard" else ("drop",)
        for name in ("sigma", "limit", "drop"):
            if (getattr(self, name) is not None) != (name in needed):
                wanted = "a value" if name in needed else "null"
                raise ValueError(f"{name}: expected {wanted} with method {self.method}, got {getattr(self, name)}")
        return self


Angles = Annotated[tuple[Degree, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]


class RefractionSettings(AbstractSettings):
    """Differential refraction of the atmosphere: light of other wavelengths lands beside the fibres.

    `zenith_distance` and `zenith_angle` are one number for each exposure, or one for all.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "airmass": "give zenith_distance, whose secant it is (airmass 1.2: zenith_distance: 33.6 deg)",
        "parallactic_angle": "give zenith_angle, which it is where +y is North",
        "humidity": "give vapour, the pressure of the water in hPa",
    }

    zenith_distance: Annotated[Angles, Field(min_length=1)]
    """Of the target, up to 75 deg."""
    zenith_angle: Annotated[Angles, Field(min_length=1)]
    """Where the zenith lies, from the field's +y through East: the parallactic angle where +y is North."""
    wavelength: Annotated[Angstrom, Field(gt=2500)]
    """Angstrom, in the instrument's medium: where the fibres are pointed."""
    pressure: Annotated[float, InUnit("hPa"), Field(gt=0, le=1100)] = 800.0
    """Of the air at the telescope; this and the next two as Filippenko (1982) has them for an altitude of 2 km."""
    temperature: Annotated[Number, Field(ge=-50, le=50)] = 7.0
    """Of the air, deg C."""
    vapour: Annotated[float, InUnit("hPa"), Field(ge=0, le=100)] = 10.67
    """Partial pressure of water."""

    @field_validator("zenith_distance")
    @classmethod
    def _check_distance(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        wrong = [angle for angle in value if not 0 <= angle <= _FARTHEST_FROM_ZENITH]
        if wrong:
            raise ValueError(f"expected angles from 0 to {_FARTHEST_FROM_ZENITH:g} deg, got {wrong[0]:g}")
        return value

    def of_exposures(self, number: int) -> "RefractionSettings":
        """With an angle of each kind for so many exposures; ValueError where there are others."""
        angles = {}
        for name in ("zenith_distance", "zenith_angle"):
            value = getattr(self, name)
            if len(value) not in (1, number):
                raise ValueError(
                    f"refraction.{name}: expected one number, or one for each of the {number} exposures (dithers), got "
                    f"{len(value)}"
                )
            angles[name] = value * (number // len(value))
        return self.model_copy(update=angles)


class FibreSettings(AbstractSettings):
    """Fibres instead of spaxels: the light that each collects in every exposure, and the cube that is made of it.

    `bundle` is the name of a packaged bundle (or the path of a .yaml file), and other keys override its values; the
    name alone stands for {bundle: NAME}. `instrument.psf` is then the seeing, and `pixel_scale` and `fov` are those of
    the cube. A section that states every key, as a recorded run does, needs no file.
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema.update(required=["bundle"]),
    )

    bundle: str
    description: str = ""
    source: str = ""
    """Where the values were published."""
    arrangement: Literal["hexagon", "circles", "positions"]
    """A hexagonal grid with corners East and West, concentric circles of 1, 6, 12, ... fibres, or a list."""
    rings: Annotated[Integer, Field(ge=0, le=40)] | None = None
    """Rings about the fibre in the middle: 1 + 3 rings (rings + 1) fibres."""
    pitch: Annotated[Arcsec, Field(gt=0)] | None = None
    """Distance of neighbouring rings (and fibres of the hexagon)."""
    positions: Annotated[tuple[Place, ...], Field(min_length=1)] | None = None
    """Of arrangement positions: (x, y) of each fibre in arcsec from the bundle's middle, East and North."""
    diameter: Annotated[Arcsec, Field(gt=0)]
    """Diameter of a fibre's core, which collects the light."""
    angle: Degree = 0.0
    """By which the bundle is turned in its field, from +y through East."""
    dead: tuple[Annotated[Integer, Field(ge=1)], ...] = ()
    """Numbers (from 1) of fibres that give no spectrum."""
    dithers: Annotated[tuple[Place, ...], Field(min_length=1)] = ((0.0, 0.0),)
    """(x, y) of the bundle's middle in each exposure, in arcsec from the field's centre, East and North."""
    seeing: Factors | None = None
    """FWHM of each exposure relative to `instrument.psf`; null: 1 for all."""
    transparency: Annotated[tuple[Annotated[Number, Field(gt=0, le=1)], ...], Field(min_length=1)] | None = None
    """Light that the sky lets through in each exposure, relative to a clear one. Spectra are calibrated for it, so that
    it shows in their noise alone; null: 1 for all."""
    refraction: Annotated[RefractionSettings | None, Field(exclude_if=lambda value: value is None)] = None
    """Differential refraction of the atmosphere; null: none."""
    cube: FibreCubeSettings
    """How the cube is made."""
    spectra: Literal["manga", "sami", "none"] = "manga"
    """Layout of the file of row-stacked spectra beside the cube; none: there is no such file."""

    @model_validator(mode="before")
    @classmethod
    def _merge_bundle(cls, data: object) -> object:
        return with_bundle(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _check_arrangement(self) -> "FibreSettings":
        listed = self.arrangement == "positions"
        for name, needed in (("rings", not listed), ("pitch", not listed), ("positions", listed)):
            if (getattr(self, name) is not None) != needed:
                wanted = "a value" if needed else "null"
                came = "null" if getattr(self, name) is None else "one"
                raise ValueError(f"{name}: expected {wanted} with arrangement {self.arrangement}, got {came}")
        self._check_numbers()
        return self

    def _check_numbers(self) -> None:
        beyond = [number for number in self.dead if number > self.n_fibre]
        if beyond:
            raise ValueError(f"dead: expected numbers from 1 to {self.n_fibre}, got {beyond[0]}")
        if len(set(self.dead)) == self.n_fibre:
            raise ValueError(f"dead: expected at least one fibre that works, got all {self.n_fibre}")
        for name in ("seeing", "transparency"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.dithers):
                raise ValueError(
                    f"{name}: expected one number for each of the {len(self.dithers)} exposures (dithers), got "
                    f"{len(given)}"
                )
        if self.refraction is not None:
            self.refraction.of_exposures(len(self.dithers))

    @property
    def n_fibre(self) -> int:
        """Fibres of the bundle, dead ones among them."""
        if self.positions is not None:
            return len(self.positions)
        rings = self.rings or 0
        return 1 + 3 * rings * (rings + 1)


Fibres = Annotated[
    FibreSettings | None, BeforeValidator(lambda value: {"bundle": value} if isinstance(value, str) else value)
]
"""A section, the name of a bundle, or null."""


def with_bundle(section: Mapping[str, Any]) -> dict[str, Any]:
    """The bundle's file overridden by `section`; a new arrangement or method replaces what describes the other.

    Raises ConfigError where no bundle is named, or there is no such file.
    """
    name = section.get("bundle")
    if set(FibreSettings.model_fields) - {"refraction"} <= set(section):
        return dict(section)
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the key 'bundle': one of {', '.join(resource_names(KIND))}, or the path of a .yaml file; got "
            f"{name!r}"
        )
    below = read_section(find_file(KIND, name))
    merged = {**below, **section}
    if section.get("arrangement", below.get("arrangement")) != below.get("arrangement"):
        merged |= {key: section.get(key) for key in ("rings", "pitch", "positions")}
    if isinstance(below.get("cube"), Mapping) and isinstance(section.get("cube"), Mapping):
        cube, above = below["cube"], section["cube"]
        is_same = above.get("method", cube.get("method")) == cube.get("method")
        merged["cube"] = {**cube, **above} if is_same else dict(above)
    if "dithers" in section:
        merged |= {key: section.get(key) for key in ("seeing", "transparency")}
    return merged
