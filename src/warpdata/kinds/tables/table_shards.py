"""Opens the shards of one table: plain files as they are, edited shards with their deleted rows and column files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from warpdata.errors import CorruptError, UnsupportedError
from warpdata.formats.parquet import ShardFile, ShardOpener
from warpdata.kinds.tables.edited_shard import EditedShard, NamedFile, TableShard, apply_changes
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Deletes, Ids, SchemaChange, Shard
from warpdata.repository.rows import DeletionVector, IdSequence, decode_deletes, decode_ids
from warpdata.storage import read_verified

__all__ = ["TableShards"]

_T = TypeVar("_T")

_CACHED_SHARDS = 64
_REPAIR = "Publish the version again, or restore the store; `warp verify` lists all corrupt blobs."


class TableShards:
    """Opens shards of a table with these schema changes, and caches the most recently used.

    A shard with the columns and rows of its file is a `ShardFile`. The others are an `EditedShard`: its footers and
    deleted rows are fetched in parallel, once.
    """

    def __init__(self, files: ShardOpener, changes: tuple[SchemaChange, ...] = ()) -> None:
        cached = functools.lru_cache(maxsize=_CACHED_SHARDS)
        self._files = files
        self._changes = changes
        self._open_edited = cached(functools.partial(self._load, files.open))
        self._peek_edited = cached(functools.partial(self._load, files.peek))
        self._deletes = cached(self._load_deletes)
        self._ids = cached(self._load_ids)

    def open(self, shard: Shard) -> TableShard:
        """Open a shard for most of its rows. A small file is fetched whole, with one request."""
        return self._files.open(shard) if self._is_plain(shard) else self._open_edited(shard)

    def peek(self, shard: Shard) -> TableShard:
        """Open a shard for its footer, or for a few rows, without fetching it whole."""
        if self._is_plain(shard):
            return self._files.peek(shard)
        return self._peek_edited(shard) if self._files.fetches_whole(shard) else self._open_edited(shard)

    def is_local(self, shard: Shard) -> bool:
        """Return whether all files of the shard are local, so that opening it fetches nothing."""
        if shard.format == 1:
            return self._files.is_local(shard)
        return all(self._files.reader.local_path(blob_key(blob.hash)) is not None for blob in shard.blobs())

    def deletes(self, shard: Shard) -> DeletionVector | None:
        """Return the deleted rows of a shard; None if it has none."""
        return None if shard.deletes is None else self._deletes(shard.deletes, shard.stored_count)

    def ids(self, shard: Shard, first_stored_row: int) -> IdSequence:
        """Return the sample ids of the stored rows of a shard. `first_stored_row` counts the stored rows before it."""
        if shard.ids is None or shard.ids.blob is None:
            return decode_ids(shard.ids, shard.stored_count, first_stored_row, None)
        return self._ids(shard.ids, shard.stored_count)

    def _is_plain(self, shard: Shard) -> bool:
        is_whole = shard.deletes is None and not shard.files and shard.external is None
        return is_whole and shard.revision == len(self._changes)

    def _load(self, open_file: Callable[[Shard], ShardFile], shard: Shard) -> TableShard:
        if shard.external is not None:
            raise UnsupportedError(
                f"shard {shard.hash} is the external file {shard.external.uri}, which cannot be read in place yet"
            )
        if max([shard.revision, *(file.revision for file in shard.files)]) > len(self._changes):
            raise CorruptError(f"shard {shard.hash} has more schema changes than its table, {len(self._changes)}")
        own = Shard(shard.hash, shard.byte_size, shard.stored_count, shard.footer)
        others = [Shard(file.hash, file.byte_size, shard.stored_count, file.footer) for file in shard.files]
        tasks: list[Callable[[], ShardFile | DeletionVector | None]] = [
            functools.partial(open_file, own),
            *(functools.partial(self._files.peek, other) for other in others),
            functools.partial(self.deletes, shard),
        ]
        loaded = [task() for task in tasks] if self.is_local(shard) else IO_POOL.run_all(tasks)
        files = [each for each in loaded if isinstance(each, ShardFile)]
        revisions = [shard.revision, *(file.revision for file in shard.files)]
        named = [
            NamedFile(file, apply_changes(file.schema.names, self._changes[revision:], f"file {file.shard.hash}"))
            for file, revision in zip(files, revisions, strict=True)
        ]
        if shard.deletes is None and not others and list(named[0].names) == files[0].schema.names:
            return files[0]
        return EditedShard(shard, named, self.deletes(shard))

    def _load_deletes(self, deletes: Deletes, stored_count: int) -> DeletionVector:
        def decode(data: bytes | None) -> DeletionVector:
            return decode_deletes(deletes, stored_count, data)

        return decode(None) if deletes.blob is None else self._read_blob(deletes, decode)

    def _load_ids(self, ids: Ids, stored_count: int) -> IdSequence:
        return self._read_blob(ids, lambda data: decode_ids(ids, stored_count, 0, data))

    def _read_blob(self, reference: Deletes | Ids, decode: Callable[[bytes], _T]) -> _T:
        blob = reference.blob
        assert blob is not None, "the caller checked"

        def check(data: memoryview) -> _T:
            if sha256_hex(data) != blob.hash:
                raise CorruptError(f"the bytes of blob {blob.hash} do not have this hash", hint=_REPAIR)
            return decode(bytes(data))

        key = blob_key(blob.hash)
        self._files.reader.expect_size(key, blob.byte_size)
        return read_verified(self._files.reader, key, ByteRange(0, blob.byte_size), check)
