"""Settings of a point-spread function."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, core_schema

from rubix_like.config.fibre_settings import Place
from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import (
    WITH_UNITS,
    Arcsec,
    Degree,
    InUnit,
    Number,
    PositiveAngstrom,
    Wavelengths,
    parse_number,
    parse_quantity,
)
from rubix_like.config.settings import AbstractSettings

_KEYS: dict[str, tuple[str, ...]] = {
    "gaussian": ("fwhm", "wavelength"),
    "moffat": ("fwhm", "beta", "wavelength"),
    "gaussians": ("components", "wavelength"),
    "image": ("file", "file_scale", "extension", "wavelength"),
    "adaptive": ("optics",),
}
"""Kind -> the keys that describe it."""

_NEEDED: dict[str, str] = {
    "gaussian": "fwhm",
    "moffat": "fwhm",
    "gaussians": "components",
    "image": "file",
    "adaptive": "optics",
}

_AT_PLACES: dict[str, tuple[str, ...]] = {
    "gaussian": ("width",),
    "moffat": ("width", "beta"),
    "gaussians": ("width",),
    "image": ("file", "file_scale"),
    "adaptive": ("optics",),
}
"""Kind -> the keys by which the PSF at a place of the field may differ."""


@dataclass(frozen=True)
class OneOrTable:
    """Marks a setting as one number > `above` (in `unit`), or a tuple of them, one per wavelength."""

    unit: str | None
    above: float = 0.0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._parse,
            serialization=core_schema.plain_serializer_function_ser_schema(self._serialize, info_arg=True),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        one = [
            {"type": "number", "exclusiveMinimum": self.above},
            {"type": "string", "description": self.unit or "number"},
        ]
        return {"anyOf": [*one, {"type": "array", "items": {"anyOf": one}, "minItems": 2}]}

    def _parse(self, value: object) -> object:
        return tuple(map(self._number, value)) if isinstance(value, list | tuple) else self._number(value)

    def _number(self, value: object) -> float:
        if value is None:
            raise ValueError(
                f"expected a width in {self.unit}, got null" if self.unit else "expected a number, got null"
            )
        parsed = parse_number(value) if self.unit is None else parse_quantity(value, self.unit)
        if parsed <= self.above:
            raise ValueError(f"expected a number > {self.above:g}, got {value!r}")
        return parsed

    def _serialize(self, value: float | tuple[float, ...], info: Any) -> object:
        if self.unit is None or not (info.context or {}).get(WITH_UNITS):
            return value
        return [f"{x!r} {self.unit}" for x in value] if isinstance(value, tuple) else f"{value!r} {self.unit}"


Fwhm = Annotated[float | tuple[float, ...], OneOrTable("arcsec")]
Beta = Annotated[float | tuple[float, ...], OneOrTable(None, above=1.0)]


class PSFComponent(AbstractSettings):
    """One Gaussian of a PSF that is a sum of several."""

    fwhm: Fwhm
    """Full width at half maximum in arcsec, before the spaxel's box; one value, or one per wavelength."""
    fraction: Annotated[Number, Field(gt=0)]
    """Its share of the light, relative to the others."""


class AdaptiveOptics(AbstractSettings):
    """Residual turbulence behind adaptive optics: the phase's power spectrum of Fetick et al. (2019, A&A 628, A99).

    A Moffat on a constant up to the correction's cut-off frequency, Kolmogorov's (or von Karman's) spectrum beyond.
    r0, amplitude and background are those at `wavelength`; at others they scale as Kolmogorov's phase does. Keys that
    are left out are those of the preset.
    """

    model_config = ConfigDict(json_schema_extra=lambda schema: schema.update(required=[]))

    diameter: Annotated[float, InUnit("m"), Field(gt=0)]
    """Of the telescope's pupil."""
    obstruction: Annotated[Number, Field(ge=0, lt=1)] = 0.0
    """Diameter of the central obstruction, in diameters of the pupil."""
    cutoff: Annotated[float, InUnit("m-1"), Field(gt=0)]
    """Spatial frequency up to which the phase is corrected, (actuators across the pupil - 1) / (2 diameter)."""
    wavelength: PositiveAngstrom = 5000.0
    """Where r0, amplitude and background are given."""
    r0: Annotated[float, InUnit("m"), Field(gt=0)]
    """Fried's parameter along the line of sight."""
    amplitude: Annotated[Number, Field(ge=0)]
    """Variance of the Moffat's part of the phase, rad2."""
    alpha: Annotated[float, InUnit("m-1"), Field(gt=0)]
    """Half width of the Moffat in spatial frequency; the geometric mean of both axes."""
    beta: Annotated[Number, Field(gt=1)]
    """Exponent of the Moffat."""
    background: Annotated[Number, Field(ge=0)] = 0.0
    """The constant, rad2 m2."""
    ratio: Annotated[Number, Field(ge=0.2, le=5)] = 1.0
    """Square root of the ratio of the Moffat's two half widths."""
    theta: Degree = 0.0
    """Angle of the axis of the half width alpha x ratio, from the field's +y through East."""
    outer_scale: Annotated[float, InUnit("m"), Field(gt=0)] | None = None
    """Of the turbulence (von Karman); null: infinite (Kolmogorov)."""


class PSFPlace(AbstractSettings):
    """The PSF at one place of the field, by what differs from the rest of the section."""

    instead: ClassVar[Mapping[str, str]] = {
        "fwhm": "give width, the FWHM there relative to psf.fwhm (e.g. width: 1.2)",
        "components": "give width, the FWHM of all components there relative to psf.components",
        "wavelength": "it is psf.wavelength at all places",
    }

    at: Place
    """(x, y) in arcsec from the field's centre, East and North along the field's axes."""
    width: Annotated[float | tuple[float, ...], OneOrTable(None)] | None = None
    """FWHM relative to `psf.fwhm` (of all components); one value, or one per wavelength; null: 1."""
    beta: Beta | None = None
    """Exponent of the Moffat; null: `psf.beta`. Where that is varied, beta - 1 varies in proportion."""
    file: Path | None = None
    """FITS image of kind image; null: `psf.file`."""
    file_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of that image's pixels in arcsec; null: by its header."""
    optics: AdaptiveOptics | None = None
    """Of kind adaptive; null: `psf.optics`."""


class PSFSettings(AbstractSettings):
    """Point-spread function before the box of a spaxel, centred.

    gaussian (`fwhm`), moffat (`fwhm`, `beta`), gaussians (`components`), image (`file`) or adaptive (`optics`). Widths
    are one value, or one per `wavelength`, linear between and constant beyond; an image file then has one plane per
    wavelength. With `field` it varies over the field.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "sigma": "give fwhm, 2.355 times the standard deviation of a Gaussian (e.g. fwhm: 0.7 arcsec)",
        "seeing": "give fwhm (e.g. fwhm: 0.7 arcsec)",
    }

    kind: Literal["gaussian", "moffat", "gaussians", "image", "adaptive"] = "gaussian"
    fwhm: Annotated[Fwhm | None, Parameter()] = None
    """Full width at half maximum, before the spaxel's box: the seeing. One, or one per `wavelength`."""
    beta: Annotated[Beta | None, Parameter()] = None
    """Exponent of the Moffat profile, > 1 (else the light has no bound); small ones have wide wings."""
    components: Annotated[tuple[PSFComponent, ...], Field(min_length=1)] | None = None
    """The Gaussians of kind gaussians."""
    file: Path | None = None
    """FITS image of the PSF before the spaxel's box, on finer pixels, centred on the middle of the array."""
    file_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of the image's pixels in arcsec; null: by its header."""
    extension: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Name of the extension with the image; null: OVERDIST or OVERSAMP of a file of stpsf, else the first image."""
    wavelength: Wavelengths | None = None
    """Angstrom, in the instrument's medium, increasing: where the widths (or planes) are given; null: those of an
    image's planes by its header (WAVELN00 ..., as stpsf writes them)."""
    enclosed: Annotated[Number, Field(gt=0.5, lt=1)] = 0.999
    """Fraction of a point source's light that is followed; the rest is given back to the spaxels within."""
    optics: Annotated[AdaptiveOptics | None, Field(exclude_if=lambda value: value is None)] = None
    """Adaptive optics of kind adaptive."""
    field: Annotated[tuple[PSFPlace, ...] | None, Field(min_length=2, exclude_if=lambda value: value is None)] = None
    """PSFs at places that form a grid of rows and columns, bilinear between and constant beyond; null: one PSF."""

    @model_validator(mode="after")
    def _check_kind(self) -> "PSFSettings":
        known = _KEYS[self.kind]
        every = ("fwhm", "beta", "components", "file", "file_scale", "extension", "optics", "wavelength")
        alien = [key for key in every if getattr(self, key) is not None and key not in known]
        if alien:
            raise ValueError(f"a PSF of kind {self.kind} has the keys {', '.join(known)}; got {', '.join(alien)}")
        missing = [key for key in (_NEEDED[self.kind], "beta") if key in known and getattr(self, key) is None]
        if self.field is not None and not self.is_profile:  # each place may have another
            missing = [key for key in missing if any(getattr(place, key) is None for place in self.field)]
        if missing:
            raise ValueError(f"a PSF of kind {self.kind} needs {' and '.join(missing)}, got none")
        return self

    @model_validator(mode="after")
    def _check_table(self) -> "PSFSettings":
        n_table = None if self.wavelength is None else len(self.wavelength)
        for name, value in self._widths():
            if isinstance(value, tuple) and len(value) != n_table:
                raise ValueError(
                    f"{name}: expected one value, or one per wavelength ({n_table or 'psf.wavelength is not given'}), "
                    f"got {len(value)}"
                )
        values = [value for _, value in self._widths()] + [place.width for place in self.field or ()]
        if n_table and self.kind != "image" and not any(isinstance(value, tuple) for value in values):
            raise ValueError("wavelength: expected a width per wavelength beside it, got one for all")
        return self

    @model_validator(mode="after")
    def _check_field(self) -> "PSFSettings":
        if self.field is None:
            return self
        known = _AT_PLACES[self.kind]
        for number, place in enumerate(self.field):
            alien = [
                key for key in PSFPlace.model_fields if key not in ("at", *known) and getattr(place, key) is not None
            ]
            if alien:
                raise ValueError(
                    f"field[{number}]: a PSF of kind {self.kind} may differ by {', '.join(known)}; got "
                    f"{', '.join(alien)}"
                )
            for name, value in (("width", place.width), ("beta", place.beta)):
                if isinstance(value, tuple) and len(value) != len(self.wavelength or ()):
                    raise ValueError(
                        f"field[{number}].{name}: expected one value, or one per wavelength "
                        f"({len(self.wavelength or ()) or 'psf.wavelength is not given'}), got {len(value)}"
                    )
        rows, columns = self.field_axes
        if len({place.at for place in self.field}) != len(self.field) or len(self.field) != len(rows) * len(columns):
            raise ValueError(
                f"field: expected each place of a grid once, every y with every x; got {len(self.field)} places with "
                f"{len(rows)} different y and {len(columns)} different x"
            )
        return self

    @property
    def field_axes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """y of the rows and x of the columns of the grid `field`, in arcsec, increasing."""
        places = [place.at for place in self.field or ()]
        return tuple(sorted({y for _, y in places})), tuple(sorted({x for x, _ in places}))

    @property
    def every_place(self) -> tuple["PSFSettings", ...]:
        """The PSF at each place of `field`, row after row of increasing y and x; itself where there is no field."""
        if self.field is None:
            return (self,)
        return tuple(self._at(place) for place in sorted(self.field, key=lambda place: place.at[::-1]))

    def _at(self, place: PSFPlace) -> "PSFSettings":
        width = 1.0 if place.width is None else place.width
        changes: dict[str, Any] = {"field": None}
        if self.fwhm is not None:
            changes["fwhm"] = _times(self.fwhm, width)
        if self.components is not None:
            changes["components"] = tuple(
                part.model_copy(update={"fwhm": _times(part.fwhm, width)}) for part in self.components
            )
        if place.file is not None:
            changes |= {"file": place.file, "file_scale": place.file_scale}
        changes |= {key: getattr(place, key) for key in ("beta", "optics") if getattr(place, key) is not None}
        return self.model_copy(update=changes)

    def _widths(self) -> Iterator[tuple[str, float | tuple[float, ...]]]:
        for number, component in enumerate(self.components or ()):
            yield f"components[{number}].fwhm", component.fwhm
        for name, value in (("fwhm", self.fwhm), ("beta", self.beta)):
            if value is not None:
                yield name, value

    @property
    def width_table(self) -> Float[np.ndarray, "quantity table"]:
        """Every width (arcsec; and beta) at each wavelength of the table, or in one column where there is none."""
        n_table = 1 if self.wavelength is None else len(self.wavelength)
        return np.stack([np.broadcast_to(np.asarray(value, dtype=float), (n_table,)) for _, value in self._widths()])

    @property
    def is_profile(self) -> bool:
        """Whether it has widths; an image and one of adaptive optics have none."""
        return self.kind in ("gaussian", "moffat", "gaussians")

    @property
    def fwhm_table(self) -> Float[np.ndarray, "component table"]:
        """The rows of `width_table` that are FWHM."""
        return self.width_table[:1] if self.kind == "moffat" else self.width_table

    @property
    def narrowest(self) -> float:
        """The smallest FWHM (arcsec) among Gaussians, wavelengths and places of the field; ValueError without
        widths."""
        return min(float(psf.fwhm_table.min()) for psf in self.every_place)

    def numbers(self) -> dict[str, Any]:
        """`fwhm` (arcsec; of each Gaussian), `beta` and the Gaussians' `fraction`, as far as the kind has them.

        Widths given once are repeated along a table of wavelengths.
        """
        if not self.is_profile:
            return {}
        table = self.width_table if self.wavelength is not None else self.width_table[:, 0]
        if self.components is not None:
            return {"fwhm": table, "fraction": np.array([component.fraction for component in self.components])}
        return dict(zip(("fwhm", "beta"), table, strict=False))


def _times(value: float | tuple[float, ...], factor: float | tuple[float, ...]) -> float | tuple[float, ...]:
    product = np.multiply(value, factor)
    return float(product) if product.ndim == 0 else tuple(product.tolist())


def merged_psf(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's PSF overridden key by key, and so its optics; with another `kind`, what that kind does not have is
    left out."""
    kind = override.get("kind", preset.get("kind", "gaussian"))
    known = ("kind", "enclosed", *_KEYS.get(str(kind), ()))
    kept = {key: value for key, value in preset.items() if kind == preset.get("kind", "gaussian") or key in known}
    below, above = kept.get("optics"), override.get("optics")
    optics = {"optics": {**below, **above}} if isinstance(below, Mapping) and isinstance(above, Mapping) else {}
    return {**kept, **override, **optics}
