"""Every instrument preset: published values, a run of a small galaxy, the source."""

import functools

import numpy as np
import pytest
from astropy.io import fits
from small import instrument_settings

from rubix_like import Cube, load_config, load_instrument, run
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.extend import resource, resource_names
from rubix_like.instrument.psf_images import effective_area

NAMES = resource_names("instruments")
SLOW = ("manga_19", "kcwi_bh2_small", "harmoni_j_short", "nirspec_g235h", "weave_hr_green", "virus")
"""Of presets that have another for a base, one of each instrument with four or more, and one of fibres; the others, and
LLAMAS, run with --long."""

MUSE = (3.02, 4700), (2.45, 7500)
BLUEMUSE = (3500 / 2600, 3500), (4650 / 3500, 4650), (5800 / 4350, 5800)
MANGA = (3700 / 1213, 3700), (6500 / 1892, 6500), (8500 / 2384, 8500)
PRISM = (30000 / 100, 30000), (12000 / 31, 12000), (52700 / 320, 52700)

# name: field (arcsec), shape, spaxel, start, stop, step (dex below 1e-3), medium, then (FWHM, wavelength) in Angstrom
PUBLISHED = {
    "megara_lr_b": (12.5, 11.3, None, 0.5, 4332, 5196, 0.218, "air", (4800 / 5500, 4800)),
    "megara_lr_i": (12.5, 11.3, None, 0.5, 7220, 8646, 0.36, "air", (7991 / 5500, 7991)),
    "megara_lr_r": (12.5, 11.3, None, 0.5, 6094, 7300, 0.304, "air", (6747 / 5500, 6747)),
    "megara_lr_u": (12.5, 11.3, None, 0.5, 3653, 4386, 0.185, "air", (4051 / 5500, 4051)),
    "megara_lr_v": (12.5, 11.3, None, 0.5, 5143, 6164, 0.261, "air", (5695 / 5500, 5695)),
    "megara_lr_z": (12.5, 11.3, None, 0.5, 8043, 9630, 0.4, "air", (8900 / 5500, 8900)),
    "muse": (60, 60, None, 0.2, 4750, 9350, 1.25, "air", *MUSE),
    "muse_extended": (60, 60, None, 0.2, 4650, 9350, 1.25, "air", *MUSE),
    "muse_nfm": (7.5, 7.5, None, 0.025, 4750, 9350, 1.25, "air", *MUSE),
    "muse_wfm_ao": (60, 60, None, 0.2, 4750, 9350, 1.25, "air", *MUSE),
    "bluemuse": (60, 60, None, 0.2, 3500, 5800, 0.66, "air", *BLUEMUSE),
    "manga_19": (12.5, 12.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_37": (17.5, 17.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_61": (22.5, 22.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_91": (27.5, 27.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga": (32.5, 32.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_fibres": (32.5, 32.5, None, 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_arms": (32.5, 32.5, "hexagon", 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "manga_arms_fibres": (32.5, 32.5, None, 0.5, 3622, 10354, 1e-4, "vacuum", *MANGA),
    "sami": (15, 15, "circle", 0.5, 3750, 5750, 1.05, "air", (2.65, 4800)),
    "sami_fibres": (16, 16, None, 0.5, 3750, 5750, 1.05, "air", (2.65, 4800)),
    "hector": (27, 27, "hexagon", 0.5, 3720, 5910, 0.53, "air", (1.3, 4800)),
    "weave_lr": (90, 78, "hexagon", 0.5, 3660, 6060, 0.30, "air", (4860 / 2500, 4860)),
    "llamas": (35, 34.3, None, 0.7, 3500, 4800, 0.635, "air", (4200 / 2200, 4200)),
    "llamas_blue": (35, 34.3, None, 0.7, 3500, 4800, 0.635, "air", (4200 / 2200, 4200)),
    "llamas_green": (35, 34.3, None, 0.7, 4800, 6900, 1.025, "air", (6000 / 2200, 6000)),
    "llamas_red": (35, 34.3, None, 0.7, 6900, 9750, 1.392, "air", (8000 / 2200, 8000)),
    "virus": (52, 52, None, 0.5, 3469, 5541, 2.0, "vacuum", (5.6, 4500)),
    "sami_blue_fibres": (16, 16, None, 0.5, 3750, 5750, 1.05, "air", (2.65, 4800)),
    "sami_red_fibres": (16, 16, None, 0.5, 6300, 7400, 0.60, "air", (1.61, 6850)),
    "califa_v500_fibres": (82, 74, None, 1, 3745, 7500, 2.0, "air", (6.0, 5000)),
    "sami_blue": (15, 15, "circle", 0.5, 3750, 5750, 1.05, "air", (2.65, 4800)),
    "sami_red": (15, 15, "circle", 0.5, 6300, 7400, 0.60, "air", (1.61, 6850)),
    "califa_v500": (74, 64, "hexagon", 1, 3745, 7500, 2.0, "air", (6.0, 5000)),
    "califa_v1200": (74, 64, "hexagon", 1, 3650, 4840, 0.7, "air", (2.3, 4500)),
    "hector_blue": (27, 27, "hexagon", 0.5, 3720, 5910, 0.53, "air", (1.3, 4800)),
    "hector_red": (27, 27, "hexagon", 0.5, 5830, 7760, 0.47, "air", (1.3, 6800)),
    "kcwi_bl_large": (33, 20, None, 1.35, 3500, 5600, 0.5, "vacuum", (4550 / 900, 4550)),
    "kcwi_bl_medium": (16.5, 20, None, 0.69, 3500, 5600, 0.5, "vacuum", (4550 / 1800, 4550)),
    "kcwi_bl_small": (8.25, 20, None, 0.35, 3500, 5600, 0.25, "vacuum", (4550 / 3600, 4550)),
    "kcwi_bm_large": (33, 20, None, 1.35, 3500, 5500, 0.25, "vacuum", (4500 / 2000, 4500)),
    "kcwi_bm_medium": (16.5, 20, None, 0.69, 3500, 5500, 0.25, "vacuum", (4500 / 4000, 4500)),
    "kcwi_bm_small": (8.25, 20, None, 0.35, 3500, 5500, 0.125, "vacuum", (4500 / 8000, 4500)),
    "kcwi_bh2_large": (33, 20, None, 1.35, 4000, 4800, 0.125, "vacuum", (4400 / 4500, 4400)),
    "kcwi_bh2_medium": (16.5, 20, None, 0.69, 4000, 4800, 0.125, "vacuum", (4400 / 9000, 4400)),
    "kcwi_bh2_small": (8.25, 20, None, 0.35, 4000, 4800, 0.0625, "vacuum", (4400 / 18000, 4400)),
    "weave_lr_blue": (90, 78, "hexagon", 0.5, 3660, 6060, 0.30, "air", (4860 / 2500, 4860)),
    "weave_lr_red": (90, 78, "hexagon", 0.5, 5790, 9590, 0.48, "air", (7690 / 2500, 7690)),
    "weave_hr_blue": (90, 78, "hexagon", 0.5, 4040, 4650, 0.076, "air", (4345 / 10000, 4345)),
    "weave_hr_green": (90, 78, "hexagon", 0.5, 4730, 5450, 0.090, "air", (5090 / 10000, 5090)),
    "weave_hr_red": (90, 78, "hexagon", 0.5, 5950, 6850, 0.11, "air", (6400 / 10000, 6400)),
    "nirspec_prism": (3, 3, None, 0.1, 6000, 53000, 50, "vacuum", *PRISM),
    "nirspec_prism_uneven": (3, 3, None, 0.1, 6000, 53000, None, "vacuum", *PRISM),
    "nirspec_g140m_f070lp": (3, 3, None, 0.1, 7000, 12700, 6.36, "vacuum", (14, 14000)),
    "nirspec_g140m_f100lp": (3, 3, None, 0.1, 9700, 18900, 6.36, "vacuum", (14, 14000)),
    "nirspec_g235m": (3, 3, None, 0.1, 16600, 31700, 10.6, "vacuum", (23.5, 23500)),
    "nirspec_g395m": (3, 3, None, 0.1, 28700, 52700, 17.9, "vacuum", (39.5, 39500)),
    "nirspec_g140h_f070lp": (3, 3, None, 0.1, 8100, 12700, 2.35, "vacuum", (14000 / 2700, 14000)),
    "nirspec_g140h_f100lp": (3, 3, None, 0.1, 9700, 18900, 2.35, "vacuum", (14000 / 2700, 14000)),
    "nirspec_g235h": (3, 3, None, 0.1, 16600, 31700, 3.96, "vacuum", (23500 / 2700, 23500)),
    "nirspec_g395h": (3, 3, None, 0.1, 28700, 52700, 6.65, "vacuum", (39500 / 2700, 39500)),
}


def harmoni(start, stop, resolving_power):
    """Constant width: the resolving power at the middle; 2.2 bins per resolution element."""
    middle = (start + stop) / 2
    fwhm = middle / resolving_power
    return (4.08, 3.04, None, 0.02, start, stop, fwhm / 2.2, "vacuum", (fwhm, middle))


PUBLISHED |= {
    "harmoni_vr": harmoni(4580, 8200, 3100),
    "harmoni_izj": harmoni(8110, 13690, 3300),
    "harmoni_hk": harmoni(14500, 24500, 3300),
    "harmoni_iz": harmoni(8300, 10500, 7100),
    "harmoni_j": harmoni(10460, 13240, 7100),
    "harmoni_h": harmoni(14350, 18150, 7100),
    "harmoni_k": harmoni(19510, 24690, 7100),
    "harmoni_z_high": harmoni(8280, 9020, 17400),
    "harmoni_j_short": harmoni(10120, 11020, 17400),
    "harmoni_j_long": harmoni(10980, 11890, 17400),
    "harmoni_h_high": harmoni(15380, 16780, 17400),
    "harmoni_k_short": harmoni(20170, 22010, 17400),
    "harmoni_k_long": harmoni(21990, 24000, 17400),
}


@functools.cache
def checked(name):
    """The preset, alone in the section `instrument`."""
    return instrument_settings({"name": name})


def test_every_preset_has_published_values():
    assert set(PUBLISHED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_the_published_instrument(name):
    """Field, grid and medium as published, the declared line spread within 3 % of the published figures; the source is
    cited, and whether the line spread includes the bin is explained."""
    check_sampling(name)
    check_texts(name)
    width, height, shape, spaxel, start, stop, step, medium, *resolution = PUBLISHED[name]
    preset = checked(name)
    wavelength = preset.wavelength
    np.testing.assert_allclose(preset.fov, (width, height), rtol=0.02)
    assert (preset.aperture.shape if preset.aperture else None) == shape
    assert preset.pixel_scale == spaxel
    if step is None:
        centres = wavelength.centre_values
        np.testing.assert_allclose(centres[[0, -1]], (start, stop), rtol=2e-3)
        width = instrument_fwhm(preset.lsf, centres) / np.diff(wavelength.edge_values)
        np.testing.assert_allclose(width, 2.2, rtol=0.02)
        assert (wavelength.medium, wavelength.sampling) == (medium, "table")
    else:
        np.testing.assert_allclose((wavelength.start, wavelength.stop), (start, stop), rtol=2e-4)
        np.testing.assert_allclose(wavelength.step, step, rtol=0.02)
        assert (wavelength.medium, wavelength.sampling) == (medium, "log" if step < 1e-3 else "linear")
    fwhm, at = np.array(resolution, dtype=float).T
    np.testing.assert_allclose(instrument_fwhm(preset.lsf, at), fwhm, rtol=0.03)


def check_sampling(name):
    """A resolution element has at least 1.5 bins; a PSF is not below half a spaxel (a slicer's) nor above 3 arcsec."""
    preset = checked(name)
    wave = preset.wavelength
    width = instrument_fwhm(preset.lsf, np.array([wave.start, wave.stop]))
    edges = load_instrument(name, **first_arm(name)).bins.edges
    assert (width / np.diff(edges)[[0, -1]] > 1.5).all()
    if preset.psf.is_profile:
        assert 0.5 * preset.pixel_scale < preset.psf.narrowest <= preset.psf.width_table[0].max() < 3.0
    else:
        assert 0.5 * preset.pixel_scale < np.sqrt(effective_area(preset.psf.optics, wave.stop)) < 3.0


def check_texts(name):
    """A file that states an lsf says whether the bin is part of it, and why: in that line or in the one above."""
    preset = checked(name)
    assert any(word in preset.source for word in ("et al.", "User Manual", "https://github.com/"))
    assert preset.source.isascii()
    assert preset.telescope
    assert 0 < len(preset.description) <= 68  # fits a FITS card
    lines = resource("instruments", name).read_text().splitlines()
    choices = [number for number, line in enumerate(lines) if line.startswith("  includes_pixel:")]
    assert len(choices) == lines.count("lsf:")
    for number in choices:
        assert "#" in lines[number] or lines[number - 1].lstrip().startswith("#")


def first_arm(name):
    """The setting that chooses the first arm of an instrument that has several."""
    arms = checked(name).arms
    return {} if arms is None else {"arm": next(iter(arms))}


def small_run(name, n_bins=40, **instrument):
    """A run of a tiny galaxy, a few spaxels wide, at the first published wavelength that the range holds."""
    preset = load_instrument(name, **first_arm(name))
    spaxel, wavelength = float(preset.pixel_scale), preset.bins.wavelength
    if n_bins is not None:
        at = min(PUBLISHED[name][8][1], wavelength[-1])
        first = min(max(int(np.searchsorted(wavelength, at)) - n_bins // 2, 0), len(wavelength) - n_bins)
        cut = {"start": wavelength[first], "stop": wavelength[first + n_bins - 1]}
        instrument = {"fov": [4 * spaxel, 3 * spaxel], "wavelength": cut, **first_arm(name)}
    lengths = dict.fromkeys(("disc_scale_length", "bulge_effective_radius", "turnover_radius"), spaxel)
    return {
        "galaxy": {"reader": "synthetic", "n_stars": 200, "disc_scale_height": spaxel / 10, **lengths},
        "observation": {"redshift": 0.05},
        "engine": {"method": "direct", "chunk": 200},
        "devices": {"data": 1},
        "instrument": {"name": name, **instrument},
    }


def check_cube(cube, path, name):
    flux, medium = np.asarray(cube.flux), PUBLISHED[name][7]
    assert np.isfinite(flux).all()
    inside = np.asarray(cube.mask)[:, :, 0] == 0
    assert (flux[inside] > 0).all()
    assert (flux[~inside] == 0).all()
    assert cube.medium == medium
    declared = instrument_fwhm(load_instrument(name).lsf, cube.wavelength)
    assert (cube.lsf_fwhm > 0.99 * declared).all()  # as wide as the instrument's, wider where the library is coarser
    with fits.open(path) as hdus:
        assert hdus["PRIMARY"].header["INSTRUME"] == "_".join([name, *first_arm(name).values()])
        assert hdus["PRIMARY"].header["TELESCOP"] == checked(name).telescope
        header = hdus["DATA"].header
        ending = {"linear": "", "log": "-LOG", "table": "-TAB"}[cube.sampling]
        assert header["CTYPE3"] == {"air": "AWAV", "vacuum": "WAVE"}[medium] + ending
        first = 1.0 if ending == "-TAB" else cube.wavelength[0]
        np.testing.assert_allclose(header["CRVAL3"], first, rtol=1e-9)
        np.testing.assert_allclose(header["CD2_2"] * 3600, PUBLISHED[name][3], rtol=1e-9)
        np.testing.assert_allclose(hdus["LSF"].data["FWHM"], cube.lsf_fwhm, rtol=1e-6)


def is_quick(name):
    return "based_on:" not in resource("instruments", name).read_text() and name not in ("llamas_blue", *SLOW)


def marked(name):
    return pytest.param(name, marks=() if is_quick(name) else pytest.mark.slow if name in SLOW else pytest.mark.long)


@pytest.mark.parametrize("name", [marked(name) for name in NAMES])
def test_a_small_galaxy_is_observed(name, tmp_path):
    path = tmp_path / "cube.fits"
    cube = run(load_config(small_run(name)), path)
    assert cube.flux.shape == (3, 4, 40)
    check_cube(cube, path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["manga_19", "nirspec_prism", "sami_red"])
def test_a_whole_field_and_range(name, tmp_path):
    path = tmp_path / "cube.fits"
    settings = small_run(name, n_bins=None)
    settings["galaxy"] |= {"n_stars": 2000, "disc_scale_length": 3.0}
    settings["engine"] = settings.get("engine", {}) | {"deposit": "nearest"}  # the range is tested, not the smoothing
    cube = run(load_config(settings), path)
    preset = load_instrument(name)
    assert cube.flux.shape == (preset.n_y, preset.n_x, preset.bins.n_wave)
    flux, inside = np.asarray(cube.flux), np.asarray(preset.inside)
    assert np.isfinite(flux).all()
    assert (flux[~inside] == 0).all()
    assert flux[inside].sum() > 0
    assert cube.sampling == Cube.read(path).sampling


def test_one_number_of_a_presets_optics_is_changed_alone():
    section = {"name": "muse_nfm", "psf": {"optics": {"r0": "0.2 m"}}}
    preset, changed = (instrument_settings(own).psf for own in ({"name": "muse_nfm"}, section))
    assert changed.optics == preset.optics.model_copy(update={"r0": 0.2})
    assert changed.enclosed == preset.enclosed


@pytest.mark.parametrize(
    "override",
    [
        {"instrument.wavelength": {"start": 4800, "stop": 4900, "step": 10}},
        {"instrument.wavelength": {"edges": [4800, 4810, 4830]}},
        {"instrument.psf": {"enclosed": 0.9}},
    ],
)
def test_sections_of_a_checked_configuration_are_overridden_as_those_of_its_preset(override):
    section = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "1 arcsec"}}
    assert load_config(load_config(section), override) == load_config(section, override)


def test_the_medium_of_the_preset_stays_where_bins_are_overridden():
    section = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "1 arcsec"}}
    bins = {"start": 4800, "stop": 4900, "step": 10}
    found = load_config(load_config(section), {"instrument.wavelength": bins}).instrument.wavelength
    assert (found.medium, found.n_wave) == ("air", 11)


def test_the_file_of_an_instrument_may_be_a_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("based_on: muse\nfov: 3 arcsec\n")
    found = load_config({"observation": {"redshift": 0.05}, "instrument": {"name": path}}).instrument
    assert found.n_spaxel_xy == (15, 15)
    assert load_instrument(path).n_x == 15
