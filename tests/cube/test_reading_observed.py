"""Observed cubes: files in the layouts of several instruments, with values known by hand."""

import dataclasses
import math
import re
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from astropy import constants, units
from astropy.io import fits
from astropy.nddata import CCDData, StdDevUncertainty
from astropy.wcs import WCS
from small import FLUX, MUSE, N_WAVE, N_X, N_Y, SKY, STEP, full_cube, image, muse_hdus, write_fits

from rubix_like import ObservedCube, read_observed
from rubix_like.cube.footprint import celestial_cards, header_of
from rubix_like.cube.observed.flux_units import flux_factor, parse_unit
from rubix_like.extend import Footprint, WavelengthBins, observed_from, to_vacuum


def ours(flux) -> np.ndarray:
    """(y, x, wave) of (wave, y, x)."""
    return np.asarray(flux, np.float64).transpose(1, 2, 0)


def plain(path: Path, cards=None, **options) -> ObservedCube:
    """The cube of a file with one image only."""
    return read_observed(write_fits(path, image(FLUX, MUSE | (cards or {}))), **options)


# ---------------------------------------------------------------- our own


@pytest.mark.parametrize(
    ("name", "sampling"), [("cube.fits", "linear"), ("cube.fits.gz", "log"), ("cube.h5", "linear")]
)
def test_cubes_of_ours_come_back(tmp_path, name, sampling):
    cube = full_cube(sampling)
    observed = read_observed(cube.write(tmp_path / name))
    np.testing.assert_array_equal(observed.flux, np.asarray(cube.flux, np.float32))
    np.testing.assert_array_equal(observed.variance, np.asarray(cube.variance, np.float32))
    np.testing.assert_array_equal(observed.used, np.asarray(cube.mask) == 0)
    np.testing.assert_allclose(observed.wavelength, cube.wavelength, rtol=1e-14)
    np.testing.assert_allclose(observed.wave_edges, cube.wave_edges, rtol=1e-14)
    assert {array.dtype for array in (observed.flux, observed.variance, observed.wavelength)} == {np.dtype(np.float64)}
    assert (observed.sampling, observed.medium, observed.pixel_scale) == (sampling, "air", 0.2)
    assert (observed.ra, observed.dec, observed.field_angle) == (150.0, 40.0, 0.0)
    assert "outside the aperture" in observed.notes[0]
    with pytest.raises(ValueError, match="leave them out"):
        read_observed(tmp_path / name, medium="air")


def test_the_manga_layout_comes_back(tmp_path):
    cube = full_cube("log", medium="vacuum")
    cube = dataclasses.replace(cube, meta=cube.meta.replace(field_angle=30.0))
    observed = read_observed(cube.write(tmp_path / "cube.fits", "manga"))
    direct = observed_from(cube)
    np.testing.assert_array_equal(observed.used, direct.used)
    np.testing.assert_allclose(observed.flux, direct.flux, rtol=1e-6)
    np.testing.assert_allclose(observed.variance[direct.used], direct.variance[direct.used], rtol=1e-6)
    np.testing.assert_allclose(observed.wavelength, direct.wavelength, rtol=1e-13)
    np.testing.assert_allclose(observed.wave_edges, direct.wave_edges, rtol=1e-13)
    assert (observed.sampling, observed.medium) == ("log", "vacuum")
    np.testing.assert_allclose(
        [observed.pixel_scale, observed.ra, observed.dec, observed.field_angle], [0.2, 150, 40, 30], rtol=1e-12
    )


def test_the_hsim_layout_comes_back(tmp_path):
    cube = full_cube("linear", medium="vacuum")
    observed = read_observed(cube.write(tmp_path / "cube.fits", "hsim"))
    np.testing.assert_allclose(observed.flux, cube.flux, rtol=1e-6)
    np.testing.assert_allclose(observed.wavelength, cube.wavelength, rtol=1e-13)
    assert (observed.variance, observed.ra, observed.medium) == (None, None, "vacuum")
    assert any("no celestial coordinates" in note for note in observed.notes)
    assert "there is no variance" in observed.notes


# ---------------------------------------------------------------- MUSE


def test_muse(tmp_path):
    flux, variance, mask = FLUX.copy(), np.full_like(FLUX, 4.0), np.zeros(FLUX.shape, np.int32)
    flux[0, 0, 0], variance[1, 0, 0], variance[2, 0, 0], mask[3, 1, 2] = np.nan, np.inf, 0, 1 << 30
    observed = read_observed(write_fits(tmp_path / "cube.fits", *muse_hdus(flux, variance, mask)))
    assert observed.shape == (N_Y, N_X, N_WAVE)
    assert observed.flux[1, 2, 4] == FLUX[4, 1, 2]
    np.testing.assert_array_equal(observed.variance[1], 4.0)
    np.testing.assert_array_equal(observed.wavelength, [4750, 4751.25, 4752.5, 4753.75, 4755])
    np.testing.assert_array_equal(observed.wave_edges[[0, -1]], [4749.375, 4755.625])
    assert (observed.medium, observed.sampling, observed.name) == ("air", "linear", "NGC 1")
    left_out = {(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 2, 3)}
    assert set(map(tuple, np.argwhere(~observed.used).tolist())) == left_out
    assert observed.notes == (
        "of 60 voxels these are not used: 1 (DQ not 0), 1 (flux not finite), 2 (variance not finite or not > 0)",
    )
    np.testing.assert_allclose([observed.pixel_scale, observed.ra, observed.dec], [0.2, 150, 2], rtol=1e-12)
    assert observed.field_angle == 0


def test_a_real_muse_cube(real_data):
    path = real_data / "ifu" / "muse_a478_13x13.fits"
    if not path.exists():
        pytest.skip(f"no {path}")
    observed = read_observed(path)
    with fits.open(path) as hdus:
        header = hdus["DATA"].header
        metres = WCS(header).wcs_pix2world(0, 0, np.arange(3681), 0)[2]
        np.testing.assert_allclose(observed.wavelength, 1e10 * metres, rtol=1e-12)
        np.testing.assert_array_equal(observed.flux, ours(hdus["DATA"].data))
        np.testing.assert_array_equal(observed.variance, ours(hdus["STAT"].data))
        ra, dec, _ = WCS(header).wcs_pix2world(7, 7, 1, 1)
    np.testing.assert_allclose([observed.ra, observed.dec, observed.pixel_scale], [ra, dec, 0.2], rtol=1e-9)
    assert (observed.medium, observed.shape, observed.name) == ("air", (13, 13, 3681), "Abell 478")
    assert observed.used.all()
    assert any("STAT says BUNIT" in note for note in observed.notes)  # per Angstrom squared, but not squared


# ---------------------------------------------------------------- MaNGA


def manga_hdus(mask=None, wavelength=None, **cards):
    """A LOGCUBE as the data reduction pipeline writes it: cards after Law et al. 2016; bins of 1e-4 dex."""
    header = SKY | {f"CD{i}_{i}": math.copysign(0.000138889, SKY[f"CD{i}_{i}"]) for i in (1, 2)}
    first = 3621.5959848601933
    header |= {"CTYPE3": "WAVE-LOG", "CUNIT3": "Angstrom", "CRPIX3": 1, "CRVAL3": first}
    header |= {"CD3_3": first * 1e-4 * math.log(10), "BUNIT": "1E-17 erg/s/cm^2/Ang/spaxel"} | cards
    names = {"TELESCOP": "SDSS 2.5-M", "INSTRUME": "MaNGA", "MANGAID": "1-2"}
    ivar = np.full_like(FLUX, 0.25)
    mask = np.zeros(FLUX.shape, np.int32) if mask is None else mask
    wavelength = 10 ** (3.5589 + 1e-4 * np.arange(N_WAVE)) if wavelength is None else wavelength
    return [
        image(None, names),
        image(FLUX, header, "FLUX"),
        image(ivar, header | {"BUNIT": None}, "IVAR"),
        image(mask, {"MASKNAME": "MANGA_DRP3PIXMASK"}, "MASK"),
        image(wavelength, {}, "WAVE"),
        image(FLUX[0], {}, "GIMG"),
    ]


def test_manga_logcube(tmp_path):
    mask = np.zeros(FLUX.shape, np.int32)
    mask[0, 0] = [1 << 0, 1 << 1, 1 << 2, 1 << 3]  # NOCOV, LOWCOV, DEADFIBER, FORESTAR
    mask[1, 0] = [1 << 10, 1 << 10 | 1 << 2, 0, 0]  # DONOTUSE
    observed = read_observed(write_fits(tmp_path / "manga-1-2-LOGCUBE.fits.gz", *manga_hdus(mask)))
    np.testing.assert_allclose(observed.flux, 1000 * ours(FLUX), rtol=1e-14)
    np.testing.assert_allclose(observed.variance, 4e6, rtol=1e-14)
    np.testing.assert_allclose(observed.wavelength, 10 ** (3.5589 + 1e-4 * np.arange(N_WAVE)), rtol=1e-14)
    np.testing.assert_allclose(observed.wave_edges[-1], 10 ** (3.5589 + 1e-4 * (N_WAVE - 0.5)), rtol=1e-14)
    assert (observed.sampling, observed.medium, observed.name) == ("log", "vacuum", "1-2")
    assert observed.used[0, :, :2].tolist() == [[False, False], [True, False], [True, True], [False, True]]
    assert observed.used.sum() == FLUX.size - 4
    np.testing.assert_allclose(observed.pixel_scale, 0.5, rtol=1e-6)
    assert observed.notes[0].startswith("MASK: 2 voxels with other bits than 0x409 are used (Law et al. 2016")


def test_cubes_of_mangas_analysis_have_other_bits(tmp_path):
    mask = np.zeros(FLUX.shape, np.int32)
    mask[0, 0, 0] = 1 << 5
    hdus = manga_hdus(mask)
    hdus[3].header["MASKNAME"] = "MANGA_DAPSPECMASK"
    assert (~read_observed(write_fits(tmp_path / "cube.fits", *hdus)).used).sum() == 1


def test_manga_lincube_without_ctype(tmp_path):
    wavelength = 3622.0 + np.arange(N_WAVE)
    hdus = manga_hdus(wavelength=wavelength, CTYPE3=None, CD3_3=1.0)
    observed = read_observed(write_fits(tmp_path / "cube.fits", *hdus))
    np.testing.assert_allclose(observed.wavelength, wavelength, rtol=1e-14)
    assert (observed.sampling, observed.medium) == ("linear", "vacuum")
    assert observed.notes[0].startswith("wavelengths in vacuum, as MaNGA has them (Law et al. 2016, AJ 152, 83; bits")
    assert "up to 0.404 bins off" in observed.notes[1]


def test_a_file_of_maps_is_refused(real_data):
    path = real_data / "ifu" / "manga-8080-12701-MAPS-VOR10-GAU-MILESHC.fits.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    with pytest.raises(ValueError, match=r"expected a cube of spectra, got a MAPS file.*LOGCUBE"):
        read_observed(path)


# ---------------------------------------------------------------- other instruments


def test_sami(tmp_path):
    """GRATID-like cards of the survey's pipeline: CTYPE1 = DEGREE, CRPIX3 in the middle, no unit of the variance."""
    header = SKY | {"CTYPE1": "DEGREE", "CTYPE2": "DEGREE", "CTYPE3": "Angstrom", "CRVAL3": 4700.0, "CRPIX3": 3.0}
    header |= {f"CD{i}_{j}": None for i in (1, 2) for j in (1, 2)}
    header |= {"CDELT1": -0.5 / 3600, "CDELT2": 0.5 / 3600, "CDELT3": 1.05, "CUNIT3": "Angstrom"}
    header |= {"BUNIT": "10**(-16) erg /s /cm**2 /angstrom /pixel", "INSTRUME": "AAOMEGA-SAMI", "NAME": "36894"}
    covariance = np.zeros((2, 5, 5, N_Y, N_X), np.float32)
    parts = {"VARIANCE": np.full_like(FLUX, 9.0), "WEIGHT": FLUX, "COVAR": covariance}
    others = (image(values, {}, name) for name, values in parts.items())
    observed = read_observed(write_fits(tmp_path / "cube.fits", image(FLUX, header), *others))
    np.testing.assert_allclose(observed.flux, 1e4 * ours(FLUX), rtol=1e-14)
    np.testing.assert_allclose(observed.variance, 9e8, rtol=1e-14)
    np.testing.assert_allclose(observed.wavelength, 4700 + 1.05 * np.arange(-2, 3), rtol=1e-14)
    assert (observed.medium, observed.name) == ("air", "36894")
    np.testing.assert_allclose([observed.pixel_scale, observed.ra, observed.dec], [0.5, 150.0, 2.0], rtol=1e-12)


def test_califa(tmp_path):
    """PRIMARY, ERROR (sigma), ERRWEIGHT, BADPIX, FIBCOVER; no BUNIT and no medium."""
    header = SKY | {"CRVAL3": 3749.0, "CRPIX3": 1.0, "CDELT3": 2.0, "CUNIT3": "Angstrom", "INSTRUME": "PMAS"}
    header |= {f"CD{i}_{j}": None for i in (1, 2) for j in (1, 2)} | {"CDELT1": -1 / 3600, "CDELT2": 1 / 3600}
    bad = np.zeros(FLUX.shape, np.uint8)
    bad[0, 0, 0] = 1
    parts = {"ERROR": np.full_like(FLUX, 3.0), "ERRWEIGHT": np.ones_like(FLUX), "BADPIX": bad, "FIBCOVER": bad}
    others = (image(values, {}, name) for name, values in parts.items())
    observed = read_observed(write_fits(tmp_path / "cube.fits.gz", image(FLUX, header), *others))
    np.testing.assert_allclose(observed.flux, 1e4 * ours(FLUX), rtol=1e-14)
    np.testing.assert_allclose(observed.variance, 9e8, rtol=1e-14)
    assert np.argwhere(~observed.used).tolist() == [[0, 0, 0]]
    assert (observed.medium, observed.name) == ("air", "cube")
    assert any("as CALIFA has them" in note for note in observed.notes)


def test_kcwi_and_astropys_ccddata(tmp_path):
    """PRIMARY in FLAM16, UNCERT (its kind in UTYPE), MASK, as CCDData writes them."""
    data = CCDData(FLUX, unit="adu", uncertainty=StdDevUncertainty(np.full_like(FLUX, 2.0)), mask=FLUX > 58)
    hdus = data.to_hdu()
    cards = MUSE | {"CTYPE3": "WAVE", "BUNIT": "FLAM16", "INSTRUME": "KCWI"}
    hdus[0].header.update(cards)
    hdus["UNCERT"].header["BUNIT"] = "FLAM16"
    hdus.writeto(tmp_path / "cube.fits")
    observed = read_observed(tmp_path / "cube.fits")
    np.testing.assert_allclose(observed.flux, 1e4 * ours(FLUX), rtol=1e-14)
    np.testing.assert_allclose(observed.variance, 4e8, rtol=1e-14)
    assert (observed.medium, (~observed.used).sum()) == ("vacuum", 2)


def test_jwst(tmp_path):
    """SCI in MJy/sr, ERR, DQ; PC and CDELT; micrometres in vacuum."""
    cards = SKY | {f"CD{i}_{j}": None for i in (1, 2) for j in (1, 2)}
    cards |= {"CDELT1": 0.1 / 3600, "CDELT2": 0.1 / 3600, "PC1_1": -1.0, "PC2_2": 1.0}
    cards |= {"CTYPE3": "WAVE", "CUNIT3": "um", "CRVAL3": 1.0, "CRPIX3": 1.0, "CDELT3": 0.001, "BUNIT": "MJy/sr"}
    path = write_fits(
        tmp_path / "x_s3d.fits",
        image(FLUX, cards, "SCI"),
        image(np.full_like(FLUX, 0.1), cards, "ERR"),
        image(np.where(FLUX < 3, 513, 0).astype(np.uint32), {}, "DQ"),
    )
    observed = read_observed(path)
    np.testing.assert_allclose(observed.wavelength, [10000, 10010, 10020, 10030, 10040], rtol=1e-14)
    one = 1 * units.MJy / units.sr * (0.1 * units.arcsec) ** 2 * constants.c / (10010 * units.AA) ** 2
    one = one.to_value(1e-20 * units.erg / units.s / units.cm**2 / units.AA)
    np.testing.assert_allclose(observed.flux[:, :, 1], one * ours(FLUX)[:, :, 1], rtol=1e-12)
    np.testing.assert_allclose(observed.variance[:, :, 1], (0.1 * one) ** 2, rtol=1e-6)
    np.testing.assert_allclose(observed.pixel_scale, 0.1, rtol=1e-12)
    assert (~observed.used).sum() == 2


# ---------------------------------------------------------------- units


FLUX_UNITS = {
    "1E-17 erg/s/cm^2/Ang/spaxel": 1e-17,
    "10**(-20)*erg/s/cm**2/Angstrom": 1e-20,
    "10**-20 erg s-1 cm-2 Angstrom-1": 1e-20,
    "10**(-16) erg /s /cm**2 /angstrom /pixel": 1e-16,
    "10^(-16) erg/s/cm^2/A": 1e-16,
    "10-16 erg/s/cm2/AA": 1e-16,
    "1e-16 ergs/cm^2/s/\u00c5": 1e-16,
    "ERG/S/CM**2/ANGSTROM": 1.0,
    "FLAM16": 1e-16,
    "W/m2/um": 0.1,
    "erg/s/cm2/AA/arcsec2": 0.04,
    "FLAM18/arcsec2": 0.04e-18,
    "x10^-16 erg/s/cm2/A": 1e-16,
    "E-16 erg/s/cm2/A": 1e-16,
    "10(-16) erg/s/cm2/A": 1e-16,
    "1.0E-16 erg/s/cm2/A": 1e-16,
    "10^{-16} erg s^{-1} cm^{-2} A^{-1}": 1e-16,
    r"$10^{-16}\,\mathrm{erg}\,\mathrm{s}^{-1}\,\mathrm{cm}^{-2}\,\AA^{-1}$": 1e-16,
    "1E-16 ERGS/SEC/CM**2/ANGSTROMS": 1e-16,
    "1e-16 flam": 1e-16,
    "erg.s**(-1).cm**(-2).angstrom**(-1)": 1.0,
}
"""In erg/s/cm2/Angstrom per spaxel of 0.2 arcsec."""

PER_HERTZ = {"JY/PIXEL": "Jy", "MICROJANSKY": "uJy", "mJy": "mJy", "MJY": "MJy"}
IN_ANGSTROM = dict.fromkeys(("Micron", "MICRON", "microns", "UM", "um", "micrometre"), 1e4)
IN_ANGSTROM |= dict.fromkeys(("nanometers", "NM", "nm"), 10.0) | {"M": 1e10}
IN_ANGSTROM |= dict.fromkeys(("ANGSTROM", "Angstroms", "A"), 1.0)


def test_units_of_flux_and_wavelength():
    """Fluxes per Hz by astropy's `spectral_density`."""
    bins = WavelengthBins(5000.0, 1.25, 3, "linear", "vacuum")
    for text, value in FLUX_UNITS.items():
        np.testing.assert_allclose(1e-20 * flux_factor(parse_unit(text), bins, 0.2), value, rtol=1e-12, err_msg=text)
    density = units.spectral_density(bins.wavelength * units.AA)
    for text, name in PER_HERTZ.items():
        expected = units.Unit(name).to("1e-20 erg / (s cm2 Angstrom)", equivalencies=density)
        np.testing.assert_allclose(flux_factor(parse_unit(text), bins, 0.2), expected, rtol=1e-9, err_msg=text)
    for text, value in IN_ANGSTROM.items():
        assert parse_unit(text).to(units.AA) == pytest.approx(value, rel=1e-13), text
    square = parse_unit("1e-20 erg/s/cm2/Angstrom") ** 2
    for text in ("(10**(-20)*erg/s/cm**2/Angstrom)**2", "10**-40 erg2 s-2 cm-4 Angstrom-2"):
        np.testing.assert_allclose(parse_unit(text).to(square), 1, rtol=1e-12)
    np.testing.assert_allclose(parse_unit("(1E-20 erg/s/cm^2/Ang)^{-2}").to(square**-1), 1, rtol=1e-12)


def test_flux_per_hertz_in_air():
    """F_nu dnu = F_lambda dlambda, lambda in air: by a difference of frequencies."""
    bins = WavelengthBins(5000.0, 1.25, 3, "linear", "air")
    around = to_vacuum(np.array([5002.4, 5002.6]))
    frequencies = constants.c.to_value("AA/s") / around
    factor = flux_factor(parse_unit("Jy"), bins, 0.2)[2]
    np.testing.assert_allclose(factor, 1e-23 * (frequencies[0] - frequencies[1]) / 0.2 * 1e20, rtol=1e-8)


def test_errors_in_another_unit_than_the_flux(tmp_path):
    hdus = [
        image(FLUX, MUSE | {"BUNIT": "1e-17 erg/s/cm2/Angstrom"}, "FLUX"),
        image(np.full_like(FLUX, 3.0), {"BUNIT": "1e-18 erg/s/cm2/Angstrom"}, "ERR"),
    ]
    observed = read_observed(write_fits(tmp_path / "cube.fits", *hdus))
    np.testing.assert_allclose(observed.variance, (3e-18 / 1e-20) ** 2, rtol=1e-12)
    hdus[1].header["BUNIT"] = "ADU"
    odd = read_observed(write_fits(tmp_path / "odd.fits", *hdus))
    np.testing.assert_allclose(odd.variance, (3e-17 / 1e-20) ** 2, rtol=1e-12)
    assert "ERR says BUNIT = 'ADU'; it is read as the flux's unit to the power 1" in odd.notes


def test_a_unit_that_is_given_counts_for_the_errors_too(tmp_path):
    """The header is wrong by 1e3 in both."""
    path = write_fits(tmp_path / "cube.fits", *muse_hdus())
    observed, right = read_observed(path, units="1e-17 erg/s/cm2/Angstrom"), read_observed(path)
    np.testing.assert_allclose(observed.flux, 1e3 * right.flux, rtol=1e-12)
    np.testing.assert_allclose(observed.variance, 1e6 * right.variance, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "cards", "value", "variance"),
    [
        ("ERROR", {"HDUCLAS3": "MSE"}, 3.0, 3.0),
        ("STAT", {"HDUCLAS3": "RMSE"}, 3.0, 9.0),
        ("ERR", {"HDUCLAS3": "INVMSE"}, 4.0, 0.25),
        ("ERR", {"HDUCLAS3": "INVRMSE"}, 4.0, 0.0625),
        ("UNCERT", {"UTYPE": "VarianceUncertainty"}, 3.0, 3.0),
        ("IVAR", {}, 4.0, 0.25),
        ("VAR", {}, 3.0, 3.0),
        ("STD", {}, 3.0, 9.0),
        ("SIGMAS", {"HDUCLAS3": "RMSE"}, 3.0, 9.0),
    ],
)
def test_kinds_of_errors(tmp_path, name, cards, value, variance):
    flux = image(FLUX, MUSE | {"ERRDATA": name}, "FLUX")
    path = write_fits(tmp_path / "cube.fits", flux, image(np.full_like(FLUX, value), cards, name))
    np.testing.assert_allclose(read_observed(path).variance, variance, rtol=1e-12)


def test_errors_that_are_not_positive_are_not_used(tmp_path):
    errors = np.full_like(FLUX, 2.0)
    errors[:, 0, :] = [[0.0, -1.0, np.nan, np.inf]]
    observed = read_observed(write_fits(tmp_path / "cube.fits", image(FLUX, MUSE, "FLUX"), image(errors, {}, "IVAR")))
    assert not observed.used[0].any()
    assert observed.used[1:].all()


def test_a_cube_without_a_variance(tmp_path):
    observed = plain(tmp_path / "cube.fits")
    assert observed.variance is None
    assert observed.used.all()
    assert observed.notes == ("there is no variance",)


def test_a_mask_of_spaxels(tmp_path):
    mask = np.zeros((N_Y, N_X), np.uint8)
    mask[2, 3] = 1
    observed = read_observed(write_fits(tmp_path / "cube.fits", image(FLUX, MUSE, "FLUX"), image(mask, {}, "MASK")))
    np.testing.assert_array_equal(observed.used.all(axis=2), mask == 0)


# ---------------------------------------------------------------- wavelengths

EVEN = 4750 + 1.25 * np.arange(5)


@pytest.mark.parametrize(
    ("cards", "wavelength"),
    [
        ({"CUNIT3": "nm", "CRVAL3": 475.0, "CD3_3": 0.125}, EVEN),
        ({"CUNIT3": "m", "CRVAL3": 4.75e-7, "CD3_3": 1.25e-10}, EVEN),
        ({"CUNIT3": None, "CRVAL3": 4.75e-7, "CD3_3": 1.25e-10}, EVEN),
        ({"CUNIT3": None}, EVEN),
        ({"CUNIT3": "Angstroms", "CRPIX3": 3.0}, EVEN - 2.5),
        ({"CTYPE3": "AWAV-LOG", "CD3_3": 4750 * 1e-4}, 4750 * np.exp(1e-4 * np.arange(5))),
    ],
)
def test_wavelengths_of_headers(tmp_path, cards, wavelength):
    observed = plain(tmp_path / "cube.fits", cards)
    np.testing.assert_allclose(observed.wavelength, wavelength, rtol=1e-13)
    assert observed.sampling == ("log" if cards.get("CTYPE3") else "linear")
    if cards.get("CUNIT3", "") is None:
        assert any("without a unit are taken as" in note for note in observed.notes)


def test_descending_wavelengths_are_turned(tmp_path):
    observed = plain(tmp_path / "cube.fits", {"CD3_3": -1.25})
    np.testing.assert_allclose(observed.wavelength, EVEN - 5)
    np.testing.assert_array_equal(observed.flux, ours(FLUX[::-1]))


def test_a_table_of_wavelengths(tmp_path):
    wave = (EVEN / 10).astype(np.float32)
    table = fits.BinTableHDU.from_columns([fits.Column("LAMBDA", "E", unit="nm", array=wave)], name="WAVE")
    cards = {"CTYPE3": None, "CRVAL3": None, "CD3_3": None, "CUNIT3": None, "CRPIX3": None}
    path = write_fits(tmp_path / "cube.fits", image(FLUX, MUSE | cards, "FLUX"), table)
    observed = read_observed(path, medium="air")
    np.testing.assert_allclose(observed.wavelength, EVEN, rtol=1e-7)
    np.testing.assert_allclose(np.diff(observed.wave_edges), np.diff(observed.wave_edges)[0], rtol=1e-9)


def test_one_bin(tmp_path):
    path = write_fits(tmp_path / "cube.fits", image(FLUX[:1], MUSE | {"CUNIT3": "nm", "CRVAL3": 500.0, "CD3_3": 0.2}))
    observed = read_observed(path)
    np.testing.assert_allclose(observed.wave_edges, [4999, 5001], rtol=1e-14)


def test_the_medium_is_by_ctype_by_option_or_by_instrument(tmp_path):
    bare = {"CTYPE3": "LAMBDA"}
    assert plain(tmp_path / "a.fits", {"CTYPE3": "WAVE"}).medium == "vacuum"
    given = plain(tmp_path / "b.fits", {"CTYPE3": "WAVE"}, medium="air")
    assert (given.medium, given.notes[0]) == ("air", "wavelengths in air as given; the header says vacuum")
    assert plain(tmp_path / "c.fits", bare, medium="vacuum").medium == "vacuum"
    assert plain(tmp_path / "d.fits", bare | {"INSTRUME": "MUSE"}).medium == "air"
    with pytest.raises(ValueError, match=r"e\.fits, HDU PRIMARY: expected CTYPE3 to say .*got 'LAMBDA'; give medium="):
        plain(tmp_path / "e.fits", bare)


# ---------------------------------------------------------------- sky


@pytest.mark.filterwarnings("ignore::astropy.wcs.FITSFixedWarning")
@pytest.mark.parametrize(
    ("angle", "mirrored"), [(0.0, ""), (30.0, ""), (-120.0, ""), (30.0, "x"), (-120.0, "x"), (0.0, "y"), (-120.0, "y")]
)
def test_a_turned_and_mirrored_field_comes_out_right(tmp_path, angle, mirrored):
    """Every spaxel keeps its place on the sky, by astropy's WCS of the file and of a header of ours."""
    cosine, sine = STEP * math.cos(math.radians(angle)), STEP * math.sin(math.radians(angle))
    matrix = np.array([[-cosine, sine], [sine, cosine]])
    matrix[:, {"": [], "x": [0], "y": [1]}[mirrored]] *= -1
    cards = {f"CD{i}_{j}": matrix[i - 1, j - 1] for i in (1, 2) for j in (1, 2)}
    cards |= {"CRPIX1": 1.3, "CRPIX2": -4.0, "CRVAL2": 70.0}
    observed = plain(tmp_path / "cube.fits", cards)
    with fits.open(tmp_path / "cube.fits") as hdus:
        there = WCS(hdus[0].header).celestial
    place = (observed.ra, observed.dec, observed.field_angle)
    here = WCS(header_of(celestial_cards(Footprint(N_Y, N_X, observed.pixel_scale), *place))).celestial
    for y, x in np.ndindex(N_Y, N_X):
        row, column = np.argwhere(FLUX[0] == observed.flux[y, x, 0])[0]
        np.testing.assert_allclose(here.wcs_pix2world([[x, y]], 0), there.wcs_pix2world([[column, row]], 0), atol=1e-9)
    assert any("mirrored" in note for note in observed.notes) == bool(mirrored)
    if not mirrored or abs(angle) < 90:
        np.testing.assert_allclose(observed.field_angle, angle, atol=1e-9)


def test_the_old_card_of_rotation(tmp_path):
    cards = {f"CD{i}_{j}": None for i in (1, 2, 3) for j in (1, 2, 3)}
    cards |= {"CDELT1": -STEP, "CDELT2": STEP, "CDELT3": 1.25, "CROTA2": 25.0}
    observed = plain(tmp_path / "cube.fits", cards)
    with fits.open(tmp_path / "cube.fits") as hdus:
        matrix = WCS(hdus[0].header).celestial.pixel_scale_matrix
    expected = math.degrees(math.atan2(matrix[0, 1], matrix[1, 1]))
    np.testing.assert_allclose([observed.field_angle, observed.pixel_scale], [expected, 0.2], rtol=1e-9)
    assert abs(expected) > 20


@pytest.mark.parametrize("order", [(3, 1, 2), (2, 1, 3), (2, 3, 1)])
def test_any_order_of_axes(tmp_path, order):
    """`order`: the axis of the file (1 the fastest) that is x, y, wavelength."""
    cards = {"BUNIT": MUSE["BUNIT"]}
    for new, old in zip(order, (1, 2, 3), strict=True):
        cards |= {f"{key}{new}": MUSE[f"{key}{old}"] for key in ("CTYPE", "CUNIT", "CRVAL", "CRPIX")}
        cards[f"CDELT{new}"] = MUSE[f"CD{old}_{old}"]
    of_file = dict(zip(order, "xyw", strict=True))
    source = np.einsum(f"wyx->{of_file[3]}{of_file[2]}{of_file[1]}", FLUX)
    observed = read_observed(write_fits(tmp_path / "cube.fits", image(np.ascontiguousarray(source), cards)))
    np.testing.assert_array_equal(observed.flux, ours(FLUX))
    np.testing.assert_allclose([observed.ra, observed.dec, observed.field_angle], [150, 2, 0], atol=1e-12)


def test_an_axis_of_which_the_matrix_is_silent_has_its_own_step(tmp_path):
    observed = plain(tmp_path / "a.fits", {"CD3_3": None, "CDELT3": 1.25, "CDELT1": 1.0, "CDELT2": 1.0})
    np.testing.assert_allclose(observed.wavelength, plain(tmp_path / "b.fits").wavelength, rtol=1e-14)
    np.testing.assert_allclose(observed.pixel_scale, 0.2, rtol=1e-12)


def test_no_place_on_the_sky(tmp_path):
    bare = dict.fromkeys(SKY)
    with pytest.raises(ValueError, match=r"expected the size of the spaxels .* give pixel_scale= in arcsec"):
        plain(tmp_path / "a.fits", bare)
    observed = plain(tmp_path / "b.fits", bare, pixel_scale=0.3)
    assert (observed.pixel_scale, observed.ra, observed.field_angle) == (0.3, None, 0.0)
    given = plain(tmp_path / "c.fits", pixel_scale=0.3)
    assert (given.pixel_scale, given.notes[0]) == (0.3, "pixel_scale 0.3 arcsec as given; the header says 0.2")


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ({"CTYPE3": "VELO", "CUNIT3": "m/s"}, "expected the line's rest frequency (RESTFRQ, in Hz) beside CTYPE3"),
        ({"CTYPE3": "VELOCITY"}, "velocities of a known convention, got CTYPE3 = 'VELOCITY'; write VRAD or VOPT"),
        ({"CTYPE3": "FREQ"}, "expected CUNIT3 to be a frequency (Hz), got 'Angstrom'"),
        (
            {"CTYPE3": "VRAD", "CUNIT3": "km/s", "RESTFRQ": 1e9, "CRVAL3": 4e5},
            "expected velocities below that of light",
        ),
        ({"CTYPE3": "WAVE-TAB"}, "expected the table of its wavelengths (CTYPE3 = 'WAVE-TAB')"),
        ({"CTYPE3": "WAVE-GRI"}, "linear or end in -LOG or -TAB, got 'WAVE-GRI'"),
        ({"CTYPE3": "STOKES", "CUNIT3": None}, "a fit needs a cube of spectra"),
        ({"CTYPE1": "GLON-TAN", "CTYPE2": "GLAT-TAN"}, "expected right ascension and declination, got CTYPE1 = 'GLON"),
        ({"CTYPE1": "WAVE"}, "expected one wavelength axis, got axes [1, 3]"),
        ({"CUNIT3": "Hz"}, "expected CUNIT3 to be a length (Angstrom, nm, um, m), got 'Hz'"),
        ({"CUNIT3": None, "CRVAL3": 475.0}, "expected the unit of the wavelengths (CUNIT3), got none"),
        ({"CRVAL3": 3.55, "CD3_3": 1e-4}, "expected wavelengths between 100 and 1e+07 Angstrom, got 3.55 to 3.55"),
        ({"CRVAL3": None}, "expected the wavelengths (cards CRVAL3 and CDELT3 or CD3_3, or an HDU WAVE), got none"),
        ({"CRVAL3": "blue"}, "expected card CRVAL3 to be a number"),
        ({"CD1_3": 1e-6}, "got one mixed with the sky"),
        ({"CD1_1": -2 * STEP}, "expected square spaxels, got 0.4 x 0.2 arcsec with sides at 90 deg; resample"),
        ({"CD1_1": -STEP, "CD1_2": STEP}, "expected square spaxels, got 0.2 x 0.2828 arcsec with sides at 45 deg"),
        ({"CD1_1": 0.0}, "expected spaxels with a size, got 0 x 0.2 arcsec"),
        ({"BUNIT": "adu"}, "expected a flux density or surface brightness, but 'adu' is neither"),
        ({"BUNIT": "Jy/beam"}, "expected the size of the beam (BMAJ and BMIN in deg"),
        ({"BUNIT": "erg/s/cm2"}, "is neither a flux per Angstrom (or Hz) and spaxel nor a surface brightness; give"),
        ({"BUNIT": "quux"}, "expected a unit of flux per Angstrom or Hz, got BUNIT = 'quux'"),
        ({"BUNIT": None}, "expected a unit of flux per Angstrom or Hz, got no BUNIT; give units="),
        ({"FSCALE": 1e-20}, "expected the scale of the fluxes in BUNIT, got FSCALE = 1e-20"),
    ],
)
def test_headers_that_are_refused(tmp_path, cards, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        plain(tmp_path / "cube.fits", cards)
    assert "cube.fits, HDU PRIMARY: " in str(error.value)


def test_options_repair_what_headers_do_not_say(tmp_path):
    observed = plain(tmp_path / "a.fits", {"BUNIT": None}, units="1e-19 erg/s/cm2/Angstrom")
    np.testing.assert_allclose(observed.flux, 10 * ours(FLUX), rtol=1e-12)
    changed = plain(tmp_path / "b.fits", {"FSCALE": 1e-20}, units="1e-19 erg/s/cm2/Angstrom")
    assert changed.notes[0].startswith("fluxes in '1e-19 erg/s/cm2/Angstrom' as given; the header says '10**(-20)")
    for options, message in (
        ({"units": "quux"}, "got units='quux'"),
        ({"medium": "water"}, "medium: expected 'air' or 'vacuum'"),
        ({"pixel_scale": -1.0}, "pixel_scale: expected a"),
    ):
        with pytest.raises(ValueError, match=message):
            read_observed(tmp_path / "b.fits", **options)


@pytest.mark.parametrize(
    ("wave", "message"),
    [
        (
            np.array([4750.0, 4751, 4753, 4754, 4755]),
            r"expected wavelengths whose steps change by less .* got steps of 1 and 2 Angstrom about 4751; fill",
        ),
        (EVEN[:4], r"expected 5 wavelengths, one per bin of the cube, got shape \(4,\)"),
        (np.array([4750.0, 4751, 4751, 4752, 4753]), "expected wavelengths in order"),
        (np.array([4750.0, np.nan, 4751, 4752, 4753]), "expected wavelengths between"),
    ],
)
def test_tables_of_wavelengths_that_are_refused(tmp_path, wave, message):
    path = write_fits(tmp_path / "cube.fits", image(FLUX, MUSE, "FLUX"), image(wave, {}, "WAVE"))
    with pytest.raises(ValueError, match=f"HDU WAVE: {message}"):
        read_observed(path)


def test_files_that_are_no_cubes(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such cube"):
        read_observed(tmp_path / "none.fits")
    (tmp_path / "text.fits").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.fits: expected a whole FITS file with a cube, got one that cannot"):
        read_observed(tmp_path / "text.fits")
    with pytest.raises(ValueError, match=r"HDU PRIMARY: expected a cube with three axes .* image of shape \(3, 4\)"):
        read_observed(write_fits(tmp_path / "image.fits", image(FLUX[0], {})))
    with pytest.raises(ValueError, match="got several such images: A, B; give hdu="):
        read_observed(write_fits(tmp_path / "two.fits", image(FLUX, MUSE, "A"), image(FLUX, MUSE, "B")))
    with pytest.raises(ValueError, match="got no such images: none"):
        read_observed(write_fits(tmp_path / "empty.fits", fits.PrimaryHDU()))
    with pytest.raises(ValueError, match="row-stacked spectra"):
        read_observed(write_fits(tmp_path / "rss.fits", image(FLUX[0], {}, "FLUX")))
    path = write_fits(tmp_path / "pointer.fits", image(FLUX, MUSE | {"ERRDATA": "X"}, "FLUX"), image(FLUX, {}, "X"))
    with pytest.raises(ValueError, match="HDU X: expected to be told whether it holds variances or standard deviation"):
        read_observed(path)


def test_parts_of_another_shape_are_refused(tmp_path):
    hdus = {hdu.name: hdu for hdu in muse_hdus()}
    hdus["DQ"].data = hdus["DQ"].data[:, :, :3]
    with pytest.raises(ValueError, match=r"HDU DQ: expected shape \(5, 3, 4\) as of DATA, got \(5, 3, 3\)"):
        read_observed(write_fits(tmp_path / "cube.fits", *hdus.values()))


@pytest.mark.parametrize(
    "damage", [{"flux": FLUX * np.nan}, {"variance": 0 * FLUX}, {"mask": np.ones(FLUX.shape, np.int32)}]
)
def test_a_cube_without_a_voxel_to_use_is_refused(tmp_path, damage):
    with pytest.raises(ValueError, match=r"expected at least one voxel that can be used, got none; .*60 \("):
        read_observed(write_fits(tmp_path / "cube.fits", *muse_hdus(**damage)))


@pytest.mark.parametrize("name", ["cube.fits", "cube.fits.gz"])
def test_truncated_files_are_refused(tmp_path, name):
    path = write_fits(tmp_path / name, *muse_hdus())
    content = path.read_bytes()
    for keep in (0.0, 0.1, 0.5, 0.8):
        path.write_bytes(content[: int(keep * len(content))])
        with pytest.raises(ValueError, match=re.escape(str(path))):
            read_observed(path)


def test_damaged_bytes_never_end_in_an_error_of_others(tmp_path):
    """Random bytes anywhere in the headers: the cube is read, or a ValueError names the file."""
    path = write_fits(tmp_path / "cube.fits", *muse_hdus())
    content, random = np.frombuffer(path.read_bytes(), np.uint8), np.random.default_rng(5)
    messages = []
    for _ in range(60):
        damaged = content.copy()
        places = random.integers(0, 8640, 12)
        damaged[places] = random.integers(32, 127, 12)
        path.write_bytes(damaged.tobytes())
        try:
            read_observed(path)
        except ValueError as error:
            messages.append(str(error))
    assert 5 < len(messages) < 60
    assert [message for message in messages if str(path) not in message] == []


# ---------------------------------------------------------------- crop


def test_crop():
    cube = full_cube()
    observed = observed_from(dataclasses.replace(cube, mask=jnp.zeros_like(cube.mask)), "a mock")
    cut = observed.crop(4751.0, 4753.5)
    np.testing.assert_allclose(cut.wavelength, observed.wavelength[1:3])
    np.testing.assert_allclose(cut.wave_edges, observed.wave_edges[1:4])
    np.testing.assert_array_equal(cut.flux, observed.flux[:, :, 1:3])
    np.testing.assert_array_equal(cut.variance, observed.variance[:, :, 1:3])
    assert cut.used.shape == (3, 5, 2)
    assert cut.notes[-1] == "cut to 2 bins from 4751 to 4753.5 Angstrom"
    with pytest.raises(ValueError, match=r"a mock: expected a range .* lie at .* Angstrom in air, got \(1, 2\)"):
        observed.crop(1.0, 2.0)
    blind = dataclasses.replace(observed, used=observed.used & (observed.wavelength < 4751))
    with pytest.raises(ValueError, match="a mock, 4752 to 4755 Angstrom: expected at least one voxel"):
        blind.crop(4752.0, 4755.0)


def test_shapes_are_checked():
    observed = observed_from(full_cube())
    with pytest.raises(ValueError, match=r"ObservedCube.flux: expected the shape of the axes, \(.*3\), got \(.*4\)"):
        dataclasses.replace(observed, bins=observed.bins.part(0, 3))


@pytest.mark.parametrize(("kind", "stretch"), [("VRAD", lambda beta: 1 / (1 - beta)), ("VOPT", lambda beta: 1 + beta)])
def test_velocities_are_read_as_wavelengths(tmp_path, kind, stretch):
    """CO(2-1) at 230.538 GHz; a flux per beam of 4 arcsec becomes one per spaxel of its own, per Angstrom."""
    cards = {"CTYPE3": kind, "CUNIT3": "km/s", "CRVAL3": -40.0, "CRPIX3": 1.0, "CD3_3": 20.0, "BUNIT": "Jy/beam"}
    cards |= {"RESTFRQ": 230.538e9, "BMAJ": 4 / 3600, "BMIN": 4 / 3600}
    observed = plain(tmp_path / "co.fits", cards)
    velocity = -40 + 20 * np.arange(observed.shape[2])
    rest = 299792.458e13 / 230.538e9
    np.testing.assert_allclose(observed.wavelength, rest * stretch(velocity / 299792.458), rtol=2e-7)
    assert (observed.medium, observed.sampling) == ("vacuum", "log")
    per_angstrom = 1e-23 * 299792.458e13 / observed.wavelength**2 / 1e-20  # of 1 Jy
    area = observed.pixel_scale**2 / (np.pi * 16 / (4 * np.log(2)))
    np.testing.assert_allclose(observed.flux[0, 0] / fits.getdata(tmp_path / "co.fits")[:, 0, 0], per_angstrom * area)
    for missing, words in (({"RESTFRQ": None}, "rest frequency"), ({"CUNIT3": "Hz"}, "to be a velocity")):
        with pytest.raises(ValueError, match=words):
            plain(tmp_path / f"{len(words)}.fits", cards | missing)


def test_a_cube_of_kinms(real_data):
    """A simulated disc in 25 channels of 20 km/s; KinMS centres it half a channel beside the line."""
    path = real_data / "ifu" / "kinms_test_simcube.fits"
    observed = read_observed(path)
    assert observed.shape == (64, 64, 25)
    rest = 299792.458e13 / 230.542e9
    np.testing.assert_allclose(observed.wavelength[12], rest, rtol=2e-7)
    light = np.nansum(observed.flux, axis=(0, 1))
    velocity = (observed.wavelength / rest - 1) * 299792.458
    stored = fits.getdata(path).sum(axis=(1, 2))
    expected = (-240 + 20 * np.arange(25)) @ stored / stored.sum()
    np.testing.assert_allclose(light @ velocity / light.sum(), expected, atol=0.2)
    assert abs(expected - 10) < 0.5


@pytest.mark.parametrize("kind", [int, np.uint8, float, ">i2"])
def test_zeros_and_ones_say_what_is_used(monkeypatch, kind):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    chosen = np.array([[[True, False, True]]])
    arrays = {"flux": [[[1.0, 2.0, 3.0]]], "variance": [[[1.0, 1.0, 1.0]]], "used": chosen.astype(kind)}
    data = ObservedCube(**arrays, bins=WavelengthBins(5000.0, 10.0, 3, "linear", "air"), footprint=Footprint(1, 1, 0.2))
    assert data.used.dtype == bool
    np.testing.assert_array_equal(data.used, chosen)
    np.testing.assert_array_equal(data.flux, [[[1.0, 2.0, 3.0]]])
