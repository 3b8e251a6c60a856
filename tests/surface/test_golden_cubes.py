"""The cubes of eight configurations have the numbers that they had (`golden_cubes.py`), on 8 devices as on one."""

import pytest
from golden_cubes import NAMES, differences, observe, stored_numbers


@pytest.mark.parametrize("name", NAMES)
def test_cubes_are_as_they_were(name, tmp_path):
    assert differences(observe(name, tmp_path), stored_numbers(name)) == []
