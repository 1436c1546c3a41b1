"""Edited tables for tests: manifests with deleted rows, sample ids, column files and schema changes, put directly."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import warpdata as wd
from warpdata.primitives.hashing import blob_key, sha256_hex
from warpdata.repository.catalog import Transaction, commit, mark_store
from warpdata.repository.manifest import ColumnFile, Footer, Manifest, SchemaChange, Shard, TableEntry, page_shards
from warpdata.repository.rows import DeletionVector, IdSequence, encode_deletes, encode_ids
from warpdata.session import Session, connect

__all__ = ["ExtraColumns", "StoredShard", "publish_edited", "table_entry"]


@dataclass(frozen=True)
class ExtraColumns:
    """A column file: columns as stored, and the number of schema changes they reflect."""

    rows: pa.Table
    revision: int = 0


@dataclass(frozen=True)
class StoredShard:
    """A shard as stored. `ids` defaults to those that follow from the position."""

    rows: pa.Table
    deleted: Sequence[int] = ()
    ids: Sequence[int] | None = None
    revision: int = 0
    files: Sequence[ExtraColumns] = field(default_factory=tuple)
    group_rows: int = 7
    has_footer: bool = True


def publish_edited(
    store: str | Session,
    shards: Sequence[StoredShard],
    *,
    changes: Sequence[SchemaChange] = (),
    columns: Sequence[str] | None = None,
    next_id: int | None = None,
    inline_limit: int = 16,
    dataset_id: str = "a/b",
) -> wd.Dataset:
    """Commit a version whose table "main" has these shards."""
    session = connect(store) if isinstance(store, str) else store
    mark_store(session.writer, session.pause)
    entry = table_entry(session, shards, changes=changes, columns=columns, next_id=next_id, inline_limit=inline_limit)
    manifest = Manifest(dataset_id, tables={"main": entry})
    txn = Transaction(dataset_id, "main", session.new_id(), "replace", "tester", "", session.timestamp())
    commit(session.writer, txn, lambda head: manifest, session.pause)
    return wd.dataset(dataset_id, store=session.writer.url)


def table_entry(
    session: Session,
    shards: Sequence[StoredShard],
    *,
    changes: Sequence[SchemaChange] = (),
    columns: Sequence[str] | None = None,
    next_id: int | None = None,
    inline_limit: int = 16,
) -> TableEntry:
    """Store the blobs of a table and return its entry."""
    listed, first_stored_row = [], 0
    for shard in shards:
        listed.append(_store_shard(session, shard, first_stored_row))
        first_stored_row += shard.rows.num_rows
    paged = page_shards(listed, inline_limit=inline_limit)
    for data in paged.new_pages.values():
        _put(session, data)
    schema = None if columns is None else TableEntry.listing(columns)
    next_id = None if next_id == first_stored_row else next_id
    return TableEntry(paged.shards, schema=schema, changes=tuple(changes), next_id=next_id)


def _store_shard(session: Session, shard: StoredShard, first_stored_row: int) -> Shard:
    row_count = shard.rows.num_rows
    positions = np.array(sorted(set(shard.deleted)), np.int64)
    deletes, deletes_blob = encode_deletes(DeletionVector.of_positions(positions, row_count))
    ids, ids_blob = None, None
    if shard.ids is not None:
        ids, ids_blob = encode_ids(IdSequence.of_ids(np.array(shard.ids, np.int64)), first_stored_row)
    for blob in (deletes_blob, ids_blob):
        if blob is not None:
            _put(session, blob)
    digest, size, footer = _put_parquet(session, shard.rows, shard)
    files = []
    for extra in shard.files:
        extra_digest, extra_size, extra_footer = _put_parquet(session, extra.rows, shard)
        files.append(ColumnFile(extra_digest, extra_size, extra_footer, extra.revision))
    visible = row_count - len(positions)
    return Shard(digest, size, visible, footer, shard.revision, ids, deletes, tuple(files))


def _put_parquet(session: Session, rows: pa.Table, shard: StoredShard) -> tuple[str, int, Footer | None]:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=shard.group_rows, write_page_checksum=True)
    data = sink.getvalue()
    size = int.from_bytes(data[-8:-4], "little") + 8
    footer = Footer(size, xxhash.xxh3_64_hexdigest(data[-size:])) if shard.has_footer else None
    return _put(session, data), len(data), footer


def _put(session: Session, data: bytes) -> str:
    digest = sha256_hex(data)
    session.writer.create(blob_key(digest), data)
    return digest
