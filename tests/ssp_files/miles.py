"""A small folder in the layout of E-MILES: one FITS file per age and metallicity, 0.9 A steps."""

import numpy as np
from astropy.io import fits
from ssp_files import light

METALS = (("m0.71", 0.004), ("m0.40", 0.008), ("p0.00", 0.019))
WAVELENGTH = 4000.0 + 0.9 * np.arange(3000)
COMMENTS = ("= '# Type of sampling:    linear'", "= '# Spectral resolution: 2.51 - 23.57 (Angstroms) FWHM'")


def write_spectrum(path, spectrum, **cards):
    unit = fits.PrimaryHDU(np.asarray(spectrum, dtype=np.float32))
    unit.header.update({"CRVAL1": 4000.0, "CDELT1": 0.9, "CRPIX1": 1} | cards)
    for comment in COMMENTS:
        unit.header["COMMENT"] = comment
    unit.writeto(path, overwrite=True)


def name(metal, age, begin="Eun1.30", end="_iPp0.00_baseFe"):
    return f"{begin}Z{metal}T{age / 1e9:07.4f}{end}.fits"


def write_sample(folder, **name_parts):
    """The folder of spectra, `e-miles` in `folder`; `name_parts`: `begin` and `end` of the names."""
    path = folder / "e-miles"
    path.mkdir()
    grid = light.spectra(WAVELENGTH, "air", metallicities=[z for _, z in METALS])
    for (metal, _), by_age in zip(METALS, grid, strict=True):
        for age, spectrum in zip(light.AGES, by_age, strict=True):
            write_spectrum(path / name(metal, age, **name_parts), spectrum)
    return path


def write_masses(folder, fraction=0.7):
    """The table of masses with M(*+remn) = fraction - 0.01 age / Gyr at every metallicity."""
    rows = ["#IMF slope [M/H] Age Mtotal M(*+remn) M* Mremn Mgas"]
    for metal in (-0.7052, -0.3960, 0.0):
        for age in light.AGES / 1e9:
            rows.append(f"UN  1.30 {metal:.4f} {age:.4f} 1.0000 {fraction - 0.01 * age:.4f} 0.5 0.1 0.3")
            rows.append(f"UN  2.30 {metal:.4f} {age:.4f} 1.0000 0.9900 0.5 0.1 0.3")
    path = folder / "ssp_mass_Padova00_UN_baseFe_v10.0.txt"
    path.write_text("\n".join(rows))
    return path
