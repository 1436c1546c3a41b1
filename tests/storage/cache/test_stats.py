"""If this fails, `warp cache stats` shows wrong totals, or a corrupt file of totals breaks reading."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.storage.cache.scenes import run_python
from tests.web_server import serving
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


USE = """
import gc, json, os, sys
from dataclasses import asdict
import warpdata as wd

def use(mode):
    dataset = wd.dataset("acme/rows", store=sys.argv[1], mode=mode)
    if mode != "local":
        dataset.warm()
    assert dataset.table().to_arrow().num_rows == 1000
    return asdict(dataset.io_stats)

counts = [use(mode) for mode in sys.argv[2].split(",")]
gc.collect()
print(json.dumps({name: sum(one[name] for one in counts) for name in counts[0]}), flush=True)
if len(sys.argv) > 3:
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
"""


@pytest.mark.parametrize("arguments", [("hybrid",), ("hybrid,local,hybrid",), ("hybrid", "fork")])
def test_the_counts_of_a_collected_dataset_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    import pyarrow as pa

    import warpdata as wd

    builder = wd.DatasetBuilder("acme/rows", (tmp_path / "store").as_uri())
    builder.add_table("main", pa.table({"n": range(1000)})).publish()
    monkeypatch.setenv("WARP_CACHE_DIR", str(tmp_path / "cache"))
    with serving(tmp_path / "store") as server:
        counted = json.loads(run_python(USE, server.url, *arguments))
    assert asdict(read_totals(tmp_path / "cache")) == counted
    assert counted["fills"] == 1
    assert counted["hits"] >= len(arguments[0].split(","))
