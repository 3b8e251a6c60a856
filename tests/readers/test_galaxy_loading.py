import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from building import REGISTRIES
from pydantic import ValidationError
from snapshot_files import write_cutout
from snapshot_reading import reader_of

from rubix_like import (
    ConfigError,
    Galaxy,
    GalaxyInfo,
    RunConfig,
    SSPLibrary,
    load_config,
    load_galaxy,
    load_galaxy_info,
    validate,
)
from rubix_like.readers.galaxy_loading import fill_initial_mass, surviving_fraction, without_birth_mass

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 200, "seed": 3},
    "observation": {"redshift": 0.05},
    "instrument": {"name": "muse", "fov": "5 arcsec"},
}


def library(fraction):
    """A small library; `fraction` has axes (metal, age)."""
    return SSPLibrary(
        spectra=np.ones((2, 3, 4)),
        log_age=np.array([6.0, 8.0, 10.0]),
        metallicity=np.array([0.002, 0.02]),
        rest_wavelength=np.array([4000.0, 5000.0, 6000.0, 7000.0]),
        fwhm=np.full(4, 3.0),
        surviving_fraction=fraction,
        name="small",
    )


FRACTION = np.array([[1.0, 0.8, 0.6], [0.9, 0.7, 0.5]])


def synthetic(n_stars=50):
    return reader_of(reader="synthetic", n_stars=n_stars, n_gas=5).load()


@pytest.mark.parametrize("name", REGISTRIES["readers"].names())
def test_every_reader_is_a_frozen_model_of_its_keys(name):
    reader = REGISTRIES["readers"].find(name)
    assert next(iter(reader.model_fields)) == "reader"
    assert reader.model_fields["reader"].default == name
    assert reader.model_config["frozen"]
    with pytest.raises(ValidationError, match="no_such_key"):
        reader.model_validate({"reader": name, "no_such_key": 1})
    assert callable(reader.load)


@pytest.mark.parametrize("name", REGISTRIES["readers"].names())
def test_every_reader_is_found_by_its_key(name):
    disc = {
        "name": "disc",
        "mass": 1e10,
        "light": {"profile": "point"},
        "population": {"log_age": 9, "metallicity": 0.02},
    }
    section = {"reader": name} | {"auto": {"path": "cutout.hdf5"}, "components": {"components": [disc]}}.get(name, {})
    assert isinstance(load_config(RUN | {"galaxy": section}).galaxy, REGISTRIES["readers"].find(name))


def test_load_takes_a_dict_and_a_run_config():
    galaxy, info = load_galaxy(RUN), load_galaxy_info(RUN)
    assert isinstance(galaxy, Galaxy)
    assert isinstance(info, GalaxyInfo)
    config = load_config(RUN)
    assert isinstance(config, RunConfig)
    assert eqx.tree_equal(load_galaxy(config), galaxy)
    assert load_galaxy_info(config) == info
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(galaxy))


def test_load_takes_the_path_of_a_file(tmp_path):
    path = write_cutout(tmp_path / "cutout.hdf5")
    section = RUN | {"galaxy": {"path": str(path)}}
    for source in (path, str(path)):
        assert eqx.tree_equal(load_galaxy(source), load_galaxy(section))
        assert load_galaxy_info(source) == load_galaxy_info(section)
    with pytest.raises(FileNotFoundError, match=r"galaxy\.path: no file 'absent\.hdf5'"):
        load_galaxy("absent.hdf5")
    with pytest.raises(ConfigError, match=r"no file 'absent\.yaml'"):
        load_galaxy("absent.yaml")
    with pytest.raises(ConfigError, match=r"did you mean 'quickstart'\?"):
        load_galaxy("quickstar")


def test_load_without_a_galaxy_is_refused():
    with pytest.raises(ConfigError, match=r"galaxy: .*synthetic, components, auto.*illustris"):
        load_galaxy(RUN | {"galaxy": None})


def test_load_validates():
    """Bulge stars of 10^10.3 yr times the scatter would be older than any star may be."""
    settings = RUN["galaxy"] | {"oldest_log_age": 10.3, "bulge_log_age": 10.3}
    assert float(load_galaxy(RUN | {"galaxy": settings}).stars.log_age.max()) <= 10.3
    with pytest.raises(ConfigError, match="oldest_log_age"):
        load_galaxy(RUN | {"galaxy": settings | {"oldest_log_age": 11.0}})


def test_surviving_fraction_is_bilinear_and_clamped():
    """At the nodes, between them (mean in log10 Z and log10 age), and beyond each edge."""
    log_age = np.array([8.0, 9.0, 7.0, 11.0, 0.0, 9.0])
    metallicity = np.array([0.02, 0.002 * np.sqrt(10), 0.002, 0.5, 0.0, 0.02])
    expected = [0.7, 0.65, 0.9, 0.5, 1.0, 0.6]
    np.testing.assert_allclose(surviving_fraction(library(FRACTION), log_age, metallicity), expected, rtol=1e-12)


def without_masses(lacking):
    """A galaxy of 50 stars of 1e9 yr, some without a mass at birth, and its current masses."""
    galaxy, info = synthetic()
    mass = np.asarray(galaxy.stars.initial_mass)
    stars = dataclasses.replace(
        galaxy.stars,
        log_age=np.full(50, 9.0),
        metallicity=np.full(50, 0.02),
        initial_mass=np.where(lacking, np.nan, 1.5 * mass),
        mass=mass,
    )
    return Galaxy(stars=stars, gas=galaxy.gas), info, mass


@pytest.mark.parametrize(("first", "text"), [(0, ""), (20, "; 30 of 50 stars")])
def test_initial_mass_is_the_current_mass_over_the_surviving_fraction(first, text):
    """Of the stars without one, all or the last 30."""
    before, info, mass = without_masses(np.arange(50) >= first)
    galaxy, lacking = without_birth_mass(before)
    np.testing.assert_array_equal(lacking, np.arange(50) >= first)
    filled, said = fill_initial_mass(galaxy, info, lacking, library(FRACTION))
    np.testing.assert_allclose(filled.stars.initial_mass, np.where(lacking, mass / 0.6, 1.5 * mass), rtol=1e-12)
    np.testing.assert_array_equal(filled.stars.mass, mass)
    assert np.isnan(before.stars.initial_mass).sum() == 50 - first
    assert filled.gas is galaxy.gas
    assert said.initial_mass == "current mass over the surviving fraction of small" + text
    assert any("no birth masses" in note and said.initial_mass in note for note in said.notes)


def test_initial_mass_is_taken_equal_without_surviving_fractions():
    galaxy, info, mass = without_masses(np.ones(50, dtype=bool))
    galaxy, lacking = without_birth_mass(galaxy)
    filled, said = fill_initial_mass(galaxy, info, lacking, library(None))
    np.testing.assert_array_equal(filled.stars.initial_mass, mass)
    assert said.initial_mass == "taken equal to the current mass (small has no surviving fractions)"


def test_known_birth_masses_are_left_alone():
    galaxy, info, _ = without_masses(np.zeros(50, dtype=bool))
    same, lacking = without_birth_mass(galaxy)
    assert same is galaxy
    assert not lacking.any()
    bare = Galaxy(stars=dataclasses.replace(galaxy.stars, mass=None, initial_mass=np.full(50, np.nan)))
    with pytest.raises(ValueError, match=r"stars.initial_mass: expected finite values"):
        validate(without_birth_mass(bare)[0], info.universe_age)


@pytest.mark.parametrize("name", ["illustris1_z0_subhalo420815_stars", "SimSpin_example_IllustrisTNG"])
def test_real_cutouts_through_a_configuration(real_data, name):
    path = real_data / "galaxies" / f"{name}.hdf5"
    run = RUN | {"galaxy": {"reader": "illustris", "path": str(path)}}
    galaxy, info = load_galaxy(run), load_galaxy_info(run)
    assert float(galaxy.stars.metallicity.min()) >= 0
    assert info.initial_mass != "missing"
    ratio = np.asarray(galaxy.stars.initial_mass / galaxy.stars.mass)
    assert (ratio >= 1 - 1e-6).all()
    assert (ratio < 3).all()
