"""Random numbers that belong to a row of a file: the same for a row however many rows are drawn at once, and where."""

import numpy as np
from jaxtyping import Float, UInt64
from numpy import ndarray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
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
