"""What cannot be, whatever a file says, found with numpy, h5py and astropy alone, in words."""

from pathlib import Path

import h5py
import numpy as np
from astropy import constants, units
from astropy.cosmology import Planck18
from astropy.io import fits

LIBRARY = Path(__file__).resolve().parent.parent.parent / "data" / "popstar.h5"
BAND = (4500.0, 5500.0)
"""Angstrom at rest."""


def brightest() -> float:
    """The most light of a solar mass at birth in the band, in Lsun/Angstrom, over the library's nodes."""
    with h5py.File(LIBRARY) as file:
        wave = file["rest_wavelength"][()]
        inside = (wave > BAND[0]) & (wave < BAND[1])
        light = file["spectra"][:, :, inside]
    return float(light.max())


def flux_limit(mass: float, redshift: float = 0.05) -> float:
    """M max(L/M) / (4 pi d^2 (1+z)) in 1e-20 erg/s/cm2/Angstrom: the most that `mass` (Msun at birth) shines."""
    distance = Planck18.luminosity_distance(redshift).to(units.cm).value
    luminosity = mass * brightest() * constants.L_sun.to("erg/s").value
    return luminosity / (4 * np.pi * distance**2 * (1 + redshift)) / 1e-20


def of_numbers(name: str, values, low: float = -np.inf, high: float = np.inf) -> list[str]:
    """NaN, infinities and what is outside of limits."""
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        return [f"{name} is not finite"]
    if values.size and (values.min() < low or values.max() > high):
        return [f"{name} is {values.min():g} to {values.max():g}, outside of {low:g} to {high:g}"]
    return []


def of_galaxy(galaxy) -> list[str]:
    """Stars that no galaxy has."""
    stars = galaxy.stars
    found = of_numbers("position", stars.position, -1e7, 1e7) + of_numbers("velocity", stars.velocity, -3e5, 3e5)
    born = np.asarray(stars.initial_mass, dtype=float)
    mass = born if stars.mass is None else np.where(np.isnan(born), stars.mass, born)  # NaN: the library will tell it
    found += of_numbers("initial_mass", mass, 0.0, 1e16)
    found += of_numbers("log_age", stars.log_age, 0.0, 10.2) + of_numbers("metallicity", stars.metallicity, 0.0, 1.0)
    if stars.mass is not None:
        found += of_numbers("mass", stars.mass, 0.0, 1e16)
    if len(stars.initial_mass) == 0:
        found.append("no stars")
    if not found and not mass.sum() > 0:
        found.append("no mass, and so no light")
    return found


def of_library(library) -> list[str]:
    """Spectra, ages and metallicities of no population."""
    found = of_numbers("log_age", library.log_age, 0.0, 11.0)
    found += of_numbers("metallicity", library.metallicity, 0.0, 1.0)
    found += of_numbers("rest_wavelength", library.rest_wavelength, 0.1, 1e12)
    found += of_numbers("spectra", library.spectra, high=1e6) + of_numbers("fwhm", library.fwhm, 0.0)
    if not found and np.asarray(library.spectra).sum(axis=-1).min() < 0:
        found.append("a spectrum has less than no light")
    return found


def of_flux(flux, variance=None, used=None) -> list[str]:
    """Flux that is no number where it is used, and variances below 0."""
    used = np.ones(np.shape(flux), bool) if used is None else np.asarray(used)
    found = of_numbers("flux", np.asarray(flux)[used])
    if variance is not None:
        found += of_numbers("variance", np.asarray(variance)[used], 0.0)
    return found


def of_run(path: Path, most: float | None) -> list[str]:
    """The cube that a command wrote, by astropy: every voxel a number, and not brighter than its mass can be."""
    with fits.open(path) as hdus:
        flux = np.asarray(hdus["DATA"].data, dtype=float)
        sigma = np.sqrt(np.asarray(hdus["STAT"].data, dtype=float)) if "STAT" in hdus else np.zeros(1)
    found = of_numbers("flux", flux)
    if found or most is None:
        return found
    total, noise = flux.sum(axis=(1, 2)).max(), 6 * np.sqrt((sigma**2).sum())
    if total > most * 1.01 + noise or total < -noise:
        found.append(f"total flux {total:g}, expected 0 to {most:g}")
    return found
