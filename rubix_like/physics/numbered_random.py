"""Random numbers addressed by index: each can be drawn alone, on any device, and is the same."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Integer, PRNGKeyArray, UInt32, UInt64
from numpy import ndarray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_PARITY, _WORD = np.uint32(0x1BD11BDA), np.uint32(32)
_ROTATIONS = tuple(tuple(map(np.uint32, turns)) for turns in ((13, 15, 26, 6), (17, 29, 16, 24)))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def uniform_by_row(row: Float[ndarray, " particle"], seed: int) -> Float[ndarray, "particle 2"]:
    """Two independent numbers of each row, uniform in (0, 1) with 53 bits."""
    count = np.asarray(row, dtype=np.uint64)
    zero = np.zeros_like(count)
    words = philox(np.stack([count & _LOW, count >> _HALF, zero, zero], axis=1), seed)
    high, low = words[:, 0::2] >> np.uint64(5), words[:, 1::2] >> np.uint64(6)
    bits = (high << np.uint64(26)) | low
    return (bits.astype(np.float64) + 0.5) / 2.0**53 if bits.size else np.zeros((0, 2))


def philox(counter: UInt64[ndarray, "particle 4"], key: int) -> UInt64[ndarray, "particle 4"]:
    """Four words of 32 bits for each counter: Philox4x32-10 (Salmon et al. 2011, SC '11, doi 10.1145/2063384.2063405).

    `counter` is made of four words of 32 bits, the lowest first; `key` has 64 bits.
    """
    words = tuple(counter.T)
    keys = (key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF)
    for step in range(_ROUNDS):
        first, second = ((k + step * w) & 0xFFFFFFFF for k, w in zip(keys, _WEYL, strict=True))
        one, two = _MULTIPLIERS[0] * words[0], _MULTIPLIERS[1] * words[2]
        words = (
            (two >> _HALF) ^ words[1] ^ np.uint64(first),
            two & _LOW,
            (one >> _HALF) ^ words[3] ^ np.uint64(second),
            one & _LOW,
        )
    return np.stack(words, axis=1)


def numbered_normal(key: PRNGKeyArray, number: Integer[Array, "*any"], dtype: jnp.dtype) -> Float[Array, "*any"]:
    """Independent standard normal numbers; each depends only on the key and its number (below 2^32).

    x = sqrt(2) erfinv(u), u uniform in (-1, 1) on the 2^23 (float32) or 2^52 (float64) points (2 k + 1) / 2^n - 1, with
    k from the bits that `jax.random.fold_in` makes of the number. So |x| is below 5.3 or 8.2.
    """
    return jnp.asarray(2.0**0.5, dtype) * lax.erf_inv(_uniform(*_folded(key, number), dtype))


def numbered_uniform(key: PRNGKeyArray, number: Integer[Array, "*any"], dtype: jnp.dtype) -> Float[Array, "*any"]:
    """Independent numbers, uniform in (0, 1): (u + 1) / 2 with the u of `numbered_normal`."""
    return 0.5 * _uniform(*_folded(key, number), dtype) + 0.5


def _folded(key: PRNGKeyArray, number: Integer[Array, "*any"]) -> tuple[UInt32[Array, "*any"], UInt32[Array, "*any"]]:
    """The two words that `jax.random.fold_in` makes of a key of Threefry and of each number.

    Threefry-2x32-20 (Salmon et al. 2011, SC '11, doi 10.1145/2063384.2063405), written out: as one loop over the
    numbers it takes an eighth of the time of JAX's, which passes through memory after every four rounds. Of a key
    of another generator two words are drawn.
    """
    words = jax.random.key_data(key)
    first, second = words if words.shape == (2,) else jax.random.bits(key, (2,), jnp.uint32)
    keys = first, second, first ^ second ^ _PARITY
    low = jnp.zeros_like(number, dtype=jnp.uint32) + keys[0]
    high = number.astype(jnp.uint32) + keys[1]
    for step in range(5):
        for bits in _ROTATIONS[step % 2]:
            low = low + high
            high = low ^ ((high << bits) | (high >> (_WORD - bits)))
        low = low + keys[(step + 1) % 3]
        high = high + keys[(step + 2) % 3] + np.uint32(step + 1)
    return low, high


def _uniform(high: UInt32[Array, "*any"], low: UInt32[Array, "*any"], dtype: jnp.dtype) -> Float[Array, "*any"]:
    """Numbers in (-1, 1), symmetric about 0 and exact in their dtype; the ends and 0 are never met."""
    if dtype == jnp.float32:
        return ((high >> 9).astype(dtype) + 0.5) * 2.0**-22 - 1.0
    return ((high >> 12).astype(dtype) * 2.0**32 + low.astype(dtype) + 0.5) * 2.0**-51 - 1.0
