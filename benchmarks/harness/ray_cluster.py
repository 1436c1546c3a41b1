"""Ray on this machine, for scenarios of `cluster`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness.timing import ScenarioUnavailableError

__all__ = ["two_cpus"]


@contextmanager
def two_cpus(object_store_bytes: int = 1_000_000_000) -> Iterator[Any]:
    """Start Ray with two CPUs, and stop it. Yields the module."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
    except ImportError as error:
        raise ScenarioUnavailableError("Ray is not installed; use .venv-ray/bin/python") from error
    ray.init("local", num_cpus=2, object_store_memory=object_store_bytes, logging_level="error", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
