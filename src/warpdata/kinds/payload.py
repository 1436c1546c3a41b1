"""The protocol of payload kinds, and the registry of those there are.

A version holds named entries in sections: tables, artifacts, episodes, tensors, indexes. A kind knows everything
about the entries of one section: how to parse, open, stage, describe, merge and verify them. `publish`, `datasets` and
the command line loop over sections and call the kind. A new kind is one package and one line in `_REGISTRY`.

Blobs are not a matter of kinds: every entry refers to shards, pages and perhaps an index, and the manifest alone
lists them. So garbage collection and `warp verify` need no code of a kind. See docs/decisions/0017-payload-kinds.md.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from warpdata.errors import InvalidSourceError, NotFoundError, UnsupportedError
from warpdata.jobs import Job
from warpdata.primitives.hashing import Blob, Fingerprint, fingerprint_file
from warpdata.primitives.progress import Progress, ProgressCounter
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.repository.catalog import VersionRef
from warpdata.repository.manifest import LoadPage, Manifest, ManifestEntry, Shard
from warpdata.session import Session

__all__ = [
    "ChooseSide",
    "EntryInfo",
    "LazyBlob",
    "MemoryBlob",
    "PayloadKind",
    "Side",
    "StageContext",
    "StagedBlob",
    "StagedEntry",
    "VersionContext",
    "copied_blob",
    "entries_by_kind",
    "hash_file",
    "merge_item",
    "payload_kind",
    "pick_entry",
    "shards_of",
]

_REGISTRY = {
    "tables": "warpdata.kinds.tables.kind:TABLES",
    "artifacts": "warpdata.kinds.artifacts.kind:ARTIFACTS",
    "episodes": "warpdata.kinds.episodes.kind:EPISODES",
    "tensors": "warpdata.kinds.tensors.kind:TENSORS",
    "indexes": "warpdata.kinds.indexes.kind:INDEXES",
}
"""The kind of each section, imported on first use: some need NumPy. In the order in which entries are staged."""

Side: TypeAlias = Literal["ours", "theirs"]

ChooseSide: TypeAlias = Callable[[str], Side]
"""Returns the side to keep of an item that both sides changed, by path or id. May be called twice for an item."""

EntryT = TypeVar("EntryT")
OpenedT = TypeVar("OpenedT")


@dataclass(frozen=True, slots=True)
class VersionContext:
    """An opened version, for kinds to open its entries. Its session finds blobs of later generations, see `of`."""

    session: Session
    ref: VersionRef
    manifest: Manifest
    load_page: LoadPage

    @staticmethod
    def of(session: Session, ref: VersionRef) -> VersionContext:
        """Read the manifest of a version, and open a session that finds its blobs."""
        manifest = session.catalog.manifest(ref)
        session = session.at_generations(manifest.generations)
        return VersionContext(session, ref, manifest, session.catalog.load_page)

    def __repr__(self) -> str:
        return short_repr("VersionContext", self.ref.dataset_id, version=self.ref.version[:12])


class EntryInfo(Protocol):
    """The description of an entry: a dataclass with these fields and those of its kind."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


class LazyBlob(Protocol):
    """Content that is written to a file only when it is uploaded."""

    def write(self, path: Path, expected: Fingerprint) -> Fingerprint:
        """Write the content, and return the fingerprint of the file, whose blob is the expected one.

        Raise `InvalidSourceError` if the content has changed since it was hashed.
        """
        ...


@dataclass(frozen=True, slots=True)
class MemoryBlob:
    """Small content that stays in memory until it is uploaded, because files cost more than their bytes."""

    data: bytes

    def write(self, path: Path, expected: Fingerprint) -> Fingerprint:
        """Write the content to a file, for a reader that needs one."""
        path.write_bytes(self.data)
        return expected


@dataclass(frozen=True, slots=True)
class StagedBlob:
    """A blob to upload: the file at `path`, or lazy content that `path` only names."""

    path: Path
    fingerprint: Fingerprint
    content: LazyBlob | None = None


class _CopiedContent(LazyBlob, Protocol):
    @property
    def blob(self) -> Blob: ...


@dataclass(frozen=True, slots=True)
class StagedEntry:
    """An entry that is hashed but not uploaded. `entry` has no shards yet; the manifest builder adds `shards`.

    `item_count` counts the rows, files, episodes or tensors.
    """

    entry: ManifestEntry
    shards: tuple[Shard, ...]
    blobs: tuple[StagedBlob, ...]
    item_count: int


@dataclass(frozen=True, slots=True)
class StageContext:
    """The surroundings of staging. `directory` exists until the publish ends.

    `find_directory` returns it, and makes it if nothing needed it before. `referenced_paths` returns some values of the
    columns that are bound to an artifact.
    """

    find_directory: Callable[[], Path]
    progress: Progress
    referenced_paths: Callable[[str], Iterable[str]] = lambda _: ()
    job: Job | None = None
    """The job whose workers make blobs, and store them before the commit."""

    @property
    def directory(self) -> Path:
        return self.find_directory()


class PayloadKind(ABC, Generic[EntryT, OpenedT]):
    """Operations on the entries of one section of a manifest. Stateless."""

    section: ClassVar[str]
    noun: ClassVar[str]
    """One entry, in messages: "no table 'x'"."""
    plural: ClassVar[str]
    item: ClassVar[str]
    """One of the things that an entry holds: row, file, episode, tensor."""
    count_field: ClassVar[str]
    """The field of `describe()` that counts items."""
    default_name: ClassVar[str | None] = None
    """The entry that is opened without a name if there are several."""
    is_derived: ClassVar[bool] = False
    """Entries only repeat what other entries hold, so a conflict about one never ends a merge."""
    columns: ClassVar[tuple[tuple[str, str], ...]]
    """Headings and fields of `describe()`, for listings. A heading with ">" is right-aligned."""

    @abstractmethod
    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        """Return the error for an entry that a version does not have."""

    @abstractmethod
    def parse(self, name: str, entry: ManifestEntry) -> EntryT:
        """Check an entry of a manifest and return it typed.

        Raise `ManifestCorruptedError` or `UnsupportedError` if a reader cannot work with it. Pure.
        """

    @abstractmethod
    def open(self, version: VersionContext, name: str | None = None) -> OpenedT:
        """Open an entry, found like `pick_entry` does. Reads little or nothing."""

    @abstractmethod
    def describe(self, name: str, entry: ManifestEntry) -> EntryInfo:
        """Return the facts that `Dataset.info()` lists. Pure."""

    @abstractmethod
    def stage(self, name: str, source: Any, context: StageContext) -> StagedEntry:
        """Read what a builder was given, and return the blobs to upload.

        Raise `InvalidSourceError` with the file that cannot be published. Reads every byte once.
        """

    def merge(self, base: ManifestEntry | None, staged: StagedEntry) -> ManifestEntry:
        """Return the entry that `staged.shards` are added to. By default, the staged entry replaces the old one.

        Called again with another base when another writer commits first.
        """
        return staged.entry

    def edit(
        self, version: VersionContext, name: str, added: Any, removed: Sequence[str], context: StageContext
    ) -> StagedEntry:
        """Return the stored entry with items added, and others removed by path or id. `item_count` counts the added.

        `version` may have blobs that are not uploaded yet. By default, `UnsupportedError`.
        """
        raise UnsupportedError(f"{self.plural} cannot be edited", hint=f"Publish the {self.noun} again.")

    def added_shards(self, base: ManifestEntry | None, staged: StagedEntry) -> Sequence[Shard]:
        """Return the shards to add to the entry that `merge` returned. By default, those of the staged entry."""
        return staged.shards

    def merge_sides(
        self,
        name: str,
        sides: tuple[VersionContext, VersionContext, VersionContext],
        choose: ChooseSide,
        context: StageContext,
    ) -> StagedEntry | None:
        """Merge an entry that two versions changed, item by item. `sides` are the base, ours and theirs.

        None if items of this entry cannot be merged, as by default. The base may lack the entry.
        """
        return None

    def check_append(self, version: VersionContext, name: str, staged: StagedEntry) -> None:
        """Raise `SchemaMismatchError` if the staged entry cannot be added to the stored one."""

    def locate_corruption(self, version: VersionContext, name: str, corrupt: Collection[Blob]) -> Iterator[str]:
        """Yield which parts of an entry some corrupt blobs affect, for `warp verify`. By default, nothing."""
        return iter(())


def merge_item(key: str, contents: tuple[object, object, object], choose: ChooseSide) -> Side:
    """Return the side that has the merged item. `contents` are those of base, ours and theirs; None for no item."""
    before, mine, other = contents
    if other in (before, mine):
        return "ours"
    return "theirs" if mine == before else choose(key)


def payload_kind(section: str) -> PayloadKind[Any, Any]:
    """Return the kind of a section, such as "tables". Imports it on first use."""
    module, _, name = _REGISTRY[section].partition(":")
    return cast("PayloadKind[Any, Any]", getattr(importlib.import_module(module), name))


def entries_by_kind(manifest: Manifest) -> Iterator[tuple[PayloadKind[Any, Any], Mapping[str, ManifestEntry]]]:
    """Yield each kind that the manifest has entries of, with the entries in order of their names."""
    sections = manifest.sections()
    for section in _REGISTRY:
        if sections[section]:
            yield payload_kind(section), dict(sorted(sections[section].items()))


def pick_entry(kind: PayloadKind[EntryT, Any], manifest: Manifest, name: str | None) -> tuple[str, EntryT]:
    """Return the entry of that name, parsed; without a name, the default entry or the only one.

    Raise `kind.not_found()` with similar names, or all names, as the hint.
    """
    entries = manifest.sections()[kind.section]
    names = sorted(entries)
    if name is None and len(names) == 1:
        name = names[0]
    name = name or kind.default_name
    if name is None:
        hint = f"Name one of: {', '.join(names)}." if names else None
        raise kind.not_found(f"{manifest.dataset_id} has {len(names)} {kind.plural}", hint)
    if name not in entries:
        hint = suggest(name, names, label=kind.section.capitalize())
        raise kind.not_found(f"{manifest.dataset_id} has no {kind.noun} {name!r}", hint)
    return name, kind.parse(name, entries[name])


def shards_of(blobs: Sequence[StagedBlob]) -> tuple[Shard, ...]:
    """Return the blobs as shards without rows."""
    return tuple(Shard(blob.hash, blob.byte_size) for blob in (staged.fingerprint.blob for staged in blobs))


def copied_blob(name: str, content: _CopiedContent) -> StagedBlob:
    """Return a blob of another version, of an entry with this name. Its quick hash is not known before it is copied."""
    return StagedBlob(Path(name, content.blob.hash), Fingerprint(content.blob, ""), content)


def hash_file(path: Path, counter: ProgressCounter) -> Fingerprint:
    """Hash a source file. Raise `InvalidSourceError` if it cannot be read."""
    try:
        return fingerprint_file(path, counter.add_bytes)
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror or error}") from error
