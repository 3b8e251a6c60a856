"""Parts of a cube: a range of wavelengths, a box on the sky."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rubix_like.config.quantities import parse_quantity
from rubix_like.cube.cube import Cube
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import Maps
from rubix_like.cube.views.imaging import bins_within
from rubix_like.cube.views.sky_places import Offset, Place, field_about, position_of

_PER_VOXEL = ("flux", "mask", "variance", "truth")


def cut_cube(
    cube: Cube,
    wavelength: Sequence[Any] | None = None,
    *,
    at: Place | None = None,
    offset: Offset | None = None,
    size: Any = None,
) -> Cube:
    """The part of a cube within a range of wavelengths and a box on the sky (`Cube.cut`)."""
    if size is None and (at is not None or offset is not None):
        raise ValueError("cut: expected the size of the box beside its place, got none; e.g. size='2 arcsec'")
    if wavelength is not None:
        cube = _cut_bins(cube, np.flatnonzero(bins_within(cube, wavelength, "wavelength")))
    return cube if size is None else _cut_spaxels(cube, *_box(cube, at, offset, size))


def _cut_bins(cube: Cube, own: np.ndarray) -> Cube:
    first, last = int(own[0]), int(own[-1]) + 1
    values = {name: getattr(cube, name) for name in _PER_VOXEL}
    cut: dict[str, Any] = {name: value[:, :, first:last] for name, value in values.items() if value is not None}
    cut["contributions"] = {name: value[:, :, first:last] for name, value in cube.contributions.items()}
    spread = None if cube.lsf_fwhm is None else cube.lsf_fwhm[first:last]
    fibres = None if cube.fibres is None else cube.fibres.part(slice(first, last))
    noise = None if cube.noise_sources is None else cube.noise_sources.part(slice(first, last))
    axes = {"bins": cube.bins.part(first, last), "lsf_fwhm": spread}
    return dataclasses.replace(cube, **cut, **axes, fibres=fibres, noise_sources=noise)


def _box(cube: Cube, at: Place | None, offset: Offset | None, size: Any) -> tuple[slice, slice]:
    """Rows and columns whose centres lie in the box, as far as the field has them."""
    sides = [
        parse_quantity(side, "arcsec", "size") for side in (size if isinstance(size, list | tuple) else (size, size))
    ]
    if len(sides) != 2 or min(sides) <= 0:
        raise ValueError(f"size: expected a width, or (width, height), > 0 in arcsec, got {size!r}")
    found = []
    for middle, side, number in zip(position_of(cube, at, offset), sides, (cube.n_x, cube.n_y), strict=True):
        half = 0.5 * side / cube.pixel_scale
        places = np.arange(number)
        own = np.flatnonzero(np.abs(places - middle) <= half * (1 + 1e-9))
        if not own.size:
            raise ValueError(
                f"cut: expected a box that holds the centre of a spaxel ({cube.pixel_scale:g} arcsec wide), got "
                f"{sides[0]:g} x {sides[1]:g} arcsec about spaxel position {middle:.6g}, outside or between"
            )
        found.append(slice(int(own[0]), int(own[-1]) + 1))
    columns, rows = found
    return rows, columns


def _cut_spaxels(cube: Cube, rows: slice, columns: slice) -> Cube:
    footprint = Footprint(rows.stop - rows.start, columns.stop - columns.start, cube.footprint.pixel_scale)
    middle = (columns.start + columns.stop - 1) / 2, (rows.start + rows.stop - 1) / 2
    ra, dec, angle = field_about(cube, *middle)
    meta = cube.meta.replace(ra=ra, dec=dec, field_angle=angle)
    values = {name: getattr(cube, name) for name in (*_PER_VOXEL, "mean_v_los")}
    cut: dict[str, Any] = {name: value[rows, columns] for name, value in values.items() if value is not None}
    cut["contributions"] = {name: value[rows, columns] for name, value in cube.contributions.items()}
    maps = None if cube.maps is None else _cut_maps(cube.maps, rows, columns, footprint, meta)
    fibres = None if cube.fibres is None else cube.fibres.within(rows, columns)
    noise = None if cube.noise_sources is None else cube.noise_sources.within(rows, columns)
    correlations = None if cube.correlations is None else cube.correlations.within(rows, columns)
    of_box = {"footprint": footprint, "meta": meta, "maps": maps, "fibres": fibres, "noise_sources": noise}
    return dataclasses.replace(cube, **cut, **of_box, correlations=correlations)


def _cut_maps(maps: Maps, rows: slice, columns: slice, footprint: Footprint, meta: Any) -> Maps:
    """The maps of the box; the attenuation curve is that of the whole field, and is left out."""
    both = {
        name: jax.tree.map(lambda map_: map_[rows, columns], getattr(maps, name))
        for name in ("before", "after", "mask")
    }
    return dataclasses.replace(maps, **both, footprint=footprint, meta=meta, attenuation=None)
