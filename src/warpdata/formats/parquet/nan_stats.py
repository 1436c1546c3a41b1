"""NaN metadata: the footer lists the float columns that are known to have no NaN.

SQL orders NaN above every number, but Parquet statistics ignore NaN. So statistics can rule out `x > 2` only if `x`
has no NaN. A writer sees all values and records this in the footer. Implements "NaN" of docs/specs/tables.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.errors import InvalidSourceError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NanTracker", "check_nan_metadata", "columns_without_nan", "strip_nan_metadata"]

_KEY = b"warpdata:no_nan"


class NanTracker:
    """Observes all rows of one file while they are written."""

    def __init__(self, schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        wanted = set(schema.names if columns is None else columns)
        self._without_nan = [field.name for field in schema if field.name in wanted and _is_float(field.type)]

    def observe(self, rows: pa.Table) -> None:
        self._without_nan = [name for name in self._without_nan if not _has_nan(rows[name])]

    def metadata(self) -> dict[bytes, bytes]:
        """Return the footer's NaN metadata; empty if no column qualifies, so that most files stay unchanged."""
        return {_KEY: json.dumps(self._without_nan, ensure_ascii=False).encode()} if self._without_nan else {}


def columns_without_nan(metadata: Mapping[bytes, bytes] | None) -> frozenset[str]:
    """Return the columns that the footer lists. A value that is not a list of names counts as empty."""
    try:
        names = json.loads((metadata or {}).get(_KEY, b"[]"))
    except (ValueError, RecursionError):
        return frozenset()
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return frozenset(names) if is_list else frozenset()


def strip_nan_metadata(schema: pa.Schema) -> pa.Schema:
    """Return the schema without our NaN key, so that derived tables do not inherit it."""
    kept = {key: value for key, value in (schema.metadata or {}).items() if key != _KEY}
    return schema if len(kept) == len(schema.metadata or {}) else schema.with_metadata(kept or None)


def check_nan_metadata(path: Path) -> None:
    """Raise `InvalidSourceError` if the footer lists a column that has NaN.

    Arrow copies the footer's metadata to tables. A program that reads a file, changes rows and writes them with
    Arrow therefore copies a list that may be false.
    """
    import pyarrow as pa

    try:
        name = _find_listed_nan(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidSourceError(f"{path} cannot be read: {error}") from error
    if name is not None:
        raise InvalidSourceError(
            f"the footer of {path} says that column {name!r} has no NaN, but the column has NaN",
            hint="Pass rewrite=True to write the rows again, with a correct footer.",
        )


def _find_listed_nan(path: Path) -> str | None:
    """Return the first column that is listed although it has NaN."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        listed = columns_without_nan(file.metadata.metadata)
        names: list[str] = [field.name for field in file.schema_arrow if field.name in listed and _is_float(field.type)]
        for batch in file.iter_batches(columns=names) if names else ():
            for name in names:
                if _has_nan(batch[name]):
                    return name
    return None


def _is_float(arrow_type: pa.DataType) -> bool:
    import pyarrow as pa

    return arrow_type in (pa.float32(), pa.float64())


def _has_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    return pc.any(pc.is_nan(values)).as_py() is True
