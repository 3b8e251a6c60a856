"""Make data/skies/infrared.fits from the sky of HSIM (see data/README.md).

    python data/make_infrared_sky.py radiance.txt.gz transmission.txt.gz

Both files are in hsim/sim_data/sky of the repository HARMONI-ELT/HSIM on GitHub; their checksums are compared with the
pinned ones.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
from astropy.table import Table
from make_skies import write

from rubix_like.instrument.sky import bin_means

SHA256 = {
    "radiance": "51fc07e29bcc7040a4f5dd74ac2952626e6ff731c1eb7033c7d3accfd5297167",
    "transmission": "68b00fe58c33206b8daf5f35546b98f60a51518cc5fe9ef60353e8d8cc1a267f",
}

FIRST, LAST, STEP = 8000.0, 24990.0, 1.25  # Angstrom
AIRMASS_COLUMN = 1  # 1.1, the lowest of the table


def main() -> None:
    columns = {}
    grid = np.arange(FIRST, LAST + STEP / 2, STEP)
    edges = np.append(grid, grid[-1] + STEP) - STEP / 2
    for (name, checksum), path in zip(SHA256.items(), map(Path, sys.argv[1:]), strict=True):
        if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
            raise SystemExit(f"{path}: expected sha256 {checksum}")
        table = np.loadtxt(path, delimiter=",", usecols=(0, AIRMASS_COLUMN))
        columns[name] = bin_means(1e4 * table[:, 0], table[:, 1], edges)
    sky = {"wavelength": grid, "emission": columns["radiance"], "transmission": columns["transmission"]}
    write(Table(sky), "infrared")


if __name__ == "__main__":
    main()
