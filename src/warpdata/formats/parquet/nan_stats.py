"""Which columns of a Parquet file are known to hold no NaN, told by the file itself.

SQL puts NaN above every number, and Parquet's statistics leave it out. So they can rule out `x > 2`
only where it is known that there is no NaN. A writer sees all values, and says so in the footer.
Implements "NaN" of docs/specs/tables.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NanWatch", "check_told", "columns_without_nan", "told_nothing"]

_KEY = b"warpdata:no_nan"


class NanWatch:
    """Looks at all rows of one file while they are written."""

    def __init__(self, schema: pa.Schema, only: Sequence[str] | None = None) -> None:
        wanted = set(schema.names if only is None else only)
        self._clean = [field.name for field in schema if field.name in wanted and _is_float(field.type)]

    def look_at(self, rows: pa.Table) -> None:
        self._clean = [name for name in self._clean if not _has_nan(rows[name])]

    def told(self) -> dict[bytes, bytes]:
        """What to add to the footer; nothing where nothing is known, so that most files stay as they were."""
        return {_KEY: json.dumps(self._clean, ensure_ascii=False).encode()} if self._clean else {}


def columns_without_nan(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """What a footer tells; what is not a list of names tells nothing."""
    try:
        names = json.loads((metadata or {}).get(_KEY, b"[]"))
    except (ValueError, RecursionError):
        return frozenset()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return frozenset(names) if is_list else frozenset()


def told_nothing(schema: pa.Schema) -> pa.Schema:
    """Without what the footer tells, which Arrow hands on as metadata: other rows would inherit it."""
    kept = {key: value for key, value in (schema.metadata or {}).items() if key != _KEY}
    return schema if len(kept) == len(schema.metadata or {}) else schema.with_metadata(kept or None)


def check_told(path: Path) -> None:
    """`InvalidSourceError` if a file says that a column has no NaN, and it has one.

    Who reads a file with Arrow, changes it and writes it again hands on what the first footer told.
    """
    import pyarrow as pa

    try:
        name = _first_with_nan(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} cannot be read: {error}") from error
    if name is not None:
        raise InvalidSourceError(
            f"{path} says that column {name!r} has no NaN, but it has: its rows were changed since",
            hint="Pass rewrite=True to write the rows anew.",
        )


def _first_with_nan(path: Path) -> str | None:
    """The name of a column of which the footer tells something false."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        told = columns_without_nan(file.metadata.metadata)
        names: list[str] = [field.name for field in file.schema_arrow if field.name in told and _is_float(field.type)]
        for batch in file.iter_batches(columns=names) if names else ():
            for name in names:
                if _has_nan(batch[name]):
                    return name
    return None


def _is_float(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return kind in (pa.float32(), pa.float64())


def _has_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return pc.any(pc.is_nan(values)).as_py() is True
