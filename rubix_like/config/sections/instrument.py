"""Settings of an instrument: a preset (one YAML file) with any of its values overridden."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    field_serializer,
    field_validator,
    model_validator,
)

from rubix_like.config.fibre_settings import Fibres
from rubix_like.config.presets import merge_layers, preset_layers
from rubix_like.config.quantities import WITH_UNITS, Angstrom, Arcsec, Number, as_tuple, one_or_many, parse_quantity
from rubix_like.config.sections.aperture import ApertureSettings
from rubix_like.config.sections.detector import DetectorSettings, merged_detector
from rubix_like.config.sections.psf import PSFSettings, merged_psf
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import SUFFIXES
from rubix_like.errors import ConfigError

FIT_TOLERANCE: float = 1e-3
"""Fraction of a step (of a spaxel) by which a range may fall short of its last bin (spaxel) and still hold it."""

STEP_UNITS: dict[str, str] = {"linear": "Angstrom", "log": "dex"}


def _whole(count: float) -> int:
    """How many whole steps `count` holds, forgiving a shortfall of `FIT_TOLERANCE`."""
    return math.floor(count + FIT_TOLERANCE)


def _require_only(*names: str) -> ConfigDict:
    """JSON schema in which only `names` are required: a preset gives what the section leaves out."""
    return ConfigDict(json_schema_extra=lambda schema: schema.update(required=list(names)))


def _both_sides(value: object) -> object:
    return value if isinstance(value, list | tuple) else (parse_quantity(value, "arcsec"),) * 2


PositiveAngstrom = Annotated[Angstrom, Field(gt=0)]
Sides = Annotated[tuple[Arcsec, Arcsec], BeforeValidator(_both_sides), one_or_many({"minItems": 2, "maxItems": 2})]
Widths = Annotated[tuple[PositiveAngstrom, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]
ResolvingPowers = Annotated[
    tuple[Annotated[Number, Field(gt=0)], ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})
]


class WavelengthSettings(AbstractSettings):
    """The detector's spectral bins, by the centres of the first and the last."""

    model_config = _require_only()

    sampling: Literal["linear", "log"] = "linear"
    """Bins of equal width in wavelength, or in its logarithm."""
    medium: Literal["air", "vacuum"]
    """Medium of start, stop, step, of the LSF and of the cube's own axis."""
    start: PositiveAngstrom
    """Centre of the first bin in Angstrom."""
    stop: PositiveAngstrom
    """Centre of the last bin in Angstrom."""
    step: Annotated[float, Field(gt=0), WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})]
    """Bin width: Angstrom where sampling is linear, dex where it is log."""

    @field_validator("step", mode="before")
    @classmethod
    def _parse_step(cls, value: object, info: Any) -> object:
        unit = STEP_UNITS.get(info.data.get("sampling", ""))
        return parse_quantity(value, unit) if unit else 1.0  # a wrong sampling is an error of its own

    @field_serializer("step")
    def _format_step(self, value: float, info: Any) -> float | str:
        return f"{value!r} {STEP_UNITS[self.sampling]}" if (info.context or {}).get(WITH_UNITS) else value

    @model_validator(mode="after")
    def _check_order(self) -> "WavelengthSettings":
        if self.stop < self.start:
            raise ValueError(f"expected start <= stop, got {self.start} and {self.stop} Angstrom")
        return self

    @property
    def n_wave(self) -> int:
        """Number of bins: those whose centre is not beyond `stop` (by more than `FIT_TOLERANCE` of a step)."""
        span = math.log10(self.stop / self.start) if self.sampling == "log" else self.stop - self.start
        return _whole(span / self.step) + 1


class LSFSettings(AbstractSettings):
    """Width of the line spread function (Gaussian), stated in one of five ways.

    `polynomial` (FWHM in Angstrom, coefficients of ascending powers of the wavelength in Angstrom), one `fwhm`, one
    `resolving_power` (wavelength / FWHM), or a table of `wavelength` with `fwhm` or `resolving_power`, linear between
    and constant beyond. Wavelengths are observed ones, in the instrument's medium.
    """

    polynomial: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    wavelength: Annotated[tuple[PositiveAngstrom, ...], Field(min_length=2)] | None = None
    fwhm: Widths | None = None
    resolving_power: ResolvingPowers | None = None
    includes_pixel: StrictBool = False
    """Whether the width was measured on binned lines, so that it holds the bin's own width too."""

    @model_validator(mode="after")
    def _check_one_way(self) -> "LSFSettings":
        given = {name for name in ("polynomial", "wavelength", "fwhm", "resolving_power") if getattr(self, name)}
        if len(given - {"wavelength"}) != 1 or given == {"polynomial", "wavelength"}:
            raise ValueError(
                "expected exactly one of: polynomial; fwhm; resolving_power; wavelength and fwhm; wavelength and "
                "resolving_power; got "
                f"{' and '.join(sorted(given)) or 'none'} (an lsf section replaces the preset's whole one)"
            )
        values = self.fwhm or self.resolving_power or ()
        if len(values) != len(self.wavelength or (None,)) and not self.polynomial:
            raise ValueError(
                f"expected one value per wavelength, got {len(values)} for {len(self.wavelength or (None,))}"
            )
        if self.wavelength and np.any(np.diff(self.wavelength) <= 0):
            raise ValueError(f"expected increasing wavelengths, got {list(self.wavelength)}")
        return self


class InstrumentSettings(AbstractSettings):
    """An integral-field spectrograph: `name` is a preset (or the path of a .yaml file), other keys override it.

    `wavelength`, `psf` and `detector` are merged with the preset's key by key, every other key replaces the preset's
    value; `psf: null` and `lsf: null` switch them off. A preset may be `based_on` another, and so may a section with a
    name of its own. A section that states every key, as a recorded run does, needs no preset file.
    """

    model_config = _require_only("name")

    name: str
    based_on: str | None = None
    """The preset (or the path of a .yaml file) that holds what is not stated here; null once it has been read."""
    telescope: str = ""
    description: str = ""
    source: str = ""
    """Where the values were published."""
    pixel_scale: Annotated[Arcsec, Field(gt=0)]
    """Side of a spaxel in arcsec."""
    fov: Sides
    """Field of view in arcsec: one side, or [x, y]; the whole spaxels that fit in it are used."""
    aperture: ApertureSettings | None = None
    wavelength: WavelengthSettings
    psf: PSFSettings | None = None
    lsf: LSFSettings | None = None
    detector: DetectorSettings | None = None
    """What an exposure (`noise.exposure`) needs to know; null where that is not published."""
    fibres: Annotated[Fibres, Field(exclude_if=lambda value: value is None)] = None
    """A bundle of fibres that collects the light instead of the spaxels; null: none."""

    @model_validator(mode="before")
    @classmethod
    def _merge_preset(cls, data: object) -> object:
        return with_preset(data) if isinstance(data, Mapping) else data

    @field_validator("fov")
    @classmethod
    def _check_spaxels(cls, value: tuple[float, float], info: Any) -> tuple[float, float]:
        pixel_scale = info.data.get("pixel_scale", 0.0)
        if any(side <= 0 or (pixel_scale and _whole(side / pixel_scale) < 1) for side in value):
            raise ValueError(
                f"expected a field of at least one spaxel of {pixel_scale} arcsec, got {value[0]} x {value[1]} arcsec"
            )
        return value

    @model_validator(mode="after")
    def _check_lsf(self) -> "InstrumentSettings":
        if self.lsf is not None and self.lsf.polynomial is not None:
            sample = np.linspace(self.wavelength.start, self.wavelength.stop, 1001)
            narrowest = float(np.min(np.polynomial.polynomial.polyval(sample, np.array(self.lsf.polynomial))))
            if narrowest <= 0:
                raise ValueError(
                    f"lsf.polynomial: expected a positive FWHM over the detector, got {narrowest:g} Angstrom"
                )
        return self

    @model_validator(mode="after")
    def _check_fibres(self) -> "InstrumentSettings":
        if self.fibres is not None and (self.psf is None or not self.psf.is_profile):
            came = "null" if self.psf is None else f"one of kind {self.psf.kind}"
            raise ValueError(
                f"psf: expected the seeing in front of the fibres (gaussian, moffat or gaussians), got {came}; give "
                f"e.g. psf: {{kind: moffat, fwhm: 1.5 arcsec, beta: 3}}"
            )
        if self.fibres is not None and self.fibres.spectra == "sami" and self.wavelength.sampling != "linear":
            raise ValueError(
                "fibres.spectra: expected 'manga' or 'none' for bins that are even in the logarithm of the wavelength, "
                "got 'sami', whose files have linear ones; change it, or wavelength.sampling"
            )
        return self

    @property
    def element_area(self) -> float:
        """arcsec^2 of the sky whose light one spectrum of the detector holds: of a spaxel, or of a fibre."""
        return self.pixel_scale**2 if self.fibres is None else math.pi * self.fibres.diameter**2 / 4

    @property
    def is_refracted(self) -> bool:
        """Whether light of other wavelengths lands beside the fibres, so that all bins are seen in another way."""
        return self.fibres is not None and self.fibres.refraction is not None

    @property
    def label(self) -> str:
        """The name for headers: that of the preset, or of the file without its folder and suffix."""
        path = Path(self.name)
        return path.stem if path.suffix in SUFFIXES else self.name

    @property
    def n_spaxel_xy(self) -> tuple[int, int]:
        """(n_x, n_y): the whole spaxels that fit in the field."""
        return _whole(self.fov[0] / self.pixel_scale), _whole(self.fov[1] / self.pixel_scale)


_ALWAYS_STATED: frozenset[str] = frozenset(InstrumentSettings.model_fields) - {"fibres"}
"""Keys that recorded runs state, also those without fibres."""


def is_complete(section: Mapping[str, Any]) -> bool:
    """Whether an instrument section states every key, so that its preset no longer matters."""
    return set(section) >= _ALWAYS_STATED


def with_preset(section: Mapping[str, Any]) -> dict[str, Any]:
    """The preset that `section` names (`based_on`, else `name`) overridden by `section`.

    Raises ConfigError if there is no such preset, or where an override leaves `wavelength.step` without its unit.
    """
    layers = preset_layers(section, _ALWAYS_STATED)
    return merge_layers(layers, {"wavelength": merged_wavelength, "psf": merged_psf, "detector": merged_detector})


def merged_wavelength(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """The preset's bins overridden key by key; refuses to read the preset's step in another unit."""
    sampling = override.get("sampling")
    if "step" not in override and sampling in STEP_UNITS and sampling != preset.get("sampling", "linear"):
        raise ConfigError(
            f"wavelength.sampling: {sampling} changes the unit of wavelength.step to {STEP_UNITS[sampling]}; "
            f"expected wavelength.step beside it, got none"
        )
    return {**preset, **override}
