"""`inspect`, `info`, `plot`, `plot --html` and `check` on cubes that no program of ours wrote."""

import json

import matplotlib.image
import numpy as np
import pytest
import yaml
from command_line import main
from small import FLUX, MUSE, TWO_FREE, image, muse, small_disc, write_fits

import rubix_like as rl


@pytest.fixture
def path(tmp_path):
    """A cube of two IFUs without a unit, of which the second is meant: every option is needed."""
    cards = MUSE | {"BUNIT": None, "CTYPE3": "LAMBDA", "CUNIT1": "steps", "CUNIT2": "steps"}
    parts = {"IFU.1.DATA": FLUX, "IFU.2.DATA": 2 * FLUX, "IFU.2.NOISE": np.full_like(FLUX, 4.0)}
    return str(write_fits(tmp_path / "cube.fits", *(image(data, cards, name) for name, data in parts.items())))


STATED = {"hdu": "IFU.2.DATA", "units": "1E-20 ERG/S/CM2/A", "medium": "air", "pixel_scale": 0.2}
OPTIONS = [word for key, value in STATED.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def test_inspect(path, capsys):
    assert main(["info", path, *OPTIONS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = 2 * np.median(FLUX)
    assert found["facts"]["kind"] == "observed cube"
    assert f"median {expected:.4g}" in found["facts"]["flux"]
    assert f"S/N per voxel {expected / 4:.3g}" in found["facts"]["variance"]
    assert any("pixel_scale 0.2 arcsec as given" in line for line in found["summary"])
    assert main(["inspect", path]) == 2
    assert "give --hdu, the name" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "more"), [("cube.png", []), ("cube.html", ["--html"])])
def test_plot(path, tmp_path, capsys, name, more):
    output = tmp_path / name
    assert main(["plot", path, *OPTIONS, *more, "--output", str(output), "--spaxel", "1,2"]) == 0
    assert str(output) in capsys.readouterr().out
    assert output.stat().st_size > 10_000
    if not more:
        assert matplotlib.image.imread(output).std() > 0.05


def test_the_figure_of_an_observed_cube(path):
    """The spectrum of a spaxel, drawn, is its flux where it is used."""
    observed = rl.read_observed(path, **STATED)
    observed.used[2, 1, 0] = False
    lines = [line for axes in observed.plot([(1, 2)]).axes for line in axes.get_lines() if len(line.get_xdata()) == 5]
    (drawn,) = [np.asarray(line.get_ydata(), float) for line in lines]
    np.testing.assert_allclose(drawn, [np.nan, *2 * FLUX[1:, 2, 1]])


def test_check_reads_the_data_of_a_fit(path, tmp_path, capsys, jax_settings):
    fit = TWO_FREE | {"data": path} | {f"data_{key}": value for key, value in STATED.items()}
    config = small_disc(200) | {"instrument": muse(), "output": {"path": str(tmp_path / "out.fits")}, "fit": fit}
    (tmp_path / "fit.yaml").write_text(yaml.safe_dump(config))
    assert main(["check", str(tmp_path / "fit.yaml")]) == 0
    text = capsys.readouterr().out
    assert "ObservedCube(4 x 3 spaxels of 0.2 arcsec, 5 bins from 4749.38 to 4755.62 Angstrom (air)" in text
    assert "\nfit         takes grid and points from these data; the lines below describe `rubix-like run`\n" in text
    assert main(["check", str(tmp_path / "fit.yaml"), "--set", "fit.data_hdu=null"]) == 2
    assert "fit.data_hdu" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "fit.yaml"), "--set", "fit.data=none.fits"]) == 0
    assert "note        fit.data: no such cube: none.fits" in capsys.readouterr().out
