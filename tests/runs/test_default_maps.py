"""Maps that a run makes unasked: where they are cheap, and what switches them on and off."""

from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from small import muse

import rubix_like as rl
from rubix_like import ConfigError, load_config
from rubix_like.runs.run_files import missing_maps_lines, output_files, with_asked_maps, with_default_maps

OBSERVATION = {"redshift": 0.05}


def config(fov=6.0, **others):
    sections = {"observation": OBSERVATION, "instrument": muse(4750, 9350, 1.25, fov=fov)}
    return load_config(sections | others)


@pytest.mark.parametrize(
    ("changes", "made", "words"),
    [
        ({}, True, ""),
        ({"output": {"maps": None}}, True, ""),
        ({"output": {"maps": False}}, False, ""),
        ({"fov": 0.8}, False, "they would take"),
        ({"fov": 0.8, "output": {"maps": True}}, True, ""),
        ({"fov": 0.8, "output": {"maps": "here.fits"}}, True, ""),
        ({"instrument": muse(5000, 5300, 1.25, fov=6.0)}, False, "they would take"),
        ({"observation": {"redshift": 0.05, "pointings": [{}, {"offset": [1, 1]}]}}, False, "several pointings"),
        ({"devices": {"output": "sharded"}}, False, "spread over the devices"),
        ({"pipeline": "lines", "lines": {"wavelengths": "Ha"}}, False, "paints no stars"),
    ],
)
def test_which_runs_make_maps(changes, made, words):
    """By the rule, worked out by hand: 31 planes or so beside 3681 of the cube, and 400 kB of headers."""
    found = with_default_maps(config(**changes))
    assert (found.products is not None) == made
    file = output_files(found, Path("cube.fits"))[-1]
    assert (file.maps is not None) == made
    lines = missing_maps_lines(found)
    assert bool(lines) == bool(words)
    assert words in "".join(lines)
    if made:
        assert found.products.losvd is None
        assert with_default_maps(found) == found


@pytest.mark.parametrize(("maps", "made"), [("auto", False), (True, True), ("m.fits", True), (False, False)])
def test_catalogues_make_maps_where_they_are_asked_for(maps, made):
    assert (with_asked_maps(config(output={"maps": maps})).products is not None) == made


def test_own_products_are_kept():
    own = {"filters": ["sdss2010-r"]}
    for maps, written in (("auto", "cube_maps.fits"), (True, "cube_maps.fits"), ("m.fits", "m.fits"), (False, None)):
        found = with_default_maps(config(fov=0.8, products=own, output={"maps": maps}))
        assert found.products.filters == ("sdss2010-r",)
        assert found.products.losvd is not None
        for cube in ("cube.fits", "cube.fits.gz"):
            file = output_files(found, Path(cube))[-1].maps
            assert (None if file is None else file.name) == written


@pytest.mark.parametrize("value", ["maps.png", "no", 3])
def test_what_is_no_file_of_maps_is_refused(value):
    with pytest.raises(ConfigError, match=r"output\.maps"):
        config(output={"maps": value})


@pytest.mark.slow(4)
def test_a_run_names_its_maps(capsys):
    """In its steps and at its end; the file has the images, the cube the map by its short name; another's is kept."""
    sections = {
        "galaxy": {"reader": "synthetic", "n_stars": 300},
        "observation": OBSERVATION,
        "instrument": muse(fov="0.8 arcsec"),
        "engine": {"deposit": "nearest"},
        "output": {"maps": True},
    }
    cube = rl.run(sections, quiet=False)
    shown = capsys.readouterr()
    assert "writing cube.fits and cube_maps.fits" in shown.out + shown.err
    assert "Maps written to cube_maps.fits" in shown.out + shown.err
    with fits.open("cube_maps.fits") as hdus:
        names = {hdu.name for hdu in hdus}
        light = hdus["LIGHT"].data
        velocity = hdus["V_LIGHT"].data
    assert {"LIGHT", "V_LIGHT", "SIGMA_LIGHT", "AGE_LIGHT", "METALLICITY_LIGHT", "MASS", "DQ"} <= names
    np.testing.assert_allclose(light, np.asarray(cube.flux).sum(axis=2) * 10.0, rtol=2e-2)
    np.testing.assert_allclose(cube.map("velocity").value, velocity, rtol=1e-6)
    np.testing.assert_array_equal(rl.load_cube("cube.fits").map("velocity").value, velocity.astype(np.float64))
    other = sections | {"output": {"maps": True, "path": "other.fits", "configuration": "other"}}
    Path("cube_maps.fits").rename("other_maps.fits")
    with pytest.raises(ConfigError, match=r"other_maps\.fits"):
        rl.run(other)
    Path("cube.fits").rename("else.fits")
    Path("else_maps.fits").write_text("no maps")
    assert rl.load_cube("else.fits").maps is None
