"""Air and vacuum wavelengths against Ciddor's formula evaluated on its own, in extended precision."""

from decimal import Decimal, getcontext

import numpy as np
import pytest

from rubix_like.physics import air

getcontext().prec = 40

WAVELENGTHS = np.array([2000.0, 2500.0, 3727.0, 5001.394, 6564.61, 10000.0, 25000.0, 1e6])


def ciddor_air(vacuum: float) -> Decimal:
    """lambda / n with n of Ciddor 1996 eq. 1 (15 C, 101325 Pa, dry air with 450 ppm CO2), in 40 digits."""
    wavenumber = Decimal(10000) / Decimal(vacuum)
    s2 = wavenumber * wavenumber
    refractivity = Decimal("0.05792105") / (Decimal("238.0185") - s2) + Decimal("0.00167917") / (Decimal("57.362") - s2)
    return Decimal(vacuum) / (1 + refractivity)


def test_air_wavelengths_follow_ciddor():
    expected = np.array([float(ciddor_air(value)) for value in WAVELENGTHS])
    np.testing.assert_allclose(air.to_air(WAVELENGTHS), expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("vacuum", "in_air"),
    [(4862.683, 4861.333), (5008.240, 5006.843), (6564.614, 6562.801), (8544.438, 8542.091)],
    ids=["H beta", "[O III]", "H alpha", "Ca II"],
)
def test_known_lines(vacuum, in_air):
    """Pairs of the NIST and SDSS line lists."""
    assert air.to_air(np.array([vacuum]))[0] == pytest.approx(in_air, abs=0.01)
    assert air.to_vacuum(np.array([in_air]))[0] == pytest.approx(vacuum, abs=0.01)


def test_round_trip_is_exact_to_rounding():
    """Below 2000 Angstrom nothing is converted; vacuum wavelengths increase with those in air."""
    vacuum = np.concatenate([np.linspace(91.0, 1999.0, 500), np.geomspace(2000.0, 3e6, 5000)])
    np.testing.assert_allclose(air.to_vacuum(air.to_air(vacuum)), vacuum, rtol=1e-14)
    short = np.array([91.0, 912.0, 1999.0])
    np.testing.assert_array_equal(air.to_air(short), short)
    np.testing.assert_array_equal(air.to_vacuum(short), short)
    np.testing.assert_array_equal(air.vacuum_per_air(short), np.ones(3))
    assert np.all(np.diff(air.to_vacuum(np.arange(1990.0, 2010.0, 0.05))) > 0)


def test_derivative_is_the_finite_difference():
    step = Decimal("0.001")
    for vacuum in WAVELENGTHS[1:]:
        rise = ciddor_air(Decimal(vacuum) + step) - ciddor_air(Decimal(vacuum) - step)
        expected = float(2 * step / rise)
        assert air.vacuum_per_air(np.array([vacuum]))[0] == pytest.approx(expected, rel=1e-13)
