"""By how much flux and position of a star scatter in cubes of fibres, over random places near the middle of the field.

    python tests/benchmarks/fibre_stars.py            # about a minute

Prints the standard deviation of the flux in per cent of its mean, and of the light-weighted centre along each axis in
arcsec, for each survey's recipe in the seeing of its preset; by the package, and by numpy alone: Gauss-Legendre sums of
the light in each fibre and weights of its own for each spaxel, of which the largest difference of a flux is printed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy import ndarray

from rubix_like.extend import Footprint
from rubix_like.instrument.fibres.bundle import cube_weights, fibre_places
from rubix_like.instrument.fibres.fibre_map import angles_for, share_in_fibre

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fibre_sums import light_in_disc
from small import instrument_settings

NAMES = ("manga_fibres", "sami_blue_fibres", "califa_v500_fibres")

HALF = 2.0
"""arcsec: stars lie in a box of twice this side about the field's centre."""

STRIPS = 400
"""Strips that a spaxel is cut into, of which those parts count that lie in a fibre's disc."""


def components(psf: Any) -> list[tuple[float, float]]:
    """Share of the light and FWHM of each Gaussian of the seeing."""
    if psf.kind == "gaussian":
        return [(1.0, float(psf.fwhm))]
    total = sum(own.fraction for own in psf.components)
    return [(own.fraction / total, float(own.fwhm)) for own in psf.components]


def package_images(settings: Any, stars: ndarray) -> ndarray:
    """(y, x, star) as the package makes them."""
    places, footprint = fibre_places(settings.fibres), Footprint.build(settings)
    away = np.hypot(*(own[:, None] - star for own, star in zip((places.x, places.y), stars.T, strict=True)))
    light = sum(
        share
        * share_in_fibre(
            jnp.asarray(away.ravel()), places.radius, jnp.asarray(fwhm), None, angles_for(places.radius, fwhm)
        )
        for share, fwhm in components(settings.psf)
    )
    return np.asarray(cube_weights(settings.fibres.cube, places, footprint).images(light.reshape(away.shape)))


def numpy_images(settings: Any, stars: ndarray) -> ndarray:
    """The same by sums of numpy alone, of the fibres within 12 arcsec."""
    places, footprint = fibre_places(settings.fibres), Footprint.build(settings)
    psf = {"kind": "gaussians", "components": [{"fraction": f, "fwhm": w} for f, w in components(settings.psf)]}
    images = []
    weights = own_weights(settings.fibres.cube, places, footprint)
    total = weights.sum(axis=1, keepdims=True)
    share = np.where(total > 0, weights / np.where(total > 0, total, 1), 0) * footprint.pixel_scale**2
    for east, north in stars:
        away = np.hypot(places.x - east, places.y - north)
        near = away < 12.0
        light = np.zeros(len(away))
        light[near] = [light_in_disc(psf, r, places.radius) for r in away[near]]
        images.append(share @ light / (np.pi * places.radius**2))
    return np.stack(images, axis=-1).reshape(*footprint.shape, len(stars))


def own_weights(recipe: Any, places: Any, footprint: Footprint) -> ndarray:
    """(spaxel, fibre) weights of the recipe, before they are normalised."""
    x, y = (own.ravel() for own in np.meshgrid(*footprint.centres()))
    weights = np.zeros((len(x), len(places.x)))
    for number, (east, north) in enumerate(zip(places.x, places.y, strict=True)):
        if recipe.method == "shepard":
            r = np.hypot(x - east, y - north)
            weights[:, number] = np.where(r < recipe.limit, np.exp(-0.5 * (r / recipe.sigma) ** 2), 0)
            continue
        radius, half = places.radius * recipe.drop, footprint.pixel_scale / 2
        near = np.hypot(x - east, y - north) < radius + 2 * half
        middle = (np.arange(STRIPS) + 0.5) / STRIPS * 2 * half - half
        strip = x[near, None] - east + middle
        chord = np.sqrt(np.maximum(radius**2 - strip**2, 0))
        low, high = ((y[near] - north)[:, None] + side for side in (-half, half))
        inside = np.maximum(np.minimum(high, chord) - np.maximum(low, -chord), 0)
        weights[near, number] = inside.sum(axis=1) * 2 * half / STRIPS
    return weights


def spread(images: ndarray, stars: ndarray, footprint: Footprint) -> tuple[ndarray, float, ndarray]:
    """Fluxes, their standard deviation in per cent, and that of the centres in arcsec (East, North)."""
    x, y = footprint.centres()
    flux = images.sum(axis=(0, 1))
    centre = np.stack([(images.sum(axis=0).T @ x) / flux, (images.sum(axis=1).T @ y) / flux], axis=1)
    return flux, float(100 * flux.std() / flux.mean()), (centre - stars).std(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--names", nargs="+", default=NAMES)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    stars = np.random.default_rng(1).uniform(-HALF, HALF, (arguments.places, 2))
    print("| instrument | flux (%) | East, North (arcsec) | flux by numpy (%) | East, North (arcsec) | difference |")
    print("|---|---|---|---|---|---|")
    for name in arguments.names:
        settings = instrument_settings({"name": name})
        footprint = Footprint.build(settings)
        made, summed = (spread(images(settings, stars), stars, footprint) for images in (package_images, numpy_images))
        columns = [f"{own[1]:.2f} | {own[2][0]:.3f}, {own[2][1]:.3f}" for own in (made, summed)]
        print(f"| {name} | {' | '.join(columns)} | {np.abs(made[0] / summed[0] - 1).max():.0e} |", flush=True)


if __name__ == "__main__":
    main()
