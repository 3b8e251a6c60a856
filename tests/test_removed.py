"""Settings and files of version 0.2.0 that went are refused in one sentence, and nothing of theirs is deleted."""

import json

import h5py
import numpy as np
import pytest
from command_line import main
from small_results import sample_result

import rubix_like as rl

SETTINGS = [
    ("output.path", "cube.parquet", "write a cube as .h5, .zarr or .fits"),
    ("fit.optimiser.learning_rate", "0.1", "leave it out: lbfgs finds the length of its steps"),
    ("fit.optimiser.name", "adam", "take lbfgs, or optax on rl.log_posterior, as docs/own-inference.md shows"),
    ("fit.optimiser.name", "gauss_newton", "take levenberg_marquardt"),
    ("fit.sampling.method", "mgvi", "take geovi, or nuts"),
    ("fit.sampling.method", "nested", "run dynesty or nautilus on rl.log_posterior, as docs/own-inference.md shows"),
    ("fit.sampling.nested.live", "20", "run dynesty or nautilus on rl.log_posterior, as docs/own-inference.md shows"),
    ("simulate.files", "parquet", "write hdf5 or zarr"),
]
"""Key, value, and what to do now."""


@pytest.mark.parametrize(("key", "value", "remedy"), SETTINGS, ids=[f"{key}={value}" for key, value, _ in SETTINGS])
def test_settings_that_went_name_the_way_to_do_it_now(key, value, remedy, capsys):
    assert main(["run", "quickstart", "--set", f"{key}={value}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "was removed after version 0.2.0" in line
    assert ".".join(key.split(".")[:3]) in line
    assert line.endswith(remedy)


def parquet_cube(folder):
    """A table with the metadata of a cube of 0.2.0."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    known = {"format": json.dumps("rubix_like cube"), "wavelength": json.dumps(np.arange(3000.0).tolist())}
    path = folder / "cube.parquet"
    parquet.write_table(arrow.table({"x": np.arange(4)}).replace_schema_metadata(known), path)
    return path


def parquet_set(folder):
    (folder / "simulations.json").write_text(
        json.dumps(
            {"format": "rubix_like simulations", "layout": 1, "creator": "", "n": 1, "shard": 1, "fingerprint": {}}
            | {"parameters": {}, "config": "", "files": "parquet"}
        )
    )
    return folder


def npz_galaxy(folder):
    path = folder / "galaxy.npz"
    np.savez(path, x=np.arange(4.0))
    return path


def mgvi_samples(folder):
    path = sample_result().write(folder / "samples.h5")
    with h5py.File(path, "a") as file:
        file.attrs["method"] = "mgvi"
    return path


FILES = {
    "cube in Parquet": (parquet_cube, rl.load_cube),
    "cube in Parquet as a galaxy": (parquet_cube, lambda path: rl.load_galaxy(str(path))),
    "samples of MGVI": (mgvi_samples, rl.SampleResult.read),
    "training set in Parquet": (parquet_set, rl.load_simulations),
    "galaxy in npz": (npz_galaxy, lambda path: rl.load_galaxy(str(path))),
}
"""What it is -> what writes it into a folder, what reads it."""


@pytest.mark.parametrize("name", FILES)
def test_files_that_went_name_the_version_that_reads_them(name, tmp_path):
    write, read = FILES[name]
    path = write(tmp_path)
    before = {place: place.read_bytes() for place in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"0\.2\.0 reads") as refused:
        read(path)
    assert "\n" not in str(refused.value)
    assert {place: place.read_bytes() for place in tmp_path.iterdir()} == before


def test_defaults_that_results_of_earlier_versions_record_pass():
    recorded = {
        "fit.sampling.nested": {"live": 250, "tolerance": 0.1, "draws": 1000},
        "fit.optimiser.learning_rate": 0.05,
    }
    config = rl.load_config("fit_synthetic", overrides=recorded)
    assert config.fit == rl.load_config("fit_synthetic").fit


def test_inspecting_a_file_that_went(tmp_path, capsys):
    assert main(["inspect", str(parquet_cube(tmp_path))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "0.2.0 reads" in line
