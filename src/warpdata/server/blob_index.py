"""Which blobs belong to which dataset, so that a blob is served only to those who may read a dataset that has it.

The digests of a dataset are sorted in memory, 32 bytes for each blob. They are those of all versions whose manifests
are stored. A look-up that misses reads the manifests that are new, and pages that versions share once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpdata.errors import CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.repository.catalog import manifest_key
from warpdata.repository.manifest import Manifest, Page, Payload, open_page, parse_manifest
from warpdata.storage import GenerationReader, Reader, read_blob

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BlobIndex", "manifest_blobs"]

_MEMORY_BYTES = 256 * 1024 * 1024
_WIDTH = 32
_USERS, _RECENT = 10_000, 16


class BlobIndex:
    """The blobs of datasets, built on demand. Safe to share between threads."""

    def __init__(self) -> None:
        self._datasets: ByteLRU[str, _DatasetBlobs] = ByteLRU(_MEMORY_BYTES)
        self._recent: ByteLRU[str, tuple[str, ...]] = ByteLRU(max_entries=_USERS)
        self._lock = threading.Lock()

    def note_use(self, user_id: str, dataset_id: str) -> None:
        """Remember that a user reads a dataset, so that its blobs are looked up there first."""
        known = self.recent(user_id)
        if known[:1] != (dataset_id,):
            others = tuple(one for one in known if one != dataset_id)
            self._recent.put(user_id, (dataset_id, *others)[:_RECENT])

    def recent(self, user_id: str) -> tuple[str, ...]:
        """Return the datasets that a user has read last. The caller checks that it still may."""
        return self._recent.get(user_id) or ()

    def has(self, reader: Reader, dataset_id: str, digest: str) -> bool:
        """Return whether a stored version of the dataset names the blob."""
        return not self.missing(reader, dataset_id, [digest])

    def is_known(self, dataset_id: str, digest: str) -> bool:
        """Return whether a version that was read before names the blob. Reads nothing."""
        found = self._datasets.get(dataset_id)
        return found is not None and digest in found

    def missing(self, reader: Reader, dataset_id: str, digests: Iterable[str]) -> list[str]:
        """Return those of the blobs that no stored version of the dataset names."""
        found = self._datasets.get_or_create(dataset_id, _DatasetBlobs)
        absent = [digest for digest in digests if digest not in found]
        if absent:
            with self._lock:  # one thread reads new manifests, others wait for its result
                _refresh(reader, dataset_id, found)
                self._datasets.put(dataset_id, found, found.size_bytes)
            absent = [digest for digest in absent if digest not in found]
        return absent


def _refresh(reader: Reader, dataset_id: str, blobs: _DatasetBlobs) -> None:
    """Add the blobs of versions that are new since the last time."""
    prefix = manifest_key(dataset_id, "").rpartition("/")[0]
    versions = {info.key.rpartition("/")[2].removesuffix(".json") for info in reader.list_objects(prefix)}
    if blobs.versions - versions:  # some were collected, and so may be their blobs
        blobs.clear()
    new = sorted(versions - blobs.versions)
    digests: list[bytes] = []
    for version in new:
        try:
            manifest = parse_manifest(reader.read(manifest_key(dataset_id, version)).data, version)
        except (ObjectNotFoundError, CorruptError, UnsupportedError):
            continue
        digests += [bytes.fromhex(digest) for digest in _walk(reader, manifest, blobs.pages)]
    if new:
        blobs.add(digests, versions)


@dataclass
class _DatasetBlobs:
    """Sorted digests, with the versions and pages that they come from."""

    versions: set[str] = field(default_factory=set)
    pages: set[str] = field(default_factory=set)
    sorted: NDArray[np.bytes_] | None = None

    def __contains__(self, digest: str) -> bool:
        import numpy as np

        if self.sorted is None:
            return False
        wanted = np.frombuffer(bytes.fromhex(digest), f"S{_WIDTH}")
        at = int(np.searchsorted(self.sorted, wanted)[0])
        return at < len(self.sorted) and bool(self.sorted[at] == wanted[0])

    @property
    def size_bytes(self) -> int:
        return (0 if self.sorted is None else self.sorted.nbytes) + 200 * (len(self.versions) + len(self.pages))

    def add(self, digests: Sequence[bytes], versions: set[str]) -> None:
        import numpy as np

        added = np.frombuffer(b"".join(digests), f"S{_WIDTH}")
        self.sorted = np.unique(added if self.sorted is None else np.concatenate([self.sorted, added]))
        self.versions = versions

    def clear(self) -> None:
        self.versions, self.pages, self.sorted = set(), set(), None


def manifest_blobs(reader: Reader, manifest: Manifest) -> set[str]:
    """Return the digests of all blobs of a version. A missing or damaged page is an error."""
    return set(_walk(reader, manifest, set(), is_strict=True))


def _walk(reader: Reader, manifest: Manifest, known: set[str], *, is_strict: bool = False) -> Iterator[str]:
    """Yield digests. Pages in `known` were walked before; those of this walk are added to it."""
    at = GenerationReader(reader, manifest.generations) if manifest.generations else reader
    for entries in manifest.sections().values():
        for entry in entries.values():
            if isinstance(entry, Payload) and entry.index is not None:
                yield entry.index.hash
            yield from (blob.hash for shard in entry.shards.shards for blob in shard.blobs())
            yield from _walk_pages(at, entry.shards.pages, entry.shards.levels, known, is_strict)


def _walk_pages(reader: Reader, pages: Iterable[Page], level: int, known: set[str], is_strict: bool) -> Iterator[str]:
    for page in pages:
        if page.hash in known:
            continue
        yield page.hash
        try:
            listed = open_page(page, read_blob(reader, page.blob), level - 1)
        except (ObjectNotFoundError, CorruptError):
            if is_strict:
                raise
            continue
        known.add(page.hash)
        for entry in listed:
            if isinstance(entry, Page):
                yield from _walk_pages(reader, [entry], level - 1, known, is_strict)
            else:
                yield from (blob.hash for blob in entry.blobs())
