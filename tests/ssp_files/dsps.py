"""A small file in the layout of DSPS."""

import h5py
import numpy as np
from ssp_files import light

LIGHT_SPEED = 2.99792458e18
"""Angstrom/s"""


def datasets():
    wavelength = light.wavelengths(91.0, 1e6)
    return {
        "ssp_lgmet": np.log10(light.METALLICITIES),
        "ssp_lg_age_gyr": np.log10(light.AGES / 1e9),
        "ssp_wave": wavelength,
        "ssp_flux": light.spectra(wavelength) * wavelength**2 / LIGHT_SPEED,
    }


def write_sample(folder, **changed):
    """`changed`: datasets in place of the file's own, or more of them; None leaves one out."""
    path = folder / "ssp_data_fsps_v3.2_lgmet_age.h5"
    with h5py.File(path, "w") as file:
        for name, value in {**datasets(), **changed}.items():
            if value is not None:
                file[name] = value
    return path
