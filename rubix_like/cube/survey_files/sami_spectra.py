"""Row-stacked spectra laid out like the reduced frames of SAMI: one file for each exposure.

PRIMARY (fibre, wave), VARIANCE, and the table FIBRES_IFU with a row for each spectrum: SPEC_ID, TYPE ('P', a fibre of a
bundle), PROBENUM, FIBNUM, FIBPOS_X and FIBPOS_Y (micron on the plate, East and North) and FIB_MRA, FIB_MDEC (deg):
where the fibre lies, which is where it sees light of the wavelength at which fibres are pointed.
Names as AAO's 2dfdr writes them (Sharp et al. 2015, MNRAS 446, 1551).
"""

import numpy as np
from astropy.io import fits

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.survey_files.survey_cubes import FLUX_PER_OURS
from rubix_like.cube.wcs import Card, header_of, world_coordinates
from rubix_like.runtime.files.writers import LAYOUT_CARD

ARCSEC_PER_MICRON: float = 15.22e-3
"""Scale of the plate of SAMI on the Anglo-Australian Telescope (Croom et al. 2012, MNRAS 421, 872)."""

SAMI_FLUX_UNIT: str = "10**(-16) erg/s/cm**2/Angstrom/fibre"


def sami_spectra(cube: Cube | ShardedCube) -> list[list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]]:
    """All HDUs of the file of each exposure, in order."""
    fibres = cube.fibres
    assert fibres is not None
    return [_exposure(cube, number) for number in range(1, fibres.places.n_exposure + 1)]


def _exposure(cube: Cube | ShardedCube, number: int) -> list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]:
    fibres = cube.fibres
    assert fibres is not None
    own = np.flatnonzero(fibres.places.exposure == number)
    cards = (*primary_cards(cube), *_cards(cube, number), *_axis_cards(cube))
    flux = np.where(fibres.good, np.asarray(fibres.flux, dtype=np.float64), np.nan)[own] * FLUX_PER_OURS
    hdus: list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU] = [
        fits.PrimaryHDU(flux.astype(np.float32), header_of(cards))
    ]
    if fibres.variance is not None:
        variance = np.asarray(fibres.variance, dtype=np.float64)[own] * FLUX_PER_OURS**2
        header = header_of((("BUNIT", f"({SAMI_FLUX_UNIT})**2", ""), *_axis_cards(cube)))
        hdus.append(fits.ImageHDU(variance.astype(np.float32), header, name="VARIANCE"))
    return [*hdus, _fibre_table(cube, own), config_table(cube, cube.source_counters)]


def _cards(cube: Cube | ShardedCube, number: int) -> tuple[Card, ...]:
    fibres = cube.fibres
    assert fibres is not None
    first = int(np.flatnonzero(fibres.places.exposure == number)[0])
    known = {keyword: value for keyword, value, _ in cube.wcs_cards}
    times = cube.meta.exposure_times(fibres.places.n_exposure)
    return (
        (LAYOUT_CARD, "sami", "like a reduced frame of SAMI; a mock observation"),
        ("BUNIT", SAMI_FLUX_UNIT, ""),
        ("EXPOSURE", number, "number of this exposure"),
        *((("EXPOSED", times[number - 1], "[s] time of the exposure"),) if times is not None else ()),
        ("MEANRA", known["CRVAL1"], "[deg] right ascension of the field's centre"),
        ("MEANDEC", known["CRVAL2"], "[deg] declination of the field's centre"),
        ("FIBDIAM", 2 * fibres.places.radius, "[arcsec] diameter of a core"),
        ("PLATESCL", ARCSEC_PER_MICRON * 1e3, "[arcsec/mm] of FIBPOS_X, FIBPOS_Y"),
        ("TRANSPAR", float(fibres.places.transparency[first]), "of the sky; the flux is calibrated for it"),
        ("RELSEE", float(fibres.places.seeing[first]), "FWHM of the seeing relative to the PSF's"),
    )


def _axis_cards(cube: Cube | ShardedCube) -> tuple[Card, ...]:
    bins = cube.bins
    return (
        ("CTYPE1", "Wavelength", f"in {bins.medium}"),
        ("CUNIT1", "Angstrom", ""),
        ("CRPIX1", 1.0, "first bin"),
        ("CRVAL1", bins.first, "[Angstrom] its centre"),
        ("CDELT1", bins.step, "[Angstrom]"),
    )


def _fibre_table(cube: Cube | ShardedCube, own: np.ndarray) -> fits.BinTableHDU:
    fibres = cube.fibres
    assert fibres is not None
    places, known = fibres.places, {keyword: value for keyword, value, _ in cube.wcs_cards}
    x, y = places.x[own], places.y[own]
    east, north = (side[own] for side in places.on_sky(float(cube.meta.get("field_angle") or 0.0)))
    column, row = (cube.n_x - 1) / 2 - x / cube.pixel_scale, (cube.n_y - 1) / 2 + y / cube.pixel_scale
    ra, dec = world_coordinates(cube.wcs_cards, cube.bins).celestial.all_pix2world(column, row, 0)
    name = str(cube.meta.get("object") or "mock")
    columns = (
        ("SPEC_ID", "J", None, np.arange(1, len(own) + 1)),
        ("NAME", f"{max(len(name), 1)}A", None, np.full(len(own), name)),
        ("TYPE", "1A", None, np.full(len(own), "P")),
        ("PROBENUM", "J", None, np.ones(len(own), dtype=np.int32)),
        ("PROBENAME", "6A", None, np.full(len(own), "Probe1")),
        ("FIBNUM", "J", None, places.number[own]),
        ("FIBPOS_X", "D", "um", east / ARCSEC_PER_MICRON),
        ("FIBPOS_Y", "D", "um", north / ARCSEC_PER_MICRON),
        ("XPOS", "D", "arcsec", x),
        ("YPOS", "D", "arcsec", y),
        ("FIB_MRA", "D", "deg", ra),
        ("FIB_MDEC", "D", "deg", dec),
        ("GRP_MRA", "D", "deg", np.full(len(own), known["CRVAL1"])),
        ("GRP_MDEC", "D", "deg", np.full(len(own), known["CRVAL2"])),
    )
    return fits.BinTableHDU.from_columns(
        [fits.Column(key, kind, unit=unit, array=values) for key, kind, unit, values in columns], name="FIBRES_IFU"
    )
