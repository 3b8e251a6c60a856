"""The posterior of the latents as a sum of squared residuals, and its linear form: models, slopes and losses.

-ln L = 1/2 sum r^2 + constant for everything in it, so that least-squares methods, gradients and samplers share it; r
are residuals of a cube in units of their standard deviation.

One program of a fit (`linearised`) holds the whole model: its flux, and as many of its slopes by the latents as are
asked, for a group of starts, one on each share of the devices. Everything else is made from what it returns, by
programs of the size of the likelihood: the loss, its normal equations, the misfit, effects of parameters, models with
other draws. It serves all data, errors and draws. Where there is no room for slopes, a second program gives the flux
alone.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, returned
from rubix_like.forward.model import Observed
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.synthetic import BaseDraws
from rubix_like.inference.likelihoods.voxel_errors import (
    OFFSET,
    AbstractErrorDistribution,
    AbstractErrors,
    Weighted,
    information_of_location,
    quadrature_nodes,
)
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    LIKELIHOOD,
    NOISE_SCALE,
    STARS,
    AbstractForward,
    Free,
    Latent,
    values_below,
)
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, replicated

NoiseScale = Float[Array, ""] | None
"""The factor on the standard deviations of the data; None where it is 1 and not free."""


def factor_of(scale: NoiseScale) -> Float[Array, ""]:
    """The noise scale as a number: 1 where it is not free."""
    return jnp.ones(()) if scale is None else scale


class Polynomial(eqx.Module):
    """Multiplicative continua, one per spaxel: 1 + sum_j c_j basis_j, the c_j normal about 0 with `sigma`."""

    basis: Float[Array, "wave degree"]
    sigma: Float[Array, ""]


class ModelError(eqx.Module):
    """The effect of particle noise on a model (`inference.model_error`), in units of the data's standard deviations.

    `offset` is added to the model's flux times inverse_sigma; the covariance is 1 + V diag(strength) V^T with `modes` V
    orthonormal over the voxels; `held_out`: deviations of which neither knows, for the covariance of a fit.
    """

    offset: Float[Array, "y x wave"]
    modes: Float[Array, "mode y x wave"]
    strength: Float[Array, " mode"]
    held_out: Float[Array, "draw y x wave"]

    def whiten(
        self, residual: Float[Array, "y x wave"], scale: Float[Array, ""] | float = 1.0
    ) -> Float[Array, "y x wave"]:
        """(1 + V diag(strength / scale^2) V^T)^-1/2 times residuals in units of sigma scale."""
        shrink = 1 - 1 / jnp.sqrt(1 + self.strength / scale**2)
        along = jnp.einsum("kyxw,yxw->k", self.modes, residual)
        return residual - jnp.einsum("k,kyxw->yxw", shrink * along, self.modes)

    def log_determinant(self, scale: Float[Array, ""]) -> Float[Array, ""]:
        """ln det(1 + V diag(strength / scale^2) V^T)."""
        return jnp.sum(jnp.log1p(self.strength / scale**2))


class Residuals(NamedTuple):
    """Everything whose half squared sum is -ln(posterior) up to a constant."""

    voxels: Float[Array, "y x wave"]
    coefficients: Float[Array, "y x degree"] | None
    scale: Float[Array, ""] | None
    prior: Float[Array, " latent"] | None
    excess: Float[Array, ""] | None = None
    roughness: Float[Array, " difference"] | None = None


class Likelihood(eqx.Module):
    """The data and their errors.

    `flux` and `inverse_sigma` (0 where a voxel is left out): (y, x, wave), in 1e-20 erg/s/cm2/Angstrom and its inverse;
    `smallest_scale`: lower limit of the noise scale (1 where it is not free). `errors`: None: independent, normal.
    `dependent`: 1 / sigma of voxels that are left out as their noise follows from that of others, else 0; None: none.
    """

    flux: Float[Array, "y x wave"]
    inverse_sigma: Float[Array, "y x wave"]
    polynomial: Polynomial | None = None
    model_error: ModelError | None = None
    smallest_scale: Float[Array, ""] = eqx.field(default=1.0, converter=jnp.asarray)
    errors: AbstractErrors | None = None
    dependent: Float[Array, "y x wave"] | None = None

    @property
    def inverse_sigma_of_data(self) -> Float[Array, "y x wave"]:
        """1 / sigma of all voxels that the fit uses, also those whose noise follows from that of others."""
        return self.inverse_sigma if self.dependent is None else self.inverse_sigma + self.dependent

    def residuals(self, model: Float[Array, "y x wave"], scale: NoiseScale) -> Residuals:
        """Residuals of the model's flux; the polynomial's coefficients are those that fit best, which is exact for
        their posterior's maximum."""
        model = model.astype(jax.dtypes.canonicalize_dtype(float))
        weight = self._weight(scale)
        coefficients = None
        if self.polynomial is not None:
            coefficients = self._coefficients(self.polynomial, model, weight)
            model = model * _factor(self.polynomial, coefficients)
        voxels = (self.flux - model) * weight
        if self.model_error is not None:
            factor = factor_of(scale)
            voxels = self.model_error.whiten(voxels - self.model_error.offset / factor, factor)
        if self.errors is not None:
            call = f"likelihood {type(self.errors).__name__}: `residuals`"
            found = returned(self.errors.residuals(voxels, self.flux, model, weight), jax.Array, call, "an array")
            check_returned_shapes(call, {"residuals": (found, voxels.shape)})
            voxels = found
        used, of_scale, excess = self.inverse_sigma > 0, None, None
        if scale is not None:  # r^2 / 2 = N ln(scale) + constant, real for any scale above the smallest
            square = 2 * jnp.sum(used, dtype=scale.dtype) * (0.5 + jnp.log(scale / self.smallest_scale))
            if self.model_error is not None:
                square = square + self.model_error.log_determinant(scale)
            of_scale = jnp.sqrt(square)
        if isinstance(self.errors, AbstractErrorDistribution):  # of the normalisation over that of normal errors
            count = jnp.sum(used, dtype=weight.dtype)
            excess = jnp.sqrt(2 * count * (OFFSET + jnp.asarray(self.errors.excess(), count.dtype)))
        return Residuals(voxels, coefficients, of_scale, None, excess)

    def at(self, values: Mapping[str, Any]) -> "Likelihood":
        """The likelihood with the values named `likelihood.*`."""
        free = values_below(values, LIKELIHOOD)
        if not free or not isinstance(self.errors, AbstractErrorDistribution):
            return self
        return dataclasses.replace(self, errors=dataclasses.replace(self.errors, **free))

    def log_normalisation(self, scale: NoiseScale) -> Float[Array, ""]:
        """The term that is added to minus half the squared residuals to make them ln(likelihood), in data units: the
        logarithm of the density of the voxels that are fitted."""
        used = self.inverse_sigma > 0
        count = jnp.sum(used, dtype=self.inverse_sigma.dtype)
        known = jnp.sum(jnp.log(jnp.where(used, self.inverse_sigma, 1))) - 0.5 * count * jnp.log(2 * jnp.pi)
        if self.errors is not None:
            known = known + jnp.asarray(self.errors.log_constant(), known.dtype)
        if isinstance(self.errors, AbstractErrorDistribution):
            known = known + count * OFFSET
        if scale is not None:
            return known + count * (0.5 - jnp.log(self.smallest_scale))
        return known if self.model_error is None else known - 0.5 * self.model_error.log_determinant(jnp.ones(()))

    def continuum(self, model: Float[Array, "y x wave"], scale: NoiseScale) -> Float[Array, "y x wave"]:
        """The factor on the model's flux that fits best; 1 without a polynomial."""
        if self.polynomial is None:
            return jnp.ones_like(model)
        return _factor(self.polynomial, self._coefficients(self.polynomial, model, self._weight(scale)))

    def design(self, model: Float[Array, "y x wave"], scale: NoiseScale) -> Float[Array, "y x wave degree"]:
        """The fall of the residuals of voxels with each coefficient of the continua; ValueError without any."""
        if self.polynomial is None:
            raise ValueError("expected a likelihood with a polynomial, got one without")
        weight = self._weight(scale)
        return _design(self.polynomial, model.astype(weight.dtype), weight)

    def _weight(self, scale: NoiseScale) -> Float[Array, "y x wave"]:
        return self.inverse_sigma if scale is None else self.inverse_sigma / scale

    def _coefficients(
        self, polynomial: Polynomial, model: Float[Array, "y x wave"], weight: Float[Array, "y x wave"]
    ) -> Float[Array, "y x degree"]:
        """Coefficients of the best continuum of every spaxel, in units of their sigma, by the normal equations."""
        design = _design(polynomial, model, weight)
        target = (self.flux - model) * weight
        matrix = jnp.einsum("yxwi,yxwj->yxij", design, design) + jnp.eye(design.shape[-1])[None, None]
        vector = jnp.einsum("yxwi,yxw->yxi", design, target)
        return jnp.linalg.solve(matrix, vector[..., None])[..., 0]


def with_scale_information(
    matrix: Float[Array, "latent latent"], free: Free, latent: Latent, n_voxel: Int[Array, ""]
) -> Float[Array, "latent latent"]:
    """The information J^T J of the data with Fisher's of the noise scale, 2 N of ln(scale) for N voxels, and none of it
    with others; unchanged where the scale is not free."""
    if NOISE_SCALE not in free.names:
        return matrix
    index = free.places[NOISE_SCALE].start
    slope = jax.grad(lambda at: jnp.log(free.values(at)[NOISE_SCALE]))(latent)[index]
    without = matrix.at[index, :].set(0).at[:, index].set(0)
    return without.at[index, index].set(2 * n_voxel.astype(matrix.dtype) * slope**2)


def nuisance_places(free: Free) -> tuple[int, ...]:
    """Places of the latents that the likelihood alone depends on."""
    return tuple(place.start for name, place in free.places.items() if name.startswith((NOISE_SCALE, LIKELIHOOD)))


def with_nuisance_information(
    matrix: Float[Array, "latent latent"], free: Free, latent: Latent, likelihood: Likelihood
) -> Float[Array, "latent latent"]:
    """The information of the data with Fisher's of the parameters of a distribution of errors and of the noise scale: N
    times the integral of the product of their slopes of ln(p(r / s) / s), and none of them with others."""
    places = nuisance_places(free)
    if not places or not isinstance(likelihood.errors, AbstractErrorDistribution):
        return matrix
    nodes, weight = quadrature_nodes()

    def log_density(at: Latent) -> Float[Array, " node"]:
        values = free.values(at)
        errors = likelihood.at(values).errors
        if not isinstance(errors, AbstractErrorDistribution):
            raise TypeError(f"expected a distribution of errors, got {type(errors).__name__}")
        scale = values.get(NOISE_SCALE, jnp.ones(()))
        ratio = scale / lax.stop_gradient(scale)
        return errors.log_density(nodes / ratio) - jnp.log(ratio)

    slopes = jax.jacfwd(log_density)(latent)
    count = jnp.sum(likelihood.inverse_sigma > 0, dtype=matrix.dtype)
    fisher = count * jnp.einsum("ni,nj,n->ij", slopes, slopes, jnp.exp(log_density(latent)) * weight)
    chosen = jnp.zeros(matrix.shape[0], bool).at[jnp.array(places)].set(True)
    either = chosen[:, None] | chosen[None, :]
    return jnp.where(either, fisher, matrix)


def _design(
    polynomial: Polynomial, model: Float[Array, "y x wave"], weight: Float[Array, "y x wave"]
) -> Float[Array, "y x wave degree"]:
    return (model * weight)[..., None] * (polynomial.basis * polynomial.sigma)[None, None]


def _factor(polynomial: Polynomial, coefficients: Float[Array, "y x degree"]) -> Float[Array, "y x wave"]:
    return 1 + jnp.einsum("yxi,wi->yxw", coefficients * polynomial.sigma, polynomial.basis)


def legendre_basis(wavelength: Float[ndarray, " wave"], degree: int) -> Float[ndarray, "wave degree"]:
    """Legendre's polynomials from the first degree on, their argument -1 to 1 from the first to the last wavelength."""
    position = np.interp(wavelength, wavelength[[0, -1]], [-1.0, 1.0])
    return np.polynomial.legendre.legvander(position, degree)[:, 1:]


class Posterior(eqx.Module):
    """Model, free parameters and likelihood of one fit; a pytree, to be passed to jitted functions as an argument."""

    forward: AbstractForward
    free: Free
    likelihood: Likelihood

    def at(self, latent: Latent) -> tuple[Galaxy, Parameters]:
        """The particles and parameters of the model."""
        return self.forward.at(self.free.values(latent))

    def named_values(self, latent: Float[Array | ndarray, "*n latent"]) -> dict[str, Any]:
        """The values of all free parameters, by name."""
        return self.free.values(latent)

    def of_host(self, latent: Float[ndarray, " latent"]) -> tuple[Galaxy | None, Parameters]:
        """Particles (None where nothing of them is free) and parameters as host arrays; not to be traced."""
        return self.forward.of_host(self.free.values(latent), particles=self.free.has(GALAXY, STARS))

    def observed(self, latent: Latent) -> Observed:
        """The cube of the model, without the continuum's polynomial, with the counters of the particles."""
        return self.forward.observed(self.free.values(latent))

    def model(self, latent: Latent) -> Float[Array, "y x wave"]:
        """Flux (1e-20 erg/s/cm2/Angstrom) of the model, without the continuum's polynomial."""
        return self.observed(latent).voxels.flux

    def noise_scale(self, latent: Latent) -> NoiseScale:
        """The factor on the standard deviations of the data; None where it is not free."""
        return self.free.value(NOISE_SCALE, latent)

    def residuals(self, latent: Latent) -> Residuals:
        """A pytree of residuals: half their squared sum is the loss. The prior's are the latents themselves."""
        observed, roughness = self.forward.modelled(self.free.values(latent))
        return self.residuals_of(observed.voxels.flux, latent, roughness)

    def residuals_of(
        self, model: Float[Array, "y x wave"], latent: Latent, roughness: Float[Array, " difference"] | None = None
    ) -> Residuals:
        """Residuals of a model whose flux is known, and the roughness of populations that were solved for."""
        known = self.likelihood_at(latent).residuals(model, self.noise_scale(latent))
        return known._replace(prior=latent, roughness=roughness)

    def likelihood_at(self, latent: Latent) -> Likelihood:
        """The likelihood with the values of its parameters."""
        return self.likelihood.at(self.free.values(latent)) if self.free.has(LIKELIHOOD) else self.likelihood

    def as_normal(self, latent: Latent) -> "Posterior":
        """The posterior with normal errors that say as much of the model as the likelihood's distribution does at
        these latents; itself where errors have none."""
        errors = self.likelihood_at(latent).errors
        if not isinstance(errors, AbstractErrorDistribution):
            return self
        weighted = Weighted(jnp.sqrt(information_of_location(errors)))
        return eqx.tree_at(lambda posterior: posterior.likelihood.errors, self, weighted)

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """-ln(posterior density of the latents) up to a constant."""
        return half_square(self.residuals(latent))


def half_square(residuals: Any) -> Float[Array, ""]:
    """Half the sum of squares of a pytree of residuals."""
    squares = [jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(residuals)]
    return 0.5 * sum(squares[1:], start=squares[0])


Latents = Float[Array, "start latent"]
Group = Float[Array | ndarray, "start latent"]
"""The same, on the host or on devices."""


@runtime_checkable
class SquaredLoss(Protocol):
    """The function that is minimised: half the squared sum of residuals of a vector of latents; a pytree."""

    def residuals(self, latent: Latent) -> Any:
        """A pytree of residuals."""

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """Half their squared sum."""
        ...


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
    """Group of as many starts as a mesh has rows along "sample", one on each row; whole where it has none."""
    spec = PartitionSpec(SAMPLE_AXIS) if SAMPLE_AXIS in mesh.shape else PartitionSpec()
    return jax.device_put(rows, NamedSharding(mesh, spec))


def on_mesh(posterior: SquaredLoss, mesh: Mesh) -> Any:
    """The posterior with its arrays on a mesh: where they lie already, or whole on every device.

    Priors stay on the host, where they are looked at between steps.
    """
    if isinstance(posterior, Posterior):
        placed = [_placed(part, mesh) for part in (posterior.forward, posterior.likelihood)]
        return dataclasses.replace(posterior, forward=placed[0], likelihood=placed[1])
    return _placed(posterior, mesh)


def with_draws(posterior: Posterior, draws: BaseDraws) -> Posterior:
    """The posterior of the same synthetic galaxy, made of other draws, which lie where the present ones do."""
    other = eqx.tree_at(lambda posterior: posterior.forward.source.draws, posterior, draws)
    return on_mesh(other, posterior.forward.main.layout.mesh)


def _placed(tree: Any, mesh: Mesh) -> Any:
    def sharding_of(leaf: Any) -> jax.sharding.Sharding:
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.mesh == mesh:
            return sharding
        return replicated(mesh)

    return jax.device_put(tree, jax.tree.map(sharding_of, tree))


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
        return mean_of(flux_alone(part, free, latent) for part in forward.in_parts())
    return mean_of(linearised(part, free, latent, np.int32(0))[0] for part in forward.in_parts())


def tangents(forward: AbstractForward, free: Free, latent: Group) -> Tangent:
    """The tangent of the model of every start; not to be traced."""

    def of_part(part: AbstractForward) -> Tangent:
        modelled, slopes = linearised(part, free, latent, np.int32(free.n_latent))
        return Tangent(modelled.flux, slopes[0], modelled.roughness, slopes[1])

    return mean_of(of_part(part) for part in forward.in_parts())


Part = TypeVar("Part", Modelled, Tangent)


def mean_of(parts: Iterable[Part]) -> Part:
    """The mean of models, or tangents, of parts of the particles, each as if it were all, at the same latents; it lies
    where they do. By numpy, without a program, and one part at a time is in memory. Counters of particles are sums."""
    left = iter(parts)
    first, total, count = next(left), None, 1
    for part in left:
        count += 1
        total = jax.tree.map(np.array, first) if total is None else total
        jax.tree.map(lambda so_far, leaf: np.add(so_far, np.asarray(leaf), out=so_far), total, part)

    def mean(so_far: ndarray, leaf: Array) -> Array:
        is_count = np.issubdtype(so_far.dtype, np.integer)
        return jax.device_put(so_far if is_count else so_far / count, leaf.sharding)

    return first if total is None else jax.tree.map(mean, total, first)


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


def flux_in_sigma(posterior: Posterior, latent: Latent) -> Float[np.ndarray, "y x wave"]:
    """The model's flux in units of the data's sigma, on the host."""
    return np.asarray(models_at(posterior, latent).flux)[0] * np.asarray(posterior.likelihood.inverse_sigma)


def tangents_at(posterior: Posterior, latent: Latent) -> Tangent:
    """The tangents of the group of one place (`group_of`)."""
    return tangents(posterior.forward, posterior.free, group_of(posterior, latent))


def _model(shared: tuple[AbstractForward, Free], latent: Latent) -> Modelled:
    forward, free = shared
    observed, roughness = forward.modelled(free.values(latent))
    return Modelled(observed.voxels.flux.astype(jax.dtypes.canonicalize_dtype(float)), observed.counters, roughness)


def _linearised(shared: tuple[AbstractForward, Free, Array], latent: Latent) -> tuple[Modelled, Any]:
    forward, free, n_slope = shared

    def model(at: Latent) -> tuple[tuple[Array, Array | None], Any]:
        made = _model((forward, free), at)
        return (made.flux, made.roughness), made.counters

    (flux, roughness), along, counters = jax.linearize(model, latent, has_aux=True)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)

    def add(number: Array, slopes: Any) -> Any:
        return jax.tree.map(lambda all_, slope: all_.at[number].set(slope), slopes, along(unit[number]))

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
    return over_starts(lambda posterior, at: posterior.loss(at), posterior, latent)


@jax.jit
def normal_forms(posterior: SquaredLoss, latent: Group) -> NormalForm:
    """Any residuals of every start, linearised, by Jacobian-vector products."""
    return over_starts(lambda posterior, at: _form(*normal_equations(posterior, at)), posterior, latent)


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
    return residuals, lax.map(lambda change: along(*change), (tangent.slopes, unit, tangent.roughness_slopes))


def jacobian(posterior: SquaredLoss, latent: Latent) -> tuple[Any, Any]:
    """The residuals, and a pytree like them with the axis `latent` first: their derivatives.

    One after the other: all at once they take longer on CPUs, and more memory.
    """
    residuals, along = jax.linearize(posterior.residuals, latent)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(along, unit)
