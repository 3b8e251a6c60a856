"""Two counter-rotating discs by numpy, at a small size: both come back, and are not told to be wrong."""

import counter_rotating
import foreign_cube
import numpy as np
import pytest
from test_components_fit import write_narrow_lines

from rubix_like import fit

SMALL = {
    "N_SPAXEL": 8, "SPAXEL": 0.7, "MARGIN": 5, "FINE": 10, "FIRST": 5150.0, "LAST": 5400.0, "STEP": 2.5, "CHANNEL": 5.0,
}  # fmt: skip
HELD = ("dispersion", "rotation.turnover_radius")
"""As the truth: the few lines of this library say little of them."""


@pytest.fixture
def small(monkeypatch):
    """The foreign cube, of which the benchmark changes the constants, is afterwards as it was."""
    for name in SMALL:
        monkeypatch.setattr(foreign_cube, name, getattr(foreign_cube, name))
    monkeypatch.setattr(foreign_cube, "TRUTH", dict(foreign_cube.TRUTH))


def test_the_cube_has_both_discs_and_the_same_signal_to_noise_everywhere(small, tmp_path):
    """The sum of light is that of both masses; a disc that turns the other way is the same disc, turned by 180 deg."""
    foreign_cube.TRUTH["galaxy.stellar_mass"] = 1e10
    for name, value in SMALL.items():
        setattr(foreign_cube, name, value)
    disc = counter_rotating.DISCS["counter"]
    turned = counter_rotating.disc_flux(disc, foreign_cube.POPSTAR)
    forward = counter_rotating.disc_flux(disc | {"rotation.velocity": 150.0}, foreign_cube.POPSTAR)
    np.testing.assert_allclose(turned, forward[::-1, ::-1], rtol=1e-9)
    assert np.abs(turned / forward - 1).max() > 0.01
    path = counter_rotating.write_cube(tmp_path / "two.fits", foreign_cube.POPSTAR, 50, 1, SMALL)
    read = counter_rotating.fits.getdata(path, "DATA"), counter_rotating.fits.getdata(path, "STAT")
    ratio = np.median(read[0], axis=0) / np.sqrt(read[1][0])
    np.testing.assert_allclose(ratio, 50, rtol=0.02)


@pytest.mark.long
def test_both_discs_come_back(small, tmp_path):
    """At S/N 30 with narrow lines, 13 numbers free: within 4.5 sigma, and the model is not told to be wrong."""
    library = write_narrow_lines(tmp_path / "narrow.h5")
    cube = counter_rotating.write_cube(tmp_path / "two.fits", library, 30, 1, SMALL)
    config = counter_rotating.configuration(tuple(counter_rotating.DISCS), library, blind=False)
    for component in config["galaxy"]["components"]:
        own = counter_rotating.DISCS[component["name"]]
        component["dispersion"] = own["dispersion"]
        component["rotation"]["turnover_radius"] = own["rotation.turnover_radius"]
    for part in ("free", "start"):
        given = config["fit"][part]
        config["fit"][part] = {name: value for name, value in given.items() if not name.endswith(HELD)}
    config["galaxy"]["points"] = 8192
    result = fit(config, cube)
    assert result.converged
    assert not result.verdict.misfit
    for name, true in counter_rotating.truth().items():
        if name in result.values:
            pull = (float(result.values[name]) - true) / float(result.sigma[name])
            assert abs(pull) < 4.5, (name, true, result.values[name], result.sigma[name])
