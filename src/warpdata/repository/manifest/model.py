"""The parts of a version: frozen values, no I/O, no behaviour beyond sums.

The fields are those of docs/specs/manifest.md. A manifest has thousands of shards and pages, so msgspec decodes
them directly. All sections but tables share one shape, `Payload`, and keep what is particular to a kind in its
`attributes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    "ColumnFile",
    "Deletes",
    "External",
    "Footer",
    "Ids",
    "Manifest",
    "ManifestEntry",
    "Page",
    "Payload",
    "SchemaChange",
    "Shard",
    "ShardList",
    "TableEntry",
]

FORMAT = 2
"""The newest manifest format that this code reads and writes. A manifest without edits is written in format 1."""

PAYLOAD_SECTIONS = ("artifacts", "episodes", "tensors", "indexes")
"""The sections of a manifest that hold payloads. Each is a field of `Manifest`."""


class Footer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tail of a Parquet file or index, with a checksum, so that one range read can be verified."""

    byte_size: int
    xxh3: str


class Ids(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sample ids of a shard, in the order of its stored rows. Exactly one form is present.

    `first`: consecutive ids. `runs`: pairs of a first id and a count. `hash` and `byte_size`: a blob with the runs.
    """

    first: int | None = None
    runs: tuple[tuple[int, int], ...] | None = None
    hash: str | None = None
    byte_size: int | None = None

    @property
    def blob(self) -> Blob | None:
        return None if self.hash is None else Blob(self.hash, self.byte_size or 0)


class Deletes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The deleted rows of a shard, by position in its file: a few positions, or a blob with a bitmap."""

    row_count: int
    positions: tuple[int, ...] | None = None
    hash: str | None = None
    byte_size: int | None = None

    @property
    def blob(self) -> Blob | None:
        return None if self.hash is None else Blob(self.hash, self.byte_size or 0)


class ColumnFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file with further columns of a shard, in the same row groups."""

    hash: str
    byte_size: int
    footer: Footer | None = None
    revision: int = 0

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)


class External(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a shard that was registered without a copy."""

    uri: str
    etag: str | None = None


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stored file of a table or payload. Shards of tables have a row count and a footer.

    `row_count` counts the rows that readers see; the file also has the deleted ones. `revision` is the number of
    schema changes that the file already reflects.
    """

    hash: str
    byte_size: int
    row_count: int | None = None
    footer: Footer | None = None
    revision: int = 0
    ids: Ids | None = None
    deletes: Deletes | None = None
    files: tuple[ColumnFile, ...] = ()
    external: External | None = None

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)

    @property
    def stored_count(self) -> int:
        """The rows in the file: those that readers see, and the deleted ones."""
        return (self.row_count or 0) + self.deleted_count

    @property
    def deleted_count(self) -> int:
        return 0 if self.deletes is None else self.deletes.row_count

    @property
    def data_bytes(self) -> int:
        """The size of all its Parquet files."""
        return self.byte_size + sum(file.byte_size for file in self.files)

    @property
    def format(self) -> int:
        """The oldest manifest format that can describe this shard."""
        is_plain = self.ids is None and self.deletes is None and self.external is None
        return 1 if is_plain and not self.files and not self.revision else 2

    def blobs(self) -> Iterator[Blob]:
        """Yield every blob of the store that a reader of this shard needs."""
        if self.external is None:
            yield self.blob
        yield from (file.blob for file in self.files)
        for part in (self.ids, self.deletes):
            if part is not None and part.blob is not None:
                yield part.blob


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to a blob that lists shards or further pages, with the sums over its entries."""

    hash: str
    byte_size: int
    shard_count: int
    row_count: int
    data_bytes: int
    deleted_count: int = 0
    format: int = 1

    @property
    def blob(self) -> Blob:
        return Blob(self.hash, self.byte_size)

    @property
    def stored_count(self) -> int:
        return self.row_count + self.deleted_count


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
    def deleted_count(self) -> int:
        return sum(entry.deleted_count for entry in self._entries)

    @property
    def stored_count(self) -> int:
        """The rows in all files, including the deleted ones."""
        return self.row_count + self.deleted_count

    @property
    def data_bytes(self) -> int:
        return sum(entry.data_bytes for entry in self._entries)

    @property
    def format(self) -> int:
        """The oldest manifest format that can describe this list."""
        return max((entry.format for entry in self._entries), default=1)

    @property
    def _entries(self) -> tuple[Shard | Page, ...]:
        return (*self.shards, *self.pages)


class SchemaChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column that was dropped or renamed. Files with an older revision still have it under the name `column`."""

    column: str
    renamed_to: str | None = None


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table. `schema` names its columns, unless the names take too many bytes.

    `next_id` is the sample id of the next appended row; None if it equals the number of stored rows.
    """

    shards: ShardList
    format: str = "parquet"
    schema: JsonObject | None = None
    changes: tuple[SchemaChange, ...] = ()
    next_id: int | None = None

    @property
    def id_counter(self) -> int:
        """The sample id of the next appended row."""
        return self.shards.stored_count if self.next_id is None else self.next_id

    def reserving_ids(self, counter: int) -> TableEntry:
        """Return the same table, whose next appended row has at least this sample id."""
        return replace(self, next_id=counter) if counter > self.id_counter else self

    @property
    def manifest_format(self) -> int:
        """The oldest manifest format that can describe this table."""
        return 2 if self.changes or self.next_id is not None else self.shards.format

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
    generations: Mapping[str, str] = field(default_factory=dict)
    """The generations of blobs that are not stored under their plain key, by hash."""
    memo: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of the encoder. They follow from the other fields, so `replace` begins without them."""

    def __repr__(self) -> str:
        named = {section: sorted(entries) for section, entries in self.sections().items() if entries}
        return short_repr("Manifest", self.dataset_id, bindings=len(self.bindings), **named)

    @property
    def format(self) -> int:
        """The oldest format that can describe this version. It is the one that is written."""
        tables = [table.manifest_format for table in self.tables.values()]
        payloads = [entry.shards.format for section in self.payloads().values() for entry in section.values()]
        return max([1, *tables, *payloads, *([2] if self.generations else [])])

    @property
    def row_count(self) -> int:
        return sum(table.shards.row_count for table in self.tables.values())

    @property
    def data_bytes(self) -> int:
        return sum(shards.data_bytes for shards in self.shard_lists())

    def reserving_ids(self, counters: Mapping[str, int]) -> Manifest:
        """Return the same version, in which the next rows of these tables have at least these sample ids."""
        tables = {name: entry.reserving_ids(counters.get(name, 0)) for name, entry in self.tables.items()}
        return replace(self, tables=tables)

    def sections(self) -> Mapping[str, Mapping[str, ManifestEntry]]:
        """Return all entries by section and name: tables first, then payloads."""
        return {"tables": self.tables, **self.payloads()}

    def payloads(self) -> Mapping[str, Mapping[str, Payload]]:
        """Return the payloads by section and name."""
        return {section: getattr(self, section) for section in PAYLOAD_SECTIONS}

    def shard_lists(self) -> list[ShardList]:
        return [entry.shards for entries in self.sections().values() for entry in entries.values()]
