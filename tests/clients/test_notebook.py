"""The notebook that fits a cube with pPXF runs with pPXF, and finds the velocities of its galaxy.

The dispersions of this galaxy are less than a bin of MaNGA, and its young stars have few lines: how well pPXF finds
dispersions is measured in test_ppxf.py, where both are under control.
"""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import run_notebooks
from notebook_pages import NOTEBOOKS
from small_cutout import write_cutout

from rubix_like.extend import cache_directory

(PAGE,) = (page for page in NOTEBOOKS if page.stem == "2-cutout-to-ppxf")


@pytest.mark.slow(20)
def test_the_cells_of_ppxf_run(client, tmp_path: Path) -> None:
    client("ppxf.ppxf")
    if not (cache_directory() / "ssp" / "bc03-miles.h5").is_file() and not os.environ.get("CI"):
        pytest.skip("bc03-miles is not in the cache (rubix-like ssp get bc03-miles)")
    mpl.use("Agg")
    write_cutout(tmp_path / "cutout.hdf5", n_stars=20_000)
    values = dict(run_notebooks.SMALL[PAGE.stem]) | {"library": "bc03-miles", "field": "4 arcsec", "stop": 5600}
    found = list(run_notebooks.run_page(PAGE, values))
    assert not [ran.skipped for ran in found if ran.skipped]
    assert sum(len(ran.pictures) for ran in found) == 1
    words = next(ran.text for ran in found if "pPXF - truth" in ran.text)
    off = {line.partition(":")[0]: float(line.split()[4]) for line in words.splitlines() if "truth" in line}
    assert abs(off["V"]) < 3
    assert np.isfinite(list(off.values())).all()
