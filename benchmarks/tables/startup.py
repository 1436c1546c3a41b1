"""Time until a new process has done something: import, `--help`, the first rows of a table.

Every run starts a process. Byte code is compiled before the first timed run and kept in a directory of its own,
even if the environment disables byte code.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.harness.data import make_small_files, scratch
from benchmarks.harness.timing import Arm, RunOptions, Timings, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.tables.dataset import DATASET, publish_table
from warpdata import Settings

__all__ = ["run"]


def run(options: RunOptions) -> Outcome:
    commands, environ = _commands(), _environ_with_byte_code()
    arms: dict[str, Arm] = {name: partial(_prepare, command, environ) for name, command in commands.items()}
    timings = interleave(arms, options.rounds, warmups=2)
    measurements = [_measure_added("`import warpdata`", timings, "import", "pass", promise="startup-import")]
    if "help" in commands:
        help_ms = timings.value("help", "ms")
        measurements.append(Measurement(case="`warp --help`", unit="ms", ours=help_ms, promise="startup-help"))
    for arm, case in (("head", "open and `head(5)`"), ("filter", "open, `filter` and `head(5)`")):
        measurements.append(_measure_added(f"{case} of a local table", timings, arm, "pyarrow"))
    return Outcome(
        title="Start-up",
        method="Each run is a new process. Values are the time beyond that of a smaller program.",
        measurements=measurements,
        skipped=[] if "help" in commands else ["the `warp` command is not installed; its help was not measured."],
    )


def _commands() -> dict[str, list[str]]:
    python = [sys.executable, "-c"]
    store = scratch("startup-store").as_uri()
    settings = Settings(store_url=store, cache_dir=scratch("startup-cache"))
    publish_table(make_small_files(20, 64 * 1024), store, settings)
    opened = f"import warpdata; table = warpdata.dataset({DATASET!r}, store={store!r}).table()"
    commands = {
        "pass": [*python, "pass"],
        "import": [*python, "import warpdata"],
        "pyarrow": [*python, "import pyarrow.parquet"],
        "head": [*python, f"{opened}; table.head(5)"],
        "filter": [*python, f"{opened}; table.filter('value > 0.5').head(5)"],
    }
    warp = shutil.which("warp", path=str(Path(sys.executable).parent))
    if warp is not None:
        commands["help"] = [warp, "--help"]
    return commands


def _prepare(command: Sequence[str], environ: Mapping[str, str]) -> Callable[[], int]:
    def start() -> int:
        return subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, timeout=60, check=True).returncode

    return start


def _environ_with_byte_code() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(scratch("startup-byte-code"))}


_PROGRAMS = {"pass": "`python -c pass`", "pyarrow": "`import pyarrow.parquet`"}


def _measure_added(case: str, timings: Timings, arm: str, smaller: str, promise: str = "") -> Measurement:
    pairs = zip(timings.by_arm[arm], timings.by_arm[smaller], strict=True)
    added_ms = statistics.median(arm_s - smaller_s for arm_s, smaller_s in pairs) * 1e3
    return Measurement(
        case=f"{case}, beyond {_PROGRAMS[smaller]}",
        unit="ms",
        ours=added_ms,
        promise=promise,
        detail=f"{timings.value(arm, 'ms'):.1f} ms against {timings.value(smaller, 'ms'):.1f} ms",
    )
