"""Tables as a payload kind. The only kind that publishes can append to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from warpdata.errors import ErrorKind, NotFoundError
from warpdata.formats.parquet import ShardOpener, check_appendable
from warpdata.kinds import PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.tables.stage import StagedTable, stage_table
from warpdata.kinds.tables.table import Table
from warpdata.repository.manifest import Ids, ManifestEntry, Shard, TableEntry

__all__ = ["TABLES", "TableInfo"]


@dataclass(frozen=True, slots=True)
class TableInfo:
    name: str
    rows: int
    shards: int
    size_bytes: int
    deleted_rows: int = 0
    """Rows that are still stored, and that readers do not see."""


class _TableKind(PayloadKind[TableEntry, Table]):
    section = "tables"
    noun = "table"
    plural = "tables"
    item = "row"
    count_field = "rows"
    default_name = "main"
    columns = ((">rows", "rows"), (">shards", "shards"), (">size", "size_bytes"))

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return NotFoundError(message, hint=hint, kind=ErrorKind.TABLE_NOT_FOUND)

    def parse(self, name: str, entry: ManifestEntry) -> TableEntry:
        assert isinstance(entry, TableEntry), name
        return entry

    def open(self, version: VersionContext, name: str | None = None) -> Table:
        name, entry = pick_entry(self, version.manifest, name)
        session = version.session
        return Table(name, entry, ShardOpener(session.reader), version.load_page, session.settings)

    def describe(self, name: str, entry: ManifestEntry) -> TableInfo:
        shards = entry.shards
        return TableInfo(name, shards.row_count, shards.shard_count, shards.data_bytes, shards.deleted_count)

    def stage(self, name: str, source: Any, context: StageContext) -> StagedTable:
        return stage_table(name, source, context)

    def merge(self, base: ManifestEntry | None, staged: StagedEntry) -> TableEntry:
        """Keep the stored shards if the rows are appended to them. The columns are those of the first shard."""
        assert isinstance(staged, StagedTable)
        assert isinstance(staged.entry, TableEntry)
        if base is None or not staged.appends:
            return staged.entry
        assert isinstance(base, TableEntry)
        if base.next_id is not None:
            base = replace(base, next_id=base.next_id + sum(shard.stored_count for shard in staged.shards))
        is_empty = not base.shards.shard_count and staged.shards
        return replace(base, schema=staged.entry.schema) if is_empty else base

    def added_shards(self, base: ManifestEntry | None, staged: StagedEntry) -> Sequence[Shard]:
        """Give shards that are appended to an edited table the next sample ids and the newest schema revision."""
        assert isinstance(staged, StagedTable)
        if base is None or not staged.appends:
            return staged.shards
        assert isinstance(base, TableEntry)
        if not base.changes and base.next_id is None:
            return staged.shards
        added, next_id = [], base.next_id
        for shard in staged.shards:
            ids = None if next_id is None else Ids(first=next_id)
            added.append(msgspec.structs.replace(shard, ids=ids, revision=len(base.changes)))
            next_id = None if next_id is None else next_id + shard.stored_count
        return added

    def check_append(self, version: VersionContext, name: str, staged: StagedEntry) -> None:
        assert isinstance(staged, StagedTable)
        if staged.appends and staged.schema is not None and name in version.manifest.tables:
            stored = self.open(version, name).schema()
            check_appendable(stored, f"table {name!r}", staged.schema, "the rows to append")


TABLES = _TableKind()
