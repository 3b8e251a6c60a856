"""The frame of a galaxy and its selection, found slab by slab and by several processes, are those of the whole."""

import h5py
import numpy as np
import pytest
from snapshot_files import write_snapshot
from thread_team import run_team, values_of

import rubix_like as rl
from rubix_like.centering import completing_half, half_mass_radius, shrinking_sphere, unwrap
from rubix_like.readers import first_pass, frame, load, open_galaxy
from rubix_like.readers import rows as rows_module
from rubix_like.readers.first_pass import HeldStars, StoredStars
from rubix_like.readers.frame import find_frame
from rubix_like.readers.hdf5 import Hdf5Container
from rubix_like.readers.rows import Rows, filtered, where
from rubix_like.readers.snapshot import SnapshotReader
from rubix_like.team import ALONE
