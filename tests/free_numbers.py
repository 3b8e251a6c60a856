"""Free parameters with priors in the words of a configuration, normal approximations of them, and ended searches."""

import numpy as np

from rubix_like.inference.checks.uncertainties import Laplace
from rubix_like.inference.posterior.fit_model import Free, FreeParameter, read_prior
from rubix_like.inference.search.optimisers import Status
from rubix_like.inference.search.search_state import SearchState


def parameter(name, prior, shape=(), unit=""):
    """A free parameter; `prior` as in `fit.free`."""
    return FreeParameter(read_prior(name, prior, unit), name, shape, unit)


def free_of(*parameters):
    """Free parameters, each given by its name, prior, shape and unit."""
    return Free(tuple(parameter(*given) for given in parameters))


def normal_about(free, latent, covariance):
    """The normal approximation with this mean and covariance of the latents."""
    latent, covariance = np.asarray(latent, np.float64), np.asarray(covariance, np.float64)
    return Laplace(free, latent, np.linalg.inv(covariance) - np.eye(len(latent)), covariance)


def statuses(*names):
    """The members of `Status` with these names ("CONVERGED", "STEPS_USED_UP" ...): why a start ended."""
    return [Status[name] for name in names]


def search_of(loss, status, latent, **others):
    """A search with these losses, statuses and latents of its starts, without steps but for the `others`."""
    n_start, latent = len(loss), np.asarray(latent, np.float64)
    arrays = {
        "start": np.zeros_like(latent),
        "gradient_norm": np.zeros(n_start),
        "n_step": np.zeros(n_start, np.int32),
        "trace_loss": np.zeros((n_start, 1)),
        "trace_gradient_norm": np.zeros((n_start, 1)),
        "trace_latent": np.zeros((n_start, 1, 0)),
        "slots": np.zeros(0, np.int32),
        "state": (),
    }
    ends = {"loss": np.asarray(loss, np.float64), "latent": latent, "status": np.asarray(status, np.int32)}
    return SearchState(**{**arrays, **ends, **others})
