"""How fast the stars are, which of them are left to be painted one by one, and what it costs."""

import functools
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest
from small import muse

from rubix_like import ConfigError, Galaxy, Pipeline, SSPLibrary, Stars, load_config, make_mesh
from rubix_like.engine.cost import RATES, BasisSize, Work
from rubix_like.engine.setup import OUTLIER_LIGHT, plan_motion
from rubix_like.extend import make_setup, resolve, take_census
from rubix_like.forward.census import speeds

LIBRARY = SSPLibrary(
    spectra=np.array([[100.0, 1.0], [50.0, 0.5]])[:, :, None] * np.linspace(1.0, 2.0, 2000),
    log_age=np.array([6.0, 9.5]),
    metallicity=np.array([0.004, 0.02]),
    rest_wavelength=np.linspace(3000.0, 9000.0, 2000),
    fwhm=np.full(2000, 3.0),
)
"""Young stars shine 100 times as bright as old ones."""

FLAT = np.linspace(-300.0, 300.0, 10_000)

CPU = RATES["cpu"]
WORK = Work(
    n_particle=10_000,
    n_corner=1,
    n_spaxel=900,
    n_template=600,
    n_wave=3000,
    n_fine=6000,
    n_rest=1000,
    n_reached=3000,
    size=BasisSize(rank=96, step=40.0),
    n_seen=900,
    n_together=900,
)


def configuration(engine=None, **observation):
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none", **observation},
            "instrument": muse(5000.0, 5100.0, 1.25, fov=1.0),
            "engine": engine or {},
        }
    )


def galaxy_of(velocity, log_age=9.7, initial_mass=1.0, weight=None):
    """Stars with velocities (N, 3), or (N,) along z."""
    velocity = np.asarray(velocity, dtype=np.float64)
    if velocity.ndim == 1:
        velocity = np.stack([np.zeros_like(velocity), np.zeros_like(velocity), velocity], axis=1)
    n = len(velocity)
    mass, age, metallicity = (np.broadcast_to(np.float64(x), n).copy() for x in (initial_mass, log_age, 0.02))
    position = np.random.default_rng(1).normal(size=(n, 3))
    return Galaxy(stars=Stars(position, velocity, mass, age, metallicity, weight=weight))


def crowd(n=10_000, sigma=150.0, seed=2):
    return np.random.default_rng(seed).normal(0.0, sigma, n)


def with_library(config, library=LIBRARY):
    return replace(resolve(config), library=library)


@functools.cache
def resolved_configuration(velocity_offset=0.0):
    config = configuration(velocity_offset=velocity_offset)
    return config, with_library(config)


def motion_of(velocity, velocity_offset=0.0, work=WORK, **stars):
    census = take_census(*resolved_configuration(velocity_offset), [galaxy_of(velocity, **stars)])
    return plan_motion(census.fast, work)


def plan_of(config, galaxy, library=LIBRARY):
    """Of the stars."""
    resolved = with_library(config, library)
    census = None if galaxy is None else take_census(config, resolved, [galaxy])
    return make_setup(config, resolved, census).sources["stars"]


# ---------------------------------------------------------------- outliers


def test_one_fast_star_is_an_outlier_whatever_its_direction():
    """It does not widen the nodes of the others; there is nothing to be gained from leaving out more, and nothing to
    tell."""
    motion = motion_of(np.append(FLAT, 2000.0))
    assert 0 < motion.capacity <= 64
    assert motion.limit == motion_of(FLAT).limit
    assert motion.note == ""
    assert motion_of(np.append(FLAT, -2000.0)) == motion
    assert CPU.span_seconds(WORK, motion.limit, motion.capacity) < 0.8 * CPU.span_seconds(WORK, 2262.0, 0)


def test_all_but_the_outliers_are_within_the_limit_with_room_to_spare():
    """And the outliers hold at most 1 % of the light, whatever the galaxy."""
    rng = np.random.default_rng(3)
    found = set()
    for _ in range(40):
        n = int(10 ** rng.uniform(0, 4.3))
        velocity = np.abs(rng.standard_t(rng.uniform(1.5, 8), n) * 10 ** rng.uniform(0, 2.5)).clip(0, 2e4)
        mass = 10 ** rng.uniform(0, rng.uniform(0, 3), n)
        motion = motion_of(velocity, initial_mass=mass)
        beyond = 1.05 * velocity + 10.0 > motion.limit
        assert beyond.sum() <= motion.capacity
        assert mass[beyond].sum() <= 0.01 * mass.sum()
        found.add(motion.capacity)
    assert len(found) >= 3
    assert OUTLIER_LIGHT == 0.01


@pytest.mark.parametrize(
    ("velocity", "least"), [(FLAT, 325.0), *((np.full(n, 100.0), 115.0) for n in (1, 2, 63, 64, 65)), (np.zeros(9), 50)]
)
def test_without_fast_stars_there_are_no_outliers(velocity, least):
    """Also of fewer than there are places for outliers."""
    motion = motion_of(velocity)
    assert (motion.capacity, motion.note) == (0, "")
    assert least <= motion.limit < 1.2 * least
    if not velocity.any():
        assert motion.limit == least


@pytest.mark.parametrize("n", [300, 3000, 30_000])
@pytest.mark.parametrize("sigma", [50.0, 300.0])
def test_an_ordinary_galaxy_is_not_remarked_on(n, sigma):
    """Stars of one dispersion have no outliers that hold too much light, however few they are."""
    assert motion_of(crowd(n, sigma), work=WORK._replace(n_particle=n)).note == ""


def bright_and_fast(**bright):
    """10^4 stars and a fast one, which alone has something of its own."""
    values = {"log_age": 9.7, "initial_mass": 1.0}
    arrays = {name: np.append(np.full(10_000, value), bright.get(name, value)) for name, value in values.items()}
    return motion_of(np.append(FLAT, 2000.0), **arrays)


@pytest.mark.parametrize("bright", [{"initial_mass": 250.0}, {"log_age": 6.5, "initial_mass": 2.5}])
def test_a_fast_star_with_more_than_a_percent_of_the_light_widens_the_nodes(bright):
    """By its mass, or by its age: what counts is light. The user is told what it costs."""
    motion = bright_and_fast(**bright)
    assert motion.capacity == 0
    assert 2110.0 <= motion.limit < 2110.0 * 1.2
    narrow = bright_and_fast()
    cost = CPU.span_seconds(WORK, motion.limit, 0) / CPU.span_seconds(WORK, narrow.limit, narrow.capacity)
    assert narrow.capacity > 0
    share = 250.0 + narrow.capacity - 1
    assert f"{narrow.capacity} fast particle" in motion.note
    assert f" {100 * share / (10_000 + 250):.1f} % of the light" in motion.note
    assert f"up to {motion.limit:.0f} km/s instead of {narrow.limit:.0f} km/s" in motion.note
    assert f"cost {cost:.2g} times as much" in motion.note


def test_a_heavy_old_star_may_be_an_outlier_among_young_ones():
    """1 % of the mass, but 0.01 % of the light."""
    age = np.append(np.full(10_000, 6.5), 9.7)
    mass = np.append(np.full(10_000, 1.0), 100.0)
    motion = motion_of(np.append(FLAT, 2000.0), log_age=age, initial_mass=mass)
    assert motion.capacity > 0
    assert motion.note == ""


def test_padding_is_ignored():
    """Stars of weight 0 are neither fast nor bright."""
    velocity = np.append(crowd(), 2000.0)
    expected = motion_of(velocity)
    weight = np.repeat([1.0, 0.0], [len(velocity), 3000])
    padded = np.concatenate([velocity, np.full(3000, 9000.0)])
    assert motion_of(padded, initial_mass=np.where(weight > 0, 1.0, 1e6), weight=weight) == expected
    galaxy = galaxy_of(padded, initial_mass=np.where(weight > 0, 1.0, 1e6), weight=weight)
    census = take_census(configuration(), with_library(configuration()), [galaxy])
    assert (census.n_stars, census.sums.mass, census.fast.fastest) == (len(velocity), len(velocity), 2000.0)


def test_similar_galaxies_share_a_limit():
    """The limits are 50 km/s times powers of 2^(1/4)."""
    found = {motion_of(np.linspace(-1, 1, 5000) * fastest).limit for fastest in np.linspace(200.0, 400.0, 60)}
    steps = 4 * np.log2(np.array(sorted(found)) / 50.0)
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    assert 4 <= len(found) <= 6


@pytest.mark.parametrize("observation", [{}, {"velocity_offset": -2000.0}, {"inclination": 30.0}])
def test_speeds_that_no_star_has_are_refused_with_the_remedy(observation):
    """m/s given as km/s; what is just allowed has a limit."""
    config, offset = configuration({"method": "basis"}, **observation), observation.get("velocity_offset", 0.0)
    fastest = 26_600.0 - abs(offset)
    assert plan_of(config, galaxy_of([-fastest])).motion.limit > 26_600.0
    with pytest.raises(
        ValueError, match=r"stars\.velocity: .* below 26667 km/s, got 1\.5e\+05 km/s.*check the unit.*range"
    ):
        plan_of(config, galaxy_of([150_000.0 - abs(offset)]))


def test_light_is_that_on_the_detector():
    """A star of 1 % of all light, but with none in the detector's range, may be an outlier."""
    rest = LIBRARY.rest_wavelength
    ultraviolet = np.where(rest < 4500.0, 1e6, 1e-3)
    spectra = np.broadcast_to(np.stack([ultraviolet, np.ones_like(rest)]), (2, 2, len(rest))).copy()
    library = eqx.tree_at(lambda library: library.spectra, LIBRARY, spectra)
    galaxy = galaxy_of(np.append(FLAT, 2000.0), log_age=np.append(np.full(10_000, 9.7), 6.5))
    motion = plan_of(configuration({"method": "basis"}), galaxy, library).motion
    assert motion.capacity > 0
    assert motion.note == ""


# ---------------------------------------------------------------- speeds along the line of sight

VELOCITY = np.array([[300.0, 400.0, 120.0], [0.0, 0.0, -500.0], [-60.0, 0.0, 80.0]])


@pytest.mark.parametrize(
    "observation",
    [{"align": "stars"}, {"inclination": 0.0}, {"position_angle": 90.0}, {"align": "stars", "inclination": 30.0}, {}],
)
def test_where_stars_may_be_turned_their_speed_counts_else_the_velocity_along_z(observation):
    for offset in (0.0, 70.0, -70.0):
        expected = np.linalg.norm(VELOCITY, axis=1) + abs(offset)
        if not observation:
            expected = np.abs(VELOCITY[:, 2] + offset)
        found = speeds(configuration(velocity_offset=offset, **observation), galaxy_of(VELOCITY).stars)
        np.testing.assert_allclose(found, expected)


def test_the_velocity_offset_is_within_the_limit():
    velocity = np.linspace(-100.0, 100.0, 5000)
    assert motion_of(velocity).limit < 150.0
    for offset in (1000.0, -1000.0):
        assert 1165.0 <= motion_of(velocity, velocity_offset=offset).limit < 1165.0 * 1.2
    assert motion_of(velocity - 1000.0, velocity_offset=1000.0) == motion_of(velocity)


@pytest.mark.parametrize("align", ["none", "stars"])
def test_the_plan_of_a_run_counts_speeds_as_its_stages_turn_the_stars(align):
    """No star is beyond what was planned, but for those that there is a place for."""
    velocity = np.random.default_rng(5).normal(size=(200, 3)) * [200.0, 100.0, 30.0]
    config = configuration({"method": "basis"}, align=align, velocity_offset=-90.0)
    motion = plan_of(config, galaxy_of(velocity)).motion
    speed = np.linalg.norm(velocity, axis=1) + 90.0 if align == "stars" else np.abs(velocity[:, 2] - 90.0)
    assert (1.05 * speed + 10.0 > motion.limit).sum() <= motion.capacity
    assert motion.limit < 1.2 * (1.05 * speed.max() + 10.0)


# ---------------------------------------------------------------- the method


def method_of(galaxy, **engine):
    return plan_of(configuration(engine), galaxy).method


def test_auto_is_direct_for_a_handful_and_basis_for_many():
    """It changes over once, and where the two cost the same."""
    methods = [method_of(galaxy_of(crowd(n)), method="auto") for n in (1, 10, 100, 1000, 10_000, 100_000)]
    assert methods[0] == methods[1] == "direct"
    assert methods[-1] == methods[-2] == "basis"
    assert methods == sorted(methods, reverse=True)
    for method in ("direct", "basis"):
        assert method_of(galaxy_of(crowd(10)), method=method) == method_of(galaxy_of(crowd(10**5)), method=method)


@pytest.mark.parametrize(("n", "method"), [(10, "direct"), (50_000, "basis")])
def test_auto_of_a_pipeline(monkeypatch, tmp_path, n, method):
    """With a library of the package and its sizes."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    pipeline = Pipeline.from_config(configuration(), galaxy_of(crowd(n)), mesh=make_mesh(1))
    assert (pipeline.plan.method, pipeline.frame.meta["method"]) == (method, method)


def test_without_a_galaxy():
    """`basis` needs the range by name; `auto` is basis where it is given, else direct."""
    with pytest.raises(ConfigError, match=r"engine\.velocity_range: expected .* 'basis' .* without a galaxy, got null"):
        method_of(None, method="basis")
    with pytest.raises(ConfigError, match=r"pass the galaxy to Pipeline\.from_config"):
        Pipeline.from_config(configuration({"method": "basis"}))
    assert method_of(None, method="auto") == "direct"
    assert method_of(None, method="auto", velocity_range=800.0) == "basis"
    assert method_of(None, method="basis", velocity_range=800.0) == "basis"
    assert method_of(None, method="direct") == "direct"


@pytest.mark.parametrize("galaxy", [None, galaxy_of(np.append(crowd(), 2000.0))], ids=["without", "with"])
def test_a_velocity_range_is_what_the_nodes_span(galaxy):
    """Also where the galaxy is at hand and faster: its fastest stars are then beyond, not outliers."""
    plan = plan_of(configuration({"method": "basis", "velocity_range": 800.0}), galaxy)
    assert (plan.motion.limit, plan.motion.capacity) == (800.0, 0)
    assert plan.velocity_limit == 800.0


@pytest.mark.slow
def test_the_note_on_bright_outliers_reaches_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path))
    mass = np.append(np.ones(20_000), 400.0)
    galaxy = galaxy_of(np.append(crowd(20_000), 3000.0), initial_mass=mass)
    engine = {"method": "basis"}
    assert "fast particle" in plan_of(configuration(engine), galaxy).motion.note
    notes = Pipeline.from_config(configuration(engine), galaxy, mesh=make_mesh(1)).notes
    assert any("fast particle" in note and "times as much" in note for note in notes)
    engine = {"method": "direct"}
    assert not any("fast particle" in note for note in Pipeline.from_config(configuration(engine), galaxy).notes)


# ---------------------------------------------------------------- cost


def test_cost_of_direct_is_particles_times_bins():
    """Beside what every spaxel costs."""

    def of_particles(**changes):
        work = WORK._replace(**changes)
        return CPU.direct_seconds(work) - CPU.direct_seconds(work._replace(n_particle=0))

    base = of_particles()
    assert of_particles(n_particle=70_000) == pytest.approx(7 * base)
    assert of_particles(n_fine=18_000, n_rest=3000) == pytest.approx(3 * base)
    assert of_particles(n_spaxel=9, n_seen=9, n_template=6) == pytest.approx(base)
    assert base < of_particles(n_corner=9) < 9 * base
    assert of_particles(n_particle=0, n_fine=10**6) == 0
    none = WORK._replace(n_particle=0)
    assert CPU.direct_seconds(none._replace(n_spaxel=9000)) == pytest.approx(10 * CPU.direct_seconds(none))


def test_cost_of_basis_per_particle_does_not_depend_on_wavelengths():
    def per_particle(**changes):
        work = WORK._replace(**changes)
        more = work._replace(n_particle=10**7)
        return (
            CPU.basis_seconds(more, 500.0, 0) - CPU.basis_seconds(work._replace(n_particle=5 * 10**6), 500.0, 0)
        ) / 5e6

    assert per_particle() > 0
    longer = {"n_wave": 30_000, "n_fine": 60_000, "n_rest": 10_000, "n_reached": 30_000}
    assert per_particle(**longer) == pytest.approx(per_particle(), rel=1e-6)
    assert per_particle(n_corner=4) == pytest.approx(4 * per_particle(), rel=1e-6)


def test_cost_of_basis_grows_with_all_that_it_should():
    base = CPU.basis_seconds(WORK, 500.0, 0)
    longer = {"n_wave": 30_000, "n_reached": 30_000}
    rougher = {"size": BasisSize(rank=192, step=40.0)}
    for changes in ({"n_spaxel": 9000, "n_seen": 9000}, longer, rougher, {"n_particle": 10**6}, {"psf": "image"}):
        assert CPU.basis_seconds(WORK._replace(**changes), 500.0, 0) > 1.05 * base
    assert 1.5 * base < CPU.basis_seconds(WORK, 1000.0, 0) < 2 * base
    finer = WORK._replace(size=BasisSize(rank=96, step=20.0))
    assert CPU.basis_seconds(finer, 500.0, 0) == pytest.approx(CPU.basis_seconds(WORK, 1000.0, 0))
    many, few = (CPU.direct_seconds(WORK._replace(n_particle=number)) for number in (2048, 64))
    assert CPU.basis_seconds(WORK, 500.0, 2048) == pytest.approx(base + many)
    assert base < CPU.basis_seconds(WORK, 500.0, 64) < base + few  # in rows of their own


def test_sums_per_template_pay_for_many_particles_only():
    """A grid of 900 x 28 cells, 600 templates on 96 basis spectra; of few particles coefficients are summed."""
    few = WORK._replace(n_particle=10)
    assert CPU.basis_seconds(few._replace(n_template=60_000), 500.0, 0) == CPU.basis_seconds(few, 500.0, 0)
    cheaper = [
        CPU.template_seconds(4 * n, 900 * 28, 600, 96) < CPU.coefficient_seconds(n, 900 * 28, 96)
        for n in (10, 1000, 10**5, 10**7)
    ]
    assert cheaper == sorted(cheaper)
    assert (cheaper[0], cheaper[-1]) == (False, True)
