"""A small Ray cluster for the tests of this directory. They run with `make test-ray`, where Ray is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ray")

_MEMORY = 100 * 2**20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray warns about files that it leaves to the garbage collector, and about the defaults of later releases."""
    for item in items:
        item.add_marker(pytest.mark.ray)
        item.add_marker(pytest.mark.filterwarnings("default"))
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster whose head runs no tasks, and two nodes with one CPU each. Add nodes and remove them."""
    from ray.cluster_utils import Cluster

    import ray

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": _MEMORY})
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=_MEMORY)
    ray.init(made.address, logging_level="warning", log_to_driver=False)
    made.wait_for_nodes()
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def local_ray() -> Iterator[Any]:
    """Ray in one process group of this machine, for the tests of a module."""
    import ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    ray.init("local", num_cpus=2, object_store_memory=2 * _MEMORY, logging_level="warning", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
