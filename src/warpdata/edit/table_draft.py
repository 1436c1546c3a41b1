"""One table during an edit: rows are appended, deleted and replaced. Every step gives a new entry at once.

Stored files are never changed. A deleted row is marked in the deletion vector of its shard; a changed row is deleted
there and written again into a new shard, with its sample id. Implements "Edits" of docs/specs/publish.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from warpdata.edit.workspace import EditWorkspace, StagedFile
from warpdata.formats.parquet import check_appendable, write_spooled
from warpdata.kinds import StageContext
from warpdata.kinds.tables import StagedTable, Table, TableInput, TableSpec, stage_table
from warpdata.limits import MIB
from warpdata.primitives.progress import Progress, silent
from warpdata.repository.manifest import PagedShards, Shard, TableEntry, edit_shards, page_shards
from warpdata.repository.rows import DeletionVector, IdSequence, encode_deletes, encode_ids

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["NewShard", "TableDraft", "read_chunks"]

_CACHED_BYTES = 128 * MIB
_CHUNK_ROWS = 65_536
"""Rows that are changed at a time. More would only take more memory."""


@dataclass(frozen=True, slots=True)
class NewShard:
    """A shard that follows the stored ones, and the sample ids of its stored rows.

    An id of -1 stands for the next one that is free; None for all of them.
    """

    shard: Shard
    ids: NDArray[np.int64] | None = None


class TableDraft:
    """The state of a table after the edits so far."""

    def __init__(self, workspace: EditWorkspace, name: str, entry: TableEntry, first_free_id: int = 0) -> None:
        self.workspace = workspace
        self.name = name
        self.entry = entry
        self._first_free_id = first_free_id
        self._opened: Table | None = None

    @property
    def revision(self) -> int:
        """The number of schema changes so far. New files have this revision."""
        return len(self.entry.changes)

    def open(self, *, with_references: bool = False) -> Table:
        """Open the table as it is now. Without a change in between, it is the same object, with what it has read."""
        if with_references:
            return self.workspace.open_table(self.name, self.entry, with_references=True)
        if self._opened is None or self._opened.entry is not self.entry:
            self._opened = self.workspace.open_table(self.name, self.entry)
        return self._opened

    def append(self, source: TableInput, progress: Progress = silent) -> StagedTable:
        """Append rows. Files of the user become shards as they are."""
        staged = self.stage(source, "the rows to append", progress)
        self.workspace.add_blobs(staged.blobs)
        if not self.entry.shards.shard_count:
            assert isinstance(staged.entry, TableEntry)
            self.entry = replace(self.entry, schema=staged.entry.schema)
        new = [msgspec.structs.replace(shard, revision=self.revision) for shard in staged.shards]
        self.apply({}, [NewShard(shard) for shard in new])
        return staged

    def stage(self, source: TableInput, noun: str, progress: Progress = silent) -> StagedTable:
        """Turn rows into files. Raise `SchemaMismatchError` if the table cannot have them. `noun` names them there."""
        context = StageContext(self.workspace.lazy_directory(), progress)
        has_shards = bool(self.entry.shards.shard_count)
        rows = _with_types(source, self.open().schema()) if has_shards else source
        staged = stage_table(self.name, TableSpec(rows, appends=True), context)
        if has_shards and staged.schema is not None:
            check_appendable(self.open().schema(), f"table {self.name!r}", staged.schema, noun)
        return staged

    def delete_rows(self, rows: NDArray[np.int64]) -> None:
        """Delete the rows with these numbers, which ascend."""
        located = self.open().locate(rows)
        self.apply({found.index: self.without(found.shard, found.positions) for found in located}, [])

    def replace_rows(self, rows: NDArray[np.int64], batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Replace the rows with these ascending numbers by new ones, in the same order. They keep their ids."""
        self._replace(rows, self.write_shards(batches, schema, None))

    def replace_found(self, found: Iterable[tuple[NDArray[np.int64], pa.Table]], schema: pa.Schema) -> int:
        """Replace rows like `replace_rows`, as a scan finds them with their numbers. Return their number."""
        import numpy as np

        waiting = iter(found)
        first = next(waiting, None)
        if first is None:
            return 0
        numbers: list[NDArray[np.int64]] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for rows, new in chain([first], waiting):
                numbers.append(rows)
                yield from new.to_batches()

        shards = self.write_shards(batches(), schema, None)
        rows = np.concatenate(numbers)
        self._replace(rows, shards)
        return len(rows)

    def _replace(self, rows: NDArray[np.int64], shards: Sequence[NewShard]) -> None:
        """Delete rows, and add shards that have new ones for them, with their ids."""
        import numpy as np

        located = list(self.open().locate(rows))
        ids = np.concatenate([np.empty(0, np.int64), *(found.ids for found in located)])
        ends = np.cumsum([new.shard.stored_count for new in shards])
        assert len(ids) == (ends[-1] if len(ends) else 0), "there is one new row for each"
        changes = {found.index: self.without(found.shard, found.positions) for found in located}
        parts = np.split(ids, ends[:-1]) if len(ends) else []
        self.apply(changes, [NewShard(new.shard, part) for new, part in zip(shards, parts, strict=True)])

    def write_shards(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, ids: NDArray[np.int64] | None
    ) -> list[NewShard]:
        """Write rows into new shards. With `ids`, there is one for each row."""
        shards, start = [], 0
        for written in write_spooled(batches, schema, self.workspace.lazy_directory(), self.name):
            file = StagedFile(self.workspace, written)
            shard = Shard(file.blob.hash, file.blob.byte_size, file.row_count, file.footer, revision=self.revision)
            shards.append(NewShard(shard, None if ids is None else ids[start : start + file.row_count]))
            start += file.row_count
        return [new for new in shards if new.shard.row_count]

    def chunks(self, rows: NDArray[np.int64]) -> Iterator[pa.Table]:
        """Yield the rows with these numbers, as they are stored, in parts of bounded size."""
        # Rows of one part are read once, by page where they are few. Parts may share row groups, which are kept.
        take = self.open().taker(_CACHED_BYTES if len(rows) > _CHUNK_ROWS else 0)
        yield from map(take, self.parts(rows))

    def parts(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the parts of row numbers that `chunks` reads."""
        return (rows[start : start + _CHUNK_ROWS] for start in range(0, len(rows), _CHUNK_ROWS))

    def without(self, shard: Shard, positions: NDArray[np.int64]) -> Shard:
        """Return the shard with more rows deleted."""
        vector = DeletionVector.of_positions(positions, shard.stored_count)
        deleted = self.open().opener.deletes(shard)
        vector = vector if deleted is None else vector.union(deleted)
        deletes, data = encode_deletes(vector)
        if data is not None:
            self.workspace.add_bytes(data)
        return msgspec.structs.replace(shard, row_count=shard.stored_count - len(vector), deletes=deletes)

    def apply(self, changes: Mapping[int, Shard | None], added: Sequence[NewShard], removed_rows: int = 0) -> None:
        """Replace shards, remove those that change to None, and append others with their sample ids.

        Only the last shards may be removed: ids that follow from a position would change otherwise. `removed_rows`
        counts their stored rows.
        """
        shards = self.entry.shards
        numbered, next_id = self._number(added, shards.stored_count - removed_rows)
        paged = edit_shards(shards, changes, numbered, self.workspace.load_page)
        self._keep(paged, next_id, is_rewritten=removed_rows > 0)

    def replace_all(self, shards: Sequence[NewShard]) -> None:
        """Replace all shards."""
        numbered, next_id = self._number(shards, 0)
        self._keep(page_shards(numbered), next_id, is_rewritten=True)

    def _number(self, added: Sequence[NewShard], first_stored_row: int) -> tuple[list[Shard], int]:
        """Return the shards with their ids, and the next id that is free."""
        next_id, numbered = max(self.entry.id_counter, self._first_free_id if added else 0), []
        for new in added:
            count = new.shard.stored_count
            sequence, next_id = _number(new, next_id)
            encoded, data = encode_ids(sequence, first_stored_row)
            if data is not None:
                self.workspace.add_bytes(data)
            numbered.append(msgspec.structs.replace(new.shard, ids=encoded))
            first_stored_row += count
        return numbered, next_id

    def _keep(self, paged: PagedShards, next_id: int, *, is_rewritten: bool) -> None:
        """Take over the new shards. A counter that is stated stays, and so does the fact that ids identify rows."""
        self.workspace.add_pages(paged.new_pages)
        is_plain = self.entry.next_id is None and not is_rewritten and next_id == paged.shards.stored_count
        counter = None if is_plain else next_id
        self.entry = replace(self.entry, shards=paged.shards, next_id=counter)


def read_chunks(table: Table, start: int, stop: int) -> Iterator[pa.Table]:
    """Yield the rows [start, stop), in parts of bounded size."""
    import numpy as np

    take = table.taker(_CACHED_BYTES if stop - start > _CHUNK_ROWS else 0)
    for first in range(start, stop, _CHUNK_ROWS):
        yield take(np.arange(first, min(first + _CHUNK_ROWS, stop), dtype=np.int64))


def _number(new: NewShard, next_id: int) -> tuple[IdSequence, int]:
    """Return the ids of a new shard, and the next one that is free."""
    import numpy as np

    if new.ids is None:
        count = new.shard.stored_count
        return IdSequence.consecutive(next_id, count), next_id + count
    free = np.flatnonzero(new.ids < 0)
    ids = new.ids.copy()
    ids[free] = np.arange(next_id, next_id + len(free))
    return IdSequence.of_ids(ids), next_id + len(free)


def _with_types(source: TableInput, schema: pa.Schema) -> TableInput:
    """Return Python values and frames as Arrow rows with the types of a table, if they fit.

    Numbers of these have 64 bits unless a type was given. Other sources stay as they are.
    """
    import pyarrow as pa

    try:
        library = type(source).__module__.partition(".")[0]
        if library == "polars" and hasattr(source, "to_arrow"):
            frame = source.to_arrow()
            return frame.select(schema.names).cast(schema) if set(frame.column_names) == set(schema.names) else source
        if library == "pandas" and hasattr(source, "columns"):
            names = pa.Schema.from_pandas(source).names
            return pa.Table.from_pandas(source, schema) if set(names) == set(schema.names) else source
        if isinstance(source, Mapping) and source.keys() == set(schema.names):
            return pa.Table.from_pydict(dict(source), schema)
        is_rows = isinstance(source, list) and bool(source) and all(isinstance(row, Mapping) for row in source)
        if is_rows and {name for row in source for name in row} <= set(schema.names):
            return pa.Table.from_pylist(source, schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return source  # staging names the column that does not fit
    return source
