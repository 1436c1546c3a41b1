"""Marking: every object that a kept version needs, in all datasets of a store.

Reads manifests and pages, and no data. A dataset that cannot be read stops the collection, because what it needs is
unknown. Implements "Roots" of docs/specs/gc.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from warpdata.errors import CorruptError, NotFoundError, ObjectNotFoundError, UnsupportedError, WarpError
from warpdata.primitives.hashing import Blob
from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog import PINS_PREFIX, Pin, manifest_key, read_pin, read_tombstone
from warpdata.repository.gc.history import DatasetHistory, choose_kept, list_dataset_ids, read_history
from warpdata.repository.gc.retention import Retention
from warpdata.repository.gc.tagged_digests import TaggedDigests
from warpdata.repository.manifest import Manifest, Page, Payload, paged_blobs, parse_manifest
from warpdata.storage import GenerationReader, Reader, read_blob

__all__ = ["EXPIRED", "ORPHANED", "GarbageGroup", "LiveObjects", "MarkedDataset", "list_pins", "mark"]

ORPHANED = "orphan"
"""The reason for objects that no commit of a branch or label refers to."""
EXPIRED = "expired"
"""The reason for versions of the history that the rule does not keep."""
_LIVE = 0
_PARALLEL_READS = 16
_CHUNK = 4096
_MAX_GROUPS = 65_535


@dataclass(frozen=True, slots=True)
class GarbageGroup:
    """The origin of garbage, for the report. Blobs that no manifest names have no dataset."""

    dataset_id: str | None
    reason: str


@dataclass(frozen=True)
class MarkedDataset:
    """A history with the versions that are kept."""

    history: DatasetHistory
    kept: AbstractSet[str]

    def reason(self, version: str) -> str:
        """Return why a version that is not kept goes."""
        return EXPIRED if version in self.history.committed else ORPHANED


class LiveObjects:
    """The result of marking. Blobs of garbage have the group that they come from; live ones have none."""

    def __init__(self) -> None:
        self.datasets: dict[str, MarkedDataset] = {}
        self.groups: list[GarbageGroup] = [GarbageGroup(None, "")]
        self.blobs = TaggedDigests()
        self.generations: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, blobs: Iterable[Blob], generations: Mapping[str, str], group: int = _LIVE) -> None:
        """Add blobs of one version, in chunks."""
        digests = (blob.hash for blob in blobs)
        while chunk := list(islice(digests, _CHUNK)):
            plain = [digest for digest in chunk if digest not in generations]
            names = [f"{digest}.{generations[digest]}" for digest in chunk if digest in generations]
            with self._lock:
                self.blobs.update(plain, group)
                for name in names:
                    self.generations[name] = min(group, self.generations.get(name, group))

    def group_number(self, group: GarbageGroup) -> int:
        if group in self.groups:
            return self.groups.index(group)
        if len(self.groups) >= _MAX_GROUPS:
            return len(self.groups) - 1
        self.groups.append(group)
        return len(self.groups) - 1

    def look_up(self, place: int) -> Callable[[str], GarbageGroup | None]:
        """Return a function for the names of blobs that begin with this byte. It returns None for live blobs."""
        bucket = self.blobs.bucket(place)
        orphaned = GarbageGroup(None, ORPHANED)

        def find(name: str) -> GarbageGroup | None:
            tag = self.generations.get(name) if "." in name else bucket.get(name)
            if tag is None:
                return orphaned
            return None if tag == _LIVE else self.groups[tag]

        return find

    def is_live_record(self, key: str) -> bool:
        """Return whether the key of a manifest or commit is live."""
        _, workspace, name, section, file = key.split("/")
        marked = self.datasets.get(f"{workspace}/{name}")
        digest = file.removesuffix(".json")
        if marked is None:
            return False
        return digest in (marked.kept if section == "manifests" else marked.history.reachable)


def mark(reader: Reader, rule: Retention, now: datetime, first: LiveObjects | None = None) -> LiveObjects:
    """Mark all datasets. The second marking gets the first one, and keeps all commits that were not reachable then."""
    live = LiveObjects()
    pins = list_pins(reader)
    dataset_ids = list_dataset_ids(reader)
    for pin in pins:
        if pin.dataset_id not in dataset_ids:
            raise CorruptError(
                f"pin {pin.name!r} keeps {pin.dataset_id}, which is not in {reader.url}; nothing was collected",
                hint=f"Remove the pin: `warp pin rm {pin.name}`.",
            )
    for dataset_id in dataset_ids:
        with _naming(dataset_id):
            history = read_history(reader, dataset_id, pins)
            known = None if first is None else _known_commits(first, dataset_id)
            kept = choose_kept(history, rule, now, known)
            live.datasets[dataset_id] = MarkedDataset(history, kept)
            _mark_versions(reader, live, history, kept)
            if first is None:
                _trace_garbage(reader, live, live.datasets[dataset_id])
    return live


def list_pins(reader: Reader) -> list[Pin]:
    """Read all pins of a store. Raise `CorruptError` for one that cannot be read."""
    names = [info.key.rsplit("/", 1)[-1].removesuffix(".json") for info in reader.list_objects(PINS_PREFIX)]
    found = IO_POOL.map_all(lambda name: read_pin(reader, name), names, limit=_PARALLEL_READS)
    return [pin for pin in found if pin is not None]


def _known_commits(first: LiveObjects, dataset_id: str) -> AbstractSet[str]:
    marked = first.datasets.get(dataset_id)
    return set() if marked is None else marked.history.reachable.keys()


def _mark_versions(reader: Reader, live: LiveObjects, history: DatasetHistory, kept: set[str]) -> None:
    """Mark the blobs of all kept versions. Forget those that were collected before, or meanwhile."""
    named, seen = history.named_versions(), _SeenPages()
    kept -= {version for version in kept & history.collected if version not in history.manifests} - named

    def read(version: str) -> tuple[str, Manifest | CorruptError]:
        try:
            return version, _read_manifest(reader, history.dataset_id, version)
        except CorruptError as error:
            return version, error

    for version, found in IO_POOL.map_ordered(read, sorted(kept), limit=_PARALLEL_READS):
        try:
            if isinstance(found, CorruptError):
                raise found
            _add_version(reader, live, found, seen, _LIVE)
        except (CorruptError, ObjectNotFoundError):
            if not _was_collected(reader, history, version):
                raise
            kept.discard(version)


def _was_collected(reader: Reader, history: DatasetHistory, version: str) -> bool:
    """Return whether another collection has removed a version, which heads or labels named before they moved on."""
    if read_tombstone(reader, history.dataset_id, version) is None:
        return False
    return version not in read_history(reader, history.dataset_id, list_pins(reader)).named_versions()


def _trace_garbage(reader: Reader, live: LiveObjects, marked: MarkedDataset) -> None:
    """Attribute the blobs of versions that go. A manifest of a newer format stops the collection."""
    history = marked.history
    seen: dict[int, _SeenPages] = {}
    for version in sorted(history.manifests.keys() - marked.kept):
        group = live.group_number(GarbageGroup(history.dataset_id, marked.reason(version)))
        with suppress(CorruptError, NotFoundError):  # garbage that cannot be read has no known blobs
            manifest = _read_manifest(reader, history.dataset_id, version)
            _add_version(reader, live, manifest, seen.setdefault(group, _SeenPages()), group)


def _add_version(reader: Reader, live: LiveObjects, manifest: Manifest, seen: _SeenPages, group: int) -> None:
    pages = GenerationReader(reader, manifest.generations) if manifest.generations else reader

    def load(page: Page) -> bytes:
        return read_blob(pages, page.blob)

    is_known = seen.checker(manifest)
    tasks: list[Callable[[], None]] = []
    for entries in manifest.sections().values():
        for entry in entries.values():
            index = [entry.index] if isinstance(entry, Payload) and entry.index is not None else []
            inline = [blob for shard in entry.shards.shards for blob in shard.blobs()]
            live.add([*index, *inline], manifest.generations, group)
            tasks.extend(
                _task(live, paged_blobs([page], entry.shards.levels, load, is_known), manifest, group)
                for page in entry.shards.pages
            )
    IO_POOL.run_all(tasks, limit=_PARALLEL_READS)


def _task(live: LiveObjects, blobs: Iterator[Blob], manifest: Manifest, group: int) -> Callable[[], None]:
    return lambda: live.add(blobs, manifest.generations, group)


class _SeenPages:
    """Pages that were walked before. Versions of a history share most pages.

    Blobs of a version with generations may have other keys, so its pages count as others.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()

    def checker(self, manifest: Manifest) -> Callable[[Page], bool]:
        generations = frozenset(manifest.generations.items())

        def is_known(page: Page) -> bool:
            key = page.hash, generations
            if key in self._seen:
                return True
            self._seen.add(key)
            return False

        return is_known


def _read_manifest(reader: Reader, dataset_id: str, version: str) -> Manifest:
    try:
        return parse_manifest(reader.read(manifest_key(dataset_id, version)).data, version)
    except ObjectNotFoundError as error:
        raise CorruptError(f"the manifest of version {version} is missing") from error


@contextmanager
def _naming(dataset_id: str) -> Iterator[None]:
    """Name the dataset that cannot be read in the error."""
    try:
        yield
    except (CorruptError, NotFoundError) as error:
        raise CorruptError(
            f"{dataset_id} cannot be read, so nothing was collected: {error.message}",
            hint=f"`warp verify {dataset_id}` shows what is wrong. Publishing the same content repairs it.",
        ) from error
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{dataset_id} cannot be read, so nothing was collected: {error.message}", hint="Upgrade warpdata."
        ) from error
    except WarpError as error:
        error.add_note(f"while {dataset_id} was marked")
        raise
