"""Fixtures of the artifact tests: artifacts in memory, and readers that return wrong bytes on purpose."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from warpdata.kinds.artifacts import (
    Artifact,
    ArtifactBackend,
    ArtifactEntry,
    FilesInput,
    MemberIndex,
    PackedMember,
    PackedShard,
    ShardSpec,
    cut_shards,
    list_sources,
    scan_tar,
    write_index,
)
from warpdata.limits import ARTIFACT_SHARD_BYTES, COALESCE_GAP_BYTES
from warpdata.primitives.hashing import Blob, blob_key, fingerprint_file
from warpdata.repository.manifest import Footer, Page, Shard, page_shards
from warpdata.settings import Settings
from warpdata.storage import ByteRange, Reader, Writer, open_store
from warpdata.testing import FaultyStore

__all__ = [
    "MIB",
    "NearCopy",
    "Stored",
    "Watched",
    "flipped",
    "is_allowed",
    "member_paths",
    "memory",
    "open_index",
    "recipes",
    "store_artifact",
    "store_tars",
]

MIB = 2**20


def is_allowed(path: str) -> bool:
    """Return whether a member path is allowed. Shorter than the code under test."""
    return not {"", ".", ".."} & set(path.split("/"))


_tricky = st.sampled_from("aab\x01é\u00e9e\u0301ß\u4e2d\uffff\U00010000\U0001f600/ .\n=")
_letters = _tricky | st.characters(codec="utf-8", exclude_characters="\0")
member_paths = st.text(_letters, min_size=1, max_size=12).filter(is_allowed)
"""Names that are allowed, among them many that are easily confused."""


def memory() -> FaultyStore:
    """An empty store in memory that counts what is asked of it."""
    url = f"memory://{secrets.token_hex(8)}"
    return FaultyStore(open_store(url, Settings(store_url=url, cache_dir=Path("unused"))))


@dataclass(frozen=True, slots=True)
class Stored:
    """An artifact whose blobs are in `store`."""

    store: Writer
    entry: ArtifactEntry
    shards: tuple[Blob, ...]
    pages: Mapping[str, bytes]

    def open(self, reader: Reader | None = None) -> Artifact:
        """Open the artifact with empty caches."""
        return Artifact("media", self.entry, self.origin(reader))

    def origin(self, reader: Reader | None = None) -> ArtifactBackend:
        return ArtifactBackend(reader or self.store, self._load_page, self.open, _no_extract)

    def bytes_of(self, blob: Blob) -> bytes:
        return b"".join(self.store.stream(blob_key(blob.hash)))

    def _load_page(self, page: Page) -> bytes:
        return self.pages[page.hash]


def _no_extract(content: bytes) -> Path:
    raise AssertionError(f"unexpected extraction of {len(content)} bytes")


def recipes(
    source: FilesInput,
    kind: str = "tar_shards",
    compression: str | None = None,
    shard_bytes: int = ARTIFACT_SHARD_BYTES,
) -> list[ShardSpec]:
    sources = list_sources(source)
    if kind == "files":
        return [ShardSpec((one,), number, None, is_archive=False) for number, one in enumerate(sources)]
    parts = cut_shards(sources, shard_bytes)
    return [ShardSpec(tuple(part), number, compression) for number, part in enumerate(parts)]


def store_artifact(
    store: Writer,
    source: FilesInput,
    folder: Path,
    *,
    kind: str = "tar_shards",
    compression: str | None = None,
    shard_bytes: int = ARTIFACT_SHARD_BYTES,
) -> Stored:
    """Packed, measured, written and indexed as a publish would do it."""
    packed: list[PackedShard] = []
    for recipe in recipes(source, kind, compression, shard_bytes):
        packed.append(recipe.measure())
        path = folder / "shard"
        recipe.write(path, packed[-1].fingerprint)
        store.create_file(blob_key(packed[-1].fingerprint.blob.hash), path, packed[-1].fingerprint)
    return _indexed(store, packed, folder, kind, compression)


def store_tars(store: Writer, paths: Sequence[Path], folder: Path) -> Stored:
    """Existing archives, taken as they are."""
    packed = [scan_tar(path, number) for number, path in enumerate(paths)]
    for path, shard in zip(paths, packed, strict=True):
        store.create_file(blob_key(shard.fingerprint.blob.hash), path, shard.fingerprint)
    return _indexed(store, packed, folder, "webdataset_shards", None)


def _indexed(store: Writer, packed: Sequence[PackedShard], folder: Path, kind: str, compression: str | None) -> Stored:
    members = sorted((one for shard in packed for one in shard.members), key=lambda one: one.member.path.encode())
    written = write_index(members, len(packed), folder / "members")
    fingerprint = fingerprint_file(written.path)
    store.create_file(blob_key(fingerprint.blob.hash), written.path, fingerprint)
    blobs = tuple(shard.fingerprint.blob for shard in packed)
    listed = page_shards(Shard(blob.hash, blob.byte_size) for blob in blobs)
    entry = ArtifactEntry(kind, listed.shards, fingerprint.blob, written.footer, written.member_count, compression)
    return Stored(store, entry, blobs, listed.new_pages)


def open_index(store: Writer, members: Iterable[PackedMember], folder: Path) -> tuple[MemberIndex, bytes, Footer]:
    """The index as the project reads it, and what a second reader needs."""
    written = write_index(members, 3, folder / "members")
    fingerprint = fingerprint_file(written.path)
    store.create_file(blob_key(fingerprint.blob.hash), written.path, fingerprint)
    return MemberIndex(store, fingerprint.blob, written.footer), written.path.read_bytes(), written.footer


class Watched(FaultyStore):
    """A store that remembers which bytes were asked for."""

    def __init__(self, store: Writer) -> None:
        super().__init__(store)
        self.asked: list[tuple[str, ByteRange]] = []

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self.asked.append((key, span))
        return super().read_range(key, span)

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        self.asked.extend((key, span) for span in spans)
        return super().read_ranges(key, spans, gap_bytes=gap_bytes)


class NearCopy(FaultyStore):
    """A store with cached copies of some objects.

    A copy is dropped when it is invalidated; if `refills`, it is there again at once, as bad as before.
    """

    def __init__(self, store: Writer, copies: Mapping[str, bytes], *, refills: bool = False) -> None:
        super().__init__(store)
        self._copies = dict(copies)
        self._refills = refills
        self.distrusted: list[str] = []

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        copy = self._copies.get(key)
        if copy is None:
            return super().read_ranges(key, spans, gap_bytes=gap_bytes)
        return [memoryview(copy)[span.start : span.end] for span in spans]

    def invalidate(self, key: str) -> bool:
        self.distrusted.append(key)
        if self._refills:
            return True
        return self._copies.pop(key, None) is not None


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    """The same bytes, one bit of them other."""
    out = bytearray(data)
    out[position] ^= 1 << bit
    return bytes(out)
