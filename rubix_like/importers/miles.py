"""A folder of MILES or E-MILES spectra, one FITS file per age and metallicity, as http://miles.iac.es offers them.

File names state the models, e.g. Ech1.30Zp0.06T01.0000_iTp0.00_baseFe.fits: E (E-MILES; M: MILES, I: MIUSCAT), IMF
and its slope, [M/H], age in Gyr, isochrones (iP: Padova, iT: BaSTI), abundances. Spectra: Lsun/Angstrom of a population
of 1 Msun at birth (Lsun = 3.826e33 erg/s), linear in air wavelength (Vazdekis et al. 2016, MNRAS 463, 3409).
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_fits
from rubix_like.ssp.library_file import SSPTable

_NAME = re.compile(
    r"(?P<range>[EMI])(?P<imf>ch|ku|kb|un|bi)(?P<slope>\d\.\d\d)"
    r"Z(?P<sign>[mp])(?P<metal>\d\.\d\d)T(?P<age>\d\d\.\d{4})"
    r"(?:_i(?P<isochrones>[PT])p(?P<isochrone_alpha>\d\.\d\d))?(?:_(?P<alpha>baseFe|Ep\d\.\d\d))?(?P<rest>_\w[\w.]*)?"
    r"\.fits(?:\.gz)?"
)

_SET = ("range", "imf", "slope", "isochrones", "isochrone_alpha", "alpha")
"""Parts of the name that all files of a library share."""

IMFS = {
    "ch": "Chabrier 2003",
    "ku": "Kroupa 2001, universal",
    "kb": "Kroupa 2001, revised",
    "un": "unimodal",
    "bi": "bimodal",
}

MASS_LIMITS = "0.1-100 Msun"

MILES_FWHM = 2.51
"""Angstrom (Falcon-Barroso et al. 2011, A&A 532, A95)."""


RANGES = {
    "E": ("E-MILES", 1680.0, 50000.0),
    "M": ("MILES", 3500.0, 7500.0),
    "I": ("MIUSCAT", 3460.0, 9480.0),
}
"""Letter -> name of a range of the models, and the wavelengths that its files lie within (Angstrom)."""


@dataclass(frozen=True)
class Isochrones:
    """A set of isochrones: the metal mass fraction that each [M/H] of the file names stands for.

    `word` stands for it in the names of the tables of masses.
    """

    name: str
    word: str
    solar_metallicity: float
    fractions: dict[float, float]


PADOVA = Isochrones(
    "Padova 2000 (Girardi et al. 2000)",
    "padova",
    0.019,
    {-2.32: 0.0001, -1.71: 0.0004, -1.31: 0.001, -0.71: 0.004, -0.40: 0.008, 0.0: 0.019, 0.22: 0.03},
)

BASTI = Isochrones(
    "BaSTI (Pietrinferni et al. 2004)",
    "basti",
    0.0172,
    {
        -2.27: 0.0001,
        -1.79: 0.0003,
        -1.49: 0.0006,
        -1.26: 0.001,
        -0.96: 0.002,
        -0.66: 0.004,
        -0.35: 0.008,
        -0.25: 0.01,
        0.06: 0.0198,
        0.15: 0.024,
        0.26: 0.03,
        0.40: 0.04,
    },
)

_ISOCHRONES = {"P": PADOVA, None: PADOVA, "T": BASTI}


def emiles_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of E-MILES at air wavelengths (Vazdekis et al. 2016, section 2 and table 1).

    3 A below 3060.8 A, 5 A to 3541.4 A, 2.51 A to 8950.4 A, a dispersion of 60 km/s beyond (23.57 A at 5 micron).
    """
    limits = [wavelength < 3060.8, wavelength < 3541.4, wavelength <= 8950.4]
    return np.select(limits, [3.0, 5.0, MILES_FWHM], FWHM_PER_SIGMA * 60.0 / SPEED_OF_LIGHT * wavelength)


def metal_fraction(metal: Float[ndarray, " metal"], isochrones: Isochrones) -> Float[ndarray, " metal"]:
    """Metal mass fraction of [M/H]: that of the isochrones where it is one of theirs, else Z = Z_sun 10^[M/H]."""
    known, fractions = (np.array(values) for values in zip(*isochrones.fractions.items(), strict=True))
    distance = np.abs(known - metal[:, None])
    is_known = distance.min(axis=1) < 0.011
    return np.where(is_known, fractions[distance.argmin(axis=1)], isochrones.solar_metallicity * 10.0**metal)


def is_miles(path: Path) -> bool:
    """Whether the folder `path` holds at least one file named as the models are."""
    return any(_NAME.fullmatch(file.name) for file in path.iterdir())


def read_miles(path: Path) -> SSPTable:
    """The grid of spectra in the folder `path`, which must be complete and of one kind.

    Mass fractions are taken from a table of the models' masses (names with "mass", .txt or none) in the same folder,
    where there is one for the IMF and isochrones. Raises ValueError for several kinds, a gap in the grid, spectra that
    differ in length, are not linear in Angstrom, not of the native resolution, or damaged.
    """
    names = {file: parts for file in sorted(path.iterdir()) if (parts := _NAME.fullmatch(file.name))}
    kinds = {tuple(parts[part] for part in _SET): file.name for file, parts in reversed(names.items())}
    if len(kinds) > 1:
        raise ValueError(
            f"{path}: expected the spectra of one IMF, slope, isochrones, abundance and range, got {len(kinds)} kinds, "
            f"e.g. {' and '.join(sorted(kinds.values())[:2])}; put each kind into a folder of its own"
        )
    ((letter, imf, slope, word, _, alpha),) = kinds
    isochrones = _ISOCHRONES[word]
    range_name, *_ = RANGES[letter]
    nodes = _grid(path, names)
    metal, age = (np.array(sorted({node[axis] for node in nodes})) for axis in (0, 1))
    _, wavelength = _read_spectrum(next(iter(nodes.values())), letter)
    spectra = np.empty((len(metal), len(age), len(wavelength)), dtype=np.float32)
    for (value, years), file in nodes.items():
        spectrum, stored = _read_spectrum(file, letter)
        if stored.shape != wavelength.shape or not np.allclose(stored, wavelength, rtol=1e-6):
            raise ValueError(f"{file}: expected the wavelengths of the other spectra in the folder, got others")
        spectra[np.searchsorted(metal, value), np.searchsorted(age, years)] = spectrum
    surviving, mass_note = _surviving_mass(path, imf, slope, isochrones.word, metal, age)
    imf_words = f"{IMFS[imf]}, {MASS_LIMITS}"
    if imf in ("un", "bi"):
        salpeter = " (Salpeter 1955)" if (imf, slope) == ("un", "1.30") else ""
        imf_words = f"{IMFS[imf]}, logarithmic slope {slope}{salpeter}, {MASS_LIMITS}"
    ending = "" if alpha in (None, "baseFe") else f"-{alpha}"
    return SSPTable(
        name=f"{range_name.lower()}-{imf}{slope}-{isochrones.word}{ending}",
        medium="air",
        imf=imf_words,
        solar_metallicity=isochrones.solar_metallicity,
        citation="Vazdekis et al. 2016, MNRAS 463, 3409; MILES: Sanchez-Blazquez et al. 2006, MNRAS 371, 703",
        licence="MILES team: non-commercial use; not to be passed on without their notice (http://miles.iac.es)",
        source=f"{len(nodes)} FITS files of {range_name}; isochrones {isochrones.name}, whose metal "
        f"fractions stand for [M/H]; abundances {alpha or 'baseFe'}; {mass_note}",
        spectra=spectra,
        log_age=np.log10(age) + 9.0,
        metallicity=metal_fraction(metal, isochrones),
        rest_wavelength=wavelength,
        fwhm=emiles_fwhm(wavelength) if letter == "E" else np.full_like(wavelength, MILES_FWHM),
        surviving_fraction=surviving,
    )


def _grid(path: Path, names: dict[Path, re.Match[str]]) -> dict[tuple[float, float], Path]:
    """The file at each ([M/H], age in Gyr); raises ValueError for one that stands twice or is missing."""
    nodes: dict[tuple[float, float], Path] = {}
    for file, parts in names.items():
        node = (float(parts["metal"]) * (-1.0 if parts["sign"] == "m" else 1.0) + 0.0, float(parts["age"]))
        if node in nodes:
            raise ValueError(f"{path}: {file.name} and {nodes[node].name} are of one age and metallicity; keep one")
        nodes[node] = file
    metals, ages = ({node[axis] for node in nodes} for axis in (0, 1))
    missing = sorted((metal, age) for metal in metals for age in ages if (metal, age) not in nodes)
    if missing:
        metal, age = missing[0]
        raise ValueError(
            f"{path}: expected a spectrum for each of {len(metals)} metallicities and {len(ages)} ages, {len(missing)} "
            f"are missing, e.g. [M/H] {metal:+.2f} at {age:g} Gyr: complete the folder, or take the others of that "
            "metallicity or age out of it"
        )
    if min(ages) <= 0:
        raise ValueError(f"{path}: expected ages above 0 Gyr in the file names, got {min(ages):g}")
    return nodes


def _read_spectrum(path: Path, letter: str) -> tuple[Float[ndarray, " rest"], Float[ndarray, " rest"]]:
    """Spectrum and air wavelengths of one file, after a look at what its header says of sampling and resolution."""
    with open_source_fits(path) as file:
        header, data = file[0].header, file[0].data
        spectrum = None if data is None else np.asarray(data, dtype=np.float64)
        comments = " ".join(str(card) for card in header.get("COMMENT", []))
        missing = [key for key in ("CRVAL1", "CDELT1") if not isinstance(header.get(key), int | float)]
        if spectrum is None or spectrum.ndim != 1 or len(spectrum) < 2 or missing:
            raise ValueError(f"{path}: expected one spectrum with CRVAL1 and CDELT1 in the first part of the file")
        steps = np.arange(len(spectrum)) + 1.0 - header.get("CRPIX1", 1)
        wavelength = header["CRVAL1"] + header["CDELT1"] * steps
    name, first, last = RANGES[letter]
    if not first <= wavelength[0] < wavelength[-1] <= last:
        raise ValueError(
            f"{path}: expected Angstrom in {first:g}-{last:g} ({name}), linearly sampled, got {wavelength[0]:.6g} to "
            f"{wavelength[-1]:.6g}"
        )
    stated = re.search(r"Spectral resolution:\s*([\d.]+)([^\']*)", comments)
    if stated:
        is_width = re.search(r"Angstrom|\(A\)", stated[2])
        if not is_width or abs(float(stated[1]) - MILES_FWHM) >= 0.05:
            raise ValueError(
                f"{path}: expected the models' native resolution ({MILES_FWHM} A), got '{stated[0].strip()}': take the "
                "spectra without broadening; a run degrades them to the instrument's resolution itself"
            )
    return spectrum, wavelength


_COLUMNS = 6
"""Columns of a table of masses up to the mass in stars and remnants, which is the last of them."""


def _surviving_mass(
    folder: Path, imf: str, slope: str, isochrones: str, metal: Float[ndarray, " metal"], age: Float[ndarray, " age"]
) -> tuple[Float[ndarray, "metal age"] | None, str]:
    """Mass in stars and remnants over mass at birth at each [M/H] and age (Gyr), and a note of where it is from.

    From the text files in `folder` with "mass" and the isochrones' name in theirs; None where none has rows of this
    IMF and slope. Raises ValueError for a table with rows of it that leave out a node, or is no fraction.
    """
    for path in sorted(folder.iterdir()):
        words = path.name.lower()
        if "mass" in words and isochrones in words and path.suffix.lower() != ".fits" and path.is_file():
            rows = _rows(path, imf, float(slope))
            if rows:
                return _at_nodes(path, np.array(rows), metal, age), f"mass fractions from {path.name}"
    return None, "no mass fractions (the folder holds no table of masses for these models)"


def _rows(path: Path, imf: str, slope: float) -> list[list[float]]:
    """[M/H], age and mass in stars and remnants of the rows of this IMF and slope."""
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) < _COLUMNS or words[0].lower() != imf:
            continue
        try:
            row = [float(word) for word in words[1:_COLUMNS]]
        except ValueError as error:
            raise ValueError(f"{path}: expected numbers after the IMF, got '{line.strip()}'") from error
        if abs(row[0] - slope) < 0.005:
            rows.append([row[1], row[2], row[4]])
    return rows


def _at_nodes(
    path: Path, rows: Float[ndarray, "row 3"], metal: Float[ndarray, " metal"], age: Float[ndarray, " age"]
) -> Float[ndarray, "metal age"]:
    """The row nearest to each node, which may differ by the rounding of the file names only."""
    distance = np.maximum(
        np.abs(rows[:, 0] - metal[:, None, None]) / 0.02, np.abs(rows[:, 1] / age[:, None] - 1.0) / 0.01
    )
    missing = np.argwhere(distance.min(axis=2) > 1.0)
    if len(missing):
        i, j = missing[0]
        raise ValueError(f"{path}: expected a row for [M/H] {metal[i]:+.2f} at {age[j]:g} Gyr, got none")
    fraction = rows[distance.argmin(axis=2), 2]
    if not (np.all(fraction > 0.0) and np.all(fraction <= 1.0)):
        raise ValueError(
            f"{path}: expected masses in stars and remnants of 0-1, got {fraction.min():g} to {fraction.max():g}"
        )
    return fraction


MILES_FITS = SourceFormat(is_miles, read_miles, directory=True)
