"""What a version is made of: frozen values, no I/O, no behaviour beyond sums.

The fields are those of docs/specs/manifest.md. What comes by the thousand (shards, pages) is decoded from
JSON as it is. Sections that a payload kind owns (artifacts, episodes, tensors, indexes) share one shape,
`Payload`, and keep what is particular to a kind in its `attributes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from warpdata.limits import MAX_LISTED_NAMES_BYTES
from warpdata.primitives.hashing import Blob
from warpdata.repository.manifest.canonical import JsonObject

__all__ = ["FORMAT", "Binding", "Footer", "Manifest", "Page", "Payload", "Shard", "ShardList", "TableEntry"]

FORMAT = 1
"""The manifest format this code writes. Readers refuse what is newer."""


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tail of a Parquet file, and a checksum of its own, so that one range read can be believed."""

    byte_size: int
    xxh3: str


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stored file of a table or payload. Tables know their rows and footers."""

    hash: str
    byte_size: int
    row_count: int | None = None
    footer: Footer | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a blob that lists shards, or further pages, with the sums of what it lists."""

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
    """Shards in order: inline while few (`levels` 0), else behind `levels` levels of pages."""

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
    """`schema` names the columns of the table's first shard, unless they are too many."""

    shards: ShardList
    format: str = "parquet"
    schema: JsonObject | None = None

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """As far as the manifest tells."""
        names = None if self.schema is None else self.schema.get("columns")
        if not isinstance(names, Sequence) or isinstance(names, str):
            return None
        found = tuple(name for name in names if isinstance(name, str))
        return found if len(found) == len(names) else None

    @staticmethod
    def listing(names: Sequence[str]) -> JsonObject | None:
        """A `schema` that tells these names; None where they would take too much room."""
        room = sum(len(name.encode()) + 3 for name in names)
        return {"columns": list(names)} if room <= MAX_LISTED_NAMES_BYTES else None


@dataclass(frozen=True, slots=True)
class Payload:
    """An artifact, episode set, tensor set or index."""

    kind: str
    shards: ShardList
    index: Blob | None = None
    attributes: JsonObject = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Binding:
    """Says that a table column holds references into an artifact."""

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
    """Free words about the version; not part of its identity."""

    @property
    def row_count(self) -> int:
        return sum(table.shards.row_count for table in self.tables.values())

    @property
    def data_bytes(self) -> int:
        return sum(shards.data_bytes for shards in self.shard_lists())

    def payloads(self) -> Mapping[str, Mapping[str, Payload]]:
        """The sections that hold payloads, by section name."""
        return {
            "artifacts": self.artifacts,
            "episodes": self.episodes,
            "tensors": self.tensors,
            "indexes": self.indexes,
        }

    def shard_lists(self) -> list[ShardList]:
        lists = [table.shards for table in self.tables.values()]
        for section in self.payloads().values():
            lists.extend(payload.shards for payload in section.values())
        return lists
