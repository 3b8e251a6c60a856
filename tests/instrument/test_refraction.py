"""Refraction by the atmosphere in front of fibres: against ERFA's, Filippenko's table, and integrals over discs."""

import erfa
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from fibre_sums import light_in_disc, spaxels_by_shepard
from observing import configuration, galaxy_of
from small import muse

from rubix_like import ConfigError, Pipeline, make_mesh
from rubix_like.cube.survey_files.spectra_files import write_spectra
from rubix_like.extend import to_vacuum
from rubix_like.instrument.fibres.bundle import index_of_air
from rubix_like.physics.air import refractive_index

STANDARD = (1013.25, 15.0, 0.0)
"""hPa, deg C, hPa of water."""

PSF = {"kind": "gaussian", "fwhm": 0.8, "enclosed": 0.9999}
REFRACTION = {
    "zenith_distance": [50, 60],
    "zenith_angle": [30, -70],
    "wavelength": 5000.0,
    "pressure": 743.0,
    "temperature": 11.0,
    "vapour": 5.0,
}
FIBRES = {
    "bundle": "manga-19",
    "arrangement": "hexagon",
    "rings": 1,
    "pitch": 1.2,
    "diameter": 1.0,
    "dithers": [[0, 0], [0.3, 0.2]],
    "seeing": [1.0, 1.2],
    "cube": {"method": "shepard", "sigma": 0.4, "limit": 1.2},
    "spectra": "none",
}


def test_the_index_of_standard_air():
    """That of Ciddor (1996), which converts wavelengths elsewhere: differences to 5000 Angstrom within 0.5 %."""
    wavelength = np.array([3500.0, 4000.0, 6000.0, 9000.0, 5000.0])
    found, expected = index_of_air(wavelength, *STANDARD), refractive_index(wavelength)
    np.testing.assert_allclose(found - 1, expected - 1, rtol=2e-3)
    np.testing.assert_allclose(found[:-1] - found[-1], expected[:-1] - expected[-1], rtol=5e-3)


@pytest.mark.parametrize("zenith", [30.0, 60.0])
def test_the_displacement_is_that_of_erfa(zenith):
    """Its refraction A tan z + B tan^3 z at two wavelengths, for Paranal's air: differences within 1.5 %."""
    pressure, temperature, humidity, tangent = 743.0, 11.0, 0.4, np.tan(np.deg2rad(zenith))
    saturated = 10 ** ((0.7859 + 0.03477 * temperature) / (1 + 0.00412 * temperature))  # as in erfa.refco
    wavelength = np.array([4000.0, 9000.0, 5000.0])
    index = index_of_air(wavelength, pressure, temperature, humidity * saturated)
    found = (index[:-1] - index[-1]) * tangent
    constants = np.array([erfa.refco(pressure, temperature, humidity, at * 1e-4) for at in wavelength])
    whole = constants[:, 0] * tangent + constants[:, 1] * tangent**3
    np.testing.assert_allclose(found, whole[:-1] - whole[-1], rtol=0.015)
    assert abs((found[0] * units.rad).to_value("arcsec")) > 0.3


def config(refraction=REFRACTION, **psf):
    settings = FIBRES | ({} if refraction is None else {"refraction": refraction})
    return configuration(instrument=muse(4750, 9350, 1150, fov=3.0, psf=PSF | psf, fibres=settings))


def expected(zenith_distance, zenith_angle, places, wavelength, total):
    """Light of every fibre: that of a star which every wavelength displaces towards the zenith."""
    vacuum = to_vacuum(np.append(wavelength, REFRACTION["wavelength"]))
    index = index_of_air(vacuum, REFRACTION["pressure"], REFRACTION["temperature"], REFRACTION["vapour"])
    light = np.zeros((len(places.x), len(wavelength)))
    for fibre, (x, y, exposure, seeing) in enumerate(
        zip(places.x, places.y, places.exposure - 1, places.seeing, strict=True)
    ):
        z, angle = np.deg2rad(zenith_distance[exposure]), np.deg2rad(zenith_angle[exposure])
        moved = (index[:-1] - index[-1]) * np.tan(z) * 206264.806
        for k, size in enumerate(moved):
            away = np.hypot(x - size * np.sin(angle), y - size * np.cos(angle))
            light[fibre, k] = total[k] * light_in_disc(PSF, away, 0.5, seeing)
    return light


@pytest.mark.slow
def test_fibres_collect_what_lands_on_them():
    """A star, in exposures at other zenith distances: every fibre's light in every bin within 1e-5 of the star's; light
    at 9350 Angstrom lands 0.8 arcsec from that at 4750. Without a displacement it is another by percents."""
    star = galaxy_of([(0.0, 0.0, 0.0)])
    pipeline = Pipeline.from_config(config(), star, mesh=make_mesh(1))
    found = pipeline(star)
    whole = configuration(instrument=muse(4750, 9350, 1150, fov=0.6, psf=None))
    total = np.asarray(Pipeline.from_config(whole, star, mesh=make_mesh(1))(star).flux).sum(axis=(0, 1))
    places, wavelength = found.fibres.places, found.bins.wavelength
    angles = REFRACTION["zenith_distance"], REFRACTION["zenith_angle"]
    light = expected(*angles, places, wavelength, total)
    np.testing.assert_allclose(np.asarray(found.fibres.flux) / total, light / total, atol=1e-5)
    without = expected((0, 0), (0, 0), places, wavelength, total)
    assert np.abs(without / total - light / total).max() > 0.03
    assert pipeline.frame.meta["fibre_refraction"] > 0.5
    no_angle = config(REFRACTION | {"zenith_distance": 0.0})
    straight = Pipeline.from_config(no_angle, star, mesh=make_mesh(1))(star)
    np.testing.assert_allclose(np.asarray(straight.fibres.flux) / total, without / total, atol=1e-5)


@pytest.fixture(scope="module")
def stacked(tmp_path_factory):
    """XPOS, YPOS, FLUX and WAVE of a star in the middle of a field that is turned by 30 deg, and the cube."""
    refraction = REFRACTION | {"zenith_distance": [55, 56, 57], "zenith_angle": [30, 34, 38]}
    fibres = {"bundle": "manga-19", "refraction": refraction}
    psf = {"kind": "gaussian", "fwhm": 1.5, "enclosed": 0.999}
    seen = muse(4750, 9350, 1150, fov=12.6, psf=psf, fibres=fibres)
    run = configuration(instrument=seen, observation={"field_angle": 30})
    star = galaxy_of([(0.0, 0.0, 0.0)])
    cube = Pipeline.from_config(run, star, mesh=make_mesh(1))(star)
    path = tmp_path_factory.mktemp("refraction") / "rss.fits"
    write_spectra(cube, (path,), "manga")
    with fits.open(path) as hdus:
        return {name: np.array(hdus[name].data, float) for name in ("XPOS", "YPOS", "FLUX", "WAVE")}, cube


def test_places_of_spectra_follow_refraction_as_that_of_erfa(stacked):
    """Bluer light is lifted more towards the zenith, so that a fibre sees a place further from it; XPOS is to the
    West. On the sky the zenith lies at its angle in the field and that of the field together."""
    found, cube = stacked
    saturated = 10 ** ((0.7859 + 0.03477 * 11.0) / (1 + 0.00412 * 11.0))
    constants = np.array([erfa.refco(743.0, 11.0, 5.0 / saturated, at * 1e-4) for at in to_vacuum(found["WAVE"])])
    exposure = cube.fibres.places.exposure - 1
    tangent = np.tan(np.deg2rad([55, 56, 57]))[exposure][:, None]
    angle = np.deg2rad(np.array([30, 34, 38]) + 30)[exposure][:, None]
    lifted = (constants[:, 0] * tangent + constants[:, 1] * tangent**3) * 206264.806
    more = lifted - lifted[:, [2]]
    assert more[:, 0].min() > 0.3
    for name, expected in (("XPOS", more * np.sin(angle)), ("YPOS", -more * np.cos(angle))):
        moved = found[name] - found[name][:, [2]]
        np.testing.assert_allclose(moved, expected, rtol=0.02, atol=1e-5)


def test_a_cube_at_the_places_of_its_spectra_is_corrected(stacked):
    """MaNGA's recipe by numpy at XPOS and YPOS of each wavelength: the star stays where it is, which it does not at
    places of one wavelength."""
    found, _ = stacked
    grid = 0.5 * (np.arange(25) - 12)

    def centroids(place):
        for k, flux in enumerate(found["FLUX"].T):
            east, north = (sign * found[name][:, place(k)] for sign, name in ((-1, "XPOS"), (1, "YPOS")))
            image = np.nan_to_num(spaxels_by_shepard(flux, east, north, np.pi, (grid, grid), 0.5, 0.7, 1.6))
            yield [np.sum(image * axis) / image.sum() for axis in np.meshgrid(grid, grid)]

    np.testing.assert_allclose(np.array([*centroids(lambda k: k)]), 0, atol=0.03)
    fixed = np.array([*centroids(lambda _: 2)])
    assert np.linalg.norm(fixed[0] - fixed[-1]) > 0.3


WRONG = {
    "expected angles from 0 to 75 deg, got 80": {"zenith_distance": 80},
    "expected one number, or one for each of the 2 exposures (dithers), got 3": {"zenith_angle": [1, 2, 3]},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_angles_are_refused(message):
    with pytest.raises(ConfigError) as found:
        config(REFRACTION | WRONG[message])
    assert message in str(found.value)


def test_no_spectra_are_written_where_an_exposure_has_no_file(stacked, tmp_path):
    with pytest.raises(ValueError, match="zip"):
        write_spectra(stacked[1], (tmp_path / "one.fits",), "sami")
    assert list(tmp_path.iterdir()) == []
