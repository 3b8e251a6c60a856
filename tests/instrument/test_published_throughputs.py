"""Throughputs of presets against the exposure-time calculators of their observatories."""

import numpy as np
import pytest
from scipy import constants

from rubix_like.config import InstrumentSettings
from rubix_like.instrument.sky import load_sky

KCWI_NODES = [3550, 3800, 4050, 4500, 4860, 5300]
KCWI_TELESCOPE = np.array([0.54, 0.55, 0.56, 0.56, 0.56, 0.55])
"""Atmosphere and telescope, in etc_kcwi.py of KeckObservatory/exposureTimeCalculator, as the gratings below."""


def throughput(name, wavelength):
    detector = InstrumentSettings.model_validate({"name": name}).detector
    return np.interp(wavelength, detector.wavelength, detector.throughput)


@pytest.mark.parametrize(
    ("name", "nodes", "grating"),
    [
        ("kcwi_bl_small", slice(None), [0.1825, 0.38, 0.40, 0.46, 0.47, 0.44]),
        ("kcwi_bm_large", slice(None), [0.1575, 0.33, 0.36, 0.42, 0.48, 0.45]),
        ("kcwi_bh2_medium", slice(1, 5), [0.18, 0.3, 0.4, 0.28]),
    ],
)
def test_kcwi_counts_what_kecks_calculator_counts_behind_the_dark_sky(name, nodes, grating):
    wavelength, sky = np.array(KCWI_NODES[nodes], float), load_sky("dark")
    air = np.interp(wavelength, sky.wavelength, sky.transmission)
    np.testing.assert_allclose(throughput(name, wavelength) * air, grating * KCWI_TELESCOPE[nodes], rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "wavelength", "published"),
    [
        ("megara_lr_u", [3839.7, 3999.7, 4239.7], [0.07579, 0.15741, 0.16777]),
        ("megara_lr_b", [4399.7], [0.19298]),
    ],
)
def test_megara_has_its_calculators_transmission_and_reflectivity(name, wavelength, published):
    """Rows of etc/data/MEGARA_TRANSM_0.1aa of guaix-ucm/django-megaraetc, times 0.822 (etc/justcalc.py)."""
    np.testing.assert_allclose(throughput(name, wavelength), 0.822 * np.array(published), rtol=0.021)


def test_megaras_squares_have_the_area_of_its_hexagons():
    """567 of 0.62 arcsec from corner to corner fill the field of 12.5 x 11.3 arcsec2."""
    area = InstrumentSettings.model_validate({"name": "megara_lr_r"}).pixel_scale ** 2
    np.testing.assert_allclose([area, 567 * area], [1.5 * np.sqrt(3) * 0.31**2, 12.5 * 11.3], rtol=0.01)


WEAVE = {
    "weave_lr_blue": (0.839, 0.784, 0.567, 0.924),
    "weave_lr_red": (0.870, 0.852, 0.607, 0.805),
    "weave_hr_blue": (0.800, 0.691, 0.337, 0.923),
    "weave_hr_green": (0.833, 0.794, 0.498, 0.927),
    "weave_hr_red": (0.861, 0.837, 0.505, 0.947),
}
"""Prime focus, fibre, spectrograph and detector in signalWEAVE.py of gscouto/waqaqc, the calculator by S. C. Trager."""


@pytest.mark.parametrize("name", WEAVE)
def test_weave_counts_what_its_calculator_counts(name):
    """Pixels of a fibre's image, and S/N per pixel of 0.3 Angstrom behind no atmosphere, by the formulas of
    signal2noise.py, of 20 mag/arcsec2 in V in 1200 s."""
    settings = InstrumentSettings.model_validate({"name": name, "fibres": "weave-547", "psf": {"fwhm": 1.0}})
    own, diameter = settings.detector, 2 * 1.3045
    area, efficiency = np.pi * (2.1**2 - 0.915**2), 0.9 * np.prod(WEAVE[name])
    pixels = diameter * 3.2 * 4.2e6 / 206265 * (1.8 / 3.1) / 15
    object_photons = 1e-8 * 1200 * 10000 * 3640 * 1000 / (6.6 * 550) * efficiency * area * 0.3 * np.pi * diameter**2 / 4
    published = object_photons / np.sqrt(object_photons + pixels * 3.0**2)
    per_angstrom = 1e-8 * 3640e-26 / (constants.h * 5500)  # photons/s/m2/arcsec2
    ours = 1200 * per_angstrom * own.throughput[0] * own.collecting_area * 0.3 * settings.element_area
    noise = np.sqrt(ours + own.pixels_per_voxel * own.read_noise**2)
    assert (own.dark_current, own.wavelength) == (0, None)
    assert ours / noise == pytest.approx(published, rel=0.01)
    assert own.pixels_per_voxel == pytest.approx(pixels, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "wavelength", "published"),
    [
        ("llamas_blue", [3700, 4100, 4600], [0.22257, 0.36416, 0.30947]),
        ("llamas_green", [5000, 5800, 6700], [0.36379, 0.45129, 0.35847]),
        ("llamas_red", [7000, 8000, 9000], [0.34079, 0.38064, 0.26991]),
    ],
)
def test_llamas_has_its_calculators_throughput(name, wavelength, published):
    """Of spectrograph.py and telescope.py of rasimcoe/llamas-etc, together."""
    np.testing.assert_allclose(throughput(name, wavelength), published, rtol=0.03)
