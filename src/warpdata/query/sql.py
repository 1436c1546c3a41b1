"""SQL queries over named Arrow sources, in a sealed DuckDB session: no files, no network, no settings.

A query is one SELECT statement. DuckDB asks a source only for the columns that it needs, and hands its filters to
Arrow, which applies them to each batch. docs/reference/sql.md describes it for users.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError, WarpError
from warpdata.limits import MAX_QUERY_CONDITIONS, MAX_QUERY_LENGTH
from warpdata.primitives.parallel import CPU_POOL
from warpdata.query.duckdb import first_line, open_sealed, quoted, run_sealed
from warpdata.query.expansion import check_growth

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowSource", "SqlParameters", "list_sources", "run_query"]

SqlParameters: TypeAlias = Sequence[object] | Mapping[str, object]
"""Values of `?` and `$1`, or of `$name`."""

_BATCH_ROWS = 65_536
_SUGGESTION = re.compile(r" Did you mean \"pg_\w+\"\?")
"""DuckDB suggests its own catalog tables, which are no datasets."""
_POSITION = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^", re.DOTALL)


@dataclass(frozen=True)
class ArrowSource:
    """A table of a query. `read` yields the rows of some columns, and is called once for each use."""

    schema: pa.Schema
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


def list_sources(query: str) -> tuple[str, ...]:
    """Return the table names of a query that have a slash, which are addresses. Other names may be those of WITH.

    Raise `BadInputError` unless the query is one SELECT statement.
    """
    import duckdb

    if not isinstance(query, str) or not query.strip():
        raise _invalid("a query is an SQL text")
    if not query.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in query):
        raise _invalid("the query has characters that UTF-8 cannot hold")
    if len(query) > MAX_QUERY_LENGTH:
        raise LimitExceededError(f"the query has {len(query):,} characters; the limit is {MAX_QUERY_LENGTH:,}")
    try:
        statements = run_sealed(lambda cursor: cursor.extract_statements(query))
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            given = ", ".join(kind.name for kind in kinds) or "no statement"
            raise _invalid(f"a query is one SELECT statement, and not {given}")
        row = run_sealed(lambda cursor: cursor.execute(f"SELECT json_serialize_sql({quoted(query)})").fetchone())
    except duckdb.Error as error:
        raise _translated(error) from error
    try:
        parsed = json.loads(row[0]) if row else {}
        if parsed.get("error", True):
            raise _invalid(f"the query cannot be analysed: {parsed.get('error_message', 'no reason given')}")
        check_growth(parsed)
    except RecursionError:
        raise _invalid("the query is nested too deeply") from None
    if max(_condition_counts(parsed), default=0) > MAX_QUERY_CONDITIONS:
        raise _invalid(f"the query joins more than {MAX_QUERY_CONDITIONS:,} conditions by AND or OR; use IN instead")
    found = tuple(dict.fromkeys(name for name in _table_names(parsed) if "/" in name))
    spellings: dict[str, str] = {}
    for name in found:
        if spellings.setdefault(name.lower(), name) != name:
            raise _invalid(f"{spellings[name.lower()]!r} and {name!r} are one name in SQL, which ignores case")
    return found


def _table_names(tree: object) -> Iterator[str]:
    """Yield the names of all tables in a parsed query, in its order."""
    return (node["table_name"] for node in _nodes(tree) if node.get("type") == "BASE_TABLE")


def _condition_counts(tree: object) -> Iterator[int]:
    """Yield the number of conditions of each AND and OR. Arrow evaluates them nested, and thousands end the process."""
    return (len(node["children"]) for node in _nodes(tree) if node.get("class") == "CONJUNCTION")


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Yield all nodes of a parsed query, in its order."""
    nodes = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            yield node
            nodes.extend(reversed(node.values()))
        elif isinstance(node, list):
            nodes.extend(reversed(node))


def run_query(
    query: str, sources: Mapping[str, ArrowSource], parameters: SqlParameters | None, memory_bytes: int
) -> pa.RecordBatchReader:
    """Run a query whose table names are keys of `sources`, and return its rows as a stream.

    Rows are read while the result is. A query beyond `memory_bytes` fails; nothing is written to disk.
    """
    import duckdb
    import pyarrow as pa

    failures: list[WarpError] = []
    connection = open_sealed(memory_bytes, CPU_POOL.size)
    try:
        for name, source in sources.items():
            connection.register(name, _dataset_class()(source, failures))
        given = list(parameters) if isinstance(parameters, Sequence) else parameters
        reader = connection.execute(query, given).to_arrow_reader(_BATCH_ROWS)
        schema = reader.schema
    except (duckdb.Error, pa.ArrowException) as error:
        connection.close()
        raise _first(failures, error) from error
    except BaseException:
        connection.close()
        raise

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise _first(failures, error) from error
        finally:
            connection.close()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _first(failures: Sequence[WarpError], error: Exception) -> WarpError:
    """Return the error of a source, which DuckDB reports only as text, or else that of DuckDB."""
    return failures[0] if failures else _translated(error)


def _dataset_class() -> type:
    """Return a dataset class of Arrow that asks a source for columns. DuckDB recognizes subclasses of this type."""
    import pyarrow as pa
    import pyarrow.dataset as arrow_dataset

    class SourceDataset(arrow_dataset.Dataset):  # type: ignore[misc]
        def __init__(self, source: ArrowSource, failures: list[WarpError]) -> None:
            self._source, self._failures = source, failures

        @property
        def schema(self) -> pa.Schema:
            return self._source.schema

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: object) -> Any:  # noqa: A002
            wanted = self.schema.names if columns is None else list(columns)
            read = wanted or self.schema.names[:1]
            schema = pa.schema([self.schema.field(name) for name in read])
            reader = pa.RecordBatchReader.from_batches(schema, self._guarded(read))
            return arrow_dataset.Scanner.from_batches(reader, columns=wanted, filter=filter)

        def _guarded(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            try:
                yield from self._source.read(columns)
            except WarpError as error:
                self._failures.append(error)
                raise

    return SourceDataset


def _translated(error: Exception) -> WarpError:
    """Return a typed error with the line and column in the query, if DuckDB names them."""
    import duckdb

    text = first_line(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        return LimitExceededError(
            f"the query needs more memory than its limit: {text.splitlines()[0]}",
            hint="Pass a larger memory_limit, or select fewer rows and columns.",
        )
    if isinstance(error, duckdb.PermissionException):
        return _invalid("a query reads only published tables, no files and no network", text.splitlines()[0])
    found = _POSITION.search(text)
    message = text[: found.start()] if found else text.split("\n\nLINE", 1)[0]
    where = ""
    if found is not None:
        line, shown, spaces = int(found[1]), found[2], len(found[3])
        column = spaces - len(f"LINE {line}: ") + 1
        where = f" at line {line}" + ("" if shown.startswith("...") else f", column {column}")
    return _invalid(f"{_SUGGESTION.sub('', ' '.join(message.split()))}{where}")


def _invalid(message: str, detail: str | None = None) -> BadInputError:
    text = message if detail is None else f"{message}: {detail}"
    hint = "Write one SELECT over names such as 'acme/photos@v1'."
    return BadInputError(text, hint=hint, kind=ErrorKind.INVALID_QUERY)
