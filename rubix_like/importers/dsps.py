"""SSP tables of DSPS (Hearin et al. 2023, MNRAS 521, 1741), e.g. ssp_data_fsps_v3.2_lgmet_age.h5.

Datasets: ssp_lgmet (metal,) log10 of the metal mass fraction, ssp_lg_age_gyr (age,) log10(age / Gyr), ssp_wave (rest,)
vacuum Angstrom, ssp_flux (metal, age, rest) Lsun/Hz of 1 Msun at birth; tables with emission lines add ssp_emline_*.
DSPS documents its file as made by python-fsps with its default settings and nebular emission; the file states nothing.
"""

from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.importers.stellar_spectra import (
    FSPS_CITATION,
    MIST_SOLAR_METALLICITY,
    basel_fwhm,
    check_light_unit,
    node_spacing,
    per_angstrom,
)
from rubix_like.runtime.files.foreign_layouts import SourceFormat, hdf5_names, open_source_hdf5
from rubix_like.ssp.library_file import SSPTable

DATASETS = {"ssp_lgmet": 1, "ssp_lg_age_gyr": 1, "ssp_wave": 1, "ssp_flux": 3}
"""The datasets and their numbers of axes."""

EMISSION_LINES = {"ssp_emline_name", "ssp_emline_wave", "ssp_emline_luminosity"}

LIMITS = {
    "ssp_wave": (np.nextafter(1.0, 0.0), 1e12, "Angstrom in 1-1e12"),
    "ssp_lgmet": (-6.0, -0.8, "log10 of metal mass fractions"),
    "ssp_lg_age_gyr": (-6.0, 1.5, "log10(age / Gyr)"),
}


def fsps_miles_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of FSPS with its default spectra: MILES (2.54 A at 3525-7500 A, Beifiori et al. 2011), BaSeL.

    Never finer than the sampling, so that a table of coarser spectra is not given MILES' resolution.
    """
    miles = (wavelength >= 3525.0) & (wavelength <= 7500.0)
    return np.where(miles, np.maximum(2.54, node_spacing(wavelength)), basel_fwhm(wavelength))


def is_dsps(path: Path) -> bool:
    """Whether `path` is an HDF5 file with the four datasets and no others but those of the emission lines."""
    return set(DATASETS) <= hdf5_names(path) <= set(DATASETS) | EMISSION_LINES


def read_dsps(path: Path) -> SSPTable:
    """The file's spectra per Angstrom; those of its emission lines that stand in a separate table are left out.

    Raises ValueError for datasets that are damaged, no numbers or of another shape, and for light in another unit.
    """
    arrays = {}
    with open_source_hdf5(path) as file:
        lines = "ssp_emline_luminosity" in file
        for name, n_axis in DATASETS.items():
            dataset = file[name]
            if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiu" or dataset.ndim != n_axis:
                raise ValueError(f"{path}: {name}: expected a dataset of numbers with {n_axis} axes, got {dataset}")
            arrays[name] = np.asarray(dataset, dtype=np.float64)
    shape = tuple(len(arrays[name]) for name in ("ssp_lgmet", "ssp_lg_age_gyr", "ssp_wave"))
    if arrays["ssp_flux"].shape != shape:
        raise ValueError(f"{path}: ssp_flux: expected shape {shape} (metal, age, wave), got {arrays['ssp_flux'].shape}")
    for name, (low, high, words) in LIMITS.items():
        smallest, largest = arrays[name].min(), arrays[name].max()
        if not low < smallest <= largest < high:
            raise ValueError(f"{path}: {name}: expected {words}, got {smallest:g} to {largest:g}")
    wavelength, log_age, metallicity = arrays["ssp_wave"], arrays["ssp_lg_age_gyr"] + 9.0, 10.0 ** arrays["ssp_lgmet"]
    with np.errstate(over="ignore"):
        spectra = per_angstrom(arrays["ssp_flux"], wavelength)
    check_light_unit(str(path), wavelength, log_age, metallicity, spectra)
    light = "its table of emission lines is left out" if lines else "the light of young populations includes nebulae"
    return SSPTable(
        name="dsps-fsps",
        medium="vacuum",
        imf="Kroupa 2001, 0.08-120 Msun",
        solar_metallicity=MIST_SOLAR_METALLICITY,
        citation=f"{FSPS_CITATION}; DSPS: Hearin et al. 2023, MNRAS 521, 1741",
        licence="not stated with the file; FSPS and DSPS: MIT and BSD-3-Clause",
        source=f"{path.name} of DSPS; the file states no settings; taken are python-fsps' defaults with nebular lines, "
        f"as DSPS documents: Kroupa, vacuum, MIST isochrones, MILES spectra and their resolution; {light}; no mass "
        "fractions",
        spectra=spectra,
        log_age=log_age,
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=fsps_miles_fwhm(wavelength),
    )


DSPS_HDF5 = SourceFormat(is_dsps, read_dsps)
