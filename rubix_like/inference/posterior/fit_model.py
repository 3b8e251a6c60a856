"""The model of a fit: free parameters with priors, and the way from their values to a cube without noise."""

import dataclasses
import functools
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, Shaped

from rubix_like.config.quantities import parse_number, parse_quantity
from rubix_like.errors import ConfigError
from rubix_like.forward.model import (
    Group,
    Observed,
    PassInputs,
    observe_group,
    observe_share,
    particles_by_pass,
    scene_before_fields,
)
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.components.quadrature import Points
from rubix_like.galaxy.components.smooth import SmoothGalaxy, emitted
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, as_arrays, galaxy_of, with_named_leaves
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.placing import own_share, shard
from rubix_like.galaxy.synthetic import BaseDraws, SyntheticGalaxy, sampled
from rubix_like.inference.populations.mixtures import Mixtures, Solved, with_one_template
from rubix_like.inference.posterior.priors import (
    CENTRES,
    PURE,
    WEIGHT,
    AbstractPrior,
    Isotropic,
    Mixture,
    as_float,
    find_kind,
    section_of,
    text_of,
)
from rubix_like.physics.units import plain_numbers
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, as_dtype

Latent = Float[Array | np.ndarray, " latent"]
Values = Mapping[str, Float[Array | np.ndarray | np.floating, "..."]]
"""Dotted name -> value of each free parameter, in the unit of the configuration's key."""

OF_GALAXY: str = "galaxy"
"""Stands in a configuration for the values that the galaxy has."""

NOISE_SCALE: str = "noise_scale"
"""Name of the factor on the standard deviations of the data, where it is free."""

LIKELIHOOD: str = "likelihood."
"""Beginning of the names of the likelihood's parameters."""

OF_DATA: str = "data."
"""Beginning of the names of what is not known of one of several sets of data: data.NAME.scale."""


class FreeParameter(eqx.Module):
    """One name with its prior, the shape of its value, its unit (empty: a number) and what it means."""

    prior: AbstractPrior
    name: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=())
    unit: str = eqx.field(static=True, default="")
    meaning: str = eqx.field(static=True, default="")

    @property
    def size(self) -> int:
        """How many latents it has."""
        return math.prod(self.shape)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each latent: that of the parameter, with an index where it has several."""
        indices = [",".join(map(str, index)) for index in np.ndindex(self.shape)]
        return tuple(f"{self.name}[{index}]" if index else self.name for index in indices)


class Correlated(eqx.Module):
    """Parameters whose priors are correlated: `half` half^T is the correlation matrix of their normal variables."""

    half: Float[Array | np.ndarray, "own own"]
    names: tuple[str, ...] = eqx.field(static=True)


class Free(eqx.Module):
    """All free parameters, in the order of their latents.

    The latents are independent. A parameter's prior maps a separate standard normal variable to its value: its latent
    or, of `correlated` parameters, a sum of the latents of several.
    """

    parameters: tuple[FreeParameter, ...]
    correlated: tuple[Correlated, ...] = ()

    @property
    def n_latent(self) -> int:
        """Length of the vector of latents."""
        return sum(parameter.size for parameter in self.parameters)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each latent."""
        return tuple(label for parameter in self.parameters for label in parameter.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names."""
        return tuple(parameter.name for parameter in self.parameters)

    def labels_where(self, chosen: Bool[np.ndarray, " latent"]) -> list[str]:
        """The names of some latents."""
        return [label for label, is_chosen in zip(self.labels, chosen, strict=True) if is_chosen]

    @property
    def places(self) -> dict[str, slice]:
        """The slice of each parameter among the latents, by its name."""
        ends = itertools.accumulate(parameter.size for parameter in self.parameters)
        pairs = zip(self.parameters, ends, strict=True)
        return {parameter.name: slice(end - parameter.size, end) for parameter, end in pairs}

    def has(self, *beginnings: str) -> bool:
        """Whether a parameter is free whose name begins with one of these."""
        return any(name.startswith(beginnings) for name in self.names)

    def values(self, latent: Float[Array | np.ndarray, "*n latent"]) -> dict[str, Any]:
        """The value of every parameter; differentiable. Of latents on the host numpy's arrays."""
        return self._values_of(self.own_normals(latent))

    def _values_of(self, normals: Float[Array | np.ndarray, "*n latent"]) -> dict[str, Any]:
        pairs = zip(self.parameters, self.parts(normals), strict=True)
        return {parameter.name: parameter.prior.value(part) for parameter, part in pairs}

    def own_normals(self, latent: Float[Array | np.ndarray, "*n latent"]) -> Any:
        """The standard normal variable of each value: its latent, but for correlated parameters."""
        return self._mixed(latent, inverse=False)

    def of_own_normals(self, normals: Float[Array | np.ndarray, "*n latent"]) -> Any:
        """The latents of the values' standard normal variables: the inverse of `own_normals`."""
        return self._mixed(normals, inverse=True)

    def _mixed(self, vector: Any, *, inverse: bool) -> Any:
        space = np if isinstance(vector, np.ndarray) else jnp
        for group in self.correlated:
            places = np.array([self.places[name].start for name in group.names])
            half = space.asarray(group.half)
            changed = vector[..., places] @ (space.linalg.inv(half) if inverse else half).T
            if isinstance(vector, np.ndarray):
                vector = np.array(vector)
                vector[..., places] = changed
            else:
                vector = vector.at[..., places].set(changed)
        return vector

    @property
    def mixing(self) -> Float[np.ndarray, "latent latent"]:
        """M with own_normals(x) = M x."""
        return np.asarray(self.own_normals(np.eye(self.n_latent))).T

    def value(self, name: str, latent: Float[Array | np.ndarray, "*n latent"]) -> Any | None:
        """The value of one parameter; None where it is not free."""
        return self.values(latent).get(name)

    def parts(self, flat: Shaped[Array | np.ndarray, "*n latent"]) -> list[Any]:
        """Numbers in the order of the labels as one array for each parameter, of its shape."""
        before, ends = flat.shape[:-1], itertools.accumulate(parameter.size for parameter in self.parameters)
        return [
            flat[..., end - parameter.size : end].reshape((*before, *parameter.shape))
            for parameter, end in zip(self.parameters, ends, strict=True)
        ]

    def split(self, flat: Shaped[np.ndarray, "*n latent"]) -> dict[str, np.ndarray]:
        """Numbers in the order of the labels as arrays of the parameters' shapes, by name."""
        return dict(zip(self.names, self.parts(flat), strict=True))

    def join(self, values: Mapping[str, Shaped[np.ndarray, "..."]]) -> Shaped[np.ndarray, "*n latent"]:
        """Arrays by name as numbers in the order of the labels: what `split` has split."""
        rows = []
        for parameter in self.parameters:
            value = np.asarray(values[parameter.name])
            rows.append(value.reshape((*value.shape[: value.ndim - len(parameter.shape)], parameter.size)))
        return np.concatenate(rows, axis=-1)

    def flat(self, latent: Float[Array | np.ndarray, "*n latent"]) -> Float[Array | np.ndarray, "*n latent"]:
        """The values in the order of the labels."""
        return self.flat_of(self.own_normals(latent))

    def flat_of(self, normals: Float[Array | np.ndarray, "*n latent"]) -> Float[Array | np.ndarray, "*n latent"]:
        """The values of their standard normal variables, each of which makes one value."""
        rows = [value.reshape((*normals.shape[:-1], -1)) for value in self._values_of(normals).values()]
        return np.concatenate(rows, axis=-1) if isinstance(normals, np.ndarray) else jnp.concatenate(rows, axis=-1)

    def slopes(self, latent: Latent) -> Float[np.ndarray, " latent"]:
        """Derivatives of the values by their standard normal variables, in the order of the labels; concrete."""
        return np.asarray(_slopes(self, np.asarray(self.own_normals(np.asarray(latent, _dtype())))))

    def latent(self, values: Mapping[str, ArrayLike]) -> Float[np.ndarray, " latent"]:
        """The latents of the values of all parameters, each broadcast to its shape; concrete only.

        Raises ValueError outside a prior's support.
        """
        parts = []
        for parameter in self.parameters:
            value = np.asarray(values[parameter.name], _dtype())
            if value.shape not in {(), parameter.shape}:
                raise ValueError(f"{parameter.name}: expected shape {parameter.shape}, got {value.shape}")
            value = np.broadcast_to(value, parameter.shape)
            with np.errstate(divide="ignore", invalid="ignore"):
                latent = np.asarray(parameter.prior.latent(value))
            outside = value[~np.isfinite(latent)]
            if outside.size:
                share = f" ({outside.size} of {value.size} values)" if value.size > 1 else ""
                raise ValueError(
                    f"{parameter.name}: expected a value inside its prior, {shown(parameter.prior)}, got "
                    f"{outside.flat[0]:g}{share}; widen the prior or start elsewhere"
                )
            parts.append(latent.reshape(-1))
        return self.of_own_normals(np.concatenate(parts))

    def traced_latent(self, values: Mapping[str, Any]) -> Latent:
        """The latents of values that may be traced, unchecked: not finite outside a prior's support."""
        parts = [
            parameter.prior.latent(jnp.broadcast_to(jnp.asarray(values[parameter.name]), parameter.shape)).reshape(-1)
            for parameter in self.parameters
        ]
        return self.of_own_normals(jnp.concatenate(parts))

    def described(self, latent: Latent) -> str:
        """Names with their values, of arrays the range, in words; concrete only."""
        ends = ((name, np.min(value), np.max(value)) for name, value in self.values(np.asarray(latent)).items())
        words = (f"{name} = {low:.5g}{'' if low == high else f' to {high:.5g}'}" for name, low, high in ends)
        return ", ".join(words)

    def draw(self, seed: int, count: int) -> Float[np.ndarray, "count latent"]:
        """Latents drawn from the prior on the host (numpy's default generator)."""
        return np.random.default_rng(seed).standard_normal((count, self.n_latent)).astype(_dtype())


@jax.jit
def _slopes(free: Free, normals: Latent) -> Latent:
    return jax.jvp(free.flat_of, (normals,), (jnp.ones_like(normals),))[1]


@jax.jit
def many_values(free: Free, latents: Float[Array | np.ndarray, "draw latent"]) -> dict[str, Array]:
    """The values of every parameter for many vectors of latents."""
    return jax.vmap(free.values)(jnp.asarray(latents))


def shown(prior: AbstractPrior) -> str:
    """A prior as a configuration has it; of an array of numbers the range."""

    def text(numbers: Any) -> str:
        if isinstance(numbers, Mapping):
            return f"{{{', '.join(f'{key}: {text(value)}' for key, value in numbers.items())}}}"
        if isinstance(numbers, tuple):
            return f"[{', '.join(map(text, numbers))}]"
        return text_of(np.asarray(numbers, np.float64))

    return text(section_of(prior))


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(float)


def read_prior(name: str, prior: AbstractPrior | Mapping[str, Any], unit: str, values: Any = None) -> AbstractPrior:
    """The prior that `{kind: numbers}` describes, quantities in `unit` (empty: plain numbers); ConfigError if none.

    A number is given once for all values of a parameter, or as an array; `galaxy` stands for `values`, those of the
    galaxy.
    """
    chosen = prior if isinstance(prior, AbstractPrior) else _parse_prior(name, prior, unit, values)
    try:
        chosen = jax.tree.map(lambda leaf: as_float(leaf) if isinstance(leaf, float | int) else leaf, chosen)
        fault = chosen.fault()
    except ValueError as error:
        raise ConfigError(f"fit.free.{name}: {error}") from error
    if fault is not None:
        raise ConfigError(f"fit.free.{name}: {fault}")
    return chosen


def _parse_prior(name: str, prior: Mapping[str, Any], unit: str, values: Any) -> AbstractPrior:
    if not isinstance(prior, Mapping) or len(prior) != 1:
        raise ConfigError(f"fit.free.{name}: expected one prior, e.g. {{uniform: [0, 1]}}, got {prior!r}")
    (kind, numbers), *_ = prior.items()
    place = f"fit.free.{name}: {kind}"
    try:
        prior_type, meanings = find_kind(str(kind))
    except ConfigError as error:
        raise ConfigError(f"fit.free.{name}: {error}") from error
    if prior_type is Mixture:
        weights, parts = list[Any](), list[AbstractPrior]()
        for part in numbers:
            rest = {key: value for key, value in part.items() if key != WEIGHT} if isinstance(part, Mapping) else {}
            if len(rest) != 1 or WEIGHT not in part:
                raise ConfigError(
                    f"fit.free.{name}: mixture: expected parts with a weight and a prior each, e.g. [{{weight: 0.7, "
                    f"normal: [30 deg, 5 deg]}}, {{weight: 0.3, normal: [50 deg, 9 deg]}}], got {part!r}"
                )
            weights.append(_number(place, part[WEIGHT], WEIGHT, unit, None))
            parts.append(_parse_prior(name, rest, unit, values))
        return Mixture(tuple(weights), tuple(parts))
    if prior_type is Isotropic and unit != "deg":
        raise ConfigError(
            f"fit.free.{name}: expected an angle with the prior 'isotropic', which is flat in its cosine, got a "
            f"parameter in {unit or 'bare numbers'}; take uniform"
        )
    if len(numbers) != len(meanings):
        raise ConfigError(
            f"fit.free.{name}: expected {len(meanings)} numbers after '{kind}', {kind}: [{', '.join(meanings)}], got "
            f"{len(numbers)}"
        )
    pairs = zip(numbers, meanings, strict=True)
    return prior_type(*[_number(place, value, meaning, unit, values) for value, meaning in pairs])


def _number(place: str, value: object, meaning: str, unit: str, values: Any) -> Any:
    if isinstance(value, str) and value.strip() == OF_GALAXY:
        if values is None or meaning not in CENTRES:
            raise ConfigError(
                f"{place}: expected a number for {meaning}, got '{OF_GALAXY}', which stands for the galaxy's own "
                f"values, as {' or '.join(CENTRES)} of parameters galaxy.* and stars.*"
            )
        return values
    return read_values(place, value, "" if meaning in PURE else unit)


def read_values(place: str, value: Any, unit: str) -> Any:
    """A number or an array of them, each a quantity in `unit` (empty: plain numbers)."""
    if isinstance(value, list | tuple):
        parts = [np.asarray(read_values(place, part, unit)) for part in value]
        if len({part.shape for part in parts}) != 1:
            raise ConfigError(f"{place}: expected numbers or lists of one length, got {len(parts)} of several lengths")
        return np.stack(parts)
    try:
        if isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and value.ndim):
            return np.asarray(plain_numbers(value, unit, ""), np.float64)
        return parse_quantity(value, unit) if unit else parse_number(value)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


GALAXY: str = "galaxy."
"""Beginning of the names of the parameters of a synthetic galaxy, and of smooth components."""

STARS: str = "stars."
"""Beginning of the names of the stars' arrays."""

V_LOS: str = STARS + "v_los"
"""The only component of the stars' velocities that a cube depends on, in km/s from that of the galaxy, + receding."""


class AbstractParticleSource(eqx.Module):
    """A source of a model's particles."""

    @abstractmethod
    def galaxy(self, values: Values) -> Galaxy:
        """The particles for these values (of which it takes those it has); pure and differentiable."""

    @abstractmethod
    def of_host(self, values: Values) -> Galaxy:
        """The particles for values on the host; not to be traced."""

    def fastest(self, values: Values) -> float:
        """Speed (km/s) of the fastest particle for values on the host."""
        galaxy = self.of_host(values)
        of_gas = np.zeros((0, 3)) if galaxy.gas is None else np.asarray(galaxy.gas.velocity, np.float64)
        return max(fastest_star(galaxy.stars, values), float(np.max(np.linalg.norm(of_gas, axis=1), initial=0.0)))


def fastest_star(stars: Stars, values: Values) -> float:
    """Speed (km/s) of the fastest star, with the random part of its velocity and `stars.v_los`."""
    speed = np.linalg.norm(np.asarray(stars.velocity, np.float64), axis=1) + np.abs(values.get(V_LOS, 0.0))
    if stars.random_velocity is not None:
        speed = speed + np.abs(stars.random_velocity)
    return float(np.max(speed, initial=0.0))


class SyntheticSource(AbstractParticleSource):
    """A synthetic galaxy, sampled with the same base draws whatever its parameters."""

    base: SyntheticGalaxy
    draws: BaseDraws

    def galaxy(self, values: Values) -> Galaxy:
        """The particles of the galaxy with the values named `galaxy.*`."""
        return with_leaves(self.base, values_below(values, GALAXY)).sample(self.draws)

    def of_host(self, values: Values) -> Galaxy:
        """The particles for values on the host, by one program for all values."""
        base, draws = jax.tree.map(np.asarray, (self.base, self.draws))
        return sampled(with_leaves(base, values_below(values, GALAXY)), draws)


class ComponentsSource(AbstractParticleSource):
    """A galaxy of smooth components: emitters at the same quadrature points whatever its parameters.

    `points`: those of each component; `numbers` of them. `more`: further parts of the rule, each of as many points, so
    that a model can be made part by part (`in_parts`), by the program of one.
    """

    base: SmoothGalaxy
    points: tuple[Points, ...]
    numbers: tuple[int, ...] = eqx.field(static=True)
    more: tuple[tuple[Points, ...], ...] = ()

    @property
    def all_numbers(self) -> tuple[int, ...]:
        """Points of each component, of all parts together."""
        return tuple(number * (1 + len(self.more)) for number in self.numbers)

    def in_parts(self) -> Iterator["ComponentsSource"]:
        """A source of each part alone, the mean of whose models is that of all."""
        for points in (self.points, *self.more):
            yield dataclasses.replace(self, points=points, more=())

    def of_parts(self, n_part: int) -> "ComponentsSource":
        """The source with the rule of `n_part` times as many points as one part has, in so many parts."""
        first, *more = (self.base.points(self.numbers, part, n_part) for part in range(n_part))
        return dataclasses.replace(self, points=first, more=tuple(more))

    def part(self, numbers: tuple[int, ...]) -> "ComponentsSource":
        """The source of some of the components."""

        def chosen(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[number] for number in numbers)

        base = SmoothGalaxy(chosen(self.base.components), chosen(self.base.names))
        return ComponentsSource(base, chosen(self.points), chosen(self.numbers), tuple(map(chosen, self.more)))

    def galaxy(self, values: Values) -> Galaxy:
        """The emitters of the galaxy with the values named `galaxy.COMPONENT.*`."""
        return self._at(values).emitters(self._points_of_all_parts(jnp))

    def of_host(self, values: Values) -> Galaxy:
        """The particles for values on the host, by one program for all values."""
        source = jax.tree.map(np.asarray, self)
        return emitted(source._at(values), source._points_of_all_parts(np))

    def _points_of_all_parts(self, space: Any) -> tuple[Points, ...]:
        if not self.more:
            return self.points
        return jax.tree.map(lambda *parts: space.concatenate(parts), self.points, *self.more)

    def _at(self, values: Values) -> SmoothGalaxy:
        pairs = zip(self.base.names, self.base.components, strict=True)
        components = (with_leaves(component, values_below(values, f"{GALAXY}{name}.")) for name, component in pairs)
        return SmoothGalaxy(tuple(components), self.base.names)


class ModelSource(AbstractParticleSource):
    """A user model of a galaxy, sampled with the same draws whatever its parameters."""

    model: AbstractGalaxyModel
    draws: Any

    @classmethod
    def of(cls, model: AbstractGalaxyModel) -> "ModelSource":
        """The source of a model with its draws."""
        with_arrays = as_arrays(model)
        return cls(with_arrays, with_arrays.draws())

    def galaxy(self, values: Values) -> Galaxy:
        """The particles of the model with the values named `galaxy.*`."""
        return galaxy_of(with_named_leaves(self.model, values_below(values, GALAXY)), self.draws)

    def of_host(self, values: Values) -> Galaxy:
        """The particles for values on the host, by one program for all values."""
        model, draws = jax.tree.map(np.asarray, (self.model, self.draws))
        return jax.tree.map(np.asarray, _sampled(with_named_leaves(model, values_below(values, GALAXY)), draws))


@jax.jit
def _sampled(model: AbstractGalaxyModel, draws: Any) -> Galaxy:
    return galaxy_of(model, draws)


class HeldSource(AbstractParticleSource):
    """The particles of a given galaxy."""

    held: Galaxy

    def galaxy(self, values: Values) -> Galaxy:
        """The particles with the values named `stars.*`, but for `stars.v_los`, which no galaxy knows."""
        arrays = {name: value for name, value in values.items() if name != V_LOS}
        return eqx.tree_at(lambda g: g.stars, self.held, with_leaves(self.held.stars, values_below(arrays, STARS)))

    def of_host(self, values: Values) -> Galaxy:
        """The particles with other arrays, of which nothing has to be compiled."""
        return self.galaxy(values)

    def fastest(self, values: Values) -> float:
        """Speed (km/s) of the fastest star for values on the host; gas of a given galaxy may be left unread."""
        return fastest_star(self.of_host(values).stars, values)


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

    def in_parts(self) -> "Iterator[AbstractForward]":
        """The model of each part of the source alone: their mean is the model. Itself where there is one."""
        source = self.source
        if not (isinstance(source, ComponentsSource) and source.more):
            yield self
            return
        for part in source.in_parts():
            yield dataclasses.replace(self, source=part)

    @property
    @abstractmethod
    def planned(self) -> tuple[Any, Any]:
        """Everything static, and every array but those of the particles: what makes two models the same."""

    def observed(self, values: Values, key: PRNGKeyArray | None = None) -> Observed:
        """The flux for these values, with the counters of the particles; pure, traceable, differentiable.

        `key`: that of the noise, where the pipeline adds any.
        """
        return self.modelled(values, key)[0]

    @abstractmethod
    def modelled(
        self, values: Values, key: PRNGKeyArray | None = None
    ) -> tuple[Observed, Float[Array, " difference"] | None]:
        """The cube with the residuals of the smoothness prior, where populations are solved for."""

    @abstractmethod
    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """Particles and parameters for these values."""

    @abstractmethod
    def of_host(self, values: Values, *, particles: bool) -> tuple[Galaxy | None, Parameters]:
        """Particles, if they are asked for, and parameters for values on the host, host arrays; not to be traced."""

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

    @classmethod
    def of(cls, planned: Any, source: AbstractParticleSource, *, on_device: bool = False) -> "Forward":
        """The compiled part of a pipeline, or of the model of a data set, with particles."""
        return cls(
            tables=planned.tables,
            parameters=planned.parameters,
            source=source,
            plan=planned.plan,
            layout=planned.layout,
            on_device=on_device,
        )

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

    def modelled(
        self, values: Values, key: PRNGKeyArray | None = None
    ) -> tuple[Observed, Float[Array, " difference"] | None]:
        """The cube with the residuals of the smoothness prior, where populations are solved for: those weights of which
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
        as their ages and metallicities say."""
        source = self.source
        if not isinstance(source, ComponentsSource):
            raise TypeError(f"expected a source of components, got {type(source).__name__}")

        def paint(numbers: tuple[int, ...], coefficients: Array | None) -> Observed:
            tables = self.tables if coefficients is None else with_one_template(self.tables, coefficients)
            part = dataclasses.replace(self, tables=tables, source=source.part(numbers), mixtures=None)
            return part._painted(values, None)

        return paint

    def _painted(self, values: Values, key: PRNGKeyArray | None) -> Observed:
        """The cube, whole on every device. The mean over the devices is that of equal numbers; it stands there for
        derivatives: each device knows n times those by its share (the sum over n devices is transposed into one), whose
        mean over the devices is the derivative by all particles, as it is for what every device computes whole."""
        galaxy, parameters = self.at(lax.pmean(dict(values), DATA_AXIS) if self.on_device else values)
        group, inputs = Group.of(self.plan, self.layout), PassInputs.of(self.tables, parameters, key)
        if not self.on_device:
            return observe_group(group, inputs, shard(galaxy, self.layout.mesh))[0]
        share = own_share(galaxy, self.layout.mesh)
        return observe_share(group, inputs, particles_by_pass(self.tables, share))[0]

    def at(self, values: Values) -> tuple[Galaxy, Parameters]:
        """Particles and parameters for these values."""
        dtype = self.plan.dtype
        cast = {name: jnp.asarray(value, dtype) for name, value in values.items()}
        parameters = with_leaves(self.parameters, _of_run(cast))
        galaxy = as_dtype(as_dtype(self.source, dtype).galaxy(cast), dtype)
        if V_LOS not in cast:
            return galaxy, parameters
        # velocities across the line of sight n stay: v + (v_los - n . v) n
        velocity, sight = galaxy.stars.velocity, line_of_sight(self.tables, parameters)[None, :]
        missing = cast[V_LOS] - (velocity * sight).sum(axis=1)
        return eqx.tree_at(lambda g: g.stars.velocity, galaxy, velocity + missing[:, None] * sight), parameters

    def of_host(self, values: Values, *, particles: bool) -> tuple[Galaxy | None, Parameters]:
        """Particles, if they are asked for, and parameters for values on the host, host arrays; not to be traced."""
        cast = {name: np.asarray(value, self.plan.dtype) for name, value in values.items()}
        parameters = with_leaves(jax.tree.map(np.asarray, self.parameters), _of_run(cast))
        if not particles:
            return None, parameters
        if isinstance(self.source, HeldSource):
            return jax.tree.map(np.asarray, _particles_at(self, values)), parameters
        return jax.tree.map(lambda leaf: np.asarray(leaf, self.plan.dtype), self.source.of_host(values)), parameters


@jax.jit
def _particles_at(forward: Forward, values: Values) -> Galaxy:
    return forward.at(values)[0]


def _of_run(values: Values) -> dict[str, Any]:
    others = (GALAXY, STARS, LIKELIHOOD, OF_DATA)
    return {name: value for name, value in values.items() if name != NOISE_SCALE and not name.startswith(others)}


def with_leaves(tree: Any, values: Mapping[str, Any]) -> Any:
    """The pytree with the leaves at dotted names replaced, each cast and broadcast to the leaf it replaces."""
    if not values:
        return tree

    def leaves(tree: Any) -> list[Any]:
        return [leaf_at(tree, name) for name in values]

    def like(value: Any, leaf: Any) -> Any:  # a value of the host stays there
        space = jnp if isinstance(value, jax.Array) else np
        return space.broadcast_to(value, jnp.shape(leaf)).astype(leaf.dtype)

    return eqx.tree_at(leaves, tree, list(map(like, values.values(), leaves(tree))))


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


def values_below(values: Values, prefix: str) -> dict[str, Any]:
    """The values whose names begin with the prefix, by the rest of the name."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
