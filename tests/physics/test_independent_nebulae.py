"""Real galaxies and their ionised gas against a numpy sum over stars and gas that takes nothing but arrays from the
package: those of the galaxies, of the SSP library, and of the refined tables of lines and continuum."""

import functools

import independent
import numpy as np
import pytest

from rubix_like import Galaxy, Gas, Pipeline, Stars, load_config, load_galaxy, load_nebular, load_ssp
from rubix_like.extend import fixed
from rubix_like.nebular.line_grid import photon_continuum, photon_lines

FILES = {
    "EAGLE": ("SimSpin_example_EAGLE.hdf5", {}, 1.0),
    "COLIBRE": ("SimSpin_example_Colibre.hdf5", {}, 0.3),
    "TNG": ("SimSpin_example_IllustrisTNG.hdf5", {}, 0.03),
    "GIZMO": ("gizmo_isolated_C16.hdf5", {"ages": "recipe"}, 1.0),
}
"""Sparse samples of galaxies of different sizes, made smaller by these factors, and a whole disc."""

REDSHIFT, DISTANCE = 0.02, 100.0
SIDE, TILE = 24, 12
"""Spaxels of 2 arcsec (about 1 kpc) of the field, and of each galaxy's part of it."""

BINS = {"start": 4930.0, "stop": 5130.0, "step": 1.25, "medium": "vacuum"}
SCALE = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)
OLDEST, LOG_U, DISPERSION = 3e7, -3.0, 50.0
PHOTONS = 1e49
"""Per second, of which a template is the light."""


@pytest.fixture(scope="module")
def field(real_data):
    """The galaxies side by side: all gas, all stars younger than 100 Myr and every fifth of the others, but for those
    that float32 could put on the other side of a spaxel's border."""
    kinds = {"stars": [], "gas": []}
    for number, (name, options, smaller) in enumerate(FILES.values()):
        path = str(real_data / "galaxies" / name)
        own = load_galaxy(config_of("stars", galaxy={"path": path, **options}))
        age = np.asarray(own.stars.log_age)
        shift = np.array([number % 2 - 0.5, number // 2 - 0.5, 0.0]) * TILE * 2.0 / SCALE
        taken = {"stars": (age < 8) | (np.arange(age.size) % 5 == 0), "gas": slice(None)}
        for kind, particles in kinds.items():
            particles.append(moved(getattr(own, kind), taken[kind], smaller, shift))
    return Galaxy(stars=joined(Stars, kinds["stars"]), gas=joined(Gas, kinds["gas"]))


FIELDS = {
    Stars: ("position", "velocity", "initial_mass", "log_age", "metallicity"),
    Gas: (
        *("position", "velocity", "mass", "metallicity"),
        *("star_formation_rate", "oxygen_fraction", "hydrogen_fraction"),
    ),
}


def moved(particles, taken, smaller, shift):
    """Arrays of some particles, by the name of the field; each keeps its distance from the borders of spaxels."""
    arrays = {name: np.asarray(getattr(particles, name), dtype=np.float64)[taken] for name in FIELDS[type(particles)]}
    arrays["position"] = smaller * arrays["position"] + shift
    place = np.stack(spaxels_of(arrays["position"]))
    far = np.min(independent.distance_to_edges(place), axis=0) > 1e-4
    return {name: values[far] for name, values in arrays.items()}


def joined(kind, galaxies):
    return kind(**{name: np.concatenate([own[name] for own in galaxies]) for name in FIELDS[kind]})


def spaxels_of(position):
    return (SIDE - 1) / 2 - position[:, 0] * SCALE / 2.0, (SIDE - 1) / 2 + position[:, 1] * SCALE / 2.0


def config_of(source, **sections):
    return load_config(
        {
            "pipeline": "nebular",
            "nebular": {"source": source, "velocity_dispersion": DISPERSION},
            "observation": {"redshift": REDSHIFT, "distance": f"{DISTANCE} Mpc", "align": "none"},
            "instrument": {
                "name": "muse",
                "fov": 2.0 * SIDE,
                "pixel_scale": 2.0,
                "psf": None,
                "lsf": None,
                "wavelength": BINS,
            },
            "engine": {"method": "basis"},
            **sections,
        }
    )


class Light:
    """Light of one particle in the bins, in Lsun: of its stars, and of the ionising photons around it."""

    def __init__(self):
        self.ssp = independent.SpectrumTable.of(load_ssp("popstar"))
        self.edges = independent.linear_edges(BINS["start"], BINS["stop"], BINS["step"])
        table = fixed(load_nebular("mappings-hii"), log_pressure=5.8)
        self.lines, self.smooth = photon_lines(table), photon_continuum(table, 5.8, 4500.0, 5500.0)
        wavelength = self.lines.wavelength * (1 + REDSHIFT)
        self.near = (wavelength > BINS["start"] - 60) & (wavelength < BINS["stop"] + 60)
        self.seen = self.ssp.cut(4500.0, 5500.0)
        self.continuum = independent.SpectrumTable(np.zeros((2, 2, 2)), [0, 1], [1, 2], self.smooth.rest_wavelength)

    def stars(self, mass, log_age, metallicity, doppler):
        return mass * self.seen.bin_light(self.seen.spectrum(log_age, metallicity), self.edges, doppler)

    def nebula(self, photons, oxygen, doppler):
        place = {"oxygen_abundance": oxygen, "log_u": LOG_U}
        lines, smooth = (self.at(templates, place) for templates in (self.lines, self.smooth))
        centre = self.lines.wavelength[self.near] * doppler
        sigma = np.hypot(self.lines.thermal[self.near], DISPERSION) / independent.C_KMS * centre
        light = independent.line_light(lines[self.near], centre, sigma, self.edges)
        return photons / PHOTONS * (light + self.continuum.bin_light(smooth, self.edges, doppler))

    @staticmethod
    def at(templates, place):
        axes = dict(zip(templates.axes.names, templates.axes.nodes, strict=True))
        return independent.look_up(axes, templates.table.reshape(*(len(own) for own in axes.values()), -1), place)


@functools.cache
def light():
    return Light()


def photons_of_stars(stars):
    """Photons per second of each, and 12 + log10(O/H) by their metals."""
    table = light().ssp
    young = np.flatnonzero(stars.log_age <= np.log10(OLDEST))
    photons = np.zeros(len(stars.log_age))
    for star in young:
        spectrum = table.spectrum(stars.log_age[star], stars.metallicity[star])
        photons[star] = stars.initial_mass[star] * independent.ionising_photons(spectrum, table.wavelength)
    return photons, 8.76 + np.log10(np.maximum(stars.metallicity, 1e-10) / 0.0142)


def photons_of_gas(gas):
    """Photons per second by the rate, and 12 + log10(O/H) by the oxygen: both from the formulae."""
    table = light().ssp
    per_rate = [independent.photons_of_rate(table, metals, OLDEST) for metals in 10**table.log_z]
    log_z = np.log10(np.maximum(gas.metallicity, 1e-10))
    oxygen = np.maximum(gas.oxygen_fraction, 1e-10) / 15.999 / (gas.hydrogen_fraction / 1.008)
    return gas.star_formation_rate * np.interp(log_z, table.log_z, per_rate), 12 + np.log10(oxygen)


def sum_by_numpy(particles, chosen, light_of):
    """The cube (y, x, wave) of what some of the particles shine, by their number and Doppler factor."""
    cube = np.zeros((SIDE, SIDE, len(light().edges) - 1))
    column, row = (np.rint(own).astype(int) for own in spaxels_of(particles.position))
    inside = (column >= 0) & (column < SIDE) & (row >= 0) & (row < SIDE)
    for one in np.flatnonzero(inside & chosen):
        doppler = (1 + REDSHIFT) * np.exp(particles.velocity[one, 2] / independent.C_KMS)
        cube[row[one], column[one]] += light_of(one, doppler)
    return cube * independent.flux_of_one_lsun(DISTANCE) / np.diff(light().edges)


@pytest.fixture(scope="module")
def starlight(field):
    stars = field.stars

    def light_of(one, doppler):
        return light().stars(stars.initial_mass[one], stars.log_age[one], stars.metallicity[one], doppler)

    return sum_by_numpy(stars, True, light_of)


@pytest.mark.slow(5)
@pytest.mark.parametrize("source", [pytest.param("stars", marks=pytest.mark.long), "star_forming_gas"])
def test_real_galaxies_shine_as_the_sum_of_stars_lines_and_continuum(field, starlight, source):
    """As a run computes them, in 32 bits: each galaxy in all to 1e-4, its spaxels to 1e-3 of its brightest voxel."""
    ionised, photons_of = (field.stars, photons_of_stars) if source == "stars" else (field.gas, photons_of_gas)
    photons, oxygen = photons_of(ionised)
    nebulae = sum_by_numpy(ionised, photons > 0, lambda one, at: light().nebula(photons[one], oxygen[one], at))
    cube = Pipeline.from_config(config_of(source), field)(field)
    assert int(cube.source_counters["nebulae"].n_particles) == (photons > 0).sum()
    found = np.asarray(cube.flux, dtype=np.float64)
    for number, name in enumerate(FILES):
        part = tuple(slice(TILE * own, TILE * (own + 1)) for own in (number // 2, 1 - number % 2))
        ours, expected = found[part], (starlight + nebulae)[part]
        total, spaxels = ours.sum() / expected.sum() - 1, np.abs(ours - expected).max() / expected.max()
        share = nebulae[part].sum() / expected.sum()
        print(f"{name}, {source}: {share:.1%} of the light is the gas', in all {total:.1e}, spaxels {spaxels:.1e}")
        assert abs(total) < 1e-4
        assert spaxels < 1e-3
        assert (share > 1e-5) == (name != {"stars": "EAGLE", "star_forming_gas": "TNG"}[source])
