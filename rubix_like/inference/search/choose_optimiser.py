"""Which optimiser a fit uses, by its settings and its size."""

import jax
import numpy as np

from rubix_like.config.sections.fit import OptimiserSettings
from rubix_like.inference.posterior.linearise import is_dense
from rubix_like.inference.search.gradient_descent import GradientDescent
from rubix_like.inference.search.least_squares import LeastSquares
from rubix_like.inference.search.optimisers import AbstractOptimiser
from rubix_like.runtime.optional_packages import import_optional

LEAST_SQUARES: str = "levenberg_marquardt"
"""Name of the optimiser that goes by residuals."""


def make_optimiser(
    settings: OptimiserSettings, n_latent: int, n_residual: int, rounding: float = 0.0
) -> AbstractOptimiser:
    """The optimiser of the settings; ConfigError where its packages are missing.

    `rounding`: of a residual, where the model is computed with fewer digits than the latents.
    """
    for package in ("optimistix", "lineax") if settings.name == LEAST_SQUARES else ("optax",):
        import_optional(package, f"fit.optimiser.name: '{settings.name}'")
    dtype = jax.dtypes.canonicalize_dtype(float)
    tolerance, steps = np.asarray(settings.tolerance, dtype), np.asarray(settings.steps, np.int32)
    if settings.name == LEAST_SQUARES:
        dense, off = is_dense(n_latent, n_residual), np.asarray(rounding, dtype)
        return LeastSquares(tolerance, steps, off, dense=dense)
    return GradientDescent(tolerance, steps)
