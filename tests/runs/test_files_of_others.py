"""Files of others in the folders that commands write to, under names like those that are written: none is lost."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import main
from nebular_files import write_nebulabayes
from small import full_cube, make_cube, make_maps, muse
from small_results import fit_result, manifest_of, sample_result, some_simulations
from ssp_files import dsps

from rubix_like import ConfigError, fit, load_config, load_cube, load_simulations, sample
from rubix_like.extend import resource, save_figure, write_cube, write_page
from rubix_like.inference.simulation.simulation_files import open_folder, write_shard
from rubix_like.runtime import arrays_on_disk
from rubix_like.runtime.files.outputs import remove_stale

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 20, "seed": 1},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 5200, 50, fov="0.6 arcsec"),
    "engine": {"method": "direct", "velocity_range": 1000, "deposit": "nearest"},
    "noise": {"signal_to_noise": 30, "seed": 1},
    "fit": {"data": "data.fits", "free": {"galaxy.stellar_mass": {"log_uniform": [1e9, 1e11]}}, "starts": 1},
    "simulate": {"free": {"observation.inclination": {"uniform": [0, 90]}}, "n": 2, "shard": 1},
}
BESIDE = {
    "README": "notes",
    "cube_final.fits": "my cube",
    "fit_old.h5": "my fit",
    ".fit.h5.rubix-like-checkpoint-mine.npz": "my checkpoint",
    ".rubix-like-notes-cube.fits": "my notes",
    "simulations_nbody_final.h5": "my thesis",
    "simulations_run1.zarr/data": "my thesis",
    "simulations_7.h5": "my thesis",
    "simulations.csv": "my table",
    "records.txt": "my records",
    "results-2.npz": "my arrays",
    "my-cache": "my cache",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    Path("run.yaml").write_text(json.dumps(CONFIG))
    Path("list.csv").write_text("name,galaxy.seed\na,1\n")
    return tmp_path


def write(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_set(folder, n=7, files="hdf5"):
    """A set of seven simulations, one file; with a larger `n` the description says that there are more files."""
    folder.mkdir(exist_ok=True)
    made = some_simulations()
    manifest = dataclasses.replace(manifest_of(made, files), n=n)
    manifest.write(folder)
    write_shard(made, manifest, folder, 0)
    return manifest


def cube_of_this_run(folder, name):
    cube = full_cube()
    dataclasses.replace(cube, meta=cube.meta.replace(configuration="run")).write(folder / name)


REFUSED = {
    "run": (["run", "run.yaml", "--output", "cube.fits"], {"cube.fits": "mine"}),
    "run, within its store": (["run", "run.yaml", "--output", "cube.zarr"], {"cube.zarr/notes.txt": "mine"}),
    "catalogue": (["run", "run.yaml", "--catalogue", "list.csv", "--output", "many"], {"many/a.fits": "mine"}),
    "catalogue's summary": (
        ["run", "run.yaml", "--catalogue", "list.csv", "--output", "many"],
        {"many/summary.csv": "galaxy,mass\na,1\n"},
    ),
    "catalogue, not of its records": (
        ["run", "run.yaml", "--catalogue", "list.csv", "--output", "many", "--overwrite"],
        {"many/a.fits": "mine"},
    ),
    "catalogue's picture": (
        ["run", "run.yaml", "--catalogue", "list.csv", "--output", "many", "--overwrite", "--plot"],
        {"many/a.png": "mine"},
    ),
    "catalogue's record": (
        ["run", "run.yaml", "--catalogue", "list.csv", "--output", "many", "--overwrite"],
        {"many/records/a.json": "mine"},
    ),
    "fit": (["fit", "run.yaml", "--restart"], {"fit.h5": "mine"}),
    "fit's model": (["fit", "run.yaml", "--restart"], {"fit_model.fits": "mine"}),
    "sample": (["sample", "run.yaml", "--restart", "--output", "samples.h5"], {"samples.h5": "mine"}),
    "simulate": (["simulate", "run.yaml", "--output", ".", "--restart"], {}),
    "simulate, description": (["simulate", "run.yaml", "--output", "set", "--restart"], {"set/simulations.json": "{}"}),
    "new": (["new", "there.yaml"], {"there.yaml": "mine"}),
}


@pytest.mark.parametrize("command", REFUSED)
@pytest.mark.usefixtures("jax_settings")
def test_files_of_others_are_not_replaced(command, folder, capsys):
    """The command ends with one line, and every byte is as before."""
    words, texts = REFUSED[command]
    if command == "run, within its store":
        pytest.importorskip("zarr")
        cube_of_this_run(folder, "cube.zarr")
    write(folder, BESIDE | texts)
    before = contents(folder)
    assert main(words) == 2
    after = contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert capsys.readouterr().err.splitlines()[-1].startswith("rubix-like: ")
    assert not [name for name in after.keys() - before.keys() if not name.startswith("cache/")]


@pytest.mark.parametrize(
    "there", ["simulations_00001.h5", "simulations_00000.zarr/notes.txt", "simulations_00000.h5/a"]
)
def test_a_set_starts_anew_unless_files_of_others_have_its_names(there, tmp_path):
    """Nothing is removed before all is known to be the set's."""
    files = "zarr" if "zarr" in there else "hdf5"
    if files == "zarr":
        pytest.importorskip("zarr")
    manifest = write_set(tmp_path, files=files)
    if there.endswith("/a"):
        (tmp_path / "simulations_00000.h5").unlink()
    write(tmp_path, BESIDE | {there: "mine"})
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"expected no file .*simulations_0000[01].* which would be replaced"):
        open_folder(tmp_path, dataclasses.replace(manifest, n=14), 100, restart=True)
    assert contents(tmp_path) == before


def begin_anew(folder):
    manifest = write_set(folder)
    assert open_folder(folder, dataclasses.replace(manifest, n=5), 100, restart=True) == [0]
    assert not (folder / "simulations_00000.h5").exists()


def add_simulations(folder):
    manifest = write_set(folder)
    assert open_folder(folder, dataclasses.replace(manifest, n=14), 100) == [1]
    assert len(load_simulations(folder, 0, 7)) == 7


def clear_cache(folder):
    for kind in ("engine", "compiled"):
        write(folder / kind, BESIDE)
    arrays_on_disk.remembered("basis", "key", ("a",), lambda: {"a": np.zeros(3)})
    (folder / "compiled" / f"jit_f-{'0' * 64}-cache").write_bytes(b"program")
    assert main(["cache", "clear"]) == 0
    assert not list(folder.rglob("basis-key.npz"))
    assert contents(folder / "compiled").keys() == contents(folder / "engine").keys() == BESIDE.keys()


def evict(folder):
    write(folder / "engine", BESIDE)
    arrays_on_disk.remembered("basis", "key", ("a",), lambda: {"a": np.zeros(3)})
    assert contents(folder / "engine").keys() == BESIDE.keys() | {"basis-key.npz"}


def clean_up(folder):
    (folder / f".rubix-like-host-{'0' * 12}-cube.fits").write_text("half of it")
    assert remove_stale([folder / "cube.fits"]) == 1


@pytest.mark.parametrize("act", [begin_anew, add_simulations, clear_cache, evict, clean_up])
@pytest.mark.usefixtures("jax_settings")
def test_what_is_removed_is_known(act, tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    monkeypatch.setattr(arrays_on_disk, "LIMIT_BYTES", 0)
    write(tmp_path, BESIDE)
    act(tmp_path)
    after = contents(tmp_path)
    assert {name: after[name].decode() for name in BESIDE} == BESIDE


@pytest.mark.slow(20)
@pytest.mark.usefixtures("jax_settings")
def test_commands_leave_files_of_others_beside_theirs(folder):
    """Every command that writes, twice: the second time anew."""
    main(["run", "run.yaml", "--output", "data.fits"])
    write(folder, BESIDE)
    (folder / "set").mkdir()
    for again in ([], ["--restart"]):
        assert main(["simulate", "run.yaml", "--output", "set", *again]) == 0
        assert main(["fit", "run.yaml", "--overwrite", *again]) == 0
        write(folder / "set", BESIDE)
    for again in ([], ["--overwrite"], ["--redo"]):
        write(folder / "many", BESIDE)
        assert main(["run", "run.yaml", "--catalogue", "list.csv", "--output", "many", *again]) == 0
    for place in (folder, folder / "set", folder / "many"):
        after = contents(place)
        assert {name: after[name].decode() for name in BESIDE} == BESIDE
    assert load_config("run.yaml").simulate is not None


@pytest.mark.parametrize("call", [fit, sample])
def test_results_from_python_replace_no_file_of_others(folder, call):
    full_cube().write("data.fits")
    Path("thesis.h5").write_text("my thesis")
    config = load_config({key: CONFIG[key] for key in ("galaxy", "observation", "instrument", "engine", "fit")})
    with pytest.raises(ConfigError, match=r"'thesis.h5' is no file of rubix-like, .* overwrite=True"):
        call(config, output="thesis.h5")
    assert Path("thesis.h5").read_text() == "my thesis"
    full_cube().write("cube.h5")
    with pytest.raises(ConfigError, match=r"'cube.h5' is a cube, .* overwrite=True"):
        call(config, output="cube.h5")
    assert load_cube("cube.h5").shape == full_cube().shape


@pytest.mark.parametrize("call", [fit, sample])
def test_results_from_python_replace_no_result_of_another_configuration(folder, call, caplog):
    """Nor a cube of it; the old word for a new start works, with a note."""
    full_cube().write("data.fits")
    result = fit_result() if call is fit else sample_result()
    model = dataclasses.replace(result.model, meta=result.model.meta.replace(configuration="disc"))
    dataclasses.replace(result, model=model).write("there.h5")
    config = load_config({key: CONFIG[key] for key in ("galaxy", "observation", "instrument", "engine", "fit")})
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"'there.h5' was made by the configuration 'disc', .* overwrite=True"):
        call(config, output="there.h5", resume=False)
    assert "resume=False is called restart=True now" in caplog.text
    model.write("other_model.fits")
    with pytest.raises(ConfigError, match=r"'other_model.fits' was made by the configuration 'disc'"):
        call(config, output="other.h5")
    assert {name: content for name, content in contents(folder).items() if name in before} == before


def in_vacuum(cube):
    return dataclasses.replace(cube, bins=dataclasses.replace(cube.bins, medium="vacuum"))


WRITERS = {
    "FITS": ("a.fits", lambda path, **how: full_cube().write(path, **how)),
    "packed": ("a.fits.gz", lambda path, **how: full_cube().write(path, **how)),
    "HDF5": ("a.h5", lambda path, **how: full_cube().write(path, **how)),
    "MaNGA": ("a.fits", lambda path, **how: in_vacuum(full_cube()).write(path, layout="manga", **how)),
    "free function": ("a.fits", lambda path, **how: write_cube(full_cube(), path, **how)),
    "maps": ("a.fits", lambda path, **how: make_maps().write(path, **how)),
    "fit": ("a.h5", lambda path, **how: fit_result().write(path, **how)),
    "samples": ("a.h5", lambda path, **how: sample_result().write(path, **how)),
    "picture": ("a.png", lambda path, **how: save_figure(make_cube(), path, **how)),
    "page": ("a.html", lambda path, **how: write_page(make_cube(), path, **how)),
    "pictures of a fit": ("a_pulls.png", lambda _, **how: fit_result().plot("a", **how)),
    "pictures of samples": ("a_trace.png", lambda _, **how: sample_result().plot("a", **how)),
}


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.usefixtures("folder")
def test_what_is_written_in_python_replaces_its_kind_alone(case):
    name, write_file = WRITERS[case]
    path = Path(name)
    for content in (b"mine", Path(resource("data", "popstar")).read_bytes()):
        path.write_bytes(content)
        there = sorted(Path().iterdir())
        with pytest.raises(ConfigError, match=rf"path: '{name}' is .*; to replace it give overwrite=True"):
            write_file(name)
        assert (path.read_bytes(), sorted(Path().iterdir())) == (content, there)
    write_file(name, overwrite=True)
    begin = path.read_bytes()[:4]
    assert begin != b"mine"
    assert begin != content[:4] or name.endswith(".h5")  # the library is HDF5, too
    if not case.startswith("pictures"):
        write_file(name)  # a cell of a notebook is run again
        assert path.read_bytes()[:4] == begin


PICTURES = {
    "cube": (["plot", "data.fits"], ["data_plot.png"]),
    "page": (["plot", "data.fits", "--html"], ["data.html"]),
    "chosen name": (["plot", "data.fits", "--output", "a.svg"], ["a.svg"]),
    "fit": (["plot", "fit.h5"], ["fit_spectra.png", "fit_pulls.png"]),
    "samples": (["plot", "samples.h5", "--output", "s.svg"], ["s_corner.svg"]),
    "maps": (["plot", "maps.fits", "--output", "m.png"], ["m.png"]),
}


@pytest.mark.parametrize("case", PICTURES)
@pytest.mark.usefixtures("jax_settings", "folder")
def test_pictures_replace_no_file_of_others(case, capsys):
    words, names = PICTURES[case]
    made = {"data.fits": make_cube, "fit.h5": fit_result, "samples.h5": sample_result, "maps.fits": make_maps}
    made[words[1]]().write(words[1])
    for name in names:
        Path(name).write_text("mine")
        assert main(words) == 2
        assert f"'{name}' is no file of rubix-like, and this is a picture; to replace it give --overwrite" in (
            capsys.readouterr().err
        )
        assert Path(name).read_text() == "mine"
        Path(name).rename(f"old_{name}")
    for name in names:
        Path(f"old_{name}").rename(name)
    assert main([*words, "--overwrite"]) == 0
    assert all(Path(name).read_bytes() != b"mine" for name in names)
    if case in {"cube", "page"}:
        assert main(words) == 0  # its own picture is replaced


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["run", "run.yaml", "--output", "cube.fits", "--plot"], "cube.png"),
        (["fit", "run.yaml", "--plot"], "fit_maps.png"),
        (["sample", "run.yaml", "--plot", "--output", "s.h5"], "s_trace.png"),
    ],
)
@pytest.mark.usefixtures("jax_settings", "folder")
def test_pictures_of_others_are_found_before_a_run_begins(words, name, capsys):
    Path(name).write_text("mine")
    assert main(words) == 2
    assert f"'{name}' is no file of rubix-like" in capsys.readouterr().err
    assert Path(name).read_text() == "mine"


@pytest.mark.parametrize(
    ("kind", "write_source", "change"),
    [
        ("ssp", dsps.write_sample, {"ssp_flux": 2 * dsps.datasets()["ssp_flux"]}),
        ("nebular", write_nebulabayes, {"Halpha": np.full(8, 3.0)}),
    ],
)
@pytest.mark.usefixtures("jax_settings")
def test_imports_replace_nothing_that_came_from_elsewhere(kind, write_source, change, folder, capsys):
    (folder / "one").mkdir()
    (folder / "other").mkdir()
    one, other = str(write_source(folder / "one")), str(write_source(folder / "other", **change))
    target = folder / "cache" / kind / "mine.h5"
    assert main([kind, "import", one, "--name", "mine"]) == 0
    before = target.read_bytes()
    assert main([kind, "import", one, "--name", "mine"]) == 0
    capsys.readouterr()
    assert main([kind, "import", other, "--name", "mine"]) == 2
    assert "to replace it give --overwrite, to keep it another name (--name ...)" in capsys.readouterr().err
    assert target.read_bytes() == before
    assert main([kind, "import", other, "--name", "mine", "--overwrite"]) == 0
    assert target.read_bytes() != before
    target.write_bytes(before[: len(before) // 2])
    assert main([kind, "import", one, "--name", "mine"]) == 0  # a damaged one is imported again, as its message says
    target.write_text("my notes")
    assert main([kind, "import", one, "--name", "mine"]) == 2
    assert target.read_text() == "my notes"
