"""The source `lines`: which lines, of what, how bright."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import few_stars, muse

from rubix_like import ConfigError, Galaxy, Gas, Pipeline, load_config
from rubix_like.extend import resolve, take_census
from rubix_like.forward.census import gas_weight
from rubix_like.forward.sources.lines import line_templates
from rubix_like.runs.run_summary import accuracy_lines, source_lines

LUMINOSITY = 3.828e33 / (4 * np.pi * (20 * 3.0856775814913673e24) ** 2) * 1e20
"""Flux of 1 Lsun at 20 Mpc in 1e-20 erg/s/cm2."""


def config_of(**changes):
    return load_config(
        {
            "pipeline": "lines",
            "observation": {"redshift": 0.0, "distance": "20 Mpc", "align": "none"},
            "instrument": muse(4970, 5040, 1.25, lsf={"fwhm": "3 Angstrom"}),
            "lines": {"wavelengths": "[O III] 5007", "luminosity": 3.0},
            "engine": {"precision": "float64"},
            "devices": {"data": 1},
        },
        changes,
    )


def galaxy():
    gas = Gas(
        position=np.zeros((40, 3)),
        velocity=np.random.default_rng(1).normal(0, 100, (40, 3)),
        mass=np.linspace(1.0, 2.0, 40),
        metallicity=np.full(40, 0.02),
        star_formation_rate=np.linspace(0.0, 0.1, 40),
    )
    return Galaxy(stars=few_stars(30, 1e-4).stars, gas=gas)


def light(galaxy, **changes):
    """All light of the cube, and the cube."""
    cube = Pipeline.from_config(config_of(**changes), galaxy)(galaxy)
    return float((np.asarray(cube.flux) * np.diff(cube.wave_edges)).sum()), cube


def test_particles_shine_by_their_weight():
    """Gas by mass or star formation, stars by their mass at birth; the method and the velocities are those of each."""
    own = galaxy()
    for changes, amount in (
        ({}, own.gas.mass.sum()),
        ({"lines.weight": "star_formation_rate"}, own.gas.star_formation_rate.sum()),
        ({"lines.particles": "stars"}, own.stars.initial_mass.sum()),
    ):
        found, cube = light(own, **changes)
        assert found == pytest.approx(3.0 * LUMINOSITY * amount, rel=1e-6)
        assert float(cube.source_counters["lines"].amount_total) == pytest.approx(3.0 * amount, rel=1e-12)
        assert cube.counters is None


def test_impossible_gas_is_refused():
    """Also in columns that its lines do not read."""
    own, pipeline = galaxy(), Pipeline.from_config(config_of(**{"engine.velocity_range": 1000}))
    words = r"galaxy: expected .* masses up to 1e\+15 Msun, got 40 of 40 particles of"
    for columns in ({"mass": own.gas.mass * 1e25}, {"metallicity": -own.gas.metallicity}):
        with pytest.raises(ValueError, match=words):
            pipeline(Galaxy(stars=own.stars, gas=dataclasses.replace(own.gas, **columns)))


def test_gas_is_counted_for_the_velocities():
    """Nodes reach the fastest gas without a velocity_range; the header and the summary state the errors."""
    own = galaxy()
    pipeline = Pipeline.from_config(config_of(**{"engine.method": "basis"}), own)
    fastest = np.abs(own.gas.velocity[:, 2]).max()
    assert fastest < float(pipeline.velocity_limit) < 1.6 * fastest
    meta = pipeline.frame.meta
    assert "ssp_library" not in meta
    assert accuracy_lines(meta)[0].startswith("Accuracy: 1 line ratio, ")
    assert "fluxes exact, a line's profile to" in accuracy_lines(meta)[0]
    padded = eqx.tree_at(lambda g: g.gas.velocity, own, own.gas.velocity * np.where(np.arange(40) < 39, 1, 20)[:, None])
    weight = np.where(np.arange(40) < 39, 1.0, 0.0)
    padded = dataclasses.replace(padded, gas=dataclasses.replace(padded.gas, weight=weight))
    again = Pipeline.from_config(config_of(**{"engine.method": "basis"}), padded)
    assert float(again.velocity_limit) < 1.6 * fastest


def test_gas_in_slabs_is_counted_as_the_whole():
    """Also where a slab has none; only for a pipeline that may paint it."""
    config, own = config_of(), galaxy()
    resolved = resolve(config)
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], own) for half in (0, 1)]
    whole = take_census(config, resolved, [own]).gas
    for parts in (slabs, [*slabs, Galaxy(stars=own.stars)]):
        found = take_census(config, resolved, parts).gas
        np.testing.assert_array_equal(found.speed, whole.speed)
        assert (found.number, found.fastest) == (40, whole.fastest)
    assert take_census(config, resolved, [Galaxy(stars=own.stars)]).gas is None
    of_stars = config_of(**{"lines.particles": "stars"})
    assert gas_weight(config, resolved) == "mass"
    assert gas_weight(of_stars, resolve(of_stars)) is None


def test_fast_gas_that_forms_no_stars_need_not_be_planned_for():
    own = galaxy()
    velocity = np.where(own.gas.star_formation_rate[:, None] > 0, own.gas.velocity, 5000.0)
    fast = Galaxy(stars=own.stars, gas=dataclasses.replace(own.gas, velocity=velocity))
    found, cube = light(fast, **{"lines.weight": "star_formation_rate", "engine.method": "basis"})
    assert found == pytest.approx(3.0 * LUMINOSITY * own.gas.star_formation_rate.sum(), rel=1e-5)
    assert int(cube.source_counters["lines"].n_particles) == 39


def test_lines_by_name_or_wavelength():
    lines = {"wavelengths": ["Halpha", "6549.86 Angstrom", 5008.24], "ratios": [3, 1, 0.5]}
    found = line_templates(config_of(lines=lines).lines)
    assert found.lines == ("Ha", "6549.86", "5008.24")
    np.testing.assert_array_equal(found.wavelength, [6564.632, 6549.86, 5008.24])
    np.testing.assert_array_equal(found.table, [[3.0, 1.0, 0.5]])
    assert line_templates(config_of(lines={"wavelengths": "Ha"}).lines).table == 1.0


def test_what_is_not_seen_is_said():
    """Lines beyond the detector, particles outside the field, and that there is no light at all."""
    own = galaxy()
    gas = dataclasses.replace(own.gas, position=np.where(np.arange(40)[:, None] < 39, 0.0, [9e3, 0, 0]))
    far = Galaxy(stars=own.stars, gas=gas)
    pipeline = Pipeline.from_config(config_of(**{"lines.wavelengths": ["[O III] 5007", "Hb"]}), far)
    assert "lines.wavelengths: the detector does not see Hb" in pipeline.notes
    share = 100 * 2 / gas.mass.sum()
    words = f"1 of 40 particles of source 'lines' ({share:.3g} % of its light) are outside the field: not in the cube"
    assert source_lines(pipeline(far)) == [words]
    dark = eqx.tree_at(lambda p: p.lines.luminosity, pipeline.parameters, jnp.asarray(0.0))
    assert source_lines(pipeline(far, dark)) == ["Source 'lines' has no light: the amounts of all its particles are 0"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lines.ratios": [1, 2]}, "expected as many ratios as wavelengths, got 2 and 1"),
        ({"lines.particles": "stars", "lines.weight": "star_formation_rate"}, "expected weight 'mass' for stars"),
        ({"lines.velocity_dispersion": 600}, r"lines\.velocity_dispersion"),
        ({"lines.wavelengths": []}, r"lines\.wavelengths"),
        ({"lines.wavelengths": -5}, r"lines\.wavelengths"),
        (
            {"lines.wavelengths": ["[OIII] 507"]},
            r"lines\.wavelengths: unknown line '\[OIII\] 507'; did you mean '\[O III\] 5007'",
        ),
        ({"lines.wavelengths": ("Ha", "Halpha")}, "expected different lines, got 'Ha' twice"),
    ],
)
def test_what_cannot_be_is_refused_before_a_galaxy_is_read(changes, words):
    with pytest.raises(ConfigError, match=words):
        resolve(config_of(**changes))


def test_what_is_missing_is_named():
    own = galaxy()
    with pytest.raises(ConfigError, match="lines: expected the section for a pipeline that paints 'lines', got null"):
        Pipeline.from_config(config_of(lines=None), own)
    source = Pipeline.from_config(config_of(**{"lines.weight": "star_formation_rate"}), own).tables.paint[0]
    with pytest.raises(ValueError, match=r"gas\.star_formation_rate: expected one per particle"):
        source.scene(dataclasses.replace(own.gas, star_formation_rate=None), None, jnp.asarray(1.0))
    with pytest.raises(ValueError, match=r"galaxy\.gas: expected particles for a source of the pipeline, got none"):
        Pipeline.from_config(config_of(), Galaxy(stars=own.stars))(Galaxy(stars=own.stars))
