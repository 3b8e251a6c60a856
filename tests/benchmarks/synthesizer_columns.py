"""Columns by Synthesizer's tree; dust_columns.py runs it in an environment that has cosmos-synthesizer.

    python tests/benchmarks/synthesizer_columns.py IN.npz OUT.npz

IN holds `stars` and `gas` (kpc), `dust` (Msun) and `length` (kpc), where kernels end; OUT the columns in front of all
stars (Msun / kpc^2) and the processor seconds that they take in one thread.
"""

import sys
import time

import numpy as np
from synthesizer.kernel_functions import Kernel
from synthesizer.particle import Gas, Stars
from unyt import Msun, kpc, yr


def main(source: str, target: str) -> None:
    """Read the particles, write their columns."""
    with np.load(source) as data:
        given = {name: data[name] for name in ("stars", "gas", "dust", "length")}
    n_gas, n_stars = len(given["gas"]), len(given["stars"])
    gas = Gas(
        masses=np.ones(n_gas) * Msun,
        metallicities=np.ones(n_gas),
        coordinates=given["gas"] * kpc,
        smoothing_lengths=given["length"] * kpc,
        dust_masses=given["dust"] * Msun,
    )
    stars = Stars(
        initial_masses=np.ones(n_stars) * Msun,
        ages=np.ones(n_stars) * yr,
        metallicities=np.ones(n_stars),
        coordinates=given["stars"] * kpc,
    )
    kernel = Kernel("cubic")
    start = time.process_time()
    columns = stars.get_los_column_density(gas, "dust_masses", kernel)
    seconds = time.process_time() - start
    np.savez(target, columns=columns.to_value(Msun / kpc**2), seconds=seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
