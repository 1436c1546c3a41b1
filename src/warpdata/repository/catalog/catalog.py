"""Addresses resolved to versions, and the history of versions. Reads only.

Implements "Resolving" of docs/specs/catalog.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from warpdata.errors import (
    CorruptError,
    DatasetNotFoundError,
    ErrorKind,
    ManifestCorruptedError,
    NotCachedError,
    NotFoundError,
    ObjectNotFoundError,
    UnsupportedError,
    WarpError,
)
from warpdata.primitives.hashing import is_digest
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.repository.catalog.branches import (
    OnHint,
    find_head,
    find_newest,
    list_branches,
    read_commit,
    read_label,
    read_label_state,
    read_tombstone,
)
from warpdata.repository.catalog.layout import dataset_prefix, manifest_key, manifests_prefix, tombstones_prefix
from warpdata.repository.catalog.names import (
    MAIN,
    Address,
    RefSteps,
    check_workspace,
    is_dataset_id,
    is_workspace,
    parse_date,
    parse_ref,
)
from warpdata.repository.catalog.records import Commit, HistoryEntry, Removal, VersionLabel
from warpdata.repository.catalog.removal import list_label_names
from warpdata.repository.manifest import Manifest, Page, parse_manifest
from warpdata.storage import Reader, read_blob

__all__ = ["Catalog", "DatasetList", "VersionRef"]

_PREFIX_LENGTH = 8
_MAX_SINGLE_READS = 16
"""A history of more commits is listed and read in parallel."""
_MAX_LOGGED = 10
_LISTED_OBJECTS = 1000
"""Object stores return this many objects for one request."""
_KEEPS_COUNTERS = ("restore", "compact")
"""Operations after which a table may have a smaller counter of ids than before, or still has it."""
_RAISES_COUNTERS = ("edit", "merge")
"""Operations after which every table is still there, with no smaller counter."""
_MAX_COMMITS_OVER, _MAX_VERSIONS_OVER = 10_000, 1000
"""Commits, and manifests among them, that a restore searches for counters."""
_LOG = logging.getLogger("warpdata.repository.catalog")


@dataclass(frozen=True, slots=True)
class VersionRef:
    """A resolved address. `commit` is None for a bare version, which several commits may share."""

    dataset_id: str
    version: str
    commit: str | None = None
    branch: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetList:
    """The datasets with at least one branch, sorted. `skipped` are directories whose names no dataset can have."""

    dataset_ids: tuple[str, ...]
    skipped: tuple[str, ...] = ()


class Catalog:
    """Reads the catalog of a store. Stateless."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return short_repr("Catalog", self._reader.url)

    def open(self, address: Address) -> tuple[VersionRef, Manifest]:
        """Resolve an address and load its manifest. The manifest of the hint is fetched while the hint is verified."""
        if address.ref is not None or self._reader.is_local(manifests_prefix(address.dataset_id)):
            resolved = self.resolve(address)
            return resolved, self.manifest(resolved)
        ahead: dict[str, Future[bytes]] = {}
        with IO_POOL.executor(1) as executor:

            def prefetch(version: str) -> None:
                ahead[version] = executor.submit(self._manifest_bytes, address.dataset_id, version)

            resolved = self._resolve_branch(address.dataset_id, MAIN, prefetch) or self._fail(address)
            future = ahead.get(resolved.version)
            if future is not None and future.exception() is None:
                return resolved, _checked(future.result(), resolved)
        return resolved, self.manifest(resolved)

    def resolve(self, address: Address) -> VersionRef:
        """Resolve an address. The main branch costs at most two small reads, a full version none."""
        if address.ref is None:
            return self._resolve_branch(address.dataset_id, MAIN) or self._fail(address)
        steps = parse_ref(address.ref)
        found = self._resolve_name(address.dataset_id, steps.name or MAIN)
        date = parse_date(address.ref) if found is None else None
        if date is not None:
            found, steps = self._resolve_branch(address.dataset_id, MAIN), RefSteps(None, time=date)
        if found is None:
            self._fail(Address(address.dataset_id, steps.name))
        return self._walk(found, steps) if steps.back or steps.time else found

    def forgotten_counters(self, ref: VersionRef) -> dict[str, int]:
        """Return the counters of sample ids that a commit does not have because it restored another version, by table.

        Without them, new rows would get ids of rows that only the versions before the restore have, and a merge would
        take both for one sample. Commits of earlier releases do not record them, so those of the version before a
        restore are added.
        """
        counters: dict[str, int] = {}
        commit_id = ref.commit
        while commit_id is not None:
            commit = read_commit(self._reader, ref.dataset_id, commit_id)
            _raise_counters(counters, commit.id_counters)
            if commit.operation not in _KEEPS_COUNTERS or not commit.parents:
                break
            commit_id = commit.parents[0]
            with suppress(NotFoundError):  # a version that was collected is not merged any more
                before = read_commit(self._reader, ref.dataset_id, commit_id).version
                _raise_counters(counters, self._counters_of(ref.dataset_id, before))
        return counters

    def used_counters(self, head: VersionRef, restored: VersionRef) -> dict[str, int]:
        """Return the counters of sample ids that a restore of a version in the history of a head forgets, by table.

        Counters only grow along edits and merges. So the manifests before other commits are read, and that of the head.
        What cannot be read is left out: restoring is also a repair.
        """
        counters: dict[str, int] = {}
        versions: list[str] = []
        grows = False
        for entry in self.history(head, _MAX_COMMITS_OVER):
            commit = entry.commit
            if entry.commit_id == restored.commit or (restored.commit is None and commit.version == restored.version):
                break
            _raise_counters(counters, commit.id_counters)
            if not grows:
                versions.append(commit.version)
            grows = commit.operation in _RAISES_COUNTERS

        def read(version: str) -> dict[str, int]:
            with suppress(NotFoundError, CorruptError):
                return self._counters_of(head.dataset_id, version)
            return {}

        for found in IO_POOL.map_all(read, versions[:_MAX_VERSIONS_OVER]):
            _raise_counters(counters, found)
        return counters

    def _counters_of(self, dataset_id: str, version: str) -> dict[str, int]:
        tables = self.manifest(VersionRef(dataset_id, version)).tables
        return {name: entry.id_counter for name, entry in tables.items()}

    def manifest(self, resolved: VersionRef) -> Manifest:
        """Fetch a manifest and verify that it hashes to the version.

        A version that a branch, a label or a commit names has a manifest, unless it was collected, so a missing one is
        corruption.
        """
        try:
            data = self._manifest_bytes(resolved.dataset_id, resolved.version)
        except NotCachedError:
            raise
        except ObjectNotFoundError as error:
            if resolved.label is None and not self._is_head(resolved):
                self._check_collected(resolved, error)
                if resolved.commit is None:
                    self._fail(Address(resolved.dataset_id, resolved.version))
            raise ManifestCorruptedError(
                f"the manifest of version {resolved.version} of {resolved.dataset_id} is missing in {self._reader.url}",
                hint="Publish the same content again to restore it, or open an older version.",
            ) from error
        return _checked(data, resolved)

    def _check_collected(self, resolved: VersionRef, error: ObjectNotFoundError) -> None:
        """Raise `NotFoundError` if garbage collection has removed the version."""
        found = read_tombstone(self._reader, resolved.dataset_id, resolved.version)
        if found is not None:
            raise NotFoundError(
                f"version {resolved.version[:12]} of {resolved.dataset_id} was collected at {found.time}, "
                f"because the rule {found.rule!r} did not keep it",
                hint=f"`warp log {resolved.dataset_id}` shows the history. Labels and pins keep versions.",
                kind=ErrorKind.VERSION_COLLECTED,
            ) from error

    def load_page(self, page: Page) -> bytes:
        return read_blob(self._reader, page.blob)

    def history(self, resolved: VersionRef, limit: int | None = None) -> Iterator[HistoryEntry]:
        """Yield commits from the newest back, along first parents."""
        if resolved.commit is None:
            known = self._all_commits(resolved.dataset_id)
            made = [
                (commit.time, commit_id) for commit_id, commit in known.items() if commit.version == resolved.version
            ]
            start = max(made, default=(None, None))[1]
        else:
            bounded = limit is not None and limit <= _MAX_SINGLE_READS
            known = {} if bounded else self._listed_commits(resolved.dataset_id)
            start = resolved.commit
        count = 0
        while start is not None and (limit is None or count < limit):
            commit = known.get(start) or read_commit(self._reader, resolved.dataset_id, start)
            yield HistoryEntry(start, commit)
            start = commit.parents[0] if commit.parents else None
            count += 1

    def fetch_history(self, resolved: VersionRef) -> None:
        """Read all commits of the history, so that a cache below has them. Stop at one that cannot be read."""
        with suppress(NotFoundError, CorruptError, UnsupportedError):
            for _ in self.history(resolved):
                pass

    def label(self, dataset_id: str, name: str) -> VersionLabel | None:
        """Return a label by name, or None."""
        return read_label(self._reader, dataset_id, name)

    def labels(self, dataset_id: str) -> list[VersionLabel]:
        names = list_label_names(self._reader, dataset_id)
        found = IO_POOL.map_all(lambda name: self.label(dataset_id, name), names)
        return [label for label in found if label is not None]

    def branches(self, dataset_id: str) -> list[str]:
        return list_branches(self._reader, dataset_id)

    def datasets(self, workspace: str | None = None) -> list[str]:
        """Return the names of `list_datasets`, and log the directories that it skips."""
        found = self.list_datasets(workspace)
        if found.skipped:
            names = ", ".join(map(repr, found.skipped[:_MAX_LOGGED]))
            _LOG.warning("%s has %d directories that are no datasets: %s", self._reader.url, len(found.skipped), names)
        return list(found.dataset_ids)

    def list_datasets(self, workspace: str | None = None) -> DatasetList:
        """List the datasets of one workspace, or of all. Reads no object.

        A workspace of up to 1,000 small objects costs one request. A larger one costs one for each dataset.
        """
        if workspace is not None:
            return self._list_workspace(check_workspace(workspace))
        names = self._reader.list_folders("datasets")
        workspaces = [name for name in names if is_workspace(name)]
        found = IO_POOL.map_all(self._list_workspace, workspaces)
        skipped = [f"datasets/{name}" for name in names if not is_workspace(name)]
        return DatasetList(
            tuple(dataset_id for one in found for dataset_id in one.dataset_ids),
            (*skipped, *(path for one in found for path in one.skipped)),
        )

    def _list_workspace(self, workspace: str) -> DatasetList:
        """List the workspace with all its objects if one request shows them, else each dataset."""
        prefix = f"datasets/{workspace}"
        if not self._reader.is_local(prefix):
            listed = list(self._reader.list_objects(prefix, max_count=_LISTED_OBJECTS))
            if len(listed) < _LISTED_OBJECTS:
                parts = [info.key.removeprefix(f"{prefix}/").split("/") for info in listed]
                published = {part[0] for part in parts if part[1:2] == ["heads"]}
                marked = sorted({part[0] for part in parts if part[1:] == ["removed", f"{MAIN}.json"]})
                published -= self._removed_of(workspace, marked)
                return _dataset_list(workspace, {part[0] for part in parts if len(part) > 1}, published)
        names = self._reader.list_folders(prefix)
        valid = [name for name in names if is_dataset_id(f"{workspace}/{name}")]
        branches = IO_POOL.map_all(lambda name: self.branches(f"{workspace}/{name}"), valid)
        published = {name for name, found in zip(valid, branches, strict=True) if found}
        odd = [name for name, found in zip(valid, branches, strict=True) if found and MAIN not in found]
        return _dataset_list(workspace, names, published - self._removed_of(workspace, odd))

    def _removed_of(self, workspace: str, names: list[str]) -> set[str]:
        """Return the names of datasets whose removal has begun. Reads the log of `main`."""
        newest = IO_POOL.map_all(lambda name: find_newest(self._reader, f"{workspace}/{name}", MAIN), names)
        found = zip(names, newest, strict=True)
        return {name for name, head in found if head is not None and head.removed is not None}

    def check_not_removed(self, dataset_id: str) -> None:
        """Raise `DatasetNotFoundError` if the dataset was removed. Not atomic with a later write."""
        newest = find_newest(self._reader, dataset_id, MAIN)
        if newest is not None and newest.removed is not None:
            raise _removed(dataset_id, newest.removed, newest.version)

    def _walk(self, found: VersionRef, steps: RefSteps) -> VersionRef:
        """Follow first parents: a number of steps, or to the newest commit that is not later than a time."""
        limit = None if steps.time is not None else steps.back + 1
        oldest, count = None, 0
        for entry in self.history(found, limit):
            if (steps.time is None and count == steps.back) or (
                steps.time is not None and datetime.fromisoformat(entry.commit.time) <= steps.time
            ):
                return VersionRef(found.dataset_id, entry.commit.version, entry.commit_id)
            oldest, count = entry, count + 1
        name = f"{found.dataset_id}@{steps.name or MAIN}"
        if steps.time is None:
            message = f"{name} has {count:,} commits, so there is no {name}~{steps.back}"
        else:
            began = "no commit" if oldest is None else f"its first commit at {oldest.commit.time}"
            at = steps.time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            message = f"{name} has {began}, so it has no version at {at}"
        raise NotFoundError(message, hint=f"`warp log {name}` shows its commits.", kind=ErrorKind.REF_NOT_FOUND)

    def _is_head(self, resolved: VersionRef) -> bool:
        head = find_head(self._reader, resolved.dataset_id, MAIN)
        return head is not None and head.version == resolved.version

    def _manifest_bytes(self, dataset_id: str, version: str) -> bytes:
        return self._reader.read(manifest_key(dataset_id, version)).data

    def _resolve_name(self, dataset_id: str, name: str) -> VersionRef | None:
        if is_digest(name):
            return VersionRef(dataset_id, name)
        return (
            self._resolve_label(dataset_id, name)
            or self._resolve_branch(dataset_id, name)
            or self._resolve_prefix(dataset_id, name)
        )

    def _resolve_branch(self, dataset_id: str, branch: str, on_hint: OnHint | None = None) -> VersionRef | None:
        head = find_head(self._reader, dataset_id, branch, on_hint)
        return None if head is None else VersionRef(dataset_id, head.version, head.commit, branch=branch)

    def _resolve_label(self, dataset_id: str, name: str) -> VersionRef | None:
        label = self.label(dataset_id, name)
        return None if label is None else VersionRef(dataset_id, label.version, label.commit, label=name)

    def _resolve_prefix(self, dataset_id: str, prefix: str) -> VersionRef | None:
        if len(prefix) < _PREFIX_LENGTH or not set(prefix) <= set("0123456789abcdef"):
            return None
        prefixes = (manifests_prefix(dataset_id), tombstones_prefix(dataset_id))
        known = {name for place in prefixes for name in self._names_in(place)}
        matches = sorted(name for name in known if name.startswith(prefix))
        if len(matches) > 1:
            raise NotFoundError(
                f"{dataset_id}@{prefix} matches {len(matches)} versions",
                hint="Write more digits of the version.",
                kind=ErrorKind.REF_NOT_FOUND,
            )
        return VersionRef(dataset_id, matches[0]) if matches else None

    def _all_commits(self, dataset_id: str) -> dict[str, Commit]:
        """Read all commits in parallel, because the latency of single reads adds up over a long history."""
        names = self._names_in(f"{dataset_prefix(dataset_id)}/commits")
        commits = IO_POOL.map_all(lambda name: read_commit(self._reader, dataset_id, name), names)
        return dict(zip(names, commits, strict=True))

    def _listed_commits(self, dataset_id: str) -> dict[str, Commit]:
        """Return all commits, or none if the store cannot list. The caller then reads them one after the other."""
        try:
            return self._all_commits(dataset_id)
        except (NotCachedError, UnsupportedError):
            return {}

    def _names_in(self, prefix: str) -> list[str]:
        keys = (info.key.rsplit("/", 1)[-1] for info in self._reader.list_objects(prefix))
        return [key.removesuffix(".json") for key in keys if key.endswith(".json")]

    def _fail(self, address: Address) -> NoReturn:
        """Raise the error for the part of the address that is wrong, with similar names as the hint."""
        dataset_id = address.dataset_id
        newest = find_newest(self._reader, dataset_id, MAIN)
        if newest is not None and newest.removed is not None:
            raise _removed(dataset_id, newest.removed, newest.version)
        if newest is None and not self._listed(lambda: self.branches(dataset_id)):
            workspace = dataset_id.split("/")[0]
            known = self._listed(lambda: self.datasets(workspace)) or self._listed(self.datasets)
            raise DatasetNotFoundError(
                f"{dataset_id} is not published in {self._reader.url}",
                hint=suggest(dataset_id, known)
                or "Check the spelling, or name the store: store=…, --store or WARP_STORE.",
            )
        self._fail_removed(dataset_id, address.ref or MAIN)
        names = self._listed(lambda: [label.name for label in self.labels(dataset_id)])
        names += self._listed(lambda: self.branches(dataset_id))
        raise NotFoundError(
            f"{dataset_id} has no version, label or branch {address.ref or MAIN!r}",
            hint=suggest(address.ref or MAIN, names) or f"`warp log {dataset_id}` shows its versions.",
            kind=ErrorKind.REF_NOT_FOUND,
        )

    def _fail_removed(self, dataset_id: str, name: str) -> None:
        """Raise the error for a label or branch that was removed, with the way to bring it back."""
        label = read_label_state(self._reader, dataset_id, name)
        if label is not None and label.removed is not None:
            raise _removed_ref(dataset_id, "label", name, label.removed, label.label.version)
        branch = find_newest(self._reader, dataset_id, name)
        if branch is not None and branch.removed is not None:
            raise _removed_ref(dataset_id, "branch", name, branch.removed, branch.version)

    def _listed(self, ask: Callable[[], list[str]]) -> list[str]:
        """Return names for a hint. A store that cannot list (plain HTTP) has none."""
        try:
            return ask()
        except WarpError:
            return []


def _dataset_list(workspace: str, names: Iterable[str], published: Collection[str]) -> DatasetList:
    listed = [(name, f"{workspace}/{name}") for name in sorted(names)]
    return DatasetList(
        tuple(dataset_id for name, dataset_id in listed if name in published and is_dataset_id(dataset_id)),
        tuple(f"datasets/{dataset_id}" for _, dataset_id in listed if not is_dataset_id(dataset_id)),
    )


def _removed(dataset_id: str, removal: Removal, version: str) -> DatasetNotFoundError:
    by = f" by {removal.author}" if removal.author else ""
    if removal.renamed_to is not None:
        return DatasetNotFoundError(
            f"{dataset_id} was renamed to {removal.renamed_to} at {removal.time}{by}",
            hint=f"Open {removal.renamed_to}.",
        )
    return DatasetNotFoundError(
        f"{dataset_id} was removed at {removal.time}{by}",
        hint=f"`warp restore {dataset_id} {version}` brings it back, unless its files were collected.",
    )


def _removed_ref(dataset_id: str, what: str, name: str, removal: Removal, version: str) -> NotFoundError:
    by = f" by {removal.author}" if removal.author else ""
    return NotFoundError(
        f"{what} {name!r} of {dataset_id} was removed at {removal.time}{by}",
        hint=f"`warp {what} {dataset_id}@{version} {name}` brings it back.",
        kind=ErrorKind.REF_NOT_FOUND,
    )


def _raise_counters(counters: dict[str, int], found: Mapping[str, int]) -> None:
    for name, counter in found.items():
        counters[name] = max(counter, counters.get(name, 0))


def _checked(data: bytes, resolved: VersionRef) -> Manifest:
    manifest = parse_manifest(data, resolved.version)
    if manifest.dataset_id != resolved.dataset_id:
        raise ManifestCorruptedError(f"the manifest of {resolved.dataset_id} belongs to {manifest.dataset_id}")
    return manifest
