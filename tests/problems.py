"""Posed fits whose devices compute several models at once, and chains on them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rubix_like import log_posterior
from rubix_like.inference.posterior.problem import with_rows
from rubix_like.inference.samplers.chains import Whitening, run_chains
from rubix_like.inference.samplers.nuts import NutsSampler


def posed(rows, *arguments, **named):
    """The problem of `log_posterior` with these arguments, on a mesh of so many rows."""
    return with_rows(log_posterior(*arguments, **named).problem, rows)


def end_of_chains(posterior, mesh, sampling, centre, covariance, spacing=None):
    """The last state of chains of NUTS that move in the coordinates of a normal approximation, on a lattice there."""
    whitening = Whitening.of(centre, np.linalg.cholesky(covariance))
    if spacing is not None:
        whitening = eqx.tree_at(lambda own: own.spacing, whitening, jnp.asarray(spacing))
    *_, end = run_chains(posterior, mesh, NutsSampler(sampling), whitening)
    return end
