"""What a run's settings stand for is read and worked out once a run."""

import h5py
import numpy as np
import pytest

from rubix_like import load_config
from rubix_like.extend import Progress, WavelengthBins
from rubix_like.forward import resolved as resolved_module
from rubix_like.runs.run import prepare
from rubix_like.ssp import library as library_module

COLUMNS = {
    "position": {"column": ["x", "y", "z"], "unit": "kpc"},
    "velocity": {"column": ["vx", "vy", "vz"], "unit": "km/s"},
    "metallicity": {"column": "Z"},
    "mass": {"column": "m", "unit": "Msun"},
    "age": {"column": "t", "unit": "Gyr"},
}


@pytest.fixture
def config(tmp_path):
    """A run of 40 stars whose table lacks masses at birth, with noise of an exposure's detector bins."""
    rng = np.random.default_rng(1)
    with h5py.File(tmp_path / "stars.hdf5", "w") as file:
        for name in ("x", "y", "z", "vx", "vy", "vz"):
            file[f"stars/{name}"] = rng.normal(size=40)
        for name, value in (("m", 1e8), ("t", 5.0), ("Z", 0.02)):
            file[f"stars/{name}"] = np.full(40, value)
    detector = {"collecting_area": 2.0, "throughput": 0.25, "read_noise": 4.0, "dark_current": 7.2}
    return load_config(
        {
            "galaxy": {"reader": "table", "path": str(tmp_path / "stars.hdf5"), "columns": COLUMNS},
            "observation": {"redshift": 0.01, "align": "none"},
            "instrument": {
                **{"name": "muse", "fov": "0.4 arcsec", "psf": None, "lsf": None, "detector": detector},
                "wavelength": {"start": 5000, "stop": 5020, "step": 5},
            },
            "engine": {"method": "direct", "slab": "all"},
            "noise": {"exposure": {"time": "600 s", "sky": "none"}},
        }
    )


@pytest.mark.parametrize("slab", [pytest.param("all", marks=pytest.mark.slow), 20])
def test_a_run_reads_its_library_and_builds_its_bins_once(config, slab, monkeypatch):
    """Although reading, counting and planning need them; no distance is worked out twice either."""
    calls = []

    def counted(name, function):
        return lambda *arguments: (calls.append(name), function(*arguments))[1]

    monkeypatch.setattr(library_module, "_IN_MEMORY", {})  # other tests may hold the library
    monkeypatch.setattr(library_module, "read_table", counted("library", library_module.read_table))
    monkeypatch.setattr(WavelengthBins, "build", counted("bins", WavelengthBins.build))
    name = "observed_distance"
    monkeypatch.setattr(resolved_module, name, counted("distance", getattr(resolved_module, name)))
    with prepare(load_config(config, overrides={"engine.slab": slab}), Progress()) as prepared:
        assert "surviving fraction" in prepared.info.initial_mass or "equal" in prepared.info.initial_mass
    assert sorted(calls) == ["bins", "distance", "library"]
