"""Observed cubes: files in the layouts of several instruments, with values known by hand."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from astropy.nddata import CCDData, StdDevUncertainty
from astropy.wcs import WCS
from test_fits import full_cube

from rubix_like.observed.cube import ObservedCube, observed_from
from rubix_like.observed.reading import read_observed

N_WAVE, N_Y, N_X = 5, 3, 4
STEP = 0.2 / 3600

SKY = {
    "CTYPE1": "RA---TAN",
    "CTYPE2": "DEC--TAN",
    "CUNIT1": "deg",
    "CUNIT2": "deg",
    "CRVAL1": 150.0,
    "CRVAL2": 2.0,
    "CRPIX1": 2.5,
    "CRPIX2": 2.0,
    "CD1_1": -STEP,
    "CD1_2": 0.0,
    "CD2_1": 0.0,
    "CD2_2": STEP,
}
MUSE = SKY | {
    "CTYPE3": "AWAV",
    "CUNIT3": "Angstrom",
    "CRVAL3": 4750.0,
    "CRPIX3": 1.0,
    "CD3_3": 1.25,
    "BUNIT": "10**(-20)*erg/s/cm**2/Angstrom",
}
FLUX = 1.0 + np.arange(N_WAVE * N_Y * N_X, dtype=np.float32).reshape(N_WAVE, N_Y, N_X)
"""As in the file: (wave, y, x)."""


def image(data, cards, name=None):
    hdu = fits.PrimaryHDU(data) if name is None else fits.ImageHDU(data, name=name)
    for keyword, value in cards.items():
        if value is not None:
            hdu.header[keyword] = value
    return hdu


def write(path: Path, *hdus) -> Path:
    first = () if isinstance(hdus[0], fits.PrimaryHDU) else (fits.PrimaryHDU(),)
    fits.HDUList([*first, *hdus]).writeto(path)
    return path


def muse_hdus(flux=FLUX, variance=None, mask=None, primary=None, **cards):
    """PRIMARY, DATA, STAT, DQ as the pipeline of MUSE writes them, some cards changed (None: left out)."""
    variance = np.full_like(FLUX, 4.0) if variance is None else variance
    mask = np.zeros(FLUX.shape, np.int32) if mask is None else mask
    header = MUSE | cards
    unit = {"BUNIT": "(10**(-20)*erg/s/cm**2/Angstrom)**2"}
    return [
        image(None, {"INSTRUME": "MUSE", "OBJECT": "NGC 1"} | (primary or {})),
        image(flux, header, "DATA"),
        image(variance, header | unit, "STAT"),
        image(mask, {}, "DQ"),
    ]


def ours(flux) -> np.ndarray:
    """(y, x, wave) of (wave, y, x)."""
    return np.asarray(flux, np.float64).transpose(1, 2, 0)


def plain(path: Path, cards=None, **options) -> ObservedCube:
    """The cube of a file with one image only."""
    return read_observed(write(path, image(FLUX, MUSE | (cards or {}))), **options)


# ---------------------------------------------------------------- our own


@pytest.mark.parametrize("sampling", ["linear", "log"])
@pytest.mark.parametrize("name", ["cube.fits", "cube.fits.gz", "cube.h5"])
def test_cubes_of_ours_come_back(tmp_path, sampling, name):
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


@pytest.mark.parametrize("sampling", ["linear", "log"])
def test_the_manga_layout_comes_back(tmp_path, sampling):
    cube = full_cube(sampling, medium="vacuum")
    cube = dataclasses.replace(cube, meta=cube.meta.replace(field_angle=30.0))
    observed = read_observed(cube.write(tmp_path / "cube.fits", "manga"))
    direct = observed_from(cube)
    np.testing.assert_array_equal(observed.used, direct.used)
    np.testing.assert_allclose(observed.flux, direct.flux, rtol=1e-6)
    np.testing.assert_allclose(observed.variance[direct.used], direct.variance[direct.used], rtol=1e-6)
    np.testing.assert_allclose(observed.wavelength, direct.wavelength, rtol=1e-13)
    np.testing.assert_allclose(observed.wave_edges, direct.wave_edges, rtol=1e-13)
    assert (observed.sampling, observed.medium) == (sampling, "vacuum")
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


def test_options_are_refused_where_the_file_says_it_all(tmp_path):
    with pytest.raises(ValueError, match="leave them out"):
        read_observed(full_cube().write(tmp_path / "cube.fits"), medium="air")


# ---------------------------------------------------------------- MUSE


@pytest.mark.parametrize("name", ["cube.fits", "cube.fits.gz"])
def test_muse(tmp_path, name):
    flux, variance, mask = FLUX.copy(), np.full_like(FLUX, 4.0), np.zeros(FLUX.shape, np.int32)
    flux[0, 0, 0], variance[1, 0, 0], variance[2, 0, 0], mask[3, 1, 2] = np.nan, np.inf, 0, 1 << 30
    observed = read_observed(write(tmp_path / name, *muse_hdus(flux, variance, mask)))
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
    assert (observed.medium, observed.shape, observed.name) == ("air", (13, 13, 3681), "Abell 478 (DATA)")
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
    observed = read_observed(write(tmp_path / "manga-1-2-LOGCUBE.fits.gz", *manga_hdus(mask)))
    np.testing.assert_allclose(observed.flux, 1000 * ours(FLUX), rtol=1e-14)
    np.testing.assert_allclose(observed.variance, 4e6, rtol=1e-14)
    np.testing.assert_allclose(observed.wavelength, 10 ** (3.5589 + 1e-4 * np.arange(N_WAVE)), rtol=1e-14)
    np.testing.assert_allclose(observed.wave_edges[-1], 10 ** (3.5589 + 1e-4 * (N_WAVE - 0.5)), rtol=1e-14)
    assert (observed.sampling, observed.medium, observed.name) == ("log", "vacuum", "1-2")
    assert observed.used[0, :, :2].tolist() == [[False, False], [True, False], [True, True], [False, True]]
    assert observed.used.sum() == FLUX.size - 4
    np.testing.assert_allclose(observed.pixel_scale, 0.5, rtol=1e-6)
    assert observed.notes[0].startswith("MASK: 2 voxels with other bits than 0x409 are used (Law et al. 2016")


def test_manga_lincube_without_ctype(tmp_path):
    wavelength = 3622.0 + np.arange(N_WAVE)
    observed = read_observed(write(tmp_path / "cube.fits", *manga_hdus(wavelength=wavelength, CTYPE3=None, CD3_3=1.0)))
    np.testing.assert_allclose(observed.wavelength, wavelength, rtol=1e-14)
    assert (observed.sampling, observed.medium) == ("linear", "vacuum")
    assert (
        observed.notes[0] == "wavelengths in vacuum, as MaNGA has them (Law et al. 2016, AJ 152, 83; bits as in the "
        "survey's analysis: Westfall et al. 2019, AJ 158, 231)"
    )
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
    path = write(
        tmp_path / "cube.fits",
        image(FLUX, header),
        image(np.full_like(FLUX, 9.0), {}, "VARIANCE"),
        image(FLUX, {}, "WEIGHT"),
        image(covariance, {}, "COVAR"),
    )
    observed = read_observed(path)
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
    path = write(
        tmp_path / "cube.fits.gz",
        image(FLUX, header),
        image(np.full_like(FLUX, 3.0), {}, "ERROR"),
        image(np.ones_like(FLUX), {}, "ERRWEIGHT"),
        image(bad, {}, "BADPIX"),
        image(bad, {}, "FIBCOVER"),
    )
    observed = read_observed(path)
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
