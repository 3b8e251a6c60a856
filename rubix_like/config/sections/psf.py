"""Settings of a point-spread function."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, core_schema

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import WITH_UNITS, Angstrom, Arcsec, Number, parse_number, parse_quantity
from rubix_like.config.settings import AbstractSettings

_KEYS: dict[str, tuple[str, ...]] = {
    "gaussian": ("fwhm", "wavelength"),
    "moffat": ("fwhm", "beta", "wavelength"),
    "gaussians": ("components", "wavelength"),
    "image": ("file", "file_scale", "wavelength"),
}
"""Kind -> the keys that describe it."""

_NEEDED: dict[str, str] = {"gaussian": "fwhm", "moffat": "fwhm", "gaussians": "components", "image": "file"}


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
        return {"anyOf": [*one, {"type": "array", "items": {"anyOf": one}, "minItems": 2}, {"type": "null"}]}

    def _parse(self, value: object) -> object:
        if value is None:
            return None
        return tuple(map(self._number, value)) if isinstance(value, list | tuple) else self._number(value)

    def _number(self, value: object) -> float:
        parsed = parse_number(value) if self.unit is None else parse_quantity(value, self.unit)
        if parsed <= self.above:
            raise ValueError(f"expected a number > {self.above:g}, got {value!r}")
        return parsed

    def _serialize(self, value: float | tuple[float, ...] | None, info: Any) -> object:
        if value is None or self.unit is None or not (info.context or {}).get(WITH_UNITS):
            return value
        return [f"{x!r} {self.unit}" for x in value] if isinstance(value, tuple) else f"{value!r} {self.unit}"


Fwhm = Annotated[float | tuple[float, ...] | None, OneOrTable("arcsec")]
Beta = Annotated[float | tuple[float, ...] | None, OneOrTable(None, above=1.0)]


class PSFComponent(AbstractSettings):
    """One Gaussian of a PSF that is a sum of several."""

    fwhm: Fwhm
    """Full width at half maximum in arcsec, before the spaxel's box; one value, or one per wavelength."""
    fraction: Annotated[Number, Field(gt=0)]
    """Its share of the light, relative to the others."""

    @field_validator("fwhm")
    @classmethod
    def _check_given(cls, value: float | tuple[float, ...] | None) -> float | tuple[float, ...]:
        if value is None:
            raise ValueError("expected a width in arcsec, got null")
        return value


class PSFSettings(AbstractSettings):
    """Point-spread function before the box of a spaxel, centred, the same over the field.

    gaussian (`fwhm`), moffat (`fwhm`, `beta`), gaussians (`components`) or image (`file`). Widths are one value, or one
    per `wavelength`, linear between and constant beyond; an image file then has one plane per wavelength.
    """

    kind: Literal["gaussian", "moffat", "gaussians", "image"] = "gaussian"
    fwhm: Annotated[Fwhm, Parameter()] = None
    """Full width at half maximum, before the spaxel's box: the seeing. One, or one per `wavelength`."""
    beta: Annotated[Beta, Parameter()] = None
    """Exponent of the Moffat profile, > 1 (else the light has no bound); small ones have wide wings."""
    components: Annotated[tuple[PSFComponent, ...], Field(min_length=1)] | None = None
    """The Gaussians of kind gaussians."""
    file: Path | None = None
    """FITS image of the PSF before the spaxel's box, on finer pixels, centred on the middle of the array."""
    file_scale: Annotated[Arcsec, Field(gt=0)] | None = None
    """Side of the image's pixels in arcsec; null: by its header."""
    wavelength: Annotated[tuple[Annotated[Angstrom, Field(gt=0)], ...], Field(min_length=2)] | None = None
    """Angstrom, in the instrument's medium, increasing: where the widths (or planes) are given."""
    enclosed: Annotated[Number, Field(gt=0.5, lt=1)] = 0.999
    """Fraction of a point source's light that is followed; the rest is given back to the spaxels within."""

    @model_validator(mode="after")
    def _check_kind(self) -> "PSFSettings":
        known = _KEYS[self.kind]
        alien = [key for key in ("fwhm", "beta", "components", "file", "file_scale") if getattr(self, key) is not None]
        alien = [key for key in alien if key not in known]
        if alien:
            raise ValueError(f"a PSF of kind {self.kind} has the keys {', '.join(known)}; got {', '.join(alien)}")
        missing = [key for key in (_NEEDED[self.kind], "beta") if key in known and getattr(self, key) is None]
        if missing:
            raise ValueError(f"a PSF of kind {self.kind} needs {' and '.join(missing)}, got none")
        return self

    @model_validator(mode="after")
    def _check_table(self) -> "PSFSettings":
        if self.wavelength is not None and np.any(np.diff(self.wavelength) <= 0):
            raise ValueError(f"wavelength: expected increasing values, got {list(self.wavelength)}")
        n_table = None if self.wavelength is None else len(self.wavelength)
        for name, value in self._widths():
            if isinstance(value, tuple) and len(value) != n_table:
                raise ValueError(
                    f"{name}: expected one value, or one per wavelength ({n_table or 'psf.wavelength is not given'}), "
                    f"got {len(value)}"
                )
        if n_table and self.kind != "image" and not any(isinstance(value, tuple) for _, value in self._widths()):
            raise ValueError("wavelength: expected a width per wavelength beside it, got one for all")
        return self

    def _widths(self) -> Iterator[tuple[str, float | tuple[float, ...]]]:
        for number, component in enumerate(self.components or ()):
            yield f"components[{number}].fwhm", component.fwhm or 0.0
        for name, value in (("fwhm", self.fwhm), ("beta", self.beta)):
            if value is not None:
                yield name, value

    @property
    def width_table(self) -> Float[np.ndarray, "quantity table"]:
        """Every width (arcsec; and beta) at each wavelength of the table, or in one column where there is none."""
        n_table = 1 if self.wavelength is None else len(self.wavelength)
        return np.stack([np.broadcast_to(np.asarray(value, dtype=float), (n_table,)) for _, value in self._widths()])

    @property
    def narrowest(self) -> float:
        """The smallest FWHM (arcsec) among Gaussians and wavelengths; ValueError for an image, which has none."""
        return float((self.width_table[:1] if self.kind == "moffat" else self.width_table).min())

    def numbers(self) -> dict[str, Any]:
        """`fwhm` (arcsec; of each Gaussian), `beta` and the Gaussians' `fraction`, as far as the kind has them.

        Widths given once are repeated along a table of wavelengths.
        """
        if self.kind == "image":
            return {}
        table = self.width_table if self.wavelength is not None else self.width_table[:, 0]
        if self.components is not None:
            return {"fwhm": table, "fraction": np.array([component.fraction for component in self.components])}
        return dict(zip(("fwhm", "beta"), table, strict=False))


def merged_psf(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's PSF overridden key by key; with another `kind`, what that kind does not have is left out."""
    kind = override.get("kind", preset.get("kind", "gaussian"))
    known = ("kind", "enclosed", *_KEYS.get(str(kind), ()))
    kept = {key: value for key, value in preset.items() if kind == preset.get("kind", "gaussian") or key in known}
    return {**kept, **override}
