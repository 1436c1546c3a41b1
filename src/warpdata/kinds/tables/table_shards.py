"""Opens the shards of one table: plain files as they are, edited shards with their deleted rows and column files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from warpdata.errors import CorruptError
from warpdata.formats.parquet import ShardFile, ShardOpener
from warpdata.kinds.tables.edited_shard import EditedShard, NamedFile, TableShard, apply_changes
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.ranges import ByteRange
from warpdata.repository.manifest import Deletes, Ids, SchemaChange, Shard
from warpdata.repository.rows import DeletionVector, IdSequence, decode_deletes, decode_ids
from warpdata.settings import Settings
from warpdata.storage import REPAIR_HINT, open_external, read_verified

__all__ = ["TableShards"]

_T = TypeVar("_T")
_OpenFile: TypeAlias = Callable[[ShardOpener, Shard], ShardFile]

_CACHED_SHARDS = 64


class TableShards:
    """Opens shards of a table with these schema changes, and caches the most recently used.

    A shard with the columns and rows of its file is a `ShardFile`. The others are an `EditedShard`: its footers and
    deleted rows are fetched in parallel, once.
    """

    def __init__(self, files: ShardOpener, settings: Settings, changes: tuple[SchemaChange, ...] = ()) -> None:
        cached = functools.lru_cache(maxsize=_CACHED_SHARDS)
        self._files = files
        self._settings = settings
        self._changes = changes
        self._open_edited = cached(functools.partial(self._load, lambda opener, file: opener.open(file)))
        self._peek_edited = cached(functools.partial(self._load, lambda opener, file: opener.peek(file)))
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
        if shard.external is not None and not shard.external.uri.startswith("file://"):
            return False
        return all(self._files.reader.local_path(blob_key(blob.hash)) is not None for blob in shard.blobs())

    def deletes(self, shard: Shard) -> DeletionVector | None:
        """Return the deleted rows of a shard; None if it has none."""
        return None if shard.deletes is None else self._deletes(shard.deletes, shard.stored_count)

    def column_files(self, shard: Shard) -> dict[str, tuple[str, str]]:
        """Return the hash of the file of each column of a shard, with the name that the column has there."""
        opened = self.peek(shard)
        if isinstance(opened, EditedShard):
            return opened.column_files()
        return {name: (shard.hash, name) for name in opened.schema.names}

    def ids(self, shard: Shard, first_stored_row: int) -> IdSequence:
        """Return the sample ids of the stored rows of a shard. `first_stored_row` counts the stored rows before it."""
        if shard.ids is None or shard.ids.blob is None:
            return decode_ids(shard.ids, shard.stored_count, first_stored_row, None)
        return self._ids(shard.ids, shard.stored_count)

    def own_file(self, shard: Shard) -> ShardFile:
        """Open the file of a shard that has all stored rows, without deletes and column files."""
        return self._open_own(lambda opener, file: opener.peek(file), shard)

    def _is_plain(self, shard: Shard) -> bool:
        is_whole = shard.deletes is None and not shard.files and shard.external is None
        return is_whole and shard.revision == len(self._changes)

    def _load(self, open_file: _OpenFile, shard: Shard) -> TableShard:
        if max([shard.revision, *(file.revision for file in shard.files)]) > len(self._changes):
            raise CorruptError(f"shard {shard.hash} has more schema changes than its table, {len(self._changes)}")
        others = [Shard(file.hash, file.byte_size, shard.stored_count, file.footer) for file in shard.files]
        tasks: list[Callable[[], ShardFile | DeletionVector | None]] = [
            functools.partial(self._open_own, open_file, shard),
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

    def _open_own(self, open_file: _OpenFile, shard: Shard) -> ShardFile:
        own, external = Shard(shard.hash, shard.byte_size, shard.stored_count, shard.footer), shard.external
        if external is None:
            return open_file(self._files, own)
        return open_file(ShardOpener(open_external(external.uri, shard.blob, self._settings, external.etag)), own)

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
                raise CorruptError(f"the bytes of blob {blob.hash} do not have this hash", hint=REPAIR_HINT)
            return decode(bytes(data))

        key = blob_key(blob.hash)
        self._files.reader.expect_size(key, blob.byte_size)
        return read_verified(self._files.reader, key, ByteRange(0, blob.byte_size), check)
