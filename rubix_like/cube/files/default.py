"""The default FITS layout of a cube, which mpdaf, specutils, jdaviz, spectral-cube and pPXF's examples open.

PRIMARY (no data; the run in cards), DATA (wave, y, x), STAT (variance), DQ (mask), VAR (copy of STAT), LSF (table of
the effective FWHM), CONFIG (table of `cube.meta` and the counters), for log sampling WAVE (table of the bins), and for
bins by a table WAVE and WCS-TABLE (what CTYPE3 = WAVE-TAB looks wavelengths up in). In the file of a truth, an image
for each systematic error follows.
STAT and VAR are left out without a noise model, DQ where no voxel is flagged. Some programs take whatever is HDU 2 for
the variance, so without one a table is there and DQ comes last. VAR is for specutils and jdaviz, which know no STAT. No
maps: a second image confuses clients.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyUserWarning
from numpy import ndarray

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube, n_unusable
from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.files.fits_images import Member, VoxelImage, checksum_faults, voxel_image
from rubix_like.cube.footprint import SPECTRAL_TYPE, Card, Footprint, header_of, table_hdu
from rubix_like.cube.maps import Maps
from rubix_like.cube.meta import (
    COUNTER_PREFIX,
    FIT_KEYS,
    LINE_OF_SIGHT,
    SATURATED,
    SOURCE_PREFIX,
    Counters,
    Meta,
    MetaValue,
    Row,
    SourceCounters,
    flat_counters,
    join_rows,
    source_counters,
    split_rows,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.outputs import date_words
from rubix_like.runtime.files.writers import CONFIGURATION_CARD, CREATOR, LAYOUT_CARD, MAPS_CARD, ORIGIN
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of

Described = Cube | ShardedCube | Maps
"""What holds the description of a run."""

ERROR_CARD: str = "SYSTERR"
"""Card of an image that holds what a systematic error adds: the error's name."""

FLUX_UNIT: str = "10**-20 erg s-1 cm-2 Angstrom-1"
VARIANCE_UNIT: str = "10**-40 erg2 s-2 cm-4 Angstrom-2"

META_CARDS: tuple[tuple[str, str, str], ...] = (
    (CONFIGURATION_CARD, "configuration", "name of the configuration of the run"),
    ("OBJECT", "object", "name of the galaxy"),
    ("TELESCOP", "telescope", ""),
    ("INSTRUME", "instrument", "instrument preset"),
    ("RA", "ra", "[deg] centre of the field"),
    ("DEC", "dec", "[deg] centre of the field"),
    ("FIELDPA", "field_angle", "[deg] of +y, North through East"),
    ("OBSNAME", "observation", "name among several observations"),
    ("POINTING", "pointing", "number of the pointing"),
    ("POINTNAM", "pointing_name", "its name"),
    ("POINTE", "pointing_east", "[arcsec] East of REFRA, REFDEC"),
    ("POINTN", "pointing_north", "[arcsec] North of REFRA, REFDEC"),
    ("NPOINT", "n_pointings", "pointings in this mosaic"),
    ("REFRA", "reference_ra", "[deg] what pointings are displaced from"),
    ("REFDEC", "reference_dec", "[deg] what pointings are displaced from"),
    ("REDSHIFT", "redshift", "cosmological redshift"),
    ("LUMDIST", "luminosity_distance", "[Mpc] luminosity distance"),
    ("COSMOLOG", "cosmology", "cosmology of the distance"),
    ("ALIGN", "align", "what the body axes were aligned to"),
    ("ALIGNRAD", "align_radius", "[kpc] radius of the stars that they go by"),
    ("AXISBA", "axis_ratio_b_a", "of these stars, middle / long axis"),
    ("AXISCA", "axis_ratio_c_a", "of these stars, short / long axis"),
    ("ALIGNANG", "align_angle", "[deg] short axis to angular momentum"),
    ("INCLIN", "inclination", "[deg] 0 is face-on"),
    ("POSANG", "position_angle", "[deg] receding major axis, North through East"),
    ("LSFPIXEL", "lsf_includes_pixel", "widths of the line spread have the bin's"),
    ("LSFNOTOF", "lsf_not_of", "sources whose lines are narrower (instrument's)"),
    ("GALAGES", "galaxy_ages", "where the stars' ages come from"),
    ("GALMETAL", "galaxy_metallicities", "where their metallicities come from"),
    ("GALVELOC", "galaxy_velocities", "where their velocities come from"),
    ("GALHSML", "galaxy_smoothing_length", "where their smoothing lengths come from"),
    ("SSPLIB", "ssp_library", "simple stellar populations"),
    ("PIPELINE", "pipeline", "list of stages"),
    ("METHOD", "method", "direct or basis"),
    ("METHWHY", "method_reason", "what it was chosen by"),
    ("DEPOSIT", "deposit", "how stars are shared among spaxels"),
    ("DEPOSWHY", "deposit_reason", "what it was chosen by"),
    ("TOLERANC", "tolerance", "target of the error of a spectrum / its mean"),
    ("BASRANK", "basis_rank", "basis spectra"),
    ("VELNODES", "basis_velocity_nodes", "velocity nodes"),
    ("VELSTEP", "basis_velocity_step", "[km/s] between velocity nodes"),
    ("ERRSPEC", "basis_spectrum_error", "bound of a spectrum's rms error / its mean"),
    ("ERRRESID", "basis_residual", "of it, of a template on the basis"),
    ("ERRVEL", "basis_velocity_error", "of it, between velocity nodes"),
    ("ERRLOCAL", "basis_local_error", "largest error of a template in one bin / mean"),
    ("ERRFLUX", "basis_flux_error", "largest error of a template's whole flux"),
    ("ERRPSF", "basis_psf_error", "of a PSF that follows wavelength / its peak"),
    ("ERRLINE", "basis_line_flux_error", "largest error of a line's flux / its own"),
    ("ERRPROF", "basis_line_profile_error", "of a line in one bin / its highest"),
    ("LOWFLUX", "basis_lowest", "lowest flux of a template in a bin / mean"),
    ("PSFKIND", "psf_kind", "gaussian, moffat, gaussians, image or adaptive"),
    ("PSFFWHM", "psf_fwhm", "[arcsec] of the PSF before the spaxel's box"),
    ("PSFEFF", "psf_fwhm_effective", "[arcsec] the deposit of stars included"),
    ("PSFPLACE", "psf_places", "PSFs over the field; PSFFWHM in its middle"),
    ("PSFFWMIN", "psf_fwhm_smallest", "[arcsec] smallest FWHM among these"),
    ("PSFFWMAX", "psf_fwhm_largest", "[arcsec] largest FWHM among these"),
    ("PSFCELLS", "psf_cells", "painted cells along a spaxel's side"),
    ("PSFLOST", "psf_lost", "light beyond the PSF's image, given back"),
    ("NOUTLIER", "basis_outliers", "room for stars beyond the velocity nodes"),
    ("PRECISIO", "precision", "floating-point precision of the engine"),
    ("GITREV", "git_revision", "revision of the code"),
    ("CONTEXT", "context", "id of the version and of all data tables"),
    ("DUSTAV", "dust_a_v", "[mag] dust screen, attenuation in V"),
    ("DUSTRV", "dust_r_v", "A(V) / E(B-V) of the dust"),
    ("DUSTCRV", "dust_curve", "curve of the dust"),
    ("DUSTSLOP", "dust_slope", "slope of the curve, if it has one"),
    ("DUSTLOC", "dust_place", "dust in the galaxy or in the foreground"),
    ("DUSTKIND", "dust_kind", "particles: dust of the galaxy's gas"),
    ("DUSTGCRV", "dust_gas_curve", "curve of the gas' dust"),
    ("DUSTGRV", "dust_gas_r_v", "A(V) / E(B-V) of the gas' dust"),
    ("DUSTGSLP", "dust_gas_slope", "slope of that curve, if it has one"),
    ("DUSTDTM", "dust_to_metal", "mass of dust per mass of metals"),
    ("DUSTOPAC", "dust_opacity", "[mag pc2 Msun-1] A(V) per column of dust"),
    ("DUSTCOLD", "dust_cold", "[K] below which gas has dust, if not all has"),
    ("DUSTHOT", "dust_hot", "which hotter gas has dust"),
    ("DUSTBIRT", "dust_a_v_birth", "[mag] A(V) of birth clouds"),
    ("DUSTBCRV", "dust_birth_curve", "curve of birth clouds"),
    ("DUSTBSLP", "dust_birth_slope", "slope of that curve"),
    ("DUSTBAGE", "dust_birth_age", "[Myr] when stars begin to leave them"),
    ("DUSTMAX", "dust_largest", "[mag] largest A(V) with a colour of its own"),
    ("DUSTCELL", "dust_cells", "cells along a side that columns are resolved by"),
    ("NEBTABLE", "nebular_table", "lines of ionised gas"),
    ("NEBSRC", "nebular_source", "what ionises it"),
    ("NEBLOGU", "nebular_log_u", "log10 of its ionisation parameter at solar O/H"),
    ("NEBSLOPE", "nebular_log_u_slope", "change of it per dex of O/H"),
    ("NEBPK", "nebular_log_pressure", "[K cm-3] log10 of its pressure P / k"),
    ("NEBESC", "nebular_escape_fraction", "ionising photons that escape"),
    ("NEBDUST", "nebular_dust_fraction", "of the others, what dust absorbs"),
    ("NEBLEAK", "nebular_diffuse_fraction", "of the absorbed ones, what diffuse gas absorbs"),
    ("NEBSIGMA", "nebular_velocity_dispersion", "[km/s] of the gas, thermal motion aside"),
    ("AGNTABLE", "agn_table", "lines of gas that an active nucleus ionises"),
    ("AGNLUM", "agn_log_luminosity", "[erg s-1] log10 of its bolometric luminosity"),
    ("AGNRAD", "agn_radius", "[kpc] within which gas absorbs it; 0: a point"),
    ("AGNCOVER", "agn_covering_fraction", "share of its ionising photons that gas absorbs"),
    ("AGNLOGU", "agn_log_u", "log10 of the ionisation parameter of that gas"),
    ("AGNPK", "agn_log_pressure", "[K cm-3] log10 of its pressure P / k"),
    ("AGNEPEAK", "agn_log_peak_energy", "[keV] log10 of where the ionising light peaks"),
    ("AGNOH", "agn_oxygen_abundance", "12 + log10(O/H) of that gas, if it has one"),
    ("AGNSIGMA", "agn_velocity_dispersion", "[km/s] of that gas, thermal motion aside"),
    ("SNRTGT", "signal_to_noise", "target signal-to-noise ratio"),
    ("SNRDEF", "signal_to_noise_definition", "where the ratio holds"),
    ("EXPTIME", "exposure_time", "[s] of one exposure, or their mean"),
    ("EXPTIMES", "exposure_times", "[s] of the exposure at each dither"),
    ("NEXP", "exposure_count", "exposures added up"),
    ("SKYSPEC", "sky", "spectrum of the night sky"),
    ("NOISMOD", "noise_model", "what the noise is made of"),
    ("NOISSEED", "noise_seed", "seed of the noise"),
    ("SYSTEMAT", "systematics", "systematic errors, in the order of their stages"),
    ("SYSTSEED", "systematics_seed", "seed of the systematic errors"),
    ("FITIMAGE", "fit_image", "of a fit: its model, or what it left of the data"),
)
"""(keyword, key of `cube.meta`, comment) of the PRIMARY cards; a key that is missing or None has no card."""

COUNTER_CARDS: tuple[tuple[str, str, str], ...] = (
    ("NSTARS", "n_particles", "star particles"),
    ("NOUTSIDE", "n_outside", "stars outside the field"),
    ("NCLAMPA", "n_clamped_age", "stars beyond the ages of the library"),
    ("NCLAMPZ", "n_clamped_metallicity", "stars beyond the metallicities of the library"),
    ("NCLAMPAV", "n_clamped_a_v", "stars behind more dust than has a colour"),
    ("NBEYONDV", "n_beyond_velocity", "stars beyond the velocity range"),
    ("NNOTFIN", "n_not_finite", "stars with a value that is not finite"),
)

_SCIENCE: Card = ("SCIDATA", "DATA", "flux")
_MASK_CARDS: tuple[Card, ...] = (
    ("BFORM", "X", "bits; 0 is good"),
    ("DQBIT1", "outside SSP", "value 1: outside the wavelengths of the library"),
    ("DQBIT2", "outside aperture", "value 2: outside the aperture"),
    ("DQBIT3", "end of detector", "value 4: light spread from beyond it is assumed"),
    ("DQBIT4", "not fitted", "value 8: left out of a fit (its residuals)"),
    _SCIENCE,
)
_DETECTOR_CARDS: tuple[Card, ...] = (
    ("DQBIT5", "saturated", "value 16: more electrons than a pixel holds"),
    ("DQBIT6", "cosmic ray", "value 32: a hit that was found"),
    ("DQBIT7", "no data", "value 64: region without data"),
    ("DQBIT8", "gap", "value 128: gap of the detector"),
)


def default_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of a file in the default layout, in order."""
    bins, edges = cube.bins, cube.bins.edges
    error = (("ERRDATA", "STAT", "variance"),) if cube.has_variance else ()
    quality = (("QUALDATA", "DQ", "mask"),) if cube.flags else ()
    unit: Card = ("BUNIT", FLUX_UNIT, "")
    cards, dust = primary_cards(cube), cube.source_counters.get(DUST_COLUMN)
    if dust is not None:
        cards += (
            ("NDUSTGAS", int(dust.n_particles), "gas particles with dust"),
            ("DUSTMASS", float(dust.amount_total), "[solMass] their dust"),
            ("NDUSTOUT", int(dust.n_outside), "of them beside the painted field"),
            ("NDUSTFAR", int(dust.n_clamped[LINE_OF_SIGHT]), "of them beyond the ends of the grids"),
        )
    primary = fits.PrimaryHDU(header=header_of(cards))
    flux = _image(cube, "DATA", lambda block: block.flux, kind="DATA", cards=(unit, *quality, *error))
    bits = (*_MASK_CARDS, *(_DETECTOR_CARDS if cube.flags >= SATURATED else ()))
    mask = [_image(cube, "DQ", lambda block: block.mask, kind="QUALITY", cards=(*bits, *error))] if quality else []
    tables = [] if cube.lsf_fwhm is None else [_table("LSF", {"WAVE": bins.wavelength, "FWHM": cube.lsf_fwhm})]
    tables.append(config_table(cube, cube.source_counters))
    if bins.sampling != "linear":
        tables.append(_table("WAVE", {"WAVE": bins.wavelength, "LOWER": edges[:-1], "UPPER": edges[1:]}))
    if bins.sampling == "table":
        tables.append(table_hdu(bins))
    if error:
        cards = (("BUNIT", VARIANCE_UNIT, ""), _SCIENCE, *quality)
        variance, copy = (
            _image(cube, name, lambda block: np.asarray(block.variance), kind="ERROR", cards=cards)
            for name in ("STAT", "VAR")
        )
        return [primary, flux, variance, *mask, copy, *tables]
    contributions = []
    for name in () if cube.has_truth else cube.contributions:  # beside a truth: extensions of the errors' names
        cards = (unit, (ERROR_CARD, name, "systematic error whose part of the flux this is"))
        values = partial(Block.contribution, name=name)
        contributions.append(_image(cube, name.upper(), values, kind="DATA", cards=cards))
    return [primary, flux, *tables, *mask, *contributions]


def primary_cards(cube: Described) -> tuple[Card, ...]:
    """The run in cards: origin and date, then whatever of META_CARDS and COUNTER_CARDS is known."""
    meta = ((keyword, _card_value(cube.meta.get(key)), comment) for keyword, key, comment in META_CARDS)
    counts = ()
    if cube.counters is not None:
        counts = ((keyword, int(getattr(cube.counters, name)), comment) for keyword, name, comment in COUNTER_CARDS)
    return (
        ("ORIGIN", ORIGIN, "mock observation of a simulated galaxy"),
        ("CREATOR", CREATOR, "program and version"),
        ("DATE", date_words(), "[UTC] when the file was written"),
        ("RADESYS", "ICRS", ""),
        ("EQUINOX", 2000.0, ""),
        ("DISPAXIS", 3, "wavelength axis of the cube in DATA"),
        ("PIXSCALE", cube.pixel_scale, "[arcsec] side of a spaxel"),
        *(card for card in meta if card[1] is not None),
        *_fit_cards(cube.meta),
        *counts,
    )


def _fit_cards(meta: Meta) -> tuple[Card, ...]:
    words = ("free parameter of the fit", "its value", "its standard deviation", "its unit")
    keywords = ("FITNAM", "FITVAL", "FITERR", "FITUNI")
    cards = []
    for number in itertools.takewhile(lambda number: f"{FIT_KEYS[0]}_{number}" in meta, itertools.count(1)):
        for key, keyword, text in zip(FIT_KEYS, keywords, words, strict=True):
            value = _card_value(meta.get(f"{key}_{number}"))
            cards += [(f"{keyword}{number}", value, text)] if value is not None else []
    return tuple(cards)


def _card_value(value: MetaValue) -> MetaValue:
    """`value` as a header card can hold it: printable ASCII, finite; the CONFIG table has it in full."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        ascii_text = " ".join(value.split()).encode("ascii", "replace").decode()
        return "".join(letter for letter in ascii_text if letter.isprintable())
    return value


def _image(
    cube: ShardedCube, name: str, values: Callable[[Block], ndarray], *, kind: str, cards: tuple[Card, ...]
) -> VoxelImage:
    """An image extension with the ESO class keywords and the world coordinates: float32, the mask as small integers."""
    dtype = np.dtype(np.float32)
    if kind == "QUALITY":
        dtype = np.dtype(np.uint8 if cube.flags < 1 << 8 else np.int16 if cube.flags < 1 << 15 else np.int32)
    flag = f"FLAG{8 * dtype.itemsize}BIT"
    subclass = {"ERROR": (("HDUCLAS3", "MSE", "mean squared error"),), "QUALITY": (("HDUCLAS3", flag, ""),)}
    header = header_of(
        (
            *cards,
            ("HDUCLASS", "ESO", "ESO data interface control document"),
            ("HDUCLAS1", "IMAGE", ""),
            ("HDUCLAS2", kind, ""),
            *subclass.get(kind, ()),
            ("DISPAXIS", 3, "wavelength axis"),
            *cube.wcs_cards,
        )
    )
    return voxel_image(cube, dtype, header, values, name=name, is_rough=kind == "DATA")


def _table(name: str, columns: Mapping[str, Any]) -> fits.BinTableHDU:
    return fits.BinTableHDU.from_columns(
        [fits.Column(key, "D", unit="Angstrom", array=np.asarray(value, np.float64)) for key, value in columns.items()],
        name=name,
    )


def run_rows(cube: Described, others: Mapping[str, SourceCounters]) -> list[Row]:
    """`cube.meta`, the stars' counters and those of other sources as rows (KEY, VALUE)."""
    counters = {} if cube.counters is None else vars(cube.counters)
    counts = {COUNTER_PREFIX + name: np.asarray(value).item() for name, value in counters.items()}
    counts |= {SOURCE_PREFIX + name: np.asarray(value).item() for name, value in flat_counters(others).items()}
    return split_rows({**cube.meta, **counts})


def config_table(cube: Described, others: Mapping[str, SourceCounters] | None = None) -> fits.BinTableHDU:
    """`cube.meta`, the stars' counters and those of other sources as rows KEY, VALUE (`rubix_like.cube.meta`)."""
    rows = run_rows(cube, others or {})
    columns = []
    for index, name in enumerate(("KEY", "VALUE")):
        words = [row[index] for row in rows]
        columns.append(fits.Column(name, f"{max(map(len, words), default=1) or 1}A", array=words))
    return fits.BinTableHDU.from_columns(columns, name="CONFIG")


def checked_values(cube: Cube) -> Cube:
    """The cube; raises ValueError for flux or variance that is no number, and for bins that cannot be.

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
        survey = _OF_SURVEYS.get(header.get(LAYOUT_CARD))
        return checked_values(_cube_from(hdus) if survey is None else found_at(survey)(hdus))


@contextmanager
def opened_whole(path: Path, what: str, expected: str) -> Iterator[Any]:
    """The HDUs of a file of ours; whatever goes wrong with them inside is a ValueError that says what was expected."""
    try:
        with warnings.catch_warnings(action="error", category=AstropyUserWarning), opened_fits(path) as hdus:
            broken = checksum_faults(hdus)
            if broken:
                raise ValueError(
                    f"{'; '.join(broken)}; make it again, or where you changed it on purpose write it with astropy's "
                    f"checksum=True"
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
    """The run and the counters in the rows of a table that `config_table` made (`read_run_rows`)."""
    rows = table.data
    return read_run_rows(list(zip(rows["KEY"].tolist(), rows["VALUE"].tolist(), strict=True)))


def read_run_rows(rows: Iterable[Row]) -> tuple[Meta, Counters | None, dict[str, SourceCounters]]:
    """The run, the stars' counters (None without any) and those of other sources, as `run_rows` made them."""
    values = join_rows(rows)
    counts, others = (
        {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        for prefix in (COUNTER_PREFIX, SOURCE_PREFIX)
    )
    meta = Meta({key: value for key, value in values.items() if not key.startswith((COUNTER_PREFIX, SOURCE_PREFIX))})
    return meta, Counters(**counts) if counts else None, source_counters(others)


def _voxels(hdus: Any, name: str, dtype: type, expected: str | None = None) -> jnp.ndarray:
    unit, expected = hdus[name].header.get("BUNIT"), expected or _UNITS.get(name)
    if unit != expected:
        raise ValueError(f"HDU {name}: expected BUNIT {expected!r}, got {unit!r}")
    return jnp.asarray(np.ascontiguousarray(hdus[name].data.transpose(1, 2, 0), dtype=dtype))
