"""Instruments: presets, overrides, field, bins and aperture against numbers worked out here."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from command_line import printed
from small import instrument_settings

from rubix_like import ConfigError, Instrument, load_config, load_instrument, run
from rubix_like.extend import WavelengthBins, resource_names, to_vacuum
from rubix_like.instrument.instrument import FLAT_PER_CORNER, inside_aperture


@pytest.mark.parametrize("name", resource_names("instruments"))
def test_every_preset_is_an_instrument(name):
    settings = instrument_settings({"name": name})
    arm = None if settings.arms is None or settings.join else next(iter(settings.arms))
    instrument = load_instrument(name, arm=arm)
    assert isinstance(instrument, Instrument)
    assert instrument.name == name
    assert instrument.inside.shape == (instrument.n_y, instrument.n_x)
    assert instrument.inside.any()
    edges, wavelength = instrument.bins.edges, instrument.bins.wavelength
    assert len(edges) == len(wavelength) + 1
    assert (np.diff(edges) > 0).all()
    assert ((edges[:-1] < wavelength) & (wavelength < edges[1:])).all()


def test_muse():
    """Nominal wide field: 300 x 300 spaxels of 0.2 arcsec, 3681 bins of 1.25 Angstrom in air."""
    muse = load_instrument("muse")
    assert (muse.n_y, muse.n_x) == (300, 300)
    assert muse.bins.medium == "air"
    assert muse.bins.n_wave == 3681
    np.testing.assert_allclose(muse.bins.wavelength[[0, 1, -1]], [4750.0, 4751.25, 9350.0])
    assert (muse.psf.kind, muse.psf.is_separable) == ("gaussian", True)
    assert muse.inside.all()


def test_manga():
    """Law et al. 2016: 4563 bins, log10 lambda from 3.5589 by 1e-4, in vacuum."""
    manga = load_instrument("manga")
    assert manga.bins.n_wave == 4563
    np.testing.assert_allclose(np.log10(manga.bins.wavelength), 3.5589 + 1e-4 * np.arange(4563), atol=1e-8)
    assert manga.bins.medium == "vacuum"
    assert not manga.inside[0, 0]
    assert manga.inside[manga.n_y // 2, manga.n_x // 2]


def test_overrides():
    instrument = load_instrument(
        "muse", fov=["2 arcsec", "1 arcsec"], pixel_scale="0.1 arcsec", psf=None, lsf=None, wavelength={"stop": 4800}
    )
    assert (instrument.n_y, instrument.n_x) == (10, 20)
    assert instrument.psf is None
    assert instrument.lsf is None
    assert instrument.bins.n_wave == 41


def test_the_instrument_of_a_run():
    config = load_config({"observation": {"redshift": 0.1}, "instrument": {"name": "muse", "fov": "3 arcsec"}})
    assert Instrument.build(config.instrument).n_x == 15


def test_linear_bins():
    bins = WavelengthBins(first=5000.0, step=2.0, n_wave=3, sampling="linear", medium="vacuum")
    np.testing.assert_allclose(bins.wavelength, [5000.0, 5002.0, 5004.0])
    np.testing.assert_allclose(bins.edges, [4999.0, 5001.0, 5003.0, 5005.0])
    np.testing.assert_array_equal(bins.to_vacuum(bins.edges), bins.edges)


def test_logarithmic_bins():
    bins = WavelengthBins(first=5000.0, step=1e-3, n_wave=3, sampling="log", medium="air")
    np.testing.assert_allclose(bins.wavelength, 5000.0 * 10 ** (1e-3 * np.arange(3)))
    np.testing.assert_allclose(np.diff(np.log10(bins.edges)), 1e-3)
    np.testing.assert_allclose(bins.edges[0], 5000.0 * 10**-5e-4)
    np.testing.assert_allclose(bins.to_vacuum(bins.edges), to_vacuum(bins.edges))


@pytest.mark.parametrize("lsf", [{"resolving_power": 0}, {"resolving_power": [1, 2]}, {"wavelength": [5000, 6000]}])
def test_line_spreads_that_say_too_little_or_nonsense(lsf):
    with pytest.raises(ConfigError, match="instrument 'muse': lsf"):
        load_instrument("muse", lsf=lsf)


# ---------------------------------------------------------------- apertures


def area(shape, width, height):
    x = np.linspace(-6, 6, 1201)
    return inside_aperture(shape, *np.meshgrid(x, x), width, height).sum() * 0.01**2


@pytest.mark.parametrize(
    ("shape", "width", "height", "expected"),
    [
        ("square", 4.0, 4.0, 16.0),
        ("rectangle", 4.0, 2.0, 8.0),
        ("circle", 4.0, 4.0, np.pi * 4),
        ("circle", 4.0, 2.0, np.pi * 2),
        ("hexagon", 4.0, 4.0 * np.sqrt(3) / 2, 1.5 * np.sqrt(3) * 4),
        ("hexagon", 8.0, 3.0, 0.75 * 8.0 * 3.0),  # regular or not: 3/4 of the rectangle around it
    ],
)
def test_areas_of_shapes(shape, width, height, expected):
    np.testing.assert_allclose(area(shape, width, height), expected, rtol=0.01)


def test_corners_of_the_hexagon_lie_east_and_west():
    x, y = np.array([[2.0, -2.0, 2.01, 0.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 0.0, 1.73, 1.74, 1.73]])
    inside = inside_aperture("hexagon", x, y, 4.0, 4.0 * FLAT_PER_CORNER)
    np.testing.assert_array_equal(inside[0], [True, True, False, True, False, True])


@pytest.mark.parametrize(
    ("aperture", "fov", "expected"),
    [
        ({"shape": "square", "size": 6}, 10, 36.0),
        ({"shape": "square"}, [10, 6], 36.0),
        ({"shape": "rectangle", "size": 6}, 10, 36.0),
        ({"shape": "rectangle", "size": ["6 arcsec", "2 arcsec"]}, 10, 12.0),
        ({"shape": "rectangle"}, [10, 6], 60.0),
        ({"shape": "circle", "size": "8 arcsec"}, 10, np.pi * 16),
        ({"shape": "circle"}, [10, 6], np.pi * 9),
        ({"shape": "hexagon", "size": 8}, 10, 1.5 * np.sqrt(3) * 16),
        ({"shape": "hexagon", "size": [8, 9]}, 10, 54.0),
        ({"shape": "hexagon"}, 10, 1.5 * np.sqrt(3) * 25),
    ],
)
def test_areas_of_apertures_in_a_field(aperture, fov, expected):
    instrument = load_instrument("muse", fov=fov, pixel_scale=0.05, aperture=aperture)
    np.testing.assert_allclose(instrument.inside.sum() * 0.05**2, expected, rtol=0.01)


def test_aperture_of_its_own_size():
    instrument = load_instrument("muse", fov="4 arcsec", aperture={"shape": "circle", "size": "2 arcsec"})
    x = (np.arange(20) - 9.5) * 0.2
    np.testing.assert_array_equal(instrument.inside, np.hypot(*np.meshgrid(x, x)) <= 1.0)


def test_califa_is_the_hexagon_of_ppak():
    """Sanchez et al. 2012: 74 x 64 arcsec; a regular hexagon of 74 arcsec from corner to corner is 64.09 across."""
    califa = load_instrument("califa_v500")
    assert (califa.n_y, califa.n_x) == (64, 74)
    np.testing.assert_allclose(califa.inside.sum(), 0.75 * 74 * 64, rtol=0.01)
    assert califa.inside[32].all()
    assert not califa.inside[0, 0]


@pytest.mark.parametrize(
    ("aperture", "words"),
    [
        ({"shape": "circle", "size": [1, 2]}, "expected one size of a circle, got 2"),
        ({"shape": "rectangle", "size": [1, 2, 3]}, "at most 2"),
        ({"shape": "hexagon", "size": 0}, r"aperture.size\[0\]: expected a number > 0, got 0"),
        ({"shape": "mask"}, "expected a file .FITS or .npy. with shape mask, got none"),
        ({"shape": "mask", "file": "a.npy", "size": 2}, "expected no size of a mask, got 1"),
        ({"shape": "circle", "file": "a.npy"}, "expected a file only with shape mask, got 'a.npy'"),
    ],
)
def test_apertures_that_contradict_themselves(aperture, words):
    with pytest.raises(ConfigError, match=words):
        load_instrument("muse", aperture=aperture)


@pytest.fixture
def mask():
    """Of 3 x 2 spaxels (x, y): the South-West one is outside."""
    return np.array([[1, 2, 0], [5, -1, 1]])


def masked(path, **keys):
    return load_instrument("muse", fov=[0.6, 0.4], aperture={"shape": "mask", "file": str(path)}, **keys).inside


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.float32])
def test_a_mask_from_a_file(mask, dtype, tmp_path):
    expected = [[True, True, False], [True, True, True]]
    np.save(tmp_path / "mask.npy", np.abs(mask).astype(dtype))
    np.testing.assert_array_equal(masked(tmp_path / "mask.npy"), expected)
    if dtype is not bool:
        image = fits.ImageHDU(np.abs(mask).astype(dtype))
        fits.HDUList([fits.PrimaryHDU(), image]).writeto(tmp_path / "mask.fits")
        np.testing.assert_array_equal(masked(tmp_path / "mask.fits"), expected)


def test_masks_that_cannot_be_used(mask, tmp_path):
    def refusal(name, content=None):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            np.save(path, content) if path.suffix == ".npy" else content.writeto(path)
        with pytest.raises(ConfigError) as error:
            masked(path)
        assert str(error.value).startswith("instrument.aperture.file: expected ")
        assert name in str(error.value)
        return str(error.value)

    assert "No such file" in refusal("absent.npy")
    assert "No such file" in refusal("absent.fits")
    assert "3 x 2 spaxels" in refusal("wide.npy", mask.T)
    assert "got 2 x 3" in refusal("wide.fits", fits.PrimaryHDU(mask.T))
    assert "got 6" in refusal("flat.npy", mask.ravel())
    assert "a 2-D image" in refusal("none.fits", fits.PrimaryHDU())
    assert "only 0" in refusal("empty.npy", 0 * mask)
    assert "finite numbers" in refusal("nan.npy", np.where(mask > 0, 1.0, np.nan))
    assert "finite numbers" in refusal("text.npy", mask.astype(str))
    assert "a readable FITS image" in refusal("no.fits", b"no FITS")
    assert "a readable FITS image" in refusal("no.npy", b"")
    assert "a readable FITS image" in refusal("no2.npy", b"something else, of some length")


def test_a_mask_is_in_the_order_of_the_cube(mask, tmp_path):
    """The first row is South and the first column East, as in the written cube: light only where the mask is not 0. The
    name of a user's instrument in the header is the stem of its file."""
    np.save(tmp_path / "mask.npy", mask)
    aperture = {"shape": "mask", "file": str(tmp_path / "mask.npy")}
    name = write(tmp_path, "my.yaml", "based_on: muse\nfov: [0.6, 0.4]\nwavelength: {start: 5000, stop: 5010}\n")
    section = {"name": name, "aperture": aperture}
    config = load_config(
        {
            "galaxy": {"reader": "synthetic", "n_stars": 100},
            "observation": {"redshift": 0.05},
            "instrument": section,
            "engine": {"method": "direct"},
            "devices": {"data": 1},
        }
    )
    cube = run(config, tmp_path / "cube.fits")
    np.testing.assert_array_equal(np.asarray(cube.flux)[:, :, 0] > 0, mask != 0)
    np.testing.assert_array_equal(cube.mask[:, :, 0], np.where(mask != 0, 0, 2))
    assert load_config(config.model_dump()) == config
    assert fits.getheader(tmp_path / "cube.fits")["INSTRUME"] == "my"


# ---------------------------------------------------------------- one preset on another


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_preset_on_another():
    muse, narrow = load_instrument("muse"), load_instrument("muse_nfm")
    assert narrow.name == "muse_nfm"
    psf = instrument_settings({"name": "muse_nfm"}).psf
    assert (narrow.n_x, psf.kind, psf.fwhm) == (300, "adaptive", None)
    assert (narrow.lsf, narrow.bins) == (muse.lsf, muse.bins)
    assert load_instrument("muse_extended").bins.first == 4650


def test_a_file_on_a_file_on_a_preset(tmp_path):
    """A path is taken from the folder of the file that states it; sections merge at every step."""
    (tmp_path / "deep").mkdir()
    write(tmp_path, "lower.yaml", "based_on: manga_61\nfov: 5 arcsec\nwavelength: {stop: 3700, medium: air}\n")
    top = write(tmp_path, "deep/top.yml", "based_on: ../lower.yaml\nlsf: {resolving_power: 2000}\naperture: null\n")
    settings = instrument_settings({"name": top, "wavelength": {"start": 3650}})
    wavelength = settings.wavelength
    assert (wavelength.start, wavelength.stop, wavelength.step, wavelength.medium) == (3650, 3700, 1e-4, "air")
    assert (wavelength.sampling, settings.fov, settings.pixel_scale) == ("log", (5.0, 5.0), 0.5)
    assert (settings.lsf.resolving_power, settings.aperture, settings.psf.fwhm) == ((2000.0,), None, 2.477)
    assert (settings.label, settings.based_on) == ("top", None)
    assert instrument_settings({"name": "lower.yaml"}).fov == (5.0, 5.0)


def test_a_section_with_a_name_of_its_own(tmp_path):
    mine = load_instrument("my.setup", based_on="muse", fov="3 arcsec")
    assert (mine.name, mine.n_x) == ("my.setup", 15)
    section = {"name": "my.setup", "based_on": "muse", "psf": {"kind": "moffat", "beta": 2.8}}
    settings = instrument_settings(section)
    assert (settings.label, settings.psf.kind, settings.psf.fwhm) == ("my.setup", "moffat", 0.8)
    path = write(tmp_path, "base.yaml", "based_on: sami_red\nfov: 4 arcsec\n")
    assert load_instrument("mine", based_on=path).n_x == 8


def test_a_record_needs_no_file(tmp_path):
    path = write(tmp_path, "mine.yaml", "based_on: muse_nfm\nfov: 1 arcsec\n")
    source = {"observation": {"redshift": 0.1}, "instrument": {"name": path}}
    config = load_config(source, overrides={"output.configuration": "record"})
    Path(path).unlink()
    again = write(tmp_path, "record.yaml", config.to_yaml())
    assert load_config(again) == config
    assert load_config(again).instrument.label == "mine"
    with pytest.raises(ConfigError, match=r"instrument.based_on=manga.*records every value"):
        load_config(again, {"instrument.based_on": "manga"})
    whole = dict(config.instrument.model_dump())
    assert instrument_settings({**whole, "based_on": "absent.yaml"}).fov == (1.0, 1.0)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"name": "mine", "based_on": "mus"}, "unknown instrument 'mus'; did you mean 'muse'"),
        ({"name": "mine", "based_on": "absent.yaml"}, "no file 'absent.yaml'"),
        ({"name": "mine", "based_on": 3}, "based_on: expected the name of a preset or the path of a .yaml file, got 3"),
        ({"name": "manga", "based_on": "muse"}, "'manga' stands for a preset or file itself; got 'muse'"),
        ({"name": "mine.yaml", "based_on": "muse"}, "'mine.yaml' stands for a preset or file itself"),
        ({"based_on": "muse"}, "expected the key 'name'"),
        ({"name": "mine", "based_on": "muse", "wavelength": {"sampling": "log"}}, "expected wavelength.step beside it"),
    ],
)
def test_bases_that_cannot_be(section, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load_config({"observation": {"redshift": 0.1}, "instrument": section})


def test_a_circle_is_named(tmp_path):
    write(tmp_path, "one.yaml", "based_on: two.yaml\n")
    write(tmp_path, "two.yaml", "based_on: three.yaml\n")
    write(tmp_path, "three.yaml", "based_on: two.yaml\n")
    with pytest.raises(ConfigError, match=r"in a circle: 'two\.yaml' -> 'three\.yaml' -> 'two\.yaml'"):
        load_instrument(str(tmp_path / "one.yaml"))


def test_a_file_in_the_middle_must_give_the_step_of_its_own_sampling(tmp_path):
    write(tmp_path, "log.yaml", "based_on: muse\nwavelength: {sampling: log}\n")
    with pytest.raises(ConfigError, match=r"expected wavelength.step beside it"):
        load_instrument(str(tmp_path / "log.yaml"), wavelength={"step": "1e-4 dex"})


def test_the_schema_allows_a_base():
    jsonschema = pytest.importorskip("jsonschema")
    section = {"name": "mine", "based_on": "muse", "aperture": {"shape": "mask", "file": "a.npy"}}
    schema = json.loads(printed("schema"))
    validator = jsonschema.validators.validator_for(schema)(schema)

    def is_valid(instrument):
        return validator.is_valid({"observation": {"redshift": 1}, "instrument": instrument})

    for lsf in ({"resolving_power": 2700}, {"resolving_power": [1, "2e3"], "wavelength": [1, 2]}, {"fwhm": "2 A"}):
        assert is_valid(section | {"lsf": lsf})
    for aperture in ({"shape": "hexagon", "size": ["74 arcsec", 64]}, {"shape": "circle", "size": 3}):
        assert is_valid({"name": "muse", "aperture": aperture})
    assert not is_valid({"name": "mine", "based_on": 3})
