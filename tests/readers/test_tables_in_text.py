"""Tables of stars as people write them: separators, units in brackets or in a row, SKIRT's columns, VOTable, npy."""

import numpy as np
import pytest
from astropy.table import Table
from snapshot_reading import reader_of

N = 60
RNG = np.random.default_rng(0)
NAMES = ["x", "y", "z", "vx", "vy", "vz", "mass", "age", "metallicity"]
UNITS = ["kpc", "kpc", "kpc", "m/s", "m/s", "m/s", "Msun", "Myr", "-"]
SKIRT_NAMES = ["position x", "position y", "position z", "velocity x", "velocity y", "velocity z", *NAMES[6:]]
AGE = RNG.uniform(1e3, 9e3, N)
ROWS = np.column_stack(
    [RNG.normal(0, 3, (N, 3)), RNG.normal(0, 1e5, (N, 3)), np.full(N, 1e6), AGE, np.full(N, 0.02)]
)  # fmt: skip


def check(path):
    stars = reader_of(path=path).load()[0].stars
    np.testing.assert_allclose(10 ** np.asarray(stars.log_age) / 1e6, AGE, rtol=1e-4)
    for found, columns, scale in ((stars.position, ROWS[:, :3], 1.0), (stars.velocity, ROWS[:, 3:6], 1e-3)):
        relative = np.asarray(found) - np.asarray(found)[0]
        np.testing.assert_allclose(relative, scale * (columns - columns[0]), atol=1e-2)


def bracketed(opening, closing):
    return [
        f"{name} {opening}{unit}{closing}" if unit != "-" else name for name, unit in zip(NAMES, UNITS, strict=True)
    ]


SEPARATORS = {".csv": ",", ".txt": " ", ".tsv": "\t", ".dat": ";", ".tab": "|"}
HEADS = {
    "brackets": lambda mark: [mark.join(bracketed("[", "]"))],
    "parentheses": lambda mark: [mark.join(bracketed("(", ")"))],
    "row": lambda mark: [mark.join(NAMES), mark.join(UNITS)],
}


@pytest.mark.parametrize(
    ("ending", "head"),
    [
        *((".txt", head) for head in HEADS),
        (".csv", "brackets"),
        (".csv", "row"),
        (".tsv", "row"),
        (".dat", "parentheses"),
        (".tab", "row"),
    ],
)
def test_separators_and_units(tmp_path, ending, head):
    mark = SEPARATORS[ending]
    lines = [*HEADS[head](mark), *(mark.join(f"{value:.9g}" for value in row) for row in ROWS)]
    (tmp_path / f"stars{ending}").write_text("\n".join(lines) + "\n")
    check(tmp_path / f"stars{ending}")


def test_comments_name_the_columns(tmp_path):
    """As numpy.savetxt writes a header, and as SKIRT's text files have them."""
    np.savetxt(tmp_path / "stars.dat", ROWS, header=" ".join(bracketed("[", "]")))
    check(tmp_path / "stars.dat")
    columns = [
        f"# Column {number}: {name} ({'1' if unit == '-' else unit})"
        for number, (name, unit) in enumerate(zip(SKIRT_NAMES, UNITS, strict=True), start=1)
    ]
    lines = ["# stars of a galaxy", *columns, *(" ".join(f"{value:.9g}" for value in row) for row in ROWS)]
    (tmp_path / "skirt.txt").write_text("\n".join(lines) + "\n")
    check(tmp_path / "skirt.txt")


@pytest.mark.parametrize(("name", "format_"), [("stars.vot", "votable"), ("stars.fits", "fits")])
def test_astropy_writes_them(tmp_path, name, format_):
    units = {name: unit for name, unit in zip(NAMES, UNITS, strict=True) if unit != "-"}
    table = Table(dict(zip(NAMES, ROWS.T, strict=True)), units=units)
    if format_ == "fits":  # units in the names: their slash is no path
        table = Table(dict(zip(bracketed("[", "]"), ROWS.T, strict=True)))
    table.write(tmp_path / name, format=format_)
    check(tmp_path / name)


def test_structured_arrays(tmp_path):
    array = np.rec.fromarrays([*ROWS[:, :3].T, *(1e-3 * ROWS[:, 3:6]).T, ROWS[:, 6], np.log10(AGE) + 6, ROWS[:, 8]],
                              names=[*NAMES[:7], "log_age", "metallicity"])  # fmt: skip
    np.save(tmp_path / "stars.npy", array)
    check(tmp_path / "stars.npy")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("oops", "vx: expected numbers, got 'oops' in row 30; correct or leave out that row"),
        ("1,2", r"expected 9 entries .*, got 10 in row 30; correct or leave out that row"),
    ],
)
def test_a_bad_row_is_named(tmp_path, entry, words):
    lines = [",".join(NAMES), ",".join(UNITS), *(",".join(f"{value:.9g}" for value in row) for row in ROWS)]
    fields = lines[31].split(",")
    lines[31] = ",".join([*fields[:3], entry, *fields[4:]])
    (tmp_path / "stars.csv").write_text("\n".join(lines))
    with pytest.raises((ValueError, OSError), match=words):
        reader_of(path=tmp_path / "stars.csv").load()
