"""The model of a fit: from the values of free parameters to the flux of a cube, without noise."""

import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from rubix_like.galaxy import Galaxy
from rubix_like.inference.free import Values
from rubix_like.inference.likelihood import NOISE_SCALE
from rubix_like.layout import Layout
from rubix_like.model import Observed, observe
from rubix_like.parameters import Parameters
from rubix_like.sharding import shard
from rubix_like.synthetic import BaseDraws, SyntheticGalaxy
from rubix_like.tables import Plan, Tables, as_dtype

GALAXY: str = "galaxy."
"""Beginning of the names of a synthetic galaxy's parameters."""

STARS: str = "stars."
"""Beginning of the names of the stars' own arrays."""


class AbstractSource(eqx.Module):
    """Where the particles of a model come from."""

    @abstractmethod
    def galaxy(self, values: Values) -> Galaxy:
        """The particles for these values (of which it takes its own); pure and differentiable."""


class SyntheticSource(AbstractSource):
    """A synthetic galaxy, sampled with the same base draws whatever its parameters."""

    base: SyntheticGalaxy
    draws: BaseDraws

    def galaxy(self, values: Values) -> Galaxy:
        """The particles of the galaxy with the values named `galaxy.*`."""
        return with_leaves(self.base, _below(values, GALAXY)).sample(self.draws)


class HeldSource(AbstractSource):
    """The particles of a given galaxy."""

    held: Galaxy

    def galaxy(self, values: Values) -> Galaxy:
        """The particles with the values named `stars.*`."""
        return eqx.tree_at(lambda g: g.stars, self.held, with_leaves(self.held.stars, _below(values, STARS)))


class Forward(eqx.Module):
    """The compiled part of a pipeline with its particles; a pytree, to be passed to jitted functions as an argument."""

    tables: Tables
    parameters: Parameters
    source: AbstractSource
    plan: Plan = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    def __call__(self, values: Values) -> Float[Array, "y x wave"]:
        """Flux (1e-20 erg/s/cm2/Angstrom) for these values; pure, traceable, differentiable."""
        return self.observed(values).voxels.flux

    def observed(self, values: Values) -> Observed:
        """The same with the counters of the particles."""
        galaxy, parameters = self.at(values)
        placed = shard(galaxy, self.layout.mesh)
        return observe(self.plan, self.layout, self.tables, parameters, placed, None)

    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """Particles and parameters for these values."""
        dtype = self.plan.dtype
        own = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        named = {name: own[name] for name in own if name != NOISE_SCALE and not name.startswith((GALAXY, STARS))}
        galaxy = as_dtype(as_dtype(self.source, dtype).galaxy(own), dtype)
        return galaxy, with_leaves(self.parameters, named)


def with_leaves(tree: Any, values: Mapping[str, Array]) -> Any:
    """The pytree with the leaves at dotted names replaced, each cast and broadcast to the leaf it replaces."""
    if not values:
        return tree

    def leaves(tree: Any) -> list[Any]:
        return [leaf_at(tree, name) for name in values]

    old = leaves(tree)
    new = [
        jnp.broadcast_to(value, jnp.shape(leaf)).astype(leaf.dtype)
        for value, leaf in zip(values.values(), old, strict=True)
    ]
    return eqx.tree_at(leaves, tree, new)


def leaf_at(tree: Any, name: str) -> Any:
    """The leaf at a dotted name; AttributeError where there is none."""
    return functools.reduce(getattr, name.split("."), tree)


def _below(values: Values, prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
