"""Purge: erase the bytes of a file from all versions, with proof.

The steps are: intent, HEAD and branches, marks, successors, erasure, receipt. Each is idempotent and follows from the
intent, so a purge that was killed is finished by repeating it. Implements "Purge" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warpdata.collections.impact import AffectedVersion, Impact, assess_impact, check_action
from warpdata.collections.records import BrokenRecord, ErasedRecord, PurgeIntent, RecordStore, RepairRecord
from warpdata.collections.removal import remove_contents, shards_of_paths
from warpdata.collections.reverse_index import ReverseIndex
from warpdata.collections.successors import Cause, SuccessorMaker, labels_by_version
from warpdata.collections.tables import FILES
from warpdata.collections.training import JOB_PREFIX
from warpdata.datasets import Dataset, open_dataset
from warpdata.edit import Edit, EditOptions, transaction_of
from warpdata.errors import BadInputError, ConflictError, ErrorKind
from warpdata.formats.labels import check_image_path
from warpdata.primitives.hashing import is_digest
from warpdata.primitives.progress import Progress, silent
from warpdata.repository.catalog import MAIN, Address
from warpdata.repository.gc import (
    BlobUsers,
    CollectorClock,
    ErasureTerms,
    LeaseClock,
    erase_blobs,
    find_blob_users,
    list_blob_keys,
    remove_lease,
)
from warpdata.session import Session, keyed_id, open_cache

__all__ = [
    "PURGE_STEPS",
    "ErasureReceipt",
    "PurgeOptions",
    "PurgeRequest",
    "check_purge",
    "finish_purge",
    "list_unfinished",
    "purge_id_of",
    "start_purge",
]

_LISTED = 200
PURGE_STEPS = ("branches", "marks", "successors", "erasure", "receipt")
"""The steps of a purge behind its intent, in order."""


@dataclass(frozen=True, slots=True)
class PurgeRequest:
    """A decision: what to erase, what to do with versions, and the token of the impact that was seen."""

    path: str
    action: str
    token: str
    reason: str
    author: str


@dataclass(frozen=True)
class PurgeOptions:
    """Surroundings of a purge. `wait_s` bounds the time that it waits for other writers; None for no bound.

    `on_step` hears of each step, and of each version within it. What it raises stops the purge, which can be resumed.
    """

    wait_s: float | None = None
    progress: Progress = silent
    on_step: Callable[[str, int, int], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """The proof of a purge: who erased what, where it was, which versions and jobs lost it, and the final scan.

    Lists end after 200 entries; counts are complete.
    """

    purge_id: str
    dataset_id: str
    store: str
    path: str
    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    action: str
    author: str
    reason: str
    started: str
    finished: str
    erased_keys: tuple[str, ...]
    erased_bytes: int
    broken_versions: tuple[str, ...]
    broken_count: int
    successors: tuple[str, ...]
    successor_count: int
    jobs: tuple[str, ...]
    job_count: int
    scanned_versions: int
    remaining_keys: tuple[str, ...]
    cache_entries_removed: int
    is_clean: bool


@dataclass(frozen=True, slots=True)
class _ErasedKeys:
    """The keys and sizes that a purge found before it deleted them."""

    keys: tuple[str, ...]
    size_bytes: int


def start_purge(records: RecordStore, head: Dataset, request: PurgeRequest) -> PurgeIntent | ErasureReceipt:
    """Check the token and record the intent. A purge that is finished returns its receipt.

    Raise `ConflictError` of kind `impact_changed` if the token is not that of the present impact.
    """
    purge_id = purge_id_of(records.dataset_id, request)
    receipt = records.get(f"purges/{purge_id}/receipt", ErasureReceipt)
    known = records.get(f"purges/{purge_id}/intent", PurgeIntent)
    if receipt is not None or known is not None:
        found = receipt or known
        assert found is not None
        return found
    unfinished = list_unfinished(records)
    if unfinished:
        raise ConflictError(
            f"the purge of {unfinished[0].path!r} of {records.dataset_id} is not finished",
            hint="Finish it with resume_purges(), then look at the impact again.",
        )
    index = ReverseIndex(records.session, records.dataset_id)
    impact = _confirm(head, index, request)
    blobs = _blobs(records.session, index, impact, head)
    _check_users(records, find_blob_users(records.session.writer, blobs))
    intent = PurgeIntent(
        purge_id,
        request.path,
        impact.hashes,
        tuple(sorted(blobs)),
        request.action,
        request.token,
        head.version,
        request.reason,
        request.author,
        records.session.timestamp(),
        impact.is_packed,
    )
    records.put(f"purges/{purge_id}/intent", intent)
    return intent


def purge_id_of(dataset_id: str, request: PurgeRequest) -> str:
    """Return the id of a purge, which follows from its decision. `BadInputError` for a decision that is not one."""
    check_action(request.action)
    check_image_path(request.path)
    if not is_digest(request.token):
        raise BadInputError(f"token={request.token[:80]!r} is not that of an impact", hint="Call impact(path).token.")
    return keyed_id(f"purge\n{dataset_id}\n{request.token}\n{request.action}\n{request.path}")


def check_purge(records: RecordStore, head: Dataset, request: PurgeRequest) -> str:
    """Return the id of a purge that was begun before, or that its impact still allows. Writes nothing.

    Raise `ConflictError` of kind `impact_changed` as `start_purge` does.
    """
    purge_id = purge_id_of(records.dataset_id, request)
    if records.get(f"purges/{purge_id}/intent", PurgeIntent) is None:
        _confirm(head, ReverseIndex(records.session, records.dataset_id), request)
    return purge_id


def _confirm(head: Dataset, index: ReverseIndex, request: PurgeRequest) -> Impact:
    impact = assess_impact(head, index, request.path)
    if impact.token != request.token:
        raise ConflictError(
            f"the impact of purging {request.path!r} has changed: "
            f"{len(impact.affected_versions)} versions and {len(impact.affected_jobs)} jobs have it now",
            hint="Call impact() again, and decide with its token.",
            kind=ErrorKind.IMPACT_CHANGED,
        )
    return impact


def list_unfinished(records: RecordStore) -> list[PurgeIntent]:
    """Return the purges that have an intent and no receipt, oldest first."""
    names = set(records.names("purges"))
    open_ids = [name.split("/")[1] for name in names if name.endswith("/intent")]
    found = [
        intent
        for purge_id in open_ids
        if f"purges/{purge_id}/receipt" not in names
        if (intent := records.get(f"purges/{purge_id}/intent", PurgeIntent)) is not None
    ]
    return sorted(found, key=lambda intent: (intent.time, intent.purge_id))


def finish_purge(records: RecordStore, intent: PurgeIntent, options: PurgeOptions) -> ErasureReceipt:
    """Do all steps of a purge that are not done yet, and return its receipt."""
    return _Purge(records, intent, options).run()


class _Purge:
    """One run over the steps of an intent."""

    def __init__(self, records: RecordStore, intent: PurgeIntent, options: PurgeOptions) -> None:
        self._records = records
        self._intent = intent
        self._options = options
        self._session = records.session
        self._id = records.dataset_id
        self._index = ReverseIndex(records.session, records.dataset_id)
        self._broken: set[str] = set()
        cause = Cause(intent.purge_id, intent.author, intent.time, intent.blobs, f"purge {intent.purge_id} repair")
        self._successors = SuccessorMaker(records, cause, "without purged files")

    def run(self) -> ErasureReceipt:
        intent, writer, on_step = self._intent, self._session.writer, self._options.on_step
        self._index.refresh()
        branches = self._session.catalog.branches(self._id)
        for done, branch in enumerate(branches):
            on_step("branches", done, len(branches))
            self._clear_branch(branch)
        on_step("marks", 0, 1)
        self._index.refresh()
        users = find_blob_users(writer, intent.blobs)
        self._mark(users)
        affected = self._affected()
        self._make_successors(affected, users)
        on_step("erasure", 0, 1)
        for digest in (*intent.blobs, *intent.hashes):
            self._records.put(f"erased/{digest}", ErasedRecord(intent.purge_id, intent.time))
        stored = list_blob_keys(writer, intent.blobs)
        found = _ErasedKeys(tuple(key for key, _ in stored), sum(size for _, size in stored))
        self._records.put(f"purges/{intent.purge_id}/erasing", found)
        clock = CollectorClock(
            LeaseClock(self._session.clock, self._session.timer),
            self._session.sleep,
            self._session.pause,
            self._session.new_generation,
        )
        terms = ErasureTerms(self._mark, self._options.wait_s, self._options.progress)
        erase_blobs(writer, intent.blobs, clock, terms)
        on_step("receipt", 0, 1)
        return self._write_receipt(affected)

    def _clear_branch(self, branch: str) -> None:
        """Remove the files from the head of a branch. The keys of the edits make them, and their leases, known."""
        intent, number = self._intent, 0
        while True:
            dataset = open_dataset(self._session, Address(self._id, branch))
            paths = self._index.paths_in(dataset.version, intent.hashes)
            number += 1
            key = f"purge {intent.purge_id} {branch} {number}"
            if not paths:
                break
            message = f"purge {intent.path}" if len(intent.path) < 1000 else "purge a file"
            self._edit(dataset, EditOptions(message, intent.author, branch, key, time=intent.time), paths)
        for one in range(1, max(number, 2)):  # also the first one of a run that was killed after its commit
            txn_id = transaction_of(self._id, f"purge {intent.purge_id} {branch} {one}")
            remove_lease(self._session.writer, txn_id, self._session.pause)

    def _edit(self, dataset: Dataset, options: EditOptions, paths: tuple[str, ...]) -> None:
        with Edit(dataset.context, options, lambda *_: None) as edit:
            remove_contents(edit, dataset, paths, self._intent.blobs)

    def _mark(self, users: BlobUsers) -> None:
        """Record what each version loses. Raise `ConflictError` if something else needs the bytes."""
        _check_users(self._records, users)
        heads = users.heads.get(self._id, {})
        if heads:
            raise ConflictError(
                f"branch {min(heads)!r} of {self._id} has a file of this purge again, so nothing was erased",
                hint="Call resume_purges() to finish the purge.",
            )
        intent = self._intent
        for version in sorted(users.versions.get(self._id, frozenset()) - self._broken):
            missing = self._index.paths_in(version, intent.hashes)
            record = BrokenRecord(version, intent.purge_id, missing, len(missing), intent.time)
            self._records.put(f"states/{version}/{intent.purge_id}", record)
            self._broken.add(version)

    def _affected(self) -> list[AffectedVersion]:
        found = self._index.find(self._intent.hashes)
        return [
            AffectedVersion.of(label, version)
            for label, version in found.labels
            if version in self._broken or self._records.get(self._state_name(version), BrokenRecord) is not None
        ]

    def _state_name(self, version: str) -> str:
        return f"states/{version}/{self._intent.purge_id}"

    def _make_successors(self, affected: list[AffectedVersion], users: BlobUsers) -> None:
        """Make the versions without the files. Those that share a packed shard always get one: else they lose more."""
        intent = self._intent
        if intent.action != "auto_repair" and not intent.is_packed:
            return
        named = labels_by_version(affected)
        if intent.is_packed:
            for version in sorted(users.versions.get(self._id, frozenset())):
                named.setdefault(version, version[:12])
        for done, (version, label) in enumerate(named.items()):
            self._options.on_step("successors", done, len(named))
            self._successors.repair(version, label, self._broken)

    def _write_receipt(self, affected: list[AffectedVersion]) -> ErasureReceipt:
        """Scan what is left, and record the proof."""
        intent, session = self._intent, self._session
        digests = sorted({*intent.blobs, *intent.hashes})
        cache = session.cache or open_cache(session.settings)
        removed = sum(cache.remove(digest) for digest in digests)
        remaining = tuple(key for key, _ in list_blob_keys(session.writer, digests))
        is_cached = any(cache.contains(digest) for digest in digests)
        users = find_blob_users(session.writer, intent.blobs)
        broken = sorted(users.versions.get(self._id, frozenset()))
        labels = {one.label for one in affected}
        successors = sorted(
            record.label
            for version in broken
            if (record := self._records.get(f"repairs/{version}/{intent.purge_id}", RepairRecord)) is not None
        )
        erased = self._records.get(f"purges/{intent.purge_id}/erasing", _ErasedKeys)
        jobs = sorted(label.removeprefix(JOB_PREFIX) for label in labels if label.startswith(JOB_PREFIX))
        is_clean = not remaining and not is_cached and not self._packed_copies()
        receipt = ErasureReceipt(
            purge_id=intent.purge_id,
            dataset_id=self._id,
            store=session.writer.url,
            path=intent.path,
            paths=self._index.find(intent.hashes).paths[:_LISTED],
            hashes=intent.hashes,
            action=intent.action,
            author=intent.author,
            reason=intent.reason,
            started=intent.time,
            finished=session.timestamp(),
            erased_keys=erased.keys[:_LISTED] if erased else (),
            erased_bytes=erased.size_bytes if erased else 0,
            broken_versions=tuple(broken[:_LISTED]),
            broken_count=len(broken),
            successors=tuple(successors[:_LISTED]),
            successor_count=len(successors),
            jobs=tuple(jobs[:_LISTED]),
            job_count=len(jobs),
            scanned_versions=len(self._index.find(intent.hashes).versions),
            remaining_keys=remaining[:_LISTED],
            cache_entries_removed=removed,
            is_clean=is_clean,
        )
        if not is_clean:
            raise ConflictError(
                f"bytes of {intent.path!r} are still stored or cached: {', '.join(remaining[:3]) or 'in a shard'}",
                hint="Another writer may have added the same content. Call resume_purges() again.",
            )
        self._records.put(f"purges/{intent.purge_id}/receipt", receipt)
        return self._records.get(f"purges/{intent.purge_id}/receipt", ErasureReceipt) or receipt

    def _packed_copies(self) -> bool:
        """Return whether HEAD has a file with one of the contents: its rows are searched through the index."""
        head = open_dataset(self._session, Address(self._id, MAIN))
        paths = self._index.paths_in(head.version, self._intent.hashes)
        return bool(paths) or bool(set(self._intent.blobs) & {shard.hash for shard in head.artifact(FILES).shards()})


def _blobs(session: Session, index: ReverseIndex, impact: Impact, head: Dataset) -> set[str]:
    """Return the blobs that hold the contents. Files that are blobs of their own are named by their hash."""
    if not impact.is_packed:
        return set(impact.hashes)
    blobs: set[str] = set()
    for version in index.find(impact.hashes).versions:
        paths = index.paths_in(version, impact.hashes)
        blobs |= shards_of_paths(open_dataset(session, Address(head.id, version)), paths)
    return blobs


def _check_users(records: RecordStore, users: BlobUsers) -> None:
    others = sorted(users.versions.keys() - {records.dataset_id})
    if others:
        raise ConflictError(
            f"{', '.join(others[:5])} in {records.session.writer.url} "
            f"{'has' if len(others) == 1 else 'have'} the same bytes, so they cannot be erased",
            hint="Purge the file there first, or remove those datasets and collect the garbage.",
            kind=ErrorKind.SHARED_BYTES,
        )
