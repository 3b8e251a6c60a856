"""FSPS (MIT), which the user installs: spectra computed through python-fsps, and its tables of nebular lines.

Conroy, Gunn & White 2009, ApJ 699, 486; Conroy & Gunn 2010, ApJ 712, 833; python-fsps: Johnson et al. 2023. Lines:
files nebular/ZAU_*.lines, computed with Cloudy for its stellar spectra (Byler et al. 2017, ApJ 840, 44). A text file: a
comment ("#166 cols 770 rows ..."), vacuum wavelengths, then two lines per model: log10(Z/Zsun), age (yr) and log U, and
each line's luminosity (Lsun) per ionising photon per second.
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.errors import ConfigError
from rubix_like.importers.stellar_spectra import FSPS_CITATION, MIST_SOLAR_METALLICITY, node_spacing, per_angstrom
from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.ssp.library_file import SSPTable

_CLONE = "get FSPS with its data (git clone https://github.com/cconroy20/fsps.git) and set"
_DATA = f"{_CLONE} the environment variable SPS_HOME to that folder"

IMFS = (
    "Salpeter 1955",
    "Chabrier 2003",
    "Kroupa 2001",
    "van Dokkum 2008",
    "Dave 2008",
    "tabulated in FSPS' data/imf.dat",
)
"""Names of python-fsps' `imf_type`."""

OPTICAL = (4000.0, 7000.0)
"""Angstrom between which the resolving power that is stated of a library is measured."""

_COARSE = 1000.0
"""Resolving power below which a finer build is named: that of C3K_LR is 100, of MILES 2000, of C3K_HR 3000."""

_FINER_BUILD = (
    "for R = 3000 build python-fsps with C3K_HR: pip uninstall fsps; FFLAGS='-DC3K_LR=0 -DMILES=0 -DC3K_HR=1' "
    "python -m pip install fsps --no-binary fsps; then rubix-like ssp get fsps --force"
)

PLAIN = {"sfh": 0, "zred": 0.0, "dust1": 0.0, "dust2": 0.0, "dust3": 0.0, "fagn": 0.0, "add_neb_emission": False}
"""Parameters of python-fsps that make its spectra those of bare stellar populations at rest."""


@runtime_checkable
class StellarPopulation(Protocol):
    """The part of `fsps.StellarPopulation` (python-fsps 0.4.7 and later) that is used."""

    params: Any
    zlegend: ndarray
    ssp_ages: ndarray
    wavelengths: ndarray
    resolutions: ndarray
    solar_metallicity: float
    libraries: Any
    stellar_mass: ndarray

    def get_spectrum(self, zmet: int) -> tuple[ndarray, ndarray]:
        """Wavelengths (rest,) and spectra (age, rest) in Lsun/Hz at the metallicity number `zmet`, from 1."""
        ...


def compute_fsps(report: Callable[[str], None]) -> SSPTable:
    """The stellar spectra of FSPS with python-fsps' default settings: Kroupa's IMF, no dust, no nebulae.

    Raises ConfigError where python-fsps or its data are missing.
    """
    try:
        package = import_optional("fsps", "ssp get fsps", then=f"; {_DATA}")
    except (RuntimeError, OSError) as error:  # what python-fsps raises where SPS_HOME is unset or holds no data
        raise ConfigError(f"ssp get fsps: FSPS' data are missing ({error}): {_DATA}") from error
    report("computing spectra with python-fsps (minutes)")
    table = read_population(package.StellarPopulation(zcontinuous=0, **PLAIN), report)
    power = _optical_power(table.rest_wavelength, table.fwhm)
    if power < _COARSE:
        report(
            f"python-fsps was built with spectra of R = {power:.0f} ({OPTICAL[0]:g}-{OPTICAL[1]:g} A); {_FINER_BUILD}"
        )
    return table


def _optical_power(wavelength: Float[ndarray, " rest"], fwhm: Float[ndarray, " rest"]) -> float:
    """Median resolving power, wavelength / FWHM, in the optical."""
    optical = (wavelength > OPTICAL[0]) & (wavelength < OPTICAL[1])
    return float(np.median(wavelength[optical] / fwhm[optical]))


@named_arguments
def read_population(population: StellarPopulation, report: Callable[[str], None] = lambda _: None) -> SSPTable:
    """Spectra and masses of a `fsps.StellarPopulation(zcontinuous=0)` at all its ages and metallicities, in vacuum.

    Other IMFs or settings: make the population with them, then `write_table` the result. Raises ValueError for one
    whose spectra are not those of bare stars at rest.
    """
    params = population.params
    for key, value in PLAIN.items():
        if params[key] != value:
            raise ValueError(f"fsps.StellarPopulation: {key}: expected {value}, got {params[key]}")
    imf, slopes = IMFS[params["imf_type"]], tuple(params[f"imf{i}"] for i in (1, 2, 3))
    if params["imf_type"] == 2 and slopes != (1.3, 2.3, 2.3):
        imf += f", slopes {slopes}"
    wavelength = np.asarray(population.wavelengths, dtype=np.float64)
    metallicity = np.asarray(population.zlegend, dtype=np.float64)
    spectra, surviving = [], []
    for number in range(1, len(metallicity) + 1):
        report(f"metallicity {number} of {len(metallicity)}")
        per_hertz = np.asarray(population.get_spectrum(zmet=number)[1], dtype=np.float64)
        spectra.append(per_angstrom(per_hertz, wavelength).astype(np.float32))
        surviving.append(np.array(population.stellar_mass, dtype=np.float64))
    dispersion = np.abs(np.asarray(population.resolutions, dtype=np.float64))
    fwhm = np.maximum(node_spacing(wavelength), FWHM_PER_SIGMA * dispersion / SPEED_OF_LIGHT * wavelength)
    power = f"R = {_optical_power(wavelength, fwhm):.0f} ({OPTICAL[0]:g}-{OPTICAL[1]:g} A)"
    isochrones, stars = ((name.decode() if isinstance(name, bytes) else str(name)) for name in population.libraries[:2])
    return SSPTable(
        name="fsps",
        medium="vacuum",
        imf=f"{imf}, {params['imf_lower_limit']:g}-{params['imf_upper_limit']:g} Msun",
        solar_metallicity=float(population.solar_metallicity),
        citation=f"{FSPS_CITATION}; python-fsps: Johnson et al. 2023",
        licence="MIT (FSPS and python-fsps)",
        source=f"python-fsps, isochrones {isochrones}, spectra {stars}; stellar light without nebulae or diffuse dust; "
        f"{power}, from the dispersions and the sampling of FSPS; masses with remnants",
        spectra=np.array(spectra),
        log_age=np.asarray(population.ssp_ages, dtype=np.float64),
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=fwhm,
        surviving_fraction=np.array(surviving),
    )


LINES_FILE = "nebular/ZAU_ND_mist.lines"
"""In the folder of FSPS: without dust, for MIST's stars."""

LSUN = 3.839e33
"""erg/s, the value of FSPS."""

SOLAR_OXYGEN = 8.71
"""12 + log10(O/H) of the gas at Zsun, depletion onto dust (0.22 dex) taken off (Byler et al. 2017, table 1)."""

DENSITY = 100.0
"""Hydrogen atoms per cm^3 in all models."""

LONGEST = 1 << 26
"""Bytes; the real files have 1 MB."""


def find_fsps_lines(report: Callable[[str], None]) -> NebularTable:
    """The table of the user's FSPS, in the folder $SPS_HOME; ConfigError where there is none."""
    home = os.environ.get("SPS_HOME")
    path = Path(home or "").expanduser() / LINES_FILE
    if not home or not path.is_file():
        raise ConfigError(
            f"nebular get fsps: expected the file {LINES_FILE} in the folder $SPS_HOME, got "
            f"{f'no file {path}' if home else 'no SPS_HOME'}: {_CLONE} SPS_HOME to that folder, or: rubix-like nebular "
            f"import FILE"
        )
    report(f"reading {path}")
    return read_fsps_lines(path)


def _begin(path: Path, n_bytes: int) -> bytes:
    """The first bytes of a file, unpacked."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as file:
        return file.read(n_bytes)


def _is_fsps_lines(path: Path) -> bool:
    head = _begin(path, 200)
    return head.startswith(b"#") and b" logZ " in head and b"logU" in head


def read_fsps_lines(path: Path) -> NebularTable:
    """A table of FSPS; lines that are not in our list are left out, blends among them."""
    rows = _begin(path, LONGEST).decode("ascii").splitlines()
    wavelength = np.array(rows[1].split(), dtype=np.float64)
    nodes = np.array([row.split() for row in rows[2::2]], dtype=np.float64)
    light = np.array([row.split() for row in rows[3::2]], dtype=np.float64) * LSUN
    axes = [np.unique(nodes[:, column]) for column in range(3)]
    shape = tuple(map(len, axes))
    if light.shape != (np.prod(shape), len(wavelength)) or not np.array_equal(nodes[:, 1] > 0, np.ones(len(nodes))):
        raise ValueError(
            f"{path}: expected {np.prod(shape)} models of {len(wavelength)} lines at ages beyond 0, got {light.shape}"
        )
    table = light[np.lexsort(nodes.T[::-1])].reshape(*shape, -1)
    return assembled(
        {name: table[..., place] for name, place in matched_lines(wavelength).items()},
        np.full(shape, DENSITY),
        {"oxygen_abundance": SOLAR_OXYGEN + axes[0], "log_age": np.log10(axes[1]), "log_u": axes[2]},
        name="fsps",
        citation="Byler et al. 2017, ApJ 840, 44; Conroy, Gunn & White 2009, ApJ 699, 486; Cloudy: Ferland et al. "
        "2013, RMxAA 49, 137",
        licence="MIT, Copyright 2009-2021 Charlie Conroy and contributors",
        source=f"FSPS, {path.name}",
        solar_oxygen=SOLAR_OXYGEN,
        solar_metallicity=MIST_SOLAR_METALLICITY,
    )


FSPS_LINES = SourceFormat(_is_fsps_lines, read_fsps_lines)
