"""Observe a snapshot of as many stars as asked for, slab by slab, in a process of its own.

Called as `python tests/peak_memory.py FOLDER N_STARS SLAB`; prints the stars painted and the peak memory in kB.
"""

import sys
from pathlib import Path

import h5py
import numpy as np

BLOCK = 1 << 18


def write(path, count):
    """The same 262,144 stars of a disc again and again."""
    rng = np.random.default_rng(1)
    position = rng.normal(size=(BLOCK, 3)) * [3.0, 3.0, 0.5]
    birth = rng.uniform(0.1, 0.8, BLOCK).astype(np.float32)
    mass = rng.uniform(1e-5, 2e-5, BLOCK).astype(np.float32)
    columns = {
        "Coordinates": (position + 5e4).astype(np.float32),
        "Velocities": (60 * np.stack([-position[:, 1], position[:, 0], 0 * birth], axis=1)).astype(np.float32),
        "Masses": mass,
        "GFM_InitialMass": 2 * mass,
        "GFM_Metallicity": rng.uniform(0, 0.04, BLOCK).astype(np.float32),
        "GFM_StellarFormationTime": birth,
    }
    header = {"BoxSize": 1e5, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 0.25, "Time": 0.8}
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        for name, block in columns.items():
            dataset = file.create_dataset(f"PartType4/{name}", (count, *block.shape[1:]), block.dtype)
            for first in range(0, count, BLOCK):
                dataset[first : first + BLOCK] = block[: count - first]


def main(folder, count, slab):
    path = Path(folder) / f"snap_{count}.hdf5"
    write(path, count)
    config = {
        "galaxy": {"reader": "illustris", "path": path},
        "observation": {"redshift": 0.1, "inclination": 40, "position_angle": 0},
        "instrument": {"name": "muse", "fov": "2 arcsec", "wavelength": {"start": 4800, "stop": 5000}},
        "engine": {"method": "basis", "slab": slab},
        "devices": {"data": 1},
    }
    from rubix_like import load_config  # noqa: PLC0415 (what is imported counts, too)
    from rubix_like.extend import Progress  # noqa: PLC0415
    from rubix_like.runs.run import compute  # noqa: PLC0415

    cube = compute(load_config(config), Path(folder) / f"cube_{count}.fits", Progress()).cube
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(cube.counters.n_particles), int(peak.split()[1]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
