"""Dust curves: attenuation in magnitudes relative to that in V, against wavelength."""

import functools
import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import expect_fields, plug_in_named
from rubix_like.constants import ANGSTROM_PER_MICRON
from rubix_like.errors import ConfigError, expect
from rubix_like.runtime.registry import Registry

V_BAND: float = 5500.0
"""Angstrom, where curves with a slope are pinned."""


@dataclass(frozen=True)
class DustCurve:
    """A published curve A(lambda) / A(V) and where it holds.

    `relative(wavelength, r_v)` takes vacuum Angstrom; `wavelength_range` in Angstrom; `r_v_range` of A(V) / E(B-V).
    A curve with a slope has a default one, and `sloped(wavelength, r_v, slope)`.
    """

    relative: Callable[[Float[ndarray, " wave"], float], Float[ndarray, " wave"]]
    wavelength_range: tuple[float, float]
    r_v: float
    r_v_range: tuple[float, float]
    source: str
    slope: float | None = None
    sloped: Callable[[Float[ndarray, " wave"], float, float], Float[ndarray, " wave"]] | None = None

    def __post_init__(self) -> None:
        expect_fields(self)
        for name in ("wavelength_range", "r_v_range"):
            low, high = getattr(self, name)
            if not 0 < low <= high < np.inf:
                raise ValueError(f"DustCurve.{name}: expected (lowest, highest) above 0, got {(low, high)}")
        low, high = self.r_v_range
        if not low <= self.r_v <= high:
            raise ValueError(f"DustCurve.r_v: expected a value in r_v_range, {low:g} to {high:g}, got {self.r_v:g}")

    def check_slope(self, slope: float) -> None:
        """Raise ValueError for a slope where the curve has none, and for one that makes it rise to the red."""
        if self.slope is None:
            raise ValueError(f"expected null, since the curve has no slope ({self.source}), got {slope:g}")
        if self.sloped is power_law and slope > 0:
            raise ValueError(f"expected an exponent <= 0, as dust dims blue light most, got {slope:g}; give {-slope:g}")

    def check_r_v(self, r_v: float) -> None:
        """Raise ValueError for an R(V) that the curve is not defined for."""
        low, high = self.r_v_range
        if not low <= r_v <= high:
            expected = f"{low:g}, the curve's only one" if low == high else f"a value from {low:g} to {high:g}"
            raise ValueError(f"expected {expected} (null: {self.r_v:g}; {self.source}), got {r_v:g}")

    def holds(
        self, wavelength: Float[ndarray, " wave"], r_v: float, slope: float | None = None
    ) -> Bool[ndarray, " wave"]:
        """Whether the curve is defined and dims at each vacuum wavelength (Angstrom)."""
        low, high = self.wavelength_range
        found = (wavelength >= low) & (wavelength <= high)
        found[found] = self._at(wavelength[found], r_v, slope) >= 0
        return found

    def __call__(
        self, wavelength: Float[ndarray, " wave"], r_v: float, slope: float | None = None
    ) -> Float[ndarray, " wave"]:
        """A(lambda) / A(V) at vacuum wavelengths (Angstrom); raises ConfigError where the curve says nothing.

        `slope`: another than that of the curve.
        """
        low, high = self.wavelength_range
        first, last = float(np.min(wavelength)), float(np.max(wavelength))
        if first < low or last > high:
            raise ConfigError(
                f"dust.curve: expected bins within {low:.0f}-{high:.0f} Angstrom, where the curve is defined "
                f"({self.source}), got {first:.0f}-{last:.0f} Angstrom; choose another curve ('gordon' has the widest "
                f"range), other instrument.wavelength or, for bands of products, other filters"
            )
        relative = self._at(wavelength, r_v, slope)
        if relative.min() < 0:
            raise ConfigError(
                f"dust.r_v: expected one with which the curve dims all bins, got {r_v:g}: at "
                f"{wavelength[np.argmin(relative)]:.0f} Angstrom A/A(V) is {relative.min():.3g}; the curve's own is "
                f"{self.r_v:g}"
            )
        return relative

    def _at(self, wavelength: Float[ndarray, " wave"], r_v: float, slope: float | None) -> Float[ndarray, " wave"]:
        if slope is None or self.sloped is None:
            return self.relative(wavelength, r_v)
        return self.sloped(wavelength, r_v, slope)


def calzetti_2000(wavelength: Float[ndarray, " wave"], r_v: float) -> Float[ndarray, " wave"]:
    """k'(lambda) / R'_V of starbursts, Calzetti et al. (2000, ApJ 533, 682), eq. 4; wavelength in vacuum Angstrom.

    Two polynomials in 1 / lambda that meet at 0.63 um, where they differ by 0.6 %. Another R'_V than 4.05 keeps
    k' - R'_V, as the equation has it.
    """
    inverse = ANGSTROM_PER_MICRON / np.asarray(wavelength, dtype=np.float64)
    red = 2.659 * (-1.857 + 1.040 * inverse)
    blue = 2.659 * (-2.156 + 1.509 * inverse - 0.198 * inverse**2 + 0.011 * inverse**3)
    return np.where(inverse > 1 / 0.63, blue, red) / r_v + 1.0


def kriek_conroy_2013(wavelength: Float[ndarray, " wave"], r_v: float, slope: float) -> Float[ndarray, " wave"]:
    """Calzetti's curve with a bump at 2175 Angstrom, tilted: Kriek & Conroy (2013, ApJ 775, L16), eqs. 1 to 3.

    A / A(V) = (k' + D) / R'_V (lambda / 5500)^slope, D the Drude profile of a bump that is stronger on flatter curves,
    E_b = 0.85 - 1.9 slope.
    """
    wavelength = np.asarray(wavelength, dtype=np.float64)
    width = wavelength * 350.0
    bump = (0.85 - 1.9 * slope) * width**2 / ((wavelength**2 - 2175.0**2) ** 2 + width**2)
    return (calzetti_2000(wavelength, r_v) + bump / r_v) * (wavelength / V_BAND) ** slope


def power_law(wavelength: Float[ndarray, " wave"], r_v: float, slope: float) -> Float[ndarray, " wave"]:  # noqa: ARG001
    """(lambda / 5500)^slope; Charlot & Fall (2000, ApJ 539, 718) have -0.7."""
    return (np.asarray(wavelength, dtype=np.float64) / V_BAND) ** slope


def _packaged(module: str, name: str) -> Callable[[Float[ndarray, " wave"], float], Float[ndarray, " wave"]]:
    """The model `name` of the package dust_extinction; those in `averages` are of one R(V)."""

    def relative(wavelength: Float[ndarray, " wave"], r_v: float) -> Float[ndarray, " wave"]:
        make = getattr(importlib.import_module(f"dust_extinction.{module}"), name)
        model = make() if module == "averages" else make(Rv=r_v)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "x has no units")  # said of numbers that it hands to itself
            return np.asarray(model(np.asarray(wavelength, dtype=np.float64) * units.AA))

    return relative


def _average(name: str, first: float, last: float, r_v: float, source: str) -> DustCurve:
    """One of the averages of dust_extinction, by the name of its class."""
    return DustCurve(_packaged("averages", name), (first, last), r_v, (r_v, r_v), source)


def _family(name: str, first: float, last: float, source: str) -> DustCurve:
    """One of the curves of dust_extinction for R(V) from 2 to 6, by the name of its class."""
    return DustCurve(_packaged("parameter_averages", name), (first, last), 3.1, (2.0, 6.0), source)


CALZETTI = DustCurve(
    relative=calzetti_2000,
    wavelength_range=(1200.0, 22000.0),
    r_v=4.05,
    r_v_range=(1.0, 10.0),
    source="starburst galaxies, Calzetti et al. 2000, ApJ 533, 682",
)
CARDELLI = _family("CCM89", 1000.0, 33333.0, "Milky Way, Cardelli, Clayton & Mathis 1989, ApJ 345, 245")
GORDON = DustCurve(
    relative=_packaged("parameter_averages", "G23"),
    wavelength_range=(912.0, 320000.0),
    r_v=3.1,
    r_v_range=(2.3, 5.6),
    source="Milky Way, Gordon et al. 2023, ApJ 950, 86",
)
SMC = _average(
    "G03_SMCBar", 1000.0, 33333.0, 2.74, "bar of the Small Magellanic Cloud, Gordon et al. 2003, ApJ 594, 279"
)
KRIEK_CONROY = DustCurve(
    relative=functools.partial(kriek_conroy_2013, slope=0.0),
    wavelength_range=(1200.0, 22000.0),
    r_v=4.05,
    r_v_range=(4.05, 4.05),
    source="galaxies at redshift 0.5 to 2, Kriek & Conroy 2013, ApJ 775, L16",
    slope=0.0,
    sloped=kriek_conroy_2013,
)
POWER_LAW = DustCurve(
    relative=functools.partial(power_law, slope=-0.7),
    wavelength_range=(912.0, 100000.0),
    r_v=5.9,
    r_v_range=(5.9, 5.9),
    source="power law, Charlot & Fall 2000, ApJ 539, 718",
    slope=-0.7,
    sloped=power_law,
)


RL85_MWGC = _average(
    "RL85_MWGC", 12500.0, 130000.0, 3.09, "centre of the Milky Way, Rieke & Lebofsky 1985, ApJ 288, 618"
)
RRP89_MWGC = _average(
    "RRP89_MWGC", 9000.0, 130000.0, 3.09, "centre of the Milky Way, Rieke, Rieke & Paul 1989, ApJ 336, 752"
)
B92_MWAVG = _average("B92_MWAvg", 3402.1, 7872.9, 3.1, "Milky Way, Bastiaansen 1992, A&AS 93, 449")
G03_LMCAVG = _average("G03_LMCAvg", 1000.0, 33333.0, 3.41, "Large Magellanic Cloud, Gordon et al. 2003, ApJ 594, 279")
G03_LMC2 = _average("G03_LMC2", 1000.0, 33333.0, 2.76, "supershell LMC2, Gordon et al. 2003, ApJ 594, 279")
I05_MWAVG = _average("I05_MWAvg", 12400.0, 77600.0, 3.1, "Milky Way, Indebetouw et al. 2005, ApJ 619, 931")
CT06_MWGC = _average("CT06_MWGC", 12400.0, 270000.0, 3.1, "centre of the Milky Way, Chiar & Tielens 2006, ApJ 637, 774")
CT06_MWLOC = _average("CT06_MWLoc", 12400.0, 270000.0, 3.1, "local Milky Way, Chiar & Tielens 2006, ApJ 637, 774")
GCC09_MWAVG = _average("GCC09_MWAvg", 912.0, 33333.0, 3.1, "Milky Way, Gordon, Cartledge & Clayton 2009, ApJ 705, 1320")
F11_MWGC = _average("F11_MWGC", 12820.0, 190620.0, 3.1, "centre of the Milky Way, Fritz et al. 2011, ApJ 737, 73")
G21_MWAVG = _average("G21_MWAvg", 10000.0, 320000.0, 3.17, "Milky Way, Gordon et al. 2021, ApJ 916, 33")
D22_MWAVG = _average("D22_MWAvg", 8000.0, 50000.0, 3.12, "Milky Way, Decleir et al. 2022, ApJ 930, 15")
G24_SMCAVG = _average("G24_SMCAvg", 1000.0, 33333.0, 3.02, "Small Magellanic Cloud, Gordon et al. 2024, ApJ 970, 51")
G24_SMCBUMPS = _average(
    "G24_SMCBumps",
    1000.0,
    32390.0,
    2.55,
    "sightlines of the Small Magellanic Cloud with a bump, Gordon et al. 2024, ApJ 970, 51",
)
C25_M31AVG = _average("C25_M31Avg", 1000.0, 33333.0, 3.2, "M31, Clayton et al. 2025")
G26_M33AVG = _average("G26_M33Avg", 1000.0, 33333.0, 4.66, "M33, Gordon et al. 2026")
O94 = _family("O94", 1000.0, 33333.0, "Milky Way, O'Donnell 1994, ApJ 422, 158")
F99 = _family("F99", 1000.0, 33333.0, "Milky Way, Fitzpatrick 1999, PASP 111, 63")
F04 = _family("F04", 1000.0, 33333.0, "Milky Way, Fitzpatrick 2004, ASP Conf. Ser. 309, 33")
M14 = _family("M14", 3030.4, 33333.0, "30 Doradus and the Milky Way, Maiz Apellaniz et al. 2014, A&A 564, A63")
F19 = _family("F19", 1149.5, 33333.0, "Milky Way, Fitzpatrick et al. 2019, ApJ 886, 108")

CURVES = Registry(
    "dust curve",
    "rubix_like.dust_curves",
    {
        "calzetti": "rubix_like.physics.dust_curves:CALZETTI",
        "cardelli": "rubix_like.physics.dust_curves:CARDELLI",
        "gordon": "rubix_like.physics.dust_curves:GORDON",
        "smc": "rubix_like.physics.dust_curves:SMC",
        "kriek_conroy": "rubix_like.physics.dust_curves:KRIEK_CONROY",
        "power_law": "rubix_like.physics.dust_curves:POWER_LAW",
        "RL85_MWGC": "rubix_like.physics.dust_curves:RL85_MWGC",
        "RRP89_MWGC": "rubix_like.physics.dust_curves:RRP89_MWGC",
        "B92_MWAvg": "rubix_like.physics.dust_curves:B92_MWAVG",
        "G03_LMCAvg": "rubix_like.physics.dust_curves:G03_LMCAVG",
        "G03_LMC2": "rubix_like.physics.dust_curves:G03_LMC2",
        "I05_MWAvg": "rubix_like.physics.dust_curves:I05_MWAVG",
        "CT06_MWGC": "rubix_like.physics.dust_curves:CT06_MWGC",
        "CT06_MWLoc": "rubix_like.physics.dust_curves:CT06_MWLOC",
        "GCC09_MWAvg": "rubix_like.physics.dust_curves:GCC09_MWAVG",
        "F11_MWGC": "rubix_like.physics.dust_curves:F11_MWGC",
        "G21_MWAvg": "rubix_like.physics.dust_curves:G21_MWAVG",
        "D22_MWAvg": "rubix_like.physics.dust_curves:D22_MWAVG",
        "G24_SMCAvg": "rubix_like.physics.dust_curves:G24_SMCAVG",
        "G24_SMCBumps": "rubix_like.physics.dust_curves:G24_SMCBUMPS",
        "C25_M31Avg": "rubix_like.physics.dust_curves:C25_M31AVG",
        "G26_M33Avg": "rubix_like.physics.dust_curves:G26_M33AVG",
        "O94": "rubix_like.physics.dust_curves:O94",
        "F99": "rubix_like.physics.dust_curves:F99",
        "F04": "rubix_like.physics.dust_curves:F04",
        "M14": "rubix_like.physics.dust_curves:M14",
        "F19": "rubix_like.physics.dust_curves:F19",
    },
)
"""Curves by the names of `dust.curve`; a member is a `DustCurve`. Those of dust_extinction have its classes' names."""

_SLACK = 0.1
"""Difference of A / A(V) at 5500 Angstrom from 1 that a curve may have; the built-in ones differ by up to 0.036."""


def find_curve(name: str) -> DustCurve:
    """The curve called `name`; one from outside is tried at its R(V), and judged wherever it is evaluated.

    Raises ConfigError, which names it, for a curve that returns anything but a finite number for each wavelength, that
    is below 0, or that is not relative to A(V).
    """
    curve = CURVES.find(name)
    if name in CURVES.builtin:
        return curve
    place = f"dust curve '{name}'"
    return _tried(expect(curve, DustCurve, place, "a DustCurve of rubix_like.extend"), place)


@functools.cache
def _tried(curve: DustCurve, place: str) -> DustCurve:
    """The curve with its functions judged, once it has been tried."""
    relative = functools.partial(_judged, f"{place}: `relative`", curve.relative)
    sloped = None if curve.sloped is None else functools.partial(_judged, f"{place}: `sloped`", curve.sloped)
    curve = replace(curve, relative=relative, sloped=sloped)
    low, high = curve.wavelength_range
    wavelength = np.linspace(low, high, 101)
    for slope in dict.fromkeys((None, curve.slope)):
        found = curve._at(wavelength, curve.r_v, slope)
        if found.min() < 0:
            raise ConfigError(
                f"{place}: expected A(lambda) / A(V) of 0 or more at its own R(V), {curve.r_v:g}, got "
                f"{found.min():.3g} at {wavelength[np.argmin(found)]:.0f} Angstrom; repair it, or give it a "
                f"wavelength_range in which it dims"
            )
        in_v = float(curve._at(np.full(1, V_BAND), curve.r_v, slope)[0]) if low <= V_BAND <= high else 1.0
        if abs(in_v - 1) > _SLACK:
            raise ConfigError(
                f"{place}: expected A(lambda) / A(V), which is 1 at {V_BAND:.0f} Angstrom, got {in_v:.3g} there; "
                f"divide A / E(B-V) by R(V), and log10 of a transmission by its value there"
            )
    return curve


def _judged(
    call: str, function: Callable[..., Any], wavelength: Float[ndarray, " wave"], *numbers: float
) -> Float[ndarray, " wave"]:
    """The values of a curve's function from outside; what it raises, or returns wrong, is an error that names it."""
    remedy = "it is called with wavelengths (Angstrom), R(V) and, of `sloped`, the slope"
    with plug_in_named(call, function, remedy):
        found = np.asarray(function(wavelength, *numbers))
    if found.dtype.kind not in "iuf" or found.shape != wavelength.shape:
        raise ConfigError(
            f"{call} must return real numbers of shape {wavelength.shape}, one A(lambda) / A(V) for each wavelength, "
            f"got {found.dtype} of shape {found.shape}"
        )
    good = np.isfinite(found)
    if not good.all():
        first = int(np.argmin(good))
        raise ConfigError(
            f"{call} must return finite numbers, got {found[first]} at {wavelength[first]:.0f} Angstrom; set "
            f"DustCurve.wavelength_range to where it is defined"
        )
    return found
