"""Size of a commit: one shard appended to a table that already has 100,000.

The pages, the manifest, the commit and the head of the base are real and written by the publishing code. Only the
first shard has a blob, because appending and opening never read the others. The append is an ordinary
`DatasetBuilder.append_table` into a memory store that measures its writes.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.harness.data import make_small_files, scratch
from benchmarks.harness.timing import Arm, RunOptions, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import DATASET, publish_table, shards_of
from warpdata import DatasetBuilder, Settings
from warpdata.datasets import Session, connect, open_dataset
from warpdata.primitives.hashing import Fingerprint, OnBytes, blob_key, ignore_bytes
from warpdata.repository.catalog import MAIN, Transaction, commit, parse_address
from warpdata.repository.manifest import Manifest, Shard, TableEntry, page_shards
from warpdata.storage import Writer
from warpdata.testing import FaultyStore

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class _Base:
    """A published table and the size of the pages that list its shards."""

    session: Session
    list_bytes: int


@dataclass(frozen=True, slots=True)
class _CommitSize:
    """Objects and bytes that one append wrote, without the appended shard."""

    object_count: int
    size_bytes: int


class _MeteredStore(FaultyStore):
    """Records the size of each write except that of the shard itself."""

    def __init__(self, store: Writer) -> None:
        super().__init__(store)
        self.written: list[int] = []

    def create(self, key: str, data: bytes) -> bool:
        self.written.append(len(data))
        return super().create(key, data)

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        assert fingerprint.blob.byte_size
        return super().create_file(key, path, fingerprint, on_bytes)

    def replace(self, key: str, data: bytes) -> None:
        self.written.append(len(data))
        super().replace(key, data)


def run(options: RunOptions) -> Outcome:
    many, few = (2000 if options.is_smoke else 100_000), 20
    settings = Settings(store_url="memory://bench", cache_dir=scratch("commit-cache"))
    files = make_small_files(few, 64 * 1024)
    large, small = (_make_base(count, files, settings) for count in (many, few))
    timings = interleave({"many": _opening(large), "few": _opening(small)}, options.rounds)
    appends = [_append(large, path) for path in files[1 : 1 + max(2, options.rounds * 2)]]
    case = f"open, schema and head at {many:,} shards"
    return Outcome(
        title=f"One shard appended to {many:,}",
        method="A memory store; one shard appended at a time. The shard itself does not count.",
        measurements=[
            *_measure_size(appends, large, many),
            timings.slowdown(case, "many", "few", baseline_name=f"{few} shards"),
        ],
        notes=[
            "The base is written by the publishing code, but only its first shard has a blob.",
            "The objects are one page, the manifest, the commit, the head, the hint, and an existing marker.",
        ],
    )


def _make_base(shard_count: int, files: list[Path], settings: Settings) -> _Base:
    store = f"memory://bench-{shard_count}"
    publish_table(files[:1], store, settings)
    session = connect(store, settings)
    first = shards_of(open_dataset(session, parse_address(DATASET)).table("main"))[0]
    paged = page_shards([first, *(_synthetic_shard(first, number) for number in range(1, shard_count))])
    for digest, data in paged.new_pages.items():
        session.writer.create(blob_key(digest), data)
    manifest = Manifest(DATASET, {"main": TableEntry(paged.shards)})
    txn = Transaction(DATASET, MAIN, session.new_id(), "replace", "bench", "the base", session.timestamp())
    commit(session.writer, txn, lambda _: manifest, session.pause)
    return _Base(session, sum(len(data) for data in paged.new_pages.values()))


def _synthetic_shard(like: Shard, number: int) -> Shard:
    return msgspec.structs.replace(like, hash=hashlib.sha256(number.to_bytes(8, "little")).hexdigest())


def _append(base: _Base, path: Path) -> _CommitSize:
    store = _MeteredStore(base.session.writer)
    session = Session(store, store, base.session.settings)
    published = DatasetBuilder(DATASET, session).append_table("main", path).publish()
    assert published.changed
    return _CommitSize(len(store.written), sum(store.written))


def _opening(base: _Base) -> Arm:
    def open_once() -> int:
        table = open_dataset(base.session, parse_address(DATASET)).table("main")
        assert len(table.schema()) == 2
        return int(table.head(5).num_rows)

    return lambda: open_once


def _measure_size(appends: list[_CommitSize], base: _Base, many: int) -> list[Measurement]:
    sizes = [size.size_bytes for size in appends]
    return [
        Measurement(
            case="bytes written",
            unit="kB",
            ours=statistics.median(sizes) / 1e3,
            peer=base.list_bytes / 1e3,
            peer_name=f"the list of {many:,} shards",
            is_baseline=True,
            ratio=statistics.median(sizes) / base.list_bytes,
            quantity="bytes",
            promise="commit-bytes",
            detail=f"at most {max(sizes) / 1e3:.1f} kB",
        ),
        Measurement(
            case="objects written", unit="objects", ours=statistics.median(size.object_count for size in appends)
        ),
    ]
