"""JSON of metadata blocks: read strictly, written in one canonical form.

The canonical form defines the identity of an episode: keys sorted by their UTF-8 bytes, no spaces, and only the
escapes of RFC 8785. Implements "JSON" of docs/specs/wshard.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, CorruptError, LimitExceededError
from warpdata.limits import MAX_JSON_DEPTH, WSHARD_MAX_JSON_BYTES
from warpdata.primitives.strict_json import decode_json, fits_float64

__all__ = ["Json", "JsonObject", "decode_object", "encode_json", "is_count", "same_json"]

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = Mapping[str, Json]


def encode_json(value: Json) -> bytes:
    """Encode a value in canonical form.

    `BadInputError` for values that no reader accepts: NaN, integers beyond float64, lone surrogates, deep nesting,
    other types.
    """
    try:
        _check(value, 0)
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_to_dict
        )
        data = text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the metadata cannot be written as JSON: {error}") from error
    if len(data) > WSHARD_MAX_JSON_BYTES:
        raise LimitExceededError(f"the metadata has {len(data)} bytes; the most is {WSHARD_MAX_JSON_BYTES}")
    return data


def decode_object(data: bytes | memoryview, what: str) -> dict[str, Any]:
    """Decode one JSON object without duplicate keys, NaN, numbers beyond float64, or deep nesting."""
    if len(data) > WSHARD_MAX_JSON_BYTES:
        raise LimitExceededError(f"{what} has {len(data)} bytes; the most is {WSHARD_MAX_JSON_BYTES}")
    try:
        value = decode_json(data, what)
    except CorruptError as error:
        raise CorruptError(error.message) from error
    if not isinstance(value, dict):
        raise CorruptError(f"{what} is a JSON {type(value).__name__}, not an object")
    return value


def is_count(value: object, most: int) -> bool:
    """Return whether the value is an integer from 0 to `most`. `True` is not."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def same_json(left: Json, right: Json) -> bool:
    """Return whether both values have the same canonical form, so that 1, 1.0 and true differ."""
    return encode_json(left) == encode_json(right)


def _check(value: object, depth: int) -> None:
    if depth > MAX_JSON_DEPTH:
        raise ValueError(f"nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
            _check(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, int) and not fits_float64(value):
        raise ValueError("an integer does not fit in float64")


def _to_dict(value: object) -> object:
    """Convert read-only mappings, which `json` does not accept."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
