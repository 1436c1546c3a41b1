"""SQL over published tables: names in a query are addresses, and every version is fixed before the query runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpdata.datasets.dataset import Dataset, open_dataset
from warpdata.errors import BadInputError, ErrorKind
from warpdata.kinds.tables import Table
from warpdata.limits import GIB
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.sizes import parse_size
from warpdata.query import ArrowSource, SqlParameters, list_sources, run_query
from warpdata.repository.catalog import parse_address
from warpdata.session import Session, connect
from warpdata.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["sql", "sql_reader"]

_MEMORY_BYTES = 2 * GIB
_MAX_RESULT_ROWS = 1_000_000
_MAX_RESULT_BYTES = 1 * GIB


@check_arguments
def sql(
    query: str,
    parameters: SqlParameters | None = None,
    *,
    store: str | Session | None = None,
    mode: str | None = None,
    settings: Settings | None = None,
    memory_limit: int | str | None = None,
    allow_large: bool = False,
) -> pa.Table:
    """Run one SELECT over published tables, and return all rows. Table names are addresses in quotes.

    `'acme/photos@v1'` is the only table of that version, or the one called "main"; `'acme/photos@v1/users'` is another.
    All uses of one address in a query read the same version. References are as they are stored. `parameters` are
    the values of `?`, or of `$name`. The query can read published tables and nothing else: no files, no network. It
    fails beyond `memory_limit`, 2 GiB by default. A large result needs `allow_large`, or `sql_reader`.
    """
    import pyarrow as pa

    reader = sql_reader(query, parameters, store=store, mode=mode, settings=settings, memory_limit=memory_limit)
    batches, row_count, size_bytes = [], 0, 0
    for batch in reader:
        row_count, size_bytes = row_count + batch.num_rows, size_bytes + batch.nbytes
        if not allow_large and (row_count > _MAX_RESULT_ROWS or size_bytes > _MAX_RESULT_BYTES):
            reader.close()
            raise BadInputError(
                f"the result has at least {row_count:,} rows in {size_bytes:,} bytes; "
                f"the limit is {_MAX_RESULT_ROWS:,} rows and {_MAX_RESULT_BYTES:,} bytes",
                hint="Add a LIMIT, stream it with sql_reader(), or pass allow_large=True.",
                kind=ErrorKind.LARGE_EXPORT,
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


@check_arguments
def sql_reader(
    query: str,
    parameters: SqlParameters | None = None,
    *,
    store: str | Session | None = None,
    mode: str | None = None,
    settings: Settings | None = None,
    memory_limit: int | str | None = None,
) -> pa.RecordBatchReader:
    """Run a query like `sql`, and return its rows as a stream of any length. Close it, or read it to its end."""
    names = list_sources(query)
    tables = _Tables(store if isinstance(store, Session) else connect(store, settings, mode=mode))
    sources = {name: tables.source(name) for name in names}
    return run_query(query, sources, parameters, _MEMORY_BYTES if memory_limit is None else parse_size(memory_limit))


@dataclass(frozen=True)
class _Tables:
    """Opens the tables of one query. A dataset is opened once for each ref, so a query sees one version of it."""

    session: Session
    _opened: dict[str, Dataset] = field(default_factory=dict)

    def source(self, name: str) -> ArrowSource:
        address, table = _split_name(name)
        if address not in self._opened:
            self._opened[address] = open_dataset(self.session, parse_address(address))
        opened = self._opened[address].table(table).raw()
        return ArrowSource(opened.schema(), lambda columns: _read(opened, columns))


def _read(table: Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return table.select(list(columns)).batches()


def _split_name(name: str) -> tuple[str, str | None]:
    """Split `workspace/name[@ref][/table]` into the address and the table."""
    parts = name.split("/")
    if len(parts) > 3 or not all(parts):
        raise BadInputError(
            f"{name[:200]!r} is not the name of a published table",
            hint="Write 'workspace/name', 'workspace/name@ref' or 'workspace/name@ref/table'.",
            kind=ErrorKind.INVALID_NAME,
        )
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None
