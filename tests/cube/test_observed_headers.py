"""Headers of real instruments and telescopes: wavelengths, fluxes and orientation by astropy, or written by hand."""

import re

import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from small import FLUX, MUSE, N_WAVE, N_X, N_Y, STEP, image, muse_hdus, write_fits

import rubix_like as rl

NO_MATRIX = {f"CD{i}_{j}": None for i in (1, 2, 3) for j in (1, 2, 3)}
EVEN = 4750 + 1.25 * np.arange(N_WAVE)
REST = 1.420405752e9 * units.Hz
C = 299792.458 * units.km / units.s


def plain(tmp_path, cards, data=FLUX, **options):
    """The cube of a file with one image, whose header has these cards of MUSE's changed."""
    return rl.read_observed(write_fits(tmp_path / "cube.fits", image(data, MUSE | cards)), **options)


def refused(tmp_path, message, *hdus, **options):
    path = tmp_path / "refused.fits"
    path.unlink(missing_ok=True)
    with pytest.raises(ValueError, match=re.escape(message)):
        rl.read_observed(write_fits(path, *hdus), **options)


@pytest.mark.parametrize("element", ["spx", "fiber"])
def test_fluxes_per_fibre_are_noted(tmp_path, element):
    observed = plain(tmp_path, {"BUNIT": f"1e-16 erg/s/cm2/Ang/{element}", "CTYPE3": "WAVE"})
    np.testing.assert_allclose(observed.flux[0, 0], FLUX[:, 0, 0] * 1e4, rtol=1e-9)
    assert any("fibre" in note for note in observed.notes) == (element == "fiber")


VELOCITY = {"CRVAL3": 3000.0, "CD3_3": -500.0, "CUNIT3": "KM/S", "CRPIX3": 2.0, "RESTFREQ": REST.value}
PIXEL = np.arange(1, 2 * N_WAVE + 2) / 2  # edges and centres
SPEED = (3000 - 500 * (PIXEL - 2)) * units.km / units.s
OPTICAL_STEP = 1e3 * REST / (C + 3000 * units.km / units.s) ** 2 * C * 0.5 * units.km / units.s
"""Hz per pixel where the optical velocity falls by 500 km/s: -dV d nu / dV, nu = nu_0 / (1 + V / c)."""


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        ({"CTYPE3": "VRAD"}, SPEED.to(units.AA, units.doppler_radio(REST))),
        ({"CTYPE3": "VOPT"}, SPEED.to(units.AA, units.doppler_optical(REST))),
        ({"CTYPE3": "VELO"}, SPEED.to(units.AA, units.doppler_relativistic(REST))),
        ({"CTYPE3": "VELO-LSR", "VELREF": 257}, SPEED.to(units.AA, units.doppler_radio(REST))),
        ({"CTYPE3": "VELO-HEL", "VELREF": 2}, SPEED.to(units.AA, units.doppler_optical(REST))),
        (
            {"CTYPE3": "VRAD", "CUNIT3": None, "CRVAL3": 3e6, "CD3_3": -5e5},
            SPEED.to(units.AA, units.doppler_radio(REST)),
        ),
        (
            {"CTYPE3": "FELO-HEL", "VELREF": 2},
            (REST / (1 + 3000 * units.km / units.s / C) + OPTICAL_STEP * (PIXEL - 2)).to(units.AA, units.spectral()),
        ),
        (
            {"CTYPE3": "FREQ", "CUNIT3": "GHZ", "CRVAL3": 1.4, "CD3_3": 0.01, "RESTFREQ": None},
            ((1.4 + 0.01 * (PIXEL - 2)) * units.GHz).to(units.AA, units.spectral()),
        ),
    ],
)
def test_frequencies_and_velocities(tmp_path, cards, expected):
    """Centres and edges by astropy's equivalencies; FELO of AIPS is even in frequency (AIPS memo 27)."""
    observed = plain(tmp_path, VELOCITY | cards)
    order = 1 if expected[0] < expected[-1] else -1
    np.testing.assert_allclose(observed.wavelength, expected.value[::order][1::2], rtol=1e-7)
    np.testing.assert_allclose(observed.wave_edges, expected.value[::order][::2], rtol=1e-5)
    assert observed.medium == "vacuum"
    np.testing.assert_array_equal(observed.flux[0, 0], FLUX[::order, 0, 0])


SKY_CASES = [
    ({}, {}),
    ({"CD1_1": STEP}, {}),
    ({"CD1_1": STEP, "CUNIT1": "DEGREE", "CUNIT2": "DEGREES"}, {}),
    ({"CD1_1": STEP, "CUNIT1": "DEGREE", "CUNIT2": "DEGREE"}, {"pixel_scale": 0.2}),
    ({"CD1_1": STEP, "CUNIT1": "steps", "CUNIT2": "steps", "CRPIX1": 30.0}, {"pixel_scale": 0.2}),
    ({"CD1_1": -0.2, "CD2_2": -0.2, "CUNIT1": "ARCSEC", "CUNIT2": "ARCSECS", "CRVAL1": 540000.0, "CRVAL2": 7200.0}, {}),
    ({"CD1_1": 2 * STEP, "CD2_2": 2 * STEP, "CRPIX1": 30.0}, {"pixel_scale": 0.2}),
    ({"CD1_1": None, "CD1_2": None, "CD2_1": None, "CD2_2": None}, {"pixel_scale": 0.2}),
]
"""Cards, and options that repair them: spaxels are 0.2 arcsec wide, about (150, 2) deg, in all."""


@pytest.mark.parametrize(("cards", "options"), SKY_CASES)
def test_a_remedy_neither_mirrors_nor_moves_the_field(tmp_path, cards, options):
    """Every voxel at its place on the sky by astropy's WCS of the clean header."""
    observed = plain(tmp_path, cards, **options)
    signs = [np.sign(cards.get(name, value) or value) for name, value in (("CD1_1", -STEP), ("CD2_2", STEP))]
    clean = {"CD1_1": signs[0] * STEP, "CD2_2": signs[1] * STEP, "CRPIX1": cards.get("CRPIX1", MUSE["CRPIX1"])}
    wcs = WCS(image(FLUX, MUSE | clean).header).celestial
    np.testing.assert_allclose(observed.pixel_scale, 0.2, rtol=1e-9)
    np.testing.assert_allclose(
        [observed.ra, observed.dec], wcs.wcs_pix2world([[(N_X + 1) / 2, (N_Y + 1) / 2]], 1)[0], atol=1e-9
    )
    angle = np.radians(observed.field_angle)
    for y, x in np.ndindex(N_Y, N_X):
        row, column = np.argwhere(FLUX[0] == observed.flux[y, x, 0])[0]
        ra, dec = wcs.wcs_pix2world([[column, row]], 0)[0]
        right, up = 0.2 * (x - (N_X - 1) / 2), 0.2 * (y - (N_Y - 1) / 2)
        east = -right * np.cos(angle) + up * np.sin(angle)
        north = right * np.sin(angle) + up * np.cos(angle)
        offsets = (ra - observed.ra) * 3600 * np.cos(np.radians(dec)), (dec - observed.dec) * 3600
        np.testing.assert_allclose(offsets, [east, north], atol=1e-4)


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ({"CDELT1": STEP, "CDELT2": STEP}, "got a field that is mirrored by one of them"),
        ({"CDELT1": -2 * STEP, "CDELT2": STEP}, "along axis 1; delete the cards that are wrong"),
        ({"CDELT3": -1.25}, "got other directions along axis 3"),
        ({"CDELT3": 1.3}, "got 1.25 and 1.3 along axis 3"),
    ],
)
def test_cd_and_cdelt_that_disagree(tmp_path, cards, message):
    refused(tmp_path, message, image(FLUX, MUSE | cards))
    assert plain(tmp_path, {"CDELT1": -STEP, "CDELT2": STEP, "CDELT3": 1.0}).pixel_scale == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("STAT", {"CD1_1": STEP}),
        ("DQ", {"CRPIX1": 3.0}),
        ("STAT", {"CRVAL2": 2.1}),
        ("DQ", {"CRVAL3": 4752.0}),
        ("STAT", {"CD3_3": 2.0}),
        ("DQ", {"CD2_2": -STEP}),
    ],
)
def test_parts_at_another_place(tmp_path, name, cards):
    hdus = {hdu.name: hdu for hdu in muse_hdus()}
    hdus[name].header.update({key: value for key, value in (MUSE | cards).items() if key != "BUNIT"})
    refused(tmp_path, f"HDU {name}: expected the world coordinates of DATA, got others", *hdus.values())


# ---------------------------------------------------------------- axes of length 1, beams

RADIO = NO_MATRIX | {
    "CDELT1": -STEP, "CDELT2": STEP, "CDELT3": 1e7, "CTYPE3": "FREQ", "CUNIT3": "HZ", "CRVAL3": 1.4e9,
    "BUNIT": "JY/BEAM",
}  # fmt: skip
LAST = {"CTYPE4": "STOKES", "CRVAL4": 1.0, "CRPIX4": 1.0, "CDELT4": 1.0}


def stokes(place):
    """Cards and the shape of a cube with an axis of Stokes parameters, the third or fourth one."""
    if place == 4:
        return RADIO | LAST, FLUX[None]
    moved = {f"{name}4": (MUSE | RADIO)[f"{name}3"] for name in ("CRPIX", "CTYPE", "CUNIT", "CRVAL", "CDELT")}
    return RADIO | {f"{name[:-1]}3": value for name, value in LAST.items()} | {"CUNIT3": ""} | moved, FLUX[:, None]


@pytest.mark.parametrize("place", [3, 4])
def test_an_axis_of_stokes_parameters(tmp_path, place):
    cards, data = stokes(place)
    observed = plain(tmp_path, cards | {"BMAJ": 4 / 3600, "BMIN": 3 / 3600}, data)
    frequency = (1.4e9 + 1e7 * np.arange(N_WAVE)) * units.Hz
    expected = frequency.to(units.AA, units.spectral())
    np.testing.assert_allclose(observed.wavelength, np.sort(expected.value), rtol=1e-7)
    area = 0.2**2 / (np.pi * 12 / (4 * np.log(2)))
    factor = units.Jy.to("1e-20 erg / (s cm2 Angstrom)", equivalencies=units.spectral_density(expected))
    np.testing.assert_allclose(observed.flux[1, 2], (FLUX[:, 1, 2] * factor * area)[::-1], rtol=1e-6)


def test_a_fourth_axis_that_is_longer(tmp_path):
    refused(tmp_path, "got axis 4 (CTYPE 'STOKES') of length 2", image(np.stack([FLUX, FLUX]), MUSE | RADIO | LAST))


AXES = np.array([[4.0, 3.0], [4.1, 3.1], [4.2, 3.2], [4.3, 3.3], [4.4, 3.4]])
"""Arcsec, of each plane's beam."""


@pytest.mark.parametrize("kind", ["CASA", "WSClean", "AIPS"])
def test_beams(tmp_path, kind):
    hdu, axes, more = image(FLUX, MUSE | RADIO), AXES, ()
    if kind == "CASA":
        hdu.header["CASAMBM"] = True
        order = [3, 0, 4, 1, 2]
        columns = [fits.Column(name, "E", "arcsec", array=AXES[order, n]) for n, name in enumerate(("BMAJ", "BMIN"))]
        columns += [fits.Column(name, "J", array=array) for name, array in (("CHAN", order), ("POL", [0] * 5))]
        more = (fits.BinTableHDU.from_columns(columns, name="BEAMS"),)
    if kind == "WSClean":
        cards = {f"{name}{n + 1}": AXES[n, i] / 3600 for n in range(5) for i, name in enumerate(("BMAJ", "BMIN"))}
        hdu.header.update({"BMAJ": 4.2 / 3600, "BMIN": 3.2 / 3600} | cards)
    if kind == "AIPS":
        axes = np.full((5, 2), [3.5593e-3, 3.3050e-3]) * 3600
        hdu.header["HISTORY"] = "AIPS   CLEAN BMAJ=  3.5593E-03 BMIN=  3.3050E-03 BPA=  46.81"
    observed = rl.read_observed(write_fits(tmp_path / "cube.fits", hdu, *more))
    wavelength = ((1.4e9 + 1e7 * np.arange(N_WAVE)) * units.Hz).to(units.AA, units.spectral())
    factor = units.Jy.to("1e-20 erg / (s cm2 Angstrom)", equivalencies=units.spectral_density(wavelength))
    expected = FLUX[:, 0, 0] * factor * 0.04 / (np.pi * axes.prod(axis=1) / (4 * np.log(2)))
    np.testing.assert_allclose(observed.flux[0, 0], expected[::-1], rtol=1e-6)
    assert any("beam" in note for note in observed.notes)


def test_beams_that_are_missing_are_refused(tmp_path):
    hdu = image(FLUX, MUSE | RADIO)
    refused(tmp_path, "expected the size of the beam", hdu)
    hdu.header["CASAMBM"] = True
    refused(tmp_path, "in a table BEAMS with BMAJ and BMIN, got none; bring the planes to one", hdu)


# ---------------------------------------------------------------- names of HDUs


def pypeit_hdus(scale=1e-17):
    cards = NO_MATRIX | {"CTYPE3": "WAVE", "CUNIT3": "m", "CRVAL3": 4.75e-7, "CDELT3": 1.25e-10, "BUNIT": None}
    cards |= {"CDELT1": -STEP, "CDELT2": STEP, "FLUXUNIT": scale}
    parts = {"FLUX": FLUX, "SIG": np.full_like(FLUX, 0.5), "BPM": (FLUX < 2).astype("u1"), "WAVE": EVEN.astype("f4")}
    return [image(data, MUSE | cards, name) for name, data in parts.items()]


def test_pypeit(tmp_path):
    """Its WAVE is in Angstrom beside CUNIT3 = m, its fluxes in FLUXUNIT erg/s/cm2/Angstrom/arcsec2."""
    hdus = pypeit_hdus()
    observed = rl.read_observed(write_fits(tmp_path / "cube.fits", *hdus))
    np.testing.assert_allclose(observed.wavelength, EVEN, rtol=1e-7)
    np.testing.assert_allclose(observed.flux[1, 2], 1e3 * 0.04 * FLUX[:, 1, 2], rtol=1e-9)
    np.testing.assert_allclose(observed.variance, (0.5e3 * 0.04) ** 2, rtol=1e-9)
    assert np.argwhere(~observed.used).tolist() == [[0, 0, 0]]
    refused(tmp_path, "got no BUNIT; give units=", *pypeit_hdus(1))


def test_kmos_and_the_choice_of_an_hdu(tmp_path):
    def hdus(*numbers):
        parts = [(f"IFU.{n}.DATA", n * FLUX) for n in numbers] + [(f"IFU.{n}.NOISE", n + 0 * FLUX) for n in numbers]
        return [image(data, MUSE, name) for name, data in parts]

    alone = rl.read_observed(write_fits(tmp_path / "one.fits", *hdus(3)))
    path = write_fits(tmp_path / "two.fits", *hdus(2, 3))
    for chosen in ("IFU.3.DATA", 2, "2"):
        observed = rl.read_observed(path, hdu=chosen)
        np.testing.assert_array_equal(observed.flux, alone.flux)
        np.testing.assert_allclose(observed.variance, 9.0)
    np.testing.assert_array_equal(alone.flux[0, 0], 3 * FLUX[:, 0, 0])
    refused(tmp_path, "IFU.2.DATA, IFU.3.DATA, IFU.2.NOISE, IFU.3.NOISE; give hdu=", *hdus(2, 3))
    with pytest.raises(ValueError, match=r"hdu: expected one of the HDUs 0 PRIMARY, 1 IFU\.2\.DATA.*got 'IFU.9.DATA'"):
        rl.read_observed(path, hdu="IFU.9.DATA")


@pytest.mark.parametrize("shape", ["vector", "cube"])
def test_weave(tmp_path, shape):
    """DATA are counts: fluxes are DATA SENSFUNC, inverse variances IVAR / SENSFUNC^2."""
    sensitivity = 1e-18 * (1 + np.arange(N_WAVE))
    stored = sensitivity if shape == "vector" else np.broadcast_to(sensitivity[:, None, None], FLUX.shape)
    counts = MUSE | {"BUNIT": "ADU"}
    path = write_fits(
        tmp_path / "cube.fits",
        image(FLUX, counts, "RED_DATA"),
        image(np.full_like(FLUX, 4.0), {}, "RED_IVAR"),
        image(2 * FLUX, counts, "RED_DATA_NOSS"),
        image(stored, {}, "RED_SENSFUNC"),
    )
    observed = rl.read_observed(path)
    np.testing.assert_allclose(observed.flux[1, 2], 1e20 * sensitivity * FLUX[:, 1, 2], rtol=1e-9)
    np.testing.assert_allclose(observed.variance[1, 2], 0.25 * (1e20 * sensitivity) ** 2, rtol=1e-9)


def test_the_unit_of_kcwidrp(tmp_path):
    """It multiplies fluxes by 1e16 and writes 1e+16 as the factor of their unit."""
    unit = {"BUNIT": "1e+16 erg / (Angstrom s cm2)"}
    kcwi = [image(FLUX, MUSE | unit | {"INSTRUME": "KCWI"}), image(np.full_like(FLUX, 2.0), unit, "UNCERT")]
    observed = rl.read_observed(write_fits(tmp_path / "cube.fits", *kcwi))
    np.testing.assert_allclose(observed.flux[0, 0], 1e4 * FLUX[:, 0, 0], rtol=1e-9)
    np.testing.assert_allclose(observed.variance, 4e8, rtol=1e-9)
    assert "KCWI's '1e+16 erg / (Angstrom s cm2)'" in observed.notes[0]
    kcwi[0].header["INSTRUME"] = "X"
    unknown = rl.read_observed(write_fits(tmp_path / "unknown.fits", *kcwi))
    np.testing.assert_allclose(unknown.flux[0, 0], 1e36 * FLUX[:, 0, 0], rtol=1e-6)
    assert any("far too bright; give units=" in note for note in unknown.notes)
