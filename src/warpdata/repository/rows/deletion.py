"""Deletion vectors: the deleted rows of a shard, as a Roaring bitmap of positions in its file.

Implements "Deleted rows" of docs/specs/manifest.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError, LimitExceededError
from warpdata.limits import INLINE_POSITIONS
from warpdata.primitives.bitmaps import bitmap_of, numbers_of
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.manifest import Deletes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pyroaring import BitMap

__all__ = ["DeletionVector", "decode_deletes", "encode_deletes"]

_MAX_ROWS = 2**32


@dataclass(frozen=True, eq=False)
class DeletionVector:
    """The positions of deleted rows in a file with `stored_count` rows."""

    bitmap: BitMap
    stored_count: int

    @staticmethod
    def of_positions(positions: NDArray[np.int64], stored_count: int) -> DeletionVector:
        if stored_count > _MAX_ROWS:
            raise LimitExceededError(f"rows of a file with {stored_count} rows cannot be deleted; the limit is 2^32")
        return DeletionVector(bitmap_of(positions), stored_count)

    def __len__(self) -> int:
        return len(self.bitmap)

    def union(self, other: DeletionVector) -> DeletionVector:
        return DeletionVector(self.bitmap | other.bitmap, self.stored_count)

    @cached_property
    def deleted(self) -> NDArray[np.int64]:
        """The deleted positions, ascending."""
        return numbers_of(self.bitmap)

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """The other positions, ascending: element *n* is the position of the row that readers see as number *n*."""
        import numpy as np

        mask = np.ones(self.stored_count, bool)
        mask[self.deleted] = False
        return np.flatnonzero(mask)

    def live_mask(self, start: int, stop: int) -> NDArray[np.bool_] | None:
        """Return True for each position of [start, stop) that readers see; None if they see all."""
        import numpy as np

        low, high = np.searchsorted(self.deleted, (start, stop))
        if low == high:
            return None
        mask = np.ones(stop - start, bool)
        mask[self.deleted[low:high] - start] = False
        return mask

    def positions_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of rows that readers see, given by their numbers in the shard."""
        import numpy as np

        return rows + np.searchsorted(self._live_before_deleted, rows, side="right")

    @cached_property
    def _live_before_deleted(self) -> NDArray[np.int64]:
        """The number of rows that readers see before each deleted one."""
        import numpy as np

        return self.deleted - np.arange(len(self.deleted))

    def live_before(self, position: int) -> int:
        """Count the rows before a position that readers see."""
        return position - (self.bitmap.rank(position - 1) if position else 0)


def encode_deletes(vector: DeletionVector) -> tuple[Deletes | None, bytes | None]:
    """Return `deletes` of a shard, and the blob that it names, if any. None: no row is deleted."""
    if not len(vector):
        return None, None
    if len(vector) <= INLINE_POSITIONS:
        return Deletes(len(vector), positions=tuple(vector.deleted.tolist())), None
    bitmap = vector.bitmap.copy()
    bitmap.run_optimize()
    data: bytes = bitmap.serialize()
    return Deletes(len(vector), hash=sha256_hex(data), byte_size=len(data)), data


def decode_deletes(deletes: Deletes, stored_count: int, data: bytes | None) -> DeletionVector:
    """Return the deleted rows of a shard. `data` is the blob that `deletes` names, if it names one.

    Raise `CorruptError` if the blob is not a bitmap of that many rows of the file.
    """
    from pyroaring import BitMap

    if deletes.positions is not None:
        return DeletionVector(BitMap(deletes.positions), stored_count)
    assert data is not None, "the caller fetches the blob"
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:  # IndexError: no bytes at all
        raise CorruptError(f"the deleted rows in blob {deletes.hash} are not a bitmap: {error}") from error
    if len(bitmap) != deletes.row_count or (len(bitmap) and bitmap.max() >= stored_count):
        raise CorruptError(
            f"the bitmap in blob {deletes.hash} has {len(bitmap)} rows of {stored_count}; "
            f"the manifest has {deletes.row_count}"
        )
    return DeletionVector(bitmap, stored_count)
