"""A table as a source of Ray Data: one read task for each range of rows, with columns and filters pushed down.

Tasks hold an address of the version and open it where they run, so no row and no file passes through the driver.
Ranges end at row-group borders where that is cheap, like those of ranks. Imported when `Dataset.to_ray` is called.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from warpdata.datasets.dataset import Dataset
from warpdata.datasets.ref_columns import RefType
from warpdata.datasets.streaming import StreamRequest
from warpdata.errors import BadInputError
from warpdata.kinds.artifacts import read_many
from warpdata.kinds.tables import Table
from warpdata.limits import MIB
from warpdata.primitives.extras import require
from warpdata.session import VersionAddress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["References", "to_ray"]

References: TypeAlias = Literal["bytes", "stored"]
"""The content of reference columns: the bytes of the files, or the stored values, such as member paths."""

_MEDIA_BYTES = 64 * MIB
"""The files that a block holds, about."""
_OPEN_VERSIONS = 4


def to_ray(dataset: Dataset, request: StreamRequest, references: References, blocks: int | None) -> Any:
    """Return a `ray.data.Dataset` of the rows of a request."""
    if not isinstance(references, str) or references not in get_args(References):
        raise BadInputError(f"references={references!r} is not known", hint=f"Use {' or '.join(get_args(References))}.")
    data = require("ray.data", purpose="to_ray", extra="ray")
    rows = _Rows(VersionAddress.of(dataset.session, dataset.version_ref), request, references)
    if request.filters:
        table = rows.open()
        if not table.explain().undecided_rows:  # indexes know the rows, so that their number is exact
            rows = replace(rows, request=replace(request, filters=(), rows=table.select_rows()))
    return data.read_datasource(_source_class()(rows), override_num_blocks=blocks)


@dataclass(frozen=True)
class _Rows:
    """Rows of a version, to be opened anywhere."""

    address: VersionAddress
    request: StreamRequest
    references: References

    def select(self, columns: Iterable[str]) -> _Rows:
        return replace(self, request=replace(self.request, columns=tuple(columns)))

    def open(self) -> Table:
        """Open the table with its columns, filters and references."""
        request = self.request
        table = _open_version(self.address).table(request.table)
        table = replace(table if self.references == "bytes" else table.raw(), rows=request.rows)
        for each in request.filters:
            table = table.filter(each)
        return table if request.columns is None else table.select(request.columns)

    def media_bytes(self, table: Table) -> float:
        """Return the size of the files of a row, on average."""
        bound = _open_version(self.address).bound_artifacts(self.request.table)
        names = table.schema().names if self.references == "bytes" else []
        artifacts = [bound[name][0] for name in names if name in bound]
        return sum(each.entry.shards.data_bytes / max(len(each), 1) for each in artifacts)

    def read(self, number: int, count: int, limit: int | None) -> Iterator[pa.Table]:
        """Yield the blocks of one range of rows."""
        table = self.open()
        chunk = max(1, int(_MEDIA_BYTES / max(self.media_bytes(table), 1.0)))
        for group in table.row_groups(shard=(number, count), limit=limit):
            if not any(isinstance(column.type, RefType) for column in group.schema):
                yield group.replace_schema_metadata(None)
                continue
            for start in range(0, group.num_rows, chunk):
                yield _with_contents(group.slice(start, chunk))


@functools.lru_cache(maxsize=_OPEN_VERSIONS)
def _open_version(address: VersionAddress) -> Dataset:
    """Open a version once in each process. Its tasks share the footers and indexes that were read."""
    session, ref = address.open()
    return Dataset(session, ref, session.catalog.manifest(ref))


def _with_contents(rows: pa.Table) -> pa.Table:
    import pyarrow as pa

    for position, column in enumerate(rows.schema):
        if isinstance(column.type, RefType):
            contents = pa.array(read_many(rows.column(position).to_pylist()), pa.large_binary())
            rows = rows.set_column(position, column.name, contents)
    return rows.replace_schema_metadata(None)


def _block_schema(table: Table) -> pa.Schema:
    """Return the schema of the blocks, in which references are bytes."""
    import pyarrow as pa

    fields = [
        pa.field(each.name, pa.large_binary()) if isinstance(each.type, RefType) else each for each in table.schema()
    ]
    return pa.schema(fields)


@functools.cache
def _source_class() -> type[Any]:
    """Return the class of sources. Ray is imported to make it."""
    import ray.data as data
    from ray.data.block import BlockMetadata

    class WarpdataDatasource(data.Datasource):  # type: ignore[misc]
        """Implements the public interface of Ray Data."""

        def __init__(self, rows: _Rows) -> None:
            super().__init__()
            self._rows = rows
            self._projection_map: dict[str, str] | None = None

        def supports_projection_pushdown(self) -> bool:
            return True

        def estimate_inmemory_data_size(self) -> int:
            rows = self._selected()
            table = rows.open()
            return int(table.estimated_bytes() + table.unfiltered_count * rows.media_bytes(table))

        def get_read_tasks(
            self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
        ) -> list[Any]:
            rows = self._selected()
            table = rows.open()
            total = max(1, table.unfiltered_count)
            count = max(1, min(parallelism, total))
            size_bytes, schema = self.estimate_inmemory_data_size(), _block_schema(table)
            tasks = []
            for number in range(count):
                share = table.count_of((number, count))
                known = None if table.filters else share
                if known is not None and per_task_row_limit is not None:
                    known = min(known, per_task_row_limit)
                metadata = BlockMetadata(known, size_bytes * share // total, None)
                read = functools.partial(rows.read, number, count, per_task_row_limit)
                tasks.append(data.ReadTask(read, metadata, schema, per_task_row_limit))
            return tasks

        def _selected(self) -> _Rows:
            projection = self.get_projection_map()
            return self._rows if projection is None else self._rows.select(projection)

    return WarpdataDatasource
