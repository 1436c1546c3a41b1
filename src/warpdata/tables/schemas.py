"""Which schemas belong together, and which column somebody may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from warpdata.errors import ColumnNotFoundError, SchemaMismatchError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_columns", "check_same_schema", "check_unique", "near_columns"]

_SHOWN = 5


_AGREE = "Make the files agree, or pass rewrite=True to convert them to one schema."


def check_same_schema(first: pa.Schema, first_name: str, other: pa.Schema, other_name: str, hint: str = _AGREE) -> None:
    """All shards of a table have the same columns and types; their order and metadata may differ."""
    ours, theirs = set(first.names), set(other.names)
    problems = [f"column {name!r} is missing from {other_name}" for name in first.names if name not in theirs]
    problems += [f"column {name!r} is only in {other_name}" for name in other.names if name not in ours]
    for name in first.names:
        if name in theirs and first.field(name).type != other.field(name).type:
            here, there = first.field(name).type, other.field(name).type
            problems.append(f"column {name!r} is {here} in {first_name}, but {there} in {other_name}")
    if problems:
        more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
        raise SchemaMismatchError(
            "; ".join(problems[:_SHOWN]) + more,
            hint=hint,
        )


def check_unique(schema: pa.Schema, where: str) -> None:
    """Names must differ, also when case is ignored, because SQL ignores it."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.get(name.lower())
        if other is not None:
            raise SchemaMismatchError(f"{where} has two columns that SQL cannot tell apart: {other!r} and {name!r}")
        seen[name.lower()] = name


def check_columns(wanted: Iterable[str], schema: pa.Schema) -> list[str]:
    """The wanted names, each once, all of them existing."""
    out = list(dict.fromkeys(wanted))
    existing = set(schema.names)
    for name in out:
        if name not in existing:
            raise ColumnNotFoundError(f"there is no column {name!r}", hint=near_columns(name, schema.names))
    return out


def near_columns(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"The columns are: {shown}"
