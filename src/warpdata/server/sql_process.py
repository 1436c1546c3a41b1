"""One SQL query in a process of its own: `python -m warpdata.server.sql_process`, with the request on stdin.

The query itself is sealed: it reads published tables and nothing else. The process adds what a query cannot escape:
limits of memory and processor time by the system, and an end by the service when its time is up.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpdata.datasets import sql_reader
from warpdata.errors import BadInputError, ErrorKind, LimitExceededError, RateLimitedError, StorageError, WarpError
from warpdata.limits import GIB, MIB
from warpdata.server.cells import json_rows
from warpdata.session import Session, connect

__all__ = ["MAX_SQL_ROWS", "SqlAnswer", "SqlRequest", "run_isolated", "write_isolated"]

MAX_SQL_ROWS = 10_000
_MAX_ANSWER_BYTES = 32 * MIB
_QUERY_BYTES = 1 * GIB
_PROCESS_BYTES = 6 * GIB
"""Address space, of which Arrow and DuckDB reserve much more than they use."""
_TIMEOUT_S = 30
_WRITE_TIMEOUT_S = 600
_MAX_WRITTEN_BYTES = 4 * GIB
_CONCURRENT = 4
_WAIT_S = 10
_slots = threading.BoundedSemaphore(_CONCURRENT)


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A query over a store."""

    store: str
    mode: str
    query: str
    parameters: Sequence[Any] | Mapping[str, Any] | None
    max_rows: int
    target: str | None = None
    """The Parquet file that takes the rows, instead of the answer."""

    @property
    def timeout_s(self) -> int:
        return _TIMEOUT_S if self.target is None else _WRITE_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Rows as lists of values. `is_cut` tells that there are more."""

    columns: list[dict[str, str]]
    rows: list[list[Any]]
    is_cut: bool


def run_isolated(session: Session, query: str, parameters: Any, max_rows: int) -> SqlAnswer:
    """Run a query in a new process. `LimitExceededError` if it takes more time or memory than it may."""
    return SqlAnswer(**_run_process(SqlRequest(session.reader.url, session.mode.value, query, parameters, max_rows)))


def write_isolated(session: Session, query: str, target: Path) -> int:
    """Run a query in a new process that writes all of its rows to a Parquet file, and return their number."""
    request = SqlRequest(session.reader.url, session.mode.value, query, None, 0, str(target))
    return int(_run_process(request)["rows"])


def _run_process(request: SqlRequest) -> dict[str, Any]:
    if not _slots.acquire(timeout=_WAIT_S):
        raise RateLimitedError(f"{_CONCURRENT} queries are running", retry_after_s=_WAIT_S, hint="Try again soon.")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "warpdata.server.sql_process"],
            input=json.dumps(asdict(request)).encode(),
            capture_output=True,
            timeout=request.timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LimitExceededError(
            f"the query took more than {request.timeout_s} seconds",
            hint="Select fewer rows, or run it with `warp sql`.",
        ) from None
    finally:
        _slots.release()
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise LimitExceededError(
            "the query was ended, because it took more memory or time than it may", hint="Select fewer rows or columns."
        ) from None
    if "error" in answer:
        raise _rebuilt(answer["error"])
    return answer


def _rebuilt(error: Mapping[str, Any]) -> WarpError:
    """Return the error of the process in the class that decides the status of the answer."""
    kind = ErrorKind(error["kind"])
    known: Mapping[str, type[WarpError]] = {"BadInputError": BadInputError, "StorageError": StorageError}
    return known[error["group"]](error["message"], kind=kind, hint=error["hint"])


def _main() -> None:
    request = SqlRequest(**json.loads(sys.stdin.buffer.read()))
    _limit(request.timeout_s)
    try:
        answer = asdict(_run(request)) if request.target is None else {"rows": _write(request, request.target)}
    except WarpError as error:
        group = "StorageError" if isinstance(error, StorageError) else "BadInputError"
        answer = {"error": {"kind": error.kind, "group": group, "message": error.message, "hint": error.hint}}
    sys.stdout.write(json.dumps(answer))


def _limit(timeout_s: int) -> None:
    """Have the system end this process beyond its limits."""
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (_PROCESS_BYTES, _PROCESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (2 * timeout_s, 2 * timeout_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(request: SqlRequest) -> SqlAnswer:
    import pyarrow as pa

    session = connect(request.store, mode=request.mode)
    reader = sql_reader(request.query, request.parameters, store=session, memory_limit=_QUERY_BYTES)
    batches, row_count, size_bytes = [], 0, 0
    for batch in reader:
        batches.append(batch)
        row_count, size_bytes = row_count + batch.num_rows, size_bytes + batch.nbytes
        if row_count > request.max_rows or size_bytes > _MAX_ANSWER_BYTES:
            break
    reader.close()
    names = [f"c{at}" for at in range(len(reader.schema))]  # SQL allows two columns of one name, and a dict does not
    found = pa.Table.from_batches(batches, reader.schema).rename_columns(names).slice(0, request.max_rows)
    rows = [list(values.values()) for values, _ in json_rows(found)]
    columns = [{"name": field.name, "type": str(field.type)} for field in reader.schema]
    return SqlAnswer(columns, rows, is_cut=row_count > len(rows))


def _write(request: SqlRequest, target: str) -> int:
    import pyarrow.parquet as pq

    session, size_bytes, row_count = connect(request.store, mode=request.mode), 0, 0
    reader = sql_reader(request.query, None, store=session, memory_limit=_QUERY_BYTES)
    names = reader.schema.names
    if len(set(names)) < len(names):
        raise BadInputError("the query has two columns of one name", hint="Rename one with AS.")
    with pq.ParquetWriter(target, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            row_count, size_bytes = row_count + batch.num_rows, size_bytes + batch.nbytes
            if size_bytes > _MAX_WRITTEN_BYTES:
                raise BadInputError("the rows have more than 4 GiB", kind=ErrorKind.LIMIT_EXCEEDED)
    return row_count


if __name__ == "__main__":
    _main()
