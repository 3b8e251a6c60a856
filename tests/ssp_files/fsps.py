"""A stand-in for python-fsps' `StellarPopulation`: what of it is used, on a small grid."""

import numpy as np
from ssp_files import light
from ssp_files.dsps import LIGHT_SPEED


class StellarPopulation:
    """`stellar_mass` is that of the metallicity asked for last, as in python-fsps."""

    def __init__(self, **params):
        self.zcontinuous = params.pop("zcontinuous", 0)
        defaults = {"sfh": 0, "zred": 0.0, "dust1": 0.0, "dust2": 0.0, "dust3": 0.0, "fagn": 0.0}
        imf = {"imf_type": 2, "imf1": 1.3, "imf2": 2.3, "imf3": 2.3, "imf_lower_limit": 0.08, "imf_upper_limit": 120}
        self.params = defaults | imf | {"add_neb_emission": False} | params
        self.zlegend = light.METALLICITIES
        self.solar_metallicity = 0.0142
        self.ssp_ages = np.log10(light.AGES)
        self.wavelengths = light.wavelengths(91.0, 1e6)
        self.resolutions = np.where(np.abs(self.wavelengths - 5500.0) < 1000.0, 60.0, -1000.0)
        self.libraries = (b"mist", b"miles", b"DL07")
        self.asked = 0

    @property
    def stellar_mass(self):
        return light.surviving()[0] - 0.01 * self.asked

    def get_spectrum(self, zmet):
        self.asked = zmet
        spectrum = light.spectra(self.wavelengths, metallicities=[self.zlegend[zmet - 1]])[0]
        return self.wavelengths, spectrum * self.wavelengths**2 / LIGHT_SPEED
