"""JSON of other tools: decoded fast, and its parts checked with their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from warpdata.errors import CorruptError

__all__ = ["decode_foreign", "list_of", "object_of"]


def decode_foreign(data: bytes, where: str) -> Any:
    """Return the value of a JSON text. `CorruptError` if it is damaged or nested too deep."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{where} is not valid JSON: {error}") from error


def list_of(body: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """Return a member that is a list; an absent one is empty."""
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise CorruptError(f"{where}: {name} is a list, not {type(found).__name__}")
    return found


def object_of(value: Any, where: str) -> Mapping[str, Any]:
    """Return a value that is an object."""
    if not isinstance(value, dict):
        raise CorruptError(f"{where} is an object, not {type(value).__name__}")
    return value
