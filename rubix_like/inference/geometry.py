"""The geometry of a posterior for NIFTy: the metric of its data, and samples drawn by it about a point.

MGVI: Knollmueller & Ensslin 2019, arXiv:1901.11033; geoVI: Frank, Leike & Ensslin 2021, arXiv:2105.10470. NIFTy is
optional, and imported here only.
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
from jaxtyping import Array, Float, UInt32

from rubix_like.errors import ConfigError
from rubix_like.inference.free import Latent
from rubix_like.inference.likelihood import NOISE_SCALE
from rubix_like.inference.optimisers import SquaredLoss
from rubix_like.inference.posterior import Posterior
from rubix_like.inference.roots import find_root

MOST_EVALUATIONS = 40
"""Of the model, for one sample."""

MOST_STEPS = 10
"""Of the mean, within one iteration."""

_PRIOR = "prior"
"""Name of the residuals that are the latents themselves."""

Flat = Float[Array, " residual"]


class Expansion(eqx.Module):
    """A posterior about a centre: residuals of the data there, their derivatives, L with L L^T = J^T J + 1.

    `columns` (J^T) and `factor` (L) are None where they would be too large.
    """

    centre: Latent
    residuals: Flat
    columns: Float[Array, "latent residual"] | None
    factor: Float[Array, "latent latent"] | None


class Drawn(NamedTuple):
    """A sample: its way from the centre, by how many standard deviations it misses what defines it, its loss."""

    way: Latent
    error: Float[Array, ""]
    loss: Float[Array, ""]


def check_nifty(method: str) -> None:
    """Raise ConfigError where NIFTy is not installed."""
    try:
        import nifty.re  # noqa: F401, PLC0415
    except ImportError as error:
        raise ConfigError(
            f"fit.sampling.method: '{method}' needs the package nifty: pip install 'rubix-like[sample]'"
        ) from error


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
    at the residuals' own scale, so that J^T J is Fisher's information: 2 N of ln(s), and none of it with others.
    """
    if isinstance(posterior, Posterior) and NOISE_SCALE in posterior.free.names:
        residuals = _with_scale(posterior, latent)
    else:
        residuals = posterior.residuals(latent)
    leaves = jax.tree_util.tree_leaves_with_path(residuals)
    of_data = [leaf for path, leaf in leaves if not jax.tree_util.keystr(path[-1:], simple=True) == _PRIOR]
    return jnp.concatenate([leaf.reshape(-1) for leaf in of_data])


def _with_scale(posterior: Posterior, latent: Latent) -> Any:
    values, likelihood = posterior.free.values(latent), posterior.likelihood
    held = values | {NOISE_SCALE: lax.stop_gradient(values[NOISE_SCALE])}
    count = jnp.sum(likelihood.inverse_sigma > 0, dtype=latent.dtype)
    scale = jnp.sqrt(2 * count) * jnp.log(values[NOISE_SCALE].reshape(1).astype(latent.dtype))
    return likelihood.residuals(posterior.forward(held), held)._replace(scale=scale)


def likelihood_about(posterior: SquaredLoss, expansion: Expansion) -> Any:
    """NIFTy's likelihood of the data; what is known at the centre of the expansion is not computed again."""
    from nifty.re import Likelihood as NiftyLikelihood  # noqa: PLC0415

    centre, columns = expansion.centre, expansion.columns

    def coordinates(latent: Latent) -> Flat:
        return data_residuals(posterior, latent)

    class DataLikelihood(NiftyLikelihood):
        def energy(self, primals: Latent) -> Float[Array, ""]:
            return 0.5 * jnp.sum(self.transformation(primals) ** 2)

        def transformation(self, primals: Latent) -> Flat:
            return expansion.residuals if primals is centre else coordinates(primals)

        def left_sqrt_metric(self, primals: Latent, tangents: Flat) -> Latent:
            if primals is centre and columns is not None:
                return columns @ tangents
            return jax.vjp(coordinates, primals)[1](tangents)[0]

        def right_sqrt_metric(self, primals: Latent, tangents: Latent) -> Flat:
            if primals is centre and columns is not None:
                return tangents @ columns
            return jax.jvp(coordinates, (primals,), (tangents,))[1]

    return DataLikelihood(lsm_tangents_shape=jax.ShapeDtypeStruct(expansion.residuals.shape, centre.dtype))


def draw(
    posterior: SquaredLoss,
    key: UInt32[Array, "2"],
    sign: Float[Array, ""],
    expansion: Expansion,
    tolerance: Float[Array, ""],
    *,
    curved: bool,
) -> Drawn:
    """A sample by NIFTy about the centre of an expansion; `sign` -1: the mirror image. `curved`: geoVI's, not MGVI's.

    A draw m from the normal distribution whose covariance is the metric M at the centre e becomes e + M^-1 m, or the x
    with x - e + J(e)^T (r(x) - r(e)) = m, r being the residuals of the data.
    """
    from nifty.re import draw_linear_residual, nonlinearly_update_residual  # noqa: PLC0415

    likelihood, centre = likelihood_about(posterior, expansion), expansion.centre
    metric_sample, _ = draw_linear_residual(likelihood, centre, key, from_inverse=False)
    metric_sample = sign * metric_sample
    way, error = _linear_way(likelihood, expansion, metric_sample), jnp.zeros_like(sign)
    if curved:
        minimise = _minimiser(likelihood, expansion, metric_sample, tolerance)
        way, state = nonlinearly_update_residual(likelihood, centre, way, key, sign, minimize=minimise)
        error = state.fun
    return Drawn(way, error, posterior.loss(centre + way))


def metric_product(posterior: SquaredLoss, latent: Latent, tangents: Latent) -> Latent:
    """The metric of the posterior, J^T J + 1 with the residuals of the data, times a vector."""

    def coordinates(latent: Latent) -> Flat:
        return data_residuals(posterior, latent)

    changes = jax.jvp(coordinates, (latent,), (tangents,))[1]
    return jax.vjp(coordinates, latent)[1](changes)[0] + tangents


def minimum(
    loss_and_gradient: Callable[[Latent], tuple[Float[Array, ""], Latent]],
    metric: Callable[[Latent, Latent], Latent],
    expansion: Expansion,
    least: float,
) -> tuple[Latent, Float[Array, ""]]:
    """Where a mean of losses is lowest, from the centre of an expansion on, and how low; not to be traced.

    By NIFTy's Newton steps, until one lowers it by less than `least`: with the matrix of the expansion, or, where it
    has none, with conjugate gradients and the products of a `metric`.
    """
    from nifty.re import conjugate_gradient, optimize  # noqa: PLC0415

    factor = expansion.factor

    def solved(_: Any, gradient: Latent, **options: Any) -> Any:
        return conjugate_gradient.CGResults(cho_solve((factor, True), gradient), 1, 1, 0, True)

    options = {"fun_and_grad": loss_and_gradient, "hessp": metric, "absdelta": least, "maxiter": MOST_STEPS}
    options |= {} if factor is None else {"cg": solved}
    found = optimize.minimize(None, expansion.centre, method="newton-cg", options=options)
    return found.x, found.fun


def _linear_way(likelihood: Any, expansion: Expansion, metric_sample: Latent) -> Latent:
    if expansion.factor is not None:
        return cho_solve((expansion.factor, True), metric_sample)
    from nifty.re import static_cg  # noqa: PLC0415

    def metric(tangents: Latent) -> Latent:
        return likelihood.metric(expansion.centre, tangents) + tangents

    return static_cg(metric, metric_sample)[0]


def _minimiser(
    likelihood: Any, expansion: Expansion, metric_sample: Latent, tolerance: Float[Array, ""]
) -> Callable[..., Any]:
    """How NIFTy is to solve geoVI's equation: where the matrix is there, by evaluations of the model alone; without it
    by its own Newton steps with conjugate gradients."""
    from nifty.re import optimize, static_cg, static_newton_cg  # noqa: PLC0415

    centre, factor = expansion.centre, expansion.factor

    def by_newton(_: None, x0: Latent, **options: Any) -> Any:
        found = static_newton_cg(None, x0, **options)
        value, _ = options["fun_and_grad"](found)
        return optimize.OptimizeResults(found, True, 0, jnp.sqrt(2 * value), None)

    def by_root(_: None, x0: Latent, **options: Any) -> Any:
        def missing(whitened: Latent) -> Latent:
            way = solve_triangular(factor, whitened, trans=1, lower=True)
            change = likelihood.transformation(centre + way) - expansion.residuals
            left = way + likelihood.left_sqrt_metric(centre, change) - metric_sample
            return solve_triangular(factor, left, lower=True)

        begin = -solve_triangular(factor, metric_sample, lower=True)
        root = find_root(missing, begin, tolerance, MOST_EVALUATIONS)
        way = solve_triangular(factor, root.position, trans=1, lower=True)
        return optimize.OptimizeResults(centre + way, True, root.n_evaluation, root.error, None)

    return by_newton if factor is None else by_root
