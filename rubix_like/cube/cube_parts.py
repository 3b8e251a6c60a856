"""Cubes in parts along wavelength, on one or several devices or processes.

Nothing here ever holds more of a cube on the host than a block of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Bins, Cube, Map, MaskBits, Voxels
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.footprint import AbstractCube, Card, Footprint, cube_cards
from rubix_like.cube.meta import (
    NOISE_KEYS,
    OUTSIDE_APERTURE,
    OUTSIDE_SSP,
    SPREAD_FROM_BEYOND,
    SYSTEMATICS_KEYS,
    Counters,
    Meta,
    SourceCounters,
)
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup

if TYPE_CHECKING:
    from rubix_like.cube.fibres.covariance import SpaxelCorrelations
    from rubix_like.cube.maps import Maps
    from rubix_like.cube.mosaic_noise import MosaicNoise

BLOCK_BYTES: int = 1 << 24
"""Most that one kind of values of a block takes."""


@dataclass(frozen=True, eq=False)
class Part:
    """Neighbouring bins of a cube from bin `first` on, (y, x, bin) each; bins beyond the cube's last are padding."""

    first: int
    flux: Voxels
    variance: Voxels | None = None
    truth: Voxels | None = None
    bits: MaskBits | None = None
    contributions: Mapping[str, Voxels] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows and bins (numbered as the cube's) of a part.

    Values, (row, x, bin) in their dtype, are brought to the host when they are asked for.
    """

    rows: slice
    bins: slice
    part: Part
    mask_bits: tuple[Int[Array | ndarray, "_ _ _"], ...]

    @cached_property
    def flux(self) -> Float[ndarray, "row x bin"]:
        """Flux of the block."""
        return self._fetch(self.part.flux)

    @cached_property
    def variance(self) -> Float[ndarray, "row x bin"] | None:
        """Its variance; None without a noise model."""
        return None if self.part.variance is None else self._fetch(self.part.variance)

    @cached_property
    def truth(self) -> Float[ndarray, "row x bin"] | None:
        """Its flux without noise, where that was kept."""
        return None if self.part.truth is None else self._fetch(self.part.truth)

    def contribution(self, name: str) -> Float[ndarray, "row x bin"]:
        """The part of the flux that one systematic error adds to the truth."""
        return self._fetch(self.part.contributions[name])

    @property
    def mask(self) -> Int[ndarray, "row x bin"]:
        """The mask bits of the block."""
        return np.broadcast_to(self.bits, self.shape)

    @cached_property
    def bits(self) -> Int[ndarray, "_ _ _"]:
        """The mask bits of the block, of length 1 along an axis where all are the same as far as is known."""
        alone, found = slice(0, 1), [] if self.part.bits is None else [self._fetch(self.part.bits)]
        for bits in self.mask_bits:
            rows, bins = self.rows if bits.shape[0] > 1 else alone, self.bins if bits.shape[2] > 1 else alone
            found.append(_on_host(bits, rows, bins))
        return reduce(np.bitwise_or, found)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (y, x, bin) of the block's values."""
        return self.rows.stop - self.rows.start, self.part.flux.shape[1], self.bins.stop - self.bins.start

    def _fetch(self, values: Voxels | MaskBits) -> Num[ndarray, "row x bin"]:
        bins = slice(self.bins.start - self.part.first, self.bins.stop - self.part.first)
        return _on_host(values, self.rows, bins)


@dataclass(frozen=True, eq=False)
class ShardedCube(AbstractCube):
    """A cube without its voxels, as `Cube` has it, and those of its voxels that this process has.

    `mask_bits`: integers (y or 1, x, wave or 1) whose bits together are the mask, as the mask of a pipeline's cube is
    `spaxel_bits | wave_bits`, but for the bits of single voxels in the parts, of which `voxel_flags` are possible.
    `has_variance`, `has_truth`: whether the parts, here and in other processes, have them; `contributions`: the names
    of those that they have.
    """

    parts: tuple[Part, ...]
    mask_bits: tuple[Int[Array | ndarray, "_ _ _"], ...]
    bins: WavelengthBins
    footprint: Footprint
    has_variance: bool = False
    has_truth: bool = False
    lsf_fwhm: Bins | None = None
    mean_v_los: Map | None = None
    counters: Counters | None = None
    maps: "Maps | None" = None
    meta: Meta = field(default_factory=Meta)
    source_counters: dict[str, SourceCounters] = field(default_factory=dict)
    fibres: FibreSpectra | None = None
    voxel_flags: int = 0
    contributions: tuple[str, ...] = ()
    noise_sources: "MosaicNoise | None" = None
    correlations: "SpaxelCorrelations | None" = None

    def __post_init__(self) -> None:
        expected = self.footprint.shape
        for part in self.parts:
            if np.shape(part.flux)[:2] != expected:
                raise ValueError(
                    f"ShardedCube.parts: expected all spaxels {expected} in every part, got flux {np.shape(part.flux)}"
                )

    @property
    def wcs_cards(self) -> tuple[Card, ...]:
        """The FITS cards (keyword, value, comment) of the world coordinates, as written to files."""
        return cube_cards(self.footprint, self.bins, self.meta)

    @cached_property
    def flags(self) -> int:
        """All bits of the mask that any voxel has, or may have by a systematic error; 0: none is flagged."""
        known = (int(np.bitwise_or.reduce(np.asarray(bits), axis=None)) for bits in self.mask_bits)
        return reduce(or_, known, self.voxel_flags)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last (exclusive) bin of every part, without padding and empty parts, in order."""
        n_wave = self.shape[2]
        ends = ((part.first, min(part.first + np.shape(part.flux)[2], n_wave)) for part in self.parts)
        return tuple(sorted((first, last) for first, last in ends if first < last))

    def blocks(self, *, whole_rows: bool = False) -> Iterator[Block]:
        """The voxels of this process in blocks of at most `BLOCK_BYTES`, in the order of the bins and then of the rows.

        A block has all rows, unless one bin is too large; with `whole_rows` all bins of its part, unless one row is.
        """
        n_y, n_x, n_wave = self.shape
        for part in sorted(self.parts, key=lambda part: part.first):
            n_bins = min(np.shape(part.flux)[2], n_wave - part.first)
            if n_bins <= 0:
                continue
            limit = BLOCK_BYTES // (n_x * np.dtype(part.flux.dtype).itemsize)
            step_y = min(max(limit // n_bins, 1), n_y) if whole_rows else n_y
            step = min(max(limit // step_y, 1), n_bins)
            step_y = step_y if whole_rows else min(max(limit // step, 1), n_y)
            for first in range(part.first, part.first + n_bins, step):
                bins = slice(first, min(first + step, part.first + n_bins))
                for start in range(0, n_y, step_y):
                    yield Block(slice(start, min(start + step_y, n_y)), bins, part, self.mask_bits)


@named_arguments
def in_parts(cube: Cube | ShardedCube) -> ShardedCube:
    """A whole cube as one of parts: one, or those of the devices that it lies on."""
    if isinstance(cube, ShardedCube):
        return cube
    mask = cube.mask
    if isinstance(mask, np.ndarray):  # without what `numpy.broadcast_to` repeated
        mask = mask[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in mask.strides)]
    return ShardedCube(
        parts=parts_of(cube.flux, cube.variance, cube.truth, contributions=cube.contributions),
        mask_bits=(mask,),
        has_variance=cube.variance is not None,
        has_truth=cube.truth is not None,
        contributions=tuple(cube.contributions),
        **_description(cube),
    )


def put_together(cube: Cube | ShardedCube) -> Cube:
    """The whole cube, on the host; raises ValueError where this process does not have all its parts."""
    if isinstance(cube, Cube):
        return cube
    check_complete(cube.ranges, cube.shape[2])
    parts = sorted(cube.parts, key=lambda part: part.first)

    def joined(values: Iterable[Any]) -> ndarray:  # without padding
        return np.concatenate([np.asarray(value) for value in values], axis=2)[:, :, : cube.shape[2]]

    mask = np.broadcast_to(reduce(np.bitwise_or, cube.mask_bits), cube.shape)
    if all(part.bits is not None for part in parts):
        mask = mask | joined(part.bits for part in parts)
    return Cube(
        flux=joined(part.flux for part in parts),
        variance=joined(part.variance for part in parts) if cube.has_variance else None,
        truth=joined(part.truth for part in parts) if cube.has_truth else None,
        mask=mask,
        contributions={name: joined(part.contributions[name] for part in parts) for name in cube.contributions},
        **_description(cube),
    )


def _description(cube: Cube | ShardedCube) -> dict[str, Any]:
    """Fields that a cube and a cube in parts share."""
    names = {item.name for item in fields(Cube)} & {item.name for item in fields(ShardedCube)} - {"contributions"}
    return {name: getattr(cube, name) for name in names}


def parts_of(
    flux: Voxels,
    variance: Voxels | None = None,
    truth: Voxels | None = None,
    bits: MaskBits | None = None,
    contributions: Mapping[str, Voxels] | None = None,
) -> tuple[Part, ...]:
    """The parts of a cube's arrays that lie in this process: one per device on which they are spread along wavelength.

    Of copies on several devices only the first counts. Raises ValueError for arrays of several processes that are
    spread in another way.
    """
    fluxes, *others = (_pieces(values) for values in (flux, variance, truth, bits))
    named = {name: _pieces(values) for name, values in (contributions or {}).items()}
    return tuple(
        Part(
            first,
            piece,
            *(pieces.get(first) for pieces in others),
            contributions={name: pieces[first] for name, pieces in named.items()},
        )
        for first, piece in fluxes.items()
    )


def _pieces(values: Voxels | MaskBits | None) -> dict[int, Any]:
    if values is None:
        return {}
    if not isinstance(values, jax.Array):
        return {0: values}
    shards = [shard for shard in values.addressable_shards if shard.replica_id == 0]
    if all(shard.data.shape[:2] == values.shape[:2] for shard in shards):
        return {shard.index[2].start or 0: shard.data for shard in shards}
    if not values.is_fully_addressable:
        raise ValueError(
            f"cube: expected flux to be spread over processes along wavelength alone, got {values.sharding}"
        )
    return {0: np.asarray(values)}


def check_complete(ranges: Iterable[tuple[int, int]], n_wave: int) -> None:
    """Raise ValueError unless the bins (first, last exclusive) are all bins of a cube, each once."""
    reached = 0
    for first, last in sorted(ranges):
        if first != reached:
            raise ValueError(f"cube: expected a part that starts with bin {reached}, got one that starts with {first}")
        reached = last
    if reached != n_wave:
        raise ValueError(f"cube: expected parts up to bin {n_wave} (exclusive), got them up to {reached}")


@partial(jax.jit, static_argnums=(3, 4))
def cut_out(values: Array, row: Any, bin_: Any, n_rows: int, n_bins: int) -> Array:
    """Some rows and bins of an array from (`row`, `bin_`) on, on its device."""
    return lax.dynamic_slice(values, (row, 0, bin_), (n_rows, values.shape[1], n_bins))


def _on_host(values: Array | ndarray, rows: slice, bins: slice) -> ndarray:
    """Some rows and bins on the host: no copy of what is there; of what is not, cut out on the device."""
    if isinstance(values, np.ndarray) or all(device.platform == "cpu" for device in values.devices()):
        return np.asarray(values)[rows, :, bins]
    return np.asarray(cut_out(values, rows.start, bins.start, rows.stop - rows.start, bins.stop - bins.start))


def noiseless(cube: Cube | ShardedCube) -> ShardedCube:
    """The cube of the true flux (`truth`), without variance, with what systematic errors add to it; raises ValueError
    where the truth was not kept."""
    noisy = in_parts(cube)
    if not noisy.has_truth:
        raise ValueError("Cube.truth: expected the noiseless flux, got None; observe with noise.keep_truth: true")
    meta = Meta({key: value for key, value in noisy.meta.items() if key not in (*NOISE_KEYS, *SYSTEMATICS_KEYS)})
    parts = tuple(
        Part(part.first, part.truth, contributions=part.contributions) for part in noisy.parts if part.truth is not None
    )
    return replace(
        noisy,
        parts=parts,
        has_variance=False,
        has_truth=False,
        meta=meta,
        fibres=None,
        noise_sources=None,
        correlations=None,
        voxel_flags=0,
    )


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
    for name in everyone[0]:
        merge = _MERGED.get(name, np.logical_or)
        merged[name] = np.asarray(merge.reduce(np.stack([sums[name] for sums in everyone])))
    return CubeSums(**merged)


def _own_sums(cube: ShardedCube) -> CubeSums:
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
    rows, bins, mask = block.rows, block.bins, block.bits
    good = mask == 0
    every = bool(good.all())
    for row in range(rows.start, rows.stop):  # row by row, what is computed stays in the processor's cache
        flux = block.flux[row - rows.start].astype(np.float64)
        if not every:
            flux = np.where(np.broadcast_to(good, block.shape)[row - rows.start], flux, 0)
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

    def share() -> list[ndarray]:
        found = [np.zeros(parts.shape[2]), np.zeros(parts.shape[2]), np.zeros(parts.shape[2], np.int64)]
        for block in (block for block in parts.blocks() if block.rows.start <= y < block.rows.stop):
            for values, stored in zip(found, (block.flux, block.variance, block.mask), strict=True):
                if stored is not None:
                    values[block.bins] = stored[y - block.rows.start, x]
        return found

    return Spaxel(*(np.sum(np.stack(values), axis=0) for values in zip(*(team or SINGLE).exchange(share), strict=True)))


def total_flux(cube: Cube | ShardedCube) -> float:
    """Flux of all good voxels of the parts in this process, sum of F_lambda d(lambda), in 1e-20 erg/s/cm2.

    Each spaxel's sum has the cube's precision, their sum 64 bits; several times as fast as `sums_of`.
    """
    parts, total = in_parts(cube), 0.0
    widths = np.diff(parts.bins.edges)
    for block in parts.blocks():
        good = block.bits == 0
        flux = block.flux if good.all() else np.where(good, block.flux, np.zeros((), block.flux.dtype))
        total += float(np.sum(flux @ widths[block.bins].astype(flux.dtype), dtype=np.float64))
    return total
