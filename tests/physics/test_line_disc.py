"""The lines of a mock disc, spaxel by spaxel: ratios beside observed galaxies, velocities those of its gas."""

from itertools import pairwise
from types import SimpleNamespace

import independent
import numpy as np
import pytest
from astropy.io import fits

from rubix_like import Pipeline, load_config, load_galaxy

REDSHIFT, DISTANCE, PIXEL, SIDE = 0.01, 40.0, 10.0, 11
ANGLES = {"inclination": 45.0, "position_angle": 30.0}
WAVELENGTHS = {"Hb": 4862.69, "[O III]": 5008.24, "Ha": 6564.63, "[N II]": 6585.27}
"""Vacuum Angstrom (NIST)."""

MANGA = "manga-8080-12701-MAPS-VOR10-GAU-MILESHC.fits.gz"
MANGA_LINES = {"Hb": "Hb-4862", "[O III]": "OIII-5008", "Ha": "Ha-6564", "[N II]": "NII-6585"}


def sequence(nitrogen):
    """log [O III]/Hb of star-forming galaxies at z = 0 by log [N II]/Ha: Kewley et al. 2013, ApJ 774, 100."""
    return 0.61 / (nitrogen + 0.08) + 1.1


def distance_from_sequence(nitrogen, oxygen):
    """Dex to the nearest point of the curve."""
    places = np.linspace(-1.5, -0.2, 2601)
    return np.hypot(nitrogen[:, None] - places, oxygen[:, None] - sequence(places)).min(axis=1)


def demarcation(nitrogen):
    """The upper limit of star formation of Kauffmann et al. 2003, MNRAS 346, 1055."""
    return 0.61 / (nitrogen - 0.05) + 1.3


def ratios(fluxes):
    """log [N II]/Ha and log [O III]/Hb."""
    return np.log10(fluxes["[N II]"] / fluxes["Ha"]), np.log10(fluxes["[O III]"] / fluxes["Hb"])


@pytest.fixture(scope="module")
def disc(tmp_path_factory):
    """A cube of the gas of a disc, whose O/H falls outwards and which turns against the stars, and the galaxy."""
    path = tmp_path_factory.mktemp("lines") / "gas.yaml"
    path.write_text("scene: [orient, point]\npaint: [nebulae]\n")
    config = load_config(
        {
            "pipeline": str(path),
            "galaxy": {
                "reader": "synthetic",
                "n_stars": 1500,
                "n_gas": 1500,
                "rotation_velocity": 200,
                "gas_rotation_velocity": -150,
                "gas_metallicity": 0.03,
                "gas_metallicity_gradient": -0.08,
                "gas_scale_length": 4.0,
                "gas_metallicity_scatter": 0.05,
            },
            "nebular": {"source": "star_forming_gas", "continuum": False},
            "observation": {"redshift": REDSHIFT, "distance": f"{DISTANCE} Mpc", "align": "none", **ANGLES},
            "instrument": {
                "name": "muse",
                "fov": PIXEL * SIDE,
                "pixel_scale": PIXEL,
                "psf": None,
                "wavelength": {"start": 4880, "stop": 6680, "step": 2.0, "medium": "vacuum"},
            },
            "engine": {"method": "direct"},
        }
    )
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy)(galaxy), galaxy


def measured(cube):
    """Line -> flux of each spaxel (y, x), within 8 Angstrom of the line."""
    flux, width = np.asarray(cube.flux, dtype=np.float64), np.diff(cube.wave_edges)
    near = {name: np.abs(cube.wavelength - line * (1 + REDSHIFT)) < 8 for name, line in WAVELENGTHS.items()}
    return {name: (flux * width)[..., own].sum(axis=2) for name, own in near.items()}


def ratios_where(chosen, fluxes):
    return ratios({name: own[chosen] for name, own in fluxes.items()})


def mean_of_spaxels(particles, weight, own):
    """The mean (y, x) of the particles of each spaxel: of their v_los where `own` is None; NaN without any."""
    rotation = independent.sky_rotation(*ANGLES.values())
    position, velocity = (
        np.asarray(x, dtype=np.float64) @ rotation.T for x in (particles.position, particles.velocity)
    )
    scale = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)
    turned = SimpleNamespace(position=position)
    column, row = (np.rint(x).astype(int) for x in independent.spaxel_coordinates(turned, scale, PIXEL, SIDE, SIDE))
    inside = (column >= 0) & (column < SIDE) & (row >= 0) & (row < SIDE)
    own = velocity[:, 2] if own is None else own
    place, weight, own = (row * SIDE + column)[inside], np.asarray(weight)[inside], np.asarray(own)[inside]
    sums = [np.bincount(place, each, SIDE**2).reshape(SIDE, SIDE) for each in (weight * own, weight)]
    return np.divide(*sums, out=np.full((SIDE, SIDE), np.nan), where=sums[1] > 0)


def oxygen_of_spaxels(gas):
    """12 + log10(O/H), the mean of its gas by star formation rate: 8.76 at Z = 0.0142, as the table has it."""
    return mean_of_spaxels(gas, gas.star_formation_rate, 8.76 + np.log10(np.asarray(gas.metallicity) / 0.0142))


@pytest.mark.slow(4)
def test_spaxels_lie_on_the_sequence_of_star_forming_galaxies(disc):
    cube, galaxy = disc
    oxygen = oxygen_of_spaxels(galaxy.gas)
    chosen = (oxygen > 8.3) & (oxygen < 8.9)
    nitrogen, o_iii = ratios_where(chosen, measured(cube))
    away, above = distance_from_sequence(nitrogen, o_iii), o_iii - sequence(nitrogen)
    print(
        f"{chosen.sum()} spaxels within {away.max():.3f} dex of the sequence; log [O III]/Hb is {above.min():+.3f} to "
        f"{above.max():+.3f} dex above it, in {np.mean(np.abs(above) < 0.15):.0%} of them within 0.15"
    )
    assert chosen.sum() > 40
    assert np.ptp(oxygen[chosen]) > 0.5
    assert away.max() < 0.15
    assert np.abs(above).max() < 0.2
    assert np.all(o_iii < demarcation(nitrogen))


@pytest.mark.slow(1)
def test_a_galaxy_of_manga_lies_beside_the_mock(disc, real_data):
    """Its spaxels at 3 sigma, median by median in steps of [O III]/Hb: 0.2 dex, as much as galaxies differ."""
    with fits.open(real_data / "ifu" / MANGA) as file:
        header, own = file["EMLINE_GFLUX"].header, file["EMLINE_GFLUX"].data
        weight = file["EMLINE_GFLUX_IVAR"].data * (file["EMLINE_GFLUX_MASK"].data == 0)
    names = {header[key]: int(key[1:]) - 1 for key in header if key[0] == "C" and key[1:].isdigit()}
    places = [names[name] for name in MANGA_LINES.values()]
    good = np.all(own[places] * np.sqrt(weight[places]) > 3, axis=0)
    theirs = ratios_where(good, {name: own[names[line]] for name, line in MANGA_LINES.items()})
    fluxes = measured(disc[0])
    ours = ratios_where(fluxes["Hb"] > 0, fluxes)
    for low, high in pairwise(np.percentile(theirs[1], [10, 30, 50, 70, 90])):
        manga, mock = (np.median(x[(y > low) & (y < high)]) for x, y in (theirs, ours))
        print(f"log [O III]/Hb {low:+.2f} to {high:+.2f}: log [N II]/Ha of MaNGA {manga:+.2f}, of the mock {mock:+.2f}")
        assert mock == pytest.approx(manga, abs=0.2)


@pytest.mark.slow(1)
def test_lines_have_the_velocity_of_the_gas_which_turns_against_the_stars(disc):
    """Ha's centroid in every spaxel, against the mean of its gas by star formation, which makes almost all light."""
    cube, galaxy = disc
    flux, line = np.asarray(cube.flux, dtype=np.float64), WAVELENGTHS["Ha"] * (1 + REDSHIFT)
    near = np.abs(cube.wavelength - line) < 9
    light = (flux * np.diff(cube.wave_edges))[..., near]
    lit = light.sum(axis=2) > 0
    centre = (light @ cube.wavelength[near])[lit] / light.sum(axis=2)[lit]
    gas, stars = galaxy.gas, galaxy.stars
    expected = mean_of_spaxels(gas, gas.star_formation_rate, None)[lit]
    velocity = independent.C_KMS * np.log(centre / line)
    of_stars = mean_of_spaxels(stars, stars.initial_mass, None)[lit]
    both = np.isfinite(of_stars)
    print(f"{lit.sum()} spaxels: Ha within {np.abs(velocity - expected).max():.1f} km/s of the gas")
    assert np.ptp(expected) > 150
    assert np.corrcoef(velocity[both], of_stars[both])[0, 1] < -0.8
    np.testing.assert_allclose(velocity, expected, atol=5)
