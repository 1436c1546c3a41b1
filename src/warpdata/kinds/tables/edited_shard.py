"""A shard of an edited table as readers see it: without deleted rows, with all columns under their present names.

It has the methods of `ShardFile`, so scans and takes do not know the difference. Rows and row groups count the rows
that readers see. Implements the reading side of "Rows" of docs/specs/manifest.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from warpdata.errors import CorruptError
from warpdata.formats.parquet import DecodeOptions, FetchedRanges, GroupRows, RowGroup, ShardFile
from warpdata.primitives.arrow_buffers import as_bits, filter_rows
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.parallel import IO_POOL
from warpdata.query import Bounds
from warpdata.repository.manifest import SchemaChange, Shard
from warpdata.repository.rows import DeletionVector

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["EditedShard", "NamedFile", "TableShard", "apply_changes"]


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A Parquet file of a shard. `names` has the stored name of each visible column."""

    file: ShardFile
    names: dict[str, str]

    @property
    def is_renamed(self) -> bool:
        return any(name != stored for name, stored in self.names.items())

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the stored names of those columns that this file has."""
        return [self.names[name] for name in columns if name in self.names]

    def adapt(self, options: DecodeOptions) -> DecodeOptions:
        """Return the options of a scan with the stored names of columns."""
        return replace(options, dictionaries=tuple(self.stored(options.dictionaries)))

    def rename(self, rows: pa.Table) -> pa.Table:
        """Return decoded rows under the visible names."""
        if not self.is_renamed:
            return rows
        visible = {stored: name for name, stored in self.names.items()}
        return rows.rename_columns([visible[name] for name in rows.column_names])


def apply_changes(names: Sequence[str], changes: Sequence[SchemaChange], place: str) -> dict[str, str]:
    """Return the columns that remain of `names` after the changes, each with its stored name, in stored order.

    `CorruptError` if two columns end up with one name.
    """
    visible: list[str | None] = list(names)
    for change in changes:
        if change.column in visible:
            visible[visible.index(change.column)] = change.renamed_to
    found = [name for name in visible if name is not None]
    if len(set(found)) != len(found):
        raise CorruptError(f"two columns of {place} have the same name after the schema changes: {found}")
    return {name: stored for name, stored in zip(visible, names, strict=True) if name is not None}


class EditedShard:
    """A shard of several files, or with deleted rows or changed names. Safe to share between threads."""

    def __init__(self, shard: Shard, files: Sequence[NamedFile], deletes: DeletionVector | None) -> None:
        self.shard = shard
        self._files = files
        self._deletes = deletes
        self.is_local = all(part.file.is_local for part in files)
        self._check_groups()
        self._check_names()

    @cached_property
    def schema(self) -> pa.Schema:
        import pyarrow as pa

        fields = [
            part.file.schema.field(stored).with_name(name)
            for part in self._files
            for name, stored in part.names.items()
        ]
        return pa.schema(fields, metadata=self._files[0].file.schema.metadata)

    @property
    def claims_extensions(self) -> bool:
        """True if a file claims an extension type of this library, which decoded rows must not have."""
        return any(part.file.claims_extensions for part in self._files)

    @cached_property
    def _row_groups(self) -> list[RowGroup]:
        stored = self._files[0].file.row_groups()
        if self._deletes is None:
            return stored
        before = self._deletes.live_before
        starts = [before(group.first_row) for group in stored]
        ends = [before(group.first_row + group.row_count) for group in stored]
        return [
            RowGroup(group.index, start, end - start) for group, start, end in zip(stored, starts, ends, strict=True)
        ]

    def row_groups(self) -> list[RowGroup]:
        return self._row_groups

    @cached_property
    def stored(self) -> TableShard:
        """The same shard with its deleted rows."""
        only = self._files[0]
        is_plain = len(self._files) == 1 and list(only.names) == only.file.schema.names
        return only.file if is_plain else EditedShard(self.shard, self._files, None)

    def column_files(self) -> dict[str, tuple[str, str]]:
        """Return the hash of the file of each column, with the name that the column has there."""
        return {name: (part.file.shard.hash, stored) for part in self._files for name, stored in part.names.items()}

    def live_mask(self, group: int) -> NDArray[np.bool_] | None:
        """Return True for each stored row of a row group that readers see; None if they see all."""
        if self._deletes is None:
            return None
        stored = self._files[0].file.row_groups()[group]
        return self._deletes.live_mask(stored.first_row, stored.first_row + stored.row_count)

    def bounds(self, group: int, columns: Sequence[str]) -> dict[str, Bounds]:
        """Return the statistics of the columns that have them. They are those of the stored rows."""
        found: dict[str, Bounds] = {}
        for part in self._files:
            stored = part.file.bounds(group, part.stored(columns))
            found |= {name: stored[part.names[name]] for name in columns if part.names.get(name) in stored}
        return found

    def size_bytes(self, group: int, columns: Sequence[str]) -> int:
        """Return the stored size of columns of a row group."""
        return sum(part.file.size_bytes(group, part.stored(columns)) for part in self._files)

    def row_bytes(self, columns: Sequence[str]) -> float:
        """Estimate the mean size of a decoded row, from below where values have various sizes."""
        return sum(part.file.row_bytes(part.stored(columns)) for part in self._files)

    def fetch(self, group: int, columns: Sequence[str]) -> FetchedRanges:
        """Fetch the bytes of these columns, from the files that have them. Local files need none."""
        if self.is_local:
            return {}
        wanted = [(part.file, part.stored(columns)) for part in self._with_any(columns)]
        if len(wanted) == 1:
            return wanted[0][0].fetch(group, wanted[0][1])
        fetched: FetchedRanges = {}
        for ranges in IO_POOL.map_all(lambda part: part[0].fetch(group, part[1]), wanted):
            for blob_hash, parts in ranges.items():
                fetched.setdefault(blob_hash, []).extend(parts)
        return fetched

    def decode(
        self,
        group: int,
        columns: Sequence[str],
        fetched: FetchedRanges | None = None,
        options: DecodeOptions | None = None,
    ) -> pa.Table:
        """Decode columns of the visible rows of a row group, like `ShardFile.decode`."""
        options = options or DecodeOptions()
        fetched = self.fetch(group, columns) if fetched is None else fetched
        parts = [
            part.rename(part.file.decode(group, part.stored(columns), fetched, part.adapt(options)))
            for part in self._with_any(columns)
        ]
        return self._visible(_join(parts, columns), group)

    def take_rows(self, wanted: Sequence[GroupRows], columns: Sequence[str]) -> pa.Table:
        """Return visible rows of row groups, in their order, like `ShardFile.take_rows`."""
        stored = [GroupRows(part.group, self._stored_rows(part)) for part in wanted]
        parts = [part.rename(part.file.take_rows(stored, part.stored(columns))) for part in self._with_any(columns)]
        return _join(parts, columns)

    def _stored_rows(self, wanted: GroupRows) -> NDArray[np.int64]:
        """Return the positions of visible rows among the stored rows of their row group."""
        if self._deletes is None:
            return wanted.rows
        first_row = self._files[0].file.row_groups()[wanted.group].first_row
        return self._deletes.positions_of(wanted.rows + self._row_groups[wanted.group].first_row) - first_row

    def decode_in_parts(
        self, group: int, columns: Sequence[str], options: DecodeOptions, max_bytes: int
    ) -> Iterator[pa.Table]:
        """Decode columns of the visible rows of a row group, a few at a time, like `ShardFile.decode_in_parts`."""
        for part in self._with_any(columns):
            for rows in part.file.decode_in_parts(group, part.stored(columns), part.adapt(options), max_bytes):
                yield self._visible(part.rename(rows), group)

    def decode_prefix(self, group: int, columns: Sequence[str], row_count: int) -> pa.Table:
        """Decode the first visible rows of a row group, fetching about as many bytes as they need."""
        stored_count = self._stored_before(group, row_count)
        wanted = self._with_any(columns)
        if self.is_local or len(wanted) == 1:
            parts = [_decode_prefix(part, group, columns, stored_count) for part in wanted]
        else:
            parts = IO_POOL.map_all(lambda part: _decode_prefix(part, group, columns, stored_count), wanted)
        return self._visible(_join(parts, columns), group).slice(0, row_count)

    def _with_any(self, columns: Sequence[str]) -> list[NamedFile]:
        """Return the files that have one of the columns; for no columns, the first file."""
        return [part for part in self._files if any(name in part.names for name in columns)] or [self._files[0]]

    def _visible(self, rows: pa.Table, group: int) -> pa.Table:
        """Return the rows of the start of a row group without the deleted ones."""
        if self._deletes is None:
            return rows
        first_row = self._files[0].file.row_groups()[group].first_row
        mask = self._deletes.live_mask(first_row, first_row + rows.num_rows)
        return rows if mask is None else filter_rows(rows, as_bits(mask))

    def _stored_before(self, group: int, row_count: int) -> int:
        """Return how many stored rows of a row group contain its first `row_count` visible rows."""
        import numpy as np

        stored = self._files[0].file.row_groups()[group]
        if self._deletes is None or row_count < 1:
            return row_count
        first = self._row_groups[group].first_row
        if row_count >= self._row_groups[group].row_count:
            return stored.row_count
        last = self._deletes.positions_of(np.array([first + row_count - 1]))
        return int(last[0]) + 1 - stored.first_row

    def _check_groups(self) -> None:
        own, *others = [part.file for part in self._files]
        sizes = [group.row_count for group in own.row_groups()] if others else []
        for other in others:
            found = [group.row_count for group in other.row_groups()]
            if found != sizes:
                raise CorruptError(
                    f"the row groups of column file {other.shard.hash} have other sizes than those of "
                    f"shard {own.shard.hash}: {_shortened(found)} instead of {_shortened(sizes)} rows"
                )

    def _check_names(self) -> None:
        seen: dict[str, str] = {}
        for part in self._files:
            for name in part.names:
                if name in seen:
                    raise CorruptError(
                        f"column {name!r} is both in file {seen[name]} and in file {part.file.shard.hash} "
                        f"of shard {self.shard.hash}"
                    )
                seen[name] = part.file.shard.hash


TableShard: TypeAlias = ShardFile | EditedShard
"""An opened shard of a table."""


def _decode_prefix(part: NamedFile, group: int, columns: Sequence[str], row_count: int) -> pa.Table:
    return part.rename(part.file.decode_prefix(group, part.stored(columns), row_count))


def _join(parts: Sequence[pa.Table], columns: Sequence[str]) -> pa.Table:
    """Return the columns of all parts, in the order of `columns`."""
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    found = {name: rows.column(name) for rows in parts for name in rows.column_names}
    return pa.table({name: found[name] for name in columns})


def _shortened(sizes: Sequence[int]) -> str:
    return str(sizes) if len(sizes) <= 8 else f"[{', '.join(map(str, sizes[:8]))}, …] ({len(sizes)})"
