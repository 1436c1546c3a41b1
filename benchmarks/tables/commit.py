"""A commit writes what changed: one shard appended to a table that already has 100,000.

The base is real in every byte that counts (pages, manifest, commit, head) and laid out by the code
that publishes, but only the first of its shards has a blob: appending and opening never look at the
others. The append itself is an ordinary `DatasetBuilder.append_table`, into a memory store that
measures what is written to it.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.data import many_small_files, scratch
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from benchmarks.tables.dataset import DATASET, publish, shards_of
from warpdata.catalog import MAIN, Transaction, commit, parse_address
from warpdata.datasets import Connection, connect, open_dataset
from warpdata.digest import Fingerprint, OnBytes, blob_key, unwatched
from warpdata.manifest import Manifest, Shard, TableEntry, page_shards
from warpdata.publish import DatasetBuilder
from warpdata.settings import Settings
from warpdata.store import Writer
from warpdata.testing import FaultyStore

__all__ = ["run"]

_MOST_OF_THE_LIST = 0.05


@dataclass(frozen=True, slots=True)
class _Base:
    """A published table, and the size of the pages that list its shards."""

    link: Connection
    list_bytes: int


@dataclass(frozen=True, slots=True)
class _Written:
    """What one append wrote, the appended shard itself left out."""

    objects: int
    size_bytes: int


class _Measuring(FaultyStore):
    """Adds up the sizes of what is written."""

    def __init__(self, store: Writer) -> None:
        super().__init__(store)
        self.written: list[int] = []

    def create(self, key: str, data: bytes) -> bool:
        self.written.append(len(data))
        return super().create(key, data)

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = unwatched) -> bool:
        assert fingerprint.blob.byte_size, "the shard's own bytes, which are not the commit's"
        return super().create_file(key, path, fingerprint, on_bytes)

    def replace(self, key: str, data: bytes) -> None:
        self.written.append(len(data))
        super().replace(key, data)


def run(effort: Effort) -> Report:
    many, few = (2000 if effort.quick else 100_000), 20
    settings = Settings(store_url="memory://bench", cache_dir=scratch("commit-cache"))
    files = many_small_files(few, 64 * 1024)
    large, small = (_base(count, files, settings) for count in (many, few))
    arms: dict[str, Arm] = {"many": _opening(large), "few": _opening(small)}
    timings = interleave(arms, effort.rounds)
    appends = [_append(large, path) for path in files[1 : 1 + max(2, effort.rounds * 2)]]
    return Report(
        f"One shard appended to {many:,}",
        "A memory store; one shard appended at a time, counting what the commit writes beside the shard itself.",
        [*_sizes(appends, large, many), _slowdown(timings, many, few)],
        [
            "The base is laid out by the code that publishes, but only its first shard has a blob.",
            "The objects: one page, the manifest, the commit, the head, the hint, and the marker already there.",
        ],
    )


def _base(shard_count: int, files: list[Path], settings: Settings) -> _Base:
    store = f"memory://bench-{shard_count}"
    publish(files[:1], store, settings)
    link = connect(store, settings)
    first = shards_of(open_dataset(link, parse_address(DATASET)).table("main"))[0]
    paged = page_shards([first, *(_invented(first, number) for number in range(1, shard_count))])
    for digest, data in paged.new_pages.items():
        link.writer.create(blob_key(digest), data)
    manifest = Manifest(DATASET, {"main": TableEntry(paged.shards)})
    txn = Transaction(DATASET, MAIN, link.new_id(), "replace", "bench", "the base", link.timestamp())
    commit(link.writer, txn, lambda _: manifest, link.pause)
    return _Base(link, sum(len(data) for data in paged.new_pages.values()))


def _invented(like: Shard, number: int) -> Shard:
    return replace(like, hash=hashlib.sha256(number.to_bytes(8, "little")).hexdigest())


def _append(base: _Base, path: Path) -> _Written:
    store = _Measuring(base.link.writer)
    link = Connection(store, store, base.link.settings)
    published = DatasetBuilder(DATASET, link).append_table("main", path).publish()
    assert published.changed
    return _Written(len(store.written), sum(store.written))


def _opening(base: _Base) -> Arm:
    def open_once() -> int:
        table = open_dataset(base.link, parse_address(DATASET)).table("main")
        assert len(table.schema()) == 2
        return int(table.head(5).num_rows)

    def prepare() -> Callable[[], int]:
        return open_once

    return prepare


def _sizes(appends: list[_Written], base: _Base, many: int) -> list[Finding]:
    size_bytes = statistics.median(written.size_bytes for written in appends)
    largest = max(written.size_bytes for written in appends)
    share = size_bytes / base.list_bytes
    return [
        Finding(
            f"bytes written, against the list of {many:,}",
            f"{megabytes(size_bytes)} (at most {megabytes(largest)})",
            megabytes(base.list_bytes),
            f"{share:.2%} of the list",
            f"≤ {_MOST_OF_THE_LIST:.0%}",
            share <= _MOST_OF_THE_LIST,
        ),
        Finding("objects written", f"{statistics.median(written.objects for written in appends):.0f}"),
    ]


def _slowdown(timings: Timings, many: int, few: int) -> Finding:
    slowdown = 1 / timings.speed_ratio("many", "few")
    return Finding(
        f"open, schema and head at {many:,} shards against {few}",
        seconds(timings.median_s("many")),
        seconds(timings.median_s("few")),
        f"{slowdown:.2f}× the time",
    )
