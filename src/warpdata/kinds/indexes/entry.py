"""The manifest entry of an index: generic payload ↔ `IndexEntry`. Pure.

Implements "In the manifest" of docs/specs/indexes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from warpdata.errors import ManifestCorruptedError, UnsupportedError
from warpdata.formats.indexes import INDEX_KINDS
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest import Payload, ShardList

__all__ = ["IndexEntry", "Parameters"]

Parameters: TypeAlias = Mapping[str, int | str]

_KNOWN = {"table", "column", "parameters"}


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index of a column. `shards` are its segments, `index` is the blob of its directory."""

    kind: str
    table: str
    column: str
    shards: ShardList
    index: Blob
    parameters: Parameters = field(default_factory=dict)

    def payload(self) -> Payload:
        """Return the manifest form."""
        attributes: dict[str, str | dict[str, int | str]] = {"table": self.table, "column": self.column}
        if self.parameters:
            attributes["parameters"] = dict(sorted(self.parameters.items()))
        return Payload(self.kind, self.shards, self.index, attributes)

    @staticmethod
    def of(name: str, payload: Payload) -> IndexEntry:
        """Parse a payload.

        `UnsupportedError` for an index of another release, `ManifestCorruptedError` if a field is absent or wrong.
        """
        attributes = payload.attributes
        unknown = sorted(attributes.keys() - _KNOWN)
        if payload.kind not in INDEX_KINDS or unknown:
            raise UnsupportedError(
                f"index {name!r} has kind {payload.kind!r} and attributes {sorted(attributes)}, "
                "which this release does not support",
                hint="Upgrade warpdata, or drop the index.",
            )
        table, column = attributes.get("table"), attributes.get("column")
        parameters = attributes.get("parameters", {})
        if payload.index is None:
            raise ManifestCorruptedError(f"index {name!r} has no directory")
        if not isinstance(table, str) or not isinstance(column, str):
            raise ManifestCorruptedError(f"index {name!r} does not name a table and a column")
        if not isinstance(parameters, Mapping):
            raise ManifestCorruptedError(f"the parameters of index {name!r} are not an object")
        checked: dict[str, int | str] = {}
        for key, value in parameters.items():
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ManifestCorruptedError(f"parameter {key!r} of index {name!r} is neither an integer nor a text")
            checked[key] = value
        return IndexEntry(payload.kind, table, column, payload.shards, payload.index, checked)
