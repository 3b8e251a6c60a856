"""Table and picture of an exponential disc within its own dust, against the integral along all lines of sight.

    python tests/benchmarks/dusty_disc.py [--particles 131072] [--cells 256] [--figure docs/dusty-disc.png]

Stars: exp(-R / 4 kpc - |z| / 0.35 kpc); dust: 1.4 times as long and half as high, `tau` deep in V at its centre seen
face-on. `particles`: what a run with as many gas particles as stars loses in V (mag), their lengths those of 32
neighbours; `integral`: the same by quadrature, also without scattering. The picture adds a bulge.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from astropy import units
from dust_extinction.parameter_averages import CCM89
from scipy.spatial import cKDTree

jax.config.update("jax_enable_x64", True)
sys.path[:0] = [str(Path(__file__).resolve().parents[1] / own) for own in ("physics", "")]

from double_exponential import Disc, transmission  # noqa: E402
from observing import configuration, galaxy_of, write_library  # noqa: E402

from rubix_like import Galaxy, Gas, Pipeline, make_mesh  # noqa: E402

STARS, DUST = Disc(4.0, 0.35, 24.0), Disc(5.6, 0.175, 24.0)
DEPTHS, INCLINATIONS = (0.5, 2.0, 8.0), (0.0, 45.0, 70.0, 85.0)
OPACITY, REDSHIFT, SHOWN = 4.9, 0.05, (4.0, 70.0)
FOV, SPAXEL = 52.0, 0.5

Observe = Callable[[float, float, float], np.ndarray]
"""(bulge over disc, inclination, depth) -> light in B and in V (band, y, x)."""


def galaxy_with(count: int) -> Galaxy:
    """A disc of stars, as many stars of a bulge, and dust that is 1 deep in V at its centre."""
    gas = DUST.particles(count, seed=2)
    dust = DUST.mass(2.5 / np.log(10) / OPACITY * 1e6) / count
    bulge = np.random.default_rng(1).normal(0, 1.2, (count, 3))
    gas = Gas(
        position=gas,
        velocity=np.zeros_like(gas),
        mass=np.full(count, 100 * dust),
        dust_mass=np.full(count, dust),
        smoothing_length=cKDTree(gas).query(gas, k=33)[0][:, -1],
    )
    return Galaxy(stars=galaxy_of(np.concatenate([STARS.particles(count, seed=1), bulge])).stars, gas=gas)


def observer(count: int, cells: int, folder: Path) -> tuple[Observe, np.ndarray]:
    """What makes images, in one compiled program, and the dust's curve in B and V."""
    config = configuration(
        ssp=write_library(folder / "flat.h5", np.linspace(4000, 6000, 41), np.ones(41)),
        dust={"kind": "particles", "cells": cells},
        instrument={"fov": FOV, "pixel_scale": SPAXEL, "wavelength": {"start": 4570, "stop": 5840, "step": 100}},
        observation={"redshift": REDSHIFT, "position_angle": 90.0, "inclination": 1.0},
        engine={"precision": "float32"},
    )
    galaxy = galaxy_with(count)
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    rest = np.asarray(pipeline(galaxy).wavelength) / (1 + REDSHIFT)
    bands = [int(np.argmin(np.abs(rest - own))) for own in (4400, 5500)]

    def observe(bulge: float, inclination: float, depth: float) -> np.ndarray:
        places = (lambda p: p.observation.inclination), (lambda p: p.dust.opacity)
        parameters = pipeline.parameters
        for place, value in zip(places, (inclination, OPACITY * depth), strict=True):
            parameters = eqx.tree_at(place, parameters, jnp.asarray(value, place(parameters).dtype))
        mass = jnp.where(jnp.arange(2 * count) < count, 1e6, 1e6 * bulge)
        cube = pipeline(eqx.tree_at(lambda g: g.stars.initial_mass, galaxy, mass), parameters)
        return np.moveaxis(np.asarray(cube.flux, dtype=float)[:, :, bands], 2, 0)

    return observe, CCM89(Rv=3.1)(rest[bands] * units.AA)


def table(observe: Observe, relative: float) -> dict[float, list[float]]:
    """Print the rows; the loss in V at each of `INCLINATIONS`, by depth."""
    bare, lost = observe(0.0, 0.0, 0.0)[1].sum(), {}
    print("| tau | inclination | particles | integral | difference |")
    print("|---|---|---|---|---|")
    for depth in DEPTHS:
        lost[depth] = [-2.5 * np.log10(observe(0.0, own, depth)[1].sum() / bare) for own in INCLINATIONS]
        for inclination, found in zip(INCLINATIONS, lost[depth], strict=True):
            truth = -2.5 * np.log10(transmission(STARS, DUST, depth * relative, inclination))
            row = f"| {depth:g} | {inclination:g} | {found:.3f} | {truth:.3f} | {found - truth:+.3f} |"
            print(row, flush=True)
    return lost


def draw(observe: Observe, relative: np.ndarray, lost: dict[float, list[float]], path: Path) -> None:
    """The disc with a bulge in V, how much redder it is than without dust, and the loss against inclination."""
    depth, inclination = SHOWN
    light, bare = observe(0.5, inclination, depth), observe(0.5, inclination, 0.0)
    figure, (image, colour, curve) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    place = {"origin": "lower", "extent": (FOV / 2, -FOV / 2, -FOV / 2, FOV / 2)}
    with np.errstate(divide="ignore", invalid="ignore"):
        bright = -2.5 * np.log10(light[1] / light[1].max())
        redder = -2.5 * np.log10(light[0] / bare[0] * bare[1] / light[1])
    for axes, values, most, title in (
        (image, bright, 7.0, "V (mag below the brightest)"),
        (colour, np.where(bright < 7.0, redder, np.nan), 0.6, "B - V more than without dust"),
    ):
        shown = axes.imshow(values, vmin=0.0, vmax=most, cmap="magma_r" if axes is image else "viridis", **place)
        figure.colorbar(shown, ax=axes, shrink=0.9)
        axes.set(title=title, xlim=(16, -16), ylim=(-10, 10), xlabel="arcsec", ylabel="arcsec")
    angles = np.linspace(0, 86, 24)
    for own, values in lost.items():
        through = [transmission(STARS, DUST, own * relative[1], angle, 24, 160, 301) for angle in angles]
        (line,) = curve.plot(angles, -2.5 * np.log10(through), label=f"tau = {own:g}")
        curve.plot(INCLINATIONS, values, "o", color=line.get_color())
    curve.set(title="Loss in V (lines: integral)", xlabel="inclination (deg)", ylabel="mag", ylim=(0, None))
    curve.legend(frameon=False)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--particles", type=int, default=131072, help="stars, and gas particles (a power of 2)")
    parser.add_argument("--cells", type=int, default=256, help="cells on a side")
    parser.add_argument("--figure", type=Path, help="the picture")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        observe, relative = observer(arguments.particles, arguments.cells, Path(folder))
        lost = table(observe, relative[1])
        if arguments.figure:
            draw(observe, relative, lost, arguments.figure)


if __name__ == "__main__":
    main()
