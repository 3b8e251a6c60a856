"""Bundles of fibres against the figures that were published of them."""

import numpy as np
import pytest
from scipy.integrate import quad
from small import instrument_settings

from rubix_like import ConfigError
from rubix_like.extend import resource_names
from rubix_like.instrument.fibres.bundle import bundle_places, disc_overlap, fibre_places


def fibres(bundle, **changes):
    section = {"name": "manga", "psf": {"kind": "gaussian", "fwhm": 1.5}, "fibres": {"bundle": bundle, **changes}}
    spectra = {"spectra": "none"} if "spectra" not in changes else {}
    section["fibres"] |= spectra
    return instrument_settings(section).fibres


@pytest.mark.parametrize(
    ("bundle", "n_fibre", "n_exposure", "diameter", "width", "height"),
    [
        ("manga-19", 19, 3, 2.0, 12.0, 10.66),
        ("manga-127", 127, 3, 2.0, 32.0, 27.98),
        ("sami-61", 61, 7, 1.6, 14.67, 14.67),
        ("hector-169", 169, 7, 1.6, 25.1, 21.9),
        ("ppak-331", 331, 3, 2.7, 74.0, 64.0),
        ("weave-547", 547, 3, 2.6, 90.0, 78.0),
        ("virus-448", 448, 3, 1.5, 49.8, 49.98),
    ],
)
def test_bundles_have_their_published_numbers_and_sizes(bundle, n_fibre, n_exposure, diameter, width, height):
    settings = fibres(bundle)
    places = bundle_places(settings)
    assert len(places) == settings.n_fibre == n_fibre
    assert len(settings.dithers) == n_exposure
    assert settings.diameter == diameter
    size = places.max(axis=0) - places.min(axis=0) + diameter
    np.testing.assert_allclose(size, (width, height), rtol=0.02)
    away = np.hypot(*(places[:, None, :] - places[None, :, :]).transpose(2, 0, 1)) + 1e3 * np.eye(n_fibre)
    assert away.min() >= diameter


def test_manga_fibres_lie_where_the_surveys_metrology_file_has_them():
    """The inner seven of manga_simbmap_127.par of SDSS's product mangacore (raoff, decoff in arcsec)."""
    places = bundle_places(fibres("manga-127"))
    published = [(0, 0), (-1.25, -2.16506), (1.25, -2.16506), (2.5, 0), (1.25, 2.16506), (-1.25, 2.16506), (-2.5, 0)]
    for place in published:
        assert np.hypot(*(places - place).T).min() < 1e-4
    triangle = np.asarray(fibres("manga-127").dithers)
    np.testing.assert_allclose(np.hypot(*(triangle - np.roll(triangle, 1, axis=0)).T), 1.44, atol=0.01)


def test_samis_fibres_lie_on_the_circles_of_a_measured_bundle_and_cover_what_is_published():
    """Mean radii of SAMI_Fibre_xycoords_arcsec.dat (RealSim-IFS); a covering fraction of 73 % (Bryant et al. 2012)."""
    radius = np.sort(np.hypot(*bundle_places(fibres("sami-61")).T))
    circles = [radius[first:last].mean() for first, last in ((1, 7), (7, 19), (19, 37), (37, 61))]
    np.testing.assert_allclose(circles, [1.713, 3.278, 4.904, 6.535], rtol=0.05)
    np.testing.assert_allclose(61 * 0.8**2 / (radius.max() + 0.8) ** 2, 0.73, atol=0.01)


def test_exposures_leave_out_dead_fibres_and_turn_the_bundle_in_its_field():
    whole, settings = fibre_places(fibres("manga-19")), fibres("manga-19", dead=[2, 19], angle="90 deg")
    places = fibre_places(settings)
    assert len(places) == 3 * 17
    assert set(places.number[places.exposure == 2]) == set(range(1, 20)) - {2, 19}
    fibre, other = (places_of.number.tolist().index(5) for places_of in (places, whole))
    offset = np.asarray(settings.dithers[0])
    x, y = whole.x[other] - offset[0], whole.y[other] - offset[1]
    np.testing.assert_allclose([places.x[fibre] - offset[0], places.y[fibre] - offset[1]], [y, -x], atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bundle": "manga-128"}, "unknown bundle 'manga-128'; did you mean 'manga-127'"),
        ({"dead": [20]}, "dead: expected numbers from 1 to 19, got 20"),
        ({"dead": list(range(1, 20))}, "dead: expected at least one fibre that works, got all 19"),
        ({"seeing": [1.0]}, "seeing: expected one number for each of the 3 exposures (dithers), got 1"),
        ({"transparency": [0.5, 1, 2]}, "fibres.transparency[2]: expected a number <= 1, got 2"),
        ({"positions": [[0, 0]]}, "positions: expected null with arrangement hexagon"),
        ({"cube": {"method": "drizzle"}}, "drop: expected a value with method drizzle, got None"),
        ({"cube": {"drop": 0.5}}, "drop: expected null with method shepard, got 0.5"),
        ({"spectra": "sami"}, "fibres.spectra: expected 'manga' or 'none' for bins that are even in the logarithm"),
    ],
)
def test_settings_of_fibres_are_refused_in_words(changes, words):
    with pytest.raises(ConfigError) as error:
        fibres(**{"bundle": "manga-19", **changes})
    assert words in str(error.value)


def test_a_section_survives_a_round_trip_and_is_left_out_without_fibres():
    for bundle in resource_names("bundles"):
        section = {"name": "sami_blue", "psf": {"kind": "gaussian", "fwhm": 1.5}, "fibres": bundle}
        instrument = instrument_settings(section)
        assert instrument_settings(instrument.model_dump(mode="json")) == instrument
        assert instrument.fibres.source
    assert "fibres" not in instrument_settings({"name": "manga"}).model_dump()
    with pytest.raises(ConfigError, match="psf: expected the seeing in front of the fibres"):
        instrument_settings({"name": "manga", "psf": None, "fibres": "manga-19"})


def test_the_area_of_a_disc_in_a_square_is_its_integral():
    random = np.random.default_rng(2)
    for _ in range(20):
        (left, right), (bottom, top) = np.sort(random.uniform(-1, 1, (2, 2)), axis=1)

        def height(x, bottom=bottom, top=top):
            half = np.sqrt(max(0.64 - x**2, 0))
            return max(0.0, min(top, half) - max(bottom, -half))

        expected = quad(height, left, right, limit=400)[0]
        found = disc_overlap(*(np.array([side]) for side in (left, right, bottom, top)), 0.8)
        np.testing.assert_allclose(found[0], expected, atol=2e-5)
