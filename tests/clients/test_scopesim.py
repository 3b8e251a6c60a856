"""ScopeSim, the simulator of METIS, MICADO and others, observes a scene of ours."""

import dataclasses
import importlib
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants, units
from astropy.io import fits
from small import make_cube

from rubix_like.extend import WavelengthBins

STEP, N_WAVE, SCALE = 5.0, 40, 0.2
AREA = 4.0 * units.m**2
DETECTOR = {"CRPIX": 25.5, "CRVAL": 0.0, "CDELT": 0.018, "CUNIT": "mm", "CTYPE": "LINEAR"}


def scene(tmp_path, n_y=24, n_x=30):
    """A cube with one star 1.9 arcsec East and 1.3 arcsec North of the centre, red, and dark in the ends of the range
    (where ScopeSim takes half of a bin); its file."""
    y, x = np.indices((n_y, n_x))
    east, north = -(x - (n_x - 1) / 2) * SCALE, (y - (n_y - 1) / 2) * SCALE
    star = np.exp(-0.5 * ((east - 1.9) ** 2 + (north - 1.3) ** 2) / 0.3**2)
    spectrum = np.where(np.abs(np.arange(N_WAVE) - 20) < 10, np.linspace(1.0, 3.0, N_WAVE), 0.0)
    flux = 1e5 * star[:, :, None] * spectrum
    bins = WavelengthBins(21000.0, STEP, N_WAVE, "linear", "vacuum")
    cube = make_cube(n_y, n_x, N_WAVE)
    cube = dataclasses.replace(cube, flux=jnp.asarray(flux), mask=jnp.zeros(flux.shape, jnp.int32), bins=bins)
    return cube, cube.write(tmp_path / "scene.fits", "scopesim")


def photons(cube):
    """Photons per second and spaxel on AREA, by numpy, from the flux of every bin."""
    energy = (constants.h * constants.c / (np.asarray(cube.wavelength) * units.AA)).to("erg") / units.photon
    rate = np.asarray(cube.flux) * 1e-20 * units.Unit("erg s-1 cm-2 AA-1") * (STEP * units.AA) / energy
    return (rate.sum(axis=2) * AREA).to_value("ph s-1")


@pytest.mark.filterwarnings("ignore")
def test_photons_and_places_are_those_of_the_cube(tmp_path):
    """Of an image behind a mirror: photons to 1e-5, and the star on the same pixel as one of ScopeSim's own tables."""
    simulator = pytest.importorskip("scopesim", reason="an environment of its own: tests/clients/requirements.txt")
    optics = importlib.import_module("scopesim.optics.fov")
    cube, path = scene(tmp_path)
    edges = np.array([cube.bins.first, cube.bins.first + N_WAVE * STEP]) * 1e-4 * units.um
    header = fits.Header({"NAXIS": 2, "NAXIS1": 50, "NAXIS2": 50, "CTYPE1": "LINEAR", "CTYPE2": "LINEAR"})
    header.update({f"CRPIX{axis}": 25.5 for axis in (1, 2)} | {f"CRVAL{axis}": 0.0 for axis in (1, 2)})
    header.update({f"CDELT{axis}": SCALE / 3600 for axis in (1, 2)} | {f"CUNIT{axis}": "deg" for axis in (1, 2)})
    header.update({f"{key}{axis}D": value for axis in (1, 2) for key, value in DETECTOR.items()})

    def image(source):
        field = optics.FieldOfView2D(header, edges, area=AREA, sub_pixel=True)
        field.extract_from(source)
        return field.make_hdu().data

    train = SimpleNamespace(
        fov_manager=SimpleNamespace(fovs=[SimpleNamespace(meta={"wave_min": edges[0], "wave_max": edges[1]})]),
        cmds={"!SIM.spectral.wave_unit": "um", "!SIM.spectral.spectral_bin_width": STEP * 1e-4},
    )
    found = image(simulator.OpticalTrain.prepare_source(train, simulator.Source(cube=str(path))))
    assert found.sum() == pytest.approx(photons(cube).sum(), rel=1e-5)
    wave = np.linspace(2.0, 2.2, 50) * units.um
    star = simulator.Source(x=[1.9], y=[1.3], ref=[0], spectra=np.ones((1, 50)), lam=wave)
    places = [
        np.array([(np.indices(own.shape)[axis] * own).sum() for axis in (1, 0)]) / own.sum()
        for own in (found, image(star))
    ]
    np.testing.assert_allclose(*places, atol=0.02)
    np.testing.assert_allclose((places[0] - 24.5) * SCALE, [1.9, 1.3], atol=0.005)
