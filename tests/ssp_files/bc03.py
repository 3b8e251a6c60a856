"""A small set of files in the layout of GALAXEV's text files (.ised_ASCII), as its program ascii_ised writes them."""

import gzip

import numpy as np
from ssp_files import light

CODES = {"42": 0.004, "52": 0.008, "62": 0.02}
AGES = np.concatenate([[0.0, 1e5], light.AGES])
WAVELENGTH = light.wavelengths(91.0, 24000.0, step=20.0)
LIVING = np.array([1.0, 1.0, 0.80, 0.72, 0.66, 0.58, 0.50])
REMNANTS = np.array([0.0, 0.0, 0.04, 0.07, 0.09, 0.11, 0.13])


def spectra(metallicity):
    """(age, rest); the first two rows, at 0 and 0.1 Myr, are alike."""
    grown = light.spectra(WAVELENGTH, ages=[1e5, *light.AGES], metallicities=[metallicity])[0]
    return grown[[0, *range(len(grown))]]


def row(values):
    """One record: its length, and the numbers, six on a line."""
    words = [f"{value:.7E}" for value in values]
    lines = ["  ".join(words[start : start + 6]) for start in range(0, len(words), 6)]
    return f"{len(words):8d}  " + "\n ".join(lines) + "\n"


def content(metallicity, age=AGES, wavelength=WAVELENGTH, light_by_age=None, living=LIVING, remnants=REMNANTS):
    """The text of one file."""
    light_by_age = spectra(metallicity) if light_by_age is None else light_by_age
    label = f"BC_SSP Padova 1994, IMF, X=0.7000,Y=0.2800,Z={metallicity:.4f}"
    head = "  0.10000E+00  0.10000E+03    2\n  0.3 0.1 0.5 0.0 0.5 1.0   1.3 0.5 100. 0.0 0.2 1.0\n"
    parameters = "  1.00000E+00 0.5 0.6   0  0.0 0.0 0.0 1.0 1.0  -2 T\n"
    text = row(age) + head + parameters + f"{label}\n" * 3 + row(wavelength)
    for spectrum in light_by_age:
        text += row(spectrum) + row([0.0, 1.0])
    other = np.zeros(len(age))
    return text + "".join(row(r) for r in [other, living, *[other] * 7, remnants, other, other])


def file_name(code, kind="lr_BaSeL", imf="chab"):
    return f"bc2003_{kind}_m{code}_{imf}_ssp.ised_ASCII"


def write_sample(folder, kind="lr_BaSeL", imf="chab", compress=False):
    """The folder of files, `bc03` in `folder`."""
    path = folder / "bc03"
    path.mkdir(exist_ok=True)
    for code, metallicity in CODES.items():
        text = content(metallicity).encode()
        name = file_name(code, kind, imf)
        (path / f"{name}.gz").write_bytes(gzip.compress(text)) if compress else (path / name).write_bytes(text)
    return path


def write_sample_file(folder):
    """One file of the folder of files."""
    return write_sample(folder) / file_name("62")
