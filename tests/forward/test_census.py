"""What planning needs to know of the stars is the same whatever the parts in which they are counted."""

import dataclasses
from functools import cache
from itertools import pairwise

import equinox as eqx
import jax
import numpy as np
import pytest
from small import muse
from thread_team import ThreadTeam, run_team, values_of

import rubix_like as rl
from rubix_like import ConfigError, Galaxy, Pipeline, Stars, load_config, make_mesh, open_galaxy
from rubix_like.engine.cost import Work
from rubix_like.engine.setup import plan_motion
from rubix_like.extend import make_setup, resolve, take_census
from rubix_like.forward.census import Census
from rubix_like.forward.planning import plan_run
from rubix_like.galaxy import alignment as sample_module
from rubix_like.runtime.processes.process_group import SINGLE

SETTINGS = {
    "observation": {"redshift": 0.05, "align": "stars", "inclination": 40.0},
    "instrument": muse(5000.0, 5050.0, 1.25, fov=1.6),
    "engine": {"deposit": "smoothed", "smoothing": {"largest": 1.0}},
    "products": {"losvd": {"limit": 300.0}},
}


@cache
def config_of(**engine):
    return load_config(SETTINGS | {"engine": SETTINGS["engine"] | engine})


@cache
def resolved():
    return resolve(config_of())


@cache
def stars(n=9000, seed=1):
    """A disc; a few stars fast, wide or older than the Universe; many of one speed."""
    rng = np.random.default_rng(seed)
    velocity = rng.normal(size=(n, 3)) * [120.0, 90.0, 40.0]
    velocity[::3] = [30.0, -40.0, 120.0]
    velocity[:3] *= 8.0
    mass = rng.uniform(1e4, 3e4, n)
    return Stars(
        position=rng.normal(size=(n, 3)) * [4.0, 3.0, 0.7],
        velocity=velocity,
        initial_mass=1.5 * mass,
        log_age=np.where(rng.random(n) < 0.01, 10.2, rng.uniform(7, 10, n)),
        metallicity=rng.uniform(0.002, 0.04, n),
        mass=mass,
        smoothing_length=rng.exponential(0.4, n),
    )


def census_of(config, resolved, slabs, team=SINGLE):
    """Of slabs of stars."""
    return take_census(config, resolved, (Galaxy(stars=own) for own in slabs), team)


def cut(whole, cuts):
    """The parts between these ends."""
    return [jax.tree.map(lambda leaf, a=a, b=b: leaf[a:b], whole) for a, b in pairwise(cuts)]


def assert_same(one, two, rtol=1e-12):
    """Counts and extremes to the last bit, sums closely."""
    for name in ("n_stars", "lengths", "n_without_mass", "n_older", "n_beyond_losvd"):
        assert getattr(one, name) == getattr(two, name), name
    np.testing.assert_array_equal(one.fast.speed, two.fast.speed)
    np.testing.assert_array_equal(one.fast.light, two.fast.light)
    assert one.fast.fastest == two.fast.fastest
    for own, other in ((one.fast.total_light, two.fast.total_light), (one.sums.mass, two.sums.mass)):
        assert own == pytest.approx(other, rel=rtol)
    for own, other in zip(one.sample.in_order(), two.sample.in_order(), strict=True):
        np.testing.assert_array_equal(own, other)


def test_it_counts_what_it_says():
    own, config = stars(), config_of()
    census = census_of(config, resolve(config), [own])
    speed = np.linalg.norm(own.velocity, axis=1)
    assert (census.n_stars, census.n_without_mass) == (9000, 0)
    assert census.sums.mass == pytest.approx(own.initial_mass.sum(), rel=1e-13)
    assert census.fast.fastest == speed.max()
    np.testing.assert_array_equal(census.fast.speed, np.sort(speed)[::-1][:4097])
    assert census.fast.light.sum() < census.fast.total_light
    assert census.n_beyond_losvd == (speed > 300).sum() > 0
    assert census.n_older == (own.log_age == 10.2).sum() > 0
    assert census.lengths.widest == own.smoothing_length.max()
    setup = make_setup(config, resolve(config), census)
    assert census.lengths.n_wider == 1
    assert "1 star is smoothed with" in setup.notes[0]
    scale = 3600 * np.degrees(1.05**2 / (1e3 * setup.luminosity_distance))  # arcsec per kpc
    sigma = own.smoothing_length * config.engine.smoothing.sigma * scale
    assert census.lengths.n_wider == (sigma > 1.0).sum() > 0
    found = census.sample.in_order()
    order = np.lexsort(own.position.T)
    for name in ("position", "velocity", "mass"):  # all of so few stars
        np.testing.assert_array_equal(getattr(found, name)[np.lexsort(found.position.T)], getattr(own, name)[order])


@pytest.mark.parametrize("sample", [700, 1 << 18])
def test_any_cut_into_slabs_gives_the_same(monkeypatch, sample):
    """And any order; empty slabs count for nothing."""
    monkeypatch.setattr(sample_module, "SAMPLE_STARS", sample)
    whole = census_of(config_of(), resolved(), [stars()])
    rng = np.random.default_rng(2)
    for n_slab in (1, 3, 7):
        ends = np.sort(rng.integers(0, 9001, n_slab - 1)).tolist()
        slabs = cut(stars(), [0, *ends, 9000])
        assert_same(census_of(config_of(), resolved(), iter(slabs)), whole)
        assert_same(census_of(config_of(), resolved(), slabs[::-1]), whole)
    empty = cut(stars(), [0, 0, 4, 4, 9000, 9000])
    assert_same(census_of(config_of(), resolved(), empty), whole)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sample", [700, 1 << 18])
def test_processes_count_their_shares_and_all_know_the_whole(monkeypatch, size, sample):
    monkeypatch.setattr(sample_module, "SAMPLE_STARS", sample)
    for n in (9000, 5, 3):
        own = cut(stars(), [0, n])[0]
        whole = census_of(config_of(), resolved(), [own])

        def work(team, own=own, n=n):
            first, last = team.share(n)
            slabs = cut(own, [first, (first + last) // 2, last]) if last > first else []
            return census_of(config_of(), resolved(), slabs, team=team)

        found = values_of(run_team(size, work))
        for census in found:
            assert_same(census, whole)
            assert census.sums.mass == found[0].sums.mass


def test_of_many_stars_a_fair_sample_is_kept(monkeypatch):
    """No larger than is said, of all the stars alike; no process sends more than its part of it, and nothing where the
    axes are left as they are."""
    monkeypatch.setattr(sample_module, "SAMPLE_STARS", 3000)
    own = stars(60_000, seed=4)
    whole = census_of(config_of(), resolved(), [own]).sample
    assert (whole.n_stars, len(whole.mass)) == (60_000, pytest.approx(3000, abs=5 * np.sqrt(3000)))
    error = own.position.std(axis=0) / np.sqrt(3000)
    assert (np.abs(whole.position.mean(axis=0) - own.position.mean(axis=0)) < 4 * error).all()
    assert whole.mass.mean() == pytest.approx(own.mass.mean(), abs=4 * own.mass.std() / np.sqrt(3000))
    rows = np.flatnonzero(np.isin(own.mass, whole.mass))
    counts = np.histogram(rows, bins=20, range=(0, 60_000))[0]
    assert ((counts - 150) ** 2 / 150).sum() < 45  # chi^2 of 19 degrees of freedom: one in a thousand
    sent = []

    class Listening(ThreadTeam):
        def exchange(self, work):
            values = super().exchange(work)
            counts = (count for value in values if isinstance(value, list) for count in value)
            sent.extend(len(count.sample.mass) for count in counts if isinstance(count, Census))
            return values

    monkeypatch.setattr("thread_team.ThreadTeam", Listening)
    cuts = cut(own, [0, 20_000, 40_000, 60_000])
    values_of(run_team(3, lambda team: census_of(config_of(), resolved(), [cuts[team.number]], team)))
    assert max(sent) < 1200
    none = load_config(config_of(), overrides={"observation.align": "none"})
    assert not len(census_of(none, resolve(none), [own]).sample.mass)


def test_padding_does_not_count():
    own = stars()
    padded = jax.tree.map(lambda leaf: np.concatenate([leaf, 3 * leaf[:40]]), own)
    padded = dataclasses.replace(padded, weight=np.repeat([1.0, 0.0], [9000, 40]))
    assert_same(census_of(config_of(), resolved(), [padded]), census_of(config_of(), resolved(), [own]), 0)


@pytest.mark.parametrize("method", [pytest.param("basis", marks=pytest.mark.slow), "direct"])
def test_a_run_is_planned_by_a_census_as_by_the_galaxy(monkeypatch, tmp_path, method):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    config, galaxy = config_of(method=method), Galaxy(stars=stars())
    expected = Pipeline.from_config(config, galaxy, mesh=make_mesh(2))
    census = census_of(config, resolve(config), cut(stars(), [0, 100, 5000, 9000]))
    found = Pipeline.from_config(config, census=census, mesh=make_mesh(2))
    assert found.plan == expected.plan
    assert found.notes == expected.notes
    for words in ("older than the Universe", "products.losvd.limit", "smoothed with a sigma of"):
        assert any(words in note for note in found.notes)
    assert found.frame.meta == expected.frame.meta
    assert eqx.tree_equal(found.tables, expected.tables, rtol=1e-12, atol=1e-12)


def test_without_current_masses_those_at_birth_count():
    own = dataclasses.replace(stars(), mass=None, smoothing_length=None)
    census = census_of(config_of(), resolved(), cut(own, [0, 10, 9000]))
    assert (census.n_without_mass, census.lengths.n_lacking) == (9000, 9000)
    np.testing.assert_array_equal(np.sort(census.sample.mass), np.sort(own.initial_mass))
    with pytest.raises(ConfigError, match=r"engine\.deposit: expected stars with a smoothing_length .* got none"):
        plan_run(config_of(), resolved(), census)


def test_the_fastest_of_equals_are_the_brightest():
    """More stars of one speed than are kept: the same light is at stake, however they are cut."""
    n = 5000
    own = cut(stars(), [0, n])[0]
    own = dataclasses.replace(own, velocity=np.broadcast_to([0.0, 60.0, 80.0], (n, 3)).copy())
    light = [census_of(config_of(), resolved(), cut(own, cuts)).fast.light for cuts in ([0, n], [0, 7, 4500, n])]
    np.testing.assert_array_equal(*light)
    assert (np.diff(light[0]) <= 0).all()
    census = census_of(config_of(), resolved(), [own])
    work = Work(n, 1, 900, 600, 3000, n_fine=6000, n_rest=900, n_reached=3000, n_seen=900, n_together=900)
    assert plan_motion(census.fast, work).capacity == 0


def test_what_cannot_be_planned_for_is_refused():
    nothing, own = cut(stars(), [0, 0])[0], cut(stars(), [0, 50])[0]
    with pytest.raises(ValueError, match="expected at least one star, got none"):
        census_of(config_of(), resolved(), [nothing])
    with pytest.raises(ValueError, match=r"stars\.initial_mass: expected a positive sum, got 0"):
        census_of(config_of(), resolved(), [dataclasses.replace(own, initial_mass=np.zeros(50))])
    for name in ("position", "velocity", "initial_mass", "log_age", "metallicity", "mass", "smoothing_length"):
        values = np.array(getattr(own, name))
        values[7] = np.nan
        broken = dataclasses.replace(own, **{name: values})
        with pytest.raises(ValueError, match=rf"stars\.{name}: expected finite values, got .*nan.* at index"):
            census_of(config_of(), resolved(), [own, broken])


def test_an_error_of_one_process_ends_all():
    def work(team):
        own = cut(stars(), [0, 50])[0]
        slabs = [own] if team.number == 0 else [dataclasses.replace(own, log_age=np.full(50, np.nan))]
        return census_of(config_of(), resolved(), slabs, team=team)

    first, second = run_team(2, work)
    assert isinstance(second, ValueError)
    assert "process 1 failed: stars.log_age" in str(first)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["EAGLE_snap28_G92_9_full7524.hdf5", "illustris1_z0_subhalo420815_stars.hdf5"])
def test_real_galaxies_by_processes(real_data, name):
    config = load_config(
        {"galaxy": {"path": str(real_data / "galaxies" / name)}}
        | {"observation": {"redshift": 0.03}, "instrument": {"name": "muse", "fov": "2 arcsec"}}
    )
    # a galaxy read part by part has no smoothing lengths, which need all of its stars
    stars = dataclasses.replace(rl.load_galaxy(config).stars, smoothing_length=None)
    whole = census_of(config, resolve(config), [stars])

    def work(team):
        with open_galaxy(config, team=team) as galaxy:
            first, last = team.share(galaxy.n_stars)
            ends = [(start, min(start + 20_000, last)) for start in range(first, last, 20_000)]
            return census_of(config, resolve(config), (galaxy.read_stars(*pair) for pair in ends), team)

    for size in (1, 3):
        for census in values_of(run_team(size, work)):
            assert_same(census, whole)
