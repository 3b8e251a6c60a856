"""Stars without ages: drawn by a stated recipe, the same for the same row of the same file; the output says so."""

import h5py
import numpy as np
import pytest
from astropy.io import fits
from snapshot_files import write_snapshot
from snapshot_reading import open_snapshot, reader_of

from rubix_like import ConfigError, Cube, load_config, load_galaxy, load_galaxy_info, run
from rubix_like.extend import AgeRecipe
from rubix_like.physics.numbered_random import philox, uniform_by_row

N_OLD, N_YOUNG = 300, 40
A, H = 0.8, 0.7

FIELD_MAP = """
title: N-body discs
source: the tests
expansion: auto
stars:
  groups: [PartType2, PartType4]
  fields:
    position: {dataset: Coordinates, unit: kpc}
    velocity: {dataset: Velocities, unit: km / s}
    mass: {dataset: Masses, unit: 1e10 Msun}
    initial_mass: {dataset: InitialMass, unit: 1e10 Msun}
    age: {dataset: Age, unit: Gyr}
    metallicity: {dataset: Metallicity}
"""


def particles(n, seed):
    rng = np.random.default_rng(seed)
    radius = rng.exponential(3.0, n)
    angle = rng.uniform(0, 2 * np.pi, n)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.normal(0, 0.2, n)], axis=1)
    velocity = 150 * np.stack([-np.sin(angle), np.cos(angle), 0 * angle], axis=1)
    return {"Coordinates": position, "Velocities": velocity, "Masses": rng.uniform(1e-4, 2e-4, n)}


def known(n, seed):
    rng = np.random.default_rng(seed)
    columns = {"Age": rng.uniform(0.01, 1, n), "Metallicity": rng.uniform(0.01, 0.03, n)}
    return particles(n, seed) | columns


def write(folder, groups, header=None):
    """A file, and a field map beside it, as settings of a reader."""
    write_snapshot(folder / "disc.hdf5", groups, header or {"Time": 1.0})
    (folder / "discs.yaml").write_text(FIELD_MAP)
    return {"reader": str(folder / "discs.yaml"), "path": str(folder / "disc.hdf5"), "center": [0, 0, 0]}


def load(settings, **more):
    return reader_of(settings | more).load()


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_words_of_the_published_generator(counter, key, answer):
    """The known answers for philox4x32 with 10 rounds of Random123, the generator's own distribution."""
    low, high = (int(word, 16) for word in key.split())
    words = philox(np.array([[int(word, 16) for word in counter.split()]], dtype=np.uint64), high << 32 | low)
    assert " ".join(f"{word:08x}" for word in words[0]) == answer


def test_a_row_has_its_numbers_wherever_it_is_read():
    rows = np.arange(1000.0)
    whole = uniform_by_row(rows, 5)
    np.testing.assert_array_equal(np.concatenate([uniform_by_row(part, 5) for part in np.split(rows, 8)]), whole)
    order = np.random.default_rng(1).permutation(1000)
    np.testing.assert_array_equal(uniform_by_row(rows[order], 5), whole[order])
    assert not np.any(uniform_by_row(rows, 6) == whole)
    assert len(np.unique(whole)) == 2000
    assert uniform_by_row(rows[:0], 5).shape == (0, 2)


def test_a_disc_without_ages_needs_the_recipe(tmp_path):
    settings = write(tmp_path, {"PartType2": particles(N_OLD, 1)})
    with pytest.raises(ValueError, match=r"PartType2/Age is missing; PartType2 has .* set galaxy.ages: recipe"):
        load(settings)
    galaxy, info = load(settings, ages="recipe")
    age = 10 ** np.asarray(galaxy.stars.log_age) / 1e9
    assert age.min() >= 0.1
    assert age.max() <= 12
    assert info.ages == "recipe: constant 12-0.1 Gyr, seed 1; 300 of 300 stars"
    assert info.metallicities == "recipe: 0.02, -0.03 dex/kpc, scatter 0.1 dex; 300 of 300 stars"
    assert any(f"ages of stars without them in the file are drawn: {info.ages}" in note for note in info.notes)


def test_stars_with_ages_keep_them(tmp_path):
    young = known(N_YOUNG, 2)
    settings = write(tmp_path, {"PartType2": particles(N_OLD, 1), "PartType4": young})
    with pytest.raises(ValueError, match="PartType2/Age is missing"):
        load(settings)
    galaxy, info = load(settings, ages="recipe")
    np.testing.assert_allclose(10 ** np.asarray(galaxy.stars.log_age)[N_OLD:] / 1e9, young["Age"], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(galaxy.stars.metallicity)[N_OLD:], young["Metallicity"])
    assert info.ages.endswith("300 of 340 stars")
    alone = load(write(tmp_path, {"PartType2": particles(N_OLD, 1)}), ages="recipe")[0]
    np.testing.assert_array_equal(np.asarray(galaxy.stars.log_age)[:N_OLD], alone.stars.log_age)


def test_parts_of_a_file_have_the_rows_of_the_whole(tmp_path):
    """Also across groups; by which a star has the same age whatever is read with it."""
    settings = write(tmp_path, {"PartType2": particles(N_OLD, 1), "PartType4": known(N_YOUNG, 2)})
    with open_snapshot(reader_of(settings)) as snapshot:
        for start, stop in ((0, 340), (100, 250), (290, 310), (335, 400)):
            rows = snapshot.read("stars", start, stop)["row"]
            np.testing.assert_array_equal(rows, np.arange(start, min(stop, 340)))


def test_metallicities_alone_can_be_missing(tmp_path):
    young = known(N_YOUNG, 2)
    del young["Metallicity"]
    settings = write(tmp_path, {"PartType4": young})
    with pytest.raises(ValueError, match=r"PartType4/Metallicity is missing; .*galaxy.ages: recipe"):
        load(settings)
    galaxy, info = load(settings, ages={"metallicity": 0.01, "scatter": 0})
    radius = np.linalg.norm(galaxy.stars.position, axis=1)
    np.testing.assert_allclose(galaxy.stars.metallicity, 0.01 * 10 ** (-0.03 * radius), rtol=1e-12)
    assert (info.ages, info.metallicities[:6]) == ("file", "recipe")


def test_a_recipe_that_is_not_needed_is_said(tmp_path):
    settings = write(tmp_path, {"PartType4": known(N_YOUNG, 2)})
    galaxy, info = load(settings, ages="recipe")
    assert (info.ages, info.metallicities) == ("file", "file")
    assert any("galaxy.ages has no effect" in note for note in info.notes)
    np.testing.assert_array_equal(galaxy.stars.log_age, load(settings, ages="file")[0].stars.log_age)


def test_no_star_is_older_than_the_universe(tmp_path):
    """At a = 0.3 of this cosmology the Universe is 3 Gyr old."""
    header = {"Time": 0.3, "Redshift": 1 / 0.3 - 1, "HubbleParam": H, "Omega0": 0.3, "OmegaLambda": 0.7}
    settings = write(tmp_path, {"PartType2": particles(N_OLD, 1)}, header)
    galaxy, info = load(settings, ages="recipe")
    limit = info.universe_age or 0.0
    assert 2.5e9 < limit < 3.5e9
    assert 0.9 * limit < 10 ** np.asarray(galaxy.stars.log_age).max() <= limit
    assert f"constant {limit / 1e9:.4g}-0.1 Gyr" in info.ages
    with pytest.raises(
        ValueError, match=r"galaxy.ages.oldest: expected at most 2\.765 Gyr, the Universe's age .* 12 Gyr"
    ):
        load(settings, ages={"oldest": "12 Gyr"})
    with pytest.raises(ValueError, match=r"galaxy.ages.youngest: expected less than 2\.765 Gyr.* got 5 Gyr"):
        load(settings, ages={"youngest": "5 Gyr"})


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("recipes", "expected file, recipe, or a section"),
        ({"histry": "burst"}, "unknown key.*did you mean 'history'"),
        ({"history": "bursty"}, "expected one of constant, exponential, delayed, burst"),
        ({"history": "burst", "timescale": "1 Gyr"}, "the history burst is described by oldest; got timescale"),
        ({"timescale": "1 Gyr"}, "the history constant is described by oldest and youngest; got timescale"),
        ({"oldest": "3 Gyr", "youngest": "4 Gyr"}, r"oldest: expected more than youngest \(4 Gyr\), got 3"),
        ({"oldest": "50 Gyr"}, "oldest: expected a number <="),
        ({"oldest": "5 kpc"}, "expected a quantity in Gyr"),
        ({"metallicity": 1.5}, "metallicity: expected a number <= 0.1"),
        ({"metallicity_gradient": "-0.03 dex"}, "expected a quantity in dex / kpc"),
        ({"seed": -1}, "seed: expected a number >= 0"),
    ],
)
def test_recipes_with_faults(section, words):
    galaxy = {"path": "disc.hdf5", "ages": section}
    with pytest.raises(ConfigError, match=words):
        load_config({"galaxy": galaxy, "observation": {"redshift": 0.05}, "instrument": {"name": "muse"}})


def test_the_whole_recipe_is_kept_in_the_configuration():
    galaxy = {"path": "disc.hdf5", "ages": {"history": "delayed", "oldest": "9000 Myr"}}
    run = load_config({"galaxy": galaxy, "observation": {"redshift": 0.05}, "instrument": {"name": "muse"}})
    assert "9.0 Gyr" in run.to_yaml()
    assert run.galaxy.ages == AgeRecipe(history="delayed", oldest=9.0)


def test_too_many_metals_are_refused(tmp_path):
    settings = write(tmp_path, {"PartType2": particles(N_OLD, 1)})
    with pytest.raises(
        ValueError, match=r"galaxy.ages.metallicity_gradient: expected metal mass fractions of at most 1"
    ):
        load(settings, ages={"metallicity_gradient": 1})


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A run to a cube of a file without ages, velocities, masses at birth and smoothing lengths."""
    folder = tmp_path_factory.mktemp("drawn")
    columns = particles(N_OLD, 1)
    del columns["Velocities"]
    galaxy = write(folder, {"PartType2": columns}) | {"ages": {"history": "delayed"}, "velocities": "zero"}
    config = {
        "galaxy": galaxy,
        "observation": {"redshift": 0.05, "inclination": "45 deg"},
        "instrument": {
            "name": "muse",
            "fov": "3 arcsec",
            "wavelength": {"start": 5000, "stop": 5005},
            "psf": None,
            "lsf": None,
        },
        "engine": {"deposit": "smoothed", "smoothing": {"largest": 0.1}, "method": "direct"},
        "devices": {"data": 1},
    }
    return run(config, folder / "cube.fits"), folder


ORIGINS = {
    "GALAGES": ("galaxy_ages", "recipe: delayed 12-0.1 Gyr, timescale 3 Gyr, seed 1; 300 of 300 stars"),
    "GALMETAL": ("galaxy_metallicities", "recipe: 0.02, -0.03 dex/kpc, scatter 0.1 dex; 300 of 300 stars"),
    "GALVELOC": ("galaxy_velocities", "zero"),
    "GALHSML": ("galaxy_smoothing_length", "distance to neighbour 32; 300 of 300 stars"),
}


def test_the_output_says_what_was_drawn(drawn):
    """In the cards of FITS files and, for every layout, in the entries of the cube, with a note each."""
    cube, folder = drawn
    header = fits.getheader(folder / "cube.fits")
    cube.write(folder / "cube.h5")
    for card, (key, words) in ORIGINS.items():
        assert header[card] == words
        assert Cube.read(folder / "cube.fits").meta[key] == words
        assert Cube.read(folder / "cube.h5").meta[key] == words
    notes = " ".join(str(value) for key, value in cube.meta.items() if key.startswith("note_"))
    for words in ("ages of stars", "metallicities of stars", "velocities set to zero", "smoothing lengths of stars"):
        assert words in notes
    assert "the file has no birth masses" in notes
    assert "not used" not in notes


def test_a_cube_without_motions(drawn):
    cube, _ = drawn
    light = np.asarray(cube.flux).sum(axis=2) > 0
    assert light.sum() > 100
    np.testing.assert_array_equal(np.asarray(cube.mean_v_los)[light], 0)


def real_run(path, **keys):
    """What a run gets of a real file, with deposit `smoothed`."""
    galaxy = {"path": str(path), **keys}
    sections = {"observation": {"redshift": 0.02}, "instrument": {"name": "muse"}, "engine": {"deposit": "smoothed"}}
    config = load_config(sections | {"galaxy": galaxy})
    return load_galaxy(config), load_galaxy_info(config)


def test_a_real_n_body_disc(real_data):
    path = real_data / "galaxies" / "SimSpin_example_HDF5.hdf5"
    with pytest.raises(ValueError, match=r"set galaxy.ages: recipe"):
        real_run(path)
    galaxy, info = real_run(path, ages="recipe")
    with h5py.File(path) as file:
        mass = file["PartType2/Masses"][()].sum() * 1e10
    assert np.asarray(galaxy.stars.mass, dtype=float).sum() == pytest.approx(mass, rel=1e-6)
    assert info.ages.endswith("2000 of 2000 stars")
    assert info.smoothing_length.endswith("2000 of 2000 stars")
    age = 10 ** (np.asarray(galaxy.stars.log_age) - 9)
    assert age.mean() == pytest.approx(6.05, abs=4 * 11.9 / np.sqrt(12 * 2000))


def test_a_real_disc_of_old_and_new_stars(real_data):
    """GIZMO: type 2 was there from the start, type 4 was formed (times in 0.978 Gyr, kpc / (km/s))."""
    path = real_data / "galaxies" / "gizmo_isolated_C16.hdf5"
    with pytest.raises(ValueError, match=r"PartType2/StellarFormationTime is missing; .*galaxy.ages: recipe"):
        real_run(path)
    galaxy, info = real_run(path, ages="recipe")
    with h5py.File(path) as file:
        young = file["Header"].attrs["Time"] - file["PartType4/StellarFormationTime"][()]
        metals = file["PartType4/Metallicity"][:, 0]
    assert info.ages.endswith("4040 of 4553 stars")
    log_age = np.asarray(galaxy.stars.log_age)
    np.testing.assert_allclose(log_age[:513], np.log10(np.maximum(young * 0.9777922e9, 1)), atol=1e-4)
    np.testing.assert_allclose(np.asarray(galaxy.stars.metallicity)[:513], metals, rtol=1e-6)
    assert log_age[513:].min() >= 8


def test_real_kernels_that_blur_the_galaxy(real_data):
    """EAGLE's median of 18.7 kpc against a half-mass radius of 2.5 kpc."""
    _, info = real_run(real_data / "galaxies" / "EAGLE_snap28_G92_9_full7524.hdf5")
    assert info.smoothing_length == "distance to neighbour 32; 7524 of 7524 stars"
    assert any("median, 18.7 kpc, is above the half-mass radius of 2.5" in note for note in info.notes)


def test_a_real_catalogue_without_velocities(real_data):
    path = real_data / "galaxies" / "camels_CV_10gal.hdf5"
    with pytest.raises(ValueError, match=r"set galaxy.velocities: zero"):
        real_run(path)
    galaxy, info = real_run(path, velocities="zero")
    assert (info.velocities, info.ages, np.abs(galaxy.stars.velocity).max()) == ("zero", "file", 0)
