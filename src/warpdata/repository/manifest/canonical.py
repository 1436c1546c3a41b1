"""Canonical JSON: one spelling for one value, so that equal content has equal hashes.

UTF-8, keys sorted by code point, no insignificant white space, integers within ±(2^53 − 1), strings as given
(never re-normalised). Fractions are not allowed, because languages print them differently.
Implements "Canonical JSON" of docs/specs/manifest.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from warpdata.errors import BadInputError
from warpdata.limits import MAX_JSON_DEPTH

__all__ = ["Json", "JsonObject", "canonical_json"]

Json: TypeAlias = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
JsonObject: TypeAlias = Mapping[str, Json]

_MAX_INTEGER = 2**53 - 1


def canonical_json(value: Json, *, fractions: bool = False) -> bytes:
    """Encode a value. Raise `BadInputError` with the JSON path of anything that has no canonical form.

    `fractions` allows finite floats, for values that are stored but not hashed.
    """
    if not _is_canonical(value):
        _check(value, "$", 0, fractions)
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 8) : error.end]
        raise BadInputError(f"a string has an unpaired surrogate: {near!r}") from error


def _is_canonical(value: Json) -> bool:
    """Return whether `_check` accepts the value, level by level. Builds no paths: almost every value is accepted.

    False also for unusual values, such as fractions, which `_check` decides.
    """
    level: list[Json] = [value]
    for depth in range(MAX_JSON_DEPTH + 1):
        following: list[Json] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int:
                if not -_MAX_INTEGER <= item <= _MAX_INTEGER:  # type: ignore[operator]
                    return False
            elif depth == MAX_JSON_DEPTH:
                return False
            elif kind is dict:
                for key in item:  # type: ignore[union-attr]
                    if type(key) is not str:
                        return False
                following.extend(item.values())  # type: ignore[union-attr]
            elif kind is list or kind is tuple:
                following.extend(item)  # type: ignore[arg-type]
            else:
                return False
        if not following:
            return True
        level = following
    return False


def _check(value: Json, path: str, depth: int, fractions: bool) -> None:
    if depth > MAX_JSON_DEPTH:
        raise BadInputError(f"{path} is nested deeper than {MAX_JSON_DEPTH} levels")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if abs(value) > _MAX_INTEGER:
            raise BadInputError(f"{path} = {value} does not fit in 53 bits")
    elif isinstance(value, float):
        if not fractions or not math.isfinite(value):
            raise BadInputError(f"{path} = {value!r} has no canonical form; write it as a string")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadInputError(f"{path} has the key {key!r}, which is not a string")
            _check(item, f"{path}.{key}", depth + 1, fractions)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1, fractions)
    else:
        raise BadInputError(f"{path} is a {type(value).__name__}, which has no JSON form")


def _plain(value: object) -> object:
    """Encode read-only mappings as objects."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
