"""The steps of a copy: plan, blobs, manifests, commits, branch, labels.

Only blobs that the target lacks travel. A copied commit keeps its author, time and transaction, so a copy that is
repeated gives the same commits. Implements "Copy" of docs/specs/publish.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from warpdata.datasets import refuse_offline
from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    ErrorKind,
    NotCachedError,
    NotFoundError,
    ObjectNotFoundError,
    UnsupportedError,
)
from warpdata.kinds import StagedBlob, copied_blob
from warpdata.limits import MAX_COMMIT_ATTEMPTS
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, silent
from warpdata.publish import PlannedFile, StagedUpload, find_present, plan_upload
from warpdata.repository.catalog import (
    MAIN,
    CollectionCopy,
    Commit,
    Head,
    HistoryEntry,
    Transaction,
    VersionLabel,
    VersionRef,
    advance_to,
    commit_key,
    copy_collection_records,
    create_label,
    encode_commit,
    find_newest,
    finish_removal,
    list_collection_records,
    mark_store,
    put_manifest,
    put_named_by_content,
    read_commit,
)
from warpdata.repository.gc import Lease
from warpdata.repository.manifest import Manifest, kept_blobs, version_of
from warpdata.session import Session
from warpdata.storage import BlobCopy, Reader
from warpdata.storage.cache import StagingDirectory

__all__ = ["Copied", "CopyJob", "CopyPlan"]

_PARALLEL_WRITES = 16
_CACHED_PAGES = 256


@dataclass(frozen=True, slots=True)
class Copied:
    """A version under its new name. Another name is part of another version, so both versions are stated.

    `changed` is False if the target had the version already. `commits` and `labels` count those of a history.
    """

    dataset_id: str
    version: str
    source_dataset_id: str
    source_version: str
    branch: str
    commit: str | None
    changed: bool
    commits: int
    labels: tuple[str, ...]
    total_files: int
    total_bytes: int
    copied_files: int
    copied_bytes: int


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The manifests and blobs that the target must have. Within one store, no blob is listed."""

    manifests: Mapping[str, Manifest]
    """The manifests under the new name, by the version under the old one."""
    files: tuple[PlannedFile, ...]
    uploads: tuple[BlobGroup, ...] = ()

    @property
    def copy_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files if not file.is_present)

    @property
    def total_bytes(self) -> int:
        return sum(file.fingerprint.blob.byte_size for file in self.files)

    @property
    def copy_files(self) -> int:
        return sum(not file.is_present for file in self.files)


@dataclass(frozen=True, slots=True)
class BlobGroup:
    """Blobs that have the same generations in their manifests, and so the same keys in both stores."""

    generations: Mapping[str, str]
    blobs: tuple[StagedBlob, ...]


@dataclass(frozen=True)
class CopyJob:
    """Copies versions of one dataset of `source` to `target`, under `dataset_id`."""

    source: Session
    target: Session
    source_id: str
    dataset_id: str
    progress: Progress = silent
    _commits: dict[str, HistoryEntry] = field(default_factory=dict)
    """Copied commits, by the id of the original."""
    _dropped: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The copies of the nearest ancestors of commits whose version was collected."""
    _versions: dict[str, str] = field(default_factory=dict)
    """Copied versions, by the original."""
    _stored: set[str] = field(default_factory=set)

    @property
    def is_one_store(self) -> bool:
        return self.source.writer.url == self.target.writer.url

    def check(self) -> None:
        """Raise an error if the copy would have no effect, or if the target cannot be written."""
        refuse_offline(self.target, self.dataset_id)
        if self.is_one_store and self.source_id == self.dataset_id:
            raise BadInputError(
                f"{self.source_id} is already in {self.target.writer.url}", hint="Name another store, or another name."
            )

    def plan(self, versions: Iterable[str]) -> CopyPlan:
        """Read the manifests of some versions, and look for their blobs in the target. Writes nothing."""
        catalog = self.source.catalog
        listed = list(dict.fromkeys(versions))

        def read(version: str) -> Manifest | None:
            try:
                return catalog.manifest(VersionRef(self.source_id, version))
            except NotFoundError as error:
                if error.kind is ErrorKind.VERSION_COLLECTED:
                    return None  # the copied history leaves its commits out
                raise

        stored = zip(listed, IO_POOL.map_all(read, listed, limit=_PARALLEL_WRITES), strict=True)
        found = {version: manifest for version, manifest in stored if manifest is not None}
        manifests = {version: replace(manifest, dataset_id=self.dataset_id) for version, manifest in found.items()}
        if self.is_one_store:
            return CopyPlan(manifests, ())
        groups = self._group_blobs(list(found.values()))
        files: list[PlannedFile] = []
        for group in groups:
            blobs = [staged.fingerprint.blob for staged in group.blobs]
            present = find_present(self.target.writer, blobs, group.generations)
            files += plan_upload(group.blobs, present, group.generations)
        return CopyPlan(manifests, tuple(files), tuple(groups))

    def _group_blobs(self, manifests: Sequence[Manifest]) -> list[BlobGroup]:
        """Return the blobs of all manifests. Generations are part of a version, so the copy has the same ones."""
        grouped: dict[tuple[tuple[str, str], ...], dict[Blob, StagedBlob]] = {}
        for manifest in manifests:
            session = self.source.at_generations(manifest.generations)
            reader = self.source.writer if session is self.source else session.reader
            load_page = functools.lru_cache(maxsize=_CACHED_PAGES)(session.catalog.load_page)
            group = grouped.setdefault(tuple(sorted(manifest.generations.items())), {})
            for blob in kept_blobs(manifest, load_page):
                if blob not in group and not self._is_erased(reader, blob):
                    group[blob] = copied_blob(self.source_id, BlobCopy(reader, blob))
        return [BlobGroup(dict(key), tuple(blobs.values())) for key, blobs in grouped.items()]

    def check_complete(self, manifest: Manifest) -> None:
        """Raise `ConflictError` if a purge has erased a blob of this version."""
        session = self.source.at_generations(manifest.generations)
        blobs = kept_blobs(manifest, session.catalog.load_page) if self.erased else ()
        if any(self._is_erased(session.reader, blob) for blob in set(blobs)):
            raise ConflictError(
                f"version {version_of(manifest)[:12]} of {self.source_id} has lost files in a purge",
                hint="Copy the version that repairs it, or copy the history.",
                kind=ErrorKind.VERSION_BROKEN,
            )

    def copy_records(self) -> None:
        """Copy the records of a collection, with the new hashes of versions and commits."""
        renamed = dict(self._versions)
        renamed |= {old: entry.commit_id for old, entry in self._commits.items()}
        labels = frozenset(label.name for label in self.target.catalog.labels(self.dataset_id))
        target = CollectionCopy(self.target.writer, self.dataset_id, renamed, labels)
        copy_collection_records(self.source.writer, self.source_id, target, self.target.pause)

    @cached_property
    def erased(self) -> frozenset[str]:
        """The blobs that purges of the source have erased. A source that cannot list shows none."""
        try:
            names = list_collection_records(self.source.writer, self.source_id, "erased")
        except (NotCachedError, UnsupportedError):
            return frozenset()
        return frozenset(name.partition("/")[2] for name in names)

    def _is_erased(self, reader: Reader, blob: Blob) -> bool:
        """Return whether a blob was purged, and has not been added again."""
        if blob.hash not in self.erased:
            return False
        try:
            reader.stat(blob_key(blob.hash))
        except ObjectNotFoundError:
            return True
        return False

    @contextmanager
    def writing(self, plan: CopyPlan) -> Iterator[Lease]:
        """Hold a lease on the target, and store what it lacks. Refs are moved inside of the context."""
        with self.target.lease(f"copy {self.dataset_id}") as lease:
            if lease.condemned:
                self._check_uncollected(plan, lease)
            self.send(plan)
            yield lease

    def _check_uncollected(self, plan: CopyPlan, lease: Lease) -> None:
        """Raise `ConflictError` if the target may be deleting a part of the copy: its keys cannot be changed."""
        groups = plan.uploads or self._group_blobs(
            [replace(manifest, dataset_id=self.source_id) for manifest in plan.manifests.values()]
        )
        names = {version_of(manifest) for manifest in plan.manifests.values()}
        names |= {staged.fingerprint.blob.hash for group in groups for staged in group.blobs}
        if any(name in lease.condemned for name in names):
            raise ConflictError(
                f"a part of {self.dataset_id} is being collected in {self.target.writer.url}",
                hint="Copy again when the collection has ended; its list stays in force for an hour after that.",
            )

    def send(self, plan: CopyPlan) -> None:
        """Store what the target lacks: blobs, then manifests. Nothing refers to them yet."""
        writer, pause = self.target.writer, self.target.pause
        mark_store(writer, pause)
        if plan.files:
            staging = StagingDirectory(self.target.settings.cache_dir)
            try:
                for group in plan.uploads:
                    upload = StagedUpload(self.target, group.blobs, lambda: staging.path, self.progress, "copy")
                    upload.begin(group.generations, repair=False)
            finally:
                staging.remove()
        manifests = list(plan.manifests.values())
        IO_POOL.map_all(lambda manifest: put_manifest(writer, manifest, pause), manifests, limit=_PARALLEL_WRITES)

    def check_branch(self, branch: str, history: Sequence[HistoryEntry], plan: CopyPlan) -> None:
        """Raise `ConflictError` if the branch there is not at a commit of this history. Writes nothing."""
        self._map_commits(history, plan)
        base = find_newest(self.target.writer, self.dataset_id, branch)
        if base is not None and base.removed is None:
            self._check_ancestor(base, branch)

    def copy_commits(self, history: Sequence[HistoryEntry], plan: CopyPlan) -> HistoryEntry:
        """Store the commits of a history, whose first is the oldest, and return the newest one."""
        self._map_commits(history, plan)
        writer, pause = self.target.writer, self.target.pause

        def put(entry: HistoryEntry) -> None:
            commit_id, data = encode_commit(self._commits[entry.commit_id].commit)
            put_named_by_content(writer, commit_key(self.dataset_id, commit_id), data, pause)

        new = [entry for entry in history if entry.commit_id in self._commits.keys() - self._stored]
        IO_POOL.map_all(put, new, limit=_PARALLEL_WRITES)
        self._stored.update(entry.commit_id for entry in new)
        return self._commits[history[-1].commit_id]

    def _map_commits(self, history: Sequence[HistoryEntry], plan: CopyPlan) -> None:
        for entry in history:
            if entry.commit_id in self._commits or entry.commit_id in self._dropped:
                continue
            before = map(self._copies_of, entry.commit.parents)
            parents = tuple(dict.fromkeys(chain.from_iterable(before)))
            manifest = plan.manifests.get(entry.commit.version)
            if manifest is None:
                self._dropped[entry.commit_id] = parents
                continue
            copied = replace(entry.commit, version=version_of(manifest), parents=parents)
            self._commits[entry.commit_id] = HistoryEntry(encode_commit(copied)[0], copied)
            self._versions[entry.commit.version] = copied.version

    def _copies_of(self, commit_id: str) -> tuple[str, ...]:
        """Return the copy of a commit, or those of its nearest ancestors if its version was collected."""
        copied = self._commits.get(commit_id)
        return self._dropped[commit_id] if copied is None else (copied.commit_id,)

    def move_branch(self, branch: str, newest: HistoryEntry, lease: Lease) -> bool:
        """Make the copied commit the head of a branch of the target. False: it is already.

        Raise `ConflictError` if the branch has a commit that is not part of the copied history.
        """
        writer, pause = self.target.writer, self.target.pause
        if branch != MAIN:
            self.target.catalog.check_not_removed(self.dataset_id)
        author = self.target.settings.author
        txn = Transaction(
            self.dataset_id, branch, newest.commit.txn_id, newest.commit.operation, author, "", newest.commit.time
        )
        for attempt in range(MAX_COMMIT_ATTEMPTS):
            base = find_newest(writer, self.dataset_id, branch)
            if base is not None and base.removed is not None and branch == MAIN:
                finish_removal(writer, self.dataset_id, base, pause)
            elif base is not None and base.removed is None:
                if base.commit == newest.commit_id:
                    return False
                self._check_ancestor(base, branch)
            if advance_to(writer, txn, base, newest, pause, check_lease=lease.check):
                return True
            pause(attempt)
        raise ConflictError(f"other commits to {self.dataset_id}@{branch} were faster", hint="Try again later.")

    def _check_ancestor(self, base: Head, branch: str) -> None:
        if base.commit not in {entry.commit_id for entry in self._commits.values()}:
            raise ConflictError(
                f"{self.dataset_id}@{branch} in {self.target.writer.url} has commit {base.commit[:12]}, "
                f"which is not part of the history of {self.source_id}",
                hint="Copy to another name, or copy one version without history.",
            )

    def check_labels(self, labels: Iterable[VersionLabel], plan: CopyPlan) -> None:
        """Raise `AlreadyExistsError` if the target has one of the labels for another version."""
        for label in labels:
            taken = self.target.catalog.label(self.dataset_id, label.name)
            if taken is not None and taken.version != version_of(plan.manifests[label.version]):
                raise AlreadyExistsError(
                    f"label {label.name!r} of {self.dataset_id} in {self.target.writer.url} "
                    f"already names version {taken.version[:12]}",
                    hint=f"Remove it there first: `warp rm {self.dataset_id}@{label.name}`.",
                )

    def copy_labels(self, labels: Iterable[VersionLabel], lease: Lease) -> None:
        for label in labels:
            entry = self._commits[label.commit]
            ref = VersionRef(self.dataset_id, entry.commit.version, entry.commit_id)
            create_label(self.target.writer, ref, label.name, label.time, self.target.pause, check_lease=lease.check)

    def read_history(self, commit_id: str) -> list[HistoryEntry]:
        """Return the commits that led to one, also those of merged branches. Parents come before their children."""
        found: dict[str, Commit] = {}
        ordered: list[HistoryEntry] = []
        waiting = [(commit_id, False)]
        while waiting:
            current, has_parents = waiting.pop()
            if has_parents:
                ordered.append(HistoryEntry(current, found[current]))
            elif current not in found:
                found[current] = read_commit(self.source.reader, self.source_id, current)
                waiting += [(current, True), *((parent, False) for parent in found[current].parents)]
        return ordered

    def labels_of(self, commits: Iterable[str]) -> list[VersionLabel]:
        known = set(commits)
        return [label for label in self.source.catalog.labels(self.source_id) if label.commit in known]
