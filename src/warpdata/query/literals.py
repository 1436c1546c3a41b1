"""Constants of filters: Python values, checked, and written as SQL literals.

A literal has one meaning whatever the value: quotes are doubled, bytes are escaped, and floats are written as DOUBLE,
never as a decimal that SQL would round to the type of a column.
"""

from __future__ import annotations

import math
import reprlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, ErrorKind
from warpdata.query.duckdb import quoted

__all__ = ["Value", "as_value", "quote_value"]

Value: TypeAlias = bool | int | float | str | bytes | date | Decimal
"""A constant of a filter. A datetime is a date."""

_MAX_INTEGER = 2**127 - 1
_MAX_DIGITS = 38
_EXACT = (bool, int, float, str, bytes, date, datetime, Decimal)


def as_value(value: Any) -> Value:
    """Return a constant as a plain Python value: scalars of NumPy and subclasses become their base type.

    `BadInputError` for other types, and for values that no SQL literal has.
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = _of_numpy(value)
    plain = value if type(value) in _EXACT else _plain(value)
    _check(plain)
    return _in_utc(plain) if isinstance(plain, datetime) else plain


def quote_value(value: Value | None) -> str:
    """Return the SQL literal of a value that `as_value` returned."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        text = repr(value)
        return f"{text}e0" if math.isfinite(value) and "e" not in text else text if math.isfinite(value) else _odd(text)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return f"'{''.join(f'{chr(92)}x{byte:02X}' for byte in value)}'::BLOB"
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None).isoformat(" ")
        return f"TIMESTAMP '{naive}'" if value.tzinfo is None else f"TIMESTAMPTZ '{naive}+00'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return format(value, "f")


def _in_utc(moment: datetime) -> datetime:
    """Return a zoned time in UTC, and a naive one as it is. `fold` matters only to the zone."""
    try:
        return (moment if moment.tzinfo is None else moment.astimezone(UTC)).replace(fold=0)
    except OverflowError as error:
        raise _refused(moment, "times of a filter are in the years 1 to 9999 of UTC") from error


def _odd(text: str) -> str:
    return f"'{text}'::DOUBLE"


def _of_numpy(value: Any) -> Any:
    import numpy as np

    if value.dtype.kind != "M":
        return value.item()
    exact = value.astype("M8[us]")
    if np.isnat(value) or exact != value:
        raise _refused(value, "times of a filter have microseconds")
    return exact.item()


def _plain(value: Any) -> Value:
    """Return an instance of a subclass as its base type, such as a member of an enumeration with text values."""
    if isinstance(value, datetime):
        if getattr(value, "nanosecond", 0):
            raise _refused(value, "times of a filter have microseconds")
        fields = (value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond)
        return datetime(*fields, tzinfo=value.tzinfo, fold=value.fold)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return str.__str__(value)
    for base in (int, float, bytes, Decimal):
        if isinstance(value, base):
            plain: Value = base(value)  # type: ignore[arg-type]  # of its own base
            return plain
    raise _refused(value, "a value of a filter is a bool, int, float, str, bytes, date, datetime or Decimal")


def _check(value: Value) -> None:
    if isinstance(value, str) and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise _refused(value, "SQL text has neither NUL characters nor lone surrogates")
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise _refused(value, "integers of a filter have at most 128 bits")
    if isinstance(value, Decimal):
        digits = len(format(value, "f").strip("-").replace(".", "")) if value.is_finite() else 0
        if not 0 < digits <= _MAX_DIGITS:
            raise _refused(value, f"decimals of a filter are finite and have at most {_MAX_DIGITS} digits")


def _refused(value: Any, expected: str) -> BadInputError:
    found = f"{reprlib.repr(value)} ({type(value).__name__})"
    return BadInputError(f"{expected}, not {found}", kind=ErrorKind.INVALID_FILTER)
