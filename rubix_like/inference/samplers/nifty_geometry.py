"""The geometry of a posterior for NIFTy: the metric of its data, and samples drawn by it about a point.

MGVI: Knollmueller & Ensslin 2019, arXiv:1901.11033; geoVI: Frank, Leike & Ensslin 2021, arXiv:2105.10470, whose
equation is solved by Broyden's method. NIFTy is optional, and imported here only.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Int, UInt32

from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import Posterior, SquaredLoss
from rubix_like.runtime.optional_packages import import_optional

_SHORTEST = 1 / 256
"""Part of a step below which none is tried."""

Vector = Float[Array, " number"]


class Root(NamedTuple):
    """The position with the smallest values found, their norm there, and how often the function was evaluated."""

    position: Vector
    error: Float[Array, ""]
    n_evaluation: Int[Array, ""]


class _Search(NamedTuple):
    """`inverse`: of the Jacobian, as it is known; `part`: how much of its step is tried next."""

    position: Vector
    values: Vector
    inverse: Float[Array, "number number"]
    part: Float[Array, ""]
    n_evaluation: Int[Array, ""]


def find_root(
    function: Callable[[Vector], Vector], values: Vector, tolerance: Float[Array, ""] | float, most: int
) -> Root:
    """The root of a function whose Jacobian at 0 is the unit matrix, beginning at 0, where its values are given.

    Broyden's first method (Broyden 1965, Math. Comp. 19, 577), with a shorter step in another direction, by what was
    learnt of the Jacobian, where one does not lower the norm of the values. It ends where that is below `tolerance`,
    where even short steps do not lower it, or after `most` evaluations. Traceable.
    """

    def goes_on(search: _Search) -> Bool[Array, ""]:
        wrong = jnp.linalg.norm(search.values) > tolerance
        return wrong & (search.n_evaluation < most) & (search.part >= _SHORTEST)

    def advance(search: _Search) -> _Search:
        step = -search.part * (search.inverse @ search.values)
        found = function(search.position + step)
        better = jnp.linalg.norm(found) < jnp.linalg.norm(search.values)
        inverse = _secant(search.inverse, step, found - search.values)
        usable = jnp.isfinite(inverse).all()
        return _Search(
            position=jnp.where(better, search.position + step, search.position),
            values=jnp.where(better, found, search.values),
            inverse=jnp.where(usable, inverse, search.inverse),
            part=jnp.where(better, jnp.minimum(jnp.ones_like(search.part), 4 * search.part), search.part / 2),
            n_evaluation=search.n_evaluation + 1,
        )

    unit = jnp.eye(values.shape[0], dtype=values.dtype)
    one = jnp.ones((), values.dtype)
    begin = _Search(jnp.zeros_like(values), values, unit, one, jnp.zeros((), jnp.int32))
    end = lax.while_loop(goes_on, advance, begin)
    return Root(end.position, jnp.linalg.norm(end.values), end.n_evaluation)


def _secant(inverse: Float[Array, "number number"], step: Vector, change: Vector) -> Float[Array, "number number"]:
    """The inverse nearest to the old one that turns the change of the values into the step."""
    expected = inverse @ change
    along = step @ inverse
    length = along @ change
    usable = jnp.abs(length) > 1e-3 * jnp.sum(step * step)
    update = (step - expected)[:, None] * along[None, :] / jnp.where(usable, length, jnp.ones_like(length))
    return jnp.where(usable, inverse + update, inverse)


MOST_EVALUATIONS = 100
"""Largest number of evaluations of the model for one sample."""

MOST_STEPS = 10
"""Largest number of steps of the mean within one iteration."""

_PRIOR = "prior"
"""Name of the residuals that are the latents themselves."""

Flat = Float[Array, " residual"]


class Slopes(eqx.Module):
    """Derivatives of residuals, J^T, and the L with L L^T = J^T J + 1, the metric."""

    columns: Float[Array, "latent residual"]
    factor: Float[Array, "latent latent"]

    def solve(self, vector: Latent) -> Float[Array, " latent"]:
        """The inverse metric times a vector."""
        return cho_solve((self.factor, True), vector)

    def whiten(self, vector: Latent) -> Float[Array, " latent"]:
        """L^-1 times a vector."""
        return solve_triangular(self.factor, vector, lower=True)

    def colour(self, vector: Latent) -> Float[Array, " latent"]:
        """L^-T times a vector: normal numbers get the inverse metric as covariance."""
        return solve_triangular(self.factor, vector, trans=1, lower=True)


class Expansion(eqx.Module):
    """A posterior about a centre: the residuals of the data there and, where there is room for them, their slopes."""

    centre: Latent
    residuals: Flat
    slopes: Slopes | None


class Drawn(NamedTuple):
    """A sample: its way from the centre, by how many standard deviations it misses what defines it, its loss."""

    way: Latent
    error: Float[Array, ""]
    loss: Float[Array, ""]


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, NIFTy writes nothing to the terminal."""
    logger = logging.getLogger("nifty.re.logger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def data_residuals(posterior: SquaredLoss, latent: Latent) -> Flat:
    """All residuals but the prior's: the coordinates in which the metric of the data is flat.

    Where the noise scale s is free: those of the voxels, and sqrt(2 N) ln(s) for N voxels. Derivatives are then taken
    at the residuals' scale, so that J^T J is Fisher's information: 2 N of ln(s), and none of it with others.
    """
    if isinstance(posterior, Posterior) and (scale := posterior.noise_scale(latent)) is not None:
        likelihood = posterior.likelihood
        count = jnp.sum(likelihood.inverse_sigma > 0, dtype=latent.dtype)
        of_scale = jnp.sqrt(2 * count) * jnp.log(scale.reshape(1).astype(latent.dtype))
        residuals = likelihood.residuals(posterior.model(latent), lax.stop_gradient(scale))._replace(scale=of_scale)
    else:
        residuals = posterior.residuals(latent)
    leaves = jax.tree_util.tree_leaves_with_path(residuals)
    of_data = [leaf for path, leaf in leaves if jax.tree_util.keystr(path[-1:], simple=True) != _PRIOR]
    return jnp.concatenate([leaf.reshape(-1) for leaf in of_data])


def likelihood_about(posterior: SquaredLoss, expansion: Expansion) -> Any:
    """NIFTy's likelihood of the data; what is known at the centre of the expansion is not computed again.

    The centre is known by being the same array: NIFTy hands on the position it is given.
    """
    nifty_likelihood = _nifty().Likelihood
    centre, slopes = expansion.centre, expansion.slopes

    def coordinates(latent: Latent) -> Flat:
        return data_residuals(posterior, latent)

    class DataLikelihood(nifty_likelihood):
        def transformation(self, primals: Latent, **_: Any) -> Flat:
            return expansion.residuals if primals is centre else coordinates(primals)

        def left_sqrt_metric(self, primals: Latent, tangents: Flat, **_: Any) -> Latent:
            if primals is centre and slopes is not None:
                return slopes.columns @ tangents
            return jax.vjp(coordinates, primals)[1](tangents)[0]

        def right_sqrt_metric(self, primals: Latent, tangents: Latent, **_: Any) -> Flat:
            return jax.jvp(coordinates, (primals,), (tangents,))[1]

    return DataLikelihood(lsm_tangents_shape=jax.ShapeDtypeStruct(expansion.residuals.shape, centre.dtype))


def draw(
    posterior: SquaredLoss,
    key: UInt32[Array, "2"],
    sign: Float[Array, ""],
    expansion: Expansion,
    tolerance: Float[Array, ""],
) -> Drawn:
    """A sample of geoVI by NIFTy about the centre of an expansion; `sign` -1: the mirror image.

    A draw m from the normal distribution whose covariance is the metric M at the centre e becomes the x with
    x - e + J(e)^T (r(x) - r(e)) = m, r being the residuals of the data.
    """
    nifty: Any = _nifty()
    likelihood, centre = likelihood_about(posterior, expansion), expansion.centre
    metric_sample = sign * nifty.draw_linear_residual(likelihood, centre, key, from_inverse=False)[0]
    if expansion.slopes is not None:
        way = expansion.slopes.solve(metric_sample)
        solve = _by_root(likelihood, expansion, expansion.slopes, metric_sample, tolerance)
    else:
        way = nifty.static_cg(lambda vector: likelihood.metric(centre, vector) + vector, metric_sample)[0]
        solve = _by_newton
    way, state = nifty.nonlinearly_update_residual(likelihood, centre, way, key, sign, minimize=solve)
    return Drawn(way, state.fun, posterior.loss(centre + way))


def _by_root(
    likelihood: Any,
    expansion: Expansion,
    slopes: Slopes,
    metric_sample: Float[Array, " latent"],
    tolerance: Float[Array, ""],
) -> Callable[..., Any]:
    """A solver for NIFTy: geoVI's equation is solved by evaluations of the model alone.

    In units of standard deviations at the centre, where the derivatives of the equation are those of the metric.
    """
    centre = expansion.centre

    def missing(whitened: Float[Array, " latent"]) -> Float[Array, " latent"]:
        way = slopes.colour(whitened)
        change = likelihood.transformation(centre + way) - expansion.residuals
        return slopes.whiten(way + likelihood.left_sqrt_metric(centre, change) - metric_sample)

    def solve(_: None, **__: Any) -> Any:
        root = find_root(missing, -slopes.whiten(metric_sample), tolerance, MOST_EVALUATIONS)
        position = centre + slopes.colour(root.position)
        return _nifty().optimize.OptimizeResults(position, True, root.n_evaluation, root.error, None)

    return solve


def _by_newton(_: None, x0: Latent, **options: Any) -> Any:
    """A solver for NIFTy: NIFTy's Newton steps with conjugate gradients; what is missing is not more than said."""
    nifty: Any = _nifty()
    with jax.numpy_dtype_promotion("standard"):
        found = nifty.static_newton_cg(None, x0, **options)
    missing = jnp.sqrt(2 * options["fun_and_grad"](found)[0])
    return nifty.optimize.OptimizeResults(found, True, 0, missing, None)


def minimum(
    loss_and_gradient: Callable[[Latent], tuple[Float[Array, ""], Latent]],
    metric: Callable[[Latent, Latent], Latent],
    expansion: Expansion,
    least: float,
) -> tuple[Latent, Float[Array, ""]]:
    """The place where a mean of losses is lowest, from the centre of an expansion on, and how low; not to be traced.

    By NIFTy's Newton steps, until one lowers it by less than `least`: with the matrix of the expansion, or, where it
    has none, with conjugate gradients and the products of a `metric`.
    """
    nifty: Any = _nifty()
    slopes = expansion.slopes
    options = {"fun_and_grad": loss_and_gradient, "hessp": metric, "absdelta": least, "maxiter": MOST_STEPS}
    if slopes is not None:

        def solved(_: Any, gradient: Latent, **__: Any) -> Any:
            return nifty.conjugate_gradient.CGResults(slopes.solve(gradient), 1, 1, 0, True)

        options["cg"] = solved
    found = nifty.minimize(None, expansion.centre, method="newton-cg", options=options)
    return found.x, found.fun


def _nifty() -> Any:
    return import_optional("nifty.re", "variational inference")
