"""The detector's response: Doppler shift, line spread, exact bins; flux and widths are what they should be."""

import independent
import numpy as np
import pytest
from observing import configuration, galaxy_of, gaussian, write_library
from scipy.special import ndtr

from rubix_like import Pipeline, load_instrument, make_mesh

LINE = 5000.0
STEP = 1.0
MASS = 1e10


def detector(start=4900.0, stop=5100.0, step=STEP, lsf=None, **more):
    return {"wavelength": {"start": start, "stop": stop, "step": step, "medium": "vacuum", **more}, "lsf": lsf}


def line_library(path, *centres, sigma=0.05, **more):
    """Lines of 1 Lsun/Msun on nothing; nodes sigma / 5 apart at a line."""
    centres = np.array(centres or (LINE,))
    near = centres[:, None] + np.arange(-8 * sigma, 8 * sigma, sigma / 5)
    ends = [3000.0, *(centres - 10.0), *(centres + 10.0), 9000.0]
    wavelength = np.sort(np.concatenate([near.ravel(), ends]))
    lines = sum(gaussian(wavelength, centre, sigma) for centre in centres)
    return write_library(path / "lines.h5", wavelength, lines, **more)


def pipeline_of(ssp, instrument, redshift=0.0, velocity=0.0):
    """For one star at 10 Mpc, which is planned at this velocity."""
    observation = {"redshift": redshift, "distance": 10.0}
    config = configuration(ssp=ssp, observation=observation, instrument=instrument)
    return Pipeline.from_config(config, galaxy_of(velocity=velocity), mesh=make_mesh(1))


def spectrum_of(pipeline, velocity=0.0):
    """(wavelength, widths, flux) of one star of `MASS` in units of its own light per Lsun/Msun; the cube."""
    cube = pipeline(galaxy_of(velocity=velocity))
    flux = np.asarray(cube.flux).sum(axis=(0, 1)) / (MASS * independent.flux_of_one_lsun(10.0))
    return np.asarray(cube.wavelength), np.diff(cube.wave_edges), flux, cube


@pytest.mark.parametrize("lsf", [None, {"fwhm": 2.5}])
@pytest.mark.parametrize("redshift", [0.0, 0.02])
def test_ln_lambda_of_a_line_moves_by_v_over_c(tmp_path, redshift, lsf):
    """To 0.03 km/s, from -850 to 310 km/s and at any place within a bin; its light stays."""
    instrument = detector(4900.0 * (1 + redshift), 5100.0 * (1 + redshift), 1.0, lsf)
    pipeline = pipeline_of(line_library(tmp_path, sigma=1.5), instrument, redshift, velocity=850.0)
    velocities, moved = [0.0, 13.0, 310.0, -850.0], []
    for velocity in velocities:
        wavelength, width, flux, _ = spectrum_of(pipeline, velocity)
        light = flux * width
        assert light.sum() == pytest.approx(1.0, rel=1e-7)
        moved.append(np.log(light @ wavelength / light.sum()) * independent.C_KMS)
    np.testing.assert_allclose(np.array(moved) - moved[0], velocities, rtol=0, atol=0.03)
    assert moved[0] == pytest.approx(np.log(LINE * (1 + redshift)) * independent.C_KMS, abs=0.03)


UNEVEN = (4600 + np.cumsum(np.linspace(0.3, 20, 140))).tolist()


@pytest.mark.parametrize(
    ("medium", "bins"),
    [
        ("air", {"start": 4600, "stop": 6000, "step": 1.25}),
        ("vacuum", {"start": 4600, "stop": 6000, "step": 1e-4, "sampling": "log"}),
        ("air", {"edges": UNEVEN}),
    ],
)
def test_bins_hold_the_light_of_a_rough_spectrum(tmp_path, medium, bins):
    """Nodes closer and wider than bins: each bin holds what lies between its edges, and all bins all light."""
    generator = np.random.default_rng(5)
    wavelength = np.cumsum(generator.uniform(0.2, 4.0, size=1500)) + 3800.0
    spectrum = np.float32(generator.uniform(0.0, 1.0, size=1500)).astype(np.float64)
    ssp = write_library(tmp_path / "rough.h5", wavelength, spectrum)
    instrument = {"wavelength": {"medium": medium, **bins}, "lsf": None}
    _, width, flux, cube = spectrum_of(pipeline_of(ssp, instrument, redshift=0.03), velocity=200.0)
    edges = np.asarray(cube.wave_edges)
    edges = independent.air_to_vacuum(edges) if medium == "air" else edges
    rest = edges / 1.03 / np.exp(200.0 / independent.C_KMS)
    grid = np.unique(np.concatenate([rest, wavelength[(wavelength > rest[0]) & (wavelength < rest[-1])]]))
    values = np.interp(grid, wavelength, spectrum)
    running = np.append(0.0, np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(grid)))
    expected = np.diff(running[np.searchsorted(grid, rest)])
    np.testing.assert_allclose(flux * width, expected, rtol=0, atol=1e-10 * expected.max())
    assert np.sum(flux * width) == pytest.approx(np.trapezoid(values, grid), rel=1e-11)


NATIVE_BINS = {
    "muse": {"step": 1.25, "medium": "air", "sampling": "linear"},
    "manga": {"step": 1e-4, "medium": "vacuum", "sampling": "log"},
}
PIXEL_VARIANCE = STEP**2 / 12
PHASES = (np.arange(20) + 0.5) / 20 - 0.5
"""Places of a line within a bin; more of them than the parts that the engine may cut a bin into."""


def lines_over_phases(path, lsf, sigma=0.02, fwhm=1e-3, redshift=0.0):
    """Lines at all places within a bin, 44 A apart: for each the bins' edges from it, and the light in them."""
    centres = LINE + 44 * np.arange(len(PHASES)) + STEP * PHASES
    ssp = line_library(path, *(centres / (1 + redshift)), sigma=sigma, fwhm=fwhm)
    instrument = detector(LINE - 44, LINE + 44 * len(PHASES), lsf=lsf)
    wavelength, width, flux, cube = spectrum_of(pipeline_of(ssp, instrument, redshift))
    for centre in centres:
        near = np.flatnonzero(np.abs(wavelength - centre) < 22)
        yield cube.wave_edges[near[0] : near[-1] + 2] - centre, (flux * width)[near]


def variance_over_phases(*arguments):
    """Mean of (bin centre - true wavelength)^2, by light, over all places within a bin (A^2)."""
    found = []
    for edges, light in lines_over_phases(*arguments):
        assert light.sum() == pytest.approx(1.0, rel=1e-7)
        found.append(np.sum(light * (0.5 * (edges[1:] + edges[:-1])) ** 2))
    return np.mean(found)


def squared_widths(pipeline, centres):
    """Variance of each line about its true place, by light (A^2), and the cube."""
    bins, width, flux, cube = spectrum_of(pipeline)
    found = []
    for centre in centres:
        near = np.abs(bins - centre) < 20
        light = (flux * width)[near]
        found.append(np.sum(light * (bins[near] - centre) ** 2) / np.sum(light))
    return np.array(found), cube


@pytest.mark.parametrize("includes_pixel", [False, True])
def test_lines_on_uneven_bins_are_as_wide_as_the_lsf(tmp_path, includes_pixel):
    """Bins of 0.6 to 4 A, line spread of 6 A: at any place within a bin the variance is that of the kernel and of the
    bin (which the width holds where it says so), at the local width of bins to 1 %."""
    edges = 4950 + np.cumsum(np.linspace(0.6, 4, 480))
    centres = 4995 + 50 * np.arange(20) + np.random.default_rng(3).uniform(0, 5, 20)
    lsf = {"fwhm": 6.0, "includes_pixel": includes_pixel}
    instrument = {"wavelength": {"medium": "vacuum", "edges": edges.tolist()}, "lsf": lsf}
    variance, cube = squared_widths(pipeline_of(line_library(tmp_path, *centres, sigma=0.02), instrument), centres)
    local = np.interp(centres, cube.wavelength, np.diff(cube.wave_edges))
    expected = (6.0 / independent.FWHM) ** 2 + (0.0 if includes_pixel else local**2 / 12)
    np.testing.assert_allclose(np.sqrt(variance / expected), 1.0, atol=0.01)


@pytest.mark.parametrize("sigma_bins", [0.2, 0.5, 2.0])
def test_profile_of_a_line_is_its_own_and_the_kernels_gaussian(tmp_path, sigma_bins):
    """A line of sigma 0.5 A: every bin holds the integral of the Gaussian of both widths, to 0.5 % of the peak."""
    for edges, light in lines_over_phases(tmp_path, {"fwhm": sigma_bins * STEP * independent.FWHM}, 0.5):
        expected = np.diff(ndtr(edges / np.hypot(0.5, sigma_bins * STEP)))
        np.testing.assert_allclose(light, expected, rtol=0, atol=5e-3 * expected.max())


@pytest.mark.parametrize(
    "sigma_bins",
    [0.2, pytest.param(0.3, marks=pytest.mark.slow), 0.5, 1.0, pytest.param(2.0, marks=pytest.mark.slow), 3.0],
)
def test_a_line_is_as_wide_as_the_lsf_and_the_bin_say(tmp_path, sigma_bins):
    """Over all places within a bin, the variance is kernel^2 + step^2 / 12 (+ the line's own), FWHM to 1 %."""
    variance = variance_over_phases(tmp_path, {"fwhm": sigma_bins * STEP * independent.FWHM})
    assert np.sqrt(variance - PIXEL_VARIANCE - 0.02**2) == pytest.approx(sigma_bins * STEP, rel=0.01)


def test_without_lsf_a_line_is_as_wide_as_the_bin(tmp_path):
    assert variance_over_phases(tmp_path, None) == pytest.approx(PIXEL_VARIANCE + 0.02**2, rel=1e-3)


@pytest.mark.parametrize("redshift", [0.0, 0.1])
def test_the_librarys_own_width_is_part_of_the_lsf(tmp_path, redshift):
    """Library 1.2 A (rest), instrument 3 A without its bin: the line ends up with 3 A at any redshift."""
    variance = variance_over_phases(tmp_path, {"fwhm": 3.0}, 1.2 / independent.FWHM, 1.2, redshift)
    assert np.sqrt(variance - PIXEL_VARIANCE) * independent.FWHM == pytest.approx(3.0, rel=0.01)


def test_a_width_measured_on_bins_holds_the_bin(tmp_path):
    variance = variance_over_phases(tmp_path, {"fwhm": 3.0, "includes_pixel": True})
    assert np.sqrt(variance) * independent.FWHM == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize("name", ["muse", "manga"])
def test_lines_are_as_wide_as_the_lsf_of_the_cube(tmp_path, name):
    """Presets whose width holds the bin: over all places within a bin, FWHM to 1 % of `lsf_fwhm` at each line."""
    instrument = {"name": name, "aperture": None, "lsf": load_instrument(name).lsf}
    instrument |= {"wavelength": {"start": LINE - 44, "stop": LINE + 44 * len(PHASES), **NATIVE_BINS[name]}}
    step = 1.25 if name == "muse" else LINE * 1e-4 * np.log(10)
    centres = LINE + 44 * np.arange(len(PHASES)) + step * PHASES
    vacuum = independent.air_to_vacuum(centres) if name == "muse" else centres
    variance, cube = squared_widths(pipeline_of(line_library(tmp_path, *vacuum, sigma=0.02), instrument), centres)
    ratio = variance * independent.FWHM**2 / np.interp(centres, cube.wavelength, cube.lsf_fwhm) ** 2
    assert np.sqrt(np.mean(ratio)) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("table", [([4900.0, 5100.0], [0.3, 6.0]), ([4990.0, 5010.0], [1.0, 5.0])])
def test_lsf_of_varying_width_keeps_the_light(tmp_path, table):
    """From narrow to wide, and steeply: of lines before, in and after the steepest place, each by itself."""
    lsf = dict(zip(("wavelength", "fwhm"), table, strict=True))
    centres = (4960.0, 5000.3, 5040.0)
    bins, width, flux, _ = spectrum_of(pipeline_of(line_library(tmp_path, *centres), detector(lsf=lsf)))
    assert flux.min() >= -1e-12
    for centre in centres:
        near = np.abs(bins - centre) < 20
        assert np.sum((flux * width)[near]) == pytest.approx(1.0, rel=1e-7)


def test_effective_lsf_is_the_instruments_where_the_library_is_finer(tmp_path):
    """And a detector inside the library has no flags."""
    table = {"wavelength": [4900.0, 5100.0], "fwhm": [2.0, 4.0]}
    *_, cube = spectrum_of(pipeline_of(line_library(tmp_path, fwhm=0.5), detector(lsf=table)))
    np.testing.assert_allclose(cube.lsf_fwhm, np.interp(cube.wavelength, [4900, 5100], [2.0, 4.0]), rtol=1e-12)
    assert not np.any(np.asarray(cube.mask))


@pytest.mark.parametrize(("includes_pixel", "extra"), [(False, 0.0), (True, independent.FWHM**2 / 12)])
def test_effective_lsf_where_the_library_is_coarser(tmp_path, includes_pixel, extra):
    """Nothing can be sharpened: (1 + z) times the library's width, and the bin where the preset's width holds it."""
    ssp = line_library(tmp_path, fwhm=6.0)
    instrument = detector(5400.0, 5600.0, lsf={"fwhm": 2.5, "includes_pixel": includes_pixel})
    cube = pipeline_of(ssp, instrument, redshift=0.1)(galaxy_of())
    np.testing.assert_allclose(cube.lsf_fwhm, np.sqrt((1.1 * 6.0) ** 2 + extra), rtol=1e-12)


@pytest.mark.parametrize("lsf", [None, {"fwhm": 3.0}])
def test_bins_beyond_the_library_are_flagged_and_empty(tmp_path, lsf):
    """A flat library from 4950 to 5050 A at rest: good bins hold its flux density, bins that miss light have bit 1."""
    wavelength = np.arange(4950.0, 5051.0)
    ssp = write_library(tmp_path / "short.h5", wavelength, np.ones_like(wavelength))
    for velocity in (0.0, 700.0) if lsf is None else (0.0,):
        centres, _, flux, cube = spectrum_of(pipeline_of(ssp, detector(lsf=lsf), velocity=velocity), velocity)
        bits = np.asarray(cube.mask)[0, 0] & 1
        doppler = np.exp(velocity / independent.C_KMS)
        np.testing.assert_allclose(flux[bits == 0], 1 / doppler, rtol=1e-9)
        assert np.all(bits[(centres < 4949) | (centres > 5051)] == 1)
        assert np.all(bits[(centres > 4980) & (centres < 5020)] == 0)
        beyond = (centres / doppler < 4950 - 10) | (centres / doppler > 5050 + 10)
        np.testing.assert_allclose(flux[beyond], 0.0, atol=1e-12)
