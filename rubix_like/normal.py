"""Random numbers that each have a number: any of them can be drawn alone, on any device, and is the same."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Integer, PRNGKeyArray, UInt


def numbered_normal(key: PRNGKeyArray, number: Integer[Array, "*any"], dtype: jnp.dtype) -> Float[Array, "*any"]:
    """Independent standard normal numbers, each of which depends on the key and its own number (below 2^32) alone.

    x = sqrt(2) erfinv(u), u uniform in (-1, 1) on the 2^23 (float32) or 2^52 (float64) points (2 k + 1) / 2^n - 1, with
    k from the bits that `jax.random.fold_in` makes of the number. So |x| is below 5.3 or 8.2.
    """
    flat = number.reshape(-1).astype(jnp.uint32)
    bits = jax.vmap(lambda one: jax.random.key_data(jax.random.fold_in(key, one)))(flat)
    uniform = _uniform(bits[:, 0], bits[:, 1], dtype).reshape(number.shape)
    return jnp.asarray(2.0**0.5, dtype) * lax.erf_inv(uniform)


def _uniform(high: UInt[Array, " any"], low: UInt[Array, " any"], dtype: jnp.dtype) -> Float[Array, " any"]:
    """Numbers in (-1, 1), symmetric about 0 and exact in their dtype; the ends and 0 are never met."""
    if dtype == jnp.float32:
        return ((high >> 9).astype(dtype) + 0.5) * 2.0**-22 - 1.0
    return ((high >> 12).astype(dtype) * 2.0**32 + low.astype(dtype) + 0.5) * 2.0**-51 - 1.0
