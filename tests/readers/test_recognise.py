"""Which simulation a file is of, and what is said where that cannot be told or was named wrongly."""

import h5py
import numpy as np
import pytest
from small_snapshots import SMALL, write_small
from snapshot_reading import open_hdf5

from rubix_like import ConfigError
from rubix_like.extend import load_field_map, resource_names
from rubix_like.readers.mapped_files import check_named, matches, recognise

MAPS = {name: load_field_map(name) for name in resource_names("simulations")}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small file of each simulation."""
    folder = tmp_path_factory.mktemp("small")
    return {name: write_small(folder / f"{name}.hdf5", name) for name in SMALL}


def named(path, name):
    with open_hdf5(path) as container:
        check_named(MAPS[name], container, "hdf5")


@pytest.mark.parametrize("name", SMALL)
def test_a_file_of_each_simulation_is_recognised(tmp_path, files, name):
    """By one field map only, those that are declared to give way left out; stars alone are enough."""
    with open_hdf5(files[name]) as container:
        assert recognise(container).name == name
        fitting = [other for other in MAPS if matches(MAPS[other], container, "hdf5")]
    assert set(fitting) - {name} <= set(MAPS[name].over)

    def change(file):
        if name == "simba":
            file["PartType4/Dust_Masses"] = file["PartType0/Dust_Masses"][()]
        del file["PartType0"]

    with open_hdf5(write_small(tmp_path / "a.hdf5", name, change)) as container:
        assert recognise(container).name == name


def test_suites_of_camels(tmp_path):
    """Whole snapshots are those of the codes: IllustrisTNG's without the run's name, and SIMBA's."""

    def change(file):
        file["Header"].attrs["BoxSize"] = 25000.0
        file["Header"].attrs["OmegaLambda"] = 0.7

    with open_hdf5(write_small(tmp_path / "tng.hdf5", "camels", change)) as container:
        assert recognise(container).name == "illustris"


def test_gizmo_with_the_marks_of_simba_is_simba_only_where_it_expands(tmp_path):
    """The isolated discs that are run with SIMBA's model launch winds as well."""

    def isolated(file):
        file["PartType0/NWindLaunches"] = np.zeros(4)
        file["Header"].attrs["Omega0"] = 0.0

    def cosmological(file):
        file["PartType0/NWindLaunches"] = np.zeros(4)

    with open_hdf5(write_small(tmp_path / "a.hdf5", "gizmo", isolated)) as container:
        assert recognise(container).name == "gizmo"
    with open_hdf5(write_small(tmp_path / "b.hdf5", "gizmo", cosmological)) as container:
        assert recognise(container).name == "simba"


@pytest.mark.parametrize("name", ["eagle", "magneticum", "horizon_agn"])
def test_an_unlabelled_file_is_not_guessed(tmp_path, name):
    """The three are told apart by the label only; named, it is read."""
    path = write_small(tmp_path / "a.hdf5", name, lambda file: file["Header"].attrs.pop("RunLabel"))
    with open_hdf5(path) as container, pytest.raises(ConfigError) as error:
        recognise(container)
    for word in ("is not recognised", "Header, PartType0, PartType4", f"{name}", "my_simulation.yaml"):
        assert word in str(error.value)
    named(path, name)


def test_a_group_catalogue_alone(tmp_path):
    with h5py.File(tmp_path / "groups.hdf5", "w") as file:
        file["Subhalo/SubhaloLenType"] = np.ones((3, 6), dtype=np.int32)
    with open_hdf5(tmp_path / "groups.hdf5") as container, pytest.raises(ConfigError, match=r"as galaxy\.catalogue"):
        recognise(container)


def test_two_kinds_that_fit(tmp_path):
    """The message names both, and naming one of them is enough."""

    def change(file):
        file["Header"].attrs["SimulationName"] = "TNG50-1"

    path = write_small(tmp_path / "a.hdf5", "eagle", change)
    with (
        open_hdf5(path) as container,
        pytest.raises(ConfigError, match=r"fits 2 kinds .*eagle and illustris; name one"),
    ):
        recognise(container)
    named(path, "eagle")
    named(path, "illustris")


WRONG = [
    ("eagle", "illustris"),
    ("illustris", "swift"),
    ("swift", "illustris"),
    ("gadget", "swift"),
    ("gadget", "illustris"),
    ("magneticum", "eagle"),
    ("eagle", "horizon_agn"),
    ("camels", "illustris"),
    ("simba", "camels"),
    ("gizmo", "simba"),
]


@pytest.mark.parametrize(("name", "of"), WRONG)
def test_another_simulation_named(files, name, of):
    with pytest.raises(ConfigError) as error:
        named(files[of], name)
    for word in ("galaxy.reader", MAPS[name].title, f"it looks like {of}", "leave galaxy.reader out"):
        assert word in str(error.value)


def test_what_may_be_named(files):
    """A simulation that is a plain file's more closely; a field map of one's own is not held against the known ones."""
    for name, of in (("gizmo", "gadget"), ("simba", "gizmo"), ("illustris", "gadget")):
        named(files[of], name)
    with open_hdf5(files["swift"]) as container:
        check_named(MAPS["illustris"].model_copy(update={"name": "my_run.yaml"}), container, "hdf5")


def test_a_file_without_particles(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file["Subhalo/SubhaloPos"] = np.zeros((4, 3))
    with pytest.raises(ConfigError, match=r"expected .* to have PartType4 or PartType0 \(EAGLE\), but .* Subhalo"):
        named(tmp_path / "a.hdf5", "eagle")
    with open_hdf5(tmp_path / "a.hdf5") as container, pytest.raises(ConfigError, match="the file has Subhalo"):
        recognise(container)
