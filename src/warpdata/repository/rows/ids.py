"""Sequences of sample ids, as runs of consecutive ids. Implements "Sample ids" of docs/specs/manifest.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError
from warpdata.limits import INLINE_RUNS
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import Ids

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["IdSequence", "decode_ids", "encode_ids"]

_MAGIC = b"WIDS\0\0\0\1"
_RUN_BYTES = 16
_MAX_VARINT = 8
_MAX_ID = 2**53


@dataclass(frozen=True, eq=False)
class IdSequence:
    """The ids of some rows, in the order of the rows. Runs are as long as possible, so each sequence has one form."""

    firsts: NDArray[np.int64]
    counts: NDArray[np.int64]

    @staticmethod
    def consecutive(first: int, count: int) -> IdSequence:
        """Return `count` ids that begin at `first`."""
        return IdSequence.of_runs([(first, count)] if count else [])

    @staticmethod
    def of_runs(runs: Iterable[tuple[int, int]]) -> IdSequence:
        import numpy as np

        pairs = np.array(list(runs), dtype=np.int64).reshape(-1, 2)
        return IdSequence(pairs[:, 0], pairs[:, 1])

    @staticmethod
    def of_ids(ids: NDArray[np.int64]) -> IdSequence:
        """Find the runs in a list of ids."""
        import numpy as np

        if not len(ids):
            return IdSequence.of_runs([])
        starts = np.concatenate([[0], np.flatnonzero(np.diff(ids) != 1) + 1])
        return IdSequence(ids[starts], np.diff(starts, append=len(ids)))

    def __len__(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """All ids, one for each row."""
        import numpy as np

        if len(self.firsts) == 1:
            return np.arange(self.firsts[0], self.firsts[0] + self.counts[0], dtype=np.int64)
        offsets = np.repeat(self.firsts - (np.cumsum(self.counts) - self.counts), self.counts)
        return offsets + np.arange(len(self), dtype=np.int64)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of the rows at these positions."""
        return positions + self.firsts[0] if len(self.firsts) == 1 else self.ids[positions]

    def find(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of rows with one of these ascending ids, and the index of each id in `wanted`."""
        import numpy as np

        if (run := self.only_run) is not None:
            low, high = np.searchsorted(wanted, (run[0], run[0] + run[1]))
            return wanted[low:high] - run[0], np.arange(low, high)
        positions = np.flatnonzero(np.isin(self.ids, wanted))
        return positions, np.searchsorted(wanted, self.ids[positions])

    @property
    def only_run(self) -> tuple[int, int] | None:
        """The first id and the count, if the ids are consecutive."""
        return (int(self.firsts[0]), int(self.counts[0])) if len(self.firsts) == 1 else None


def encode_ids(sequence: IdSequence, first_stored_row: int) -> tuple[Ids | None, bytes | None]:
    """Return `ids` of a shard, and the blob that it names, if any.

    `first_stored_row` is the number of stored rows before the shard. None: the ids follow from the position.
    """
    run = sequence.only_run
    if not len(sequence) or run == (first_stored_row, len(sequence)):
        return None, None
    if run is not None:
        return Ids(first=run[0]), None
    if len(sequence.firsts) <= INLINE_RUNS:
        runs = zip(sequence.firsts.tolist(), sequence.counts.tolist(), strict=True)
        return Ids(runs=tuple((first, count) for first, count in runs)), None
    data = _to_bytes(sequence)
    return Ids(hash=sha256_hex(data), byte_size=len(data)), data


def decode_ids(ids: Ids | None, stored_count: int, first_stored_row: int, data: bytes | None) -> IdSequence:
    """Return the ids of the stored rows of a shard. `data` is the blob that `ids` names, if it names one.

    Raise `CorruptError` if the blob does not list an id for each stored row.
    """
    if ids is None:
        return IdSequence.consecutive(first_stored_row, stored_count)
    if ids.first is not None:
        return IdSequence.consecutive(ids.first, stored_count)
    if ids.runs is not None:
        return IdSequence.of_runs(ids.runs)
    assert data is not None, "the caller fetches the blob"
    sequence = _from_bytes(data, stored_count)
    if sequence is None or len(sequence) != stored_count:
        raise CorruptError(f"the sample ids in blob {ids.hash} do not fit {stored_count} rows")
    return sequence


def _to_bytes(sequence: IdSequence) -> bytes:
    """Encode two varints for each run: the distance from the end of the run before, and the count less one."""
    import numpy as np

    distances = np.diff(sequence.firsts + sequence.counts, prepend=0) - sequence.counts
    values = np.stack([(distances << 1) ^ (distances >> 63), sequence.counts - 1], axis=1).reshape(-1)
    lengths = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        lengths += values >= 1 << bits
    ends = np.cumsum(lengths)
    at = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    parts = (np.repeat(values, lengths) >> 7 * at) & 0x7F
    return _MAGIC + (parts | np.where(at < np.repeat(lengths, lengths) - 1, 0x80, 0)).astype(np.uint8).tobytes()


def _from_bytes(data: bytes, stored_count: int) -> IdSequence | None:
    """Return the runs, or None for bytes that are no list of runs with at most this number of ids."""
    import numpy as np

    if len(data) > len(_MAGIC) + _RUN_BYTES * stored_count:
        return None
    if data.startswith(_MAGIC):
        return _from_varints(np.frombuffer(data, np.uint8, offset=len(_MAGIC)))
    if len(data) % _RUN_BYTES:
        return None
    pairs = np.frombuffer(data, "<u8").reshape(-1, 2)
    if bool((pairs >= _MAX_ID).any()) or bool((pairs[:, 1] == 0).any()) or int(pairs[:, 1].sum()) >= _MAX_ID:
        return None
    signed = pairs.astype(np.int64)
    return IdSequence(signed[:, 0], signed[:, 1])


def _from_varints(data: NDArray[np.uint8]) -> IdSequence | None:
    import numpy as np

    ends = np.flatnonzero(data < 0x80) + 1
    if not len(ends) or ends[-1] != len(data) or len(ends) % 2:
        return None
    starts = np.concatenate([[0], ends[:-1]])
    lengths = ends - starts
    if int(lengths.max()) > _MAX_VARINT or bool(((lengths > 1) & (data[ends - 1] == 0)).any()):
        return None
    at = np.arange(len(data)) - np.repeat(starts, lengths)
    values = np.add.reduceat((data & 0x7F).astype(np.int64) << 7 * at, starts)
    distances, counts = (values[0::2] >> 1) ^ -(values[0::2] & 1), values[1::2] + 1
    estimated = np.cumsum((distances + counts).astype(np.float64))  # exact sums might overflow
    if bool((counts >= _MAX_ID).any()) or not 0 <= estimated.min() <= estimated.max() <= 2.0 * _MAX_ID:
        return None
    last = np.cumsum(distances + counts)
    firsts = last - counts
    if int(firsts.min()) < 0 or int(last.max()) > _MAX_ID or float(counts.sum(dtype=np.float64)) >= _MAX_ID:
        return None
    return IdSequence(firsts, counts)
