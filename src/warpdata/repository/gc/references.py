"""Versions of a store that need given blobs: a search over all datasets, page by page.

A page that versions share is read once. Implements "Erasure" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from warpdata.primitives.parallel import IO_POOL
from warpdata.repository.catalog import manifest_key
from warpdata.repository.gc.history import list_dataset_ids, read_history
from warpdata.repository.gc.mark import list_pins
from warpdata.repository.manifest import Manifest, Page, Payload, open_page, parse_manifest
from warpdata.storage import GenerationReader, Reader, read_blob

__all__ = ["BlobUsers", "find_blob_users"]

_PARALLEL_READS = 16


@dataclass(frozen=True, slots=True)
class BlobUsers:
    """The versions that name one of the blobs, by dataset. `heads` are those of them that branches are at."""

    versions: Mapping[str, frozenset[str]]
    heads: Mapping[str, Mapping[str, str]]
    """Versions by dataset and branch."""


def find_blob_users(reader: Reader, digests: Collection[str]) -> BlobUsers:
    """Search all versions that a head, a label, a pin or a reachable commit names.

    Raise if a dataset cannot be read: the versions that need a blob are then unknown.
    """
    wanted = frozenset(digests)
    pins = list_pins(reader)
    versions: dict[str, frozenset[str]] = {}
    heads: dict[str, Mapping[str, str]] = {}
    for dataset_id in list_dataset_ids(reader):
        history = read_history(reader, dataset_id, pins)
        known = history.named_versions() | history.committed
        kept = sorted(version for version in known if version in history.manifests)
        search = _PageSearch(reader, wanted)

        def uses(version: str, dataset_id: str = dataset_id, search: _PageSearch = search) -> bool:
            data = reader.read(manifest_key(dataset_id, version)).data
            return search.uses(parse_manifest(data, version))

        found = IO_POOL.map_all(uses, kept, limit=_PARALLEL_READS)
        using = frozenset(version for version, is_user in zip(kept, found, strict=True) if is_user)
        if using:
            versions[dataset_id] = using
            heads[dataset_id] = {name: head.version for name, head in history.heads.items() if head.version in using}
    return BlobUsers(versions, heads)


class _PageSearch:
    """Searches shard lists for blobs, and remembers the result for each page."""

    def __init__(self, reader: Reader, wanted: frozenset[str]) -> None:
        self._reader = reader
        self._wanted = wanted
        self._known: dict[str, bool] = {}

    def uses(self, manifest: Manifest) -> bool:
        generations = manifest.generations
        reader = GenerationReader(self._reader, generations) if generations else self._reader
        for entries in manifest.sections().values():
            for entry in entries.values():
                if isinstance(entry, Payload) and entry.index is not None and entry.index.hash in self._wanted:
                    return True
                if any(blob.hash in self._wanted for shard in entry.shards.shards for blob in shard.blobs()):
                    return True
                if any(self._page_uses(reader, page, entry.shards.levels - 1) for page in entry.shards.pages):
                    return True
        return False

    def _page_uses(self, reader: Reader, page: Page, level: int) -> bool:
        if page.hash not in self._known:
            listed = open_page(page, read_blob(reader, page.blob), level)
            self._known[page.hash] = any(
                self._page_uses(reader, entry, level - 1)
                if isinstance(entry, Page)
                else any(blob.hash in self._wanted for blob in entry.blobs())
                for entry in listed
            )
        return self._known[page.hash]
