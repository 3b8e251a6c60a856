"""Several pointings as one cube: the mean on a North-up grid, spaxels shared out by the area in which they overlap."""

import logging
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.sparse import csr_array

from rubix_like.arguments import named_arguments
from rubix_like.cube.cube import Cube, Voxels
from rubix_like.cube.cube_parts import sums_of
from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.cube.mosaic_noise import (
    Field,
    MosaicGrid,
    MosaicNoise,
    PointingLayer,
    PointingNoise,
    fibre_noise,
    grid_around,
    pointing_weights,
    summed_variance,
)
from rubix_like.errors import ConfigError
from rubix_like.physics.tangent_plane import convergence, separation, to_tangent_plane
from rubix_like.runtime.arrays_on_disk import digest_of
from rubix_like.runtime.memory import BYTES_PER_VOXEL, available_memory
from rubix_like.runtime.words import format_bytes

LEAST_AREA: float = 0.5
"""A spaxel belongs to the mosaic where good spaxels of the pointings cover at least this share of it."""

_SEEN_ALIKE = ("redshift", "inclination", "position_angle")
"""Entries of a cube on how the galaxy is seen, which all pointings have alike."""

_BLOCK_VOXELS = 1 << 22

_BEYOND_PLANE = 90.0
"""deg, from where on places are not in the tangent plane."""

_SCATTERED = 4
"""Spaxels of the grid for each one of the cubes, from where on most of the grid lies between them."""


@named_arguments
def make_mosaic(cubes: Sequence[Cube]) -> Cube:
    """The weighted mean of overlapping cubes on a North-up grid of the same pixel scale.

    F_j = sum_ki w_k a_ji F_ki / sum_ki w_k a_ji with a_ji the area that spaxel i of pointing k shares with spaxel j
    (drizzling with pixfrac 1 and scale 1, Fruchter & Hook 2002, PASP 114, 144) and w_k, at each wavelength, the inverse
    of the median variance of the pointing, or 1 without a noise model: the same for all of its spaxels, so that each
    pointing's light is conserved. Var_j = sum w^2 a^2 Var / (sum w a)^2, of pointings made of fibres by the fibres'
    variances; the covariance between neighbours is that of the same map (`Cube.covariance`). Of cubes that were read
    with correlations of their spaxels, variances are those of independent ones: too small; `covariance` is refused.

    Flagged voxels are used only where there is no good one, and the flags stand only there; spaxels that are covered to
    less than half are flagged as outside the aperture. `mean_v_los` is averaged with the white light as weight, `truth`
    as the flux; `counters` and `maps` are None. Raises ValueError for cubes that differ in more than place, angle and
    size.
    """
    _check_alike(cubes)
    _check_noise(cubes)
    first = cubes[0]
    grid, layers = _layers(cubes)
    flux, variance, mask, weights = _combined(layers, grid.footprint.n_element)

    def combined(values: Sequence[Voxels]) -> ndarray:
        elements = (cube.footprint.elements(np.asarray(value)) for cube, value in zip(cubes, values, strict=True))
        swapped = [layer._replace(flux=flux, fibres=None) for layer, flux in zip(layers, elements, strict=True)]
        return grid.footprint.images(_combined(swapped, grid.footprint.n_element)[0])

    truths = [cube.truth for cube in cubes if cube.truth is not None]
    errors = [name for name in first.contributions if all(name in cube.contributions for cube in cubes)]
    images = grid.footprint.images
    ra, dec = grid.center
    reference, noise = grid.reference, None
    if first.variance is not None and all(cube.correlations is None for cube in cubes):  # else unknown
        pointings = (
            PointingNoise(cube.variance, cube.mask, weight, cube.fibres, _field(cube, reference))
            for cube, weight in zip(cubes, weights, strict=True)
            if cube.variance is not None
        )
        noise = MosaicNoise.of(tuple(pointings), grid)
    pointing = dict.fromkeys(("pointing", "pointing_name", "pointing_east", "pointing_north"))
    return Cube(
        flux=images(flux),
        variance=None if variance is None else images(variance),
        truth=combined(truths) if len(truths) == len(cubes) else None,
        contributions={name: combined([cube.contributions[name] for cube in cubes]) for name in errors},
        mask=images(mask),
        footprint=grid.footprint,
        mean_v_los=_mean_velocity(cubes, [layer.overlap for layer in layers], grid),
        meta=first.meta.replace(
            **{"ra": ra, "dec": dec, "field_angle": grid.field_angle or None, **pointing},
            signal_to_noise=None,
            signal_to_noise_definition=None,
            n_pointings=len(cubes),
        ),
        noise_sources=noise,
        bins=first.bins,
        lsf_fwhm=first.lsf_fwhm,
    )


@named_arguments
def coverage(cubes: Sequence[Cube]) -> Float[ndarray, "y x"]:
    """How often the spaxels of the mosaic were seen: the area in which good spaxels of the pointings cover each.

    A spaxel of a pointing is good that has a good bin.
    """
    _check_alike(cubes)
    grid, layers = _layers(cubes)
    areas = [layer.overlap @ np.any(layer.mask == 0, axis=1).astype(np.float64) for layer in layers]
    return grid.footprint.images(np.sum(areas, axis=0))


def _layers(cubes: Sequence[Cube]) -> tuple[MosaicGrid, list[PointingLayer]]:
    meta = cubes[0].meta
    names = ("reference_ra", "reference_dec") if meta.get("reference_ra") is not None else ("ra", "dec")
    reference = float(meta.get(names[0]) or 0.0), float(meta.get(names[1]) or 0.0)
    fields = [_field(cube, reference) for cube in cubes]
    grid = grid_around(reference, fields)
    (n_y, n_x), n_wave = grid.footprint.shape, cubes[0].shape[2]
    places = [(float(cube.meta.get("ra") or 0.0), float(cube.meta.get("dec") or 0.0)) for cube in cubes]
    distances = [separation(places[0], place) for place in places]
    farthest = int(np.argmax(distances))
    available, needed = available_memory(), BYTES_PER_VOXEL * n_y * n_x * n_wave
    is_too_large = available is not None and needed > available
    size = f"a grid of {n_x:.4g} x {n_y:.4g} spaxels x {n_wave} bins"
    n_spaxel = sum(cube.footprint.n_element for cube in cubes)
    if distances[farthest] >= _BEYOND_PLANE or (is_too_large and n_y * n_x > _SCATTERED * n_spaxel):
        raise ConfigError(
            f"cubes: expected fields that fit into memory as one mosaic, got cubes[{farthest}] "
            f"{distances[farthest]:.4g} deg from cubes[0] on the sky ({size}); leave it out, or give it its right ra "
            f"and dec (meta)"
        )
    if is_too_large:
        raise ConfigError(
            f"cubes: expected a mosaic that fits into memory, {format_bytes(available)}, got {size}, at least "
            f"{format_bytes(needed)}; give fewer cubes or cut them to fewer wavelengths (Cube.cut)"
        )
    layers = []
    for cube, field in zip(cubes, fields, strict=True):
        flux, mask = (cube.footprint.elements(np.asarray(values)) for values in (cube.flux, cube.mask))
        variance = None if cube.variance is None else np.asarray(cube.variance).reshape(flux.shape)
        fibres = None if cube.fibres is None or variance is None else fibre_noise(cube.fibres)
        layers.append(PointingLayer(flux, variance, mask, grid.overlap(field), fibres))
    return grid, layers


def _field(cube: Cube, reference: tuple[float, float]) -> Field:
    ra, dec, angle = (float(cube.meta.get(key) or 0.0) for key in ("ra", "dec", "field_angle"))
    return Field(to_tangent_plane(reference, (ra, dec)), angle - convergence(reference, (ra, dec)), cube.footprint)


def _combined(layers: Sequence[PointingLayer], n_spaxel: int) -> tuple[ndarray, ndarray | None, ndarray, ndarray]:
    """Flux, variance and mask of the mosaic, (spaxel, wave), block by block of wavelengths, and the weights of the
    pointings, (pointing, wave)."""
    first = layers[0]
    shape = (n_spaxel, first.flux.shape[1])
    flux, mask = np.empty(shape, first.flux.dtype), np.empty(shape, np.int32)
    variance = None if first.variance is None else np.empty(shape, first.variance.dtype)
    weights = np.empty((len(layers), shape[1]))
    area = np.sum([layer.overlap.sum(axis=1) for layer in layers], axis=0)
    # blocks, so that the working space does not grow with the number of wavelengths
    step = max(1, _BLOCK_VOXELS // max(n_spaxel, *(len(layer.flux) for layer in layers)))
    for start in range(0, shape[1], step):
        block = slice(start, min(start + step, shape[1]))
        parts = [_part(layer, block) for layer in layers]
        weights[:, block] = pointing_weights(parts)
        flux[:, block], noise = _mean(parts, list(weights[:, block]))
        mask[:, block] = _mask(parts, area)
        if variance is not None:
            variance[:, block] = noise
    return flux, variance, mask, weights


def _part(layer: PointingLayer, block: slice) -> PointingLayer:
    """A layer's wavelengths of one block in float64; its mask is one column where all of them share it."""
    mask = layer.mask[:, block]
    shared = np.all(mask == mask[:, :1])
    variance = None if layer.variance is None else layer.variance[:, block].astype(np.float64)
    fibres = layer.fibres
    if fibres is not None:
        fibres = fibres._replace(variance=fibres.variance[:, block], good=fibres.good[:, block])
    flux = layer.flux[:, block].astype(np.float64)
    return PointingLayer(flux, variance, mask[:, :1] if shared else mask, layer.overlap, fibres)


def _mean(
    parts: Sequence[PointingLayer], weights: Sequence[Float[ndarray, " wave"]]
) -> tuple[Float[ndarray, "spaxel wave"], Float[ndarray, "spaxel wave"]]:
    """Weighted mean of the flux and its variance, both 0 where nothing overlaps."""
    total = light = noise = np.zeros(())
    for part, weight in zip(parts, weights, strict=True):
        share = part.share
        total = total + weight * (part.overlap @ share)
        light = light + weight * (part.overlap @ (share * part.flux))
        if part.variance is not None:
            noise = noise + weight**2 * summed_variance(part)
    some = total > 0
    total = np.where(some, total, 1.0)
    return np.where(some, light / total, 0.0), np.where(some, noise / total**2, 0.0)


def _mask(parts: Sequence[PointingLayer], area: Float[ndarray, " spaxel"]) -> Int[ndarray, "spaxel _"]:
    """0 where good voxels cover enough; else the flags of all that overlap, or 'outside' where hardly anything does."""
    good = np.zeros(())
    flags = np.zeros(1, np.int32)
    for part in parts:
        good = good + part.overlap @ (part.mask == 0).astype(np.float64)
        for bit in (1 << number for number in range(int(part.mask.max(initial=0)).bit_length())):
            flags = flags | np.where(part.overlap @ ((part.mask & bit) / bit) > 0, bit, 0)
    barely = np.where(area < LEAST_AREA - 1e-6, OUTSIDE_APERTURE, 0)
    return np.where(good >= LEAST_AREA - 1e-6, 0, flags | barely[:, None]).astype(np.int32)


def _mean_velocity(
    cubes: Sequence[Cube], overlaps: Sequence[csr_array], grid: MosaicGrid
) -> Float[ndarray, "y x"] | None:
    """Mean of the pointings' velocities (km/s), weighted with their white light; None where one has none."""
    light = weighted = np.zeros(grid.footprint.n_element)
    for cube, overlap in zip(cubes, overlaps, strict=True):
        if cube.mean_v_los is None:
            return None
        velocity = np.asarray(cube.mean_v_los, dtype=np.float64).ravel()
        white = np.where(np.isfinite(velocity), np.maximum(sums_of(cube).light.ravel(), 0.0), 0.0)
        light = light + overlap @ white
        weighted = weighted + overlap @ (white * np.nan_to_num(velocity))
    return grid.footprint.images(np.where(light > 0, weighted / np.where(light > 0, light, 1.0), np.nan))


def _check_alike(cubes: Sequence[Cube]) -> None:
    if len(cubes) == 0:
        raise ValueError("cubes: expected at least one cube, got none")
    first = cubes[0]
    for number, cube in enumerate(cubes[1:], start=2):
        widths, others = cube.lsf_fwhm, first.lsf_fwhm
        if widths is None or others is None:
            same_widths = widths is others
        else:
            same_widths = np.shape(widths) == np.shape(others) and np.allclose(widths, others, rtol=1e-6)
        same = {
            "pixel_scale": cube.pixel_scale == first.pixel_scale,
            "wavelength bins": cube.bins.agrees(first.bins),
            "lsf_fwhm": same_widths,
            "variance (all or none)": (cube.variance is None) == (first.variance is None),
            **{name: cube.meta.get(name) == first.meta.get(name) for name in _SEEN_ALIKE},
        }
        different = [name for name, is_same in same.items() if not is_same]
        if different:
            raise ValueError(
                f"mosaic: expected cubes of one instrument, got another {', '.join(different)} in cube "
                f"{number} than in the first; observe all of them with one configuration"
            )


def _check_noise(cubes: Sequence[Cube]) -> None:
    """Raise ValueError for a variance of 0 in all good voxels; warn of data that are given twice."""
    for number, cube in enumerate(cubes):
        if cube.variance is not None and not np.any(np.asarray(cube.variance)[np.asarray(cube.mask) == 0] > 0):
            raise ValueError(
                f"cubes[{number}].variance: expected values above 0 in good voxels, got 0 in all; mask them, or give "
                f"their variance"
            )
    known: dict[str, int] = {}
    for number, cube in enumerate(cubes):
        first = known.setdefault(digest_of(np.asarray(cube.flux)), number)
        if cube.variance is not None and first != number:
            logging.getLogger("rubix_like").warning(
                "cubes[%d] and cubes[%d] hold the same data, which count twice: the mosaic's variance is too small; "
                "leave out one of them",
                first,
                number,
            )
