"""A source from outside, painted together with the stars: two emission lines of the gas, by its own templates."""

import functools
from dataclasses import replace
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo import collectives
from installed_package import write_dist_info
from scipy.special import ndtr

from rubix_like import ConfigError, Cube, Galaxy, Gas, Pipeline, Stars, load_config, make_mesh
from rubix_like.extend import (
    AbstractSettings,
    AbstractSource,
    Number,
    Parameter,
    TemplateAxes,
    Templates,
    build_painter,
    plan_source,
    refuse_options,
    to_scene,
)

LINES = np.array([4861.33, 5006.84])
STRENGTHS = np.array([[1.0, 0.4], [1.0, 3.0]])
"""Lsun per Msun of gas in each line, at 12 + log O/H = 8 and 9."""

N_GAS, N_STARS, MAXIMUM = 1500, 60, 500.0
REDSHIFT, DISTANCE = 0.01, 40.0
SPEED_OF_LIGHT = 299792.458
FWHM = 5.0
LUMINOSITY = 3.828e33 / (4 * np.pi * (3.0856775814913673e24) ** 2) * 1e20
"""Flux of 1 Lsun at 1 Mpc in 1e-20 erg/s/cm2."""


class LinesSettings(AbstractSettings):
    """The section `pair`."""

    strength: Annotated[Number, Parameter()] = 1.0
    """Factor on the light of both lines."""


class TwoLines(AbstractSource):
    """Lines without a width of their own, of gas whose oxygen decides their ratio."""

    painter: object
    kind: ClassVar = "gas"
    section_type: ClassVar = LinesSettings

    @classmethod
    def plan(cls, setup, options):
        """Triangles of 0.01 Angstrom; nothing lies between or beyond them."""
        refuse_options("pair", options, ("method",))
        half = 0.005
        wavelength = (LINES[:, None] + half * np.array([-1, 0, 1])).reshape(-1)
        table = (STRENGTHS[:, :, None] / half * np.array([0, 1, 0])).reshape(2, -1)
        templates = Templates(
            name="the two lines",
            axes=TemplateAxes((np.array([8.0, 9.0]),), ("oxygen",)),
            rest_wavelength=wavelength,
            table=table,
            fwhm=np.zeros(len(wavelength)),
            covered=(1.0, 1e6),
        )
        method = options.get("method", "direct")
        return plan_source(setup, templates, cls.kind, method=method, velocity_range=MAXIMUM)

    @classmethod
    def build(cls, setup, plan, options):
        return cls(build_painter(plan, setup))

    def scene(self, particles, alignment, arcsec_per_kpc):
        oxygen = 12 + jnp.log10(particles.oxygen_fraction / 16)
        return to_scene(particles, particles.mass, {"oxygen": oxygen}, alignment, arcsec_per_kpc)

    def shine(self, scene, parameters):
        return eqx.tree_at(lambda s: s.amount, scene, scene.amount * parameters.pair.strength)


@functools.cache
def galaxy():
    """Stars and gas in the middle of the field; 2 gas particles outside, 3 with less oxygen than the table."""
    rng = np.random.default_rng(4)
    position = [rng.normal(size=(n, 3)) * 0.05 for n in (N_STARS, N_GAS)]
    position[1][:2] += 50.0
    velocity = [rng.normal(size=(n, 3)) * 100 for n in (N_STARS, N_GAS)]
    velocity[1] = np.clip(velocity[1], -400, 400)
    oxygen = rng.uniform(8.0, 9.0, N_GAS)
    oxygen[-3:] = 7.0
    stars = Stars(
        position=position[0],
        velocity=velocity[0],
        initial_mass=rng.uniform(1e5, 1e6, N_STARS),
        log_age=rng.uniform(8, 10, N_STARS),
        metallicity=rng.uniform(0.01, 0.03, N_STARS),
    )
    gas = Gas(
        position=position[1],
        velocity=velocity[1],
        mass=rng.uniform(10.0, 20.0, N_GAS),
        metallicity=np.full(N_GAS, 0.02),
        oxygen_fraction=16 * 10 ** (oxygen - 12),
    )
    return Galaxy(stars=stars, gas=gas)


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    """`configuration(paint)`: a run that paints these sources; `pair` is a plug-in."""
    folder = tmp_path_factory.mktemp("plug_in")
    write_dist_info(folder, "two-lines", "[rubix_like.paint_stages]\npair = test_sources:TwoLines\n")

    def of(paint, precision="float64", **engine):
        path = folder / "own.yaml"
        path.write_text(f"scene: [orient, point]\npaint: [{paint}]\ncube: [psf]\n")
        return load_config(
            {
                "pipeline": str(path),
                "observation": {"redshift": REDSHIFT, "distance": f"{DISTANCE} Mpc", "align": "none"},
                "instrument": {
                    "name": "muse",
                    "fov": "3 arcsec",
                    "pixel_scale": "1 arcsec",
                    "psf": None,
                    "lsf": {"fwhm": f"{FWHM} Angstrom", "includes_pixel": False},
                    "wavelength": {
                        "start": "4870 Angstrom",
                        "stop": "5100 Angstrom",
                        "step": "1.25 Angstrom",
                        "medium": "vacuum",
                    },
                },
                "engine": {"method": "basis", "precision": precision, **engine},
            }
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield of


def lines_by_numpy(edges):
    """The whole field's flux density of the lines: every particle's, through the instrument's Gaussian alone."""
    gas = galaxy().gas
    inside = (np.abs(gas.position[:, :2]) < 1.0).all(axis=1)
    oxygen = np.clip(12 + np.log10(gas.oxygen_fraction / 16), 8.0, 9.0)
    strength = STRENGTHS[0] + (oxygen - 8.0)[:, None] * (STRENGTHS[1] - STRENGTHS[0])
    flux = inside[:, None] * gas.mass[:, None] * strength * LUMINOSITY / DISTANCE**2
    center = LINES * (1 + REDSHIFT) * np.exp(gas.velocity[:, 2, None] / SPEED_OF_LIGHT)
    passed = ndtr((edges - center[:, :, None]) / (FWHM / np.sqrt(8 * np.log(2))))
    return (flux[:, :, None] * np.diff(passed, axis=-1)).sum(axis=(0, 1)) / np.diff(edges)


def pipeline_of(config, n_devices=1):
    return Pipeline.from_config(config, galaxy(), mesh=make_mesh(n_devices))


def cube_of(config):
    return pipeline_of(config)(galaxy())


@pytest.mark.parametrize("method", ["direct", pytest.param("basis", marks=pytest.mark.slow(25))])
def test_its_flux_and_its_widths_are_those_of_its_particles_and_the_instrument(configuration, method):
    """To the sampling of the line spread in fine bins; no light is made or lost."""
    pipeline = pipeline_of(configuration(f"{{pair: {{method: {method}}}}}"))
    cube = pipeline(galaxy())
    brighter = eqx.tree_at(lambda p: p.pair.strength, pipeline.parameters, jnp.asarray(2.0))
    np.testing.assert_allclose(pipeline(galaxy(), brighter).flux, 2 * np.asarray(cube.flux), rtol=1e-9)
    expected, found = lines_by_numpy(cube.wave_edges), np.asarray(cube.flux).sum(axis=(0, 1))
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-9)
    np.testing.assert_allclose(found, expected, atol=6e-3 * expected.max())
    for line in LINES:
        near = np.abs(cube.wavelength - line * (1 + REDSHIFT)) < 40
        widths = [width(cube.wavelength[near], flux[near]) for flux in (found, expected)]
        assert widths[0] == pytest.approx(widths[1], rel=3e-3)
    np.testing.assert_allclose(cube.lsf_fwhm, FWHM, rtol=1e-12)
    assert (cube.mask == 0).all()
    assert cube.counters is None


def width(wavelength, flux):
    middle = wavelength @ flux / flux.sum()
    return np.sqrt((wavelength - middle) ** 2 @ flux / flux.sum())


@pytest.fixture(scope="module")
def both(configuration):
    """Stars by `basis`, the lines by `direct` and over a narrower range of velocities."""
    return pipeline_of(configuration("stars, pair", velocity_range=800))


def test_stars_and_lines_are_painted_together(configuration, both):
    """Their sum is that of each alone; templates, methods, velocities, line spreads and counters are their own."""
    together, lines = both(galaxy()), cube_of(configuration("pair"))
    stars = cube_of(configuration("stars", velocity_range=800))
    difference = np.asarray(together.flux) - np.asarray(lines.flux) - np.asarray(stars.flux)
    assert np.abs(difference).max() < 1e-9 * np.asarray(stars.flux).max()
    assert together.meta["method"] == "basis, direct"
    assert [float(source.painter.velocity_limit) for source in both.tables.paint] == [800.0, MAXIMUM]
    np.testing.assert_array_equal(together.lsf_fwhm, np.maximum(stars.lsf_fwhm, lines.lsf_fwhm))
    assert (stars.lsf_fwhm > 1.5 * lines.lsf_fwhm).all()
    (name,) = (own for own in both.plan.sources if own != "stars")
    assert together.meta["lsf_not_of"] == name
    assert any(f"that of source '{name}' is narrower" in note for note in both.notes)
    assert stars.meta["lsf_not_of"] is None
    assert any("popstar" in note and "coarser" in note for note in both.notes)
    for name, value in vars(stars.counters).items():
        assert float(getattr(together.counters, name)) == float(value), name
    assert stars.source_counters == {}


def test_counters_are_kept_under_the_source_s_name_in_files_too(both, tmp_path):
    cube = both(galaxy())
    for file in ("own.fits", "own.h5"):
        again = Cube.read(cube.write(tmp_path / file))
        assert int(again.counters.n_particles) == N_STARS
        assert list(again.source_counters) == ["pair"]
        for own in (cube.source_counters["pair"], again.source_counters["pair"]):
            assert (int(own.n_particles), int(own.n_outside)) == (N_GAS, 2)
            assert {name: int(number) for name, number in own.n_clamped.items()} == {"oxygen": 3}
            assert float(own.amount_total) == pytest.approx(galaxy().gas.mass.sum(), rel=1e-12)
            assert float(own.amount_clamped["oxygen"]) == pytest.approx(galaxy().gas.mass[-3:].sum(), rel=1e-12)


def test_devices_and_slabs_give_the_same(configuration, both):
    """With one sum over the devices for both."""
    whole, shared = both(galaxy()), pipeline_of(configuration("stars, pair", velocity_range=800), 2)
    peak = np.asarray(whole.flux).max()
    np.testing.assert_allclose(shared(galaxy()).flux, whole.flux, atol=1e-12 * peak)
    assert collectives(shared.lower(galaxy()).compile().as_text()) == [("all-reduce", "ENTRY")]
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], galaxy()) for half in (0, 1)]
    in_slabs = shared.observe_slabs(slabs)
    np.testing.assert_allclose(in_slabs.flux, whole.flux, atol=1e-12 * peak)
    assert int(in_slabs.source_counters["pair"].n_particles) == N_GAS


def test_particles_that_it_cannot_paint_are_named(both):
    fast = np.array(galaxy().gas.velocity)
    fast[:4, 2] = 600.0  # within the stars' range
    faster = Galaxy(stars=galaxy().stars, gas=replace(galaxy().gas, velocity=fast))
    with pytest.raises(ValueError, match=r"within 500 km/s .* got 4 of 1500 particles of source 'pair' beyond"):
        both(faster)
    with pytest.raises(ValueError, match=r"galaxy\.gas: expected particles for a source of the pipeline, got none"):
        both(Galaxy(stars=galaxy().stars))


def test_a_source_is_painted_once(configuration):
    with pytest.raises(ConfigError, match=r"pipeline\.paint: expected each source once .* got stars, pair, stars"):
        pipeline_of(configuration("stars, pair, stars"))


def test_a_source_that_covers_less_flags_its_bins(configuration, monkeypatch):
    """Mask bits and the note are those of its templates, not of the stars' library."""
    plan = TwoLines.plan

    def narrower(setup, options):
        whole = plan(setup, options).templates
        few = replace(whole, covered=(1.0, 5000.0))
        return plan_source(setup, few, "gas", method="direct", velocity_range=MAXIMUM)

    monkeypatch.setattr(TwoLines, "plan", narrower)
    built = pipeline_of(configuration("stars, pair", velocity_range=800))
    flagged = np.asarray(built.frame.wave_bits) == 1
    edge = 5000.0 * (1 + REDSHIFT)
    assert not flagged[built.frame.bins.wavelength < edge - 40].any()
    assert flagged[built.frame.bins.wavelength > edge].all()
    assert any("outside the two lines and are flagged" in note for note in built.notes)


def test_templates_of_another_shape_than_their_axes_are_refused():
    axes = TemplateAxes((np.array([8.0, 9.0]),), ("oxygen",))
    with pytest.raises(ValueError, match=r"templates of the lines: expected a table of shape \(2, 3\)"):
        Templates("the lines", axes, np.arange(1.0, 4.0), np.ones((1, 3)), np.zeros(3), (1.0, 3.0))
