"""Mass of stellar remnants against an independent integration and published values."""

import numpy as np
import pytest
from scipy.integrate import quad

from rubix_like.importers.bagpipes import with_remnants


def kroupa(mass: float) -> float:
    return mass**-1.3 if mass < 0.5 else 0.5 * mass**-2.3


def remnant(mass: float) -> float:
    if mass < 8.5:
        return min(0.077 * mass + 0.48, mass)
    return 1.4 if mass < 40 else 0.5 * mass


@pytest.mark.parametrize("turn_off", [0.9, 2.0, 8.5, 20.0, 60.0])
def test_stars_above_the_turn_off_are_remnants(turn_off: float) -> None:
    breaks = [0.5, 8.5, 40.0]

    def integral(low: float, high: float, weight) -> float:
        inner = [point for point in breaks if low < point < high]
        return quad(lambda m: kroupa(m) * weight(m), low, high, points=inner or None, limit=200)[0]

    born = integral(0.1, 100.0, lambda m: m)
    living = integral(0.1, turn_off, lambda m: m) / born
    expected = living + integral(turn_off, 100.0, remnant) / born
    np.testing.assert_allclose(with_remnants(np.array([[living]]))[0, 0], expected, rtol=2e-4)


def test_everything_alive_leaves_nothing() -> None:
    np.testing.assert_allclose(with_remnants(np.ones((1, 1))), 1.0, rtol=1e-12)


def test_old_solar_population_keeps_about_sixty_percent() -> None:
    # living stars alone: 0.459 (BC03, Kroupa, solar, 10 Gyr); with remnants published values are 0.58-0.62
    assert 0.58 < with_remnants(np.array([[0.459]]))[0, 0] < 0.62
