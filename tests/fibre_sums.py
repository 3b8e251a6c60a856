"""Light in fibres and cubes made of it, by plain sums in 64 bits that know nothing of grids, tables or sparse maps."""

import numpy as np


def profile(psf, seeing=1.0):
    """The PSF (per arcsec^2) as a function of the distance in arcsec, from its formula; `psf` as in a configuration."""
    if psf["kind"] == "moffat":
        alpha2 = (psf["fwhm"] * seeing) ** 2 / (4 * (2 ** (1 / psf["beta"]) - 1))
        return lambda r: (psf["beta"] - 1) / (np.pi * alpha2) * (1 + r**2 / alpha2) ** -psf["beta"]
    parts = psf.get("components") or [{"fwhm": psf["fwhm"], "fraction": 1.0}]
    total = sum(part["fraction"] for part in parts)
    variances = [(part["fwhm"] * seeing) ** 2 / (8 * np.log(2)) for part in parts]

    def of(r):
        light = (
            part["fraction"] / total * np.exp(-(r**2) / (2 * variance)) / (2 * np.pi * variance)
            for part, variance in zip(parts, variances, strict=True)
        )
        return sum(light)

    return of


def light_in_disc(psf, distance, radius, seeing=1.0):
    """Light of a point within a disc whose middle is at a distance: Gauss-Legendre in r, trapezoid rule in angle."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    r, weight = (nodes + 1) * radius / 2, weights * radius / 2
    angle = np.arange(48) * (2 * np.pi / 48)
    away = np.sqrt(r[:, None] ** 2 + distance**2 - 2 * r[:, None] * distance * np.cos(angle))
    return float((weight * r) @ profile(psf, seeing)(away).mean(axis=1)) * 2 * np.pi


def spaxels_by_shepard(flux, x, y, area, centres, pixel_scale, sigma, limit):
    """(y, x) of fluxes of fibres at (x, y): weighted means of surface brightness times the spaxel's area; NaN where no
    fibre is within the limit."""
    columns, rows = centres
    image = np.full((len(rows), len(columns)), np.nan)
    for row, north in enumerate(rows):
        for column, east in enumerate(columns):
            r = np.sqrt((x - east) ** 2 + (y - north) ** 2)
            weight = np.where(r < limit, np.exp(-0.5 * (r / sigma) ** 2), 0.0)
            if weight.sum() > 0:
                image[row, column] = (weight @ flux) / weight.sum() * pixel_scale**2 / area
    return image
