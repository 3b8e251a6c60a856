"""Maps of dust, lines before it and the attenuation curve, against sums over particles in numpy."""

import functools

import independent
import jax
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from command_line import page_titles
from dust_extinction.parameter_averages import CCM89, G23
from hlo import collectives
from observing import configuration, galaxy_of
from speclite import filters
from test_particle_dust import BALMER, DISTANCE, REDSHIFT, SCALE, known_columns  # noqa: F401

from rubix_like import ConfigError, Galaxy, Gas, Maps, Pipeline, load_ssp, make_mesh
from rubix_like.extend import resolve

SIDE, BIRTH, FOREGROUND, LUMINOSITY = 3, 0.6, 0.3, 2e-4
IMAGES = {
    "intrinsic_light": ("10**-20 erg s-1 cm-2", "light in the band that weights, before dust"),
    "a_v_light": ("mag", "mean A(V) of stars, weighted by light before dust"),
    "a_v_mass": ("mag", "mean A(V) of stars, weighted by mass now"),
    "balmer_decrement": ("", "Ha / Hb"),
    "a_v_balmer": ("mag", "A(V) by Ha / Hb and that before dust"),
}
"""Unit and title of the images of dust in a file of maps."""

EDGES = np.array([4800.0, 7050.0])
"""Of the detector, vacuum Angstrom."""


@functools.cache
def galaxy():
    """Stars and gas in 3 x 3 spaxels, a few of the stars young; z is the column of dust less 1, in arcsec."""
    dice = np.random.default_rng(8)

    def places(number):
        sky = dice.integers(-1, 2, (number, 2)) + dice.uniform(-0.4, 0.4, (number, 2))
        return np.column_stack([sky, dice.uniform(0.0, 3.0, number) - 1.0]) / SCALE

    stars = galaxy_of(
        places(70),
        initial_mass=dice.uniform(0.5, 2.0, 70) * 1e7,
        log_age=np.concatenate([dice.uniform(6.0, 6.9, 15), dice.uniform(7.5, 10.0, 55)]),
        metallicity=10 ** dice.uniform(-2.3, -1.5, 70),
    ).stars
    gas = Gas(position=places(50), velocity=np.zeros((50, 3)), mass=dice.uniform(1.0, 2.0, 50) * 1e9)
    return Galaxy(stars=stars, gas=gas)


PARTICLES = {
    "kind": "particles",
    "curve": "cardelli",
    "opacity": 1.0,
    "a_v_birth": BIRTH,
    "foreground": {"a_v": FOREGROUND, "curve": "gordon"},
}


def config_of(folder, dust=PARTICLES, paint="stars, lines", **products):
    """A run with all maps of dust, of particles behind dust of their own and of the foreground."""
    pipeline = folder / "dusty.yaml"
    fields = "dust_column" if dust.get("kind") == "particles" else ""
    pipeline.write_text(f"fields: [{fields}]\nscene: [orient, point]\npaint: [{paint}]\ncube: [psf, dust]\n")
    return configuration(
        pipeline=str(pipeline),
        dust=dust,
        lines={"wavelengths": list(BALMER), "ratios": [2.86, 1.0], "luminosity": LUMINOSITY, "velocity_dispersion": 30},
        instrument={
            "pixel_scale": 1.0,
            "fov": float(SIDE),
            "wavelength": {"start": EDGES[0] + 75, "stop": EDGES[1] - 75, "step": 150.0, "medium": "vacuum"},
        },
        products={"losvd": None, "filters": ["sdss2010-r"], "lines": True, "dust": True} | products,
    )


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    return Pipeline.from_config(config_of(tmp_path_factory.mktemp("dusty")), galaxy(), make_mesh(1))


@pytest.fixture(scope="module")
def cube(pipeline):
    return jax.tree.map(np.asarray, pipeline(galaxy()))


def own_curve(wavelength):
    return CCM89(Rv=3.1)(wavelength * units.AA)


def of_foreground(wavelength):
    """mag at wavelengths at rest in the galaxy."""
    return FOREGROUND * G23(Rv=3.1)(wavelength * (1 + REDSHIFT) * units.AA)


def in_spaxels(particles, values):
    column, row = (np.rint(x).astype(int) for x in independent.spaxel_coordinates(particles, SCALE, 1.0, SIDE, SIDE))
    image = np.zeros((SIDE, SIDE))
    np.add.at(image, (row, column), values)
    return image


@functools.cache
def starlight():
    """Wavelengths at rest, the spectra of all stars (1e-20 erg/s/cm2/Angstrom at the observer), and their A(V)."""
    table = independent.SpectrumTable.of(load_ssp("popstar"))
    stars = independent.Particles.of(galaxy().stars)
    spectra = [table.spectrum(age, metals) for age, metals in zip(stars.log_age, stars.metallicity, strict=True)]
    factor = independent.flux_of_one_lsun(DISTANCE) / (1 + REDSHIFT)
    column = np.asarray(galaxy().stars.position)[:, 2] * SCALE + 1.0
    a_v = column + BIRTH * (stars.log_age <= 7.0)
    return table.wavelength, np.array(spectra) * stars.mass[:, None] * factor, a_v


def dimmed():
    """The spectra behind all dust, where the curves hold."""
    wavelength, spectra, a_v = starlight()
    there = (wavelength > 1000) & (wavelength < 33000)
    mag = a_v[:, None] * own_curve(wavelength[there]) + of_foreground(wavelength[there])
    return wavelength[there], spectra[:, there], spectra[:, there] * 10 ** (-0.4 * mag)


def integral(wavelength, spectra, low, high, weight=None):
    """Of straight lines between nodes, with a weight by observed wavelength."""
    fine = np.union1d(np.linspace(low, high, 5001), wavelength[(wavelength > low) & (wavelength < high)])
    values = np.array([np.interp(fine, wavelength, own) for own in spectra])
    return np.trapezoid(values if weight is None else values * weight(fine * (1 + REDSHIFT)), fine, axis=1)


def test_maps_of_dust_are_sums_over_stars(cube):
    """The light behind dust is within the parts of 1 % of bands; that before it, and A(V), to rounding."""
    stars, found = independent.Particles.of(galaxy().stars), cube.maps.before
    wavelength, spectra, behind = dimmed()
    light, seen = ((1 + REDSHIFT) * integral(wavelength, own, *(EDGES / (1 + REDSHIFT))) for own in (spectra, behind))
    a_v = starlight()[2] + FOREGROUND
    bare = in_spaxels(stars, light)
    np.testing.assert_allclose(found.intrinsic_light, bare, rtol=1e-7)
    np.testing.assert_allclose(found.light, in_spaxels(stars, seen), rtol=3e-4)
    np.testing.assert_allclose(found.a_v_light, in_spaxels(stars, light * a_v) / bare, rtol=1e-7)
    mass = np.asarray(found.mass)
    assert (mass > 0).all()
    own = in_spaxels(stars, stars.mass * a_v) / in_spaxels(stars, stars.mass)
    assert np.abs(np.asarray(found.a_v_mass) - own).max() < 0.1, "masses now are up to half of those at birth"
    assert np.abs(own - found.a_v_light).max() > 0.1
    band = filters.load_filter("sdss2010-r")
    response = functools.partial(np.interp, xp=band.wavelength, fp=band.response)
    ends = band.wavelength[[0, -1]] / (1 + REDSHIFT)
    fine = np.linspace(*band.wavelength[[0, -1]], 200001)
    frequency = np.trapezoid(response(fine) * 2.99792458e18 / fine, fine)
    photons = (1 + REDSHIFT) * integral(wavelength, spectra, *ends, lambda own: response(own) * own) / frequency * 1e12
    np.testing.assert_allclose(found.intrinsic_flux[:, :, 0], in_spaxels(stars, photons), rtol=1e-5)


def test_the_attenuation_curve_is_that_of_all_light(cube):
    """Of sums over all stars, part by part; A / A(V) is 1 in V, and flatter than the curve of the dust."""
    curve = cube.maps.attenuation
    wavelength, spectra, behind = dimmed()
    places = np.asarray(curve.wavelength)
    assert (places[0] < 1010, places[-1] > 30000) == (True, True)
    assert np.diff(np.log(places)).max() < 0.0101
    totals = [own.sum(axis=0, keepdims=True) for own in (spectra, behind)]
    step = np.log(places[-1] / places[0]) / (len(places) - 1)
    for number in np.linspace(1, len(places) - 2, 40).astype(int):
        low, high = places[number] * np.exp(0.5 * step * np.array([-1, 1]))
        bare, dusty = (float(integral(wavelength, own, low, high)[0]) / (high - low) for own in totals)
        assert float(curve.intrinsic[number]) == pytest.approx(bare, rel=5e-3)
        mag = -2.5 * np.log10(dusty / bare)
        assert float(curve.a_lambda[number]) == pytest.approx(mag, abs=1e-3, rel=1.2e-3)
    a_v = -2.5 * np.log10(np.interp(5500, wavelength, behind.sum(axis=0) / spectra.sum(axis=0)))
    assert float(curve.a_v) == pytest.approx(a_v, abs=2e-3)
    blue = np.argmin(np.abs(places - 4000))
    assert 1.0 < float(curve.relative[blue]) < own_curve(4000.0) - 0.02


@pytest.mark.slow(4)
@pytest.mark.parametrize("a_v", [1.0, 0.0])
def test_an_attenuation_curve_far_into_the_ultraviolet(tmp_path, a_v):
    """Behind birth clouds alone, with a slope of their own: A(V) (lambda / 5500)^-1.3 where it is known."""
    clouds = {"kind": "particles", "curve": "power_law", "slope": -0.7, "birth_slope": -1.3, "a_v_birth": a_v}
    young = galaxy_of([[0.0, 0.0, -1.0 / SCALE]], log_age=np.array([6.5]))
    config = config_of(tmp_path, clouds, "stars", lines=False)
    curve = Pipeline.from_config(config, young, make_mesh(1))(young).maps.attenuation
    own = a_v * (np.asarray(curve.wavelength) / 5500) ** -1.3
    found = np.asarray(curve.a_lambda)
    known = np.isfinite(found)
    np.testing.assert_allclose(found[known], own[known], atol=0.012)
    assert known[own < 6].all()
    assert not known[own > 8.7].any()
    assert np.isfinite(np.asarray(curve.relative)).any() == (a_v > 0)


def test_lines_are_known_before_all_dust(cube):
    """Of the gas' own dust and of the foreground; the Balmer decrement says which."""
    gas, found = galaxy().gas, cube.maps.before
    a_v = np.asarray(gas.position)[:, 2] * SCALE + 1.0
    luminosity = LUMINOSITY * np.asarray(gas.mass) * independent.flux_of_one_lsun(DISTANCE)
    flux = {}
    for (name, wavelength), ratio in zip(BALMER.items(), (2.86, 1.0), strict=True):
        place = np.array([wavelength])
        mag = a_v * own_curve(place) + of_foreground(place)
        bare, flux[name] = (in_spaxels(gas, ratio * luminosity * share) for share in (1.0, 10 ** (-0.4 * mag)))
        np.testing.assert_allclose(found.lines[name].intrinsic_flux, bare, rtol=1e-5)
        np.testing.assert_allclose(found.lines[name].flux, flux[name], rtol=2e-5)
    decrement = flux["Ha"] / flux["Hb"]
    np.testing.assert_allclose(found.balmer_decrement, decrement, rtol=3e-5)
    excess = np.diff(own_curve(np.array(list(BALMER.values()))))[0]
    expected = 2.5 * np.log10(decrement / 2.86) / excess
    np.testing.assert_allclose(found.a_v_balmer, expected, rtol=1e-3)


def test_maps_of_dust_are_in_the_file(cube, tmp_path):
    path = cube.maps.write(tmp_path / "maps.fits")
    found = Maps.read(path)
    for which, suffix in (("after", ""), ("before", "_TRUE")):
        written, read = getattr(cube.maps, which), getattr(found, which)
        for field, (unit, _) in IMAGES.items():
            np.testing.assert_array_equal(getattr(read, field), np.asarray(getattr(written, field), np.float32))
            assert fits.getheader(path, field.upper() + suffix).get("BUNIT", "") == unit
        np.testing.assert_array_equal(read.intrinsic_flux, np.asarray(written.intrinsic_flux, np.float32))
    table = fits.getdata(path, "ATTENUATION")
    for field in ("wavelength", "intrinsic", "attenuated", "a_lambda", "relative"):
        np.testing.assert_allclose(table[field.upper()], getattr(cube.maps.attenuation, field), rtol=1e-12)
    density = "10**-20 erg s-1 cm-2 Angstrom-1"
    assert table.columns.units[:4] == ["Angstrom", density, density, "mag"]
    np.testing.assert_allclose(found.attenuation.a_lambda, cube.maps.attenuation.a_lambda)
    assert {f"{text}, after the PSF" for _, text in IMAGES.values()} < set(page_titles(cube, path))


def same(found, cube):
    pairs = ((own.maps.before, own.maps.attenuation) for own in (found, cube))
    for one, other in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.slow(8)
def test_devices_and_slabs_give_the_same_maps_with_one_sum(pipeline, cube, tmp_path):
    """Two, with that of the columns."""
    eight = Pipeline.from_config(config_of(tmp_path), galaxy(), make_mesh(8))
    compiled = eight.lower(galaxy()).compile()
    same(eight.to_cube(compiled(*eight.arguments(galaxy()))), cube)
    assert collectives(compiled.as_text()) == [("all-reduce", "ENTRY")] * 2
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], galaxy()) for half in (0, 1)]
    same(pipeline.observe_slabs(slabs), cube)


@pytest.mark.slow(3)
def test_behind_a_screen_the_curve_is_its_own(tmp_path):
    """In 32 bits; beyond 1.5 um, where it would brighten, it says nothing."""
    config = config_of(tmp_path, {"a_v": 0.7, "curve": "calzetti", "r_v": 3.1}, "stars", lines=False)
    config = config.model_copy(update={"engine": config.engine.model_copy(update={"precision": "float32"})})
    maps = Pipeline.from_config(config, galaxy(), make_mesh(1))(galaxy()).maps
    for image in (maps.after.a_v_light, maps.after.a_v_mass):
        np.testing.assert_allclose(image, 0.7, rtol=1e-6)
    curve = maps.attenuation
    assert 1.4e4 < curve.wavelength[-1] < 1.55e4
    expected = 0.7 * independent.calzetti(curve.wavelength, 3.1)
    np.testing.assert_allclose(curve.a_lambda, expected, rtol=1e-4, atol=1e-6)
    assert maps.after.balmer_decrement is None


@pytest.mark.parametrize(
    ("dust", "cube", "words"),
    [
        (None, "psf, dust", r"products\.dust: expected a run with dust, got dust: null; .*kind: particles"),
        (
            {"a_v": 0.3},
            "psf",
            r"products\.dust: expected a pipeline with the field 'dust_column' .* or the stage 'dust'",
        ),
    ],
)
def test_a_run_without_dust_is_refused(dust, cube, words, tmp_path):
    pipeline = tmp_path / "bare.yaml"
    pipeline.write_text(f"scene: [orient, point]\npaint: [stars]\ncube: [{cube}]\n")
    with pytest.raises(ConfigError, match=words):
        resolve(configuration(pipeline=str(pipeline), dust=dust, products={"dust": True}))
