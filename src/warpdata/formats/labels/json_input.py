"""JSON of other tools: decoded fast, and its parts checked with their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from warpdata.errors import BadInputError, CorruptError

__all__ = ["decode_foreign", "decode_members", "list_of", "object_of", "pairs", "triples"]


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_members(data: bytes, where: str) -> dict[str, msgspec.Raw] | None:
    """Return the members of a JSON object, which are not decoded; None for another value. `CorruptError` if damaged."""
    try:
        return _members.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptError(f"{where} is not valid JSON: {error}") from error


def decode_foreign(data: bytes | msgspec.Raw, where: str) -> Any:
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


def pairs(ring: Any) -> list[tuple[Any, Any]]:
    """Return the points of a flat list of x and y in turn."""
    if not isinstance(ring, list) or len(ring) % 2:
        raise BadInputError("an outline is a list of x and y in turn")
    return list(zip(ring[::2], ring[1::2], strict=True))


def triples(values: Any) -> list[tuple[Any, ...]]:
    """Return the points of a flat list of x, y and visibility in turn."""
    if not isinstance(values, list) or len(values) % 3:
        raise BadInputError("keypoints are a list of x, y and visibility in turn")
    return list(zip(values[::3], values[1::3], values[2::3], strict=True))
