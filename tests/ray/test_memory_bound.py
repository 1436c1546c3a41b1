"""If this fails, work over a table that is much larger than a node needs more memory than the node has.

`WARP_TEST_GB` is the size of the table, 20 by default. Each of two nodes may use 2 GB.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.jobs import scenes
from warpdata.jobs import RayEngine

pytestmark = [pytest.mark.soak, pytest.mark.timeout(6 * 3600)]

GB = float(os.environ.get("WARP_TEST_GB", "20"))
NODE_BYTES = 2 * 10**9
OBJECT_BYTES = 300 * 10**6
WIDTH = 1024
ROWS = int(GB * 1e9 / WIDTH / 4)
NAME = "acme/vectors"


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """Two nodes with one CPU and 2 GB each, of which a part is Ray's store of objects."""
    from ray.cluster_utils import Cluster

    import ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": OBJECT_BYTES})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=OBJECT_BYTES, memory=NODE_BYTES - OBJECT_BYTES)
    ray.init(made.address, logging_level="warning", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    ray.data.DataContext.get_current().target_max_block_size = 64 * 2**20
    made.wait_for_nodes()
    try:
        yield ray
    finally:
        ray.shutdown()
        made.shutdown()


def test_a_table_of_many_gigabytes_passes_through_small_nodes(
    two_nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenes.new_store(monkeypatch, tmp_path / "store")
    peaks = tmp_path / "peaks"
    peaks.mkdir()

    def note_peak() -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        (peaks / str(os.getpid())).write_text(str(peak))

    def make_rows(batch: dict[str, Any]) -> dict[str, Any]:
        note_peak()
        rng = np.random.default_rng(int(batch["id"][0]))
        return {"n": batch["id"], "v": rng.random((len(batch["id"]), WIDTH), np.float32)}

    def length(batch: pa.RecordBatch) -> Any:
        note_peak()
        vectors = batch.column(0).flatten().to_numpy().reshape(-1, WIDTH)
        return np.sqrt((vectors * vectors).sum(axis=1))

    rows = two_nodes.data.range(ROWS).map_batches(make_rows, batch_size=4096)
    wd.write_ray(rows, NAME)
    engine = RayEngine(memory=NODE_BYTES - OBJECT_BYTES)
    with wd.dataset(NAME).edit() as edit:
        edit.add_column("main", "length", length, columns=["v"], engine=engine)
    dataset = wd.dataset(NAME)
    assert dataset.table().count() == ROWS
    found = dataset.table().select(["n", "length"]).to_arrow(allow_large=True)
    assert int(pa.compute.sum(found["n"]).as_py()) == ROWS * (ROWS - 1) // 2
    assert 15 < float(pa.compute.min(found["length"]).as_py()) < 22
    assert wd.verify(NAME, engine=engine).problems == ()
    used = {path.name: int(path.read_text()) for path in peaks.iterdir()}
    print({pid: f"{peak / 1e6:,.0f} MB" for pid, peak in used.items()})
    assert len(used) >= 2
    assert max(used.values()) < NODE_BYTES
