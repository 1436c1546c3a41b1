"""If this fails, `warp cache stats` tells of things that did not happen, or a broken file of counts breaks reading."""

from __future__ import annotations

from pathlib import Path

from warpdata.storage.cache import IOStats, read_totals
from warpdata.storage.cache.stats_file import add_to_totals


def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    assert read_totals(tmp_path / "nowhere") == IOStats()
    assert not add_to_totals(tmp_path / "nowhere", IOStats(hits=1)), "a folder is not made for this"
    assert not add_to_totals(tmp_path, IOStats()), "nothing to tell"
    assert add_to_totals(tmp_path, IOStats(requests=3, hits=10**12))
    assert add_to_totals(tmp_path, IOStats(requests=4, evictions=1))
    assert read_totals(tmp_path) == IOStats(requests=7, hits=10**12, evictions=1)


def test_a_broken_file_counts_as_nothing(tmp_path: Path) -> None:
    for broken in (b"", b"{", b"[1]", b'{"hits": "many"}', b"\xff" * 9000):
        (tmp_path / "totals.json").write_bytes(broken)
        assert read_totals(tmp_path) == IOStats()
        assert add_to_totals(tmp_path, IOStats(hits=2))
        assert read_totals(tmp_path) == IOStats(hits=2)


def test_what_was_added_is_not_added_again() -> None:
    earlier, now = IOStats(requests=3, hits=1), IOStats(requests=5, hits=1, waits=2)
    assert now.since(earlier) == IOStats(requests=2, waits=2)
    assert IOStats(requests=1).since(earlier) == IOStats(requests=1), "counters that began anew, as after a fork"
