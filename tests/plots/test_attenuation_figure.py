"""The picture of an attenuation curve."""

import dataclasses

import numpy as np
import pytest
from small import make_maps

from rubix_like import ConfigError
from rubix_like.cube.maps import AttenuationCurve
from rubix_like.extend import save_attenuation


@pytest.mark.parametrize(
    ("first", "label", "words"), [(1000, "A / A(5500 Å)", "A(5500 Å) = 0.5"), (6000, "A (mag)", "")]
)
def test_a_curve_is_drawn_relative_to_v_where_it_reaches_there(first, label, words, tmp_path):
    """A(V) is found between two wavelengths, of a power law."""
    wavelength = np.geomspace(first, 2e4, 200)
    bare = np.full(200, 2.0)
    curve = AttenuationCurve(wavelength, bare, bare * 10 ** (-0.4 * 0.5 * (wavelength / 5500) ** -0.7))
    text = save_attenuation(dataclasses.replace(make_maps(), attenuation=curve), tmp_path / "curve.svg").read_text()
    assert label in text
    assert words in text
    relative = np.asarray(curve.relative)
    if words:
        assert float(curve.a_v) == pytest.approx(0.5, rel=1e-3)
        np.testing.assert_allclose(relative, (wavelength / 5500) ** -0.7, rtol=1e-3)
    else:
        assert np.isnan(relative).all()


def test_maps_without_dust_have_no_curve(tmp_path):
    with pytest.raises(ConfigError, match=r"attenuation curve: expected maps of dust, got none; set products"):
        save_attenuation(make_maps(), tmp_path / "curve.svg")
