"""Settings of an instrument: a preset (one YAML file) with any of its values overridden."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rubix_like.config.fibre_settings import Fibres
from rubix_like.config.messages import explain_value
from rubix_like.config.quantities import (
    Arcsec,
    Number,
    PositiveAngstrom,
    Sizes,
    Wavelengths,
    as_tuple,
    one_or_many,
    parse_quantity,
)
from rubix_like.config.sections.noise import DetectorSettings, merged_detector
from rubix_like.config.sections.psf import PSFSettings, merged_psf
from rubix_like.config.sections.wavelength import (
    WavelengthSettings,
    edges_per_fwhm,
    joined_bins,
    merged_wavelength,
    whole_steps,
)
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import SUFFIXES, find_file, read_section
from rubix_like.errors import ConfigError
from rubix_like.runtime.resources import resource_names

KIND = "instruments"

Merge = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
"""A section below and the one above it -> the section of both."""


def preset_layers(section: Mapping[str, Any], complete: frozenset[str]) -> tuple[Mapping[str, Any], ...]:
    """The files below `section`, the deepest first, then `section` itself.

    The first file is the one called `section["based_on"]` or, without it, `section["name"]`; each may be `based_on`
    another (a path is taken from the folder of the file that states it). What states every key of `complete` needs
    nothing below. Raises ConfigError for a name that is not known, for two names of one thing and for a circle.
    """
    layers: list[Mapping[str, Any]] = [section]
    passed: list[Path] = []
    reference, folder = None if complete <= set(section) else _first_reference(section), None
    while reference is not None and not complete <= set(layers[-1]):
        path = _find(reference, folder)
        if path in passed:
            steps = (*passed[passed.index(path) :], path)
            names = [step.stem if step.stem in resource_names(KIND) else step.name for step in steps]
            raise ConfigError(f"{path}: based_on goes round in a circle: {' -> '.join(map(repr, names))}")
        passed.append(path)
        layers.append(read_section(path))
        reference, folder = layers[-1].get("based_on"), path.parent
    return tuple(reversed(layers))


def merge_layers(layers: Sequence[Mapping[str, Any]], merges: Mapping[str, Merge]) -> dict[str, Any]:
    """Each layer put on the one before: sections by their function in `merges`, other values replaced whole."""
    result: dict[str, Any] = {}
    for layer in layers:
        both = {
            key: merge(result[key], layer[key])
            for key, merge in merges.items()
            if isinstance(result.get(key), Mapping) and isinstance(layer.get(key), Mapping)
        }
        result |= {**layer, **both}
    return {**result, "based_on": None}


def _first_reference(section: Mapping[str, Any]) -> object:
    name, base = section.get("name"), section.get("based_on")
    names = resource_names(KIND)
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the key 'name': one of {', '.join(names)}, or the path of a .yaml file; got {name!r}"
        )
    if base is None:
        return name
    if base != name and (name in names or Path(name).suffix in SUFFIXES):
        raise ConfigError(
            f"based_on: expected it beside a name of your own, but '{name}' stands for a preset or file itself; "
            f"got '{base}' (give another name, or no based_on)"
        )
    return base


def _find(reference: object, folder: Path | None) -> Path:
    """The file of a preset's name or path, a path being relative to `folder` (None: the working directory)."""
    if not isinstance(reference, str):
        raise ConfigError(f"based_on: expected the name of a preset or the path of a .yaml file, got {reference!r}")
    path = Path(reference).expanduser()
    if folder is not None and path.suffix in SUFFIXES:
        reference = str(folder / path)
    return find_file(KIND, reference).resolve()


_MOST_SIZES: dict[str, int] = {"square": 1, "rectangle": 2, "circle": 1, "hexagon": 2, "mask": 0}


class ApertureSettings(AbstractSettings):
    """Part of the field that sees the sky; spaxels whose centre lies outside are masked, after the PSF."""

    instead: ClassVar[Mapping[str, str]] = {
        "diameter": "give size, the diameter of a circle",
        "radius": "give size, the diameter of a circle",
        "width": "give size, the side of a square or [x, y]",
    }

    shape: Literal["square", "rectangle", "circle", "hexagon", "mask"]
    size: Sizes | None = None
    """Arcsec: the square's side; the rectangle's side or [x, y]; the circle's diameter; the hexagon from corner to
    corner (East-West) or [corner to corner, flat to flat]; null: as large as the field."""
    file: Path | None = None
    """Of shape mask: a FITS image or .npy file (y, x) of the field's spaxels, in the cube's order; not 0 is inside."""

    @model_validator(mode="after")
    def _check_shape(self) -> "ApertureSettings":
        if (self.file is not None) != (self.shape == "mask"):
            came = "none" if self.file is None else f"'{self.file}'"
            wanted = "a file (FITS or .npy) with shape mask" if self.shape == "mask" else "a file only with shape mask"
            raise ValueError(f"expected {wanted}, got {came}")
        given, most = len(self.size or ()), _MOST_SIZES[self.shape]
        if given > most:
            allowed = "no size" if most == 0 else "one size" if most == 1 else "one or two sizes"
            raise ValueError(f"expected {allowed} of a {self.shape}, got {given}")
        return self


def _require_only(*names: str) -> ConfigDict:
    """JSON schema in which only `names` are required: a preset gives what the section leaves out."""
    return ConfigDict(json_schema_extra=lambda schema: schema.update(required=list(names)))


_MOST_ON_A_SIDE = 100_000
_ARM = re.compile(r"[A-Za-z0-9_]+")
_ARMS_SCHEMA = WithJsonSchema(
    {"anyOf": [{"type": "object", "additionalProperties": {"type": ["object", "string"]}}, {"type": "null"}]}
)

Sides = Annotated[
    tuple[Arcsec, Arcsec],
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (parse_quantity(value, "arcsec"),) * 2),
    one_or_many({"minItems": 2, "maxItems": 2}),
]
Widths = Annotated[tuple[PositiveAngstrom, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]
ResolvingPowers = Annotated[
    tuple[Annotated[Number, Field(gt=0)], ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})
]


class LSFSettings(AbstractSettings):
    """Width of the line spread function (Gaussian), stated in one of five ways.

    `polynomial` (FWHM in Angstrom, coefficients of ascending powers of the wavelength in Angstrom), one `fwhm`, one
    `resolving_power` (wavelength / FWHM), or a table of `wavelength` with `fwhm` or `resolving_power`, linear between
    and constant beyond. Wavelengths are observed ones, in the instrument's medium.
    """

    instead: ClassVar[Mapping[str, str]] = {
        "sigma": "give fwhm in Angstrom, 2.355 times the standard deviation, or resolving_power, which is "
        "299792 / (2.355 x the standard deviation in km/s)",
    }

    polynomial: Annotated[tuple[Number, ...], Field(min_length=1)] | None = None
    wavelength: Wavelengths | None = None
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
        return self


class ArmSettings(AbstractSettings):
    """An arm of a spectrograph: what differs from the other arms, which look at the same field at the same time."""

    model_config = _require_only()

    wavelength: WavelengthSettings
    lsf: LSFSettings | None = None
    detector: DetectorSettings | None = None


def instrument_fwhm(lsf: LSFSettings, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """FWHM of the instrument's LSF at observed wavelengths (both in Angstrom of the instrument's medium)."""
    if lsf.polynomial is not None:
        return np.polynomial.polynomial.polyval(wavelength, np.asarray(lsf.polynomial))
    values = lsf.fwhm or lsf.resolving_power or ()
    known = (
        np.full_like(wavelength, values) if lsf.wavelength is None else np.interp(wavelength, lsf.wavelength, values)
    )
    return known if lsf.resolving_power is None else wavelength / known


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
    pixel_scale: Annotated[Arcsec, Field(ge=1e-6, le=1e9)]
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
    arms: Annotated[dict[str, ArmSettings] | None, Field(exclude_if=lambda value: value is None), _ARMS_SCHEMA] = None
    """Arms by name, each the name of a preset whose wavelength, lsf and detector it has, or a section of these keys
    (and name), which replace the instrument's own; null: the instrument is one."""
    join: Annotated[StrictBool, Field(exclude_if=lambda value: not value)] = False
    """Whether the arms' spectra are joined into one cube, on the grid that all of their bins lie on."""
    arm: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """The only arm that is observed; null: all of them."""

    @model_validator(mode="before")
    @classmethod
    def _merge_preset(cls, data: object) -> object:
        return with_edges(with_arms(with_preset(data), data)) if isinstance(data, Mapping) else data

    @field_validator("fov")
    @classmethod
    def _check_spaxels(cls, value: tuple[float, float], info: Any) -> tuple[float, float]:
        pixel_scale = info.data.get("pixel_scale", 0.0)
        if pixel_scale and max(value) / pixel_scale > _MOST_ON_A_SIDE:
            raise ValueError(
                f"expected a field of at most {_MOST_ON_A_SIDE} spaxels of {pixel_scale} arcsec on a side, got "
                f"{value[0]} x {value[1]} arcsec"
            )
        if any(side <= 0 or (pixel_scale and whole_steps(side / pixel_scale) < 1) for side in value):
            raise ValueError(
                f"expected a field of at least one spaxel of {pixel_scale} arcsec, got {value[0]} x {value[1]} arcsec"
            )
        return value

    @model_validator(mode="after")
    def _check_lsf(self) -> "InstrumentSettings":
        if self.arms is None and self.lsf is not None and self.lsf.polynomial is not None:
            sample = np.linspace(self.wavelength.start, self.wavelength.stop, 1001)
            narrowest = float(np.min(np.polynomial.polynomial.polyval(sample, np.array(self.lsf.polynomial))))
            if narrowest <= 0:
                raise ValueError(
                    f"lsf.polynomial: expected a positive FWHM over the detector, got {narrowest:g} Angstrom"
                )
        return self

    @model_validator(mode="after")
    def _check_fibres(self) -> "InstrumentSettings":
        if self.fibres is not None and self.psf is None:
            raise ValueError(
                "psf: expected the seeing in front of the fibres, got null; give e.g. psf: {kind: moffat, fwhm: 1.5 "
                "arcsec, beta: 3}"
            )
        seeing = None if self.fibres is None else self.fibres.seeing
        if seeing is not None and self.psf is not None and self.psf.kind == "adaptive" and set(seeing) != {1.0}:
            raise ValueError(
                f"fibres.seeing: expected null (or 1) with a PSF of kind adaptive, whose core is not as wide as the "
                f"seeing, got {list(seeing)}; leave it out, or give psf of another kind"
            )
        if self.fibres is not None and self.fibres.spectra == "manga" and self.wavelength.sampling == "table":
            raise ValueError(
                "fibres.spectra: expected 'none' for the bins of a table, got 'manga', whose files have even ones; "
                "change it, or wavelength.sampling"
            )
        if self.fibres is not None and self.fibres.spectra == "sami" and self.wavelength.sampling != "linear":
            raise ValueError(
                "fibres.spectra: expected 'manga' or 'none' for bins that are even in the logarithm of the wavelength, "
                "got 'sami', whose files have linear ones; change it, or wavelength.sampling"
            )
        return self

    @model_validator(mode="after")
    def _check_arms(self) -> "InstrumentSettings":
        if self.arms is None:
            if self.join:
                raise ValueError("join: expected arms beside it, got none; give arms, or join: false")
            return self
        if len(self.arms) < 2 or not all(_ARM.fullmatch(name) for name in self.arms):
            raise ValueError(
                f"arms: expected two or more, called by letters, digits and _, got {', '.join(self.arms) or 'none'}"
            )
        first = next(iter(self.arms.values()))
        if self.join:
            joined = joined_bins({name: arm.wavelength for name, arm in self.arms.items()})
            if joined != self.wavelength:
                raise ValueError("wavelength: expected that of the arms beside join: true, got another; change arms")
        elif (first.wavelength, first.lsf, first.detector) != (self.wavelength, self.lsf, self.detector):
            raise ValueError(
                f"wavelength, lsf, detector: expected those of the first arm ('{next(iter(self.arms))}'), got others; "
                f"change arms.NAME.wavelength and so on"
            )
        for name, arm in self.arms.items():
            try:
                InstrumentSettings.model_validate({**dict(self), **dict(arm), "arms": None, "join": False})
            except ValidationError as error:
                raise ValueError(f"arm '{name}': {explain_value(error)}") from error
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
        """The name for headers: that of the preset, or of the file without folder and suffix, and of the only arm."""
        path = Path(self.name)
        name = path.stem if path.suffix in SUFFIXES else self.name
        return name if self.arm is None else f"{name}_{self.arm}"

    @property
    def n_spaxel_xy(self) -> tuple[int, int]:
        """(n_x, n_y): the whole spaxels that fit in the field."""
        return whole_steps(self.fov[0] / self.pixel_scale), whole_steps(self.fov[1] / self.pixel_scale)


_ALWAYS_STATED: frozenset[str] = frozenset(InstrumentSettings.model_fields) - {"fibres", "arms", "join", "arm"}
"""Keys that recorded runs state, also those without fibres or arms."""


def is_complete(section: Mapping[str, Any]) -> bool:
    """Whether an instrument section states every key that a recorded run always states (`_ALWAYS_STATED`), so that its
    preset no longer matters."""
    return set(section) >= _ALWAYS_STATED


def with_preset(section: Mapping[str, Any]) -> dict[str, Any]:
    """The preset that `section` names (`based_on`, else `name`) overridden by `section`.

    Raises ConfigError if there is no such preset, or where an override leaves `wavelength.step` without its unit.
    """
    return merge_layers(
        preset_layers(section, _ALWAYS_STATED), {**_ARM_MERGES, "psf": merged_psf, "arms": _merged_arms}
    )


def over_recorded(section: Mapping[str, Any], key: str, value: object) -> object:
    """The value of a key of a recorded instrument, on top of what is recorded as it would be on top of a preset."""
    recorded = section.get(key)
    if isinstance(recorded, Mapping):
        recorded = {name: setting for name, setting in recorded.items() if setting is not None}
    return merge_layers([{key: recorded}, {key: value}], {**_ARM_MERGES, "psf": merged_psf})[key]


_ARM_MERGES = {"wavelength": merged_wavelength, "detector": merged_detector}
"""What merges the keys of an arm that are merged key by key."""


def _merged_arms(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**preset, **override}
    for name, arm in override.items():
        below = {"name": preset[name]} if isinstance(preset.get(name), str) else preset.get(name)
        if isinstance(below, Mapping) and isinstance(arm, Mapping) and "name" not in arm:
            merged[name] = merge_layers([below, arm], _ARM_MERGES)
            del merged[name]["based_on"]
    return merged


def with_arms(section: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A whole section with whole arms, or with the only one that `arm` names in the place of all.

    `given`: the section before its preset was merged in; what it says of bins and line spread is that of the only arm.
    Raises ConfigError for an arm that there is not, and for bins or a line spread beside all of a preset's arms. What
    is wrong within arms is left to their checks.
    """
    arms, chosen = section.get("arms"), section.get("arm")
    if not isinstance(arms, Mapping):
        if chosen is not None and not is_complete(given):
            raise ConfigError(f"arm: expected null for an instrument without arms, got '{chosen}'")
        return dict(section)
    stray = [] if is_complete(given) else [key for key in ArmSettings.model_fields if key in given]
    if stray and chosen is None and "arms" not in given:
        name = next(iter(arms), "NAME")
        raise ConfigError(
            f"{stray[0]}: expected it in one of the arms, e.g. arms.{name}.{stray[0]}, got it beside them"
        )
    whole = {str(name): _whole_arm(section, arm) for name, arm in arms.items()}
    if chosen is None:
        _refuse_without_effect(arms, {key: given[key] for key in stray})
    if chosen is not None and chosen not in whole:
        raise ConfigError(f"arm: expected one of {', '.join(whole)}, got '{chosen}'")
    is_settled = chosen is None and (not whole or is_complete(given))
    if is_settled or not all(isinstance(arm, Mapping) for arm in whole.values()):
        return {**section, "arms": whole}
    if chosen is not None:
        arm = merge_layers([whole[chosen], {key: given[key] for key in stray}], _ARM_MERGES)
        return {**section, **arm, "arms": None, "join": False}
    if section.get("join") is not True:
        first = next(iter(whole.values()))
        return {**section, **{key: first[key] for key in ArmSettings.model_fields}, "arms": whole}
    try:
        bins = {name: WavelengthSettings.model_validate(arm["wavelength"]) for name, arm in whole.items()}
    except (ValidationError, KeyError):
        return {**section, "arms": whole}
    return {**section, "wavelength": joined_bins(bins).model_dump(), "arms": whole}


def _refuse_without_effect(arms: Mapping[Any, Any], stray: Mapping[str, Any]) -> None:
    for key, section in stray.items():
        for below in section if key in _ARM_MERGES and isinstance(section, Mapping) and section else [None]:
            if arms and all(_sets(arm, key, below) for arm in arms.values()):
                place = key if below is None else f"{key}.{below}"
                raise ConfigError(
                    f"{place}: every arm ({', '.join(map(str, arms))}) has its own, so that it would change nothing; "
                    f"set arms.{next(iter(arms))}.{place} and so on, or leave it out"
                )


def _sets(arm: object, key: str, below: str | None) -> bool:
    """Whether an arm has a separate value of a key: that of the preset that it names, or one that it states."""
    if isinstance(arm, str):
        return True
    if not isinstance(arm, Mapping):
        return False
    value = arm.get(key)
    return "name" in arm or (key in arm and (below is None or not isinstance(value, Mapping) or below in value))


def _whole_arm(section: Mapping[str, Any], arm: object) -> Any:
    """All keys of an arm: those it states over those of the preset that it names, else of the instrument."""
    arm = {"name": arm} if isinstance(arm, str) else arm
    if not isinstance(arm, Mapping):
        return arm
    below = with_preset({"name": arm["name"]}) if "name" in arm else section
    if "name" in arm and below.get("arms"):
        raise ConfigError(
            f"arms: expected an instrument without arms as one of them, got '{arm['name']}', which has "
            f"{', '.join(map(str, below['arms']))}; give presets of one detector each"
        )
    layers = [{key: below.get(key) for key in ArmSettings.model_fields}, arm]
    merged = {key: value for key, value in merge_layers(layers, _ARM_MERGES).items() if key not in ("name", "based_on")}
    with_own_edges = with_edges(merged)
    return {**merged, "wavelength": with_own_edges.get("wavelength")}


def with_edges(section: Mapping[str, Any]) -> dict[str, Any]:
    """An instrument's whole section with the edges of its bins where it gives their number per FWHM.

    Raises ValueError where it has no line spread. A section that is wrong elsewhere is returned as it is: its
    checks say what is wrong.
    """
    bins = section.get("wavelength")
    if not isinstance(bins, Mapping) or bins.get("bins_per_fwhm") is None:
        return dict(section)
    if section.get("lsf") is None:
        raise ValueError("wavelength.bins_per_fwhm: expected an lsf beside it, got none; give lsf, or wavelength.edges")
    try:
        chosen = WavelengthSettings.model_validate(dict(bins))
        lsf = LSFSettings.model_validate(section["lsf"])
    except ValidationError:
        return dict(section)
    edges = edges_per_fwhm(
        chosen.start, chosen.stop, chosen.bins_per_fwhm or 1.0, lambda wave: instrument_fwhm(lsf, wave)
    )
    return {**section, "wavelength": {"sampling": "table", "medium": chosen.medium, "edges": edges}}
