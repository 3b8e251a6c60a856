"""Print the rows of `COEFFICIENTS` in rubix_like/nebular/case_b.py: fits to the tables of Storey & Hummer 1995.

    python data/make_case_b.py pyneb-1.1.32-py3-none-any.whl

The tables (CDS VI/64) are read from a wheel of PyNeb, which carries them; only the fits go into the package. Each row
ends with the fit's worst error at 3000-30000 K and 100-1e4 cm^-3.
"""

import io
import sys
import zipfile

import h5py
import numpy as np

from rubix_like.nebular.case_b import powers

TEMPERATURE = np.array([3000.0, 5000.0, 7500.0, 10000.0, 12500.0, 15000.0, 20000.0, 30000.0])
DENSITY = 10.0 ** np.arange(2, 5)
SERIES = {"H": (2, range(3, 13)), "Pa": (3, range(4, 13)), "Br": (4, range(5, 8))}
GREEK = "abgd"


def main() -> None:
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        image = io.BytesIO(wheel.read("pyneb/atomic_data_fits/h_i_rec_SH95.hdf5"))
        totals = wheel.read("pyneb/atomic_data/h_i_trc_SH95-caseB.dat").decode().splitlines()
    with h5py.File(image) as file:
        table = file["updated_data"][:3]
    emissivity = {name: table[name][:, 2:] for name in table.dtype.names if "_" in name}
    recombination = np.array([[float(word) for word in line.split()] for line in totals[4:12]]).T[:3]
    print_row("emissivity of Hb", emissivity["4_2"] / 1e-25)
    print_row("recombination", recombination / 1e-13)
    for series, (lower, uppers) in SERIES.items():
        for upper in uppers:
            place = upper - lower - 1
            name = series + (GREEK[place] if place < len(GREEK) else str(upper))
            if name != "Hb":
                print_row(name, emissivity[f"{upper}_{lower}"] / emissivity["4_2"])


def print_row(name: str, values: np.ndarray) -> None:
    terms = powers(TEMPERATURE[None, :] + 0 * DENSITY[:, None], DENSITY[:, None] + 0 * TEMPERATURE[None, :])
    coefficients = np.linalg.lstsq(terms.reshape(len(terms), -1).T, np.log(values).ravel(), rcond=None)[0]
    error = np.abs(np.exp(np.tensordot(coefficients, terms, 1)) / values - 1).max()
    print(f'    "{name}": ({", ".join(f"{value:.5f}" for value in coefficients)}),  # {100 * error:.2f} %')


if __name__ == "__main__":
    main()
