"""Row-stacked spectra in MaNGA's layout, opened by the steps of two programs' readers, which are not installed.

marvin: `tools/rss.py`, `tools/cube.py`, `tools/core.py` and the data model of DR17 (`utils/datamodel/drp/MPL.py`);
mangadap: `spectra/manga.py`, `spectra/rowstackedspectra.py`, `config/manga.py`. Expected are the spectra that the run
returned, and the header of a file of DR17 (`datamodel/products/yaml/mangaRSS.yaml` of sdss/datamodel).
"""

import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS

import rubix_like as rl

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 300},
    "observation": {"redshift": 0.02, "distance": "90 Mpc", "align": "none", "ra": 150, "dec": 20},
    "instrument": {
        "name": "manga_fibres",
        "fibres": {"bundle": "manga-19", "rings": 1, "dead": [2]},
        "fov": "7.5 arcsec",
        "wavelength": {"start": 4690, "stop": 4700},
    },
    "engine": {"deposit": "nearest"},
    "noise": {"signal_to_noise": 20},
}
N_EXPOSURE, N_FIBRE = 3, 6

DR17 = {"CTYPE1": "WAVE-LOG", "CRPIX1": 1, "CRVAL1": 3621.59598486, "CD1_1": 0.833903304339, "CUNIT1": "Angstrom"}
"""Wavelength axis of FLUX in manga-8485-1901-LOGRSS: bins of 1e-4 in log10, so that CD1_1 is CRVAL1 1e-4 ln 10."""

MARVIN_STACKED = {
    "FLUX": ("IVAR", "MASK"),
    "LSFPOST": ("MASK",),
    "LSFPRE": ("MASK",),
    "XPOS": (),
    "YPOS": (),
}
MARVIN_VECTORS = {"SPECRES": "SPECRESD", "PRESPECRES": "PRESPECRESD"}
"""Extensions of its data model with those that it reads beside them."""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file of row-stacked spectra, open, and the cube that holds them."""
    folder = tmp_path_factory.mktemp("fibres")
    output = {"path": str(folder / "cube.fits"), "layout": "manga", "maps": False}
    cube = rl.run(RUN | {"output": output}, quiet=True)
    with fits.open(folder / "cube_rss.fits", checksum=True) as hdus:
        yield hdus, cube


def test_marvin_opens_them(written):
    hdus, cube = written
    header = hdus[1].header
    wcs = WCS(header).dropaxis(1)
    assert "XPOS" in hdus
    assert header["CTYPE1"] == "WAVE-LOG"
    wavelength, (n_fibre, n_wave) = hdus["WAVE"].data, hdus["FLUX"].shape
    np.testing.assert_allclose(wcs.wcs_pix2world(np.arange(n_wave), 0)[0] * 1e10, cube.wavelength, rtol=1e-10)
    plate, bundle = header["PLATEIFU"].split("-")
    assert (plate + bundle).isdigit()
    assert header["VERSDRP3"].strip() == "v3_1_1"  # of its releases the one with LSFPOST and LSFPRE
    assert (float(header["OBJRA"]), float(header["OBJDEC"])) == pytest.approx((150, 20))
    assert (header["MANGAID"], "APOGEE" in header["SRVYMODE"]) == ("0-0", False)
    assert header["MASKNAME"] == "MANGA_DRP2PIXMASK"
    assert [int(header[name]) for name in ("DRP3QUAL", "MNGTARG1", "MNGTARG2", "MNGTARG3")] == [0] * 4
    exposures = Table(hdus["OBSINFO"].data)
    exposures["EXPNUM"] = exposures["EXPNUM"].astype(np.int32)
    assert list(exposures["EXPNUM"]) == [1, 2, 3]
    assert n_fibre // len(exposures) == N_FIBRE
    chosen = (exposures["SET"].astype(int) == 1) & (exposures["MJD"].astype(int) == 0)
    assert chosen.all()
    of_exposure = np.arange(n_fibre) // N_FIBRE
    np.testing.assert_array_equal(np.asarray(exposures["EXPNUM"])[of_exposure], cube.fibres.places.exposure)
    for name, beside in MARVIN_STACKED.items():
        assert {hdus[own].data[0, :].shape for own in (name, *beside)} == {wavelength.shape}
    for name, scatter in MARVIN_VECTORS.items():
        assert hdus[name].data.shape == hdus[scatter].data.shape == wavelength.shape


def test_mangadap_opens_them(written):
    """Its sky-right offsets are East; the resolution is wavelength / FWHM of LSFPRE."""
    hdus, cube = written
    primary, flux = hdus[0].header, hdus["FLUX"].data
    assert primary["VERSDRP3"] == "v3_1_1"
    assert primary["MASKNAME"] == "MANGA_DRP2PIXMASK"
    assert (primary["IFURA"] - primary["OBJRA"], primary["IFUDEC"] - primary["OBJDEC"]) == (0, 0)
    arrays = {name: hdus[name].data for name in ("IVAR", "MASK", "LSFPRE", "XPOS", "YPOS")}
    assert {own.shape for own in arrays.values()} == {flux.shape} == {(N_EXPOSURE * N_FIBRE, cube.bins.n_wave)}
    np.testing.assert_allclose(flux, np.asarray(cube.fibres.flux) * 1e-3, rtol=1e-6)
    np.testing.assert_allclose(arrays["IVAR"], 1e6 / np.asarray(cube.fibres.variance), rtol=1e-6)
    np.testing.assert_allclose(-arrays["XPOS"][:, 0], cube.fibres.places.x, atol=1e-6)
    resolution = hdus["WAVE"].data / arrays["LSFPRE"] / np.sqrt(8 * np.log(2))
    np.testing.assert_allclose(resolution, np.broadcast_to(hdus["PRESPECRES"].data, flux.shape), rtol=1e-6)
    assert np.isfinite(resolution).all()


def test_the_wavelength_axis_is_that_of_files_of_manga(written):
    """Cards of the same names and meaning: astropy reads WAVE from ours, and from theirs their bins of 1e-4 dex."""
    hdus, cube = written
    header, theirs = hdus["FLUX"].header, fits.Header(DR17)
    assert {name: type(header[name]) is str for name in DR17} == {name: type(own) is str for name, own in DR17.items()}
    assert (header["CTYPE1"], header["CUNIT1"]) == (DR17["CTYPE1"], DR17["CUNIT1"])
    for cards, first in ((header, cube.wavelength[0]), (theirs, DR17["CRVAL1"])):
        assert cards["CRVAL1"] == first
        assert cards["CD1_1"] / cards["CRVAL1"] == pytest.approx(1e-4 * np.log(10), rel=2e-8)
        axis = WCS(cards, naxis=1).pixel_to_world(np.arange(cube.bins.n_wave)).to_value(units.AA)
        np.testing.assert_allclose(axis, first * 10 ** (1e-4 * np.arange(cube.bins.n_wave)), rtol=1e-10)
    np.testing.assert_allclose(hdus["WAVE"].data, cube.wavelength, rtol=1e-14)
