"""Layouts other than the default one, HDF5, and the limits and sizes of all."""

import dataclasses
import sys

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.stats import gaussian_sigma_to_fwhm
from astropy.wcs import WCS
from building import REGISTRIES
from small import NO_DATA, OUTSIDE_APERTURE, full_cube, make_cube, vacuum_cube

from rubix_like import ConfigError, Counters, Cube, load_config, run
from rubix_like.config.file_layouts import file_size, find_format
from rubix_like.cube.files.hdf5_cube import ARRAYS
from rubix_like.cube.survey_files.survey_cubes import line_spread_sigmas
from rubix_like.extend import Footprint, Meta, WavelengthBins

FLUX_UNIT = 1e-20 * units.erg / units.s / units.cm**2 / units.AA


# ---------------------------------------------------------------- HDF5


@pytest.mark.parametrize(("suffix", "dtype"), [(".h5", jnp.float32), (".hdf5", jnp.float64)])
def test_hdf5_returns_everything_as_it_was(tmp_path, suffix, dtype):
    cube = full_cube(mean_v_los=jnp.full((3, 5), jnp.nan, dtype))
    cube = dataclasses.replace(cube, flux=cube.flux.astype(dtype) / 3, variance=cube.variance.astype(dtype))
    again = Cube.read(cube.write(tmp_path / f"cube{suffix}"))
    assert jax.tree.structure(cube) == jax.tree.structure(again)
    for first, second in zip(jax.tree.leaves(cube), jax.tree.leaves(again), strict=True):
        assert (first.dtype, isinstance(first, jax.Array)) == (second.dtype, isinstance(second, jax.Array))
        np.testing.assert_array_equal(first, second)
    assert {key: type(value) for key, value in again.meta.items()} == {k: type(v) for k, v in cube.meta.items()}
    assert list(again.meta) == list(cube.meta)
    bare = Cube.read(make_cube().write(tmp_path / "bare.h5"))
    assert (bare.variance, bare.lsf_fwhm, bare.counters, bare.mean_v_los) == (None, None, None, None)


def test_hdf5_describes_itself(tmp_path):
    cube = full_cube()
    with h5py.File(cube.write(tmp_path / "cube.h5")) as file:
        assert (file.attrs["medium"], file.attrs["sampling"], file.attrs["pixel_scale"]) == ("air", "linear", 0.2)
        for dataset in (file[name] for name in ARRAYS if name in file):
            axes = dataset.attrs["axes"].split()
            assert dict(zip(axes, dataset.shape, strict=True)).items() <= {"y": 3, "x": 5, "wave": 4, "edge": 5}.items()
            assert [dimension.label for dimension in dataset.dims] == axes
            assert dataset.attrs["description"]
        assert units.Unit(file["flux"].attrs["unit"]) == FLUX_UNIT
        assert units.Unit(file["variance"].attrs["unit"]) == FLUX_UNIT**2
        assert units.Unit(file["wavelength"].attrs["unit"]) == units.AA
        assert file["meta/config"].asstr()[()] == cube.meta["config"]
        assert file["meta/inclination"].shape is None


def test_hdf5_has_every_array_of_a_cube():
    others = {"counters", "source_counters", "footprint", "meta", "maps", "bins", "fibres", "noise_sources"}
    others |= {"contributions", "correlations"}  # refused there, in words
    assert set(ARRAYS) - {"wavelength", "wave_edges"} == {field.name for field in dataclasses.fields(Cube)} - others


def test_hdf5_files_of_others_and_incomplete_ones_are_refused(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["flux"] = np.zeros((2, 2, 2))
    with pytest.raises(ValueError, match=r"attribute 'format' is None.*open others with h5py"):
        Cube.read(tmp_path / "other.h5")
    path = full_cube().write(tmp_path / "cube.h5")
    content = path.read_bytes()
    with h5py.File(path, "a") as file:
        del file["mask"]
    for damaged in (path.read_bytes(), content[: int(0.3 * len(content))], content[: int(0.9 * len(content))]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="not a complete cube of rubix_like"):
            Cube.read(path)


# ---------------------------------------------------------------- MaNGA


@pytest.mark.parametrize("sampling", ["linear", "log"])
def test_manga_layout(tmp_path, sampling):
    cube = vacuum_cube(sampling)
    with fits.open(cube.write(tmp_path / "cube.fits", "manga")) as hdus:
        hdus.verify("exception")
        names = ["PRIMARY", "FLUX", "IVAR", "MASK", "LSFPOST", "LSFPRE", "WAVE", "SPECRES", "SPECRESD"]
        assert [hdu.name for hdu in hdus] == [*names, "PRESPECRES", "PRESPECRESD", "CONFIG"]
        assert hdus[0].data is None
        header = hdus["FLUX"].header
        assert (hdus[0].header["TELESCOP"], header["INSTRUME"], header["NAXIS"]) == ("SDSS 2.5-M", "MaNGA", 3)
        assert (header["BUNIT"], header["ERRDATA"]) == ("1E-17 erg/s/cm^2/Ang/spaxel", "IVAR")
        assert header["QUALDATA"] == "MASK"
        assert (hdus[0].header["IFURA"], hdus[0].header["OBJDEC"]) == (150.0, 40.0)
        assert header["CTYPE3"] == {"linear": "WAVE", "log": "WAVE-LOG"}[sampling]
        flux, ivar, mask = (hdus[name].data.transpose(1, 2, 0) for name in ("FLUX", "IVAR", "MASK"))
        good = np.asarray(cube.mask) == 0
        np.testing.assert_allclose(1000 * flux, cube.flux, rtol=1e-6)
        np.testing.assert_allclose(ivar[good] * np.asarray(cube.variance)[good], 1e6, rtol=1e-6)
        assert np.all(ivar[~good] == 0)
        np.testing.assert_array_equal(mask, np.array([0, 1024, 1025, 1025])[np.asarray(cube.mask)])
        np.testing.assert_array_equal(hdus["WAVE"].data, cube.wavelength)
        metres = WCS(header).wcs_pix2world(0, 0, np.arange(4), 0)[2]
        np.testing.assert_allclose(1e10 * metres, cube.wavelength, rtol=1e-13)
        sigma = hdus["LSFPRE"].data[:, 1, 2]
        np.testing.assert_allclose(sigma * gaussian_sigma_to_fwhm, cube.lsf_fwhm, rtol=1e-6)
        np.testing.assert_allclose(hdus["PRESPECRES"].data, cube.wavelength / cube.lsf_fwhm)
        widths = np.diff(cube.wave_edges)
        np.testing.assert_allclose(hdus["LSFPOST"].data[:, 0, 0] ** 2, sigma**2 + widths**2 / 12, rtol=1e-6)
        post = hdus["LSFPOST"].data[:, 0, 0] * gaussian_sigma_to_fwhm
        np.testing.assert_allclose(hdus["SPECRES"].data * post, cube.wavelength, rtol=1e-6)


def test_line_spread_measured_on_pixels_is_the_one_after_them():
    fwhm, widths = np.array([2.5, 0.1]), np.array([1.0, 1.0])
    post, pre = line_spread_sigmas(fwhm, widths, includes_pixel=True)
    np.testing.assert_allclose(post * gaussian_sigma_to_fwhm, fwhm)
    np.testing.assert_allclose(pre[0] ** 2 + 1 / 12, post[0] ** 2)
    assert pre[1] == 0  # narrower than its pixels


def test_manga_layout_without_an_lsf(tmp_path):
    with fits.open(vacuum_cube(lsf_fwhm=None).write(tmp_path / "cube.fits.gz", "manga")) as hdus:
        assert [hdu.name for hdu in hdus] == ["PRIMARY", "FLUX", "IVAR", "MASK", "WAVE", "CONFIG"]


# ---------------------------------------------------------------- HSIM


@pytest.mark.filterwarnings("ignore:.*contains multiple slashes:astropy.units.UnitsWarning")
def test_hsim_layout(tmp_path):
    """What HSIM's reader asks for: the keywords, their units and signs, no NaN."""
    cube = vacuum_cube("linear")
    cube = dataclasses.replace(cube, flux=cube.flux.at[0, 0, 0].set(jnp.nan))
    with fits.open(cube.write(tmp_path / "cube.fits", "hsim")) as hdus:
        hdus.verify("exception")
        assert len(hdus) == 1
        header, data = hdus[0].header, hdus[0].data
        assert [header[f"CTYPE{axis}"] for axis in (1, 2, 3)] == ["x", "y", "wavelength"]
        assert header["CDELT1"] * units.Unit(header["CUNIT1"]) == 0.2 * units.arcsec
        assert header["CDELT2"] * units.Unit(header["CUNIT2"]) == 0.2 * units.arcsec
        wave = header["CRVAL3"] + header["CDELT3"] * (np.arange(1, 5) - header["CRPIX3"])
        np.testing.assert_allclose((wave * units.Unit(header["CUNIT3"])).to_value("AA"), cube.wavelength, rtol=1e-14)
        np.testing.assert_allclose(header["SPECRES"], 2.55)
        assert data[0, 0, 0] == 0
        brightness = data * units.Unit(header["BUNIT"])
        expected = np.nan_to_num(np.asarray(cube.flux)).transpose(2, 0, 1) * FLUX_UNIT / (0.2 * units.arcsec) ** 2
        np.testing.assert_allclose(brightness.to_value(expected.unit), expected.value, rtol=1e-6)
        assert data.dtype == np.dtype(">f4")
        assert set(header) >= {"NAXIS1", "NAXIS2", "NAXIS3", "CRVAL1", "CRPIX1", "CRVAL2", "CRPIX2"}


def test_hsim_layout_without_an_lsf_says_that_it_is_unknown(tmp_path):
    path = vacuum_cube("linear", lsf_fwhm=None, variance=None).write(tmp_path / "cube.fits", "hsim")
    assert fits.getheader(path)["SPECRES"] == 0


# ---------------------------------------------------------------- ScopeSim (with it: tests/clients)


def test_scopesim_layout(tmp_path):
    """By astropy alone: light and wavelength of a voxel at its place about the optical axis, East at positive degrees
    on columns that go there."""
    cube = vacuum_cube("linear")
    cube = dataclasses.replace(cube, flux=cube.flux.at[0, 0, 0].set(jnp.nan))
    with fits.open(cube.write(tmp_path / "cube.fits", "scopesim")) as hdus:
        (hdu,) = hdus
        data, sky = hdu.data * units.Unit(hdu.header["BUNIT"]), WCS(hdu.header)
    expected = np.nan_to_num(np.asarray(cube.flux)).transpose(2, 0, 1) * FLUX_UNIT / (0.2 * units.arcsec) ** 2
    np.testing.assert_allclose(data[:, :, ::-1].to_value(expected.unit), expected.value, rtol=1e-6)
    east, north, wave = sky.wcs_pix2world(*np.meshgrid(np.arange(5), np.arange(3), np.arange(4), indexing="ij"), 0)
    np.testing.assert_allclose((east[:, 0, 0] + 180) % 360 - 180, (np.arange(5) - 2) * 0.2 / 3600, atol=1e-12)
    np.testing.assert_allclose(north[0, :, 0], (np.arange(3) - 1) * 0.2 / 3600, atol=1e-12)
    np.testing.assert_allclose(wave[0, 0] * 1e10, cube.wavelength, rtol=1e-12)


# ---------------------------------------------------------------- specutils (with it: tests/clients)


def test_without_specutils_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "specutils", None)
    with pytest.raises(ConfigError, match="needs the package specutils: pip install 'rubix-like"):
        make_cube().to_specutils()


# ---------------------------------------------------------------- limits, sizes, runs


@pytest.mark.parametrize(
    ("layout", "cube", "words"),
    [
        ("manga", {"variance": None}, "needs a variance.*noise section"),
        ("manga", {"medium": "air"}, "medium vacuum, got air; set instrument.wavelength.medium: vacuum"),
        ("hsim", {"medium": "air"}, "medium vacuum, got air"),
        ("scopesim", {"medium": "air"}, "medium vacuum, got air"),
        ("hsim", {}, "sampling linear, got log; set instrument.wavelength.sampling: linear"),
    ],
)
def test_cubes_that_a_layout_cannot_hold(tmp_path, layout, cube, words):
    with pytest.raises(ConfigError, match=words):
        vacuum_cube(**cube).write(tmp_path / "cube.fits", layout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sampling", ["linear", "log"])
def test_the_cube_of_mangas_layout_is_read_back(tmp_path, sampling):
    """All but what the layout does not keep: which bit a voxel is masked for, its variance, and velocities."""
    cube = vacuum_cube(sampling)
    again = Cube.read(cube.write(tmp_path / "cube.fits.gz", "manga"))
    good = np.asarray(cube.mask) == 0
    assert 0 < good.sum() < good.size
    np.testing.assert_allclose(again.flux, cube.flux, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(again.variance)[good], np.asarray(cube.variance)[good], rtol=1e-6)
    assert (np.asarray(again.variance)[~good] == 0).all()
    outside = (np.asarray(cube.mask) & OUTSIDE_APERTURE) != 0
    np.testing.assert_array_equal(again.mask, np.where(outside, OUTSIDE_APERTURE, np.where(good, 0, NO_DATA)))
    np.testing.assert_allclose(again.lsf_fwhm, cube.lsf_fwhm, rtol=1e-6)
    np.testing.assert_allclose(again.wave_edges, cube.wave_edges, rtol=1e-14)
    assert (again.medium, again.sampling, again.pixel_scale) == (cube.medium, cube.sampling, cube.pixel_scale)
    assert (dict(again.meta), again.correlations) == (dict(cube.meta), None)


@pytest.mark.parametrize("layout", ["hsim", "scopesim"])
def test_files_for_other_programs_are_not_read_back(tmp_path, layout):
    path = vacuum_cube("linear").write(tmp_path / "cube.fits", layout)
    with pytest.raises(ValueError, match=f"its layout is '{layout}', which is for other programs"):
        Cube.read(path)


@pytest.mark.parametrize(
    ("layout", "name", "dtype", "noise"),
    [
        ("default", "a.fits", np.float32, False),
        ("default", "a.fits", np.float64, True),
        ("default", "a.h5", np.float32, True),
        ("default", "a.h5", np.float64, False),
        ("manga", "a.fits", np.float32, True),
        ("hsim", "a.fits", np.float64, False),
    ],
)
def test_size_is_known_before(tmp_path, layout, name, dtype, noise):
    shape = (60, 50, 200)
    values = jnp.ones(shape, dtype)
    cube = Cube(
        flux=values,
        mask=jnp.ones(shape, jnp.int32),
        bins=WavelengthBins(5000.5, 1.0, 200, "linear", "vacuum"),
        footprint=Footprint(60, 50, 0.2),
        variance=values if noise else None,
        lsf_fwhm=np.full(200, 2.5),
        counters=Counters(),
        meta=Meta({"config": 200 * "observation: {redshift: 0.1}\n"}),
    )
    size = cube.write(tmp_path / name, layout).stat().st_size
    chosen = find_format(tmp_path / name, layout)
    assert size <= file_size(chosen, shape, noise=noise, float64=dtype == np.float64) < 1.1 * size


def test_a_run_writes_the_layout_of_its_configuration(tmp_path):
    instrument = {
        "name": "muse",
        "fov": "2 arcsec",
        "psf": None,
        "wavelength": {"start": 5000, "stop": 5040, "step": 1.25, "medium": "vacuum"},
    }
    config = load_config(
        {
            "galaxy": {"reader": "synthetic", "n_stars": 200},
            "observation": {"redshift": 0.05},
            "instrument": instrument,
            "engine": {"method": "direct"},
            "noise": {"signal_to_noise": 20},
            "output": {"path": str(tmp_path / "cube.fits"), "layout": "manga"},
        }
    )
    cube = run(config)
    assert fits.getheader(tmp_path / "cube.fits")["LAYOUT"] == "manga"
    others = [layout for layout in REGISTRIES["layouts"].names() if layout not in {"manga", "sami"}]
    paths = {layout: cube.write(tmp_path / f"{layout}.fits", layout) for layout in others}  # that of SAMI is of fibres
    paths["manga"] = tmp_path / "cube.fits"
    for layout, path in paths.items():
        header = fits.getheader(path)
        assert header.get("LAYOUT", "default") == layout
        assert header.get("SIMINSTR", header["INSTRUME"]) == "muse"
        assert cube.meta["lsf_includes_pixel"] == header["LSFPIXEL"] == config.instrument.lsf.includes_pixel
