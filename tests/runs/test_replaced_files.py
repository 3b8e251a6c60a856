"""Which files a run replaces: its own configuration's; others only when told to."""

import dataclasses
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from small import full_cube, make_maps
from small_results import fit_result, sample_result

from rubix_like import ConfigError, load_config
from rubix_like.extend import resource
from rubix_like.inference.results.results import check_results
from rubix_like.runs.run_files import check_replaced
from rubix_like.runtime.files.writers import FIT, written_by_us

BASE = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "1 arcsec"}}
NAMED = {**BASE, "output": {"configuration": "disc"}}


def cube_of(configuration):
    cube = full_cube()
    return dataclasses.replace(cube, meta=cube.meta.replace(configuration=configuration))


def write_cube(path, configuration):
    layout = path.partition(":")[2] or "default"
    cube = cube_of(configuration)
    if layout == "manga":
        cube = dataclasses.replace(cube, bins=dataclasses.replace(cube.bins, medium="vacuum"))
    cube.write(path.partition(":")[0], layout=layout)


@pytest.mark.parametrize(
    ("path", "there", "config", "words"),
    [
        ("cube.fits", None, NAMED, ""),
        ("cube.fits", "disc", NAMED, ""),
        ("cube.fits", "disc", {**NAMED, "observation": {"redshift": 0.1}}, ""),
        ("cube.fits.gz", "disc", NAMED, ""),
        ("cube.h5", "disc", NAMED, ""),
        ("cube.fits:manga", "disc", NAMED, ""),
        ("cube.fits", "", BASE, ""),
        ("cube.fits", "other", NAMED, "was made by the configuration 'other'.* this is the configuration 'disc'"),
        ("cube.fits.gz", "other", NAMED, "by the configuration 'other'"),
        ("cube.h5", "other", NAMED, "by the configuration 'other'"),
        ("cube.fits:manga", "other", NAMED, "by the configuration 'other'"),
        ("cube.fits", "", NAMED, "by a configuration without a name"),
        ("cube.fits", "disc", BASE, "this is a configuration without a name"),
    ],
)
def test_cubes(path, there, config, words):
    if there is not None:
        write_cube(path, there)
    check(config, path.partition(":")[0], words)


def check(config, path, words):
    if not words:
        check_replaced(load_config(config), Path(path))
        return
    with pytest.raises(ConfigError, match=words) as found:
        check_replaced(load_config(config), Path(path))
    assert "overwrite=True" in str(found.value)
    assert "output=..." in str(found.value)


@pytest.mark.parametrize(("content", "words"), [(b"SIMPLE  = my notes", "is no file of rubix-like"), (b"", "")])
def test_other_files(tmp_path, content, words):
    path = tmp_path / "cube.fits"
    path.write_bytes(content)
    check(NAMED, path, words)


def test_a_fit_or_library_is_no_cube(tmp_path):
    shutil.copy(resource("data", "popstar"), tmp_path / "cube.h5")
    check(BASE, tmp_path / "cube.h5", "is an SSP library, and this is a cube")


def test_what_goes_beside_a_cube(tmp_path):
    """Its maps and its truth, and the cubes of pointings."""
    maps = make_maps()
    dataclasses.replace(maps, meta=maps.meta.replace(configuration="other")).write(tmp_path / "cube_maps.fits")
    check(NAMED, tmp_path / "cube.fits", "")
    check({**NAMED, "products": {"losvd": None}}, tmp_path / "cube.fits", "cube_maps.fits' was made by")
    write_cube(str(tmp_path / "cube_truth.fits"), "other")
    noise = {"signal_to_noise": 5, "keep_truth": True}
    check({**NAMED, "noise": noise}, tmp_path / "cube.fits", "cube_truth.fits' was made by")
    write_cube(str(tmp_path / "cube_2.fits"), "other")
    pointings = {"redshift": 0.05, "pointings": [{"offset": [0, 0]}, {"offset": [1, 0]}]}
    check({**NAMED, "observation": pointings}, tmp_path / "cube.fits", "cube_2.fits' was made by")


@pytest.mark.parametrize("suffix", ["fits", "h5"])
def test_names_of_any_letters(tmp_path, suffix):
    name = "scheibe-größe " + "x" * 80
    cube_of(name).write(tmp_path / f"cube.{suffix}")
    assert written_by_us(tmp_path / f"cube.{suffix}").configuration
    check({**BASE, "output": {"configuration": name}}, tmp_path / f"cube.{suffix}", "")


def test_a_configuration_has_the_name_of_its_file(tmp_path):
    assert load_config("quickstart").output.configuration == "quickstart"
    path = tmp_path / "mine.yaml"
    path.write_text(load_config(BASE).to_yaml())
    mine = load_config(path, overrides={"observation.redshift": 0.1})
    assert mine.output.configuration == "mine"
    assert load_config(mine, overrides={"output.path": "b.fits"}).output.configuration == "mine"
    path.write_text(mine.to_yaml())
    assert load_config(path) == mine
    assert load_config(BASE).output.configuration is None


@pytest.mark.parametrize(
    ("name", "there", "words"),
    [
        ("fit_model.fits", "disc", ""),
        ("fit_model.fits", "other", "by the configuration 'other'"),
        ("fit.h5", "disc", "is a cube"),
        ("fit.h5", None, "is no file of rubix-like"),
    ],
)
def test_files_of_a_fit(tmp_path, name, there, words):
    if there is None:
        (tmp_path / name).write_bytes(b"my notes")
    else:
        write_cube(str(tmp_path / name), there)
    files = tmp_path / "fit.h5", [tmp_path / "fit_model.fits"]
    with pytest.raises(ConfigError, match=words) if words else nullcontext():
        check_results(FIT, *files, load_config(NAMED).output.configuration, "output", overwrite=False)


@pytest.mark.parametrize("result", [fit_result(), sample_result()], ids=["fit", "sampling"])
def test_results_name_their_configuration(tmp_path, result):
    """So that the same configuration replaces them, and no other."""
    model = dataclasses.replace(result.model, meta=result.model.meta.replace(configuration="disc"))
    path = dataclasses.replace(result, model=model).write(tmp_path / "result.h5")
    kind = written_by_us(path).kind
    check_results(kind, path, [], load_config(NAMED).output.configuration, "output", overwrite=False)
    with pytest.raises(ConfigError, match="by the configuration 'disc', and this is a configuration without a name"):
        check_results(kind, path, [], load_config(BASE).output.configuration, "output", overwrite=False)
