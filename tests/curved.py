"""A small problem of least squares with curved valleys, and a prior like that of a fit's latents."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from free_numbers import free_of

N_LATENT, N_DATA = 5, 60
FREE = free_of(*((f"p{number}", {"normal": [0, 1]}) for number in range(N_LATENT)))


def half_square(residuals):
    """Half the sum of the squares of all residuals."""
    return 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(residuals))


class Curved(eqx.Module):
    """Residuals of data that are sines and exponentials of sums of the latents; `bend` 0: they are linear."""

    mixing: jax.Array
    data: jax.Array
    bend: jax.Array

    def model(self, latent):
        line = self.mixing @ latent
        return line + self.bend * (jnp.exp(0.3 * line) + jnp.sin(line))

    def residuals(self, latent):
        return {"data": (self.data - self.model(latent)) * 20, "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))


def curved(seed=0, bend=0.3):
    """Data of latents that are drawn from the prior, with noise of 1 / 20."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((N_DATA, N_LATENT)) / np.sqrt(N_LATENT)
    empty = Curved(jnp.asarray(mixing), jnp.zeros(N_DATA), jnp.asarray(float(bend)))
    data = empty.model(jnp.asarray(0.5 * rng.standard_normal(N_LATENT))) + rng.standard_normal(N_DATA) / 20
    return eqx.tree_at(lambda own: own.data, empty, data)


def starts(count, seed=1):
    """Latents from the prior."""
    return 0.7 * np.random.default_rng(seed).standard_normal((count, N_LATENT))
