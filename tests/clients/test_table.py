"""Every program in the table of docs/fits.md has all of every file right, its unit and position are those of the table.

`python tests/clients/write_table.py` makes the table anew.
"""

import warnings

import pytest
from seen import CLIENTS, faults, place
from write_table import TABLE, read_rows, rows_of


@pytest.fixture(scope="module")
def stores(client, mocks):
    """The files, and beside each its cube as a Zarr store."""
    client("zarr")
    for name in ("muse", "manga", "noiseless"):
        mocks[name].cube.write(mocks[name].path.with_suffix(".zarr"))
    return mocks


CASES = [(name, file) for name, own in CLIENTS.items() for file in own.files]


@pytest.mark.parametrize(("name", "file"), CASES)
def test_a_program_has_it_right(name, file, client, stores):
    own = CLIENTS[name]
    if own.package:
        client({"spectral-cube": "spectral_cube"}.get(own.package, own.package))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other projects
        seen = own.read(stores[file])
    assert faults(seen, stores[file]) == []
    (row,) = (row for row in read_rows() if row["program"] == name)
    if file == own.files[0]:
        assert (row["wavelength unit"], row["sky"]) == (seen.wave_unit or "not read", place(seen))


def test_a_wrong_axis_is_a_fault(mocks):
    """nGIST takes bins for even, so that it has those of a logarithmic cube wrong."""
    assert faults(CLIENTS["nGIST"].read(mocks["manga"]), mocks["manga"]) == ["wavelength"]


def test_the_table_has_every_program():
    assert TABLE.is_file()
    assert [row["program"] for row in read_rows()] == list(CLIENTS)
    assert len(rows_of(read_rows())) == len(CLIENTS)
