"""The line ratios of a mock disc, spaxel by spaxel, against the sequence of observed star-forming galaxies."""

from itertools import pairwise

import independent
import numpy as np
import pytest
from astropy.io import fits

from rubix_like import Pipeline, load_config, load_galaxy

REDSHIFT, DISTANCE, PIXEL, SIDE = 0.01, 40.0, 10.0, 11
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
    """A cube of a face-on disc of gas whose O/H falls outwards, and its gas."""
    path = tmp_path_factory.mktemp("bpt") / "gas.yaml"
    path.write_text("scene: [orient, point]\npaint: [nebulae]\n")
    config = load_config(
        {
            "pipeline": str(path),
            "galaxy": {
                "reader": "synthetic",
                "n_stars": 10,
                "n_gas": 1500,
                "gas_metallicity": 0.03,
                "gas_metallicity_gradient": -0.08,
                "gas_scale_length": 4.0,
                "gas_metallicity_scatter": 0.05,
            },
            "nebular": {"source": "star_forming_gas", "continuum": False},
            "observation": {"redshift": REDSHIFT, "distance": f"{DISTANCE} Mpc", "align": "none"},
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
    return Pipeline.from_config(config, galaxy)(galaxy), galaxy.gas


def measured(cube):
    """Line -> flux of each spaxel (y, x), within 8 Angstrom of the line."""
    flux, width = np.asarray(cube.flux, dtype=np.float64), np.diff(cube.wave_edges)
    near = {name: np.abs(cube.wavelength - line * (1 + REDSHIFT)) < 8 for name, line in WAVELENGTHS.items()}
    return {name: (flux * width)[..., own].sum(axis=2) for name, own in near.items()}


def ratios_where(chosen, fluxes):
    return ratios({name: own[chosen] for name, own in fluxes.items()})


def oxygen_of_spaxels(gas):
    """12 + log10(O/H), the mean of its gas by star formation rate: 8.76 at Z = 0.0142, as the table has it."""
    scale = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)
    column, row = (np.rint(own).astype(int) for own in independent.spaxel_coordinates(gas, scale, PIXEL, SIDE, SIDE))
    inside = (column >= 0) & (column < SIDE) & (row >= 0) & (row < SIDE)
    place, rate = (row * SIDE + column)[inside], np.asarray(gas.star_formation_rate)[inside]
    oxygen = 8.76 + np.log10(np.asarray(gas.metallicity)[inside] / 0.0142)
    sums = [np.bincount(place, weights, SIDE**2) for weights in (rate * oxygen, rate)]
    return np.divide(*sums, out=np.zeros(SIDE**2), where=sums[1] > 0).reshape(SIDE, SIDE)


@pytest.mark.slow(4)
def test_spaxels_lie_on_the_sequence_of_star_forming_galaxies(disc):
    cube, gas = disc
    oxygen = oxygen_of_spaxels(gas)
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
