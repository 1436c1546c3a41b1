"""Values of fields: the Arrow type of each field, and the values that it accepts.

Every value is checked when it is given, so that a wrong one is named before anything is written.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.errors import SchemaMismatchError
from warpdata.kinds.artifacts import FileRef
from warpdata.samples.fields import (
    ArrowField,
    Boolean,
    Categorical,
    Embedding,
    Field,
    Float,
    Integer,
    MediaField,
    Tags,
    Text,
    Timestamp,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MediaInput", "arrow_type", "convert"]

MediaInput: TypeAlias = bytes | Path
"""The content of a file, or the path of one on this machine."""

_SHOWN = 80


def arrow_type(field: Field) -> pa.DataType:
    """Return the type of the column. Media are columns of member paths."""
    import pyarrow as pa

    if isinstance(field, ArrowField):
        return field.type
    if isinstance(field, Embedding):
        value_type = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}[field.dtype]
        return pa.list_(value_type, field.dim)
    if isinstance(field, MediaField):
        return pa.string()
    plain = {
        Text: pa.string(),
        Categorical: pa.string(),
        Tags: pa.list_(pa.string()),
        Timestamp: pa.timestamp("us", tz="UTC"),
        Integer: pa.int64(),
        Float: pa.float64(),
        Boolean: pa.bool_(),
    }
    return plain[type(field)]


def convert(field: Field, value: Any) -> Any:
    """Return the value to store; for media, the content. Raise `SchemaMismatchError` if it does not fit."""
    if isinstance(field, ArrowField):
        return _by_arrow(field, value)
    if isinstance(field, Embedding):
        return _vector(field, value)
    if isinstance(field, MediaField):
        return _media(field, value)
    return _PLAIN[type(field)](value)


def _mismatch(expected: str, value: object) -> SchemaMismatchError:
    text = repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return SchemaMismatchError(f"expected {expected}, found {type(value).__name__} {shown}")


def _media(field: MediaField, value: Any) -> MediaInput:
    if isinstance(value, FileRef):
        return value.read_bytes()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | Path):
        path = Path(value).expanduser()
        if "\0" not in str(path) and path.is_file():
            return path
        raise SchemaMismatchError(f"{str(path)!r} is not a file", hint="Give bytes, or the path of a file.")
    raise _mismatch(f"{field.ref_type} content as bytes, or the path of a file", value)


def _vector(field: Embedding, value: Any) -> Any:
    import numpy as np

    expected = f"a vector of {field.dim} numbers"
    try:
        given = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        raise _mismatch(expected, value) from None
    if given.dtype.kind not in "fiu":
        raise _mismatch(expected, value)
    if given.shape != (field.dim,):
        raise SchemaMismatchError(f"expected {expected}, found the shape {given.shape}")
    with np.errstate(over="ignore"):
        vector = given.astype(field.dtype)
    if not np.array_equal(np.isfinite(given), np.isfinite(vector)):
        raise SchemaMismatchError(f"a number of the vector is too large for {field.dtype}")
    return vector


def _by_arrow(field: ArrowField, value: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.scalar(value, field.type).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise _mismatch(f"a value of type {field.type}", value) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _mismatch("a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _mismatch("a string of valid Unicode", value) from None
    return value


def _tags(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        raise _mismatch("a list of strings", value)
    return [_text(tag) for tag in value]


def _time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        error = _mismatch("a datetime", value)
        error.hint = "Make one from text with datetime.fromisoformat()." if isinstance(value, str) else None
        raise error
    if value.tzinfo is None:
        hint = "Use datetime.now(UTC), or replace(tzinfo=UTC)."
        raise SchemaMismatchError(f"{value.isoformat()} has no time zone", hint=hint)
    if getattr(value, "nanosecond", 0):
        raise _mismatch("a time in whole microseconds", value)
    at = value.astimezone(UTC)
    return datetime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, tzinfo=UTC)


def _integer(value: Any) -> int:
    import numpy as np

    if isinstance(value, bool | np.bool_):
        raise _mismatch("an integer", value)
    try:
        number = operator.index(value)
    except TypeError:
        raise _mismatch("an integer", value) from None
    if not -(2**63) <= number < 2**63:
        raise _mismatch("an integer of 64 bits", value)
    return number


def _float(value: Any) -> float:
    import numpy as np

    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise _mismatch("a number", value)
    try:
        return float(value)
    except OverflowError:
        raise _mismatch("a number of 64 bits", value) from None


def _boolean(value: Any) -> bool:
    import numpy as np

    if not isinstance(value, bool | np.bool_):
        raise _mismatch("True or False", value)
    return bool(value)


_PLAIN: dict[type[Field], Callable[[Any], Any]] = {
    Text: _text,
    Categorical: _text,
    Tags: _tags,
    Timestamp: _time,
    Integer: _integer,
    Float: _float,
    Boolean: _boolean,
}
