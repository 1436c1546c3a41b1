"""The parts of a version: frozen values, no I/O, no behaviour beyond sums.

The fields are those of docs/specs/manifest.md. A manifest has thousands of shards and pages, so msgspec decodes
them directly. All sections but tables share one shape, `Payload`, and keep what is particular to a kind in its
`attributes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from warpdata.limits import MAX_LISTED_NAMES_BYTES
from warpdata.primitives.hashing import Blob
from warpdata.primitives.reprs import short_repr
from warpdata.repository.manifest.canonical import JsonObject

__all__ = [
    "FORMAT",
    "PAYLOAD_SECTIONS",
    "Binding",
    "Footer",
    "Manifest",
    "ManifestEntry",
    "Page",
    "Payload",
    "Shard",
    "ShardList",
    "TableEntry",
]

FORMAT = 1
"""The manifest format that this code writes. Readers refuse newer formats."""

PAYLOAD_SECTIONS = ("artifacts", "episodes", "tensors", "indexes")
"""The sections of a manifest that hold payloads. Each is a field of `Manifest`."""


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tail of a Parquet file or index, with a checksum, so that one range read can be verified."""

    byte_size: int
    xxh3: str


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stored file of a table or payload. Shards of tables have a row count and a footer."""

    hash: str
    byte_size: int
    row_count: int | None = None
    footer: Footer | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a blob that lists shards or further pages, with the sums over its entries."""

    hash: str
    byte_size: int
    shard_count: int
    row_count: int
    data_bytes: int

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)


@dataclass(frozen=True, slots=True)
class ShardList:
    """Shards in order: inline if `levels` is 0, else behind that many levels of pages."""

    shards: tuple[Shard, ...] = ()
    pages: tuple[Page, ...] = ()
    levels: int = 0

    @property
    def shard_count(self) -> int:
        return len(self.shards) + sum(page.shard_count for page in self.pages)

    @property
    def row_count(self) -> int:
        return sum(shard.row_count or 0 for shard in self.shards) + sum(page.row_count for page in self.pages)

    @property
    def data_bytes(self) -> int:
        return sum(shard.byte_size for shard in self.shards) + sum(page.data_bytes for page in self.pages)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table. `schema` names the columns of its first shard, unless the names take too many bytes."""

    shards: ShardList
    format: str = "parquet"
    schema: JsonObject | None = None

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The columns that the manifest names; None if it names none."""
        names = None if self.schema is None else self.schema.get("columns")
        if not isinstance(names, Sequence) or isinstance(names, str):
            return None
        found = tuple(name for name in names if isinstance(name, str))
        return found if len(found) == len(names) else None

    @staticmethod
    def listing(names: Sequence[str]) -> JsonObject | None:
        """Return a `schema` with these names; None if they take too many bytes."""
        size_bytes = sum(len(name.encode()) + 3 for name in names)
        return {"columns": list(names)} if size_bytes <= MAX_LISTED_NAMES_BYTES else None


@dataclass(frozen=True, slots=True)
class Payload:
    """An artifact, episode set, tensor set or index."""

    kind: str
    shards: ShardList
    index: Blob | None = None
    attributes: JsonObject = field(default_factory=lambda: MappingProxyType({}))


ManifestEntry: TypeAlias = TableEntry | Payload


@dataclass(frozen=True, slots=True)
class Binding:
    """Declares that a table column holds references into an artifact."""

    table: str
    column: str
    artifact: str
    ref_type: str


@dataclass(frozen=True, slots=True)
class Manifest:
    dataset_id: str
    tables: Mapping[str, TableEntry] = field(default_factory=dict)
    artifacts: Mapping[str, Payload] = field(default_factory=dict)
    episodes: Mapping[str, Payload] = field(default_factory=dict)
    tensors: Mapping[str, Payload] = field(default_factory=dict)
    indexes: Mapping[str, Payload] = field(default_factory=dict)
    bindings: tuple[Binding, ...] = ()
    metadata: JsonObject = field(default_factory=dict)
    """Free text about the version. It is not part of the version hash."""

    def __repr__(self) -> str:
        named = {section: sorted(entries) for section, entries in self.sections().items() if entries}
        return short_repr("Manifest", self.dataset_id, bindings=len(self.bindings), **named)

    @property
    def row_count(self) -> int:
        return sum(table.shards.row_count for table in self.tables.values())

    @property
    def data_bytes(self) -> int:
        return sum(shards.data_bytes for shards in self.shard_lists())

    def sections(self) -> Mapping[str, Mapping[str, ManifestEntry]]:
        """Return all entries by section and name: tables first, then payloads."""
        return {"tables": self.tables, **self.payloads()}

    def payloads(self) -> Mapping[str, Mapping[str, Payload]]:
        """Return the payloads by section and name."""
        return {section: getattr(self, section) for section in PAYLOAD_SECTIONS}

    def shard_lists(self) -> list[ShardList]:
        return [entry.shards for entries in self.sections().values() for entry in entries.values()]
