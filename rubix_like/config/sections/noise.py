"""Settings of the noise: a target signal to noise, or a physical exposure and the detector that it is taken with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import (
    Arcsec,
    Integer,
    InUnit,
    Kms,
    Number,
    PositiveAngstrom,
    SquareMetre,
    Wavelengths,
    Within,
    as_tuple,
    one_or_many,
    parse_number,
    parse_quantity,
)
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.resources import resource, resource_names

SKY_SUFFIXES: tuple[str, ...] = (".fits", ".fits.gz", ".ecsv")

NO_SKY: str = "none"


def find_sky(name: str) -> Path | None:
    """The file of an embedded sky or of a table by its path; None for 'none'. Raises ConfigError if there is none."""
    known = resource_names("skies")
    if name == NO_SKY:
        return None
    if name in known:
        return resource("skies", name)
    path = Path(name).expanduser()
    if name.lower().endswith(SKY_SUFFIXES):
        if path.is_file():
            return path
        raise ConfigError(f"expected one of {', '.join(known)}, {NO_SKY} or the path of a table, got no file '{name}'")
    raise ConfigError(
        f"expected one of {', '.join(known)}, {NO_SKY}, or a path ending in {', '.join(SKY_SUFFIXES)}, got '{name}'"
        f"{suggest(name, (*known, NO_SKY))}"
    )


def _texts(value: object) -> object:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, or a list of texts, got {'null' if value is None else repr(value)}")
    return value


def _check_skies(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    found = [find_sky(name) for name in as_tuple(names)]
    if None in found and len(found) > 1:
        raise ValueError(f"expected '{NO_SKY}' alone, or a list of skies without it, got {list(names)}")
    return names


_LIST = {"type": "array", "items": {"type": "string"}, "minItems": 1}

Skies = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_texts),
    AfterValidator(_check_skies),
    WithJsonSchema({"anyOf": [{"type": "string"}, _LIST]}),
]
"""One sky, by its name or path, or a list of them; the first that covers a wavelength counts there."""

Fraction = Annotated[Number, Field(ge=1e-6, le=1)]


class DetectorSettings(AbstractSettings):
    """Telescope, spectrograph and detector as an exposure (`noise.exposure`) needs them.

    `throughput` is one number, or a table with one value per `wavelength`, linear between and constant beyond.
    """

    collecting_area: Annotated[SquareMetre, Field(ge=1e-6, le=1e6)]
    """Unobscured area of the telescope's mirror in m2."""
    wavelength: Wavelengths | None = None
    """Wavelengths of the throughput's table in Angstrom of the instrument's medium; null where it is one number."""
    throughput: Annotated[tuple[Fraction, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]
    """Electrons per photon at the mirror: telescope, spectrograph and detector together, without the atmosphere."""
    read_noise: Annotated[Number, Field(ge=0, le=1e6)]
    """Standard deviation in electrons per pixel and exposure."""
    dark_current: Annotated[Number, Field(ge=0, le=1e12)]
    """Electrons per pixel and hour."""
    pixels_per_voxel: Annotated[Number, Field(ge=1e-6, le=1e6)] = 1.0
    """Pixels of the detector whose electrons make up one voxel of the cube."""

    @model_validator(mode="after")
    def _check_table(self) -> "DetectorSettings":
        expected = 1 if self.wavelength is None else len(self.wavelength)
        if len(self.throughput) != expected:
            raise ValueError(
                f"throughput: expected {expected} (one per wavelength; one number where wavelength is null), "
                f"got {len(self.throughput)}"
            )
        return self


def merged_detector(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's detector section with some keys overridden; a new throughput does without the preset's wavelengths."""
    table = {"wavelength": None} if "throughput" in override else {}
    return {**preset, **table, **override}


class ExposureSettings(AbstractSettings):
    """Exposures of one field under one sky; the instrument's `detector` section says what becomes of the light."""

    time: Annotated[float | tuple[float, ...], InUnit("s", many=True), Within(1e-3, 1e9), Parameter()]
    """Time of one exposure; of fibres also a list with one for each of their dithers."""
    count: Annotated[Integer, Field(ge=1, le=10**6)] = 1
    """How many exposures of that time are added up."""
    sky: Skies = "dark"
    """dark, bright, infrared, none (no sky and no atmosphere), or the path of a table (.fits or .ecsv); of a list, e.g.
    [dark, infrared], the first one that covers a wavelength counts there."""


class NoiseSettings(AbstractSettings):
    """Noise and its variance: exactly one of `signal_to_noise` and `exposure`."""

    signal_to_noise: Annotated[Annotated[Number, Field(ge=1e-4, le=1e6)] | None, Parameter()] = None
    """Target: flux per voxel / sigma per voxel where `wavelength` and `radius` say; the same sigma in all voxels. From
    1e-4 to 1e6: variances are kept in 32 bits."""
    wavelength: PositiveAngstrom | None = None
    """Of the target: centre of the window in Angstrom of the cube's medium; null: median over all wavelengths."""
    width: PositiveAngstrom = 100.0
    """Of the target: full width of the window about `wavelength` in Angstrom."""
    radius: Annotated[Arcsec, Field(ge=0)] | None = None
    """Of the target: distance from the galaxy's centre (`observation.offset`) in arcsec; null: the brightest spaxel."""
    exposure: ExposureSettings | None = None
    """Instead of a target: photons, sky, dark current and read noise of an exposure."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """The same seed gives the same noise on any number of devices."""
    keep_truth: StrictBool = False
    """Whether the noiseless flux is kept, as `Cube.truth` and in a second file."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> "NoiseSettings":
        given = [name for name in ("signal_to_noise", "exposure") if getattr(self, name) is not None]
        if len(given) != 1:
            remedy = "set the other to null" if given else "give e.g. signal_to_noise: 50, or exposure: {time: 1800 s}"
            raise ValueError(
                f"expected exactly one of signal_to_noise and exposure, got {' and '.join(given) or 'none'}; {remedy}"
            )
        if self.exposure is not None:
            meaningless = [name for name in ("wavelength", "radius") if getattr(self, name) is not None]
            if meaningless:
                raise ValueError(
                    f"{meaningless[0]}: expected null with an exposure, which needs no target; it goes with "
                    f"signal_to_noise"
                )
        return self


SYSTEMATICS_BEFORE_NOISE: tuple[str, ...] = ("lsf_variation", "wavelength_solution")
"""Sections, each with a stage of its name, that change the light before it is detected, in their order."""

SYSTEMATICS_AFTER_NOISE: tuple[str, ...] = (
    "saturation",
    "cosmic_rays",
    "flat_field",
    "sky_residual",
    "telluric",
    "flux_calibration",
)
"""Those that come after the noise, in their order; the stage `missing` follows."""

MISSING: str = "missing"
"""Stage of `systematics.missing` and `systematics.gaps`."""


def parse_fraction(value: object) -> float:
    """A fraction of 1 from a number, or from text such as "2 %"; raises ValueError for anything else."""
    try:
        return parse_number(value)
    except ValueError:
        try:
            return parse_quantity(value, "")
        except ValueError as error:
            raise ValueError(f"expected a fraction (0.02) or a percentage ('2 %'), got {value!r}") from error


_FRACTION = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "description": "e.g. '2 %'"}]})

Part = Annotated[float, BeforeValidator(parse_fraction), _FRACTION]
Pixel = Annotated[float, InUnit("pixel")]
Rms = Annotated[Part, Field(ge=0, le=0.5)]
Span = tuple[PositiveAngstrom, PositiveAngstrom]


class AbstractErrorSettings(AbstractSettings):
    """A systematic error that does nothing where all of the keys `needed` are 0 or null, which is refused."""

    needed: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _check_needed(self) -> "AbstractErrorSettings":
        if not any(getattr(self, name) for name in self.needed):
            raise ValueError(f"expected {' or '.join(self.needed)} above 0, got none; set the section to null")
        return self


class SkySubtractionSettings(AbstractErrorSettings):
    """Residuals of the sky subtraction, anew in every spectrum and exposure; each key is the rms of a normal error."""

    needed: ClassVar = ("shift", "lsf", "lines", "continuum")

    shift: Annotated[Pixel, Field(ge=0, le=1)] = 0.0
    """Wavelengths of the subtracted sky against those of the spectrum."""
    lsf: Rms = 0.0
    """Its line width (FWHM), relative."""
    lines: Rms = 0.0
    """Its emission lines, relative: the sky less a running median of 200 Angstrom."""
    continuum: Rms = 0.0
    """Its continuum, relative: that median."""
    sky: Skies | None = None
    """dark, bright, infrared, the path of a table, or a list of these, as `noise.exposure.sky`; null: that one, else
    dark."""


class FlatFieldSettings(AbstractSettings):
    """Response of each spaxel or fibre, wrong by a smooth function of wavelength; the same in all exposures."""

    rms: Annotated[Rms, Field(gt=0)]
    correlation: PositiveAngstrom | None = None
    """Length L of the correlation exp(-d^2 / (2 L^2)) along wavelength; null: constant over wavelength."""


class FluxCalibrationSettings(AbstractErrorSettings):
    """Flux calibration of each exposure, wrong by a smooth function of wavelength that all its spectra share."""

    needed: ClassVar = ("rms", "absolute")

    rms: Rms = 0.0
    """Of the error that changes with wavelength, in one exposure."""
    correlation: PositiveAngstrom = 1000.0
    """Length L of its correlation exp(-d^2 / (2 L^2)) along wavelength."""
    absolute: Rms = 0.0
    """Rms of the error that all wavelengths share, in one exposure."""


class TelluricSettings(AbstractErrorSettings):
    """Absorption by O2 and H2O of the air that its correction leaves: flux x exp(-(left + residual z) optical depth).

    z is a standard normal number of each exposure.
    """

    needed: ClassVar = ("left", "residual")

    left: Annotated[Part, Field(ge=-1, le=1)] = 0.0
    """Part of the optical depth that is left on average; 1: nothing is corrected."""
    residual: Annotated[Part, Field(ge=0, le=1)] = 0.0
    """Rms of the part that is left, in one exposure."""
    sky: Skies | None = None
    """As `sky_residual.sky`; the table needs a transmission."""


class CosmicRaysSettings(AbstractSettings):
    """Hits of cosmic rays that are left in the spectra; needs `noise`."""

    rate: Annotated[Part, Field(gt=0, le=0.1)]
    """Part of the voxels (of fibres: of the bins of their spectra) in which a hit begins."""
    strength: Annotated[Number, Field(gt=0)] = 10.0
    """Mean of a hit in a bin, in standard deviations of the bin's noise; strengths are distributed exponentially."""
    length: Annotated[Integer, Field(ge=1, le=20)] = 1
    """Neighbouring bins of a spectrum that one hit covers."""
    flagged: Annotated[Part, Field(ge=0, le=1)] = 0.0
    """Part of the hits that is found: their bins are flagged (DQ 32)."""


class WavelengthSolutionSettings(AbstractSettings):
    """Wavelengths of each spectrum (of fibres: in each exposure), wrong by a smooth function; rms or velocity."""

    rms: Annotated[Pixel, Field(gt=0, le=0.3)] | None = None
    """In bins of the cube."""
    velocity: Annotated[Kms, Field(gt=0)] | None = None
    """The same as a velocity; at most 0.3 bins."""
    correlation: PositiveAngstrom | None = None
    """Length L of the correlation exp(-d^2 / (2 L^2)) along wavelength; null: all wavelengths of a spectrum are
    shifted alike."""

    @model_validator(mode="after")
    def _check(self) -> "WavelengthSolutionSettings":
        if (self.rms is None) == (self.velocity is None):
            raise ValueError(
                f"expected exactly one of rms (0.05 pixel) and velocity (5 km/s), got rms {self.rms} and velocity "
                f"{self.velocity}"
            )
        return self


class LSFVariationSettings(AbstractSettings):
    """Width of the line spread (FWHM) of each spaxel or fibre, which differs from the instrument's."""

    rms: Annotated[Part, Field(gt=0, le=0.1)]
    """Relative."""
    correlation: PositiveAngstrom | None = None
    """Length L of the correlation exp(-d^2 / (2 L^2)) along wavelength; null: constant over wavelength."""


class SaturationSettings(AbstractSettings):
    """The most that a pixel of the detector holds; needs `noise.exposure`."""

    level: Annotated[Number, Field(gt=0)]
    """Electrons per pixel and exposure, of source, sky and dark current; what is beyond is lost and flagged (DQ 16)."""


class MissingSettings(AbstractErrorSettings):
    """A region without data (DQ 64): all voxels that meet every one of the keys given."""

    needed: ClassVar = ("x", "y", "fibres", "exposures", "wavelength")

    x: tuple[Annotated[Integer, Field(ge=0)], Annotated[Integer, Field(ge=0)]] | None = None
    """First and last column of spaxels, from 0."""
    y: tuple[Annotated[Integer, Field(ge=0)], Annotated[Integer, Field(ge=0)]] | None = None
    """First and last row."""
    fibres: Annotated[tuple[Annotated[Integer, Field(ge=1)], ...], Field(min_length=1)] | None = None
    """Numbers of fibres, from 1; instead of x and y, for an instrument with fibres."""
    exposures: Annotated[tuple[Annotated[Integer, Field(ge=1)], ...], Field(min_length=1)] | None = None
    """Of fibres: numbers of exposures, from 1."""
    wavelength: Span | None = None
    """Lowest and highest, in Angstrom of the cube's medium: all bins that reach into it."""

    @model_validator(mode="after")
    def _check_spans(self) -> "MissingSettings":
        for name in ("x", "y", "wavelength"):
            _check_ascending(name, getattr(self, name))
        return self


def _check_ascending(name: str, span: tuple[Any, Any] | None) -> None:
    if span is not None and not span[0] <= span[1]:
        raise ValueError(f"{name}: expected the lower end first, got {list(span)}")


def _no_single_gap(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2 and not any(isinstance(gap, list | tuple) for gap in value):
        raise ValueError(f"expected a list of gaps, got one; write [[{value[0]}, {value[1]}]]")
    return value


class SystematicsSettings(AbstractSettings):
    """Systematic errors, each null by default; numbers are drawn from the key of the run's noise and `seed`."""

    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """Another seed gives other errors with the same noise."""
    keep_contributions: StrictBool = False
    """Whether the truth and what each error adds to it are kept: as `Cube.truth` and `Cube.contributions`, and in a
    second FITS file."""
    sky_residual: SkySubtractionSettings | None = None
    flat_field: FlatFieldSettings | None = None
    flux_calibration: FluxCalibrationSettings | None = None
    telluric: TelluricSettings | None = None
    cosmic_rays: CosmicRaysSettings | None = None
    wavelength_solution: WavelengthSolutionSettings | None = None
    lsf_variation: LSFVariationSettings | None = None
    saturation: SaturationSettings | None = None
    missing: tuple[MissingSettings, ...] = ()
    """Regions without data."""
    gaps: Annotated[tuple[Span, ...], BeforeValidator(_no_single_gap)] = ()
    """Gaps of the detector: (lowest, highest) in Angstrom of the cube's medium; flagged (DQ 128)."""

    @model_validator(mode="after")
    def _check_gaps(self) -> "SystematicsSettings":
        for span in self.gaps:
            _check_ascending("gaps", span)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The sections that are given, in the order in which they act."""
        before, after = self.stages
        regions = tuple(name for name in ("missing", "gaps") if getattr(self, name))
        return (*before, *(name for name in after if name != MISSING), *regions)

    @property
    def n_kept(self) -> int:
        """How many contributions are kept."""
        before, after = self.stages
        return len({*before, *after} - {MISSING}) if self.keep_contributions else 0

    @property
    def stages(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the stages that the sections ask for: those before the noise, and those after it."""
        before, after = (
            tuple(name for name in names if getattr(self, name) is not None)
            for names in (SYSTEMATICS_BEFORE_NOISE, SYSTEMATICS_AFTER_NOISE)
        )
        return before, (*after, MISSING) if self.missing or self.gaps else after
