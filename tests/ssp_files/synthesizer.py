"""A small file in the layout of Synthesizer's grids."""

import h5py
import numpy as np
from ssp_files import light

LIGHT_SPEED = 2.99792458e18
"""Angstrom/s"""

SOLAR_LUMINOSITY = 3.828e33
"""erg/s"""

MODEL = {
    "sps_name": "bpass",
    "sps_version": "2.2.1",
    "sps_variant": "bin",
    "imf_type": "chabrier03",
    "imf_masses": [0.1, 300.0],
    "imf_slopes": False,
}
NAME = "bpass-2.2.1-bin_chabrier03-0.1,300.0.hdf5"


def datasets():
    """Path in the file: (values, unit)."""
    wavelength = light.wavelengths(91.0, 1e6)
    per_hertz = light.spectra(wavelength).transpose(1, 0, 2) * wavelength**2 / LIGHT_SPEED * SOLAR_LUMINOSITY
    total = light.surviving().T
    return {
        "axes/ages": (light.AGES, "yr"),
        "axes/metallicities": (light.METALLICITIES, "dimensionless"),
        "spectra/wavelength": (wavelength, "Å"),
        "spectra/incident": (per_hertz, "erg/(Hz*s)"),
        "star_fraction": (total - 0.1, "dimensionless"),
        "remnant_fraction": (np.full_like(total, 0.1), "dimensionless"),
        "log10_specific_ionising_luminosity/HI": (np.zeros(total.shape), "dimensionless"),
    }


def write_sample(folder, axes=("ages", "metallicities"), attributes=None, name=NAME, model=MODEL, **changed):
    """`changed`: (values, unit) by the dataset's path with '__' for '/'; None leaves one out."""
    path = folder / name
    content = datasets() | {key.replace("__", "/"): value for key, value in changed.items()}
    with h5py.File(path, "w") as file:
        file.attrs["axes"] = list(axes)
        file.attrs.update({"WeightVariable": "initial_masses", "synthesizer_version": "1.3.1"} | (attributes or {}))
        file.create_group("Model").attrs.update(model)
        for key, value in content.items():
            if value is not None:
                file[key] = value[0]
                file[key].attrs["Units"] = value[1]
    return path


def write_old_sample(folder):
    """A grid of an old version: ages as log10, other names of the axes and of the stars' light, no weight."""
    new = datasets()
    changed = {
        "axes__ages": None,
        "axes__metallicities": None,
        "axes__log10age": (np.log10(light.AGES), "dex(yr)"),
        "axes__metallicity": new["axes/metallicities"],
        "spectra__incident": None,
        "spectra__stellar": (new["spectra/incident"][0], "erg/s/Hz"),
        "spectra__wavelength": (new["spectra/wavelength"][0], "Angstrom"),
        "star_fraction": None,
        "remnant_fraction": None,
    }
    return write_sample(folder, axes=("log10age", "metallicity"), name="bpass-old.h5", model={}, **changed)
