"""If this fails, a reader has to open more modules than before to follow a call to its result.

Lower a limit when a path becomes shorter. Raise one only with a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.call_paths import CALLS

ROOT = Path(__file__).parents[2]
# Thrift, in which footers are written, is a module of its own.
LIMITS = {
    "wd.dataset(name)": 33,  # argument types are checked, secrets stay out of reprs, budgets
    "ds.table().filter().batches()": 42,  # footers are parsed, claimed extension types removed, memory shared
    "ds.stream(shuffle=True)": 56,  # the memory of media and of reads is bounded; edited shards, row selections
    "ds.episodes().windows()": 56,  # requests and memory have budgets
    # References are carried over, staging has a lock, leases, generations, budgets, small files stay in memory, jobs.
    "builder.publish()": 62,
}
STREAM_MODULES = 13
"""Modules of `datasets` and `streaming` between `ds.stream()` and its batches."""


@pytest.fixture(scope="module")
def measured() -> dict[str, list[str]]:
    """Run in a process of its own: threads that exist already would carry no profiler."""
    command = [sys.executable, "-m", "tests.architecture.call_paths", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    paths: dict[str, list[str]] = json.loads(done.stdout)
    return paths


def test_every_call_has_a_limit() -> None:
    assert LIMITS.keys() == CALLS.keys()


@pytest.mark.parametrize("call", LIMITS)
def test_a_call_passes_few_modules(measured: dict[str, list[str]], call: str) -> None:
    assert len(measured[call]) <= LIMITS[call], measured[call]


def test_a_stream_goes_from_the_facade_down(measured: dict[str, list[str]]) -> None:
    own = [module for module in measured["ds.stream(shuffle=True)"] if module.startswith(("datasets/", "streaming/"))]
    assert own[:2] == ["datasets/dataset", "datasets/streaming"]
    assert len(own) <= STREAM_MODULES, own
