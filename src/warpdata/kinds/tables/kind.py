"""Tables as a payload kind. The only kind that publishes can append to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from warpdata.errors import ErrorKind, NotFoundError
from warpdata.formats.parquet import ShardOpener, check_same_schema
from warpdata.kinds import PayloadKind, StageContext, StagedEntry, VersionContext, pick_entry
from warpdata.kinds.tables.stage import StagedTable, stage_table
from warpdata.kinds.tables.table import Table
from warpdata.repository.manifest import ManifestEntry, TableEntry

__all__ = ["TABLES", "TableInfo"]

_CAST_HINT = "Cast the rows to the table's types, or publish the whole table again with add_table."


@dataclass(frozen=True, slots=True)
class TableInfo:
    name: str
    rows: int
    shards: int
    size_bytes: int


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
        return TableInfo(name, shards.row_count, shards.shard_count, shards.data_bytes)

    def stage(self, name: str, source: Any, context: StageContext) -> StagedTable:
        return stage_table(name, source, context)

    def merge(self, base: ManifestEntry | None, staged: StagedEntry) -> TableEntry:
        """Keep the stored shards if the rows are appended to them. The columns are those of the first shard."""
        assert isinstance(staged, StagedTable)
        assert isinstance(staged.entry, TableEntry)
        if base is None or not staged.appends:
            return staged.entry
        assert isinstance(base, TableEntry)
        is_empty = not base.shards.shard_count and staged.shards
        return replace(base, schema=staged.entry.schema) if is_empty else base

    def check_append(self, version: VersionContext, name: str, staged: StagedEntry) -> None:
        assert isinstance(staged, StagedTable)
        if staged.appends and staged.schema is not None and name in version.manifest.tables:
            stored = self.open(version, name).schema()
            check_same_schema(stored, f"table {name!r}", staged.schema, "the rows to append", _CAST_HINT)


TABLES = _TableKind()
