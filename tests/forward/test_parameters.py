"""The tree of a run's parameters: which leaves there are, what is None, and that dotted names make the same tree."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like import ConfigError, Parameters, load_config

BARE = {"redshift": 0.05}
MUSE = {"name": "muse", "fov": "1 arcsec"}


def built(observation=BARE, psf=None, **sections):
    config = load_config({"observation": observation, "instrument": MUSE | {"psf": psf}, **sections})
    return Parameters.build(config, "float32")


def named(parameters):
    paths = jax.tree_util.tree_leaves_with_path(parameters)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf).tolist() for path, leaf in paths}


def test_a_run_has_what_its_settings_say():
    """Angles from None where nothing turns the galaxy; no section dust, no PSF: None."""
    bare = built()
    assert named(bare) == {"observation.offset": [0, 0], "observation.velocity_offset": 0}
    assert (bare.dust, bare.instrument.psf, bare.observation.inclination, bare.observation.field_angle) == (None,) * 4
    whole = built(
        {**BARE, "inclination": "0.5 rad", "offset": [1, 2], "pointings": [{"field_angle": 0}]},
        {"kind": "moffat", "fwhm": [1.0, 0.5], "beta": 3, "wavelength": [5000, 6000]},
        dust={"a_v": "0.25 mag"},
    )
    assert named(whole) == {
        "dust.a_v": 0.25,
        "instrument.psf.beta": [3, 3],
        "instrument.psf.fwhm": [1.0, 0.5],
        "observation.field_angle": 0,
        "observation.inclination": pytest.approx(28.64789, rel=1e-6),
        "observation.offset": [1, 2],
        "observation.position_angle": 0,
        "observation.velocity_offset": 0,
    }
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(whole))
    galaxy = built(galaxy={"reader": "synthetic"})
    assert (float(galaxy.observation.inclination), float(galaxy.observation.position_angle)) == (0.0, 0.0)


@pytest.mark.parametrize("psf", [None, {"fwhm": 1.0}, {"components": [{"fwhm": 1.0, "fraction": 2.0}] * 2}])
def test_leaves_by_name_make_the_tree_that_they_come_from(psf):
    kind = {"kind": "gaussians"} if psf is not None and "components" in psf else {}
    one = built(psf=None if psf is None else psf | kind, dust={"a_v": 0.1} if psf is None else None)
    paths = jax.tree_util.tree_leaves_with_path(one)
    leaves = {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in reversed(paths)}
    again = Parameters.of(leaves)
    assert jax.tree.structure(again) == jax.tree.structure(one)
    assert named(again) == named(one)


def test_a_tree_is_not_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        built().observation.velocity_offset = 3.0


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"observation.inclinatoin": 30.0}, "did you mean 'observation.inclination'"),
        ({"dust.a_v": 0.1}, r"expected numbers of this run, got 'dust.a_v', .*; give dust.a_v there"),
        ({"observation.redshift": 0.1}, r"'observation.redshift', a setting that is fixed with the pipeline; build an"),
        ({"observation.inclination": "30 deg"}, r"got values of type text; .* by astropy.units.Quantity\(text\)"),
        ({"observation.offset": 1.0}, r"expected numbers of shape \(2,\)"),
    ],
)
def test_values_by_name_are_checked(values, error):
    with pytest.raises(ConfigError, match=error):
        built({**BARE, "inclination": 10, "position_angle": 0}).changed(values)


def test_values_by_name_leave_the_others():
    own = built({**BARE, "inclination": 10, "position_angle": 5})
    changed = own.changed({"observation.inclination": 30, "observation.offset": [1.0, 2.0]})
    assert named(changed) == named(own) | {"observation.inclination": 30, "observation.offset": [1, 2]}
    assert jax.tree.structure(changed) == jax.tree.structure(own)


EDGES = {
    "noise": {"signal_to_noise": 1e-4},
    "dust": {"kind": "particles", "dust_to_metal": 1},
    "lines": {"wavelengths": "Ha", "velocity_dispersion": 0, "luminosity": 0},
}
PSFS = {
    "gaussians": {"kind": "gaussians", "components": [{"fwhm": 1.0, "fraction": 0.1}, {"fwhm": 2.0, "fraction": 0.3}]},
    "moffat": {"kind": "moffat", "fwhm": [1.0, 0.5], "beta": 1.1, "wavelength": [5000, 6000]},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("psf", PSFS)
def test_what_a_configuration_can_be_a_parameter_can_be(dtype, psf):
    """At the ends of its limits, too, which 32-bit numbers do not hit: 1e-4 is 9.99999975e-5 there."""
    config = load_config({"observation": BARE, "instrument": MUSE | {"psf": PSFS[psf]}, **EDGES})
    own = Parameters.build(config, dtype)
    again = own.replaced(own)
    assert jax.tree.structure(again) == jax.tree.structure(own)
    assert named(again) == named(own)
    assert own.named().keys() >= {"noise.signal_to_noise", "dust.dust_to_metal", "instrument.psf.fwhm"}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("noise.signal_to_noise", 0.99e-4, "expected a number >= 0.0001"),
        ("dust.dust_to_metal", 1.01, "expected a number <= 1"),
        ("lines.velocity_dispersion", -1, r"got -1 km/s: expected a number >= 0"),
        ("instrument.psf.fwhm", [1.0, -0.5], "expected a number > 0, got -0.5"),
        ("instrument.psf.fraction", [0.5, 0.0], "expected a number > 0"),
        ("observation.offset", [0.0, np.nan], r"parameters\['observation.offset'\]: .*expected a finite quantity"),
    ],
)
def test_limits_of_a_setting_are_those_of_its_parameter(name, value, error):
    own = built(psf=PSFS["gaussians"], **EDGES)
    with pytest.raises(ConfigError, match=error):
        own.changed({name: value})


def test_traced_values_are_not_checked():
    """Their shape alone is, so that searches and samplers may pass a limit on their way."""
    own = built(dust={"a_v": 1.0})

    def a_v(value):
        return own.changed({"dust.a_v": value}).dust.a_v

    assert float(jax.jit(a_v)(-1.0)) == -1.0
    assert float(jax.grad(lambda value: a_v(value) ** 2)(-1.0)) == -2.0
    np.testing.assert_array_equal(jax.vmap(a_v)(jnp.array([-1.0, 2.0])), [-1, 2])
    both = jax.jit(lambda east: own.changed({"observation.offset": [east, 2.0]}).observation.offset)(1.0)
    np.testing.assert_array_equal(both, [1, 2])
    tree = jax.jit(own.replaced)(own.changed({"dust.a_v": 0.5}))
    assert named(tree) == named(own) | {"dust.a_v": 0.5}
    with pytest.raises(ConfigError, match="expected a number, in the unit of the setting"):
        jax.jit(a_v)(jnp.ones(2))
