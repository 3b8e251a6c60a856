"""Models, slopes, losses and linearised residuals of a group of starts, one start on each share of the devices.

One program of a fit (`linearised`) holds the whole model: its flux, and as many of its slopes by the latents as are
asked. Everything else is made from what it returns, by programs of the size of the likelihood: the loss, its normal
equations, the misfit, effects of parameters, models with other draws. It serves all data, errors and draws. Where there
is no room for slopes, a second program gives the flux alone.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.galaxy.synthetic import BaseDraws
from rubix_like.inference.posterior.fit_model import AbstractForward
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.posterior import Group, Posterior, SquaredLoss, half_square
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, replicated


def over_starts(function: Callable[..., Any], posterior: Any, *arrays: Any) -> Any:
    """`function(posterior, *arrays of one start)` for every start, each start on its share of the devices.

    `posterior`: any pytree that all starts share.
    """
    if jax.tree.leaves(arrays)[0].shape[0] == 1:
        alone = function(posterior, *jax.tree.map(lambda array: array[0], arrays))
        return jax.tree.map(lambda array: array[None], alone)
    axes = (None, *(0 for _ in arrays))
    return jax.vmap(function, in_axes=axes, spmd_axis_name=SAMPLE_AXIS)(posterior, *arrays)


def group_of(posterior: SquaredLoss, latent: Latent) -> Group:
    """One place as a group of starts; of a model as many copies as its mesh computes at once, as in a search."""
    row = np.asarray(latent)[None]
    if not isinstance(posterior, Posterior):
        return row
    mesh = posterior.forward.main.layout.mesh
    return placed_starts(np.repeat(row, mesh.shape.get(SAMPLE_AXIS, 1), axis=0), mesh)


def placed_starts(rows: Float[ndarray, "start latent"], mesh: Mesh) -> Group:
    """Group of as many starts as a mesh has rows along "sample", each on its own; whole where it has none."""
    spec = PartitionSpec(SAMPLE_AXIS) if SAMPLE_AXIS in mesh.shape else PartitionSpec()
    return jax.device_put(rows, NamedSharding(mesh, spec))


def on_mesh(posterior: SquaredLoss, mesh: Mesh) -> Any:
    """The posterior with its arrays on a mesh: where they lie already, or whole on every device.

    Priors stay on the host, where they are looked at between steps.
    """
    if isinstance(posterior, Posterior):
        placed = [_placed(own, mesh) for own in (posterior.forward, posterior.likelihood)]
        return dataclasses.replace(posterior, forward=placed[0], likelihood=placed[1])
    return _placed(posterior, mesh)


def with_draws(posterior: Posterior, draws: BaseDraws) -> Posterior:
    """The posterior of the same synthetic galaxy, made of other draws, which lie where its own do."""
    other = eqx.tree_at(lambda own: own.forward.source.draws, posterior, draws)
    return on_mesh(other, posterior.forward.main.layout.mesh)


def _placed(tree: Any, mesh: Mesh) -> Any:
    return jax.device_put(tree, jax.tree.map(lambda leaf: _kept_or_replicated(leaf, mesh), tree))


def _kept_or_replicated(leaf: Any, mesh: Mesh) -> jax.sharding.Sharding:
    """The sharding of an array as it lies already if that is on the mesh, or whole on every device."""
    sharding = getattr(leaf, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh == mesh else replicated(mesh)


_ROOM = 2.5e8
"""Bytes of slopes for which room is made also where none is asked for."""


class Modelled(NamedTuple):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, their particles' counters, and
    the residuals of the smoothness prior where populations are solved for (`free_form`)."""

    flux: Float[Array, "*start y x wave"]
    counters: Any
    roughness: Float[Array, "*start difference"] | None = None


class Tangent(eqx.Module):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, and its slopes by the latents.

    Models of parts of the particles add up, and so do their tangents, whatever the likelihood does with the sum.
    """

    flux: Float[Array, "*start y x wave"]
    slopes: Float[Array, "*start latent y x wave"]
    roughness: Float[Array, "*start difference"] | None = None
    roughness_slopes: Float[Array, "*start latent difference"] | None = None


def models(forward: AbstractForward, free: Free, latent: Group) -> Modelled:
    """The model of every start; not to be traced."""
    if 8.0 * free.n_latent * np.prod(forward.shape) > _ROOM:
        return flux_alone(forward, free, latent)
    return linearised(forward, free, latent, np.int32(0))[0]


def tangents(forward: AbstractForward, free: Free, latent: Group) -> Tangent:
    """The tangent of the model of every start; not to be traced."""
    modelled, slopes = linearised(forward, free, latent, np.int32(free.n_latent))
    return Tangent(modelled.flux, slopes[0], modelled.roughness, slopes[1])


def mean_tangent(parts: Iterable[Tangent]) -> Tangent:
    """The mean of tangents at the same latents, which lies where they do; by numpy, without a program. One part at a
    time is in memory."""
    total, places, count = [], [], 0
    for count, part in enumerate(parts, start=1):
        leaves = jax.tree.leaves(part)
        if count == 1:
            total, places = [np.array(leaf) for leaf in leaves], [leaf.sharding for leaf in leaves]
            continue
        for own, leaf in zip(total, leaves, strict=True):
            np.add(own, np.asarray(leaf), out=own)
    if not count:
        raise ValueError("expected at least one tangent, got none")
    return Tangent(*(jax.device_put(own / count, place) for own, place in zip(total, places, strict=True)))


@jax.jit
def linearised(
    forward: AbstractForward, free: Free, latent: Group, n_slope: Int[Array | np.integer, ""]
) -> tuple[Modelled, Any]:
    """The model of every start and its first `n_slope` slopes, the others 0; one slope after the other, which takes
    less time and memory. Without slopes it takes no longer than the model alone. Slopes: of the flux, and of the
    roughness (or None)."""
    return over_starts(_linearised, (forward, free, n_slope), latent)


@jax.jit
def flux_alone(forward: AbstractForward, free: Free, latent: Group) -> Modelled:
    """The model of every start."""
    return over_starts(_model, (forward, free), latent)


def models_at(posterior: Posterior, latent: Latent) -> Modelled:
    """The models of the group of one place (`group_of`)."""
    return models(posterior.forward, posterior.free, group_of(posterior, latent))


def tangents_at(posterior: Posterior, latent: Latent) -> Tangent:
    """The tangents of the group of one place (`group_of`)."""
    return tangents(posterior.forward, posterior.free, group_of(posterior, latent))


def _model(own: tuple[AbstractForward, Free], latent: Latent) -> Modelled:
    forward, free = own
    observed, roughness = forward.modelled(free.values(latent))
    return Modelled(observed.voxels.flux.astype(jax.dtypes.canonicalize_dtype(float)), observed.counters, roughness)


def _linearised(own: tuple[AbstractForward, Free, Array], latent: Latent) -> tuple[Modelled, Any]:
    forward, free, n_slope = own

    def model(at: Latent) -> tuple[tuple[Array, Array | None], Any]:
        made = _model((forward, free), at)
        return (made.flux, made.roughness), made.counters

    (flux, roughness), along, counters = jax.linearize(model, latent, has_aux=True)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)

    def add(number: Array, slopes: Any) -> Any:
        return jax.tree.map(lambda every, one: every.at[number].set(one), slopes, along(unit[number]))

    none = jax.tree.map(lambda leaf: jnp.zeros((latent.shape[0], *leaf.shape), leaf.dtype), (flux, roughness))
    return Modelled(flux, counters, roughness), lax.fori_loop(0, n_slope, add, none)


MOST_DENSE = 2000
"""Most latents whose J^T J is made."""

DENSE_BYTES = 2e9
"""Largest Jacobian that is made."""


class NormalForm(eqx.Module):
    """All that least squares need of residuals r(latent + d) = r + J d: R with R^T R = J^T J, R^T projected = J^T r.

    |r + J d|^2 = |projected + R d|^2 + constant, in as many numbers as there are latents.
    """

    factor: Float[Array, "*start latent latent"]
    projected: Float[Array, "*start latent"]

    @property
    def gradient(self) -> Float[Array, "*start latent"]:
        """J^T r, that of the loss."""
        return jnp.einsum("...ji,...j->...i", self.factor, self.projected)

    @property
    def excess(self) -> Float[Array, "*start"]:
        """The fall of the loss if the residuals were linear."""
        return 0.5 * jnp.sum(self.projected**2, axis=-1)


class Linear(NamedTuple):
    """The residuals of a group about its latents: J^T J and J^T r, the same as a form, the loss; `effect`: by how many
    standard deviations each latent changes the voxels, the length of its column of J."""

    matrix: Float[Array, "*start latent latent"]
    gradient: Float[Array, "*start latent"]
    form: NormalForm
    loss: Float[Array, "*start"]
    effect: Float[Array, "*start latent"]


class Scores(NamedTuple):
    """The squared sum of the voxels' residuals, and -ln(posterior), of every start."""

    chi_square: Float[Array, "*start"]
    loss: Float[Array, "*start"]


def is_dense(n_latent: int, n_residual: int) -> bool:
    """Whether there is room for a Jacobian."""
    return n_latent <= MOST_DENSE and 8.0 * n_latent * n_residual <= DENSE_BYTES


def losses_at(posterior: SquaredLoss, latent: Group) -> Float[Array, " start"]:
    """The loss of every start; not to be traced."""
    if not isinstance(posterior, Posterior):
        return losses(posterior, latent)
    made = models(posterior.forward, posterior.free, latent)
    return scores(posterior, latent, made.flux, roughness=made.roughness).loss


def normal_forms_at(posterior: SquaredLoss, latent: Group) -> NormalForm:
    """The residuals of every start, linearised; not to be traced."""
    if not isinstance(posterior, Posterior):
        return normal_forms(posterior, latent)
    return linear_of(posterior, latent, tangents(posterior.forward, posterior.free, latent)).form


def losses_and_forms_at(posterior: SquaredLoss, latent: Group) -> tuple[Float[Array, " start"], NormalForm]:
    """Both, of a model from one evaluation; not to be traced."""
    if not isinstance(posterior, Posterior):
        return losses(posterior, latent), normal_forms(posterior, latent)
    linear = linear_of(posterior, latent, tangents(posterior.forward, posterior.free, latent))
    return linear.loss, linear.form


def scores(
    posterior: Posterior,
    latent: Group,
    flux: Float[Array, "start y x wave"],
    factor: Float[ndarray, " start"] | None = None,
    roughness: Float[Array, "start difference"] | None = None,
) -> Scores:
    """Scores of models with this flux, times a factor, and this roughness of their populations."""
    return _scores(posterior, latent, flux, np.ones(len(latent), flux.dtype) if factor is None else factor, roughness)


@jax.jit
def _scores(posterior: Posterior, latent: Group, flux: Array, factor: Array, roughness: Array | None) -> Scores:
    def score(posterior: Posterior, at: Latent, flux: Array, factor: Array, roughness: Array | None) -> Scores:
        residuals = posterior.residuals_of(flux * factor, at, roughness)
        return Scores(jnp.sum(residuals.voxels**2), half_square(residuals))

    return over_starts(score, posterior, latent, flux, factor, roughness)


@jax.jit
def linear_of(posterior: Posterior, latent: Group, tangent: Tangent) -> Linear:
    """The residuals of every start, linearised, of models that have this tangent there."""

    def linear(posterior: Posterior, at: Latent, tangent: Tangent) -> Linear:
        residuals, columns = columns_at(posterior, at, tangent)
        matrix, gradient = products(residuals, columns)
        effect = jnp.sqrt(jnp.sum(columns.voxels**2, axis=(1, 2, 3)))
        return Linear(matrix, gradient, _form(matrix, gradient), half_square(residuals), effect)

    return over_starts(linear, posterior, latent, tangent)


@jax.jit
def losses(posterior: SquaredLoss, latent: Group) -> Float[Array, " start"]:
    """The loss of every start, of any residuals."""
    return over_starts(lambda own, at: own.loss(at), posterior, latent)


@jax.jit
def normal_forms(posterior: SquaredLoss, latent: Group) -> NormalForm:
    """Any residuals of every start, linearised, by Jacobian-vector products."""
    return over_starts(lambda own, at: _form(*normal_equations(own, at)), posterior, latent)


def _form(matrix: Float[Array, "latent latent"], gradient: Float[Array, " latent"]) -> NormalForm:
    scale = jnp.sqrt(jnp.diagonal(matrix))
    size = matrix.shape[0]
    even = matrix / (scale[:, None] * scale[None, :])
    rounding = 10 * size * jnp.finfo(matrix.dtype).eps
    lower = jnp.linalg.cholesky(even + rounding * jnp.eye(size, dtype=matrix.dtype))
    projected = jax.scipy.linalg.solve_triangular(lower, gradient / scale, lower=True)
    return NormalForm(lower.T * scale[None, :], projected)


def normal_equations(
    posterior: SquaredLoss, latent: Latent
) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """J^T J and J^T r."""
    return products(*jacobian(posterior, latent))


def products(residuals: Any, columns: Any) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """J^T J and J^T r of residuals, and a pytree like them with the axis `latent` first, their derivatives."""
    leaves = list(zip(jax.tree.leaves(residuals), jax.tree.leaves(columns), strict=True))
    flat = [(residual.reshape(-1), column.reshape(column.shape[0], -1)) for residual, column in leaves]
    matrix = functools.reduce(jnp.add, [column @ column.T for _, column in flat])
    gradient = functools.reduce(jnp.add, [column @ residual for residual, column in flat])
    return matrix, gradient


def columns_at(posterior: Posterior, latent: Latent, tangent: Tangent) -> tuple[Any, Any]:
    """The result of `jacobian` for a posterior whose model has this tangent at the latents."""
    residuals, along = jax.linearize(posterior.residuals_of, tangent.flux, latent, tangent.roughness)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(lambda own: along(*own), (tangent.slopes, unit, tangent.roughness_slopes))


def jacobian(posterior: SquaredLoss, latent: Latent) -> tuple[Any, Any]:
    """The residuals, and a pytree like them with the axis `latent` first: their derivatives.

    One after the other: all at once they take longer on CPUs, and more memory.
    """
    residuals, along = jax.linearize(posterior.residuals, latent)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(along, unit)
