import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from pydantic import ValidationError

from rubix_like import SyntheticGalaxy, validate
from rubix_like.extend import draw_base
from rubix_like.galaxy.synthetic import GAS_PARAMETERS
from rubix_like.readers.synthetic import SyntheticReader

OWN_GAS = {
    "gas_fraction": 0.2,
    "gas_scale_length": 3.0,
    "gas_scale_height": 0.15,
    "gas_rotation_velocity": -120.0,
    "gas_turnover_radius": 0.8,
    "gas_dispersion": 12.0,
    "gas_metallicity": 0.014,
    "gas_metallicity_gradient": -0.04,
    "gas_metallicity_scatter": 0.05,
    "star_formation_rate": 3.0,
}
"""Gas that has nothing in common with the stars."""


@pytest.fixture(scope="module")
def own_gas():
    sample = jax.jit(lambda draws: SyntheticGalaxy(**OWN_GAS).sample(draws).gas)
    return jax.tree.map(np.asarray, sample(draw_base(5, 20000, 5)))


@pytest.fixture(scope="module")
def galaxy():
    return SyntheticGalaxy().sample(draw_base(40000, 4000, 5))


@pytest.fixture(scope="module")
def disc(galaxy):
    """The first four fifths of the stars sample the disc."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:32000], galaxy.stars)


@pytest.fixture(scope="module")
def bulge(galaxy):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[32000:], galaxy.stars)


def test_a_sample_is_valid_and_holds_the_mass(galaxy, bulge):
    validate(galaxy, 13.0e9)
    assert float(galaxy.stars.initial_mass.sum()) == pytest.approx(1e10, rel=1e-12)
    assert bulge.initial_mass.sum() == pytest.approx(2e9, rel=1e-12)
    assert float(galaxy.gas.mass.sum()) == pytest.approx(1e9, rel=1e-12)
    assert float(galaxy.gas.star_formation_rate.sum()) == pytest.approx(1.0, rel=1e-12)


def test_disc_profile(disc):
    """Enclosed mass 1 - (1 + x) exp(-x) in the plane, tanh(z / h) of sech^2; Kolmogorov distance below 1 %."""
    radius = np.sort(np.hypot(disc.position[:, 0], disc.position[:, 1])) / 1.5
    cumulative = (np.arange(radius.size) + 0.5) / radius.size
    assert np.abs(cumulative - (1 - (1 + radius) * np.exp(-radius))).max() < 0.01
    height = np.sort(disc.position[:, 2]) / 0.2
    assert np.abs(cumulative - 0.5 * (1 + np.tanh(height))).max() < 0.01


def test_bulge_profile(bulge):
    """Half of the bulge is within the effective radius in every projection; Hernquist profile out to 20 scale radii."""
    for axes in ([0, 1], [1, 2], [0, 2]):
        inside = np.mean(np.hypot(*bulge.position[:, axes].T) < 0.5)
        assert inside == pytest.approx(0.5, abs=0.02)
    radius = np.sort(np.linalg.norm(bulge.position, axis=1)) / (0.5 / 1.5412)
    cumulative = (np.arange(radius.size) + 0.5) / radius.size
    expected = (radius / (1 + radius)) ** 2 / (20 / 21) ** 2
    assert np.abs(cumulative - expected).max() < 0.02
    assert radius.max() < 20.001


def test_disc_rotates_about_z_with_the_rotation_curve(disc):
    radius = np.hypot(disc.position[:, 0], disc.position[:, 1])
    tangential = (disc.position[:, 0] * disc.velocity[:, 1] - disc.position[:, 1] * disc.velocity[:, 0]) / radius
    residual = tangential - 180 * 2 / np.pi * np.arctan(radius / 0.5)
    assert abs(residual.mean()) < 0.7
    assert residual.std() == pytest.approx(30, rel=0.02)
    spin = np.cross(disc.position, disc.velocity).sum(axis=0)
    assert spin[2] / np.linalg.norm(spin) > 0.999


def test_bulge_kinematics(bulge):
    np.testing.assert_allclose(bulge.velocity.mean(axis=0), 0, atol=4)
    np.testing.assert_allclose(bulge.velocity.std(axis=0), 100, rtol=0.03)


def test_age_and_metallicity_gradients(disc, bulge):
    radius = np.hypot(disc.position[:, 0], disc.position[:, 1])
    inner = radius < 6
    slope, centre = np.polyfit(radius[inner], disc.log_age[inner], 1)
    assert (slope, centre) == (pytest.approx(-0.1, abs=0.003), pytest.approx(9.6, abs=0.005))
    slope, centre = np.polyfit(radius[inner], np.log10(disc.metallicity[inner]), 1)
    assert (slope, centre) == (pytest.approx(-0.05, abs=0.003), pytest.approx(np.log10(0.02), abs=0.005))
    assert np.median(bulge.log_age) == pytest.approx(9.9, abs=0.005)
    assert np.median(bulge.metallicity) == pytest.approx(0.025, rel=0.01)


def test_ages_and_metallicities_stay_within_their_limits():
    extreme = SyntheticGalaxy(log_age_scatter=5.0, metallicity_scatter=5.0, disc_metallicity_gradient=-3.0)
    stars = extreme.sample(draw_base(2000, 0, 1)).stars
    assert float(stars.log_age.min()) >= 5.0
    assert float(stars.log_age.max()) <= 10.1
    assert float(stars.metallicity.min()) > 0
    assert float(stars.metallicity.max()) <= 0.1 + 1e-12


def test_gas_density_is_that_of_its_particles(galaxy):
    """Mass within R < 2, |z| < 0.05 from the density's formula, integrated, against the mass of the particles there."""
    gas = galaxy.gas
    radius, height = np.hypot(gas.position[:, 0], gas.position[:, 1]), np.abs(gas.position[:, 2])
    inside = (radius < 2) & (height < 0.05)
    mass = float(gas.mass[inside].sum())
    mean_density = mass / np.mean(1 / np.asarray(gas.density)[inside]) ** -1 / 1.0
    assert mean_density / (np.pi * 2**2 * 0.1) == pytest.approx(1.0, rel=0.12)


def test_gas_has_a_disc_of_its_own(own_gas):
    """Enclosed mass and height of the formula, as for the stars; masses and rates add up to the totals."""
    radius = np.sort(np.hypot(own_gas.position[:, 0], own_gas.position[:, 1])) / 3.0
    cumulative = (np.arange(radius.size) + 0.5) / radius.size
    assert np.abs(cumulative - (1 - (1 + radius) * np.exp(-radius))).max() < 0.012
    assert np.abs(cumulative - 0.5 * (1 + np.tanh(np.sort(own_gas.position[:, 2]) / 0.15))).max() < 0.012
    assert own_gas.mass.sum() == pytest.approx(2e9, rel=1e-12)
    assert own_gas.star_formation_rate.sum() == pytest.approx(3.0, rel=1e-12)


def test_gas_rotates_against_the_stars_with_its_own_curve(own_gas):
    position, velocity = own_gas.position, own_gas.velocity
    radius = np.hypot(position[:, 0], position[:, 1])
    tangential = (position[:, 0] * velocity[:, 1] - position[:, 1] * velocity[:, 0]) / radius
    residual = tangential + 120 * 2 / np.pi * np.arctan(radius / 0.8)
    assert abs(residual.mean()) < 0.4
    for random in (residual, velocity[:, 2]):
        assert random.std() == pytest.approx(12, rel=0.03)


def test_gas_has_a_metallicity_gradient_of_its_own(own_gas):
    radius = np.hypot(own_gas.position[:, 0], own_gas.position[:, 1])
    inner = radius < 12
    slope, centre = np.polyfit(radius[inner], np.log10(own_gas.metallicity[inner]), 1)
    assert (slope, centre) == (pytest.approx(-0.04, abs=0.001), pytest.approx(np.log10(0.014), abs=0.003))
    residual = np.log10(own_gas.metallicity) - np.log10(0.014) + 0.04 * radius
    assert residual.std() == pytest.approx(0.05, rel=0.03)


def test_cells_are_as_large_as_their_density_says(own_gas):
    """The density of the disc's formula, and twice the radius of a sphere of the cell's volume."""
    radius, z = np.hypot(own_gas.position[:, 0], own_gas.position[:, 1]), own_gas.position[:, 2]
    density = 2e9 / (4 * np.pi * 3.0**2 * 0.15) * np.exp(-radius / 3.0) / np.cosh(z / 0.15) ** 2
    np.testing.assert_allclose(own_gas.density, density, rtol=1e-10)
    length = 2 * (3 * own_gas.mass / (4 * np.pi * density)) ** (1 / 3)
    np.testing.assert_allclose(own_gas.smoothing_length, length, rtol=1e-10)


def test_gas_is_like_the_stars_disc_where_it_says_nothing_and_changes_no_star():
    draws = draw_base(50, 20, 3)
    like = SyntheticGalaxy(
        gas_rotation_velocity=180.0,
        gas_turnover_radius=0.5,
        gas_metallicity=0.02,
        gas_metallicity_gradient=-0.05,
        gas_metallicity_scatter=0.1,
    )
    models = (SyntheticGalaxy(), like, SyntheticGalaxy(**OWN_GAS))
    plain, same, other = jax.jit(lambda draws: [model.sample(draws) for model in models])(draws)
    assert eqx.tree_equal(plain, same)
    assert eqx.tree_equal(plain.stars, other.stars)
    without = draw_base(50, 0, 3)
    assert eqx.tree_equal((draws.disc, draws.bulge), (without.disc, without.bulge))
    assert set(GAS_PARAMETERS) == {*OWN_GAS, "gas_temperature"}


def features(galaxy):
    """Smooth sums that see every leaf."""
    stars, gas = galaxy.stars, galaxy.gas
    light = stars.initial_mass * 10 ** (9 - stars.log_age) * (1 + 10 * stars.metallicity)
    seen = jnp.sum(light * jnp.exp(-jnp.sum(stars.position**2, axis=1) / 50)) / 1e10
    motion = jnp.sum(light * (stars.velocity[:, 1] / 100) ** 2) / 1e10
    gas_light = gas.mass * gas.metallicity * jnp.sqrt(gas.density / 1e6) * (gas.temperature / 1e4)
    glow = jnp.sum(gas_light * jnp.sum((gas.velocity / 100) ** 2, axis=1)) / 1e8
    size = jnp.sum(gas.smoothing_length * gas.metallicity)
    return seen + motion + glow + size + jnp.sum(gas.star_formation_rate * gas.position[:, 0] ** 2) / 100


@pytest.mark.slow
def test_gradients_equal_finite_differences():
    draws = draw_base(300, 60, 7)
    model = SyntheticGalaxy(**OWN_GAS)
    value = jax.jit(lambda m: features(m.sample(draws)))
    gradient = jax.jit(jax.grad(lambda m: features(m.sample(draws))))(model)
    for name, default in ((name, float(leaf)) for name, leaf in vars(model).items()):
        slope = float(getattr(gradient, name))
        step = 1e-5 * abs(default)
        above, below = (
            eqx.tree_at(lambda m, n=name: getattr(m, n), model, jnp.asarray(default + s * step)) for s in (1, -1)
        )
        expected = float(value(above) - value(below)) / (2 * step)
        assert np.isfinite(slope), name
        assert slope == pytest.approx(expected, rel=2e-6, abs=1e-9 / abs(default)), name
        assert slope != 0, name


@pytest.mark.slow
def test_a_sample_can_be_mapped_and_single_precision_is_finite():
    draws = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), draw_base(300, 60, 3))
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), SyntheticGalaxy())
    galaxy = model.sample(draws)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(galaxy))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(galaxy))
    models = eqx.tree_at(lambda m: m.stellar_mass, model, jnp.array([1e9, 2e9], dtype=jnp.float32))
    axes = eqx.tree_at(lambda m: m.stellar_mass, jax.tree.map(lambda _: None, model), 0, is_leaf=lambda x: x is None)
    masses = jax.vmap(lambda m: m.sample(draws).stars.initial_mass.sum(), in_axes=(axes,))(models)
    np.testing.assert_allclose(masses, [1e9, 2e9], rtol=1e-5)


def test_draws_depend_on_the_seed_alone():
    assert eqx.tree_equal(draw_base(20, 5, 3), draw_base(20, 5, 3))
    assert not eqx.tree_equal(draw_base(20, 5, 3), draw_base(20, 5, 4))
    with pytest.raises(ValueError, match="n_stars >= 1"):
        draw_base(0, 0, 1)


@pytest.mark.parametrize("kind", ["random", "sobol"])
def test_draws_are_uniform_and_normal(kind):
    draws = draw_base(4000, 1000, 2, kind)
    for component in (draws.disc, draws.bulge, draws.gas):
        for column in np.asarray(component.uniform).T:
            assert scipy.stats.kstest(column, "uniform").pvalue > 1e-4
        for column in np.asarray(component.normal).T:
            assert scipy.stats.kstest(column, "norm").pvalue > 1e-4
        together = np.concatenate([component.uniform, component.normal], axis=1)
        assert np.abs(np.corrcoef(together.T) - np.eye(9)).max() < 0.15


def test_sobol_draws_are_spread_evenly_and_differ_between_components_and_seeds():
    even, loose = (draw_base(5120, 4096, 7, kind) for kind in ("sobol", "random"))
    each = np.histogram(even.gas.uniform[:, 0], 64, (0, 1))[0]
    assert (each == 64).all()
    assert np.histogram(loose.gas.uniform[:, 0], 64, (0, 1))[0].std() > 4
    assert not np.array_equal(even.disc.uniform, even.gas.uniform)
    assert eqx.tree_equal(even, draw_base(5120, 4096, 7, "sobol"))
    assert not eqx.tree_equal(even, draw_base(5120, 4096, 8, "sobol"))


def test_particle_noise_of_sobol_draws_is_lower():
    """Scatter over seeds of a smooth sum over 4096 stars, against that of random draws (0.25 measured)."""

    sample = jax.jit(lambda draws: features(SyntheticGalaxy().sample(draws)))

    def scatter(kind):
        return np.std([float(sample(draw_base(4096, 512, seed, kind))) for seed in range(24)])

    assert scatter("sobol") < 0.6 * scatter("random")


@pytest.mark.parametrize("kind", ["random", "sobol"])
def test_other_draws_are_alike_but_for_the_seed(kind):
    draws = draw_base(20, 5, 3, kind)
    assert eqx.tree_equal(draws.others(4), draw_base(20, 5, 4, kind))
    assert eqx.tree_equal(draw_base(20, 0, 3, kind).others(4), draw_base(20, 0, 4, kind))


def test_reader_takes_sobol_draws():
    random, even = (SyntheticReader(n_stars=50, draws=kind).load() for kind in ("random", "sobol"))
    assert not eqx.tree_equal(random[0], even[0])
    assert even[1].source == "rubix_like.synthetic, sobol draws, seed 1"
    with pytest.raises(ValidationError, match=r"random.*sobol"):
        SyntheticReader.model_validate({"draws": "halton"})


def test_one_star_carries_the_whole_mass():
    galaxy, info = SyntheticReader(n_stars=1).load()
    assert float(galaxy.stars.initial_mass.sum()) == pytest.approx(1e10)
    assert info.notes == ("too few stars to sample the bulge: its mass is in the disc",)


def test_reader_settings_are_the_parameters():
    settings = {name: field.default for name, field in SyntheticReader.model_fields.items()}
    assert set(settings) == {"reader", "n_stars", "n_gas", "seed", "draws", *vars(SyntheticGalaxy())}
    assert (settings["n_stars"], settings["n_gas"], settings["seed"]) == (50000, 0, 1)
    assert eqx.tree_equal(SyntheticReader().build(), SyntheticGalaxy())


def test_reader_accepts_units_and_whole_floats():
    reader = SyntheticReader.model_validate(
        {
            "n_stars": "5e4",
            "n_gas": 5e4,
            "disc_scale_length": "2500 pc",
            "disc_log_age_gradient": "-0.02 dex / kpc",
            "gas_metallicity_gradient": "-0.05 dex / kpc",
            "gas_rotation_velocity": "-2e5 m/s",
            "rotation_velocity": "2e5 m/s",
            "stellar_mass": "1e9",
        }
    )
    assert (reader.n_stars, reader.n_gas) == (50000, 50000)
    assert reader.disc_scale_length == pytest.approx(2.5)
    assert reader.disc_log_age_gradient == pytest.approx(-0.02)
    assert reader.rotation_velocity == pytest.approx(200)
    assert reader.gas_rotation_velocity == pytest.approx(-200)
    assert reader.gas_metallicity_gradient == pytest.approx(-0.05)
    assert reader.gas_turnover_radius is None
    assert float(reader.build().stellar_mass) == 1e9


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_stars", 0),
        ("n_stars", 10.5),
        ("n_gas", -1),
        ("seed", True),
        ("disc_scale_length", "0 kpc"),
        ("disc_scale_length", "3 s"),
        ("bulge_fraction", 1.1),
        ("disc_metallicity", 1.0),
        ("disc_log_age", 9.5e9),
        ("disc_scale_lenght", 3.0),
        ("gas_turnover_radius", 0),
        ("gas_metallicity", 8.7),
        ("gas_metallicity_scatter", -0.1),
    ],
)
def test_reader_refuses(key, value):
    with pytest.raises(ValidationError, match=key):
        SyntheticReader.model_validate({key: value})


def test_reader_is_reproducible_and_says_what_it_made():
    galaxy, info = SyntheticReader(n_stars=100, n_gas=10, seed=9).load()
    again, _ = SyntheticReader(n_stars=100, n_gas=10, seed=9).load()
    assert eqx.tree_equal(galaxy, again)
    assert (info.n_stars, info.n_gas, info.redshift, info.universe_age) == (100, 10, None, None)
    assert galaxy.stars.position.shape == (100, 3)
    assert galaxy.gas.mass.shape == (10,)
    assert SyntheticReader(n_stars=10).load()[0].gas is None
