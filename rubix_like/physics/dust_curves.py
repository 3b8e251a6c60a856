"""Dust curves: attenuation in magnitudes relative to that in V, against wavelength."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import ANGSTROM_PER_MICRON
from rubix_like.errors import ConfigError
from rubix_like.runtime.registry import Registry


@dataclass(frozen=True)
class DustCurve:
    """A published curve A(lambda) / A(V) and where it holds.

    `relative(wavelength, r_v)` takes vacuum Angstrom; `wavelength_range` in Angstrom; `r_v_range` of A(V) / E(B-V).
    """

    relative: Callable[[Float[ndarray, " wave"], float], Float[ndarray, " wave"]]
    wavelength_range: tuple[float, float]
    r_v: float
    r_v_range: tuple[float, float]
    source: str

    def check_r_v(self, r_v: float) -> None:
        """Raise ValueError for an R(V) that the curve is not defined for."""
        low, high = self.r_v_range
        if not low <= r_v <= high:
            expected = f"{low:g}, the curve's only one" if low == high else f"a value from {low:g} to {high:g}"
            raise ValueError(f"expected {expected} (null: {self.r_v:g}; {self.source}), got {r_v:g}")

    def __call__(self, wavelength: Float[ndarray, " wave"], r_v: float) -> Float[ndarray, " wave"]:
        """A(lambda) / A(V) at vacuum wavelengths (Angstrom); raises ConfigError where the curve says nothing."""
        low, high = self.wavelength_range
        first, last = float(np.min(wavelength)), float(np.max(wavelength))
        if first < low or last > high:
            raise ConfigError(
                f"dust.curve: expected bins within {low:.0f}-{high:.0f} Angstrom, where the curve is defined "
                f"({self.source}), got {first:.0f}-{last:.0f} Angstrom; choose another curve ('gordon' has the widest "
                f"range), other instrument.wavelength or, for bands of products, other filters"
            )
        relative = self.relative(wavelength, r_v)
        if relative.min() < 0:
            raise ConfigError(
                f"dust.r_v: expected one with which the curve dims all bins, got {r_v:g}: at "
                f"{wavelength[np.argmin(relative)]:.0f} Angstrom A/A(V) is {relative.min():.3g}; the curve's own is "
                f"{self.r_v:g}"
            )
        return relative


def calzetti_2000(wavelength: Float[ndarray, " wave"], r_v: float) -> Float[ndarray, " wave"]:
    """k'(lambda) / R'_V of starbursts, Calzetti et al. (2000, ApJ 533, 682), eq. 4; wavelength in vacuum Angstrom.

    Two polynomials in 1 / lambda that meet at 0.63 um, where they differ by 0.6 %. Another R'_V than 4.05 keeps
    k' - R'_V, as the equation has it.
    """
    inverse = ANGSTROM_PER_MICRON / np.asarray(wavelength, dtype=np.float64)
    red = 2.659 * (-1.857 + 1.040 * inverse)
    blue = 2.659 * (-2.156 + 1.509 * inverse - 0.198 * inverse**2 + 0.011 * inverse**3)
    return np.where(inverse > 1 / 0.63, blue, red) / r_v + 1.0


def _packaged(module: str, name: str) -> Callable[[Float[ndarray, " wave"], float], Float[ndarray, " wave"]]:
    """The model `name` of the package dust_extinction; those in `averages` are of one R(V)."""

    def relative(wavelength: Float[ndarray, " wave"], r_v: float) -> Float[ndarray, " wave"]:
        model = getattr(importlib.import_module(f"dust_extinction.{module}"), name)
        own = model() if module == "averages" else model(Rv=r_v)
        return np.asarray(own(np.asarray(wavelength, dtype=np.float64) * units.AA))

    return relative


CALZETTI = DustCurve(
    relative=calzetti_2000,
    wavelength_range=(1200.0, 22000.0),
    r_v=4.05,
    r_v_range=(1.0, 10.0),
    source="starburst galaxies, Calzetti et al. 2000, ApJ 533, 682",
)
CARDELLI = DustCurve(
    relative=_packaged("parameter_averages", "CCM89"),
    wavelength_range=(1000.0, 33333.0),
    r_v=3.1,
    r_v_range=(2.0, 6.0),
    source="Milky Way, Cardelli, Clayton & Mathis 1989, ApJ 345, 245",
)
GORDON = DustCurve(
    relative=_packaged("parameter_averages", "G23"),
    wavelength_range=(912.0, 320000.0),
    r_v=3.1,
    r_v_range=(2.3, 5.6),
    source="Milky Way, Gordon et al. 2023, ApJ 950, 86",
)
SMC = DustCurve(
    relative=_packaged("averages", "G03_SMCBar"),
    wavelength_range=(1000.0, 33333.0),
    r_v=2.74,
    r_v_range=(2.74, 2.74),
    source="bar of the Small Magellanic Cloud, Gordon et al. 2003, ApJ 594, 279",
)

CURVES = Registry(
    "dust curve",
    "rubix_like.dust_curves",
    {
        "calzetti": "rubix_like.physics.dust_curves:CALZETTI",
        "cardelli": "rubix_like.physics.dust_curves:CARDELLI",
        "gordon": "rubix_like.physics.dust_curves:GORDON",
        "smc": "rubix_like.physics.dust_curves:SMC",
    },
)
"""Curves by the names of `dust.curve`; a member is a `DustCurve`."""
