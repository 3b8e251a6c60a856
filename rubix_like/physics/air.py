"""Vacuum and air wavelengths (Ciddor 1996, Applied Optics 35, 1566; standard air, 15 C, 450 ppm CO2).

Below 2000 Angstrom (vacuum) wavelengths are quoted in vacuum by convention and no conversion is made.
"""

from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.physics.units import given_numbers

Medium = Literal["air", "vacuum"]

CONVERSION_LIMIT: float = 2000.0
"""Vacuum Angstrom; shorter wavelengths are the same in both media."""

# Ciddor 1996, eq. 1: 1e8 (n - 1) = k1 / (k0 - s^2) + k3 / (k2 - s^2), s in 1/micron.
_K0, _K1, _K2, _K3 = 238.0185, 5792105.0, 57.362, 167917.0


def refractive_index(vacuum: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """n of standard air at vacuum wavelengths in Angstrom; 1 below `CONVERSION_LIMIT`."""
    vacuum = np.asarray(vacuum, dtype=np.float64)
    s2 = (1e4 / np.maximum(vacuum, CONVERSION_LIMIT)) ** 2
    index = 1.0 + 1e-8 * (_K1 / (_K0 - s2) + _K3 / (_K2 - s2))
    return np.where(vacuum < CONVERSION_LIMIT, 1.0, index)


@named_arguments
def to_air(vacuum: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """Air wavelengths (Angstrom) of vacuum wavelengths: lambda_vac / n(lambda_vac); raises as `to_vacuum`."""
    vacuum = _wavelengths(vacuum, "vacuum")
    return vacuum / refractive_index(vacuum)


@named_arguments
def to_vacuum(air: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """Vacuum wavelengths (Angstrom) of air wavelengths, by fixed-point iteration of `to_air` to 1e-14.

    An air wavelength between the air and the vacuum value of `CONVERSION_LIMIT` (0.65 A wide) has no
    vacuum counterpart by the convention; it is mapped as if the refractive index went on. Quantities are converted;
    raises ValueError for what is no wavelength, and for masked ones.
    """
    air = _wavelengths(air, "air")
    limit = CONVERSION_LIMIT / refractive_index(np.array([CONVERSION_LIMIT]))[0]
    vacuum = np.where(air < limit, air, np.maximum(air * 1.00028, CONVERSION_LIMIT))
    for _ in range(20):
        before = vacuum
        vacuum = np.where(air < limit, air, air * refractive_index(np.maximum(before, CONVERSION_LIMIT)))
        if np.array_equal(vacuum, before):
            break
    return vacuum


def _wavelengths(values: Any, place: str) -> Float[ndarray, " wave"]:
    """Wavelengths in Angstrom; raises ValueError that names `place` for what is none."""
    wavelengths = np.asarray(given_numbers(values, "Angstrom", place), dtype=np.float64)
    if not np.all(wavelengths > 0):
        raise ValueError(f"{place}: expected wavelengths above 0 Angstrom, got {wavelengths[~(wavelengths > 0)][0]:g}")
    return wavelengths


def vacuum_per_air(vacuum: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """d lambda_vac / d lambda_air at vacuum wavelengths; turns a flux per vacuum Angstrom into one per air Angstrom.

    From lambda_air = lambda / n: d lambda_air / d lambda = (1 - (lambda / n) dn/dlambda) / n.
    """
    vacuum = np.asarray(vacuum, dtype=np.float64)
    s2 = (1e4 / np.maximum(vacuum, CONVERSION_LIMIT)) ** 2
    slope = -1e-8 * (_K1 / (_K0 - s2) ** 2 + _K3 / (_K2 - s2) ** 2) * 2 * s2 / np.maximum(vacuum, CONVERSION_LIMIT)
    index = refractive_index(vacuum)
    return np.where(vacuum < CONVERSION_LIMIT, 1.0, index / (1.0 - vacuum / index * slope))
