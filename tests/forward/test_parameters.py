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
        ({"dust.a_v": 0.1}, r"expected numbers of this run, got 'dust.a_v'"),
        ({"observation.inclination": "30 deg"}, r"expected a number, in the unit of the setting, got '30 deg'"),
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
