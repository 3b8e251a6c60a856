"""Writes small snapshots in HDF5."""

import h5py


def write_snapshot(path, groups, header):
    """A file with the attributes of the Header and, by group, datasets by name. Returns the path."""
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        for group, table in groups.items():
            file.create_group(group)
            for name, values in table.items():
                file[f"{group}/{name}"] = values
    return path
