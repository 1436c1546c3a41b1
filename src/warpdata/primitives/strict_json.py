"""JSON from outside, read strictly: one meaning for every text, or a refusal.

No key twice, no NaN or infinity, no number that float64 cannot hold, no half surrogate pair, no endless
nesting, UTF-8 only. Every format here reads its JSON through this; what a document must hold, and which
numbers it may hold within that range, is the business of its own parser.
"""

from __future__ import annotations

import json
import math
from typing import Any

from warpdata.errors import CorruptError
from warpdata.limits import MAX_JSON_DEPTH

__all__ = ["decode_json", "fits_float64", "unique_keys"]

# The smallest integer that float64 rounds to infinity.
_FLOAT64_END = 2**1024 - 2**970


def decode_json(data: bytes | memoryview, what: str, *, max_depth: int = MAX_JSON_DEPTH) -> Any:
    """The value, or `CorruptError` that says what is wrong with `what`."""
    raw = bytes(data)
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
        _check(value, max_depth)
        if b"\\u" in raw:
            # Half a surrogate pair can only come from an escape, and could never be written again.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{what} is not valid JSON: {error}") from error
    return value


def fits_float64(value: int) -> bool:
    """Return whether the integer, rounded to float64, stays finite. Digits may be lost."""
    return -_FLOAT64_END < value < _FLOAT64_END


def _check(value: Any, max_depth: int) -> None:
    """Check numbers and nesting, level by level."""
    level = [value]
    for _ in range(max_depth + 1):
        following: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                following.extend(item.values())
            elif kind is list:
                following.extend(item)
            elif kind is int and not fits_float64(item):
                raise ValueError(f"the number {str(item)[:40]} does not fit in float64")
        if not following:
            return
        level = following
    raise ValueError(f"nested deeper than {max_depth} levels")


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of a JSON decoder. `ValueError` if a key appears twice: one value would be lost."""
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"the key {key!r} appears twice in one object")
        out[key] = value
    return out


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} does not fit in float64")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


# Made once: setting up a decoder takes longer than decoding a small document.
_DECODER = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=_refuse_constant, parse_float=_finite)
