"""A user model of a galaxy: an equinox module whose numbers are the free parameters of a fit."""

import dataclasses
import functools
from collections.abc import Mapping
from numbers import Integral
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np

from rubix_like.arguments import plug_in_named
from rubix_like.errors import ConfigError
from rubix_like.galaxy.particles import Galaxy
from rubix_like.physics.units import plain_numbers


class AbstractGalaxyModel(eqx.Module):
    """A model of a galaxy for `rubix_like.fit(..., model=...)`: its float leaves are the parameters that can be free.

    Their names are `galaxy.NAME` with dots, `galaxy.disc.velocity` of a field `disc` that has a field `velocity`.

    A class writes `sample` or `emitters`, pure functions with jax.numpy; as many particles whatever the parameters,
    smooth in them, in kpc, km/s, Msun, log10 yr, the disc face-on in the plane z = 0 (`observation.inclination` and
    `observation.position_angle` turn it). Fields that are no parameters are static: `eqx.field(static=True)`.
    `units`: those of parameters by their names, for quantities in a configuration and in Python.
    """

    units: ClassVar[Mapping[str, str]] = {}

    def draws(self) -> Any:
        """Random numbers, or nodes of a quadrature, that stay the same in a fit: a pytree of arrays of the host."""
        return None

    def sample(self, draws: Any) -> Galaxy:
        """The particles of the galaxy for these draws; those of `emitters` where a class has that instead."""
        del draws
        return self.emitters(named_leaves(self))

    def emitters(self, parameters: Mapping[str, Any]) -> Galaxy:
        """The particles of the galaxy for these parameters, by name."""
        raise NotImplementedError(f"{type(self).__name__}: expected a method sample(draws) or emitters(parameters)")


def galaxy_of(model: AbstractGalaxyModel, draws: Any) -> Galaxy:
    """The galaxy that the model samples for these draws; ConfigError where its class returns something else, or cannot
    be traced."""
    method = "emitters" if type(model).sample is AbstractGalaxyModel.sample else "sample"
    place = f"{type(model).__name__}.{method}"
    with plug_in_named(place, model, _TRACED):
        galaxy = model.sample(draws)
    if not isinstance(galaxy, Galaxy):
        raise ConfigError(f"{place}: expected a Galaxy, got {type(galaxy).__name__}; return rl.Galaxy(stars=...)")
    return galaxy


_TRACED = (
    "write it with jax.numpy, jnp.where in place of `if`, and a number of particles that no parameter changes "
    "(a static field); see docs/own-inference.md"
)


def named_leaves(tree: Any) -> dict[str, Any]:
    """The float leaves of a pytree by their dotted names."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        _name(path): leaf
        for path, leaf in leaves
        if jax.numpy.issubdtype(jax.numpy.result_type(leaf), jax.numpy.inexact)
    }


def with_named_leaves(tree: Any, values: Mapping[str, Any]) -> Any:
    """The pytree with the leaves of these names replaced, each cast and broadcast to the leaf it replaces."""

    def replaced(path: Any, leaf: Any) -> Any:
        value = values.get(_name(path))
        if value is None:
            return leaf
        if isinstance(value, jax.Array):
            return jax.numpy.broadcast_to(value, np.shape(leaf)).astype(jax.numpy.result_type(leaf))
        return np.broadcast_to(value, np.shape(leaf)).astype(np.asarray(leaf).dtype)

    return jax.tree_util.tree_map_with_path(replaced, tree)


def without_units(model: AbstractGalaxyModel) -> AbstractGalaxyModel:
    """The model with the quantities among its numbers converted to `units`, and whole numbers in fields of floats to
    floats; raises ValueError for other types."""

    def plain(path: Any, leaf: Any) -> Any:
        name = _name(path)
        if isinstance(leaf, Integral) and all(isinstance(key, jax.tree_util.GetAttrKey) for key in path):
            owner = functools.reduce(lambda part, key: getattr(part, key.name), path[:-1], model)
            fields = {field.name: field.type for field in dataclasses.fields(owner)}
            leaf = float(leaf) if fields.get(path[-1].name) in (float, "float") else leaf
        return plain_numbers(leaf, model.units.get(name, ""), f"{type(model).__name__}.{name}")

    return jax.tree_util.tree_map_with_path(plain, model)


def as_arrays(model: AbstractGalaxyModel) -> AbstractGalaxyModel:
    """The model with its numbers as arrays of the host, without units."""
    plain = without_units(model)
    return jax.tree.map(lambda leaf: np.asarray(leaf, float) if isinstance(leaf, float) else leaf, plain)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
