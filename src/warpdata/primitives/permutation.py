"""Random keys and permutations that are pure functions of a seed, equal on every machine and in every release.

Implements "Keys" of docs/specs/streaming.md and "Samples" of docs/specs/tables.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["mix64", "permute", "random_keys"]

_GOLDEN = 0x9E3779B97F4A7C15
_PERMUTATION = 5
_ROUNDS = 4


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix bits with the finalizer of SplitMix64. It never changes, because recorded orders depend on it."""
    import numpy as np

    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def random_keys(
    values: NDArray[np.int64], seed: int, epoch: int | NDArray[np.int64], purpose: int
) -> NDArray[np.uint64]:
    """Return a sort key for each value. Equal keys keep the smaller value first. `epoch` may differ for each value."""
    import numpy as np

    with np.errstate(over="ignore"):
        salt = np.array([seed % 2**64], np.uint64)
        for word in (epoch, purpose):
            step = np.uint64((word + 1) % 2**64) if isinstance(word, int) else word.astype(np.uint64) + np.uint64(1)
            salt = mix64(salt + np.uint64(_GOLDEN) * step)
        return mix64(mix64(values.astype(np.uint64) * np.uint64(_GOLDEN) + salt) ^ salt)


def permute(
    positions: NDArray[np.int64], count: int | NDArray[np.int64], seed: int, stream: int | NDArray[np.int64] = 0
) -> NDArray[np.int64]:
    """Return the numbers at these positions of a random permutation of 0 … count - 1.

    A Feistel network over the next even power of two, with four rounds of keys. A number beyond the count goes through
    it again, so each position costs about the same, whatever the count. `stream` selects one of several independent
    permutations of a seed. Count and stream may differ for each position.
    """
    import numpy as np

    numbers = positions.astype(np.int64)
    counts, streams = np.broadcast_to(count, numbers.shape), np.broadcast_to(stream, numbers.shape)
    half_bits = np.maximum(-(-_bit_length(np.maximum(counts - 1, 1)) // 2), 1)
    todo = np.arange(len(numbers))
    while len(todo):
        numbers[todo] = _feistel(numbers[todo], half_bits[todo], seed, streams[todo])
        todo = todo[numbers[todo] >= counts[todo]]
    return numbers


def _bit_length(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of bits of positive numbers below 2^53."""
    import numpy as np

    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _feistel(
    numbers: NDArray[np.int64], half_bits: NDArray[np.int64], seed: int, streams: NDArray[np.int64]
) -> NDArray[np.int64]:
    import numpy as np

    mask = (np.int64(1) << half_bits) - 1
    left, right = numbers >> half_bits, numbers & mask
    for number in range(_ROUNDS):
        keys = random_keys(right, seed, _ROUNDS * streams + number, _PERMUTATION) & mask.astype(np.uint64)
        left, right = right, left ^ keys.astype(np.int64)
    return (left << half_bits) | right
