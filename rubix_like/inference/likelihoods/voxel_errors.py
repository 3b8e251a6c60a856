"""Likelihoods beside that of independent normal errors: other distributions, correlated errors, user residuals.

Each says what becomes of the residuals r = (data - model) / sigma, so that half the sum of squares stays
-ln L + constant, and least squares, gradients and samplers go on as before.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import gammaln
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.errors import ConfigError

Voxels = Float[Array, "y x wave"]

OFFSET: float = 5.0
"""Added to the normalisation of a voxel, so that its square root is real."""

_SMALL = 1e-4
"""Residual below which the cost of a voxel is that of its curvature at 0."""

_NODES, _FURTHEST = 4001, 12.0
"""Nodes r = sinh(t) of integrals over a distribution, t up to the second: r up to 8e4."""

_HALF_LOG_TURN = 0.5 * np.log(2 * np.pi)


class AbstractErrors(eqx.Module):
    """The map from the residuals of voxels to those that are squared and added."""

    @abstractmethod
    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """Residuals with half their squared sum -ln L + constant; 0 where `inverse_sigma` is.

        `residual` = (data - model) inverse_sigma; `inverse_sigma` is that of the data, divided by the noise scale.
        """

    def excess(self) -> Any:
        """-ln of the density of one voxel at a residual of 0, less that of a normal distribution."""
        return 0.0

    def log_constant(self) -> Any:
        """The constant that is added to ln L beside the excess of the voxels."""
        return 0.0


class AbstractErrorDistribution(AbstractErrors):
    """A distribution of single residuals, symmetric about 0 and highest there; its fields are its parameters.

    Derived classes have a `kind`, by which `fit.likelihood` names them, and `log_density`:

    ```python
    class Logistic(AbstractErrorDistribution):
        kind: ClassVar = "logistic"
        width: Any = 0.55  # free as `likelihood.width`

        def log_density(self, residual):
            half = residual / (2 * self.width)
            return -2 * jnp.logaddexp(half, -half) - jnp.log(self.width)
    ```
    """

    kind: ClassVar[str] = ""

    @abstractmethod
    def log_density(self, residual: Any) -> Any:
        """ln of the normalised density of residuals in units of sigma, element by element; with jax.numpy."""

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """sign(r) sqrt(2 ln(p(0) / p(r)))."""
        del data, model, inverse_sigma
        zero = jnp.zeros((), residual.dtype)
        curvature = -jax.grad(jax.grad(lambda at: jnp.sum(self.log_density(at))))(zero)
        small = jnp.abs(residual) < _SMALL
        safe = jnp.where(small, 1.0, residual)
        cost = 2 * (self.log_density(zero) - self.log_density(safe))
        root = jnp.sign(safe) * jnp.sqrt(jnp.maximum(cost, jnp.finfo(residual.dtype).tiny))
        return jnp.where(small, residual * jnp.sqrt(curvature), root)

    def excess(self) -> Any:
        """ln(phi(0) / p(0))."""
        return -self.log_density(jnp.zeros(())) - _HALF_LOG_TURN

    def fault(self) -> str | None:
        """The fault of a concrete distribution: an integral that is not 1, or a peak that is not at 0; else None."""
        nodes, weight = _quadrature()
        call = f"likelihood '{self.kind}': `log_density`"
        density = returned(self.log_density(jnp.asarray(nodes)), (jax.Array, np.ndarray), call, "an array")
        check_returned_shapes(call, {"ln(density)": (density, nodes.shape)})
        total = float(np.sum(np.exp(np.asarray(density)) * weight))
        top = float(np.max(density)) - float(np.asarray(density)[len(nodes) // 2])
        if abs(total - 1) < 1e-2 and top < 1e-6:
            return None
        if top >= 1e-6:
            return f"expected a density that is highest at a residual of 0, got another for '{self.kind}'"
        return f"expected a density whose integral is 1, got {total:.4g} for '{self.kind}'"


class StudentT(AbstractErrorDistribution):
    """Student's t: heavy tails, so that outliers pull less."""

    kind: ClassVar[str] = "student_t"
    degrees_of_freedom: Any = eqx.field(converter=jnp.asarray)

    def log_density(self, residual: Any) -> Any:
        """ln p(r) = ln Gamma((nu + 1) / 2) - ln Gamma(nu / 2) - ln(nu pi) / 2 - (nu + 1) / 2 ln(1 + r^2 / nu)."""
        nu = self.degrees_of_freedom
        constant = gammaln(0.5 * (nu + 1)) - gammaln(0.5 * nu) - 0.5 * jnp.log(nu * jnp.pi)
        return constant - 0.5 * (nu + 1) * jnp.log1p(residual * residual / nu)


class AbstractCorrelation(AbstractErrors):
    """Normal errors with correlations R, whose residuals are whitened: those of voxels that are left out are 0."""

    log_determinant: eqx.AbstractVar[Float[Array, ""]]

    def log_constant(self) -> Any:
        """-ln det(R) / 2."""
        return -0.5 * self.log_determinant


class Weighted(AbstractErrors):
    """Residuals times a root of their information: normal ones that say as much of a model as those of a distribution
    do (Fisher's information of its location)."""

    root: Float[Array, ""]

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """root r."""
        del data, model, inverse_sigma
        return residual * self.root


class AbstractResiduals(AbstractErrors):
    """Residuals of one's own: a class that writes `residuals`, with a `kind` by which `fit.likelihood` names it.

    The tests of the verdict hold if they are independent and standard normal where the model is true; their number, and
    so the tests, are those of the fitted voxels. ln L is known up to a constant.
    """

    kind: ClassVar[str] = ""


def check_residuals(errors: AbstractErrors | None, flux: Voxels, inverse_sigma: Voxels) -> None:
    """Raise ConfigError, which names them, for residuals of one's own that are not finite of a model near these data:
    halfway between their mean and themselves, and above 0."""
    if not isinstance(errors, AbstractResiduals):
        return
    call = f"likelihood {type(errors).__name__}: `residuals`"
    size = jnp.abs(flux)
    model = 0.5 * (size + jnp.sum(size) / jnp.maximum(jnp.sum(inverse_sigma > 0), 1).astype(size.dtype))
    with plug_in_named(call, errors):
        found = errors.residuals((flux - model) * inverse_sigma, flux, model, inverse_sigma)
    check_returned_shapes(call, {"residuals": (returned(found, jax.Array, call, "an array"), flux.shape)})
    bad = ~np.isfinite(np.asarray(found))
    if bad.any():
        first = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise ConfigError(
            f"{call} must return finite numbers, got {np.asarray(found)[first]} in {np.count_nonzero(bad)} of "
            f"{bad.size} voxels, first for data {flux[first]:.3g}, model {model[first]:.3g} and inverse_sigma "
            f"{inverse_sigma[first]:.3g}; keep logarithms, roots and divisions within their range by jnp.where, also "
            f"where inverse_sigma is 0"
        )


def information_of_location(errors: AbstractErrorDistribution) -> Float[Array, ""]:
    """Fisher's information on the location of one residual: the integral of (d ln p / dr)^2 p."""
    nodes, weight = quadrature_nodes()
    slope = jax.vmap(jax.grad(lambda residual: jnp.sum(errors.log_density(residual))))(nodes)
    return jnp.sum(slope**2 * jnp.exp(errors.log_density(nodes)) * weight)


def normal_scores(errors: AbstractErrorDistribution, residual: ndarray) -> ndarray:
    """Phi^-1(F(r)) of residuals, F the distribution's: standard normal where the model is true; host arrays."""
    nodes, weight = _quadrature()
    share = np.exp(np.asarray(errors.log_density(jnp.asarray(nodes)))) * weight
    below = np.cumsum(share) - 0.5 * share
    above = np.cumsum(share[::-1])[::-1] - 0.5 * share
    below, above = (np.clip(tail, np.finfo(float).tiny, None) for tail in (below, above))
    scores = np.where(below < above, scipy.special.ndtri(below), -scipy.special.ndtri(above))
    return np.interp(np.arcsinh(residual), np.arcsinh(nodes), scores)


def _quadrature() -> tuple[ndarray, ndarray]:
    at = np.linspace(-_FURTHEST, _FURTHEST, _NODES)
    return np.sinh(at), np.cosh(at) * (at[1] - at[0])


def quadrature_nodes() -> tuple[Float[Array, " node"], Float[Array, " node"]]:
    """Nodes and weights of integrals over all residuals, on the device."""
    nodes, weight = _quadrature()
    return jnp.asarray(nodes), jnp.asarray(weight)
