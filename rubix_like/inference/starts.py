"""Where a fit begins, as the user gives it."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.free import OF_GALAXY, Free, Latent, read_values
from rubix_like.inference.naming import leaf_of


def read_start(start: Mapping[str, Any] | None, free: Free, trees: Mapping[str, Any]) -> Latent | None:
    """The latents of the values of `fit.start`; parameters that it leaves out are at the medians of their priors.

    A value is a number, or an array of the parameter's shape; `galaxy` stands for those that the galaxy has. Raises
    ConfigError for unknown names and for values of another shape or outside their prior.
    """
    if start is None:
        return None
    for name in start:
        if name not in free.names:
            raise ConfigError(f"fit.start: '{name}' is no free parameter{suggest(name, free.names)}")
    medians = free.values(jnp.zeros(free.n_latent))
    values = {}
    for parameter in free.parameters:
        name = parameter.name
        given = start.get(name, medians[name])
        if isinstance(given, str) and given.strip() == OF_GALAXY:
            given = leaf_of(name, trees)
        value = np.asarray(read_values(f"fit.start.{name}", given, parameter.unit))
        try:
            values[name] = np.broadcast_to(value, parameter.shape)
        except ValueError as error:
            raise ConfigError(
                f"fit.start.{name}: expected a number or an array of shape {parameter.shape}, got one of {value.shape}"
            ) from error
    try:
        return free.latent(values)
    except ValueError as error:
        raise ConfigError(f"fit.start.{error}") from error
