"""The list of lines against other lists, and how names are found."""

import numpy as np
import pytest

from rubix_like import ConfigError
from rubix_like.extend import to_air
from rubix_like.nebular import FIXED_RATIOS, LINES, find_line

MANGA = {
    "OII-3727": 3727.092,
    "OII-3729": 3729.875,
    "H12": 3751.2174,
    "H11": 3771.7012,
    "H10": 3798.9757,
    "H9": 3836.4720,
    "NeIII-3870": 3869.86,
    "HeI-3890": 3889.749,
    "H8": 3890.1506,
    "NeIII-3969": 3968.59,
    "Heps-3971": 3971.1951,
    "Hdelta": 4102.8922,
    "Hgamma": 4341.6837,
    "OIII-4364": 4364.436,
    "HeI-4473": 4472.734,
    "HeII-4687": 4687.015,
    "Hb-4863": 4862.6830,
    "OIII-4960": 4960.295,
    "OIII-5008": 5008.240,
    "NI-5199": 5199.349,
    "NI-5202": 5201.705,
    "HeI-5877": 5877.252,
    "OI-6302": 6302.046,
    "OI-6366": 6365.536,
    "NII-6550": 6549.86,
    "Ha-6565": 6564.608,
    "NII-6585": 6585.27,
    "SII-6718": 6718.295,
    "SII-6733": 6732.674,
    "ArIII-7138": 7137.76,
    "OII-7322": 7322.01,
    "Pa12": 8752.876,
    "Pa9": 9231.546,
    "SIII-9071": 9071.1,
    "SIII-9533": 9533.2,
    "Padelta": 10052.123,
}
"""Ritz wavelengths of NIST in vacuum (Angstrom), as in the emission-line list elpmpl11 of MaNGA's pipeline
(Belfiore et al. 2019, AJ 158, 160)."""


@pytest.mark.parametrize("name", MANGA)
def test_wavelengths_are_those_of_the_manga_pipeline_within_2_km_s(name):
    line = find_line(name)
    assert abs(line.wavelength / MANGA[name] - 1.0) * 299792.458 < 2.0


def test_wavelengths_in_air_are_those_of_the_names():
    for name, line in LINES.items():
        number = name.split()[-1]
        if number.isdigit():
            named = to_air(np.array([line.wavelength]))
            assert abs(float(named[0]) - float(number)) < 1.0, name
    assert list(LINES) == sorted(LINES, key=lambda name: LINES[name].wavelength)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("[OIII]5007", "[O III] 5007"),
        ("OIII5007", "[O III] 5007"),
        ("[o iii] 4959", "[O III] 4959"),
        ("Halpha", "Ha"),
        ("H_beta", "Hb"),
        ("H alpha", "Ha"),
        ("Ha-6565", "Ha"),
        ("Paalpha", "Paa"),
        ("Br gamma", "Brg"),
        ("HeII4686", "He II 4686"),
        ("NII-6585", "[N II] 6583"),
        ("[N II] 6584", "[N II] 6583"),
        ("Hepsilon", "H7"),
        ("[NeII]12.8um", "[Ne II] 12.8um"),
    ],
)
def test_usual_spellings(spelling, name):
    assert find_line(spelling).name == name


def test_an_unknown_line_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown line '\[O III\] 5070'; did you mean '\[O III\] 5007'"):
        find_line("[O III] 5070")


def test_lines_of_one_upper_level_have_the_ratio_of_their_transition_probabilities():
    """A_1 lambda_2 / (A_2 lambda_1), with A in 1/s (Storey & Zeippen 2000; Froese Fischer & Tachiev 2004)."""
    for weak, strong, a_weak, a_strong in (
        ("[O III] 4959", "[O III] 5007", 6.791e-3, 2.046e-2),
        ("[N II] 6548", "[N II] 6583", 9.851e-4, 2.914e-3),
    ):
        partner, ratio = FIXED_RATIOS[weak]
        assert partner == strong
        expected = a_weak * LINES[strong].wavelength / (a_strong * LINES[weak].wavelength)
        assert ratio == pytest.approx(expected, rel=2e-3)


def test_thermal_width_at_1e4_k():
    """sqrt(k T / m): 9.1 km/s for hydrogen, 2.3 km/s for oxygen."""
    speed = {
        name: np.sqrt(1.380649e-23 * 1e4 / (find_line(name).mass * 1.66053907e-27)) / 1e3
        for name in ("Ha", "[O III] 5007")
    }
    assert speed["Ha"] == pytest.approx(9.08, abs=0.01)
    assert speed["[O III] 5007"] == pytest.approx(2.28, abs=0.01)
