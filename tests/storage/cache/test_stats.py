"""If this fails, `warp cache stats` shows wrong totals, or a corrupt file of totals breaks reading."""

from __future__ import annotations

from pathlib import Path

from warpdata.storage import IOStats
from warpdata.storage.cache import read_totals
from warpdata.storage.cache.stats import add_to_totals


def test_counts_of_several_processes_add_up(tmp_path: Path) -> None:
    assert read_totals(tmp_path / "nowhere") == IOStats()
    assert not add_to_totals(tmp_path / "nowhere", IOStats(hits=1)), "no directory is made for this"
    assert not add_to_totals(tmp_path, IOStats()), "all counts are zero"
    assert add_to_totals(tmp_path, IOStats(requests=3, hits=10**12))
    assert add_to_totals(tmp_path, IOStats(requests=4, evictions=1))
    assert read_totals(tmp_path) == IOStats(requests=7, hits=10**12, evictions=1)


def test_a_corrupt_file_counts_as_zero(tmp_path: Path) -> None:
    for corrupt in (b"", b"{", b"[1]", b'{"hits": "many"}', b"\xff" * 9000):
        (tmp_path / "totals.json").write_bytes(corrupt)
        assert read_totals(tmp_path) == IOStats()
        assert add_to_totals(tmp_path, IOStats(hits=2))
        assert read_totals(tmp_path) == IOStats(hits=2)


def test_counts_are_added_once() -> None:
    earlier, now = IOStats(requests=3, hits=1), IOStats(requests=5, hits=1, waits=2)
    assert now.since(earlier) == IOStats(requests=2, waits=2)
    assert IOStats(requests=1).since(earlier) == IOStats(requests=1), "counts that restarted at zero, as after a fork"
