"""A small file in the layout of pPXF's templates."""

import numpy as np
from ssp_files import light

METALS = {
    "emiles": [-0.71, -0.40, 0.0],
    "fsps": [-0.5, -0.25, 0.15],
    "galaxev": [-0.7, -0.4, 0.0],
    "xsl": [-0.6, -0.2, 0.1],
}
FIRST = {"emiles": 1680.2, "fsps": 91.0, "galaxev": 91.0, "xsl": 3500.0}
MEDIUM = {"emiles": "air", "fsps": "vacuum", "galaxev": "air", "xsl": "air"}


def arrays(name="emiles"):
    wavelength = light.wavelengths(FIRST[name], 24000.0)
    return {
        "templates": np.transpose(light.spectra(wavelength, MEDIUM[name]), (2, 1, 0)),
        "masses": light.surviving().T,
        "lam": wavelength,
        "ages": light.AGES / 1e9,
        "metals": np.array(METALS[name]),
        "fwhm": np.full_like(wavelength, 2.51),
    }


def write_sample(folder, name="emiles", **changed):
    """`changed`: arrays in place of the file's own; None leaves one out."""
    path = folder / f"spectra_{name}_9.0.npz"
    content = {**arrays(name), **changed}
    np.savez_compressed(path, **{key: value for key, value in content.items() if value is not None})
    return path
