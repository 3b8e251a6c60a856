"""What gas covers of the sky of an active nucleus, and so absorbs of its photons."""

import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.nebular import AgnSettings
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.galaxy.particles import Gas

CORE: float = 0.1
"""Share of the radius within which all gas counts as about equally far: simulations do not resolve it."""


def covered(gas: Gas, radius: Float[Array | ndarray, ""]) -> Float[Array, " particle"]:
    """How much of a nucleus' sky the gas in each particle covers, in a unit of its own.

    Clouds of one column density that absorb all ionising light that falls on them: m / (r^2 + (0.1 R)^2) within the
    radius R (kpc), none beyond, by the mass m (Msun) and the distance r (kpc) from the centre.
    """
    square = jnp.sum(jnp.asarray(gas.position) ** 2, axis=1)
    share = jnp.asarray(gas.mass) / (square + (CORE * radius) ** 2)
    return jnp.where(square > radius**2, jnp.zeros_like(share), share)  # not where it is NaN, which is to be counted


def agn_settings(setup: Setup) -> AgnSettings:
    """The section `nebular.agn`; raises ConfigError where a run has none."""
    nebular = setup.config.nebular
    if nebular is None or nebular.agn is None:
        raise ConfigError(
            "nebular.agn: expected the section for a pipeline that paints an active nucleus, got null; add for example "
            "nebular: {agn: {log_luminosity: 44}}"
        )
    return nebular.agn
