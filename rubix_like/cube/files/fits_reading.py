"""Cubes from FITS files in the default layout, and in those of surveys."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from astropy.utils.exceptions import AstropyUserWarning

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube, n_unusable
from rubix_like.cube.files.default import ERROR_CARD, FLUX_UNIT, VARIANCE_UNIT
from rubix_like.cube.files.fits_images import broken_sums
from rubix_like.cube.footprint import SPECTRAL_TYPE, Footprint
from rubix_like.cube.meta import (
    COUNTER_PREFIX,
    SOURCE_PREFIX,
    Counters,
    Meta,
    Row,
    SourceCounters,
    join_rows,
    source_counters,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.writers import LAYOUT_CARD, MAPS_CARD, ORIGIN
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of


def checked_values(cube: Cube) -> Cube:
    """The cube; raises ValueError for flux or variance that is no number, and for bins or spaxels that cannot be.

    Flux and variance are finite in every voxel that is not masked, variances >= 0; wavelengths are positive and ascend,
    each between the edges of its bin.
    """
    for name in ("flux", "truth", "variance"):
        values = getattr(cube, name)
        count = 0 if values is None else n_unusable(values, cube.mask)
        if count:
            raise ValueError(f"{name}: expected finite numbers where the mask is 0, got {count} others")
    if cube.variance is not None and np.asarray(cube.variance).min(initial=0.0) < 0:
        raise ValueError(f"variance: expected values >= 0, got {np.asarray(cube.variance).min():g}")
    centres, edges = cube.bins.wavelength, cube.bins.edges
    between = (edges[:-1] < centres) & (centres < edges[1:])  # not where either is NaN
    if not (between.all() and np.isfinite(edges).all() and edges.min(initial=1.0) > 0):
        raise ValueError("wavelength: expected positive wavelengths that ascend, each between the edges of its bin")
    if not (np.isfinite(cube.pixel_scale) and cube.pixel_scale > 0):
        raise ValueError(f"pixel_scale: expected the side of a spaxel in arcsec, > 0, got {cube.pixel_scale}")
    return cube


_UNITS: dict[str, str] = {"DATA": FLUX_UNIT, "STAT": VARIANCE_UNIT}
"""BUNIT of the images that have one."""

_OF_SURVEYS: dict[str, str] = dict.fromkeys(("manga", "sami"), "rubix_like.cube.survey_files.survey_cubes:survey_cube")
"""Layout of a survey -> what reads the cube in an opened file of ours."""


def read_fits(path: Path) -> Cube:
    """The cube of a file in the default layout: float32 flux, variance and int32 mask; `mean_v_los` is None.

    Without DQ no voxel is flagged. Of the layouts 'manga' and 'sami' it is as `survey_cube` says.

    Raises ValueError if the file is not a complete cube of this package in that layout.
    """
    expected = (
        "a file written by Cube.write in the layout 'default', 'manga' or 'sami'; open others with astropy.io.fits"
    )
    with opened_whole(path, "cube", expected) as hdus:
        header = hdus[0].header
        if header.get("ORIGIN") != ORIGIN:
            raise ValueError(f"ORIGIN is {header.get('ORIGIN')!r}, not {ORIGIN!r}")
        if MAPS_CARD in header:
            raise ValueError("it holds maps")
        if LAYOUT_CARD in header and header[LAYOUT_CARD] not in _OF_SURVEYS:
            raise ValueError(f"its layout is '{header[LAYOUT_CARD]}', which is for other programs")
        survey = _OF_SURVEYS.get(hdus[0].header.get(LAYOUT_CARD))
        return checked_values(_cube_from(hdus) if survey is None else found_at(survey)(hdus))


@contextmanager
def opened_whole(path: Path, what: str, expected: str) -> Iterator[Any]:
    """The HDUs of a file of ours; whatever goes wrong with them inside is a ValueError that says what was expected."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", AstropyUserWarning)
            with opened_fits(path) as hdus:
                broken = broken_sums(hdus)
                if broken:
                    raise ValueError(
                        f"{'; '.join(broken)}; make it again, or where you changed it on purpose write it with "
                        f"astropy's checksum=True"
                    )
                yield hdus
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete {what} of rubix_like ({reason_of(error)}); expected {expected}"
        ) from error


def _cube_from(hdus: Any) -> Cube:
    meta, counters, others = read_config_table(hdus["CONFIG"])
    header, scale = hdus["DATA"].header, float(hdus[0].header["PIXSCALE"])
    of_matrix = 3600 * float(np.hypot(header.get("CD1_1", scale / 3600), header.get("CD2_1", 0.0)))
    if not np.isclose(of_matrix, scale, rtol=1e-5):
        raise ValueError(f"PIXSCALE: expected the scale of CD1_1 and CD2_1, {of_matrix:.6g} arcsec, got {scale:g}")
    flux = _voxels(hdus, "DATA", np.float32)
    errors = {str(hdu.header[ERROR_CARD]): hdu.name for hdu in hdus if ERROR_CARD in hdu.header}
    return Cube(
        flux=flux,
        mask=_voxels(hdus, "DQ", np.int32) if "DQ" in hdus else np.broadcast_to(np.int32(0), flux.shape),
        bins=_bins_of(hdus),
        footprint=Footprint.of(flux.shape, scale),
        variance=_voxels(hdus, "STAT", np.float32) if "STAT" in hdus else None,
        lsf_fwhm=np.array(hdus["LSF"].data["FWHM"], dtype=np.float64) if "LSF" in hdus else None,
        counters=counters,
        meta=meta,
        source_counters=others,
        contributions={name: _voxels(hdus, hdu, np.float32, FLUX_UNIT) for name, hdu in errors.items()},
    )


def _bins_of(hdus: Any) -> WavelengthBins:
    header = hdus["DATA"].header
    kinds = {name: kind for kind, name in SPECTRAL_TYPE.items()}
    if header["CTYPE3"] not in kinds:
        raise ValueError(f"CTYPE3: expected one of {', '.join(kinds)}, got {header['CTYPE3']!r}")
    medium, sampling = kinds[header["CTYPE3"]]
    if sampling == "linear":
        return WavelengthBins(float(header["CRVAL3"]), float(header["CD3_3"]), header["NAXIS3"], "linear", medium)
    table = hdus["WAVE"].data
    return WavelengthBins.through(table["WAVE"], np.append(table["LOWER"], table["UPPER"][-1]), sampling, medium)


def read_config_table(table: Any) -> tuple[Meta, Counters | None, dict[str, SourceCounters]]:
    """The run, the stars' counters (None without any) and those of other sources, as `config_table` made them."""
    rows = table.data
    return read_run_rows(list(zip(rows["KEY"].tolist(), rows["VALUE"].tolist(), strict=True)))


def read_run_rows(rows: Iterable[Row]) -> tuple[Meta, Counters | None, dict[str, SourceCounters]]:
    """The same, as `run_rows` made them."""
    values = join_rows(rows)
    counts, others = (
        {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        for prefix in (COUNTER_PREFIX, SOURCE_PREFIX)
    )
    meta = Meta({key: own for key, own in values.items() if not key.startswith((COUNTER_PREFIX, SOURCE_PREFIX))})
    return meta, Counters(**counts) if counts else None, source_counters(others)


def _voxels(hdus: Any, name: str, dtype: type, expected: str | None = None) -> jnp.ndarray:
    unit, expected = hdus[name].header.get("BUNIT"), expected or _UNITS.get(name)
    if unit != expected:
        raise ValueError(f"HDU {name}: expected BUNIT {expected!r}, got {unit!r}")
    return jnp.asarray(np.ascontiguousarray(hdus[name].data.transpose(1, 2, 0), dtype=dtype))
