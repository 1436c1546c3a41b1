"""Structures have history: names resolved to versions, and what led there. Reads only.

Implements "Resolving" of docs/specs/catalog.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from warpdata.errors import (
    DatasetNotFoundError,
    ManifestCorruptedError,
    ObjectNotFoundError,
    RefNotFoundError,
    WarpError,
)
from warpdata.primitives.hashing import is_digest
from warpdata.repository.catalog.branches import OnHint, find_head, list_branches, read_commit, read_label
from warpdata.repository.catalog.layout import dataset_prefix, labels_prefix, manifest_key, manifests_prefix
from warpdata.repository.catalog.names import MAIN, Address, check_workspace
from warpdata.repository.catalog.records import Commit, HistoryEntry, Label
from warpdata.repository.manifest import Manifest, Page, parse_manifest
from warpdata.storage import Reader, read_blob

__all__ = ["Catalog", "VersionRef"]

_PREFIX_LENGTH = 8
_PARALLEL_READS = 16


@dataclass(frozen=True, slots=True)
class VersionRef:
    """What an address means right now. `commit` is None for a bare version, which many may share."""

    dataset_id: str
    version: str
    commit: str | None = None
    branch: str | None = None
    label: str | None = None


class Catalog:
    """Answers from a store, holding no state of its own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def open(self, address: Address) -> tuple[VersionRef, Manifest]:
        """As `resolve` and `manifest`. While a hint is being proven, the manifest that it names is on its way."""
        if address.ref is not None:
            resolved = self.resolve(address)
            return resolved, self.manifest(resolved)
        ahead: dict[str, Future[bytes]] = {}
        with ThreadPoolExecutor(1, thread_name_prefix="warp-hint") as pool:

            def begin(version: str) -> None:
                ahead[version] = pool.submit(self._manifest_bytes, address.dataset_id, version)

            resolved = self._resolve_branch(address.dataset_id, MAIN, begin) or self._fail(address)
            coming = ahead.get(resolved.version)
            if coming is not None and coming.exception() is None:
                return resolved, _checked(coming.result(), resolved)
        return resolved, self.manifest(resolved)

    def resolve(self, address: Address) -> VersionRef:
        """At most two small reads for the main branch; a full version needs none."""
        if address.ref is None:
            return self._resolve_branch(address.dataset_id, MAIN) or self._fail(address)
        if is_digest(address.ref):
            return VersionRef(address.dataset_id, address.ref)
        return (
            self._resolve_label(address.dataset_id, address.ref)
            or self._resolve_branch(address.dataset_id, address.ref)
            or self._resolve_prefix(address.dataset_id, address.ref)
            or self._fail(address)
        )

    def manifest(self, resolved: VersionRef) -> Manifest:
        """Fetched and verified: its content hashes to the version asked for."""
        try:
            data = self._manifest_bytes(resolved.dataset_id, resolved.version)
        except ObjectNotFoundError:
            self._fail(Address(resolved.dataset_id, resolved.version))
        return _checked(data, resolved)

    def load_page(self, page: Page) -> bytes:
        return read_blob(self._reader, page.blob)

    def history(self, resolved: VersionRef, limit: int | None = None) -> Iterator[HistoryEntry]:
        """Commits from the newest back, following first parents."""
        if resolved.commit is None:
            known = self._all_commits(resolved.dataset_id)
            made = [
                (commit.time, commit_id) for commit_id, commit in known.items() if commit.version == resolved.version
            ]
            start = max(made, default=(None, None))[1]
        else:
            bounded = limit is not None and limit <= _PARALLEL_READS
            known = {} if bounded else self._all_commits(resolved.dataset_id)
            start = resolved.commit
        count = 0
        while start is not None and (limit is None or count < limit):
            commit = known.get(start) or read_commit(self._reader, resolved.dataset_id, start)
            yield HistoryEntry(start, commit)
            start = commit.parents[0] if commit.parents else None
            count += 1

    def label(self, dataset_id: str, name: str) -> Label | None:
        """A label by name, or None if nobody gave it."""
        return read_label(self._reader, dataset_id, name)

    def labels(self, dataset_id: str) -> list[Label]:
        names = self._names_in(labels_prefix(dataset_id))
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda name: self.label(dataset_id, name), names)
            return [label for label in found if label is not None]

    def branches(self, dataset_id: str) -> list[str]:
        return list_branches(self._reader, dataset_id)

    def datasets(self, workspace: str | None = None) -> list[str]:
        """Every dataset with at least one branch, by listing folders only."""
        if workspace is None:
            return [name for found in self._reader.list_folders("datasets") for name in self.datasets(found)]
        check_workspace(workspace)
        named = [f"{workspace}/{name}" for name in self._reader.list_folders(f"datasets/{workspace}")]
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(self.branches, named)
            return [dataset_id for dataset_id, branches in zip(named, found, strict=True) if branches]

    def _manifest_bytes(self, dataset_id: str, version: str) -> bytes:
        return self._reader.read(manifest_key(dataset_id, version)).data

    def _resolve_branch(self, dataset_id: str, branch: str, on_hint: OnHint | None = None) -> VersionRef | None:
        head = find_head(self._reader, dataset_id, branch, on_hint)
        return None if head is None else VersionRef(dataset_id, head.version, head.commit, branch=branch)

    def _resolve_label(self, dataset_id: str, name: str) -> VersionRef | None:
        label = self.label(dataset_id, name)
        return None if label is None else VersionRef(dataset_id, label.version, label.commit, label=name)

    def _resolve_prefix(self, dataset_id: str, prefix: str) -> VersionRef | None:
        if len(prefix) < _PREFIX_LENGTH or not set(prefix) <= set("0123456789abcdef"):
            return None
        matches = [name for name in self._names_in(manifests_prefix(dataset_id)) if name.startswith(prefix)]
        if len(matches) > 1:
            raise RefNotFoundError(
                f"{dataset_id}@{prefix} could be {len(matches)} versions", hint="Write more digits of the version."
            )
        return VersionRef(dataset_id, matches[0]) if matches else None

    def _all_commits(self, dataset_id: str) -> dict[str, Commit]:
        """Read many commits at once: one at a time, a long history is all latency."""
        names = self._names_in(f"{dataset_prefix(dataset_id)}/commits")
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            commits = pool.map(lambda name: read_commit(self._reader, dataset_id, name), names)
            return dict(zip(names, commits, strict=True))

    def _names_in(self, prefix: str) -> list[str]:
        keys = (info.key.rsplit("/", 1)[-1] for info in self._reader.list_objects(prefix))
        return [key.removesuffix(".json") for key in keys if key.endswith(".json")]

    def _fail(self, address: Address) -> NoReturn:
        """Always raises: which part of the address is wrong, and what is close to it."""
        dataset_id = address.dataset_id
        if find_head(self._reader, dataset_id, MAIN) is None and not self._listed(lambda: self.branches(dataset_id)):
            workspace = dataset_id.split("/")[0]
            near = _near(dataset_id, self._listed(lambda: self.datasets(workspace)) or self._listed(self.datasets))
            raise DatasetNotFoundError(
                f"{dataset_id} is not published in {self._reader.url}",
                hint=near or "Check the spelling, or name the store: store=…, --store or WARP_STORE.",
            )
        names = self._listed(lambda: [label.name for label in self.labels(dataset_id)])
        near = _near(address.ref or MAIN, names + self._listed(lambda: self.branches(dataset_id)))
        raise RefNotFoundError(
            f"{dataset_id} has no version, label or branch {address.ref or MAIN!r}",
            hint=near or f"`warp log {dataset_id}` shows its versions.",
        )

    def _listed(self, ask: Callable[[], list[str]]) -> list[str]:
        """Names for a helpful message; a store that cannot list (plain HTTP) has none to offer."""
        try:
            return ask()
        except WarpError:
            return []


def _checked(data: bytes, resolved: VersionRef) -> Manifest:
    manifest = parse_manifest(data, resolved.version)
    if manifest.dataset_id != resolved.dataset_id:
        raise ManifestCorruptedError(f"the manifest of {resolved.dataset_id} says it is {manifest.dataset_id}'s")
    return manifest


def _near(name: str, names: list[str]) -> str | None:
    matches = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(matches)}?" if matches else None
