"""The posterior of a fit as a function of a vector, for samplers and optimisers of the user's choice.

It is what `fit` maximises and `sample` draws from, made in the same way.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.loading import ConfigSource
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube
from rubix_like.cube.observed.flux_units import plain_flux
from rubix_like.errors import ConfigError, came, expect_count, suggest
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation
from rubix_like.inference.posing import pose
from rubix_like.inference.posterior.fit_model import ComponentsSource, Free, Latent, SyntheticSource, read_values
from rubix_like.inference.posterior.posterior import Likelihood, Posterior, half_square
from rubix_like.inference.posterior.priors import Priors
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.request import Data, one_galaxy, read_request
from rubix_like.physics.units import plain_numbers
from rubix_like.runtime.notes import Note, as_notes
from rubix_like.runtime.progress import Progress
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import listed, shortened

_ARRAYS = "give cube.flux, and as sigma the square root of cube.variance (rl.read_observed reads a file)"

_HALF_LOG_TURN = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True, eq=False)
class LogPosterior:
    """ln(posterior density) of an unconstrained vector x; a pure function, for `jax.grad`, `jax.jit` and `jax.vmap`.

    ln P(x) = ln L(data | v(x)) + ln N(x; 0, 1): each value v is a smooth function of x, the quantile function of its
    prior at Phi(x), so that ln N(x; 0, 1) = ln p(v) + ln |dv / dx| (rubix_like.inference.posterior.priors). There are
    no bounds, and one unit of x is one standard deviation of a prior.

    | attribute | |
    |---|---|
    | `names`, `labels` | dotted names of the parameters; a name for each element of x |
    | `units` | by name: the unit of the values (empty: a number) |
    | `size` | length of x |
    | `notes` | sentences on the data and the model |

    Of numpy's arrays the methods return numpy's numbers, and -inf in place of what is no number.
    """

    problem: Problem

    def __call__(self, x: Latent) -> Any:
        """ln(posterior density) of x, normalised by the priors and the likelihood, not by the evidence."""
        return self._shown(_log_posterior(self._posterior, self._read(x)), x)

    def log_likelihood(self, x: Latent) -> Any:
        """ln of the density of the fitted voxels, in (1e-20 erg/s/cm2/Angstrom)^-1 each; with a polynomial that with
        the coefficients that fit best, and their prior's exponent."""
        return self._shown(_log_likelihood(self._posterior, self._read(x)), x)

    def log_prior(self, x: Latent) -> Any:
        """ln N(x; 0, 1), the prior's density of x."""
        return self._shown(_log_prior(self._read(x)), x)

    def value_and_gradient(self, x: Latent) -> tuple[Any, Any]:
        """ln(posterior density) and its gradient, by one compiled program."""
        value, gradient = _value_and_gradient(self._posterior, self._read(x))
        return self._shown(value, x), gradient if isinstance(x, jax.Array) else np.asarray(gradient)

    def residuals(self, x: Latent) -> Float[Array | ndarray, " residual"]:
        """A vector r with ln P = constant - |r|^2 / 2, for least squares: those of the voxels, then the prior's."""
        found = _residuals(self._posterior, self._read(x))
        return found if isinstance(x, jax.Array) else np.asarray(found)

    def flux(self, x: Latent) -> Any:
        """The model's cube (y, x, wave) in 1e-20 erg/s/cm2/Angstrom, without the continuum's polynomial; of several
        sets of data that of each, by name."""
        found = _flux(self._posterior, self._read(x))
        found = found if isinstance(x, jax.Array) else np.asarray(found)
        sets = {data_set.name: data_set.unpacked(found) for data_set in self.problem.sets}
        return sets or found

    def to_physical(self, x: Float[Array | ndarray, "*n size"]) -> dict[str, Any]:
        """The values of x by name, in `units`; x may have more axes in front. Raises ValueError for other lengths."""
        x = x if isinstance(x, jax.Array) else self._numbers(x, np.asarray)
        if x.shape[-1:] != (self.size,):
            raise ValueError(f"to_physical: expected {self._wanted} along the last axis, got shape {x.shape}")
        return self._posterior.named_values(x)

    @named_arguments
    def to_unconstrained(self, values: Mapping[str, Any]) -> Any:
        """The vector x of values by name, in `units` or as quantities ("30 deg"); parameters that are left out are at
        the medians of their priors.

        Raises ConfigError for unknown names and quantities, ValueError for values outside their prior (of traced ones x
        is not finite there).
        """
        free = self._free
        for name in values:
            if name not in free.names:
                raise ConfigError(f"to_unconstrained: '{name}' is no free parameter{suggest(name, free.names)}")
        given = {
            name: value if _is_traced(value) else read_values(f"to_unconstrained: {name}", value, self.units[name])
            for name, value in values.items()
        }
        found = {**self._posterior.named_values(np.zeros(self.size)), **given}
        return free.traced_latent(found) if any(map(_is_traced, found.values())) else free.latent(found)

    @named_arguments
    def with_data(self, flux: Any, sigma: Any = None) -> "LogPosterior":
        """The posterior given other data on the same grid: its methods are not compiled again.

        `flux` (y, x, wave), and `sigma`, its standard deviations (an array or one number; None: those of the first
        data), in 1e-20 erg/s/cm2/Angstrom or as quantities. Both may be traced, so that `jax.jit` and `jax.vmap` go
        over data. Voxels that the first data leave out stay so, and so are those that are masked, without a number or
        without a positive sigma.

        Raises ValueError for other shapes, and if no voxel is left (not checked while traced), ConfigError for data
        that cannot be replaced: several sets of data, correlated errors, free-form populations.
        """
        likelihood = self._posterior.likelihood
        for name, value in (("flux", flux), ("sigma", 0.0 if sigma is None else sigma)):
            if value is None or isinstance(value, str | Path | Cube | ObservedCube):
                raise ConfigError(f"with_data: {name}: expected an array (y, x, wave), got {came(value)}; {_ARRAYS}")
        self._check_only_data(likelihood, np.shape(flux), np.shape(likelihood.flux if sigma is None else sigma))
        dtype, observed = likelihood.flux.dtype, self.problem.observed
        flux, no_flux = plain_flux(flux, observed.bins, observed.pixel_scale, "with_data: flux")
        data, weight = jnp.asarray(flux, dtype), likelihood.inverse_sigma
        used = (weight > 0) & jnp.isfinite(data) & ~np.asarray(no_flux)
        if sigma is not None:
            sigma, no_sigma = plain_flux(sigma, observed.bins, observed.pixel_scale, "with_data: sigma")
            used = used & ~np.asarray(no_sigma)
            error = jnp.broadcast_to(jnp.asarray(sigma, dtype), data.shape)
            used = used & (error > 0) & jnp.isfinite(error)
            weight = 1 / jnp.where(used, error, 1)
        if not isinstance(used, Tracer) and not used.any():
            raise ValueError(
                "with_data: expected a voxel with a finite flux and sigma > 0 that the first data use, got none; check "
                "flux and sigma for NaN, and the mask of the first data"
            )
        leaves = (jnp.where(used, data, 0), jnp.where(used, weight, 0))
        likelihood = eqx.tree_at(lambda old: (old.flux, old.inverse_sigma), likelihood, leaves)
        return LogPosterior(replace(self.problem, posterior=replace(self._posterior, likelihood=likelihood)))

    def _check_only_data(self, likelihood: Likelihood, flux: tuple[int, ...], sigma: tuple[int, ...]) -> None:
        """Raise an error unless arrays of these shapes can take the place of the data."""
        mixtures = getattr(self._posterior.forward, "mixtures", None)
        correlated = isinstance(likelihood.errors, AbstractCorrelation)
        wrong = ["several sets of data"] if self.problem.sets else []
        wrong += ["fit.likelihood.covariance"] if correlated else []
        wrong += [] if mixtures is None else ["free-form populations"]
        if wrong:
            null = ", or set fit.likelihood.covariance: null, which takes spaxels as independent"
            remedy = null if correlated else ""
            raise ConfigError(
                f"with_data: expected one cube with independent errors and populations with parameters, got "
                f"{' and '.join(wrong)}, which hold more of the first data than flux and sigma; make a log_posterior "
                f"for each{remedy}"
            )
        shape = likelihood.flux.shape
        for name, given, known in (("flux", flux, [shape]), ("sigma", sigma, [(), shape])):
            if given not in known:
                number = " or one number" if () in known else ""
                raise ValueError(
                    f"with_data: {name}: expected the shape {shape} (y, x, wave) of the first data{number}, got "
                    f"{given}; make a log_posterior for another grid"
                )

    @named_arguments
    def draw(self, count: int, seed: int = 0) -> Float[ndarray, "count size"]:
        """Vectors drawn from the prior, e.g. to start chains or walkers at. Raises ValueError for less than one."""
        expect_count(count, "count")
        expect_count(seed, "seed", least=0)
        return self._free.draw(seed, count)

    @property
    def names(self) -> tuple[str, ...]:
        """Dotted names of the free parameters."""
        return self._free.names

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each element of x: that of its parameter, with an index where it has several."""
        return self._free.labels

    @property
    def units(self) -> dict[str, str]:
        """Unit of each parameter, by name; empty for a number."""
        return {parameter.name: parameter.unit for parameter in self._free.parameters}

    @property
    def size(self) -> int:
        """Length of x."""
        return self._free.n_latent

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the data and the model."""
        return as_notes((*self.problem.notes, *self.problem.pipeline.notes))

    def __repr__(self) -> str:
        return f"LogPosterior({', '.join(self.labels)})"

    @property
    def _posterior(self) -> Posterior:
        return self.problem.posterior

    @property
    def _free(self) -> Free:
        return self._posterior.free

    def _read(self, x: Any) -> Array:
        """A vector of the right length; raises ValueError for any other."""
        x = self._numbers(x, jnp.asarray)
        if x.shape != (self.size,):
            raise ValueError(
                f"log_posterior: expected a vector of {self._wanted}, got shape {x.shape}; map over more with jax.vmap"
            )
        return x

    def _numbers(self, x: Any, as_array: Callable[..., Any]) -> Any:
        """An array of floats; raises ValueError for what is none, such as values by name, units and masks."""
        try:
            plain = jax.tree.map(lambda leaf: plain_numbers(leaf, "", "x"), x)
            return as_array(plain, jax.dtypes.canonicalize_dtype(float))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"log_posterior: expected a vector of {self._wanted}, got {shortened(repr(x))}; to_unconstrained makes "
                f"one of values by name"
            ) from error

    @property
    def _wanted(self) -> str:
        return f"{self.size} numbers ({listed(self.labels)})"

    @staticmethod
    def _shown(value: Array, x: Any) -> Any:
        """A number of the host for arrays of the host."""
        if isinstance(x, jax.Array):
            return value
        return -np.inf if np.isnan(value) else float(value)


@named_arguments
@exits_as_errors()
def log_posterior(
    config_or_pipeline: ConfigSource | Pipeline,
    data: Data | None = None,
    free: Priors | None = None,
    *,
    galaxy: Galaxy | SyntheticSource | ComponentsSource | None = None,
    model: AbstractGalaxyModel | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> LogPosterior:
    """The posterior of free parameters given an observed cube, as a function of an unconstrained vector.

    As `fit`, whose arguments it takes; nothing is searched or drawn. Switch 64-bit numbers on in JAX. Raises
    ConfigError, ValueError or OSError for settings or data that cannot be used.
    """
    galaxy = one_galaxy(galaxy, model)
    request = read_request(config_or_pipeline, data, free, None, settings, galaxy)
    if request.settings.model_error is not None:
        raise ConfigError(
            "fit.model_error: expected null for log_posterior (it is measured about a best fit), got a section; leave "
            "it out, or take rubix_like.sample"
        )
    return LogPosterior(pose(request, galaxy, progress or Progress()))


@jax.jit
def _log_posterior(posterior: Posterior, x: Latent) -> Float[Array, ""]:
    return _log_likelihood(posterior, x) + _log_prior(x)


@jax.jit
def _log_likelihood(posterior: Posterior, x: Latent) -> Float[Array, ""]:
    scale = posterior.noise_scale(x)
    residuals = posterior.residuals(x)._replace(prior=None)
    return posterior.likelihood.log_normalisation(scale) - half_square(residuals)


@jax.jit
def _log_prior(x: Latent) -> Float[Array, ""]:
    return -0.5 * jnp.sum(x * x) - x.size * _HALF_LOG_TURN


@jax.jit
def _value_and_gradient(posterior: Posterior, x: Latent) -> tuple[Float[Array, ""], Latent]:
    return jax.value_and_grad(_log_posterior, argnums=1)(posterior, x)


@jax.jit
def _residuals(posterior: Posterior, x: Latent) -> Float[Array, " residual"]:
    return ravel_pytree(posterior.residuals(x))[0]


@jax.jit
def _flux(posterior: Posterior, x: Latent) -> Float[Array, "y x wave"]:
    return posterior.model(x)


def _is_traced(value: Any) -> bool:
    return isinstance(value, Tracer)
