"""Readers of snapshots from their settings, and the rows of a file as they leave it."""

from contextlib import contextmanager

from counting_container import Counting

from rubix_like import load_config
from rubix_like.readers.containers.hdf5 import open_hdf5
from rubix_like.readers.containers.snapshot_files import open_container
from rubix_like.readers.fields.epoch import read_epoch
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.mapped_files import open_snapshot

__all__ = ["open_container", "open_hdf5", "open_snapshot", "opened_by", "reader_of", "watched"]


@contextmanager
def opened_by(field_map, path):
    """An HDF5 file read by this field map, whatever the file is."""
    with open_hdf5(path) as container:
        yield Snapshot(container, field_map, read_epoch(container, field_map))


def watched(snapshot, asked):
    """The snapshot; what is read of its file is listed in `asked`."""
    return Snapshot(Counting(snapshot.container, asked), snapshot.field_map, snapshot.epoch)


def reader_of(settings=None, /, **more):
    """The reader of a section `galaxy` with these settings: its `load()` gives the galaxy as the file has it."""
    return load_config(
        {
            "galaxy": {"reader": "auto", **(settings or {}), **more},
            "observation": {"redshift": 0.05},
            "instrument": {"name": "muse"},
        }
    ).galaxy
