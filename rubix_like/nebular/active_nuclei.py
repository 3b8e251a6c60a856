"""How many ionising photons an active nucleus shines, by its bolometric luminosity."""

from rubix_like.constants import LYMAN_LIMIT, PHOTON_ENERGY_AT_1_ANGSTROM

BREAK: float = 912.0
"""Angstrom at which the mean spectrum of quasars becomes steeper (Lusso et al. 2015, MNRAS 449, 4204)."""

SLOPES: tuple[float, float] = (-0.61, -1.70)
"""Its slopes d ln L_nu / d ln nu, redwards and bluewards of the break (the same)."""

REDDEST: float = 1e4
BLUEST: float = 6.1992
"""Angstrom (1 micron, 2 keV) between which the light counts as bolometric, as for Krawczyk et al. (2013, ApJS 206, 4):
what dust re-radiates is not counted twice."""


def photons_per_erg() -> float:
    """Photons below 912 A for each erg of the bolometric luminosity of an active nucleus, 9.2e9.

    Of the mean spectrum of 53 quasars, L_nu ~ nu^-0.61 redwards and nu^-1.70 bluewards of 912 A: Q / L = integral of
    L_nu / (h nu) from 912 A on / integral of L_nu. The mean photon has 32 eV. Single quasars differ by a factor of two.
    """
    red, blue = SLOPES
    cool = (1.0 - (BREAK / REDDEST) ** (1.0 + red)) / (1.0 + red)
    hot = (1.0 - (BREAK / BLUEST) ** (1.0 + blue)) / -(1.0 + blue)
    photons = ((LYMAN_LIMIT / BREAK) ** -blue - (BLUEST / BREAK) ** -blue) / -blue
    return photons / (cool + hot) * BREAK / PHOTON_ENERGY_AT_1_ANGSTROM
