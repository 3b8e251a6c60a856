"""Sums of a cube for the summary of a run, in one pass over the blocks of its parts, wherever they are."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import Block, ShardedCube, in_parts
from rubix_like.cube.meta import OUTSIDE_APERTURE, OUTSIDE_SSP, SPREAD_FROM_BEYOND
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup


@dataclass(frozen=True, eq=False)
class CubeSums:
    """Sums over the good voxels of a cube (float64, our units), and where its mask has which bit.

    `light`: white light, sum of F_lambda d(lambda). `field`, `field_variance`: sums over spaxels. `brightest`: voxel,
    at least 0. `is_noisy`: whether any variance is not 0. `outside_ssp`, `spread`: bins with such a voxel. `missing`:
    bins, `outside_aperture`: spaxels, all of whose voxels are outside the library or the aperture. `unlit`: spaxels
    without a good voxel.
    """

    light: Float[ndarray, "y x"]
    field: Float[ndarray, " wave"]
    field_variance: Float[ndarray, " wave"]
    brightest: Float[ndarray, ""]
    is_noisy: Bool[ndarray, ""]
    outside_ssp: Bool[ndarray, " wave"]
    spread: Bool[ndarray, " wave"]
    missing: Bool[ndarray, " wave"]
    outside_aperture: Bool[ndarray, "y x"]
    unlit: Bool[ndarray, "y x"]


_MERGED: dict[str, Any] = {
    "light": np.add,
    "field": np.add,
    "field_variance": np.add,
    "brightest": np.maximum,
    "missing": np.logical_and,
    "outside_aperture": np.logical_and,
    "unlit": np.logical_and,
}
"""How two processes' values become one; others: where one has it."""


def sums_of(cube: Cube | ShardedCube, team: AbstractProcessGroup | None = None) -> CubeSums:
    """The sums over all parts of a cube, those of the other processes of the team included."""
    parts = in_parts(cube)
    everyone = (team or SINGLE).exchange(lambda: vars(_own_sums(parts)))
    merged = {}
    for name in (field.name for field in fields(CubeSums)):
        merge = _MERGED.get(name, np.logical_or)
        merged[name] = np.asarray(merge.reduce(np.stack([sums[name] for sums in everyone])))
    return CubeSums(**merged)


def _own_sums(cube: ShardedCube) -> CubeSums:
    """The sums over the parts in this process."""
    n_y, n_x, n_wave = cube.shape
    sums = CubeSums(
        light=np.zeros((n_y, n_x)),
        field=np.zeros(n_wave),
        field_variance=np.zeros(n_wave),
        brightest=np.zeros(()),
        is_noisy=np.zeros((), bool),
        outside_ssp=np.zeros(n_wave, bool),
        spread=np.zeros(n_wave, bool),
        missing=np.ones(n_wave, bool),
        outside_aperture=np.ones((n_y, n_x), bool),
        unlit=np.ones((n_y, n_x), bool),
    )
    widths = np.diff(cube.bins.edges)
    for block in cube.blocks():
        _add(sums, block, widths[block.bins])
    return sums


def _add(sums: CubeSums, block: Block, widths: Float[ndarray, " bin"]) -> None:
    """Take a block into the sums' arrays."""
    rows, bins, mask = block.rows, block.bins, block.bits
    good = mask == 0
    every = bool(good.all())
    for row in range(rows.start, rows.stop):  # row by row, what is computed stays in the processor's cache
        own = block.flux[row - rows.start]
        flux = (own if every else np.where(np.broadcast_to(good, block.shape)[row - rows.start], own, 0)).astype(
            np.float64
        )
        sums.light[row] += flux @ widths
        sums.field[bins] += flux.sum(axis=0)
        sums.brightest[...] = max(sums.brightest, flux.max(initial=0.0))
    if block.variance is not None:
        sums.field_variance[bins] += np.sum(block.variance, axis=(0, 1), where=good, dtype=np.float64)
        sums.is_noisy[...] |= bool(np.any(block.variance))
    outside = mask & OUTSIDE_SSP != 0
    sums.outside_ssp[bins] |= np.any(outside, axis=(0, 1))
    sums.missing[bins] &= np.all(outside, axis=(0, 1))
    sums.spread[bins] |= np.any(mask & SPREAD_FROM_BEYOND, axis=(0, 1))
    sums.outside_aperture[rows] &= np.all(mask & OUTSIDE_APERTURE, axis=2)
    sums.unlit[rows] &= ~np.any(good, axis=2)


class Spaxel(NamedTuple):
    """Flux, variance (0 without a noise model) and mask of one spaxel."""

    flux: Float[ndarray, " wave"]
    variance: Float[ndarray, " wave"]
    mask: Int[ndarray, " wave"]


def spaxel_of(cube: Cube | ShardedCube, x: int, y: int, team: AbstractProcessGroup | None = None) -> Spaxel:
    """The spectrum of spaxel (x, y), joined from all parts (float64)."""
    parts = in_parts(cube)

    def own() -> list[ndarray]:
        found = [np.zeros(parts.shape[2]), np.zeros(parts.shape[2]), np.zeros(parts.shape[2], np.int64)]
        for block in (block for block in parts.blocks() if block.rows.start <= y < block.rows.stop):
            for values, seen in zip(found, (block.flux, block.variance, block.mask), strict=True):
                if seen is not None:
                    values[block.bins] = seen[y - block.rows.start, x]
        return found

    return Spaxel(*(np.sum(np.stack(values), axis=0) for values in zip(*(team or SINGLE).exchange(own), strict=True)))


def white_light(cube: Cube) -> Float[np.ndarray, "y x"]:
    """Flux of every spaxel over its good bins, sum of F_lambda d(lambda) in float64: (y, x), 1e-20 erg/s/cm2."""
    return sums_of(cube).light


def total_flux(cube: Cube | ShardedCube) -> float:
    """Flux of all good voxels of the parts in this process, sum of F_lambda d(lambda), in 1e-20 erg/s/cm2.

    Each spaxel's sum has the cube's own precision, their sum 64 bits; several times as fast as `white_light`.
    """
    parts, total = in_parts(cube), 0.0
    widths = np.diff(parts.bins.edges)
    for block in parts.blocks():
        good = block.bits == 0
        flux = block.flux if good.all() else np.where(good, block.flux, np.zeros((), block.flux.dtype))
        total += float(np.sum(flux @ widths[block.bins].astype(flux.dtype), dtype=np.float64))
    return total
