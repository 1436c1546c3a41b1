"""If these fail, rows depend on the size of the machine, scans exceed their memory, or one scan starves another."""

from __future__ import annotations

from pathlib import Path

import pytest

import warpdata as wd
from tests.kinds.tables.scenes import counted, published
from warpdata.primitives.concurrency import set_threads
from warpdata.primitives.parallel import READ_MEMORY, REQUEST_LIMIT
from warpdata.repository.manifest import iter_shards

ROWS = 4_000
GROUP_ROWS = 50


@pytest.fixture
def table(tmp_path: Path) -> wd.Table:
    parts = [counted(start, ROWS // 4) for start in range(0, ROWS, ROWS // 4)]
    return published(parts, f"memory://{tmp_path.name}", tmp_path, row_group_size=GROUP_ROWS)


@pytest.mark.parametrize("threads", [1, 3, 16])
@pytest.mark.parametrize("requests", [1, 40])
@pytest.mark.parametrize("memory_bytes", [1, 20_000, 10**9])
def test_rows_are_the_same_at_every_setting(table: wd.Table, threads: int, requests: int, memory_bytes: int) -> None:
    set_threads(threads)
    REQUEST_LIMIT.fix(requests)
    READ_MEMORY.resize(memory_bytes)
    assert table.to_arrow().equals(counted(0, ROWS))
    assert table.filter("n % 7 = 3").to_arrow()["n"].to_pylist() == list(range(3, ROWS, 7))
    assert READ_MEMORY.used_bytes == 0


@pytest.mark.parametrize("memory_bytes", [1, 10_000, 60_000])
def test_scans_stay_within_their_memory(table: wd.Table, memory_bytes: int) -> None:
    """Several scans at once, each slower than its reads."""
    READ_MEMORY.resize(memory_bytes)
    shard = next(iter_shards(table.entry.shards, table.load_page))
    group_bytes = sum(span.size_bytes for span in table.shards.open(shard).layout.spans(0, ["n", "x"]))
    scans = [table.batches(GROUP_ROWS, columns=["n", "x"]) for _ in range(3)]
    most = 0
    for _ in range(ROWS // GROUP_ROWS):
        for scan in scans:
            next(scan)
            most = max(most, READ_MEMORY.used_bytes)
    # Half for requests and half for rows ahead, and one item of each scan whatever its size: a row group that is
    # decoded, and a request, which fetches a small shard whole.
    assert most <= memory_bytes + (len(scans) + 1) * (group_bytes + shard.byte_size)
    for scan in scans:
        scan.close()  # type: ignore[attr-defined]
    assert READ_MEMORY.used_bytes == 0


def test_an_abandoned_scan_gives_its_memory_back(table: wd.Table) -> None:
    scan = table.batches(GROUP_ROWS)
    next(scan)
    assert READ_MEMORY.used_bytes > 0
    del scan
    assert READ_MEMORY.used_bytes == 0


def test_scans_in_one_loop_do_not_wait_for_each_other(table: wd.Table) -> None:
    """Memory for one row group only: each scan may hold one, so both go on."""
    READ_MEMORY.resize(1)
    pairs = zip(table.batches(GROUP_ROWS), table.batches(GROUP_ROWS), strict=True)
    assert sum(first.num_rows == second.num_rows for first, second in pairs) == ROWS // GROUP_ROWS
