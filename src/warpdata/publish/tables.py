"""What people hand in as a table → Parquet files on this machine.

Files are taken as they are, byte for byte. Everything else (Arrow tables, batches, frames, rows) is
written once into a staging folder. Neighbouring in-memory parts become one run of files.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import InvalidSourceError
from warpdata.formats.parquet import ParquetSource, describe_all, read_unified, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableInput", "stage_table"]

TableInput: TypeAlias = Any
"""A path or glob, an Arrow table, batch, reader or anything with the Arrow stream protocol (pandas,
polars, DuckDB), a dict of columns, a list of dicts, an iterator of batches, or a list of these."""

_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class _Files:
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def stage_table(source: TableInput, folder: Path, name: str, *, rewrite: bool = False) -> list[ParquetSource]:
    """Files in table order, all readable and of one schema; `InvalidSourceError` says which is not."""
    parts = list(_parts(source, name))
    paths: list[Path] = []
    written: set[Path] = set()
    number = 0
    for is_files, group in groupby(parts, key=lambda part: isinstance(part, _Files)):
        run = list(group)
        if is_files:
            listed = [path for part in run if isinstance(part, _Files) for path in part.paths]
            if not rewrite:
                paths.extend(listed)
                continue
            schema, batches = read_unified(listed)
        else:
            rows = [part for part in run if isinstance(part, _Rows)]
            schema, batches = rows[0].schema, chain.from_iterable(part.batches for part in rows)
        made = list(write_parquet(batches, schema, folder, f"{name}-{number}"))
        paths.extend(made)
        written.update(made)
        number += 1
    return describe_all(paths, written)


def _parts(source: TableInput, name: str) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if isinstance(source, str | Path):
        yield _Files(_find(source))
    elif isinstance(source, pa.RecordBatch):
        yield _Rows(source.schema, [source])
    elif isinstance(source, pa.RecordBatchReader):
        yield _Rows(source.schema, source)
    elif isinstance(source, Mapping):
        yield _of_table(_arrow(lambda: pa.table(dict(source)), name))
    elif hasattr(source, "to_arrow") and type(source).__module__.startswith("polars"):
        yield _of_table(_arrow(source.to_arrow, name))
    elif hasattr(source, "__arrow_c_stream__"):
        yield _of_table(_arrow(lambda: pa.table(source), name))
    elif isinstance(source, list | tuple):
        yield from _list_parts(source, name)
    elif isinstance(source, Iterable):
        yield _of_iterator(iter(source), name)
    else:
        raise InvalidSourceError(
            f"table {name!r} cannot be made from a {type(source).__name__}",
            hint="Give a path or glob, an Arrow table or batches, a pandas or polars frame, or a list of these.",
        )


def _list_parts(items: list[Any] | tuple[Any, ...], name: str) -> Iterator[_Files | _Rows]:
    import pyarrow as pa

    if not items:
        raise InvalidSourceError(f"table {name!r} was given an empty list")
    if all(isinstance(item, Mapping) for item in items):
        yield _of_table(_arrow(lambda: pa.Table.from_pylist(list(items)), name))
        return
    for item in items:
        yield from _parts(item, name)


def _of_table(table: pa.Table) -> _Rows:
    return _Rows(table.schema, table.to_batches())


def _of_iterator(items: Iterator[Any], name: str) -> _Rows:
    """Batches (or whole tables) one after another; the first one tells the schema."""
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                yield item
            else:
                yield from _arrow(lambda item=item: pa.table(item), name).to_batches()

    stream = batches()
    first = next(stream, None)
    if first is None:
        raise InvalidSourceError(f"the iterator for table {name!r} gave no batch, so it has no schema")
    return _Rows(first.schema, chain([first], stream))


def _arrow(make: Any, name: str) -> pa.Table:
    import pyarrow as pa

    try:
        return make()
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidSourceError(f"table {name!r} cannot be turned into Arrow: {error}") from error


def _find(source: str | Path) -> tuple[Path, ...]:
    """A file, a folder's Parquet files, or a glob's, in name order."""
    path = Path(source).expanduser()
    text = str(path)
    if path.is_dir():
        found = sorted(path.rglob("*.parquet"))
    elif path.exists() or not _MAGIC & set(text):
        found = [path]
    else:
        found = sorted(Path(match) for match in glob.glob(text, recursive=True) if Path(match).is_file())  # noqa: PTH207
    if not found:
        raise InvalidSourceError(f"no file matches {text!r}", hint="Check the path; quote globs in a shell.")
    return tuple(found)
