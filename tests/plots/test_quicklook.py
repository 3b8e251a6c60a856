"""The picture and the words at the end of a run."""

import re
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image, rcParams
from small import make_cube
from thread_team import run_team, values_of

from rubix_like import ConfigError, Counters
from rubix_like.cube.cube_parts import Part, sums_of, total_flux
from rubix_like.extend import Meta, in_parts
from rubix_like.plots.figure import save_quicklook
from rubix_like.runs.run_summary import summary_lines


def rotating_disc(n: int = 15, **changes):
    row, column = np.mgrid[:n, :n] - (n - 1) / 2
    light = np.exp(-np.hypot(row, column) / 3)
    spectrum = 1 + 0.1 * np.sin(np.arange(50))
    fields = {
        "flux": (light[..., None] * spectrum).astype(np.float32),
        "mask": np.zeros((n, n, 50), np.int32),
        "mean_v_los": np.where(light > 0.05, -100.0 * column, np.nan),
        "meta": Meta({"object": "disc", "redshift": 0.05, "luminosity_distance": 230.0, "inclination": 30.0}),
        **changes,
    }
    return make_cube(n, n, 50, **fields)


def test_white_light_is_the_sum_over_good_bins():
    cube = make_cube()
    expected = np.sum(np.asarray(cube.flux, np.float64) * 1.25 * (np.asarray(cube.mask) == 0), axis=2)
    np.testing.assert_allclose(sums_of(cube).light, expected, rtol=1e-12)
    assert total_flux(cube) == pytest.approx(expected.sum(), rel=1e-6)


def test_picture_shows_the_receding_side_in_red_on_the_left(tmp_path):
    """Drawn of the whole cube, and by process 0 of three from all their parts: the same picture."""
    cube, before = rotating_disc(variance=np.full((15, 15, 50), 0.01, np.float32)), dict(rcParams)
    path = save_quicklook(cube, tmp_path / "cube.png")
    assert [file.name for file in tmp_path.iterdir()] == ["cube.png"]
    assert dict(rcParams) == before
    picture = image.imread(path)[..., :3]
    height, width, _ = picture.shape
    assert min(height, width) > 800
    right = picture[: height // 2, 11 * width // 20 : 17 * width // 20]  # the second image, without its colour bar
    red = np.argwhere(right[..., 0] > right[..., 2] + 0.3)[:, 1]
    blue = np.argwhere(right[..., 2] > right[..., 0] + 0.3)[:, 1]
    assert min(len(red), len(blue)) > 1000
    assert np.median(red) < np.median(blue)

    def draw(team):
        first, last = team.share(50)
        part = Part(first, *(np.asarray(values)[:, :, first:last] for values in (cube.flux, cube.variance)))
        return save_quicklook(replace(in_parts(cube), parts=(part,)), tmp_path / "parts.png", team)

    assert values_of(run_team(3, draw)) == [tmp_path / "parts.png"] * 3
    np.testing.assert_array_equal(image.imread(tmp_path / "parts.png")[..., :3], picture)


PARTLY = np.where(np.arange(50) < 10, 1, 2 * (np.arange(225) % 2).reshape(15, 15, 1)).astype(np.int32)
ODD = {
    "no light": rotating_disc(flux=np.zeros((15, 15, 50), np.float32), mean_v_los=np.full((15, 15), np.nan)),
    "all masked, no velocity, no meta": rotating_disc(
        mean_v_los=None, mask=np.ones((15, 15, 50), np.int32), meta=Meta()
    ),
    "partly masked": rotating_disc(mask=PARTLY),
    "one voxel": make_cube(1, 1, 1),
}


@pytest.mark.parametrize("cube", ODD.values(), ids=ODD)
def test_picture_of_odd_cubes(tmp_path, cube):
    assert save_quicklook(cube, tmp_path / "cube.png").stat().st_size > 10_000


def test_picture_in_a_missing_folder(tmp_path):
    with pytest.raises(OSError, match="does not exist"):
        save_quicklook(rotating_disc(), tmp_path / "none" / "cube.png")


@pytest.mark.usefixtures("without_matplotlib")
def test_missing_matplotlib_names_the_extra(tmp_path):
    with pytest.raises(ConfigError, match=re.escape("pip install 'rubix-like[plots]'")):
        save_quicklook(rotating_disc(), tmp_path / "cube.png")
    assert issubclass(ConfigError, ValueError)


def test_summary_of_a_clean_run(tmp_path):
    cube = make_cube(mask=jnp.zeros((3, 5, 4), jnp.int32), counters=Counters(n_particles=10, mass_total=1e10))
    text = "\n".join(summary_lines(cube, tmp_path / "cube.fits", {"load": 1.234, "run": 0.5}))
    assert str(tmp_path / "cube.fits") in text
    assert "5 x 3 spaxels of 0.2 arcsec, 4 bins from 4749.90 to 4754.90 Angstrom (air, linear)" in text
    total = np.asarray(cube.flux, np.float64).sum() * 1.25e-20
    assert f"Total flux {total:.4g} erg/s/cm2, brightest voxel {np.asarray(cube.flux).max() * 1e-20:.4g}" in text
    assert "load 1.23 s, run 0.5 s" in text
    assert "No noise" in text
    assert "stars" not in text
    assert "masked" not in text


def test_summary_names_the_exposure(tmp_path):
    meta = {"exposure_time": 900.0, "exposure_count": 4, "sky": "dark", "noise_model": "Poisson and read-out"}
    cube = make_cube(variance=jnp.ones((3, 5, 4)), meta=Meta(meta))
    text = "\n".join(summary_lines(cube, tmp_path / "deep.fits", {}))
    assert "Noise: 4 x 900 s under the sky 'dark' (Poisson and read-out)" in text


@pytest.mark.parametrize(("reader", "noun"), [("arepo", "stars"), ("components", "quadrature points")])
def test_summary_names_what_was_left_out(tmp_path, reader, noun):
    cube = make_cube(
        mask=jnp.zeros((3, 5, 4), jnp.int32).at[..., 0].set(1).at[0].add(2),
        variance=jnp.ones((3, 5, 4)),
        counters=Counters(100, 3, 0, 7, 1e9, 0.0, 2.5e9, 1e10, 2, 1),
        meta=Meta(
            {
                "signal_to_noise": 50.0,
                "signal_to_noise_definition": "median of the brightest spaxel",
                "galaxy_reader": reader,
            }
        ),
    )
    lines = summary_lines(cube, tmp_path / "a cube.fits", {})
    text = "\n".join(lines)
    assert f"3 of 100 {noun} (10 % of the mass) are outside the field" in text
    assert f"7 of 100 {noun} (25 % of the mass) are poorer or richer" in text
    assert "younger" not in text
    assert "1 of 4 bins lie outside the SSP library: masked (DQ 1)" in text
    assert "5 of 15 spaxels lie outside the aperture: masked (DQ 2)" in text
    assert "Noise: S/N 50 (median of the brightest spaxel)" in text
    assert not any(line.startswith("Time") for line in lines)
    assert f"rubix-like plot '{tmp_path / 'a cube.fits'}' --html" in text
    assert f"ds9 '{tmp_path / 'a cube.fits'}[DATA]'" in text


@pytest.mark.parametrize(
    ("name", "layout", "opens", "refuses"),
    [
        ("cube.h5", "default", ["rubix-like plot", "Cube.read", "h5py.File"], ["ds9", "mpdaf", "[DATA]"]),
        ("cube.fits", "manga", ["fits.open"], ["rubix-like plot", "Cube.read", "ds9", "mpdaf"]),
    ],
)
def test_summary_names_only_what_opens_the_file(tmp_path, name, layout, opens, refuses):
    text = "\n".join(summary_lines(make_cube(), tmp_path / name, {}, layout))
    assert all(words in text for words in opens)
    assert not any(words in text for words in refuses)


def test_summary_names_the_ends_of_a_degraded_cube(tmp_path):
    cube = make_cube(mask=jnp.zeros((3, 5, 4), jnp.int32).at[..., 3].set(4))
    text = "\n".join(summary_lines(cube, tmp_path / "cube.fits", {}))
    assert "1 of 4 bins hold light spread from beyond the detector: masked (DQ 4)" in text
