"""Random samples: the ranks of a uniform or stratified sample. Pure functions of the rows and a seed.

Implements "Samples" of docs/specs/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError, SchemaMismatchError
from warpdata.primitives.arrow_buffers import as_numpy
from warpdata.primitives.bitmaps import numbers_of
from warpdata.primitives.permutation import permute
from warpdata.query import value_key
from warpdata.repository.rows import RowSelection

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["check_sample", "encode_strata", "sample_bitmaps", "sample_strata", "sample_uniform"]


def check_sample(count: int, seed: int) -> None:
    """Raise `BadInputError` unless the size and the seed of a sample are integers, and the size is not negative."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise BadInputError(f"count={count!r} of a sample is not a non-negative integer")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise BadInputError(f"seed={seed!r} of a sample is not an integer")


def sample_uniform(count: int, population: int, seed: int) -> NDArray[np.int64]:
    """Return `count` different ranks below `population`, ascending; all of them if there are no more."""
    import numpy as np

    if count >= population:
        return np.arange(population, dtype=np.int64)
    return np.sort(permute(np.arange(count, dtype=np.int64), population, seed))


def sample_strata(strata: NDArray[np.int32], count: int, seed: int) -> NDArray[np.int64]:
    """Return the ranks of a stratified sample, ascending. `strata` has the stratum of each rank."""
    import numpy as np

    if count >= len(strata):
        return np.arange(len(strata), dtype=np.int64)
    sizes = np.bincount(strata)
    by_stratum = np.argsort(strata.astype(np.min_scalar_type(len(sizes))), kind="stable")
    shares = np.array(_shares(sizes.tolist(), count), np.int64)
    taken = _choose(sizes, shares, count, seed)
    return np.sort(by_stratum[np.repeat(np.cumsum(sizes) - sizes, shares) + taken])


def sample_bitmaps(strata: Sequence[BitMap], kept: RowSelection, count: int, seed: int) -> RowSelection:
    """Return the rows of a stratified sample of the rows in `kept`, given the rows of each stratum.

    The sample is that of `sample_strata`. Only the rows of the sample are taken out of the bitmaps.
    """
    import numpy as np

    if count >= len(kept):
        return kept
    among = kept.bitmap
    found = [part for part in (rows & among for rows in strata) if part]
    found.sort(key=lambda part: part.min())
    sizes = np.array([len(part) for part in found], np.int64)
    shares = np.array(_shares(sizes.tolist(), count), np.int64)
    taken = np.split(_choose(sizes, shares, count, seed), np.cumsum(shares)[:-1])
    rows = [numbers_of(part)[ranks] for part, ranks in zip(found, taken, strict=True) if len(ranks)]
    return RowSelection.of_numbers(np.sort(np.concatenate([np.empty(0, np.int64), *rows])))


def _choose(sizes: NDArray[np.int64], shares: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    """Return the ranks of a sample within each stratum, one stratum after the other."""
    import numpy as np

    stratum = np.repeat(np.arange(len(sizes)), shares)
    within = np.arange(count) - np.repeat(np.cumsum(shares) - shares, shares)
    return permute(within, sizes[stratum], seed, stratum + 1)


def encode_strata(chunks: Iterable[pa.Array], column: str) -> NDArray[np.int32]:
    """Return the stratum of each value. Strata are numbered in the order of their first values; null is a value."""
    import numpy as np
    import pyarrow as pa

    known: dict[object, int] = {}
    parts = [np.empty(0, np.int32)]
    for chunk in chunks:
        try:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"column {column!r} is {chunk.type}, which has no strata", hint="Use a column of numbers or texts."
            ) from error
        values = [value_key(value) for value in (*coded.dictionary.to_pylist(), None)]  # a null has the last code
        numbers = np.array([known.setdefault(value, len(known)) for value in values], np.int32)
        indices = coded.indices.cast(pa.int64()).fill_null(len(values) - 1)
        parts.append(numbers[as_numpy(indices)])
    return _by_first_value(np.concatenate(parts), len(known))


def _by_first_value(codes: NDArray[np.int32], code_count: int) -> NDArray[np.int32]:
    """Number codes in the order of their first occurrence. Dictionaries have values that no row has."""
    import numpy as np

    first = np.full(code_count, len(codes))
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # the last assignment counts
    numbers = np.empty(code_count, np.int32)
    numbers[np.argsort(first, kind="stable")] = np.arange(code_count, dtype=np.int32)
    return numbers[codes]


def _shares(sizes: list[int], count: int) -> list[int]:
    """Divide `count` in proportion to the sizes: rounded down, then one more for the largest remainders.

    Of equal remainders, the earlier stratum comes first.
    """
    total = sum(sizes)
    shares = [count * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda at: (-(count * sizes[at] % total), at))
    for at in by_remainder[: count - sum(shares)]:
        shares[at] += 1
    return shares
