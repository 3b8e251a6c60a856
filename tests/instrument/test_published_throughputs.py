"""Throughputs of presets against the exposure-time calculators of their observatories."""

import numpy as np
import pytest

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
