"""Values as text: sizes, times, Arrow types and cells for people, rows as plain objects for JSON.

Text from a dataset may contain terminal escape sequences, so cells show control characters escaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from warpdata.cli.terminal import escape, escape_json
from warpdata.primitives.arrow_text import plain_column

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "bytes_text",
    "cell_text",
    "count_text",
    "escape",
    "plain_rows",
    "plain_values",
    "rate_text",
    "rows_text",
    "seconds_text",
    "section_noun",
    "short",
    "short_id",
    "time_text",
    "to_json",
    "type_text",
]

_MAX_CELL_ITEMS = 24
_MAX_CELL_LENGTH = 200
_MAX_FLOAT_LENGTH = 12
_PREFIXES = ("k", "M", "G", "T", "P")


def bytes_text(size_bytes: float) -> str:
    """Format a size in decimal units with three digits: `1.24 MB`."""
    return f"{size_bytes:.0f} B" if size_bytes < 1000 else f"{_scaled(size_bytes)}B"


def rows_text(count: float) -> str:
    """Format a number of rows with three digits: `1.24 M rows`."""
    return f"{count:.0f} rows" if count < 1000 else f"{_scaled(count)} rows"


def _scaled(value: float) -> str:
    for prefix in _PREFIXES:
        value /= 1000
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {prefix}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 row`, `1,797 rows`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def seconds_text(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def rate_text(count: int, seconds: float, noun: str) -> str:
    """Format a rate with two significant digits, the precision of a short measurement."""
    rate = count / max(seconds, 1e-9)
    rounded = int(float(f"{rate:.2g}"))
    return f"{rounded:,} {noun}/s"


def section_noun(section: str) -> str:
    """Return the noun for one entry of a manifest section: `table`, `artifact`, `episodes`, `tensors`, `index`."""
    irregular = {"indexes": "index", "episodes": "episodes", "tensors": "tensors"}
    return irregular.get(section, section.removesuffix("s"))


def short(digest: str) -> str:
    """Return the first 12 digits of a hash, which identify a version in practice."""
    return digest[:12]


def short_id(artifact_id: str) -> str:
    """Shorten the id of a tensor artifact: the first digits of the index hash and of the data hash."""
    return ":".join(part[:14] for part in artifact_id.split(":"))


def time_text(moment: datetime) -> str:
    """Format a time in the local time zone, to the minute."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def type_text(kind: pa.DataType) -> str:
    """Format an Arrow type: `uint8[64]` instead of `fixed_size_list<element: uint8>[64]`."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return f"{type_text(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{type_text(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{escape(field.name)} {type_text(field.type)}" for field in kind)
        return f"struct<{fields}>"
    if pa.types.is_dictionary(kind):
        return f"{type_text(kind.value_type)} (dictionary)"
    if isinstance(kind, pa.ExtensionType) and (ref_type := getattr(kind, "ref_type", None)):
        return f"ref<{escape(ref_type)}>"
    return escape(str(kind))


def cell_text(value: Any) -> str:
    """Format one value on one line, truncated if it is long."""
    if isinstance(value, str):
        return escape(value[:_MAX_CELL_LENGTH]) + ("…" if len(value) > _MAX_CELL_LENGTH else "")
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        exact = repr(value)
        return exact if len(exact) <= _MAX_FLOAT_LENGTH else f"{value:.9g}"
    if isinstance(value, bytes):
        return f"<{bytes_text(len(value))}>"
    if isinstance(value, Mapping):
        shown = ", ".join(
            f"{escape(str(key))}: {cell_text(item)}" for key, item in islice(value.items(), _MAX_CELL_ITEMS)
        )
        return f"{{{shown}{', …' if len(value) > _MAX_CELL_ITEMS else ''}}}"
    if isinstance(value, list | tuple):
        shown = ", ".join(cell_text(item) for item in value[:_MAX_CELL_ITEMS])
        return f"[{shown}{', …' if len(value) > _MAX_CELL_ITEMS else ''}]"
    return escape(str(value))


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dicts with values that `to_json` can encode, with or without pandas installed."""
    import pyarrow as pa

    columns = [plain_column(column) for column in batch.columns]
    rows: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=batch.schema.names).to_pylist()
    return rows


def plain_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column for `cell_text`. float16 and float32 become their shortest decimal text."""
    import pyarrow as pa

    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        column = column.cast(pa.float32()).cast(pa.string())
    values: list[Any] = plain_column(column).to_pylist()
    return values


def to_json(value: Any, *, indent: int = 0) -> bytes:
    """Encode as JSON that is safe on a terminal. Decimals become text, bytes base64, and NaN null."""
    import msgspec

    encoded = escape_json(msgspec.json.encode(value, enc_hook=str))
    return msgspec.json.format(encoded, indent=indent) if indent else encoded
