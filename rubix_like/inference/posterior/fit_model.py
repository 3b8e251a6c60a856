"""The model of a fit: from the values of free parameters to the flux of a cube, without noise."""

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from rubix_like.forward.model import Observed, Particles, observe_anywhere, observe_share, scene_before_fields
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.components.quadrature import Points
from rubix_like.galaxy.components.smooth import SmoothGalaxy, emitted
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, as_arrays, galaxy_of, with_named_leaves
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.placing import own_share, shard
from rubix_like.galaxy.synthetic import BaseDraws, SyntheticGalaxy, sampled
from rubix_like.inference.populations.mixtures import Mixtures, Solved, with_one_template
from rubix_like.inference.posterior.free import LIKELIHOOD, NOISE_SCALE, OF_DATA, Values
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, as_dtype

GALAXY: str = "galaxy."
"""Beginning of the names of the parameters of a synthetic galaxy, and of smooth components."""

STARS: str = "stars."
"""Beginning of the names of the stars' own arrays."""

V_LOS: str = STARS + "v_los"
"""The only component of the stars' velocities that a cube depends on, in km/s from the galaxy's own, + receding."""


class AbstractParticleSource(eqx.Module):
    """Where the particles of a model come from."""

    @abstractmethod
    def galaxy(self, values: Values) -> Galaxy:
        """The particles for these values (of which it takes its own); pure and differentiable."""

    @abstractmethod
    def of_host(self, values: Values) -> Galaxy:
        """The same for values on the host; not to be traced."""


class SyntheticSource(AbstractParticleSource):
    """A synthetic galaxy, sampled with the same base draws whatever its parameters."""

    base: SyntheticGalaxy
    draws: BaseDraws

    def galaxy(self, values: Values) -> Galaxy:
        """The particles of the galaxy with the values named `galaxy.*`."""
        return with_leaves(self.base, _below(values, GALAXY)).sample(self.draws)

    def of_host(self, values: Values) -> Galaxy:
        """The same for values on the host, by one program for all values."""
        base, draws = jax.tree.map(np.asarray, (self.base, self.draws))
        return sampled(with_leaves(base, _below(values, GALAXY)), draws)


class ComponentsSource(AbstractParticleSource):
    """A galaxy of smooth components: emitters at the same quadrature points whatever its parameters.

    `points`: those of each component; `numbers` of them.
    """

    base: SmoothGalaxy
    points: tuple[Points, ...]
    numbers: tuple[int, ...] = eqx.field(static=True)

    def part(self, numbers: tuple[int, ...]) -> "ComponentsSource":
        """The source of some of the components."""
        components = tuple(self.base.components[number] for number in numbers)
        base = SmoothGalaxy(components, tuple(self.base.names[number] for number in numbers))
        own = tuple(self.numbers[number] for number in numbers)
        return ComponentsSource(base, tuple(self.points[number] for number in numbers), own)

    def galaxy(self, values: Values) -> Galaxy:
        """The emitters of the galaxy with the values named `galaxy.COMPONENT.*`."""
        return self._at(values).emitters(self.points)

    def of_host(self, values: Values) -> Galaxy:
        """The same for values on the host, by one program for all values."""
        source = jax.tree.map(np.asarray, self)
        return emitted(source._at(values), source.points)

    def _at(self, values: Values) -> SmoothGalaxy:
        own = _below(values, GALAXY)
        parts = [
            with_leaves(component, _below(own, f"{name}."))
            for name, component in zip(self.base.names, self.base.components, strict=True)
        ]
        return SmoothGalaxy(tuple(parts), self.base.names)


class ModelSource(AbstractParticleSource):
    """A galaxy of one's own, sampled with the same draws whatever its parameters."""

    model: AbstractGalaxyModel
    draws: Any

    @classmethod
    def of(cls, model: AbstractGalaxyModel) -> "ModelSource":
        """The source of a model with its draws."""
        made = as_arrays(model)
        return cls(made, made.draws())

    def galaxy(self, values: Values) -> Galaxy:
        """The particles of the model with the values named `galaxy.*`."""
        return galaxy_of(with_named_leaves(self.model, _below(values, GALAXY)), self.draws)

    def of_host(self, values: Values) -> Galaxy:
        """The same for values on the host, by one program for all values."""
        model, draws = jax.tree.map(np.asarray, (self.model, self.draws))
        return jax.tree.map(np.asarray, _sampled(with_named_leaves(model, _below(values, GALAXY)), draws))


@jax.jit
def _sampled(model: AbstractGalaxyModel, draws: Any) -> Galaxy:
    return galaxy_of(model, draws)


class HeldSource(AbstractParticleSource):
    """The particles of a given galaxy."""

    held: Galaxy

    def galaxy(self, values: Values) -> Galaxy:
        """The particles with the values named `stars.*`, but for `stars.v_los`, which no galaxy knows."""
        arrays = {name: value for name, value in values.items() if name != V_LOS}
        return eqx.tree_at(lambda g: g.stars, self.held, with_leaves(self.held.stars, _below(arrays, STARS)))

    def of_host(self, values: Values) -> Galaxy:
        """The particles with other arrays, of which nothing has to be compiled."""
        return self.galaxy(values)


class AbstractForward(eqx.Module):
    """The model of a fit: of one cube, or of several sets of data; a pytree, to be passed to jitted functions.

    `on_device`: called inside a `jax.shard_map` over the mesh, on every device, which then paints its share.
    """

    source: eqx.AbstractVar[AbstractParticleSource]
    on_device: eqx.AbstractVar[bool]

    @property
    @abstractmethod
    def main(self) -> "Forward":
        """The model of the one cube, or of the first one, whose tables, parameters, plan and layout stand for all."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the flux of `observed`."""

    @property
    @abstractmethod
    def planned(self) -> tuple[Any, Any]:
        """Everything static, and every array but those of the particles: what makes two models the same."""

    @abstractmethod
    def observed(self, values: Values, key: PRNGKeyArray | None = None) -> Observed:
        """The flux for these values, with the counters of the particles; pure, traceable, differentiable."""

    @abstractmethod
    def modelled(
        self, values: Values, key: PRNGKeyArray | None = None
    ) -> tuple[Observed, Float[Array, " difference"] | None]:
        """The same with the residuals of the smoothness prior, where populations are solved for."""

    @abstractmethod
    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """Particles and parameters for these values."""

    @abstractmethod
    def parameters_of(self, values: Values) -> Parameters:
        """The parameters for values on the host, host arrays; not to be traced."""

    @abstractmethod
    def particles_of(self, values: Values) -> Galaxy:
        """The particles for values on the host, host arrays; not to be traced."""

    @abstractmethod
    def laid_out(self, layouts: Sequence[tuple[Tables, DeviceLayout]]) -> "AbstractForward":
        """The model with the tables of each of its pipelines on another mesh."""


class Forward(AbstractForward):
    """The compiled part of a pipeline with its particles; `mixtures`: what populations that are solved for need."""

    tables: Tables
    parameters: Parameters
    source: AbstractParticleSource
    plan: Plan = eqx.field(static=True)
    layout: DeviceLayout = eqx.field(static=True)
    on_device: bool = eqx.field(static=True, default=False)
    mixtures: Mixtures | None = None

    @property
    def main(self) -> "Forward":
        """Itself."""
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the cube."""
        return *self.tables.footprint.shape, self.plan.n_wave

    @property
    def planned(self) -> tuple[Any, Any]:
        """The plan, and tables with parameters."""
        return self.plan, (self.tables, self.parameters)

    def laid_out(self, layouts: Sequence[tuple[Tables, DeviceLayout]]) -> "Forward":
        """The model with the tables of its pipeline on another mesh."""
        (tables, layout), *_ = layouts
        return dataclasses.replace(self, tables=tables, layout=layout)

    def observed(self, values: Values, key: PRNGKeyArray | None = None) -> Observed:
        """The cube for these values, with the counters of the particles; pure, traceable, differentiable.

        `key`: that of the noise, where the pipeline adds any.
        """
        return self.modelled(values, key)[0]

    def modelled(
        self, values: Values, key: PRNGKeyArray | None = None
    ) -> tuple[Observed, Float[Array, " difference"] | None]:
        """The same with the residuals of the smoothness prior, where populations are solved for: those weights of which
        the cube, given all other values, has the highest posterior (`free_form`)."""
        if self.mixtures is None:
            return self._painted(values, key), None
        return self.mixtures.observed(self._painter_of(values), self._painter_of(lax.stop_gradient(dict(values))))

    def solved(self, values: Values) -> Solved:
        """The weights that are solved for, and the linear problem that they solve; ValueError where there are none."""
        if self.mixtures is None:
            raise ValueError("expected populations that are solved for, got none")
        return self.mixtures.solve(self._painter_of(values))

    def _painter_of(self, values: Values) -> Callable[[tuple[int, ...], Array | None], Observed]:
        """The cube of some components, all of whose stars shine alike as these coefficients on the basis spectra, or
        as their own ages and metallicities say."""
        source = self.source
        if not isinstance(source, ComponentsSource):
            raise TypeError(f"expected a source of components, got {type(source).__name__}")

        def paint(numbers: tuple[int, ...], coefficients: Array | None) -> Observed:
            tables = self.tables if coefficients is None else with_one_template(self.tables, coefficients)
            part = dataclasses.replace(self, tables=tables, source=source.part(numbers), mixtures=None)
            return part._painted(values, None)

        return paint

    def _painted(self, values: Values, key: PRNGKeyArray | None) -> Observed:
        if self.on_device:
            return self._observed_here(values, key)
        galaxy, parameters = self.at(values)
        placed = shard(galaxy, self.layout.mesh)
        return observe_anywhere(self.plan, self.layout, self.tables, parameters, placed, key)

    def _observed_here(self, values: Values, key: PRNGKeyArray | None) -> Observed:
        """Whole on every device. The mean over the devices is that of equal numbers; it stands there for derivatives:
        each device knows n times those by its share (the sum over n devices is transposed into one), whose mean over
        the devices is the derivative by all particles, as it is for what every device computes whole."""
        galaxy, parameters = self.at(lax.pmean(dict(values), DATA_AXIS))
        share = own_share(galaxy, self.layout.mesh)
        return observe_share(self.plan, self.layout, self.tables, parameters, Particles.of(self.tables, share), key)

    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """Particles and parameters for these values."""
        dtype = self.plan.dtype
        own = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        parameters = with_leaves(self.parameters, _of_run(own))
        galaxy = as_dtype(as_dtype(self.source, dtype).galaxy(own), dtype)
        if V_LOS in own:
            galaxy = with_v_los(galaxy, own[V_LOS], line_of_sight(self.tables, parameters))
        return galaxy, parameters

    def parameters_of(self, values: Values) -> Parameters:
        """The parameters for values on the host, host arrays; not to be traced."""
        own = {name: np.asarray(value, self.plan.dtype) for name, value in values.items()}
        return with_leaves(jax.tree.map(np.asarray, self.parameters), _of_run(own))

    def particles_of(self, values: Values) -> Galaxy:
        """The particles for values on the host, host arrays; not to be traced."""
        if isinstance(self.source, HeldSource):
            return jax.tree.map(np.asarray, _particles_at(self, values))
        return jax.tree.map(lambda leaf: np.asarray(leaf, self.plan.dtype), self.source.of_host(values))


@jax.jit
def _particles_at(forward: Forward, values: Values) -> Galaxy:
    return forward.at(values)[0]


def _of_run(values: Values) -> dict[str, Any]:
    """Those that are parameters of the run, by name."""
    others = (GALAXY, STARS, LIKELIHOOD, OF_DATA)
    return {own: value for own, value in values.items() if own != NOISE_SCALE and not own.startswith(others)}


def with_leaves(tree: Any, values: Mapping[str, Any]) -> Any:
    """The pytree with the leaves at dotted names replaced, each cast and broadcast to the leaf it replaces."""
    if not values:
        return tree

    def leaves(tree: Any) -> list[Any]:
        return [leaf_at(tree, name) for name in values]

    old = leaves(tree)
    new = [_like(value, leaf) for value, leaf in zip(values.values(), old, strict=True)]
    return eqx.tree_at(leaves, tree, new)


def _like(value: Any, leaf: Any) -> Any:
    """A value cast and broadcast to a leaf; one of the host stays there."""
    space = jnp if isinstance(value, jax.Array) else np
    return space.broadcast_to(value, jnp.shape(leaf)).astype(leaf.dtype)


def leaf_at(tree: Any, name: str) -> Any:
    """The leaf at a dotted name; AttributeError where there is none."""
    return functools.reduce(getattr, name.split("."), tree)


@jax.jit
def line_of_sight(tables: Tables, parameters: Parameters) -> Float[Array, "3"]:
    """Unit vector n on the axes of the galaxy's arrays: a velocity v is seen as n . v, + receding.

    From how the scene stages turn three unit velocities, so that it holds for any list of them.
    """
    dtype = tables.arcsec_per_kpc.dtype
    velocity = jnp.concatenate([jnp.zeros((1, 3), dtype), jnp.eye(3, dtype=dtype)])
    numbers = jnp.ones((4,), dtype)
    probes = Stars(jnp.zeros_like(velocity), velocity, initial_mass=numbers, log_age=numbers, metallicity=numbers)
    scene = scene_before_fields(tables, parameters, "stars", probes)
    return scene.v_los[1:] - scene.v_los[0]


def with_v_los(galaxy: Galaxy, v_los: Float[Array, " particle"], sight: Float[Array, "3"]) -> Galaxy:
    """The galaxy whose stars have these velocities along `sight`, and their own across it: v + (v_los - n . v) n."""
    velocity = galaxy.stars.velocity
    missing = v_los - (velocity * sight[None, :]).sum(axis=1)
    return eqx.tree_at(lambda g: g.stars.velocity, galaxy, velocity + missing[:, None] * sight[None, :])


def _below(values: Values, prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
