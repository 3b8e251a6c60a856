"""A small file in the layout of pyPipe3D's templates."""

import numpy as np
from astropy.io import fits
from ssp_files import light

WAVELENGTH = 3622.0 + 1.5 * np.arange(2600)
NORM_WAVELENGTH = 5500.0
METALLICITIES = {"004": 0.004, "008": 0.008, "02": 0.02}


def templates(medium="vacuum"):
    """Names, light (template, rest) in Lsun/Angstrom/Msun, ages slowest."""
    grid = light.spectra(WAVELENGTH, medium)
    names, rows = [], []
    for index, age in enumerate(light.AGES):
        for number, decimals in enumerate(METALLICITIES):
            names.append(f"spec_ssp_{age / 1e9:.4f}_z{decimals}.spec")
            rows.append(grid[number, index])
    return names, np.array(rows)


def write_sample(folder, medium="vacuum", name="MaStar_CB19.slog_1_5.fits.gz", **cards):
    """`cards`: in place of the header's own; None leaves one out."""
    names, rows = templates(medium)
    norms = np.array([np.interp(NORM_WAVELENGTH, WAVELENGTH, row) for row in rows])
    unit = fits.PrimaryHDU(np.float32(rows / norms[:, np.newaxis]))
    own = {"CRVAL1": WAVELENGTH[0], "CDELT1": 1.5, "CRPIX1": 1, "WAVENORM": NORM_WAVELENGTH}
    own |= {f"NAME{index}": text for index, text in enumerate(names)}
    own |= {f"NORM{index}": float(norm) for index, norm in enumerate(norms)}
    unit.header.update({key: value for key, value in (own | cards).items() if value is not None})
    path = folder / name
    unit.writeto(path)
    return path
