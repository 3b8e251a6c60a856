"""The night sky: embedded spectra, own tables, means over bins."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.table import Table
from small import exposure_settings

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.config.sections.noise import find_sky
from rubix_like.extend import resource, resource_names
from rubix_like.instrument.sky import bin_means, load_sky

README = Path(__file__).resolve().parents[2] / "data" / "README.md"


def write(path, **columns):
    Table(columns).write(path)
    return str(path)


def test_the_embedded_skies_are_those_of_the_readme():
    assert resource_names("skies") == ("bright", "dark", "infrared")
    for name in resource_names("skies"):
        checksum = hashlib.sha256(resource("skies", name).read_bytes()).hexdigest()
        assert checksum in README.read_text(), name


def test_a_dark_sky_has_the_known_brightness():
    """V = 21.8 mag/arcsec2 (Patat 2003, A&A 400, 1183: 21.6 at Paranal) and the line of [OI] where it belongs."""
    sky = load_sky("dark")
    assert sky.wavelength[0] < 3150
    assert sky.wavelength[-1] > 9990
    in_v = (sky.wavelength > 5050) & (sky.wavelength < 5950)
    photons = sky.emission * units.photon / (units.s * units.m**2 * units.um)
    energy = photons.to_value(
        "erg / (s cm2 Angstrom)", equivalencies=units.spectral_density(sky.wavelength * units.Angstrom)
    )
    assert -2.5 * np.log10(energy[in_v].mean() / 3.63e-9) == pytest.approx(21.7, abs=0.3)
    green = np.abs(sky.wavelength - 5578.9) < 20
    assert sky.wavelength[green][sky.emission[green].argmax()] == pytest.approx(5578.9, abs=1.25)
    assert np.all((sky.transmission > 0) & (sky.transmission <= 1))


def test_the_infrared_sky_has_the_atmospheres_bands_and_agrees_with_the_dark_one():
    """Water makes the air opaque between the bands H and K; lines of OH are those of the dark sky, another model and
    another site, which also is at airmass 1 and not 1.1."""
    sky, dark = load_sky("infrared"), load_sky("dark")
    np.testing.assert_allclose(sky.wavelength[[0, -1]], [8000, 24990])
    opaque = (sky.wavelength > 18300) & (sky.wavelength < 18700)
    window = (sky.wavelength > 21500) & (sky.wavelength < 22500)
    assert sky.transmission[opaque].mean() < 0.5
    assert sky.transmission[window].mean() > 0.9
    both = (sky.wavelength > 8100) & (sky.wavelength < 9000)
    known = np.interp(sky.wavelength[both], dark.wavelength, dark.emission)
    assert sky.emission[both].mean() == pytest.approx(known.mean(), rel=0.3)
    smooth = [np.convolve(spectrum, np.ones(9) / 9, "valid") for spectrum in (sky.emission[both], known)]
    assert np.corrcoef(*smooth)[0, 1] > 0.95


def test_moonlight_is_bluer_than_the_dark_sky():
    dark, bright = load_sky("dark"), load_sky("bright")
    moon = bright.emission - np.interp(bright.wavelength, dark.wavelength, dark.emission)
    assert np.all(moon > 0)
    blue, red = (np.abs(bright.wavelength - middle) < 200 for middle in (4400, 9000))
    energy = moon / bright.wavelength
    assert energy[blue].mean() > 3 * energy[red].mean()
    np.testing.assert_allclose(
        bright.transmission, np.interp(bright.wavelength, dark.wavelength, dark.transmission), rtol=1e-6
    )


def test_means_over_bins_are_exact():
    """Of a broken line, by hand: 0 at 0, 2 at 1, 2 at 3, and constant beyond."""
    x, y = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 2.0])
    np.testing.assert_allclose(bin_means(x, y, np.array([0.0, 1.0, 2.0])), [1.0, 2.0])
    np.testing.assert_allclose(bin_means(x, y, np.array([0.5, 1.5, 5.0])), [0.5 * 1.5 + 0.5 * 2.0, 2.0])
    np.testing.assert_allclose(bin_means(x, y, np.array([-2.0, 2.0])), [(0 + 1 + 2) / 4])


@pytest.mark.parametrize("suffix", [".fits", ".fits.gz", ".ecsv"])
def test_a_table_of_ones_own(tmp_path, suffix):
    path = write(tmp_path / f"sky{suffix}", wavelength=[4000.0, 5000.0], emission=[10.0, 20.0])
    sky = load_sky(path)
    np.testing.assert_array_equal(sky.wavelength, [4000, 5000])
    np.testing.assert_array_equal(sky.emission, [10, 20])
    np.testing.assert_array_equal(sky.transmission, [1, 1])


def test_units_of_a_table_are_converted(tmp_path):
    energy = [1e-17, 2e-17] * units.Unit("erg / (s cm2 Angstrom arcsec2)")
    path = write(
        tmp_path / "sky.ecsv",
        wavelength=[0.4, 0.5] * units.um,
        emission=energy,
        transmission=[90, 80] * units.percent,
    )
    sky = load_sky(path)
    np.testing.assert_allclose(sky.wavelength, [4000, 5000])
    photon_energy = 6.62607015e-27 * 2.99792458e18 / sky.wavelength  # erg
    np.testing.assert_allclose(sky.emission, energy.value / photon_energy * 1e4 * 1e4, rtol=1e-9)
    np.testing.assert_allclose(sky.transmission, [0.9, 0.8])


def test_a_table_as_skycalc_writes_it(tmp_path):
    columns = [
        fits.Column(name, "D", array=value)
        for name, value in {"lam": [400.0, 500.0], "flux": [10.0, 20.0], "trans": [0.7, 0.8]}.items()
    ]
    fits.BinTableHDU.from_columns(columns).writeto(tmp_path / "skytable.fits")
    sky = load_sky(str(tmp_path / "skytable.fits"))
    np.testing.assert_allclose(sky.wavelength, [4000, 5000])
    np.testing.assert_array_equal(sky.transmission, [0.7, 0.8])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"wavelength": [1.0, 2.0]}, "has the columns wavelength and not wavelength and emission"),
        ({"wavelength": [2.0, 1.0], "emission": [1.0, 1.0]}, "wavelengths do not increase"),
        ({"wavelength": [1.0, 2.0], "emission": [1.0, -1.0]}, "its emission is not two or more finite values >= 0"),
        ({"wavelength": [1.0, 2.0], "emission": [1.0, np.nan]}, "its emission is not two or more finite values >= 0"),
        ({"wavelength": [1.0], "emission": [1.0]}, "its wavelength is not two or more finite values"),
        ({"wavelength": [1.0, 2.0], "emission": [1.0, 1.0], "transmission": [0.5, 1.1]}, "transmission is above 1"),
        ({"wavelength": [1.0, 2.0] * units.kg, "emission": [1.0, 1.0]}, "kg"),
    ],
)
def test_a_table_that_is_none(tmp_path, columns, words):
    path = write(tmp_path / "sky.ecsv", **columns)
    with pytest.raises(
        ConfigError, match=rf"noise\.exposure\.sky: expected a table of the sky in .*{re.escape(words)}"
    ):
        load_sky(path)


def test_a_file_that_is_no_table(tmp_path):
    path = tmp_path / "sky.fits"
    path.write_text("no table")
    with pytest.raises(ConfigError, match="expected a table of the sky in"):
        load_sky(str(path))


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("sky.ecsv", b"datatype", b"data\bype", "expected YAML, but"),
        ("sky.fits", b"TTYPE2  = 'emission'", b"TTYPE2  =          1", "expected text in the card 'TTYPE2"),
    ],
)
def test_a_damaged_head_of_a_table(tmp_path, name, old, new, words):
    path = write(tmp_path / name, wavelength=[4000.0, 5000.0], emission=[1.0, 1.0])
    Path(path).write_bytes(Path(path).read_bytes().replace(old, new, 1))
    with pytest.raises(ConfigError, match=rf"expected a table of the sky in .*{words}"):
        load_sky(path)


def test_names_and_paths():
    assert find_sky("none") is None
    assert load_sky("none") is None
    with pytest.raises(ConfigError, match=r"got no file 'absent\.fits'"):
        find_sky("absent.fits")
    with pytest.raises(
        ConfigError, match=r"expected one of bright, dark, infrared, none, or a path .*did you mean 'bright'"
    ):
        find_sky("brigt")


def test_a_detector_beyond_the_sky_is_refused():
    with pytest.raises(ConfigError, match=r"covers the detector's 9000.0-12000.0 Angstrom .*got 'dark' with 3142.5"):
        load_sky("dark").on_bins(np.array([9000.0, 12000.0]))


def test_the_error_names_the_list_that_would_cover_the_detector(tmp_path):
    with pytest.raises(ConfigError, match=r"take sky: \[dark, infrared\], change instrument\.wavelength or give"):
        load_sky("dark").on_bins(np.array([9000.0, 12000.0]))
    with pytest.raises(ConfigError, match=r"got 'bright' .*; take sky: none for a telescope in space, change"):
        load_sky("bright").on_bins(np.array([9000.0, 26000.0]))
    with pytest.raises(ConfigError, match=r"telluric\.sky: .*got 'bright' .*; change instrument\.wavelength or give"):
        load_sky("bright").check_covers(np.array([9000.0, 26000.0]), "systematics.telluric.sky")
    path = write(tmp_path / "sky.ecsv", wavelength=[1000.0, 2000.0], emission=[1.0, 1.0])
    with pytest.raises(ConfigError, match=r"2000\.0; take sky: none"):  # a gap before every other one
        load_sky(path).on_bins(np.array([1500.0, 4000.0]))


@pytest.mark.parametrize("names", [("dark", "infrared"), ("infrared", "dark"), ("bright", "infrared", "dark")])
def test_a_list_of_skies_is_numpys_piecewise_join(names):
    """At random wavelengths, and its means over bins against sums over a fine grid, over the ends of the parts."""
    sky, parts = load_sky(names), [load_sky(name) for name in names]
    x = np.sort(np.random.default_rng(3).uniform(3200, 12000, 50000))
    covers = [(x >= part.wavelength[0]) & (x <= part.wavelength[-1]) for part in parts]
    for column in ("emission", "transmission", "fwhm"):
        known = [np.interp(x, part.wavelength, getattr(part, column)) for part in parts]
        np.testing.assert_allclose(np.interp(x, sky.wavelength, getattr(sky, column)), np.select(covers, known), 1e-9)
    assert sky.name == ", ".join(names)
    edges = np.array([7990.0, 8003.0, 9970.0, 9990.0, 10012.0])
    fine = np.arange(edges[0], edges[-1], 1e-3) + 5e-4
    covers = [(fine >= part.wavelength[0]) & (fine <= part.wavelength[-1]) for part in parts]
    values = np.select(covers, [np.interp(fine, part.wavelength, part.emission) for part in parts])
    inside = np.digitize(fine, edges) - 1
    means = [values[inside == number].mean() for number in range(len(edges) - 1)]
    np.testing.assert_allclose(sky.on_bins(edges)[0], means, rtol=1e-5)


def test_a_list_of_tables_fills_gaps_and_lacks_no_transmission(tmp_path):
    """The third table counts between the first two, which has no transmission: it is 1 there, and 0.5 in theirs."""
    half = {"emission": [2.0, 2.0], "transmission": [0.5, 0.5]}
    one = write(tmp_path / "one.ecsv", wavelength=[4000.0, 5000.0], **half)
    two = write(tmp_path / "two.ecsv", wavelength=[6000.0, 7000.0], **half)
    three = write(tmp_path / "three.ecsv", wavelength=[4500.0, 6500.0], emission=[5.0, 5.0])
    emission, transmission = load_sky([one, two, three]).on_bins(np.arange(4000.0, 7001.0, 500.0))
    np.testing.assert_allclose(emission, [2, 2, 5, 5, 2, 2], rtol=1e-12)
    np.testing.assert_allclose(transmission, [0.5, 0.5, 1, 1, 0.5, 0.5], rtol=1e-12)
    with pytest.raises(ConfigError, match=r"expected skies that overlap or touch, .* from 5000\.0 Angstrom"):
        load_sky([one, two])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["dark", "none"], "expected 'none' alone"),
        (["dark", "infrarde"], "did you mean 'infrared'"),
        ([], "expected text, or a list of texts, got"),
        (["dark", 3], "expected text, or a list of texts, got \\['dark', 3\\]"),
    ],
)
def test_lists_of_skies_that_are_refused(names, words):
    with pytest.raises(ValueError, match=words):
        exposure_settings(time=60, sky=names)


@pytest.mark.slow(8)
@pytest.mark.usefixtures("optimised")
def test_manga_is_exposed_over_its_whole_range_and_the_noise_is_that_of_its_variance(tmp_path):
    """chi^2 of the fibres' noise is 1, also beyond the dark sky; both names are in the header."""
    config = rl.load_config(
        "quickstart",
        {
            "galaxy.n_stars": 200,
            "engine.deposit": "nearest",
            "devices.data": 1,
            "instrument": {"name": "manga_arms_fibres", "fov": "5 arcsec", "fibres": "manga-19"},
            "noise": {
                "exposure": {"time": "15 min", "count": 3, "sky": ["dark", "infrared"]},
                "keep_truth": True,
            },
        },
    )
    cube = rl.run(config, output=tmp_path / "cube.fits")
    assert cube.wavelength[-1] > 10350
    assert fits.getheader(tmp_path / "cube.fits", 0)["SKYSPEC"] == "dark, infrared"
    spectra = cube.fibres
    square = (spectra.flux - spectra.truth) ** 2 / spectra.variance
    assert np.mean(square) == pytest.approx(1, abs=0.01)
    assert np.mean(square[:, cube.wavelength > 9999]) == pytest.approx(1, abs=0.06)
