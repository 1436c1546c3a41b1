"""The collector: mark, condemn, wait, mark again, delete.

Any number of collectors may run, and each may stop at any moment. Implements "Collection" of docs/specs/gc.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from warpdata.errors import ConflictError, ObjectNotFoundError, UnsupportedError
from warpdata.primitives.parallel import IO_POOL
from warpdata.primitives.progress import Progress, ProgressCounter, ProgressEvent
from warpdata.repository.catalog import (
    JOBS_PREFIX,
    STORE_MARKER,
    Pause,
    Tombstone,
    encode_record,
    put_create_only,
    read_marker,
    retry_unknown,
    tombstone_key,
    upgrade_marker,
)
from warpdata.repository.gc.condemned import (
    CONDEMNED_PREFIX,
    PART_KEYS,
    UNFINISHED_FOR,
    SizedKey,
    decode_part,
    encode_part,
    is_in_force,
    part_key,
)
from warpdata.repository.gc.lease import LAPSE, LeaseClock, LeaseInfo, describe_lease, list_leases
from warpdata.repository.gc.mark import EXPIRED, GarbageGroup, LiveObjects, mark
from warpdata.repository.gc.report import Garbage, GarbageReport, ReportBuilder
from warpdata.repository.gc.retention import Retention
from warpdata.storage import ObjectInfo, Writer

__all__ = [
    "CollectionRun",
    "CollectorClock",
    "check_marker",
    "collect",
    "condemn_part",
    "delete_keys",
    "finish_part",
    "name_collection",
    "store_time_of",
    "wait_for_writers",
]

STORE_CLOCK = "gc/clock"
DELETE_WITHIN = UNFINISHED_FOR / 2
"""A collector deletes nothing by a list that is older than this."""
OLD_WRITERS = timedelta(hours=24)
"""A publish by a program without leases ends within this time."""
ABANDONED = timedelta(hours=24)
ABANDONED_JOB = timedelta(days=7)
"""A record of a task is removed after this time, so an interrupted job must go on within it."""
_BLOB = re.compile(r"blobs/([0-9a-f]{2})/([0-9a-f]{2})/(\1\2[0-9a-f]{60}(?:\.[0-9a-f]{8})?)")
_FEW_OBJECTS = 1000
_PARALLEL_LISTINGS = 16
_DELETED_AT_ONCE = 1000
_PARALLEL_DELETES = 4
_POLL_S = 2.0


@dataclass(frozen=True)
class CollectorClock:
    """Time and chance of a collector."""

    own: LeaseClock
    sleep: Callable[[float], None]
    pause: Pause
    new_name: Callable[[], str]


@dataclass
class CollectionRun:
    """One run. `store_time()` is the clock of the store, extrapolated by the timer of this machine."""

    writer: Writer
    rule: Retention
    clock: CollectorClock
    progress: Progress
    store_time: Callable[[], datetime]
    found: ReportBuilder
    name: str = ""
    parts: list[str] = field(default_factory=list)


def collect(
    writer: Writer,
    rule: Retention,
    clock: CollectorClock,
    *,
    dry_run: bool,
    wait_s: float | None,
    progress: Progress,
) -> GarbageReport:
    """Collect the garbage of a store, or only report it.

    Waits for writers that hold a lease, at most `wait_s`. Raise `ConflictError` when that is over; what was condemned
    then expires, and nothing was deleted.
    """
    found = ReportBuilder(writer.url, rule.text, dry_run=dry_run)
    ready_at = check_marker(writer, clock.pause, dry_run=dry_run)
    store_time = clock.own.clock if dry_run else store_time_of(writer, clock)  # a dry run writes nothing
    run = CollectionRun(writer, rule, clock, progress, store_time, found)
    if ready_at is not None and store_time() < ready_at:
        return found.build(ready_at) if not dry_run else _find(run, found)
    if dry_run:
        return _find(run, found)
    since = clock.own.start()
    leases = list_leases(writer, store_time(), clock.own.clock())
    first = mark(writer, rule, clock.own.clock())
    run.name = name_collection(store_time(), clock)
    _condemn(run, first, leases)
    if run.parts:
        wait_for_writers(run, wait_s, since)
        second = mark(writer, rule, clock.own.clock(), first)
        for part in run.parts:
            _delete_part(run, part, first, second, since)
    _clean(run)
    return found.build()


def name_collection(store_now: datetime, clock: CollectorClock) -> str:
    """Return the name of a collection, which is that of its condemned list."""
    return f"{store_now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{clock.new_name()}"


def _find(run: CollectionRun, found: ReportBuilder) -> GarbageReport:
    leases = list_leases(run.writer, run.store_time(), run.clock.own.clock())
    live = mark(run.writer, run.rule, run.clock.own.clock())
    for _ in _candidates(run, live, leases):
        pass
    count, size_bytes = run.writer.remove_abandoned(run.store_time() - ABANDONED, dry_run=True)
    found.add(Garbage(GarbageGroup(None, "abandoned"), "upload", count, size_bytes))
    return found.build()


def check_marker(writer: Writer, pause: Pause, *, dry_run: bool) -> datetime | None:
    """Upgrade a store that writers without leases may use. Return when such writers have ended, if there were any."""
    marker = read_marker(writer)
    if marker is None or (marker.has_leases and not marker.is_upgraded):
        return None
    if not marker.has_leases and not dry_run:
        retry_unknown(lambda: upgrade_marker(writer), pause)
    changed = writer.stat(STORE_MARKER).modified
    if changed is None:
        raise UnsupportedError(
            f"{writer.url} reports no times of its objects, so it is unknown when old writers have ended",
            hint="Copy the datasets into a new store, and collect that.",
        )
    return changed + OLD_WRITERS if marker.has_leases or not dry_run else None


def store_time_of(writer: Writer, clock: CollectorClock) -> Callable[[], datetime]:
    """Return the clock of the store. Without one, return the clock of this machine."""
    began = clock.own.timer()
    retry_unknown(lambda: writer.replace(STORE_CLOCK, b""), clock.pause)
    written = writer.stat(STORE_CLOCK).modified
    if written is None:
        return clock.own.clock
    return lambda: written + timedelta(seconds=clock.own.timer() - began)


def _condemn(run: CollectionRun, live: LiveObjects, leases: Sequence[LeaseInfo]) -> None:
    """Publish the keys of all garbage, part by part. The records of versions come before blobs."""
    keys: list[SizedKey] = []
    for key in _candidates(run, live, leases):
        keys.append(key)
        if len(keys) >= PART_KEYS:
            condemn_part(run, keys)
            keys.clear()
    if keys:
        condemn_part(run, keys)


def condemn_part(run: CollectionRun, keys: Sequence[SizedKey]) -> None:
    """Publish a part of the condemned list."""
    key = part_key(run.name, len(run.parts))
    data = encode_part(keys)
    is_new = put_create_only(run.writer, key, data, run.clock.pause)
    if not is_new and run.writer.read(key).data != data:
        raise ConflictError(f"another collection is called {run.name}", hint="Run it again.")
    run.parts.append(key)


def _candidates(run: CollectionRun, live: LiveObjects, leases: Sequence[LeaseInfo]) -> Iterator[SizedKey]:
    """Yield garbage: manifests and commits by dataset, then blobs in order of their names. Count it for the report."""
    has_writers = any(not lease.is_lapsed for lease in leases)
    before = run.store_time() - (LAPSE if has_writers else timedelta(0))

    def is_old(info: ObjectInfo) -> bool:
        return info.modified is None or info.modified <= before

    for dataset_id, marked in live.datasets.items():
        history = marked.history
        run.found.count_kept(len(marked.kept))
        for version in sorted(history.manifests.keys() - marked.kept):
            info = history.manifests[version]
            if is_old(info):
                run.found.add(Garbage(GarbageGroup(dataset_id, marked.reason(version)), "version", 1, info.size_bytes))
                yield info.key, info.size_bytes
        for commit_id in sorted(history.commits.keys() - history.reachable.keys()):
            info = history.commits[commit_id]
            if is_old(info):
                run.found.add(Garbage(GarbageGroup(dataset_id, "orphan"), "commit", 1, info.size_bytes))
                yield info.key, info.size_bytes
    for place, listed in _list_blobs(run):
        find = live.look_up(place)
        for info in listed:
            matched = _BLOB.fullmatch(info.key)
            group = None if matched is None else find(matched[3])
            if matched is not None and group is None:
                run.found.count_live(info.size_bytes)
            elif group is not None and is_old(info):
                run.found.add(Garbage(group, "blob", 1, info.size_bytes))
                yield info.key, info.size_bytes


def _list_blobs(run: CollectionRun) -> Iterator[tuple[int, Iterable[ObjectInfo]]]:
    """Yield all blobs by the first byte of their names. Listings run in parallel; a small store needs only one."""
    writer = run.writer
    few = [] if writer.is_local("blobs") else list(writer.list_objects("blobs", max_count=_FEW_OBJECTS))
    folders = sorted({info.key.split("/")[1] for info in few})
    is_complete = 0 < len(few) < _FEW_OBJECTS
    if not is_complete:
        folders = writer.list_folders("blobs")
    places = [name for name in folders if re.fullmatch(r"[0-9a-f]{2}", name)]
    counter = ProgressCounter(run.progress, "list", 0, len(places))

    def list_folder(name: str) -> list[ObjectInfo]:
        prefix = f"blobs/{name}/"
        if is_complete:
            return [info for info in few if info.key.startswith(prefix)]
        return list(writer.list_objects(f"blobs/{name}"))

    listings = IO_POOL.map_ordered(list_folder, places, limit=_PARALLEL_LISTINGS, ahead=_PARALLEL_LISTINGS)
    for name, listed in zip(places, listings, strict=True):
        yield int(name, 16), listed
        counter.finish_file()


def wait_for_writers(run: CollectionRun, wait_s: float | None, since: Callable[[], float]) -> None:
    """Wait for the leases that are there now. A lease that is created later belongs to a writer that sees the list."""
    own = run.clock.own
    waiting = {lease.key for lease in list_leases(run.writer, run.store_time(), own.clock()) if not lease.is_lapsed}
    began, total = own.timer(), len(waiting)
    while waiting:
        present = {lease.key: lease for lease in list_leases(run.writer, run.store_time(), own.clock())}
        waiting = {key for key in waiting if key in present and not present[key].is_lapsed}
        if not waiting:
            return
        run.progress(ProgressEvent("wait", 0, 0, total - len(waiting), total))
        waited_s = own.timer() - began
        if wait_s is not None and waited_s >= wait_s:
            lease = present[min(waiting)]
            raise ConflictError(
                f"{describe_lease(run.writer, lease)} is still at work, so nothing was deleted; "
                f"{len(waiting)} leases after {waited_s:.0f} s, the first of transaction {lease.txn_id}",
                hint="Run it again later. The lease of a killed writer lapses after an hour.",
            )
        _check_deadline(since)
        run.clock.sleep(_POLL_S if wait_s is None else min(_POLL_S, max(0.0, wait_s - waited_s)))


def _delete_part(
    run: CollectionRun, part: str, first: LiveObjects, second: LiveObjects, since: Callable[[], float]
) -> None:
    """Delete the condemned keys of one part that are not live, then finish the part."""
    condemned = decode_part(run.writer.read(part).data, part).keys
    records = [
        sized for sized in condemned if not sized[0].startswith("blobs/") and not second.is_live_record(sized[0])
    ]
    by_place: defaultdict[int, list[SizedKey]] = defaultdict(list)
    for sized in condemned:
        matched = _BLOB.fullmatch(sized[0])
        if matched is not None:
            by_place[int(matched[1], 16)].append(sized)
    blobs: list[SizedKey] = []
    for place, listed in sorted(by_place.items()):
        find = second.look_up(place)
        blobs += [sized for sized in listed if find(sized[0].rsplit("/", 1)[-1]) is not None]
    _bury(run, records, first)
    counter = ProgressCounter(run.progress, "delete", 0, len(records) + len(blobs))
    for group in (records, blobs):
        delete_keys(run, group, counter, since)
    run.found.count_deleted(len(records) + len(blobs), sum(size for _, size in (*records, *blobs)))
    finish_part(run, part, [*records, *blobs])


def finish_part(run: CollectionRun, part: str, deleted: Sequence[SizedKey]) -> None:
    """End a part of the condemned list. On object stores it stays a while, for deletes that are on their way."""
    if run.writer.is_local(part):
        run.writer.delete(part)
    else:
        retry_unknown(lambda: run.writer.replace(part, encode_part(deleted, is_finished=True)), run.clock.pause)


def _bury(run: CollectionRun, records: Sequence[SizedKey], first: LiveObjects) -> None:
    """Leave a tombstone for each version of the history that goes."""
    time = run.clock.own.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def bury(key: str) -> None:
        _, workspace, name, section, file = key.split("/")
        dataset_id, version = f"{workspace}/{name}", file.removesuffix(".json")
        if section == "manifests" and first.datasets[dataset_id].reason(version) == EXPIRED:
            data = encode_record(Tombstone(version, time, run.rule.text))
            put_create_only(run.writer, tombstone_key(dataset_id, version), data, run.clock.pause)

    IO_POOL.map_all(bury, [key for key, _ in records], limit=_PARALLEL_DELETES)


def delete_keys(
    run: CollectionRun, keys: Sequence[SizedKey], counter: ProgressCounter, since: Callable[[], float]
) -> None:
    """Delete by exact key, in batches. A lost reply is repeated: these keys are not used again."""

    def delete(batch: list[str]) -> None:
        _check_deadline(since)
        retry_unknown(lambda: run.writer.delete_many(batch), run.clock.pause)
        for _ in batch:
            counter.finish_file()

    names = [key for key, _ in keys]
    batches = [names[start : start + _DELETED_AT_ONCE] for start in range(0, len(names), _DELETED_AT_ONCE)]
    IO_POOL.map_all(delete, batches, limit=_PARALLEL_DELETES)


def _check_deadline(since: Callable[[], float]) -> None:
    if since() > DELETE_WITHIN.total_seconds():
        raise ConflictError(
            f"this collection began {since() / 3600:.0f} hours ago, so it deletes nothing more",
            hint="Run it again: it starts from the current state.",
        )


def _clean(run: CollectionRun) -> None:
    """Remove lapsed leases, lists that are not in force any more, and what jobs and writes have abandoned."""
    writer, now = run.writer, run.store_time()
    for lease in list_leases(writer, now, run.clock.own.clock()):
        if lease.is_lapsed:
            retry_unknown(lambda key=lease.key: writer.delete(key), run.clock.pause)  # type: ignore[misc]
    for info in writer.list_objects(CONDEMNED_PREFIX):
        if not is_in_force(info, now, is_finished=_is_finished(writer, info)):
            retry_unknown(lambda key=info.key: writer.delete(key), run.clock.pause)  # type: ignore[misc]
    _remove_jobs(writer, now - ABANDONED_JOB, run.clock.pause)
    count, size_bytes = retry_unknown(lambda: writer.remove_abandoned(now - ABANDONED), run.clock.pause)
    run.found.add(Garbage(GarbageGroup(None, "abandoned"), "upload", count, size_bytes))
    run.found.count_deleted(count, size_bytes)


def _remove_jobs(writer: Writer, before: datetime, pause: Pause) -> None:
    """Remove the records of jobs that have not gone on. A store without times keeps them."""
    listed = writer.list_objects(JOBS_PREFIX)
    old = [info.key for info in listed if info.modified is not None and info.modified < before]
    for start in range(0, len(old), _DELETED_AT_ONCE):
        batch = old[start : start + _DELETED_AT_ONCE]
        retry_unknown(lambda batch=batch: writer.delete_many(batch), pause)  # type: ignore[misc]


def _is_finished(writer: Writer, info: ObjectInfo) -> bool:
    try:
        return decode_part(writer.read(info.key).data, info.key).is_finished
    except ObjectNotFoundError:
        return True
