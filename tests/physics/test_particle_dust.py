"""Particles behind dust of their own, whose columns are known: against numpy with the curves of dust_extinction."""

import functools
from typing import Any

import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from building import REGISTRIES
from dust_extinction.averages import G03_SMCBar
from dust_extinction.parameter_averages import CCM89, G23
from hlo import collectives
from independent import errors
from nebular_files import write_nlr
from observing import configuration, galaxy_of
from speclite import filters
from test_independent_sum import require_library

from rubix_like import Galaxy, Gas, Pipeline, load_ssp, make_mesh
from rubix_like.extend import AbstractField

REDSHIFT = 0.05
DISTANCE = independent.luminosity_distance(REDSHIFT)
SCALE = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)
MUSE = {"start": 4750.0, "stop": 9350.0}
SIDE = 8


CURVES = {
    "calzetti": independent.calzetti,
    "cardelli": lambda wavelength: CCM89(Rv=3.1)(wavelength * units.AA),
    "gordon": lambda wavelength: G23(Rv=3.1)(wavelength * units.AA),
    "smc": lambda wavelength: G03_SMCBar()(wavelength * units.AA),
}


class Columns(eqx.Module):
    """Dust in proportion to how far away a position is, 1 Msun/pc^2 per arcsec beyond -1 arcsec."""

    per_arcsec: Any

    def at(self, position):
        return self.per_arcsec * (position[:, 2] + 1.0)


class KnownColumns(AbstractField):
    """In the place of the field of columns: in proportion to dust_to_metal, which is 0.4."""

    per_arcsec: Any
    kind = "stars"
    map = None

    @classmethod
    def build(cls, setup, options):
        return cls(np.asarray(1.0))

    def with_parameters(self, parameters):
        return KnownColumns(parameters.dust.dust_to_metal / 0.4)

    def n_cell(self, grid):
        return 1

    def deposit(self, particles, scene, grid):
        return jnp.zeros((len(scene.amount), 1), jnp.int32), scene.amount[:, None]

    def finish(self, sums, grid):
        return Columns(self.per_arcsec + 0 * sums[0])


@pytest.fixture(scope="module", autouse=True)
def known_columns():
    """The field is found under the name of that of the gas' dust."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRIES["fields"].builtin, "dust_column", f"{__name__}:KnownColumns")
        yield


def config_of(curve, step, method, library="popstar", precision="float64", **dust):
    return configuration(
        instrument={"pixel_scale": 1.0, "fov": float(SIDE), "wavelength": {**MUSE, "step": step}},
        engine={"method": method, "precision": precision},
        ssp={"library": library},
        dust={"kind": "particles", "curve": curve, "opacity": 1.0, **dust},
    )


def stars_of(library, most=6.0, sigma=100.0):
    """Stars over the whole library, each alone in its spaxel, and their A(V) by an opacity of 1."""
    rng = np.random.default_rng(5)
    n = SIDE**2
    column, row = np.arange(n) % SIDE, np.arange(n) // SIDE
    a_v = rng.uniform(0.0, most, n)
    place = np.stack([(SIDE - 1) / 2 - column, row - (SIDE - 1) / 2, a_v - 1.0], axis=1)
    galaxy = galaxy_of(
        place / SCALE,
        rng.normal(0, sigma, n),
        initial_mass=rng.uniform(0.5, 2, n) * 1e6,
        log_age=rng.uniform(library.log_age[0], min(library.log_age[-1], 10.3), n),
        metallicity=10 ** rng.uniform(*np.log10(library.metallicity[[0, -1]]), n),
    )
    return galaxy, a_v


def true_spectra(stars, a_v, curve, edges, name="popstar", clouds=(0.0, None)):
    """(star, wave): exact integrals over bins in air of templates dimmed at their nodes, those of young stars also by
    birth clouds of this A(V), with the slope or the curve of all dust."""
    a_v_birth, slope = clouds
    birth = np.clip((7.1 - np.asarray(stars.log_age)) / 0.1, 0, 1) * a_v_birth

    def left(star, wavelength):
        relative = CURVES[curve](wavelength)
        in_cloud = relative if slope is None else (wavelength / 5500) ** slope
        return 10 ** (-0.4 * (a_v[star] * relative + birth[star] * in_cloud))

    table = independent.SpectrumTable.of(load_ssp(name))
    return independent.spectra_of_stars(stars, table, edges, REDSHIFT, left)


SLOW = [("popstar", "cardelli", 10.0)]
LONG = [(name, curve, 1.25) for name in ("popstar", "bc03-miles") for curve in CURVES]


@pytest.mark.parametrize(
    ("name", "curve", "step"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow(6)) for case in SLOW),
        *(pytest.param(*case, marks=pytest.mark.long) for case in LONG if case not in SLOW),
    ],
)
def test_random_stars_behind_random_dust(name, curve, step):
    """`direct` to rounding, `basis` in 32 bits within the tolerance of 1e-3, up to A(V) = 6."""
    if name != "popstar":
        require_library(name)
    galaxy, a_v = stars_of(load_ssp(name))
    for method, precision, limit in (("direct", "float64", 1e-10), ("basis", "float32", 1e-3)):
        pipeline = Pipeline.from_config(config_of(curve, step, method, name, precision), galaxy, make_mesh(1))
        cube = pipeline(galaxy)
        expected = true_spectra(galaxy.stars, a_v, curve, np.asarray(cube.wave_edges), name)
        error = errors(np.asarray(cube.flux, np.float64).reshape(expected.shape), expected)
        assert error.max() <= limit
    assert error.max() <= 1.01 * cube.meta["basis_spectrum_error"] <= 1.3e-3


CLOUDS = {"a_v_birth": 0.7}
OWN_CLOUDS = {"birth_curve": "power_law", "birth_slope": -1.3, "a_v_birth": 2.0}
"""Birth clouds with a curve of their own (Charlot & Fall 2000)."""


@functools.cache
def small(method, n_devices=1, has_own=False):
    """A pipeline of a few colours, its galaxy, and their A(V)."""
    galaxy, a_v = stars_of(load_ssp("popstar"))
    dust = (OWN_CLOUDS if has_own else CLOUDS) | {"largest": 9.0}
    pipeline = Pipeline.from_config(config_of("cardelli", 200.0, method, **dust), galaxy, make_mesh(n_devices))
    return pipeline, galaxy, a_v


def with_dust(pipeline, **values):
    """Parameters with these numbers of the dust."""
    where = lambda p: [getattr(p.dust, name) for name in values]  # noqa: E731
    return eqx.tree_at(where, pipeline.parameters, [jnp.asarray(value) for value in values.values()])


@pytest.mark.parametrize("has_own", [False, pytest.param(True, marks=pytest.mark.slow(3))])
def test_basis_is_direct_within_its_stated_error(has_own):
    """In a few broad bins; a third of the stars are young."""
    (basis, galaxy, a_v), (direct, *_) = small("basis", has_own=has_own), small("direct", has_own=has_own)
    ages = np.asarray(galaxy.stars.log_age)
    ages = np.where(np.arange(len(ages)) % 3 == 0, 6.0 + 1.1 * (ages - ages.min()) / np.ptp(ages), ages)
    galaxy = eqx.tree_at(lambda g: g.stars.log_age, galaxy, jnp.asarray(ages))
    cube, expected = basis(galaxy), np.asarray(direct(galaxy).flux).reshape(SIDE**2, -1)
    slope = OWN_CLOUDS["birth_slope"] if has_own else None
    curve = OWN_CLOUDS["birth_curve"] if has_own else None
    assert (cube.meta.get("dust_birth_curve"), cube.meta.get("dust_birth_slope")) == (curve, slope)
    clouds = (OWN_CLOUDS if has_own else CLOUDS)["a_v_birth"], slope
    true = true_spectra(galaxy.stars, a_v, "cardelli", np.asarray(cube.wave_edges), clouds=clouds)
    np.testing.assert_allclose(expected, true, rtol=1e-9)
    assert errors(np.asarray(cube.flux).reshape(expected.shape), expected).max() <= cube.meta["basis_spectrum_error"]


NAMES = ("opacity", "a_v_birth", "dust_to_metal")


@pytest.mark.parametrize(
    ("method", "has_own"),
    [
        ("direct", False),
        ("basis", False),
        pytest.param("direct", True, marks=pytest.mark.long),
        pytest.param("basis", True, marks=pytest.mark.slow(3)),
    ],
)
def test_gradients_are_finite_differences(method, has_own):
    """With respect to the parameters of the dust, and to a star's age while it leaves its birth cloud."""
    pipeline, galaxy, _ = small(method, has_own=has_own)
    galaxy = eqx.tree_at(lambda g: g.stars.log_age, galaxy, galaxy.stars.log_age.at[0].set(7.047))
    weight = np.random.default_rng(2).normal(size=(SIDE, SIDE, pipeline.plan.n_wave))

    def score(changes, galaxy):
        dust = pipeline.parameters.dust
        moved = with_dust(
            pipeline, **{name: getattr(dust, name) + change for name, change in zip(NAMES, changes[:3], strict=True)}
        )
        younger = eqx.tree_at(lambda g: g.stars.log_age, galaxy, galaxy.stars.log_age.at[0].add(changes[-1]))
        return (pipeline(younger, moved).flux * weight).sum()

    score = jax.jit(jax.value_and_grad(score))
    slope = score(jnp.zeros(4), galaxy)[1]
    for number in range(4):
        step = 1e-4 * jnp.eye(4)[number]
        difference = (score(step, galaxy)[0] - score(-step, galaxy)[0]) / 2e-4
        assert slope[number] == pytest.approx(float(difference), rel=1e-4)
    assert score._cache_size() == 1


def test_young_stars_lie_in_birth_clouds():
    """Below birth_age behind a_v_birth more, above 0.1 dex more behind none of it, on the way behind a part of it."""
    pipeline, galaxy, _ = small("direct")
    ages = np.concatenate([[6.0, 6.99, 7.05, 7.11], np.linspace(7.2, 10.0, SIDE**2 - 4)])
    galaxy = eqx.tree_at(lambda g: g.stars.log_age, galaxy, jnp.asarray(ages))
    clouded, bare = pipeline(galaxy), pipeline(galaxy, with_dust(pipeline, a_v_birth=0.0))
    lost = -2.5 * np.log10(np.asarray(clouded.flux) / np.asarray(bare.flux)).reshape(SIDE**2, -1)
    near_v = np.argmin(np.abs(clouded.wavelength - 5500 * 1.05))
    share = np.zeros(SIDE**2)
    share[:3] = 1.0, 1.0, 0.5
    np.testing.assert_allclose(lost[:, near_v], 0.7 * share, atol=0.015)
    np.testing.assert_allclose(lost[3:], 0.0, atol=1e-9)


@pytest.mark.parametrize("method", ["direct", "basis"])
def test_beyond_the_largest_a_v_light_gets_fainter_and_no_redder(method):
    """By a magnitude in all bins for each one in V; such stars are counted."""
    pipeline, galaxy, a_v = small(method)
    threefold = with_dust(pipeline, opacity=3.0, a_v_birth=0.0)
    cube = pipeline(galaxy, threefold)
    nearer = np.array([[0, 0, 1 / (3 * SCALE)]])
    deeper = eqx.tree_at(lambda g: g.stars.position, galaxy, galaxy.stars.position + nearer)
    lost = -2.5 * np.log10(np.asarray(pipeline(deeper, threefold).flux) / np.asarray(cube.flux)).reshape(SIDE**2, -1)
    assert int(cube.counters.n_clamped_a_v) == (a_v > 3.0).sum()
    np.testing.assert_allclose(lost[a_v > 3.0], 1.0, atol=1e-9)
    assert np.ptp(lost[a_v < 2.0], axis=1).min() > 0.2


def test_eight_devices_give_the_same():
    """One sum over devices for the columns, one for the light."""
    (one, galaxy, _), (eight, *_) = small("basis"), small("basis", 8)
    whole, compiled = np.asarray(one(galaxy).flux), eight.lower(galaxy).compile()
    found = eight.to_cube(compiled(*eight.arguments(galaxy))).flux
    np.testing.assert_allclose(found, whole, atol=1e-12 * whole.max())
    assert len(collectives(compiled.as_text())) == 2


BALMER = {"Ha": 6564.614, "Hb": 4862.691}
DECREMENTS = {
    "cardelli": (1.3755, 1.8924, 2.6029),
    "calzetti": (1.3353, 1.7831, 2.3814),
    "gordon": (1.4209, 2.0192, 2.869),
}
"""Ha / Hb behind A(V) = 1, 2, 3 over that without dust."""


@pytest.mark.parametrize(("curve", "method"), [("cardelli", "direct"), ("calzetti", "basis"), ("gordon", "basis")])
def test_balmer_decrements_behind_dust(curve, method):
    """Of gas in the middle of three spaxels, whatever line it shines in."""
    place = np.stack([[1.0, 0.0, -1.0], np.zeros(3), [0.0, 1.0, 2.0]], axis=1) / SCALE
    gas = Gas(position=place, velocity=np.zeros((3, 3)), mass=np.ones(3), metallicity=np.full(3, 0.02))
    config = configuration(
        pipeline="lines",
        lines={"wavelengths": list(BALMER), "ratios": [2.86, 1.0], "velocity_dispersion": 20.0},
        instrument={"pixel_scale": 1.0, "fov": 3.0, "wavelength": {"start": 5000, "stop": 7000, "step": 2.5}},
        engine={"method": method, "velocity_range": 100.0},
        dust={"kind": "particles", "curve": curve, "opacity": 1.0},
    )
    galaxy = Galaxy(stars=galaxy_of().stars, gas=gas)
    cube = Pipeline.from_config(config, galaxy, make_mesh(1))(galaxy)
    blue = np.asarray(cube.wavelength) < 6000
    light = np.asarray(cube.flux)[1]
    found = light[:, ~blue].sum(axis=1) / light[:, blue].sum(axis=1) / 2.86
    relative = CURVES[curve](np.array(list(BALMER.values())))
    expected = 10 ** (-0.4 * np.arange(1, 4) * (relative[0] - relative[1]))
    np.testing.assert_allclose(found, expected, rtol=2e-5)
    np.testing.assert_allclose(found, DECREMENTS[curve], rtol=2e-4)


A_V_BIRTH, SCREEN = 1.4, 0.5


@pytest.fixture(scope="module")
def shining(tmp_path_factory):
    """Cubes of stars, the nebulae of the young ones and a nucleus behind dust, and without it; with their galaxy."""
    folder = tmp_path_factory.mktemp("dusty")
    path = folder / "all.yaml"
    path.write_text("fields: [dust_column]\nscene: [orient, point]\npaint: [stars, nebulae, agn]\ncube: [dust]\n")
    agn = {"log_luminosity": 40.0, "covering_fraction": 0.1, "log_u": -2.92, "table": str(write_nlr(folder))}
    config = configuration(
        pipeline=str(path),
        nebular={"continuum": False, "agn": agn},
        dust={
            "kind": "particles",
            "opacity": 1.0,
            **OWN_CLOUDS,
            "a_v_birth": A_V_BIRTH,
            "foreground": {"a_v": SCREEN, "curve": "gordon"},
        },
        instrument={"pixel_scale": 1.0, "fov": 3.0, "wavelength": {"start": 5080, "stop": 6920, "step": 8.0}},
        engine={"deposit": "nearest", "velocity_range": 500.0},
        products={"losvd": None, "lines": list(BALMER), "filters": ["sdss2010-g", "sdss2010-r"]},
    )
    mags = np.array([0.3, 1.0, 2.0, 3.0])
    place = np.stack([[-1.0, 1.0, -1.0, 1.0], [-1.0, -1.0, 1.0, 1.0], mags - 1.0], axis=1) / SCALE
    galaxy = galaxy_of(place, log_age=np.array([6.4, 6.6, 9.0, 10.0]), initial_mass=1e6)
    pipeline = Pipeline.from_config(config, galaxy, make_mesh(1))
    none = eqx.tree_at(
        lambda p: (p.dust.opacity, p.dust.a_v_birth, p.dust.foreground.a_v), pipeline.parameters, (jnp.zeros(()),) * 3
    )
    return pipeline(galaxy), pipeline(galaxy, none), galaxy, mags


def spaxels_of(galaxy):
    """Row and column of each star."""
    column, row = (np.asarray(galaxy.stars.position)[:, axis] * SCALE for axis in (0, 1))
    return np.rint(1 + row).astype(int), np.rint(1 - column).astype(int)


def let_through(rest, mag, birth):
    """By the dust of the galaxy, and by the screen in front of it."""
    own = 10 ** (-0.4 * (mag * CURVES["cardelli"](rest) + birth * (rest / 5500) ** -1.3))
    return own * 10 ** (-0.4 * SCREEN * CURVES["gordon"](rest * (1 + REDSHIFT)))


@pytest.mark.slow
def test_maps_of_lines_behind_known_columns(shining):
    """Nebulae lie behind their column, their birth cloud and the screen; the nucleus, in the middle, in no cloud."""
    cube, clear, galaxy, mags = shining
    rows, columns = (np.append(places[:2], 1) for places in spaxels_of(galaxy))
    for name, rest in BALMER.items():
        seen, bare = (np.asarray(each.maps.before.lines[name].flux)[rows, columns] for each in (cube, clear))
        assert (bare > 0).all()
        dust = (mags[0], A_V_BIRTH), (mags[1], A_V_BIRTH), (1.0, 0.0)
        expected = [let_through(np.array([rest]), *layers)[0] for layers in dust]
        np.testing.assert_allclose(seen / bare, expected, rtol=2e-5, err_msg=name)


@pytest.mark.slow
def test_lines_of_a_nucleus_behind_a_known_column(shining):
    """In every bin that its lines reach, its light is dimmed as at the line, and by the screen as in the bin."""
    cube, clear, *_ = shining
    seen, bare = (np.asarray(each.flux)[1, 1] for each in (cube, clear))
    vacuum = independent.air_to_vacuum(np.asarray(cube.wavelength))
    screen = 10 ** (-0.4 * SCREEN * CURVES["gordon"](vacuum))
    for rest in BALMER.values():
        near = (np.abs(vacuum - rest * (1 + REDSHIFT)) < 12) & (bare > 0.05 * bare.max())
        own = 10 ** (-0.4 * CURVES["cardelli"](np.array([rest])))
        np.testing.assert_allclose(seen[near] / bare[near] / screen[near], np.broadcast_to(own, near.sum()), rtol=2e-5)


@pytest.mark.slow
def test_bands_of_stars_behind_known_columns(shining):
    """The light of each star through a filter, photon by photon."""
    cube, clear, galaxy, mags = shining
    table, particles = independent.SpectrumTable.of(load_ssp("popstar")), independent.Particles.of(galaxy.stars)
    rows, columns = spaxels_of(galaxy)
    seen, bare = (np.asarray(each.maps.before.flux)[rows, columns] for each in (cube, clear))
    for number, name in enumerate(("sdss2010-g", "sdss2010-r")):
        band = filters.load_filter(name)
        observed = np.linspace(band.wavelength[0], band.wavelength[-1], 20001)
        rest, photons = observed / (1 + REDSHIFT), np.interp(observed, band.wavelength, band.response) * observed
        for star, mag in enumerate(mags):
            spectrum = table.spectrum(particles.log_age[star], particles.metallicity[star])
            weight = photons * np.interp(rest, table.wavelength, spectrum)
            left = let_through(rest, mag, A_V_BIRTH * (particles.log_age[star] < 7))
            expected = (weight * left).sum() / weight.sum()
            assert seen[star, number] / bare[star, number] == pytest.approx(expected, rel=2e-4)
