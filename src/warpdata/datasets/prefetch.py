"""Which shards coming rows will need, in the order they will need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from warpdata.kinds.artifacts import Artifact, locator_of
from warpdata.primitives.hashing import Blob
from warpdata.storage.cache import CachedReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Foresight"]


class Foresight:
    """Called with each batch before it is handed out. The shards of the batch before are still wanted, and first."""

    def __init__(self, columns: Mapping[str, Artifact], reader: CachedReader) -> None:
        self._columns = columns
        self._reader = reader
        self._before: list[Blob] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        coming = [blob for name, artifact in self._columns.items() for blob in _shards(batch, name, artifact)]
        self._reader.prefetch(list(dict.fromkeys([*self._before, *coming])))
        self._before = coming


def _shards(batch: pa.RecordBatch, column: str, artifact: Artifact) -> list[Blob]:
    if column not in batch.schema.names:
        return []
    cells = (cell for cell in batch[column].to_pylist() if cell is not None)
    return list(dict.fromkeys(artifact.shard_of(locator_of(cell)) for cell in cells))
