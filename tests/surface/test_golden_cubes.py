"""The cubes of eight configurations have the numbers that they had (`golden_cubes.py`), on 8 devices as on one."""

import numpy as np
import pytest
from golden_cubes import NAMES, differences, observe, stored_numbers


@pytest.mark.parametrize("name", NAMES)
def test_cubes_are_as_they_were(name, tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))  # tables there may be of other code
    assert differences(observe(name, tmp_path), stored_numbers(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_change_of_1e_5_is_seen(name):
    """As of a physical constant."""
    stored = stored_numbers(name)
    assert differences(stored, stored) == []
    for what in stored.keys() - {"mask"}:
        assert differences(stored | {what: stored[what] * np.float64(1 + 1e-5)}, stored)


@pytest.mark.parametrize(("n_moved", "n_count", "is_same"), [(1, 1, True), (1, 2, False), (2, 1, False)])
def test_few_photon_numbers_may_be_other_ones_by_one(n_moved, n_count, is_same):
    """1 of 1600 by one electron: of 25.4 m2 in 1 h, in 50 Angstrom at 9000 Angstrom (hc in erg Angstrom)."""
    stored, number = stored_numbers("nirspec"), 20
    throughput = np.interp(9000, [7721, 9036], [0.3477, 0.3252])
    electrons = 25.4e4 * 3600 * 50 * throughput * 1e-20 / (1.986445857e-8 / 9000)
    flux = stored["flux"].astype(float)
    flux.reshape(-1, 25)[:n_moved, number] += n_count / electrons
    assert (differences(stored | {"flux": flux}, stored) == []) == is_same
