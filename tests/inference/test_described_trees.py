"""A dataclass whose fields say what they mean is written to HDF5 and read back, whatever its fields are."""

import dataclasses
from collections.abc import Mapping
from dataclasses import field

import h5py
import numpy as np
import pytest
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from small import make_cube

from rubix_like import Cube
from rubix_like.inference.described_trees import described_as, read_tree, write_tree


@dataclasses.dataclass(frozen=True)
class Rings:
    """Described fields of every kind, and one that is not described, which stays out of the file."""

    radius: Float[ndarray, " ring"] = field(metadata=described_as("middle of each ring", "kpc"))
    mass: Float[ndarray, "ring part"] = field(metadata=described_as("mass of its parts", "Msun"))
    count: Int[ndarray, " ring"] = field(metadata=described_as("stars in it"))
    full: Bool[ndarray, " ring"] = field(metadata=described_as("whether it is complete"))
    name: str = field(metadata=described_as("of the galaxy"))
    n_ring: int = field(metadata=described_as("rings"))
    width: float = field(metadata=described_as("of a ring"))
    closed: bool = field(metadata=described_as("whether the first one reaches the centre"))
    cache: object = None


RINGS = Rings(np.array([0.5, 1.5]), np.ones((2, 3)), np.array([4, 5]), np.array([True, False]), "toy", 2, 1.0, True)


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "rings.h5", "w") as opened:
        write_tree(RINGS, opened)
        yield opened


def test_a_tree_is_read_back_equal_in_values_and_types(file):
    read = Rings(**read_tree(Rings, file))
    for own in dataclasses.fields(Rings):
        one, other = getattr(RINGS, own.name), getattr(read, own.name)
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    assert {name: file["radius"].attrs[name] for name in ("unit", "description")} == {
        "unit": "kpc",
        "description": "middle of each ring",
    }
    assert file["radius"].dims[0].label == "ring"
    assert set(file) | set(file.attrs) == {own.name for own in dataclasses.fields(Rings)} - {"cache"}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("count", np.ones(2), r"/count: expected int numbers of shape \(2\), got float64 of shape \(2,\)"),
        ("count", np.ones(3, int), r"/count: expected int numbers of shape \(2\), got int64 of shape \(3,\)"),
        ("mass", np.ones(2), r"/mass: expected float numbers of shape \(2, part\), got float64 of shape \(2,\)"),
        ("radius", np.array([b"a", b"b"]), r"/radius: expected numbers, got \|S1"),
    ],
)
def test_what_does_not_fit_the_annotations_is_refused(file, name, values, message):
    del file[name]
    file[name] = values
    with pytest.raises(ValueError, match=message):
        read_tree(Rings, file)


def test_sizes_that_are_known_are_held_to(file):
    with pytest.raises(ValueError, match=r"/radius: expected float numbers of shape \(7\), got float64"):
        read_tree(Rings, file, {"ring": 7})


def test_what_is_missing_is_a_key_error(file):
    del file["full"]
    with pytest.raises(KeyError):
        read_tree(Rings, file)


@dataclasses.dataclass(frozen=True)
class Peak:
    """A tree within another one, which shares its group with an array; `label` is not described."""

    label: str
    height: Float[ndarray, " ring"] = field(metadata=described_as("height at each ring"))
    width: float = field(metadata=described_as("width"))


@dataclasses.dataclass(frozen=True)
class Named:
    """A member of a mapping, whose labels are its name."""

    labels: tuple[str, ...]
    number: float = field(metadata=described_as("a number"))


@dataclasses.dataclass(frozen=True)
class Survey:
    """Fields that hold others."""

    place: Float[ndarray, " ring"] = field(metadata=described_as("places", "kpc", at="peak/place"))
    peak: Peak | None = field(metadata=described_as("a peak"))
    cube: Cube | None = field(metadata=described_as("a cube"))
    tables: Mapping[str, Float[ndarray, " ring"]] = field(metadata=described_as("tables"))
    texts: dict[str, str] = field(metadata=described_as("texts"))
    named: Mapping[str, Named] = field(default_factory=dict, metadata=described_as("numbers by name"))
    scale: float = field(default=2.0, metadata=described_as("a scale"))


FULL = Survey(
    np.array([1.0, 2.0]),
    Peak("high", np.array([3.0, 4.0]), 0.5),
    make_cube(),
    {"b": np.zeros(2), "a": np.ones(2)},
    {"jax": "0.9", "empty": ""},
    {"first": Named(("first",), 1.5)},
)
EMPTY = Survey(np.array([1.0, 2.0]), None, None, {}, {})


@pytest.mark.parametrize("survey", [FULL, EMPTY])
def test_trees_cubes_and_mappings_are_groups(survey, tmp_path):
    with h5py.File(tmp_path / "survey.h5", "w") as file:
        write_tree(survey, file)
        found = Survey(**read_tree(Survey, file, {"ring": 2}, label="high"))
    np.testing.assert_array_equal(found.place, survey.place)
    assert list(found.tables) == list(survey.tables)
    assert (found.texts, found.named, found.scale) == (survey.texts, survey.named, survey.scale)
    assert [found.peak is None, found.cube is None] == [survey.peak is None, survey.cube is None]
    if survey.peak is not None:
        assert found.peak.label == "high"
        np.testing.assert_array_equal(found.peak.height, survey.peak.height)
        np.testing.assert_array_equal(found.cube.flux, survey.cube.flux)


def test_axes_are_the_same_in_mappings(tmp_path):
    with h5py.File(tmp_path / "survey.h5", "w") as file:
        write_tree(dataclasses.replace(FULL, tables={"a": np.ones(3)}), file)
        with pytest.raises(ValueError, match=r"/tables/a: expected float numbers of shape \(2\)"):
            read_tree(Survey, file, label="high")


@pytest.mark.parametrize("missing", ["place", "height"])
def test_a_tree_that_is_there_in_part_is_a_key_error(missing, tmp_path):
    """Also of one that may be None."""
    with h5py.File(tmp_path / "survey.h5", "w") as file:
        write_tree(FULL, file)
        del file[f"peak/{missing}"]
        with pytest.raises(KeyError, match=f"/peak/{missing} is missing"):
            read_tree(Survey, file, label="high")
