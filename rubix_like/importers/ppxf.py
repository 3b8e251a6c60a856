"""Templates of pPXF (Cappellari 2023, MNRAS 526, 3273): `spectra_NAME_9.0.npz`, as its class `sps_lib` reads them.

Arrays: templates (rest, age, metal) in Lsun/Angstrom of a population of 1 Msun at birth, masses (age, metal) in stars
and remnants, lam and fwhm (rest,) in Angstrom, ages in Gyr, metals as [M/H]. The file states neither its IMF nor its
medium: the medium is measured from the Balmer lines, the IMF follows from the masses.
"""

import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.importers.miles import PADOVA, metal_fraction
from rubix_like.importers.stellar_spectra import (
    BC03_SOLAR_METALLICITY,
    FSPS_CITATION,
    MIST_SOLAR_METALLICITY,
    check_light_unit,
    measured_medium,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import check_packed
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.words import reason_of
from rubix_like.ssp.library_file import SSPTable

ARRAYS = ("templates", "masses", "lam", "ages", "metals", "fwhm")

_MEMBERS = tuple(f"{name}.npy".encode() for name in ARRAYS)

SALPETER_MASS = 0.66
"""Mass in stars and remnants of an old population per mass at birth above which the IMF is Salpeter's: that leaves
0.70-0.73 at 10 Gyr (Vazdekis et al. 2016; Bruzual & Charlot 2003), those of Kroupa and Chabrier 0.52-0.63."""


@dataclass(frozen=True)
class Collection:
    """One of the libraries that pPXF offers; `first_wavelength` is the range (Angstrom) in which its spectra begin."""

    solar_metallicity: float
    solar_source: str
    first_wavelength: tuple[float, float]
    citation: str


COLLECTIONS = {
    "emiles": Collection(
        solar_metallicity=PADOVA.solar_metallicity,
        solar_source="Girardi et al. 2000, whose own metal fractions are taken for its [M/H]",
        first_wavelength=(1600.0, 1800.0),
        citation="Vazdekis et al. 2016, MNRAS 463, 3409",
    ),
    "fsps": Collection(
        solar_metallicity=MIST_SOLAR_METALLICITY,
        solar_source="of the MIST isochrones, Choi et al. 2016, which FSPS 3.2 uses by default",
        first_wavelength=(0.0, 1600.0),
        citation=FSPS_CITATION,
    ),
    "galaxev": Collection(
        solar_metallicity=BC03_SOLAR_METALLICITY,
        solar_source="Bruzual & Charlot 2003",
        first_wavelength=(0.0, 1600.0),
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000",
    ),
    "xsl": Collection(
        solar_metallicity=0.0152,
        solar_source="of the PARSEC isochrones, Bressan et al. 2012",
        first_wavelength=(3400.0, 3600.0),
        citation="Verro et al. 2022, A&A 661, A50",
    ),
}


def is_ppxf(path: Path) -> bool:
    """Whether `path` is an npz file with exactly the six arrays of the layout, or one of these that was cut short."""
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            start = file.read(64)
        return start.startswith(b"PK\x03\x04") and start[30:].startswith(_MEMBERS)
    try:
        with zipfile.ZipFile(path) as archive:
            return sorted(archive.namelist()) == sorted(name.decode() for name in _MEMBERS)
    except UNREADABLE:
        return False


def read_ppxf(path: Path) -> SSPTable:
    """The file's arrays, in our order and units; which library it is, its name must tell.

    Raises ValueError for a name without or with several of the known libraries, arrays that are damaged or do not fit
    together, masses that are no fractions, wavelengths in no known medium and spectra in another unit.
    """
    names = [name for name in COLLECTIONS if name in re.split(r"[^a-z]+", path.name.lower())]
    if len(names) != 1:
        raise ValueError(
            f"{path}: the file does not state which library it holds; expected one of {', '.join(COLLECTIONS)} in its "
            "name, as in spectra_emiles_9.0.npz; rename it, or bring a library of your own into rubix_like's layout "
            "(docs/how-to-extend.md, An SSP format)"
        )
    name, collection = names[0], COLLECTIONS[names[0]]
    try:
        check_packed(path)
        with warnings.catch_warnings(), path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            warnings.simplefilter("error")
            arrays = {name: np.asarray(file[name], dtype=np.float64) for name in ARRAYS}
    except UNREADABLE as error:
        raise ValueError(f"{path}: the file is damaged or holds no numbers: {reason_of(error)}") from error
    _check(path, arrays, collection)
    wavelength, metal, surviving = arrays["lam"], arrays["metals"], arrays["masses"].T
    spectra = np.ascontiguousarray(np.transpose(arrays["templates"], (2, 1, 0)))
    log_age = np.log10(arrays["ages"]) + 9.0
    fraction = metal_fraction(metal, PADOVA) if name == "emiles" else collection.solar_metallicity * 10.0**metal
    check_light_unit(str(path), wavelength, log_age, fraction, spectra)
    medium, offset = measured_medium(str(path), wavelength, log_age, fraction, spectra)
    old = surviving[np.argmin(np.abs(fraction - 0.02)), np.argmin(np.abs(log_age - 10.0))]
    imf, exclusion = "Kroupa or Chabrier", "not Salpeter's, "
    if old >= SALPETER_MASS:
        imf, exclusion = "Salpeter 1955", ""
    return SSPTable(
        name=f"ppxf-{name}",
        medium=medium,
        imf=imf,
        solar_metallicity=collection.solar_metallicity,
        citation=f"{collection.citation}; pPXF: Cappellari 2023, MNRAS 526, 3273",
        licence="those of the models' authors, by whose permission pPXF offers them; pPXF: non-commercial use",
        source=f"{path.name} of pPXF; medium from its Balmer lines, which stand at those of {medium} within "
        f"{abs(offset):.0f} km/s; IMF not stated there, {exclusion}inferred from its masses ({old:.2f} of the mass at "
        f"birth is left near 10 Gyr); [M/H] to mass fraction with {collection.solar_metallicity:g} "
        f"({collection.solar_source}); resolution as the file has it",
        spectra=spectra,
        log_age=log_age,
        metallicity=fraction,
        rest_wavelength=wavelength,
        fwhm=np.broadcast_to(arrays["fwhm"], wavelength.shape).copy(),
        surviving_fraction=surviving,
    )


def _check(path: Path, arrays: dict[str, Float[ndarray, "..."]], collection: Collection) -> None:
    for name in ("lam", "ages", "metals"):
        if arrays[name].ndim != 1 or len(arrays[name]) < 2:
            raise ValueError(f"{path}: {name}: expected one axis of at least 2 values, got {arrays[name].shape}")
    shape = tuple(len(arrays[name]) for name in ("lam", "ages", "metals"))
    expected = {"templates": (shape,), "masses": (shape[1:],), "fwhm": (shape[:1], ())}
    for name, allowed in expected.items():
        if arrays[name].shape not in allowed:
            raise ValueError(
                f"{path}: {name}: expected shape {allowed[0]} (lam, ages, metals), got {arrays[name].shape}"
            )
    if not (np.all(np.diff(arrays["lam"]) > 0) and np.all(arrays["fwhm"] > 0)):
        raise ValueError(f"{path}: lam and fwhm: expected increasing and positive Angstrom")
    if not np.all(arrays["ages"] > 0):
        raise ValueError(f"{path}: ages: expected Gyr above 0, got {arrays['ages'].min():g}")
    if not (np.all(arrays["masses"] > 0.1) and np.all(arrays["masses"] < 1.01)):
        low, high = arrays["masses"].min(), arrays["masses"].max()
        raise ValueError(f"{path}: masses: expected fractions of the mass at birth in 0.1-1, got {low:g} to {high:g}")
    low, high = collection.first_wavelength
    if not low <= arrays["lam"][0] <= high:
        raise ValueError(
            f"{path}: lam: expected this library to begin at {low:g}-{high:g} A, got {arrays['lam'][0]:g}: the file "
            "does not hold the library that its name says"
        )


PPXF_NPZ = SourceFormat(is_ppxf, read_ppxf)
