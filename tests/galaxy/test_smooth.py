"""Emitters of smooth components: their sums against integrals of the published profiles by scipy."""

import itertools

import equinox as eqx
import foreign_rings
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, interpolate, optimize, special

from rubix_like.config.readers.components import SECTIONS, ComponentsReader
from rubix_like.extend import Parameter
from rubix_like.galaxy.components.smooth import emitted

SERSIC = {"profile": "sersic", "effective_radius": 2.0, "index": 2.5}
LIGHT = {
    "exponential": ({"profile": "exponential", "scale_length": 1.5}, lambda r: np.exp(-r / 1.5)),
    "sersic": (SERSIC, lambda r: np.exp(-special.gammaincinv(5.0, 0.5) * (r / 2.0) ** 0.4)),
    "truncated": (
        {"profile": "truncated", "scale_length": 3.0, "truncation_radius": 4.0, "outer_scale_length": 0.8},
        lambda r: np.exp(-r / 3.0) * (1 + np.exp((5 / 0.8) * (r - 4.0))) ** ((0.8 / 5) * (1 / 3.0 - 1 / 0.8)),
    ),
    "ring": ({"profile": "ring", "radius": 3.0, "width": 0.5}, lambda r: np.exp(-0.5 * ((r - 3.0) / 0.5) ** 2)),
    "gaussian": ({"profile": "gaussian", "sigma": 1.2}, lambda r: np.exp(-0.5 * (r / 1.2) ** 2)),
}
"""Profile -> its section, and its surface density."""

HEIGHTS = {"sech2": np.pi**2 / 12, "exponential": 2.0}
"""Mean of (z / h)^2."""


def component(**sections):
    given = {
        "name": "disc",
        "mass": 2e10,
        "light": LIGHT["exponential"][0],
        "population": {"log_age": 9.5, "metallicity": 0.02},
    }
    return given | sections


def stars_of(*components, points=16384):
    reader = ComponentsReader(components=components, points=points)
    return jax.tree.map(np.asarray, reader.load()[0].stars)


def moment(stars, values):
    """Mean by mass."""
    return float((stars.initial_mass * values).sum() / stars.initial_mass.sum())


def test_every_profile_is_compared_and_moves_the_points():
    assert {*LIGHT, "point"} == set(SECTIONS["light"].built_in)
    assert {*HEIGHTS, "thin"} == set(SECTIONS["height"].built_in)
    kinds = [*SECTIONS["light"].built_in.values(), *SECTIONS["height"].built_in.values()]
    settings = [(f"{kind.__name__}.{name}", field) for kind in kinds for name, field in kind.model_fields.items()]
    marks = [(name, mark) for name, field in settings for mark in field.metadata if isinstance(mark, Parameter)]
    assert marks
    assert [name for name, mark in marks if not mark.moves] == []


@pytest.mark.parametrize("profile", LIGHT)
def test_light_within_radii_is_the_integral_of_the_profile(profile):
    section, surface = LIGHT[profile]
    stars = stars_of(component(light=section))
    radius = np.hypot(*stars.position[:, :2].T)
    total = integrate.quad(lambda r: r * surface(r), 0, 60, limit=500)[0]
    assert stars.initial_mass.sum() == pytest.approx(2e10, rel=1e-6)
    for limit in (0.7, 2.0, 4.0, 7.0):
        expected = integrate.quad(lambda r: r * surface(r), 0, limit, limit=200)[0] / total
        assert (stars.initial_mass[radius < limit].sum() / 2e10) == pytest.approx(expected, abs=1e-3)
    for turns in (1, 2, 3, 4):  # as much light on every side
        angle = np.arctan2(stars.position[:, 1], stars.position[:, 0])
        assert abs(moment(stars, np.exp(1j * turns * angle).real)) < 1e-3


SHAPES = {
    "steeper": ("sersic", {"index": 1.0}, {"index": 4.0}),
    "flatter": ("sersic", {"index": 6.0}, {"index": 1.0}),
    "wider": ("ring", {"width": 0.3}, {"width": 1.8}),
    "narrower": ("ring", {"width": 1.5}, {"width": 0.1}),
    "farther": ("truncated", {"truncation_radius": 2.0}, {"truncation_radius": 9.0}),
}
"""Profile, the parameter that points were made for, and its value."""


def surface_of(profile, r, **other):
    if profile == "sersic":
        n = other["index"]
        return np.exp(-special.gammaincinv(2 * n, 0.5) * (r / 2.0) ** (1 / n))
    if profile == "ring":
        return np.exp(-0.5 * ((r - 3.0) / other["width"]) ** 2)
    slope = (0.8 / 5) * (1 / 3.0 - 1 / 0.8)
    return np.exp(-r / 3.0 + slope * np.logaddexp(0, (5 / 0.8) * (r - other["truncation_radius"])))


@pytest.mark.parametrize("case", SHAPES)
def test_points_follow_the_shape_of_a_profile(case):
    """Points made for one shape, the light of another one: means of exp(-R / 2 kpc) and its slope along the parameter
    are those of scipy's integrals."""
    profile, made_for, other = SHAPES[case]
    ((name, value),) = other.items()
    reader = ComponentsReader(components=[component(light=LIGHT[profile][0] | made_for)], points=16384)
    galaxy = reader.build(None)
    points = galaxy.points([16384])

    def mean(value):
        moved = eqx.tree_at(lambda own: getattr(own.components[0].light, name), galaxy, value)
        stars = moved.emitters(points).stars
        radius = jnp.hypot(stars.position[:, 0], stars.position[:, 1])
        return jnp.sum(stars.initial_mass * jnp.exp(-radius / 2)) / 2e10

    def integral(value, scale):
        limit = 80 if profile == "sersic" else 30
        at = {"limit": 2000, "points": [0.5, 3, 9]}
        return integrate.quad(
            lambda r: r * surface_of(profile, r, **{name: value}) * np.exp(-r / scale), 0, limit, **at
        )[0]

    def expected(value):
        return integral(value, 2) / integral(value, np.inf)

    found, slope = jax.jit(jax.value_and_grad(mean))(jnp.asarray(value))
    step = 1e-3 * value
    difference = (expected(value + step) - expected(value - step)) / (2 * step)
    np.testing.assert_allclose(found, expected(value), rtol=1e-3)
    np.testing.assert_allclose(slope, difference, rtol=5e-3, atol=1e-4)


def test_sersic_in_32_bits_is_that_in_64():
    """As a run in single precision has it."""
    galaxy = ComponentsReader(components=[component(light=SERSIC)], points=4096).build(None)
    radius = []
    for x64 in (True, False):
        with jax.enable_x64(x64):
            own = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), galaxy)
            position = np.asarray(emitted(own, own.points([4096])).stars.position)
        radius.append(np.hypot(position[:, 0], position[:, 1]))
    assert radius[1].dtype == np.float32
    np.testing.assert_allclose(radius[1], radius[0], rtol=2e-3)


def test_a_point_is_at_one_place():
    stars = stars_of(component(light={"profile": "point"}, dispersion=80), points=4096)
    np.testing.assert_array_equal(stars.position, 0)
    assert moment(stars, stars.random_velocity**2) == pytest.approx(80**2, rel=1e-3)


@pytest.mark.parametrize("profile", HEIGHTS)
def test_heights(profile):
    stars = stars_of(component(height={"profile": profile, "scale_height": 0.3}))
    z = stars.position[:, 2]
    assert moment(stars, z**2) == pytest.approx(HEIGHTS[profile] * 0.3**2, rel=2e-3)
    assert abs(moment(stars, z)) < 1e-3


def test_dispersions_are_gaussian():
    stars = stars_of(component(dispersion=50))
    for power, expected in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        assert moment(stars, (stars.random_velocity / 50) ** power) == pytest.approx(expected, rel=1e-2, abs=1e-2)


DENSITIES = {
    "nfw": lambda x: 1 / (x * (1 + x) ** 2),
    "burkert": lambda x: 1 / ((1 + x) * (1 + x**2)),
    "isothermal": lambda x: 1 / (1 + x**2),
}
"""Halo -> its density over r / r_s."""

MASSES = {"disc_mass": 8e9, "disc_scale_length": 2.2, "bulge_mass": 4e9, "bulge_effective_radius": 0.6}
MASSES |= {"curve": "mass_model", "halo_density": 4e7, "halo_radius": 5.0}


def mass_within(density, radius):
    """Of a sphere with this density, by its integral."""
    return np.array([integrate.quad(lambda r: 4 * np.pi * r**2 * density(r), 0, own)[0] for own in radius])


def hernquist_radius():
    """Projected half-mass radius of 1 / (2 pi r (1 + r)^3): within R is all mass but that in front of and behind it."""

    def beyond(r, projected):
        return 2 * r / (1 + r) ** 3 * np.sqrt(1 - (projected / r) ** 2)

    return optimize.brentq(lambda own: integrate.quad(beyond, own, np.inf, args=(own,))[0] - 0.5, 1, 3)


def circular_square(radius, halo):
    """Square of the circular speed of `MASSES` with this halo, (km/s)^2."""
    bulge = MASSES["bulge_effective_radius"] / hernquist_radius()
    mass = MASSES["bulge_mass"] * mass_within(lambda x: 1 / (2 * np.pi * x * (1 + x) ** 3), radius / bulge)
    scale = MASSES["halo_radius"]
    mass += MASSES["halo_density"] * scale**3 * mass_within(DENSITIES[halo], radius / scale)
    disc = foreign_rings.freeman_disc(radius, MASSES["disc_mass"], MASSES["disc_scale_length"])
    return disc + foreign_rings.GRAVITY * mass / radius


CURVES = {
    "arctan": ({"velocity": 220, "turnover_radius": 0.7}, lambda r: 220 * 2 / np.pi * np.arctan(r / 0.7)),
    "tanh": ({"velocity": 220, "turnover_radius": 0.7}, lambda r: 220 * np.tanh(r / 0.7)),
    "multi_parameter": (
        {"velocity": 220, "turnover_radius": 0.7, "beta": 0.1, "gamma": 3},
        lambda r: 220 * (1 + 0.7 / r) ** 0.1 / (1 + (0.7 / r) ** 3) ** (1 / 3),
    ),
    "spline": (
        {"radii": [0.5, 1.5, 4.0], "speeds": [90, 180, 170]},
        lambda r: interpolate.CubicSpline([0, 0.5, 1.5, 4], [0, 90, 180, 170], bc_type="natural")(np.minimum(r, 4)),
    ),
    "mass_model nfw": (MASSES | {"halo": "nfw"}, lambda r: np.sqrt(circular_square(r, "nfw"))),
    "mass_model burkert": (MASSES | {"halo": "burkert"}, lambda r: np.sqrt(circular_square(r, "burkert"))),
    "mass_model isothermal": (MASSES | {"halo": "isothermal"}, lambda r: np.sqrt(circular_square(r, "isothermal"))),
}


@pytest.mark.parametrize("curve", CURVES)
def test_rotation(curve):
    keys, expected = CURVES[curve]
    stars = stars_of(component(rotation={"curve": curve} | keys), points=1024)
    x, y = stars.position[:, :2].T
    radius = np.hypot(x, y)
    along = (x * stars.velocity[:, 1] - y * stars.velocity[:, 0]) / radius
    np.testing.assert_allclose(along, expected(radius), rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(x * stars.velocity[:, 0] + y * stars.velocity[:, 1], 0, atol=1e-3)


DISPERSIONS = {
    "constant": (80.0, lambda r: np.full_like(r, 80.0**2)),
    "exponential": (
        {"profile": "exponential", "central": 120, "floor": 30, "scale_length": 2.0},
        lambda r: (120**2 - 30**2) * np.exp(-2 * r / 2.0) + 30**2,
    ),
    "from_height": (
        {"profile": "from_height", "mass_factor": 1.3},
        lambda r: np.pi * foreign_rings.GRAVITY * 1.3 * 2e10 / (2 * np.pi * 1.5**2) * np.exp(-r / 1.5) * 0.4,
    ),
}
"""Profile -> its section, and the square of the dispersion (km/s) of a disc of 2e10 Msun with h = 0.4 kpc."""

THICK = {"profile": "sech2", "scale_height": 0.4}


@pytest.mark.parametrize("profile", DISPERSIONS)
def test_dispersion_in_rings(profile):
    section, square = DISPERSIONS[profile]
    stars = stars_of(component(height=THICK, dispersion=section), points=65536)
    radius = np.hypot(*stars.position[:, :2].T)
    for inner, outer in itertools.pairwise([0.3, 0.8, 1.5, 2.5, 4.0, 6.0]):
        ring = (radius >= inner) & (radius < outer)
        found = np.average(stars.random_velocity[ring] ** 2, weights=stars.initial_mass[ring])
        light = [
            integrate.quad(lambda r, own=own: r * np.exp(-r / 1.5) * own(np.array(r)), inner, outer)[0]
            for own in (square, np.ones_like)
        ]
        assert found == pytest.approx(light[0] / light[1], rel=3e-3)


@pytest.mark.parametrize(
    ("profile", "light"), [("constant", "exponential"), ("exponential", "sersic"), ("from_height", "exponential")]
)
def test_asymmetric_drift_is_that_of_jeans(profile, light):
    """v_phi^2 = v_c^2 + R d(Sigma sigma^2) / dR / Sigma by differences of the formulas; 0 where that is below 0."""
    (section, square), (keys, surface) = DISPERSIONS[profile], LIGHT[light]
    rotation = MASSES | {"halo": "burkert"}
    stars = stars_of(component(light=keys, height=THICK, rotation=rotation, dispersion=section), points=1024)
    radius = np.hypot(*stars.position[:, :2].T)
    step = 1e-4
    ends = [surface(at) * square(at) for at in (radius * np.exp(step), radius * np.exp(-step))]
    drift = (ends[0] - ends[1]) / (2 * step) / surface(radius)
    left = circular_square(radius, "burkert") + drift
    assert (left > 50**2).sum() > 100
    np.testing.assert_allclose((stars.velocity**2).sum(axis=1), np.maximum(left, 0), rtol=1e-4, atol=0.6)


def test_histories_form_as_many_stars_as_their_rate_says():
    for history, rate in (("tau", lambda t: np.exp(-t / 3)), ("delayed_tau", lambda t: t * np.exp(-t / 3))):
        stars = stars_of(component(population={"history": history, "oldest": 10, "tau": 3, "metallicity": 0.02}))
        total = integrate.quad(rate, 0, 10)[0]
        for age in (0.1, 1.0, 5.0):
            expected = integrate.quad(rate, 10 - age, 10)[0] / total
            found = stars.initial_mass[stars.log_age < np.log10(age) + 9].sum() / 2e10
            assert found == pytest.approx(expected, abs=2e-3)


def test_scatter_and_gradient_of_the_stars():
    population = {"history": "log_normal", "log_age": 9.2, "age_scatter": 0.2, "metallicity": 0.015}
    population |= {"metallicity_scatter": 0.1, "metallicity_gradient": -0.05}
    stars = stars_of(component(population=population))
    radius = np.hypot(*stars.position[:, :2].T)
    log_z = np.log10(stars.metallicity) + 0.05 * radius
    assert moment(stars, stars.log_age) == pytest.approx(9.2, abs=2e-3)
    assert moment(stars, (stars.log_age - 9.2) ** 2) == pytest.approx(0.04, rel=2e-2)
    assert moment(stars, log_z) == pytest.approx(np.log10(0.015), abs=2e-3)
    assert moment(stars, (log_z - np.log10(0.015)) ** 2) == pytest.approx(0.01, rel=2e-2)


def test_bins_of_age_have_the_rates_of_their_ratios():
    edges, ratios = [6, 8, 9, 10], [0.7, -0.4]
    population = {"history": "continuity", "edges": edges, "log_ratios": ratios, "metallicity": 0.02}
    stars = stars_of(component(population=population))
    rate = np.exp([0.7 - 0.4, -0.4, 0])
    mass = rate * np.diff(10.0 ** np.array(edges))
    found = [
        stars.initial_mass[(stars.log_age >= low) & (stars.log_age < high)].sum()
        for low, high in itertools.pairwise(edges)
    ]
    np.testing.assert_allclose(np.array(found) / 2e10, mass / mass.sum(), atol=1e-3)


def test_harmonics_of_light_and_streaming():
    """<cos m phi> of a surface density with the amplitude a_m g(R) is a_m <g> / 2."""
    keys = {"light_2": 0.3, "light_angle_2": 20, "streaming_1": 15, "streaming_angle_1": 90}
    stars = stars_of(component(asymmetry=keys))
    x, y = stars.position[:, :2].T
    angle = np.arctan2(y, x)
    growth = integrate.quad(lambda r: r**2 / (1 + r) * np.exp(-r), 0, 50)[0]
    assert moment(stars, np.cos(2 * (angle - np.deg2rad(20)))) == pytest.approx(0.3 * growth / 2, abs=1e-3)
    along = -np.sin(angle) * stars.velocity[:, 0] + np.cos(angle) * stars.velocity[:, 1]
    radius = np.hypot(x, y) / 1.5
    np.testing.assert_allclose(along, 15 * radius / (1 + radius) * np.sin(angle), atol=1e-3)


def test_warp_and_twist():
    warped = {"warp": {"start": 2, "tilt": 3, "turn": -5}, "inclination": 4, "position_angle": 10, "center": [0.1, 0.2]}
    rotation = {"curve": "tanh", "velocity": 100, "turnover_radius": 1}
    stars = stars_of(component(rotation=rotation, asymmetry={"kinematic_twist": 8}, **warped), points=256)
    x, y = stars.position[:, :2].T
    radius = np.hypot(x, y)
    np.testing.assert_allclose(stars.tilt, 4 + 3 * np.maximum(radius - 2, 0), rtol=1e-5)
    np.testing.assert_allclose(stars.twist, 10 - 5 * np.maximum(radius - 2, 0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose([stars.east[0], stars.north[0]], [0.1, 0.2], rtol=1e-6)
    seen = stars.velocity[:, 1] / (100 * np.tanh(radius))  # along the line of sight of an inclined disc
    np.testing.assert_allclose(seen, np.cos(np.arctan2(y, x) - np.deg2rad(8 * radius)), atol=1e-4)
