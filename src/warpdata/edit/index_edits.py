"""Indexes during edits of columns. Edits of rows leave indexes as they are: new files are not covered.

An index is found by the table and the column in its attributes, so indexes of newer releases follow their columns too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from warpdata.repository.manifest import Payload

__all__ = ["drop_indexes", "rename_indexes"]


def drop_indexes(indexes: Mapping[str, Payload], table: str, column: str) -> dict[str, Payload]:
    """Return the indexes without those of a column."""
    return {name: entry for name, entry in indexes.items() if not _is_of(entry, table, column)}


def rename_indexes(indexes: Mapping[str, Payload], table: str, column: str, new_column: str) -> dict[str, Payload]:
    """Return the indexes, with those of a column under its new name. Their own names stay."""
    return {
        name: replace(entry, attributes={**entry.attributes, "column": new_column})
        if _is_of(entry, table, column)
        else entry
        for name, entry in indexes.items()
    }


def _is_of(entry: Payload, table: str, column: str) -> bool:
    return (entry.attributes.get("table"), entry.attributes.get("column")) == (table, column)
