"""The cube of the benchmark of two counter-rotating discs."""

import counter_rotating
import foreign_cube
import numpy as np
import pytest

SMALL = {
    "N_SPAXEL": 8, "SPAXEL": 0.7, "MARGIN": 5, "FINE": 10, "FIRST": 5150.0, "LAST": 5400.0, "STEP": 2.5, "CHANNEL": 5.0,
}  # fmt: skip


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
