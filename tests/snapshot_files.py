"""Writes small snapshots in HDF5."""

import h5py
import numpy as np


def write_snapshot(path, groups, header):
    """A file with the attributes of the Header and, by group, datasets by name. Returns the path."""
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        for group, table in groups.items():
            file.create_group(group)
            for name, values in table.items():
                file[f"{group}/{name}"] = values
    return path


def write_cutout(path):
    """A cut-out of IllustrisTNG with four stars that a run can use. Returns the path."""
    header = {"Redshift": 0.25, "Time": 0.8, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "BoxSize": 35000.0}
    stars = {
        "Coordinates": 100.0 + np.arange(12.0).reshape(4, 3) ** 2,
        "Velocities": np.arange(12.0).reshape(4, 3),
        "Masses": np.full(4, 1e-4),
        "GFM_InitialMass": np.full(4, 2e-4),
        "GFM_Metallicity": np.full(4, 0.02),
        "GFM_StellarFormationTime": np.array([0.1, 0.2, 0.4, 0.7]),
    }
    return write_snapshot(path, {"PartType4": stars}, header)
