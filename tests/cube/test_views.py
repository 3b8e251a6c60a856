"""What users take out of a cube: spectra, images, maps, cuts, other programs' objects, summaries."""

import dataclasses
import io
import re
import sys

import jax
import numpy as np
import pytest
from astropy import units
from astropy.coordinates import SkyCoord
from small import full_cube, make_cube, make_maps, noisy_cube
from speclite import filters

from rubix_like import ConfigError
from rubix_like.extend import Meta, WavelengthBins, observed_from

UNIT = 1e-20 * units.erg / units.s / units.cm**2 / units.AA


@pytest.fixture(scope="module")
def cube():
    """5 x 6 spaxels of 0.2 arcsec, 40 bins of 1.25 Angstrom, with masked bins and a masked corner."""
    return noisy_cube(mean_v_los=np.arange(30.0).reshape(5, 6))


def sky_of_spaxel(cube, x, y):
    ra, dec = cube.wcs.celestial.wcs_pix2world(x, y, 0)
    return float(ra), float(dec)


def test_the_spectrum_of_a_spaxel_by_number_and_by_place(cube):
    wavelength, flux, error = cube.spectrum(4, 1)
    assert (wavelength.unit, flux.unit) == (units.AA, units.Unit(UNIT))
    np.testing.assert_array_equal(wavelength.value, cube.wavelength)
    good = np.asarray(cube.mask[1, 4]) == 0
    np.testing.assert_array_equal(np.isfinite(flux.value), good)
    np.testing.assert_allclose(flux.value[good], cube.flux[1, 4][good])
    np.testing.assert_allclose(error.to_value(UNIT)[good] ** 2, cube.variance[1, 4][good], rtol=1e-6)
    ra, dec = sky_of_spaxel(cube, 4, 1)
    places = {
        "numbers": {"at": (ra, dec)},
        "quantities": {"at": (ra * units.deg, f"{60 * dec} arcmin")},
        "coordinates": {"at": SkyCoord(ra, dec, unit="deg").galactic.icrs},
        "text": {"at": SkyCoord(ra, dec, unit="deg").to_string("hmsdms", precision=6)},
        "offset": {"offset": (-0.3, "-0.2 arcsec")},
    }
    for name, place in places.items():
        np.testing.assert_array_equal(cube.spectrum(**place).flux, flux, err_msg=name)


@pytest.mark.parametrize("angle", [35.0, -120.0])
def test_offsets_are_those_of_the_sky(angle):
    turned = noisy_cube(meta=Meta({"ra": 150.0, "dec": 60.0, "field_angle": angle}))
    centre = SkyCoord(150.0, 60.0, unit="deg")
    place = centre.spherical_offsets_by(0.25 * units.arcsec, -0.15 * units.arcsec)
    by_offset = turned.spectrum(offset=(0.25, -0.15), radius=0.3)
    np.testing.assert_allclose(by_offset.flux.value, turned.spectrum(at=place, radius=0.3).flux.value, rtol=1e-6)


def test_the_spectrum_of_an_aperture(cube):
    """Weights by hand: the share of a fine grid of points within the circle."""
    points = (np.arange(400) + 0.5) / 400 - 0.5
    x, y = (np.arange(n)[:, None] + points - (n - 1) / 2 for n in (cube.n_x, cube.n_y))
    weights = ((0.2 * x[None, :, None]) ** 2 + (0.2 * y[:, None, :, None]) ** 2 <= 0.35**2).mean(axis=(2, 3))
    good = np.asarray(cube.mask) == 0
    flux = np.sum(np.where(good, cube.flux, 0) * weights[:, :, None], axis=(0, 1))
    variance = np.sum(np.where(good, cube.variance, 0) * weights[:, :, None] ** 2, axis=(0, 1))
    found = cube.spectrum(radius=0.35 * units.arcsec)
    np.testing.assert_allclose(found.flux.value[3:], flux[3:], rtol=2e-4)
    np.testing.assert_allclose(found.error.value[3:] ** 2, variance[3:], rtol=1e-3)
    assert np.isnan(found.flux.value[:3]).all(), "every voxel is masked"
    whole = cube.spectrum()
    np.testing.assert_allclose(whole.flux.value[3:], np.where(good, cube.flux, 0).sum(axis=(0, 1))[3:], rtol=1e-6)
    assert make_cube().spectrum(0, 0).error is None


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (lambda cube: cube.spectrum(3), "both x and y"),
        (lambda cube: cube.spectrum(3, 9), "y from 0 to 4"),
        (lambda cube: cube.spectrum(3, 1, at=(150, 60)), "leave one out"),
        (lambda cube: cube.spectrum(at=(150, 60), offset=(0, 0)), "leave one out"),
        (lambda cube: cube.spectrum(offset=(0, "3 kg")), "in arcsec"),
        (lambda cube: cube.spectrum(offset=(0, 0, 0)), r"\(East, North\)"),
        (lambda cube: cube.spectrum(at=(330, -60)), "within 90 deg of the cube's field, got .*, .* deg away"),
        (lambda cube: cube.spectrum(at=(150.1, 60)), "in the field"),
        (lambda cube: cube.spectrum(at="the middle"), "a text such as '10h00m00s"),
        (lambda cube: cube.spectrum(at=SkyCoord([150, 151], [2, 2], unit="deg")), r"of shape \(2,\)"),
        (lambda cube: cube.cut(wavelength=(1, 2)), "wavelength: expected one with the centre of a bin"),
        (lambda cube: cube.spectrum(radius=0), "more than 0"),
        (lambda cube: cube.spectrum(offset=(5, 0), radius="1 arcsec"), "in the field"),
        (lambda cube: cube.image((1, 2)), "centre of a bin"),
        (lambda cube: cube.image((5000, 5010, 3)), "lowest, highest"),
        (lambda cube: cube.image(("5000 km/s", 1)), "band: expected a quantity in Angstrom"),
        (lambda cube: cube.image("sdss2010-r"), "within the cube's"),
        (lambda cube: cube.map("velocty"), r"products: \{losvd: null\}"),
        (lambda cube: cube.cut(at=(150, 60)), "size"),
        (lambda cube: cube.cut(size=0), "> 0"),
        (lambda cube: cube.cut(size=0.1, offset=(3, 0)), "centre of a spaxel"),
        (lambda cube: cube.cut((9000, 9001)), "centre of a bin"),
    ],
)
def test_what_cannot_be_taken_out_is_refused(cube, wanted, words):
    with pytest.raises(ValueError, match=words):
        wanted(cube)


def test_images_of_bands(cube):
    good = np.asarray(cube.mask) == 0
    light = np.sum(np.where(good, cube.flux, 0) * np.diff(cube.wave_edges), axis=2)
    white = cube.image()
    np.testing.assert_allclose(white.to_value(UNIT * units.AA)[~np.isnan(white)], light[good.any(axis=2)], rtol=1e-5)
    np.testing.assert_array_equal(np.isnan(white), ~good.any(axis=2))
    saturated = dataclasses.replace(cube, mask=np.where(np.arange(cube.n_x)[:, None] == 3, 16, cube.mask))
    assert np.isnan(saturated.image()[:, 3]).all()
    low, high = 4765 * units.AA, 0.4775 * units.um
    inside = (cube.wavelength >= 4765) & (cube.wavelength <= 4775)
    band = cube.image((low, high)).to_value(UNIT)
    assert np.isnan(band[0, 0])
    np.testing.assert_allclose(band[2, 3], np.asarray(cube.flux)[2, 3, inside].mean(), rtol=1e-6)


@pytest.mark.parametrize("medium", ["vacuum", "air"])
def test_images_through_filters_are_those_of_speclite(medium):
    """Its AB magnitude of the same spectrum in vacuum; 2e-3 is what flat bins and its own integration leave."""
    bins = WavelengthBins(5300.0, 2.0, 900, "linear", medium)
    shape = 1 + 0.3 * np.sin(bins.wavelength / 90.0) + (bins.wavelength - 6000) / 4000
    flux = np.broadcast_to(shape * 50, (3, 5, 900)).astype(np.float32)
    cube = make_cube(n_wave=900, flux=flux, mask=np.zeros(flux.shape, np.int32), bins=bins)
    edges = bins.to_vacuum(bins.edges)
    density = flux[0, 0] * np.diff(bins.edges) / np.diff(edges) * 1e-20
    magnitude = filters.load_filter("sdss2010-r").get_ab_magnitude(
        density * units.erg / units.s / units.cm**2 / units.AA, bins.to_vacuum(bins.wavelength) * units.AA
    )
    found = cube.image("sdss2010-r")
    assert found.unit == units.nJy
    np.testing.assert_allclose(found.value, 3631e9 * 10 ** (-0.4 * magnitude), rtol=2e-4)


def test_maps_have_units_and_names(cube):
    assert cube.map("velocity").unit == units.km / units.s
    np.testing.assert_array_equal(cube.map("velocity").value, cube.mean_v_los)
    maps = make_maps(5, 6)
    maps = dataclasses.replace(maps, mask=np.eye(5, 6, dtype=np.int32) * 2)
    mapped = dataclasses.replace(cube, maps=maps)
    age = mapped.map("age")
    assert age.unit == units.Gyr
    np.testing.assert_array_equal(np.isnan(age.value), np.eye(5, 6, dtype=bool))
    assert mapped.map("surface_density").unit == units.Msun / units.kpc**2
    assert mapped.map("dispersion", before_psf=True)[0, 1] == 1 * units.km / units.s
    with pytest.raises(ValueError, match="did you mean 'dispersion'"):
        mapped.map("dispersoin")


@pytest.mark.parametrize(("angle", "dec"), [(0.0, 0.0), (40.0, 80.0)])
def test_a_cut_is_where_it_was_on_the_sky(angle, dec):
    cube = noisy_cube(20, 24, lsf_fwhm=np.linspace(2, 3, 40), meta=Meta({"ra": 10.0, "dec": dec, "field_angle": angle}))
    cube = dataclasses.replace(cube, maps=make_maps(20, 24))
    cut = cube.cut(("4760 Angstrom", 0.478 * units.um), at=sky_of_spaxel(cube, 20, 5), size=("1.4 arcsec", 0.6))
    assert cut.shape == (3, 7, 16)
    rows, columns = slice(4, 7), slice(17, 24)
    inside = (cube.wavelength >= 4760) & (cube.wavelength <= 4780)
    np.testing.assert_array_equal(cut.flux, np.asarray(cube.flux)[rows, columns][:, :, inside])
    np.testing.assert_allclose(cut.wavelength, cube.wavelength[inside], rtol=1e-12)
    np.testing.assert_array_equal(cut.lsf_fwhm, cube.lsf_fwhm[inside])
    assert cut.map("age").shape == (3, 7)
    for x, y in ((0, 0), (6, 0), (3, 2)):
        before = SkyCoord(*sky_of_spaxel(cube, x + 17, y + 4), unit="deg")
        after = SkyCoord(*sky_of_spaxel(cut, x, y), unit="deg")
        assert before.separation(after).arcsec < 1e-4
    assert cube.cut().flux is cube.flux
    assert cube.cut(size=1.0).meta["field_angle"] == pytest.approx(angle, abs=1e-3)


def test_a_cut_is_written_and_read(cube, tmp_path):
    cut = cube.cut((4760, 4780), size=0.6)
    again = type(cut).read(cut.write(tmp_path / "cut.fits"))
    np.testing.assert_array_equal(again.flux, cut.flux)
    assert again.shape == cut.shape == (3, 4, 16)


def test_a_dataset_of_xarray(cube):
    pytest.importorskip("xarray")
    found = cube.to_xarray()
    assert found.flux.dims == ("y", "x", "wave")
    assert found.flux.attrs["units"] == "1e-20 erg s-1 cm-2 Angstrom-1"
    near = found.sel(wave=slice(4760, 4780))
    assert near.sizes["wave"] == 16
    np.testing.assert_allclose(found.ra[1, 4], sky_of_spaxel(cube, 4, 1)[0], rtol=1e-12)
    np.testing.assert_allclose(found.dec[1, 4], sky_of_spaxel(cube, 4, 1)[1], rtol=1e-12)
    np.testing.assert_allclose(found.sel(x=-0.3, y=-0.2, method="nearest").flux, cube.flux[1, 4])
    assert found.attrs["redshift"] == 0.05


def test_what_a_cube_prints_is_one_line(cube):
    assert repr(cube) == str(cube)
    assert repr(cube) == (
        "Cube(6 x 5 spaxels of 0.2 arcsec, 40 bins from 4749.90 to 4799.90 Angstrom (air), with variance)"
    )
    assert repr(observed_from(cube)) == (
        "ObservedCube(6 x 5 spaxels of 0.2 arcsec, 40 bins from 4749.90 to 4799.90 Angstrom (air), "
        "89% of voxels used, with variance)"
    )
    assert "n_stars" not in repr(full_cube().meta)
    assert len(repr(full_cube().meta)) < 400
    shown = []
    jax.jit(lambda traced: shown.append((repr(traced), traced._repr_html_())) or traced.flux)(cube)
    assert "6 x 5 spaxels" in shown[0][0]
    assert len(repr(make_maps())) < 5000


def test_what_a_notebook_shows_of_a_cube(cube):
    """A table, and the light as a picture that others read, the brightest spaxel white, North up."""
    flux = np.zeros((5, 6, 40), np.float32)
    flux[4, 1] = 1.0
    lit = dataclasses.replace(cube, flux=flux, mask=np.zeros(flux.shape, np.int32))
    html = lit._repr_html_()
    assert "<table>" in html
    assert "6 x 5 of 0.2 arcsec" in html
    pyplot = pytest.importorskip("matplotlib.image")
    import base64  # noqa: PLC0415

    picture = base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])
    pixels = pyplot.imread(io.BytesIO(picture))
    assert pixels.shape == (5, 6)
    assert (pixels[0, 1], pixels.sum()) == (1.0, 1.0)


def test_figures_and_how_a_notebook_shows_them(cube, monkeypatch):
    class Formatter(dict):
        def for_type(self, kind, function):
            self[kind] = function

    formatter = Formatter()
    shell = type("Shell", (), {"display_formatter": type("Display", (), {"formatters": {"image/png": formatter}})})
    ipython = type("IPython", (), {"get_ipython": lambda: shell, "version_info": (9, 0)})
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    figure = cube.plot([(2, 1), (4, 3)], band=(4765, 4775))
    assert len(figure.axes) >= 4
    assert formatter[type(figure)](figure).startswith(b"\x89PNG")
    maps = dataclasses.replace(cube, maps=make_maps(5, 6))
    assert "velocity, weighted by light" in [axes.get_title(loc="left") for axes in maps.plot().axes]
    with pytest.raises(ConfigError, match="spaxels: "):
        cube.plot([(9, 9)])
