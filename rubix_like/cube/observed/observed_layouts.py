"""Find the HDUs with flux, error, mask and wavelengths, with known facts about the files of some instruments.

A new instrument is a row of `SURVEYS`; new names of HDUs go into `FLUX_NAMES`, `ERROR_NAMES` and `MASK_NAMES`, which
hold for files of every instrument.
"""

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyUserWarning, AstropyWarning
from numpy import ndarray

from rubix_like.cube.bins import Medium
from rubix_like.cube.files.fits_images import checksum_faults
from rubix_like.cube.survey_files.survey_cubes import DO_NOT_USE, NO_COVERAGE
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.files.writers import LAYOUT_CARD, ORIGIN
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import reason_of


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The HDUs of a FITS file (also compressed by gzip), all of their headers read; other warnings are let be.

    Raises ValueError for a file that is not FITS, or shorter than its headers say, and for what goes wrong inside.
    """
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore", AstropyWarning)
        warnings.filterwarnings("error", message=r"(.|\n)*(truncated|corrupted)", category=AstropyUserWarning)
        try:
            hdus = stack.enter_context(opened_fits(path))
            # astropy reads all headers
            tuple(hdu.name for hdu in hdus)
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: expected a whole FITS file with a cube, got one that cannot be read ({reason_of(error)})"
            ) from error
        try:
            yield hdus
        except ValueError:
            raise
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: expected a cube that can be read, got a damaged header ({reason_of(error)})"
            ) from error


def notes_on_sums(path: Path, hdus: Any) -> tuple[str, ...]:
    """Sentences on HDUs that were changed or damaged since their checksums were made; ValueError for a file of ours."""
    try:
        broken = checksum_faults(hdus)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected a whole FITS file, got one that cannot be read ({reason_of(error)})"
        ) from error
    if broken and text_card(hdus[0].header, "ORIGIN") == ORIGIN:
        raise ValueError(f"{path}: {'; '.join(broken)}; make it again")
    return tuple(Note("file.checksum", text, WARNING) for text in broken)


def is_image(hdu: Any) -> bool:
    """Whether an HDU can hold a cube: an image, also a compressed one, with data."""
    return isinstance(hdu, IMAGES) and count_axes(hdu) > 0


def count_axes(hdu: Any) -> int:
    """The number of axes (NAXIS) of an HDU."""
    return int(hdu.header["NAXIS"])


def text_card(header: Any, card: str) -> str:
    """A card as text without blanks at its ends; empty where there is none, or none that can be read."""
    try:
        value = header.get(card, "")
    except fits.VerifyError:
        return ""
    return value.strip() if isinstance(value, str) else ""


def number_card(header: Any, card: str, default: float, place: str) -> float:
    """A card as a finite number, `default` where there is none; raises ValueError for anything else."""
    try:
        number = float(header.get(card, default))
    except (TypeError, ValueError, fits.VerifyError) as error:
        raise ValueError(f"{place}: expected card {card} to be a number, got {error}") from error
    if not math.isfinite(number):
        raise ValueError(f"{place}: expected card {card} to be a finite number, got {number}")
    return number


def label(path: Path, hdu: Any) -> str:
    """The words for an HDU in a message."""
    return f"{path}, HDU {hdu.name or 'without a name'}"


def image_values(path: Path, hdu: Any) -> ndarray:
    """The numbers of an image; raises ValueError where they cannot be read."""
    try:
        data = np.asarray(hdu.data)
        del hdu.data  # astropy would keep it
    except UNREADABLE as error:
        raise ValueError(
            f"{label(path, hdu)}: expected an image, got one that cannot be read ({reason_of(error)})"
        ) from error
    if data.dtype.kind not in "biuf":
        raise ValueError(f"{label(path, hdu)}: expected an image of numbers, got type {data.dtype}")
    return data


ErrorKind = Literal["variance", "sigma", "inverse variance", "inverse sigma"]

FLUX_NAMES: tuple[str, ...] = ("FLUX", "SCI", "DATA")
"""EXTNAMEs, in capitals, of fluxes in files of every instrument, taken before the first HDU: none that other files use
for something else."""

ERROR_NAMES: dict[str, ErrorKind] = {
    "STAT": "variance",
    "VAR": "variance",
    "VARIANCE": "variance",
    "IVAR": "inverse variance",
    "INVVAR": "inverse variance",
    "ERR": "sigma",
    "ERROR": "sigma",
    "STD": "sigma",
    "STDDEV": "sigma",
    "SIG": "sigma",
    "SIGMA": "sigma",
    "NOISE": "sigma",
    "UNCERT": "sigma",
    "UNCERTAINTY": "sigma",
}
"""EXTNAME -> what its numbers are, in the order of preference."""

IMAGE_NAMES: tuple[str, ...] = ("SCI", "DATA", "FLUX", "IMAGE", "PRIMARY", "")
"""EXTNAMEs of images of a band, which have two axes."""

MASK_NAMES: tuple[str, ...] = ("MASK", "DQ", "QUAL", "QUALITY", "BADPIX", "BPM")
WAVE_NAMES: tuple[str, ...] = ("WAVE", "WAVELENGTH", "LAMBDA")
SENSITIVITY_NAMES: tuple[str, ...] = ("SENSFUNC",)

GIVE_HDU: str = "give hdu=, the name or number of the HDU with the fluxes (of a fit: fit.data_hdu)"

_STATED: dict[str, ErrorKind] = {
    "MSE": "variance",
    "RMSE": "sigma",
    "INVMSE": "inverse variance",
    "INVRMSE": "inverse sigma",
    "StdDevUncertainty": "sigma",
    "VarianceUncertainty": "variance",
    "InverseVariance": "inverse variance",
}
"""HDUCLAS3, the ESO and SDSS class of an error (ESO, FITS interface of science data products), or UTYPE, which
astropy.nddata.CCDData writes with its uncertainty -> kind."""

FOREGROUND_STAR: int = 1 << 3
"""Bit FORESTAR of MANGA_DRP3PIXMASK (https://www.sdss4.org/dr17/algorithms/bitmasks)."""


@dataclass(frozen=True)
class Survey:
    """Published facts about an instrument's files, for where their headers do not say it.

    Its files have one of `instruments` as a part of the card INSTRUME, one of `cards`, or all of the `extensions`;
    capitals do not matter, but 'NOVA' is a part of 'SUPERNOVA', too. `bad_bits`: the sum of the bits of the mask (bit
    n, counted from 0, is `1 << n`) for which a voxel is left out; None: any value but 0, as of masks of floats.
    `source`: the publication, which notes name behind what is taken from here.
    """

    name: str
    medium: Medium | None = None
    unit: str | None = None
    bad_bits: int | None = None
    source: str = ""
    instruments: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    def describes(self, hdus: Any, flux: Any) -> bool:
        """Whether a file, with these fluxes, is one of its files."""
        headers = (hdus[0].header, flux.header)
        instrument = " ".join(text_card(header, "INSTRUME") for header in headers).upper()
        return (
            any(name.upper() in instrument for name in self.instruments)
            or any(card in header for card in self.cards for header in headers)
            or (bool(self.extensions) and set(map(str.upper, self.extensions)) <= {hdu.name.upper() for hdu in hdus})
        )


MANGA = Survey(
    "MaNGA",
    medium="vacuum",
    bad_bits=DO_NOT_USE | FOREGROUND_STAR | NO_COVERAGE,
    source="Law et al. 2016, AJ 152, 83; bits as in the survey's analysis: Westfall et al. 2019, AJ 158, 231",
    instruments=("MANGA",),
)
MANGA_ANALYSIS = Survey(MANGA.name, MANGA.medium, source=MANGA.source)
"""The cubes of the survey's data analysis pipeline, whose mask has other bits."""

PYPEIT = Survey("PypeIt", medium="vacuum", source="pypeit.readthedocs.io, DataCube", cards=("PYP_SPEC", "FLUXUNIT"))
KCWI = Survey("KCWI", source="kcwidrp, FluxCalibrate.py", instruments=("KCWI", "KCRM"))
WEAVE = Survey("WEAVE", unit="erg/s/cm2/Angstrom", source="DATA times SENSFUNC: the survey's data model")
HSIM = Survey("HSIM", medium="vacuum", source="docs/fits.md")
UNKNOWN = Survey("")

SURVEYS = (
    MANGA,
    PYPEIT,
    Survey(
        "CALIFA",
        medium="air",
        unit="1e-16 erg/s/cm2/Angstrom",
        source="Garcia-Benito et al. 2015, A&A 576, A135",
        instruments=("PMAS",),
        extensions=("ERRWEIGHT", "FIBCOVER"),
    ),
    Survey("MUSE", medium="air", source="Weilbacher et al. 2020, A&A 641, A28", instruments=("MUSE",)),
    Survey(
        "SAMI",
        medium="air",
        unit="1e-16 erg/s/cm2/Angstrom/pixel",
        source="Croom et al. 2021, MNRAS 505, 991",
        instruments=("SAMI",),
    ),
    KCWI,
)
"""Surveys and instruments whose files are known; the first one that describes a file is taken."""


@dataclass(frozen=True)
class Parts:
    """The HDUs of a cube. `error_kind` says what the numbers of `error` are; `sensitivity`: what those of the flux are
    still to be multiplied by."""

    flux: Any
    error: Any | None
    error_kind: ErrorKind
    mask: Any | None
    wave: Any | None
    sensitivity: Any | None
    survey: Survey


def find_parts(path: Path, hdus: Any, chosen: str | int | None = None) -> Parts:
    """The parts of the cube in a FITS file, by the cards that point to them, else by their names; `chosen`: the HDU of
    the fluxes. Parts of IFU.2.DATA or RED_DATA are those whose names begin alike.

    Raises ValueError for a file without a cube of spectra, with what it seems to be instead.
    """
    flux = _find_flux(path, hdus, chosen)
    before = _beginning(flux)
    error, mask = (
        _named(hdus, (text_card(flux.header, card).upper(),) if text_card(flux.header, card) else (), flux)
        or _named(hdus, names, flux, before)
        for card, names in (("ERRDATA", ERROR_NAMES), ("QUALDATA", MASK_NAMES))
    )
    wave = None
    if not any(is_tabulated(flux.header, axis) for axis in range(1, count_axes(flux) + 1)):
        wave = _named(hdus, WAVE_NAMES, flux, before, images_only=False)
    sensitivity = _named(hdus, SENSITIVITY_NAMES, flux, before) if before else None
    survey = WEAVE if sensitivity is not None else _find_survey(hdus, flux, mask)
    return Parts(flux, error, _error_kind(path, error, before), mask, wave, sensitivity, survey)


def find_image_parts(path: Path, hdus: Any, chosen: str | int | None = None) -> Parts:
    """The parts of an image with two axes. Raises ValueError for a file without one."""
    images = [hdu for hdu in hdus if is_image(hdu) and count_axes(hdu) == 2]
    flux = _named(images, IMAGE_NAMES, None) or next(iter(images), None)
    flux = flux if chosen is None else _chosen_hdu(path, hdus, chosen)
    if flux is None or count_axes(flux) != 2:
        raise ValueError(f"{path}: expected an image with two axes, got none; a cube is given as cube: FILE")
    error, mask = (_named(images, names, flux) for names in (ERROR_NAMES, MASK_NAMES))
    return Parts(flux, error, _error_kind(path, error, ""), mask, None, None, UNKNOWN)


def is_tabulated(header: Any, axis: int) -> bool:
    """Whether a header's axis is looked up in a table."""
    return text_card(header, f"CTYPE{axis}").upper().endswith("-TAB")


def _find_survey(hdus: Any, flux: Any, mask: Any | None) -> Survey:
    header = hdus[0].header
    if text_card(header, "ORIGIN") == ORIGIN and text_card(header, LAYOUT_CARD) == "hsim":
        return HSIM
    survey = next((survey for survey in SURVEYS if survey.describes(hdus, flux)), UNKNOWN)
    if survey is MANGA:
        bits = {text_card(hdu.header, "MASKNAME") for hdu in (hdus[0], mask) if hdu is not None}
        return MANGA_ANALYSIS if any(name.startswith("MANGA_DAP") for name in bits) else MANGA
    return survey


def _find_flux(path: Path, hdus: Any, chosen: str | int | None) -> Any:
    if (
        text_card(hdus[0].header, "MASKNAME") == "MANGA_DAPPIXMASK"
        or "SPX_SKYCOO" in {hdu.name.upper() for hdu in hdus}  # maps have three axes too
    ):
        raise ValueError(
            f"{path}: expected a cube of spectra, got a MAPS file of MaNGA's data analysis pipeline; a fit needs the "
            f"spectra, in the LOGCUBE (or LINCUBE) file of the same galaxy"
        )
    if chosen is not None:
        return _checked_cube(path, _chosen_hdu(path, hdus, chosen))
    cubes = [hdu for hdu in hdus if is_image(hdu) and count_axes(hdu) >= 3]
    found = _named(hdus, FLUX_NAMES, None)
    if found is None and is_image(hdus[0]):
        found = hdus[0]
    candidates = [hdu for hdu in cubes if _beginning(hdu)] if len(cubes) > 1 else cubes
    if found is None and len(candidates) == 1:
        found = candidates[0]
    if found is None:
        names = ", ".join(hdu.name or "without a name" for hdu in cubes) or "none"
        raise ValueError(
            f"{path}: expected one image with three axes (an HDU {', '.join(FLUX_NAMES)}, or the first), got "
            f"{'several' if cubes else 'no'} such images: {names}; {GIVE_HDU}"
        )
    return _checked_cube(path, found)


def _chosen_hdu(path: Path, hdus: Any, chosen: str | int) -> Any:
    try:
        found = hdus[int(chosen) if str(chosen).isdecimal() else chosen]
    except (LookupError, TypeError) as error:
        names = ", ".join(f"{number} {hdu.name}".strip() for number, hdu in enumerate(hdus))
        raise ValueError(f"{path}: hdu: expected one of the HDUs {names}, got {chosen!r}") from error
    if not is_image(found):
        raise ValueError(f"{label(path, found)}: hdu: expected an image with the fluxes, got none")
    return found


def _checked_cube(path: Path, found: Any) -> Any:
    if count_axes(found) < 3:
        shape = tuple(found.header[f"NAXIS{axis}"] for axis in range(count_axes(found), 0, -1))
        raise ValueError(
            f"{label(path, found)}: expected a cube with three axes (wavelength and two of the sky), got an image of "
            f"shape {shape}; a fit needs a cube of spectra, not an image or row-stacked spectra"
        )
    return found


def _beginning(flux: Any) -> str:
    """The text before the name of the fluxes, such as `IFU.2.` or `RED_`; often empty."""
    name = flux.name.upper()
    ends = (f"{mark}{end}" for end in FLUX_NAMES for mark in "._")
    return next((name[: 1 - len(end)] for end in ends if name.endswith(end)), "")


def _named(
    hdus: Any, names: Iterable[str], flux: Any | None, before: str = "", *, images_only: bool = True
) -> Any | None:
    """The first HDU with one of the names, after what stands `before` or alone, in their order, that is not the
    flux's."""
    names = tuple(names)
    for name in (*(before + name for name in names), *names):
        for hdu in hdus:
            if hdu is not flux and hdu.name.upper() == name and (not images_only or is_image(hdu)):
                return hdu
    return None


def _error_kind(path: Path, error: Any | None, before: str) -> ErrorKind:
    if error is None:
        return "variance"
    for card in ("HDUCLAS3", "UTYPE"):
        if text_card(error.header, card) in _STATED:
            return _STATED[text_card(error.header, card)]
    name = error.name.upper().removeprefix(before)
    if name in ERROR_NAMES:
        return ERROR_NAMES[name]
    raise ValueError(
        f"{label(path, error)}: expected to be told whether it holds variances or standard deviations, got a name that "
        f"says neither; call it VAR, ERR or IVAR, or give it HDUCLAS3 = MSE, RMSE or INVMSE"
    )
