"""Pictures of cubes: the numbers that are drawn, the files that appear, and what is refused."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from matplotlib.figure import Figure
from small import noisy_cube, white_light

from rubix_like import ConfigError
from rubix_like.extend import Choice, Footprint, Meta, WavelengthBins, save_figure, write_page
from rubix_like.plots.figure import brightest_spaxel, field_spectrum, spaxel_spectrum
from rubix_like.plots.images import (
    SkyImage,
    band_image,
    cube_images,
    draw_images,
    light_image,
    read_band,
    read_sky_images,
    read_spaxels,
    scale_bar,
    scale_of,
    sky_of,
)
from rubix_like.plots.style import unit_label
from rubix_like.runtime.files.outputs import beside


@pytest.fixture
def cube_file(tmp_path):
    return noisy_cube().write(tmp_path / "cube.fits").name


def write_maps(path, n_y=5, n_x=6, **images):
    hdus = fits.HDUList([fits.PrimaryHDU()])
    for name, (values, unit, comment) in images.items():
        hdu = fits.ImageHDU(np.broadcast_to(np.float32(values), (n_y, n_x)), name=name)
        hdu.header["BUNIT"] = unit
        if comment:
            hdu.header["COMMENT"] = comment
        hdus.append(hdu)
    hdus.append(fits.ImageHDU(np.zeros((2, n_y, n_x), np.float32), name="LOSVD"))
    hdus.append(fits.ImageHDU(np.zeros((n_y, n_x), np.int32), name="DQ"))
    hdus.writeto(path)
    return path


def test_band_image_is_the_plain_mean_over_good_bins():
    cube = noisy_cube()
    wavelength, flux, mask = (np.asarray(a, np.float64) for a in (cube.wavelength, cube.flux, cube.mask))
    image = band_image(cube, (4752.0, 4760.0))
    inside = [k for k in range(40) if 4752.0 <= wavelength[k] <= 4760.0]
    for y in range(5):
        for x in range(6):
            good = [flux[y, x, k] for k in inside if mask[y, x, k] == 0]
            expected = np.mean(good) / 0.04 if good else np.nan
            np.testing.assert_allclose(image.values[y, x], expected, rtol=1e-12)
    assert np.isnan(image.values[0, 0])
    assert np.isfinite(image.values).sum() == 29
    assert image.unit.endswith("Å⁻¹ arcsec⁻²")


@pytest.mark.parametrize("band", [(4752.0, 4760.0), (4760.0, 4782.0)])
def test_band_images_weight_uneven_bins_by_their_widths(band):
    """`Cube.image` and the picture's band: numpy's mean with the bins' widths as weights."""
    widths = np.tile([0.5, 1.5, 2.0, 1.0], 10)
    edges = 4750 + np.append(0, np.cumsum(widths))
    cube = replace(noisy_cube(), bins=WavelengthBins.of_table(0.5 * (edges[1:] + edges[:-1]), edges, "air"))
    inside = (cube.wavelength >= band[0]) & (cube.wavelength <= band[1])
    flux, good = np.asarray(cube.flux, np.float64)[1:, :, inside], np.asarray(cube.mask)[1:, :, inside] == 0
    expected = np.average(flux, axis=2, weights=widths[inside] * good)
    np.testing.assert_allclose(band_image(cube, band).values[1:] * 0.04, expected, rtol=1e-12)
    np.testing.assert_allclose(cube.image(band).value[1:], expected, rtol=1e-12)


def test_white_light_is_a_surface_brightness_without_the_outside():
    cube = noisy_cube()
    image = light_image(cube)
    assert np.isnan(image.values[0, 0])
    np.testing.assert_allclose(image.values[1:], white_light(cube)[1:] / 0.04, rtol=1e-12)


def test_maps_of_a_cube_alone():
    cube = noisy_cube()
    ratio, good = cube_images(cube)
    expected = np.median(np.asarray(cube.flux)[2, 3, 3:] / np.sqrt(np.asarray(cube.variance)[2, 3, 3:]))
    np.testing.assert_allclose(ratio.values[2, 3], expected, rtol=1e-5)
    assert np.isnan(ratio.values[0, 0])
    np.testing.assert_allclose(good.values[0, :2], [0.0, 100 * 37 / 40])
    velocity = np.full((5, 6), 3.0)
    names = [image.title for image in cube_images(noisy_cube(variance=None, mean_v_los=velocity))]
    assert names == ["mean velocity (light-weighted)", "bins that are not masked"]


def test_spectra_leave_masked_voxels_out():
    cube = noisy_cube()
    one = spaxel_spectrum(cube, (3, 2), "red")
    assert np.isnan(one.flux[:3]).all()
    np.testing.assert_array_equal(one.flux[3:], np.asarray(cube.flux)[2, 3, 3:])
    np.testing.assert_allclose(one.sigma[3:], np.sqrt(np.asarray(cube.variance, np.float64)[2, 3, 3:]))
    assert spaxel_spectrum(cube, (0, 0), "red").title.endswith("every bin is masked")
    whole = field_spectrum(cube, "black")
    good = np.asarray(cube.mask)[..., 5] == 0
    np.testing.assert_allclose(whole.flux[5], np.asarray(cube.flux, np.float64)[..., 5][good].sum())
    np.testing.assert_allclose(whole.sigma[5] ** 2, np.asarray(cube.variance, np.float64)[..., 5][good].sum())
    assert np.isnan(whole.flux[:3]).all()
    assert brightest_spaxel(np.array([[np.nan, 1.0], [3.0, 2.0]])) == (0, 1)


def test_offsets_on_the_sky_are_those_of_the_world_coordinates():
    cube = noisy_cube()
    sky = sky_of(cube)
    for x, y in ((0, 0), (5, 2), (3, 4)):
        east, north = sky.offset(x, y)
        ra, dec = cube.wcs.celestial.pixel_to_world_values(x, y)
        np.testing.assert_allclose(east, (ra - 150.0) * 3600 * np.cos(np.radians(60.0)), atol=1e-4)
        np.testing.assert_allclose(north, (dec - 60.0) * 3600, atol=1e-4)
    assert sky.north_is_up
    np.testing.assert_allclose(sky.extent, (0.6, -0.6, -0.5, 0.5), atol=1e-12)
    assert sky.directions() == {"N": (0.0, 1.0), "E": (-1.0, 0.0)}
    length, label = scale_bar(sky)
    kpc = 1000 * 230.0 / 1.05**2 * np.radians(1 / 3600)
    assert label.endswith(" kpc")
    np.testing.assert_allclose(length * kpc, float(label.split()[0]))
    assert 0.1 * 1.2 <= length <= 0.25 * 1.2
    assert scale_bar(sky_of(noisy_cube(meta=Meta()))) == (0.2, "0.2″")


def test_directions_of_a_turned_field():
    """With +y at position angle 30 degrees (North through East) North is 30 degrees to the right of up."""
    cos, sin = 0.2 * np.cos(np.radians(30)), 0.2 * np.sin(np.radians(30))
    sky = replace(sky_of(noisy_cube()), matrix=((-cos, sin), (sin, cos)))
    assert not sky.north_is_up
    np.testing.assert_allclose(sky.directions()["N"], (0.5, np.sqrt(0.75)))
    np.testing.assert_allclose(sky.directions()["E"], (-np.sqrt(0.75), 0.5))
    east, north = sky.offset(2.5, 7.0)
    np.testing.assert_allclose((east, north), (5 * sin, 5 * cos), atol=1e-12)


def test_scales():
    values = np.linspace(1.0, 5.0, 101)[None]
    assert scale_of(values, "value").colors == "viridis"
    np.testing.assert_allclose((scale_of(values, "value").low, scale_of(values, "value").high), (1.04, 4.96))
    signed = scale_of(np.linspace(-90.0, 100.0, 101)[None], "value")
    assert (signed.colors, signed.low) == ("RdBu_r", -signed.high)
    noisy = scale_of(np.append(np.linspace(5, 100.0, 500), -1.0)[None], "value")
    assert noisy.colors == "viridis"
    wide = scale_of(np.geomspace(1.0, 1e6, 101)[None], "value")
    assert wide.logarithmic
    light = scale_of(np.array([[1e-9, 1.0, 10.0, np.nan, -0.5]]), "brightness")
    assert (light.low, light.high, light.logarithmic) == (0.5, 10.0, True)
    assert scale_of(np.full((2, 2), np.nan), "brightness") == scale_of(np.zeros((2, 2)), "brightness")
    velocity = scale_of(np.array([[900.0, 1000.0, 1100.0]]), "velocity")
    np.testing.assert_allclose((velocity.low + velocity.high) / 2, 1000.0)
    assert scale_of(values, "share").high == 100.0
    flat = scale_of(np.full((2, 2), 3.0), "value")
    assert flat.low < flat.high
    for values in (np.geomspace(1.0, 1e6, 101)[None], np.linspace(1.0, 5.0, 101)[None]):
        assert scale_of(values, "line_flux").logarithmic
        assert not scale_of(values, "line_value").logarithmic
    dark = scale_of(np.zeros((2, 2)), "line_flux")
    assert (dark.low, dark.high, dark.logarithmic) == (0.0, 1.0, False)


def test_maps_of_lines_have_one_rule(tmp_path):
    """Their light is logarithmic, the rest linear, whatever the values of one line are; the colour bar says which."""
    faint, strong = np.geomspace(1.0, 1e6, 30).reshape(5, 6), np.linspace(1.0, 2.0, 30).reshape(5, 6)
    path = write_maps(
        tmp_path / "maps.fits",
        A=(faint, "10**-20 erg s-1 cm-2", ""),
        B=(strong, "10**-20 erg s-1 cm-2", ""),
        C=(faint, "Angstrom", ""),
    )
    with fits.open(path, mode="update") as hdus:
        for hdu in hdus[1:]:
            hdu.header["LINE"] = "Ha"
    images = read_sky_images(path, Footprint(5, 6, 0.2))
    assert [image.scale.logarithmic for image in images] == [True, True, False]
    figure = Figure()
    panels = draw_images(figure, images, sky_of(noisy_cube()), 3)
    assert len(panels) == 3
    labels = [axes.get_ylabel() for axes in figure.axes[3:]]
    assert labels == ["10⁻²⁰ erg s⁻¹ cm⁻², log scale"] * 2 + ["Å"]


@pytest.mark.parametrize(
    ("unit", "label"),
    [("10**-20 erg s-1 cm-2", "10⁻²⁰ erg s⁻¹ cm⁻²"), ("km/s", "km s⁻¹"), ("", ""), ("spoons", "spoons")],
)
def test_units_in_words(unit, label):
    assert unit_label(unit) == label


def test_reading_options():
    assert read_spaxels(["3,4", "0,12", "3,4"]) == ((3, 4), (0, 12))
    assert read_band("5000-5100.5") == (5000.0, 5100.5)
    for ending, name in ((".png", "a/my.cube.png"), ("_maps.fits", "a/my.cube_maps.fits")):
        assert str(beside(Path("a/my.cube.fits"), ending)) == name
        assert str(beside(Path("a/my.cube.fits.gz"), ending)) == name
    for word in ("3", "3,4,5", "a,b", "-1,2", "1.5,2", ""):
        with pytest.raises(ConfigError, match="expected X,Y"):
            read_spaxels([word])
    for word in ("5000", "a-b", "1-2-3", ""):
        with pytest.raises(ConfigError, match="expected LOW-HIGH"):
            read_band(word)


def test_the_words_of_a_figure(tmp_path):
    maps = (SkyImage("V", np.arange(-15.0, 15.0).reshape(5, 6), "km s⁻¹"),)
    path = save_figure(noisy_cube(), tmp_path / "x.svg", Choice(((1, 2), (5, 4)), (4760.0, 4770.0), maps))
    assert [file.name for file in tmp_path.iterdir()] == ["x.svg"]
    text = path.read_text()
    assert text.startswith("<?xml")
    for words in ("white light", "4760 to 4770 Å", "V", "spaxel (1, 2)", "spaxel (5, 4)", "km s⁻¹", "± 1"):
        assert words in text, words
    assert "whole field" not in text
    assert "bins that are not masked" not in text


NOTHING = {"flux": np.zeros((5, 6, 40), np.float32), "variance": np.zeros((5, 6, 40), np.float32)}
MASKED = {"mask": np.full((5, 6, 40), 3, np.int32)}
FORMULA = {"variance": None, "meta": Meta({"object": "$x_$ {a} {{title}}"})}


@pytest.mark.parametrize(("changes", "name", "start"), [(NOTHING, "x.png", b"\x89PNG"), (MASKED, "x.pdf", b"%PDF")])
def test_figures_of_odd_cubes(tmp_path, changes, name, start):
    path = save_figure(noisy_cube(**changes, meta=FORMULA["meta"]), tmp_path / name)
    assert path.read_bytes().startswith(start)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("changes", [NOTHING, MASKED, FORMULA], ids=["nothing", "all masked", "formula for a name"])
def test_pages_of_odd_cubes(tmp_path, changes):
    path = write_page(noisy_cube(**changes), tmp_path / "cube.html")
    assert path.stat().st_size > 10_000
    assert started(path) == {"pins": [], "band": None}


def started(path):
    """The choice with which a page starts."""
    return json.loads(re.search(r'id="cube-data">(.*?)</script>', path.read_text())[1])["start"]


def test_maps_are_read_by_comment_name_and_unit(tmp_path):
    path = write_maps(
        tmp_path / "maps.fits",
        V_LIGHT=(3.0, "km s-1", "mean velocity, after the PSF"),
        H3=(np.arange(30.0).reshape(5, 6), "", ""),
        V_LIGHT_TRUE=(4.0, "km s-1", "mean velocity, before the PSF"),
    )
    velocity, h3, truth = read_sky_images(path, Footprint(5, 6, 0.2))
    assert (velocity.title, velocity.unit, h3.title, h3.unit) == ("mean velocity, after the PSF", "km s⁻¹", "H3", "")
    np.testing.assert_array_equal(h3.values, np.arange(30.0).reshape(5, 6))
    assert truth.values[0, 0] == 4.0
    assert [image.title for image in read_sky_images(path, Footprint(5, 6, 0.2), truth=False)] == [velocity.title, "H3"]
    with pytest.raises(ConfigError, match=r"6 x 4 spaxels, as the cube has, got 'mean velocity.*' with 6 x 5"):
        read_sky_images(path, Footprint(4, 6, 0.2))


class Elements(HTMLParser):
    """Counts the elements of a page and collects the addresses in it."""

    def reset(self):
        super().reset()
        self.names, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.addresses += [value for name, value in attrs if name in {"src", "href", "action"}]


def test_the_page_is_one_file_without_addresses_and_with_everything_escaped(tmp_path):
    words = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    meta = {"object": words, "instrument": '"&', "note_one": words, "ra": 0.0, "dec": 0.0}
    maps = (SkyImage(words, np.zeros((5, 6)), words),)
    path = write_page(noisy_cube(meta=Meta(meta)), tmp_path / "cube.html", Choice(maps=maps))
    elements = Elements()
    elements.feed(path.read_text(encoding="utf-8"))
    assert elements.names.count("script") == 5
    assert "img" not in elements.names
    assert elements.addresses == ["data:,"]
    plain = write_page(noisy_cube(), tmp_path / "plain.html", Choice(maps=(SkyImage("a", np.zeros((5, 6))),)))
    clean = Elements()
    clean.feed(plain.read_text(encoding="utf-8"))
    assert set(elements.names) == set(clean.names)
    assert "{{" not in plain.read_text(encoding="utf-8")


def test_a_large_cube_is_averaged_and_the_page_says_so(tmp_path):
    cube = noisy_cube(30, 30, 60)
    whole = write_page(cube, tmp_path / "whole.html")
    small = write_page(cube, tmp_path / "small.html", limit=90_000)
    assert "means over" not in whole.read_text()
    assert "means over 2 bins of the cube" in small.read_text()
    assert "30 x 30 spaxels, 30 bins.</p>" in small.read_text()
    assert small.stat().st_size < whole.stat().st_size - 70_000


def test_the_command(cube_file, tmp_path, capsys):
    extra = ["--spaxel", "3,2", "1,1", "--band", "4760-4770"]
    assert main(["plot", cube_file, *extra]) == 0
    assert main(["plot", cube_file, "--html", *extra]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Picture: cube_plot.png",
        "Page: cube.html (open it in a browser)",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"cube.fits", "cube_plot.png", "cube.html"}
    assert started(tmp_path / "cube.html") == {"pins": [[3, 2], [1, 1]], "band": [4760.0, 4770.0]}


def test_the_command_finds_the_maps_beside_the_cube(cube_file, tmp_path):
    names = {"V": (3.0, "km s-1", ""), "V_TRUE": (3.0, "km s-1", "")}
    write_maps(tmp_path / "cube_maps.fits", **names)
    assert main(["plot", cube_file, "--output", "a.svg"]) == 0
    assert main(["plot", cube_file, "--output", "a.html", "--html"]) == 0
    assert ">V<" in (tmp_path / "a.svg").read_text()
    assert ">V TRUE<" not in (tmp_path / "a.svg").read_text()
    assert '"title": "V TRUE"' in (tmp_path / "a.html").read_text()
    (tmp_path / "cube_maps.fits").rename(tmp_path / "other.fits")
    assert main(["plot", cube_file, "--output", "b.html", "--html", "--maps", "other.fits"]) == 0
    assert '"title": "V TRUE"' in (tmp_path / "b.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["none.fits"], ["no such cube: none.fits"]),
        (["other.fits"], ["other.fits", "a cube with three axes"]),
        (["text.fits"], ["text.fits", "a whole FITS file with a cube"]),
        (["cube.fits", "--spaxel", "6,0"], ["--spaxel: ", "(0, 0) to (5, 4)", "got (6, 0)"]),
        (["cube.fits", "--html", "--spaxel", "0,5"], ["--spaxel: ", "(0, 0) to (5, 4)", "got (0, 5)"]),
        (["cube.fits", "--spaxel", *(f"{n % 6},{n // 6}" for n in range(9))], ["at most 8 spaxels", "got 9"]),
        (["cube.fits", "--spaxel", "here"], ["expected X,Y", "'here'"]),
        (["cube.fits", "--band", "100-200"], ["--band: ", "4749.90 to 4799.90 (air)", "got 100 to 200"]),
        (["cube.fits", "--band", "4770-4760"], ["--band: expected (lowest, highest)", "got 4770 to 4760"]),
        (
            ["cube.fits", "--html", "--band", "4760.1-4760.2"],
            ["--band: expected one with the centre of a bin", "4759.90 to 4761.15"],
        ),
        (["cube.fits", "--band", "nan-nan"], ["--band: ", "a finite quantity in Angstrom", "got nan"]),
        (["cube.fits", "--output", "cube.jpg"], ["--output", ".png, .pdf, .svg", "'cube.jpg'"]),
        (["cube.fits", "--html", "--output", "cube.png"], [".html", "'cube.png'"]),
        (["cube.fits", "--output", "none/cube.png"], ["none/cube.png", "does not exist"]),
        (["cube.fits", "--html", "--output", "none/cube.html"], ["none/cube.html", "does not exist"]),
        (["cube.fits", "--output", "folder.png"], ["folder.png", "it is a folder"]),
        (["cube.fits", "--maps", "none.fits"], ["no such maps file: none.fits"]),
        (["cube.fits", "--maps", "text.fits"], ["text.fits", "cannot be read as maps"]),
        (["cube.fits", "--maps", "cube.fits"], ["2-D images of 6 x 5 spaxels", "got none"]),
    ],
)
def test_what_the_command_refuses(cube_file, tmp_path, capsys, arguments, fragments):
    fits.PrimaryHDU(np.zeros((3, 3))).writeto("other.fits")
    (tmp_path / "text.fits").write_text("text")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["plot", *arguments]) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    for fragment in fragments:
        assert fragment in errors
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("jax_settings", "without_matplotlib")
def test_without_matplotlib_there_is_the_page_but_no_picture(cube_file, tmp_path, capsys):
    assert main(["plot", cube_file]) == 2
    assert "pip install 'rubix-like[plots]'" in capsys.readouterr().err
    assert main(["plot", cube_file, "--html"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"cube.fits", "cube.html"}
