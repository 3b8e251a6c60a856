"""Bins of a table: FITS WAVE-TAB against astropy's wcslib, JWST's files, every file of ours, settings."""

import jax
import numpy as np
import pytest
from astropy.io import fits
from astropy.wcs import WCS
from small import TWO_FREE, instrument_settings, make_cube, muse, small_disc

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.extend import WavelengthBins

EDGES = 6000 + np.cumsum([0.0, 30, 31, 33, 36, 40, 47, 55])
CENTRES = EDGES[:-1] + np.array([14.0, 16, 16, 18, 21, 23, 28])
BINS = WavelengthBins.of_table(CENTRES, EDGES, "air")


@pytest.fixture
def cube():
    """Seven uneven bins with centres that are not in their middle."""
    return make_cube(n_wave=7, bins=BINS)


def in_angstrom(path, hdu, pixels):
    """Wavelengths at FITS pixels by astropy."""
    with fits.open(path) as hdus:
        wcs = WCS(hdus[hdu].header, hdus)
        places = np.stack([np.ones(len(pixels)), np.ones(len(pixels)), pixels], axis=1)
        unit = wcs.wcs.cunit[2].to("Angstrom")
        return wcs.wcs_pix2world(places, 1)[:, 2] * unit


def test_astropy_finds_the_wavelengths_of_our_file(tmp_path, cube):
    """Centres, edges and what is half way between them, to 1e-12; the sky as ever."""
    path = cube.write(tmp_path / "cube.fits")
    pixels = np.arange(1, 8)
    np.testing.assert_allclose(in_angstrom(path, "DATA", pixels), CENTRES, rtol=1e-12)
    np.testing.assert_allclose(in_angstrom(path, "DATA", np.arange(8) + 0.5), EDGES, rtol=1e-12)
    np.testing.assert_allclose(in_angstrom(path, "DATA", pixels + 0.25), 0.5 * (CENTRES + EDGES[1:]), rtol=1e-12)
    header = fits.getheader(path, "DATA")
    assert (header["CTYPE3"], header["PS3_0"]) == ("AWAV-TAB", "WCS-TABLE")
    np.testing.assert_allclose(cube.wcs.wcs_pix2world(2, 1, 3, 0)[:2], make_cube().wcs.wcs_pix2world(2, 1, 3, 0)[:2])
    assert cube.wcs.wcs_pix2world(2, 1, 3, 0)[2] == pytest.approx(CENTRES[3], rel=1e-12)


@pytest.mark.parametrize("name", ["cube.fits", "cube.h5", "cube.zarr"])
def test_every_file_gives_the_bins_back(tmp_path, cube, name):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
    again = rl.load_cube(cube.write(tmp_path / name))
    assert again.bins == BINS
    np.testing.assert_array_equal(again.flux, cube.flux)
    if name == "cube.fits":
        assert rl.read_observed(tmp_path / name).bins == BINS


def jwst(path, wavelength, *, index=None, step=None):
    """A file as JWST's pipeline writes a cube with uneven wavelengths (github.com/spacetelescope/jwst,
    cube_build/ifu_cube.py, with linear_wave=False): one column (1, n) of float32 in micrometres, no index, no CDELT3.
    """
    n = len(wavelength) if index is None else 4
    header = {
        "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE-TAB", "CUNIT1": "deg", "CUNIT2": "deg",
        "CUNIT3": "um", "WCSAXES": 3, "CRVAL1": 150.0, "CRVAL2": 2.0, "CRVAL3": 1.0, "CRPIX1": 2.0, "CRPIX2": 2.0,
        "CRPIX3": 1.0, "CDELT1": 0.1 / 3600, "CDELT2": 0.1 / 3600, "PC1_1": -1.0, "PC2_2": 1.0, "PC3_3": 1.0,
        "PS3_0": "WCS-TABLE", "PS3_1": "wavelength", "BUNIT": "MJy/sr",
    }  # fmt: skip
    columns = [fits.Column("wavelength", f"{len(wavelength)}E", dim=f"(1,{len(wavelength)})", array=wavelength[None])]
    if index is not None:
        header |= {"PS3_2": "index", "CDELT3": step}
        columns.append(fits.Column("index", f"{len(index)}D", array=np.array(index, dtype=np.float64)[None]))
    table = fits.BinTableHDU.from_columns(columns, name="WCS-TABLE")
    flux = fits.ImageHDU(np.arange(n * 9, dtype=np.float32).reshape(n, 3, 3), fits.Header(header), name="SCI")
    fits.HDUList([fits.PrimaryHDU(), flux, table]).writeto(path)
    return path


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_of_jwst(tmp_path, order):
    """Wavelengths as astropy finds them, to 1e-9; bins end half way between them, and the outermost half a step out."""
    wavelength = np.float32([0.6, 0.62, 0.645, 0.68, 0.74])[::order]
    path = jwst(tmp_path / "prism_s3d.fits", wavelength)
    observed = rl.read_observed(path)
    expected = in_angstrom(path, "SCI", np.arange(1, 6))[::order]
    np.testing.assert_allclose(observed.wavelength, expected, rtol=1e-9)
    np.testing.assert_allclose(expected, wavelength[::order] * 1e4, rtol=1e-6)
    inner = 0.5 * (expected[1:] + expected[:-1])
    edges = [1.5 * expected[0] - 0.5 * expected[1], *inner, 1.5 * expected[-1] - 0.5 * expected[-2]]
    np.testing.assert_allclose(observed.wave_edges, edges, rtol=1e-9)
    assert (observed.medium, observed.sampling) == ("vacuum", "table")
    per_jansky = 299792458e10 * 1e-23 * 1e20 / expected**2  # erg/s/cm2/Hz of 1 Jy, to 1e-20 erg/s/cm2/A
    factor = 1e6 * per_jansky * 0.01 * (np.pi / 648000) ** 2
    stored = np.arange(45.0).reshape(5, 3, 3)[::order]
    np.testing.assert_allclose(observed.flux, (stored * factor[:, None, None]).transpose(1, 2, 0), rtol=1e-6)


@pytest.mark.parametrize(("index", "step"), [([0.5, 2, 3, 9], 1.0), ([-1, 0, 5, 8], 1.5), ([9, 3, 2, 0.5], 1.0)])
def test_an_index_of_the_table(tmp_path, index, step):
    """Numbers in any steps, in ascending or descending order, as astropy looks them up."""
    path = jwst(tmp_path / "cube.fits", np.float32([1.0, 1.1, 1.3, 1.6]), index=index, step=step)
    expected = in_angstrom(path, "SCI", np.arange(1, 5))
    edges = in_angstrom(path, "SCI", np.arange(5) + 0.5)
    order = 1 if expected[0] < expected[-1] else -1
    observed = rl.read_observed(path)
    np.testing.assert_allclose(observed.wavelength, expected[::order], rtol=1e-9)
    np.testing.assert_allclose(observed.wave_edges, edges[::order], rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no table", "expected the table of its wavelengths .CTYPE3 = 'WAVE-TAB'. in an extension 'WCS-TABLE'"),
        ("no column", "expected wavelengths that astropy can compute by CTYPE 'WAVE-TAB', got none .*'lambda'"),
        ("short", "expected wavelengths for all pixels by CTYPE 'WAVE-TAB', got some that are not finite"),
        ("order", "expected positive wavelengths that ascend"),
        ("nan", "expected wavelengths for all pixels by CTYPE 'WAVE-TAB', got some that are not finite"),
    ],
)
def test_tables_that_are_refused(tmp_path, change, message):
    values = {"short": [0.6, 0.7, 0.8], "order": [0.6, 0.7, 0.65, 0.8, 0.9], "nan": [0.6, np.nan, 0.7, 0.8, 0.9]}
    path = jwst(tmp_path / "cube.fits", np.float32(values.get(change, [0.6, 0.62, 0.65, 0.7, 0.75])))
    with fits.open(path, mode="update") as hdus:
        if change == "no table":
            del hdus["WCS-TABLE"]
        if change == "no column":
            hdus["SCI"].header["PS3_1"] = "lambda"
        if change == "short":
            hdus["SCI"].data = np.zeros((5, 3, 3), np.float32)
    with pytest.raises(ValueError, match=message):
        rl.read_observed(path)


def test_uneven_wavelengths_of_other_files(tmp_path):
    """An HDU of them: bins from half way to half way, and a note."""
    header = fits.Header({"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "WAVE", "BUNIT": "erg/s/cm2/Angstrom"})
    header.update({"CDELT1": -1e-4, "CDELT2": 1e-4, "CRVAL1": 10.0, "CRVAL2": 10.0, "CRPIX1": 1.0, "CRPIX2": 1.0})
    flux = fits.ImageHDU(np.ones((7, 2, 2), np.float32), header, name="FLUX")
    wave = fits.ImageHDU(CENTRES, fits.Header({"BUNIT": "Angstrom"}), name="WAVE")
    fits.HDUList([fits.PrimaryHDU(), flux, wave]).writeto(tmp_path / "cube.fits")
    observed = rl.read_observed(tmp_path / "cube.fits", pixel_scale=0.36)
    np.testing.assert_array_equal(observed.wavelength, CENTRES)
    np.testing.assert_allclose(observed.wave_edges[1:-1], 0.5 * (CENTRES[1:] + CENTRES[:-1]))
    assert any("uneven wavelengths" in note for note in observed.notes)


def test_places_among_bins():
    """Numpy's interpolation between edges and centres; bins go on beyond the ends; `place` is the inverse."""
    nodes = np.sort(np.concatenate([EDGES, CENTRES]))
    index = np.linspace(-0.5, 6.5, 113)
    np.testing.assert_allclose(BINS.at(index), np.interp(index, np.arange(15) / 2 - 0.5, nodes), rtol=1e-15)
    np.testing.assert_allclose(BINS.at(np.array([-1.5, 8.5])), [EDGES[0] - 30, EDGES[-1] + 2 * 55], rtol=1e-15)
    index = np.linspace(-4, 11, 77)
    np.testing.assert_allclose(BINS.place(BINS.at(index)), index, atol=1e-11)
    assert BINS.part(2, 5) == WavelengthBins.of_table(CENTRES[2:5], EDGES[2:6], "air")
    assert BINS.agrees(WavelengthBins.of_table(CENTRES + 1e-3, EDGES, "air"))
    assert not BINS.agrees(WavelengthBins.of_table(CENTRES, EDGES + 0.1, "air"))


def test_views_of_a_cube(cube):
    """A part, an image, a spectrum, xarray's dataset: each has the wavelengths of its bins."""
    part = cube.cut([6040, 6130])
    inside = (CENTRES >= 6040) & (CENTRES <= 6130)
    np.testing.assert_array_equal(part.wavelength, CENTRES[inside])
    np.testing.assert_array_equal(part.flux, np.asarray(cube.flux)[:, :, inside])
    spectrum = cube.spectrum(radius="5 arcsec")
    np.testing.assert_array_equal(np.asarray(spectrum.wavelength), CENTRES)
    xarray = pytest.importorskip("xarray")
    dataset = cube.to_xarray()
    assert isinstance(dataset, xarray.Dataset)
    np.testing.assert_array_equal(dataset["wave"], CENTRES)
    np.testing.assert_array_equal(dataset["wave_edges"], EDGES)
    assert dataset.attrs["sampling"] == "table"


def instrument(**wavelength):
    return instrument_settings({"name": "muse", "wavelength": wavelength})


def test_edges_in_the_settings(tmp_path):
    """As a list with units, or from a file; a recorded section gives them again, ends choose among them."""
    listed = instrument(edges=["0.5 um", 5010, "502.5 nm", 5050]).wavelength
    assert (listed.sampling, listed.n_wave, listed.step) == ("table", 3, None)
    np.testing.assert_array_equal(listed.centre_values, [5005, 5017.5, 5037.5])
    np.savetxt(tmp_path / "edges.txt", [5000, 5010, 5025, 5050])
    read = instrument(edges=str(tmp_path / "edges.txt")).wavelength
    np.testing.assert_allclose(read.edge_values, listed.edge_values, rtol=1e-14)
    assert type(listed).model_validate(listed.model_dump()) == listed
    part = instrument(**listed.model_dump() | {"start": 5010, "stop": 5045}).wavelength
    np.testing.assert_allclose(part.edge_values, [5010, 5025, 5050], rtol=1e-14)
    np.testing.assert_allclose(WavelengthBins.build(part).wavelength, [5017.5, 5037.5], rtol=1e-14)
    assert "edges" not in instrument(start=5000).wavelength.model_dump()


def test_bins_per_resolution_element():
    """NIRSpec's prism: FWHM / 2.2 = lambda / (2.2 R) by numpy's own integral of the published R, to 1e-3 of a bin."""
    preset = rl.load_instrument("nirspec_prism_uneven")
    lsf, edges = preset.lsf, preset.bins.edges
    grid = np.linspace(edges[0], edges[-1], 200_001)
    number = np.interp(grid, lsf.wavelength, lsf.resolving_power) * 2.2 / grid
    running = np.append(0, np.cumsum(0.5 * (number[1:] + number[:-1]) * np.diff(grid)))
    np.testing.assert_allclose(np.diff(np.interp(edges, grid, running)), 1, atol=1e-3)
    assert abs(preset.bins.wavelength[0] - 6000) < 0.5
    assert 53000 - 200 < preset.bins.wavelength[-1] <= 53000


@pytest.mark.parametrize(
    ("wavelength", "message"),
    [
        ({"edges": [5000, 5020, 5010]}, "edges: expected two or more in ascending order"),
        ({"edges": "no_such_file.txt"}, "expected a list of wavelengths, or the path of a text file"),
        ({"edges": [5000, 5010], "step": 3}, "expected null for the bins of a table, whose edges say their widths"),
        ({"edges": [5000, 5010, 5020], "centres": [5005, 5030]}, "centres: expected one within each of the 2 bins"),
        ({"edges": [5000, 5010, 5020], "start": 5016}, "expected the centre of a bin from start to stop"),
        ({"centres": [5000]}, "expected edges .* or bins_per_fwhm for sampling: table, got centres"),
        ({"bins_per_fwhm": 1e6}, "bins_per_fwhm: expected at most 1000000 bins"),
    ],
)
def test_bins_that_are_refused(wavelength, message):
    with pytest.raises(ValueError, match=message):
        instrument(**wavelength)


def test_bins_per_fwhm_need_a_width():
    with pytest.raises(ValueError, match="bins_per_fwhm: expected an lsf beside it, got none"):
        instrument_settings({"name": "muse", "lsf": None, "wavelength": {"bins_per_fwhm": 2}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": {"layout": "manga"}, "noise": {"signal_to_noise": 9}}, "sampling linear or log, got table"),
        ({"output": {"layout": "hsim"}}, "sampling linear, got table"),
    ],
)
def test_layouts_that_have_no_such_bins(changes, message):
    section = muse(fov="1 arcsec") | {"wavelength": {"medium": "vacuum", "edges": [5000, 5010, 5025]}}
    with pytest.raises(ConfigError, match=message):
        rl.load_config({"observation": {"redshift": 0.05}, "instrument": section, **changes})


@pytest.mark.slow(15)
def test_a_cube_with_uneven_bins_is_fitted(tmp_path):
    """Mass and velocity of a disc from a file of ours, within three standard errors; the model is on its bins."""
    edges = (4900 + np.cumsum(np.linspace(4, 24, 60))).tolist()
    section = muse(fov="1.2 arcsec") | {"lsf": {"fwhm": "25 Angstrom"}, "wavelength": {"edges": edges}}
    more = {"noise": {"signal_to_noise": 40}, "engine": {"deposit": "tsc"}, "fit": TWO_FREE}
    config = small_disc(2000) | {"instrument": section, **more}
    path = tmp_path / "cube.fits"
    rl.run(config, path)
    found = rl.fit(config, rl.read_observed(path))
    truth = {"observation.velocity_offset": 0.0, "galaxy.stellar_mass": 1e10}
    for name, value in truth.items():
        assert abs(found.values[name] - value) < 3 * found.sigma[name]
    np.testing.assert_allclose(found.model.wave_edges, edges, rtol=1e-12)
    assert jax.tree.leaves(found.model.flux)[0].shape[2] == 59
