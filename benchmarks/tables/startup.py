"""How long a user waits before anything happens: importing the package, asking for help, the first rows.

Every measurement starts a process; the kinds take turns. Byte code is compiled before the first one
that counts, and kept in a folder of its own, also where the environment says not to keep it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.data import many_small_files, scratch
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave
from benchmarks.tables.dataset import DATASET, publish
from warpdata.settings import Settings

__all__ = ["run"]

_IMPORT_MS = 30
_HELP_MS = 150


def run(effort: Effort) -> Report:
    commands, environment = _commands(), _with_byte_code()
    arms: dict[str, Arm] = {name: partial(_starting, command, environment) for name, command in commands.items()}
    timings = interleave(arms, effort.rounds, warmups=2)
    added_ms = _added_ms(timings, "import", "pass")
    findings = [
        Finding(
            "`import warpdata`, against `python -c pass`",
            _ms(timings, "import"),
            _ms(timings, "pass"),
            f"+{added_ms:.1f} ms",
            f"< {_IMPORT_MS} ms",
            added_ms < _IMPORT_MS,
        )
    ]
    if "help" in commands:
        is_met = timings.median_s("help") * 1e3 < _HELP_MS
        findings.append(Finding("`warp --help`", _ms(timings, "help"), target=f"< {_HELP_MS} ms", is_met=is_met))
    for name, case in (("head", "open and `head(5)`"), ("filter", "open, `filter` and `head(5)`")):
        added = f"+{_added_ms(timings, name, 'pyarrow'):.1f} ms"
        case = f"{case} of a local table, against `import pyarrow.parquet`"
        findings.append(Finding(case, _ms(timings, name), _ms(timings, "pyarrow"), added))
    notes = [] if "help" in commands else ["`warp` is not there yet; its help was not measured."]
    return Report("Start-up", "Each run is a new process.", findings, notes)


def _commands() -> dict[str, list[str]]:
    python = [sys.executable, "-c"]
    store = scratch("startup-store").as_uri()
    settings = Settings(store_url=store, cache_dir=scratch("startup-cache"))
    publish(many_small_files(20, 64 * 1024), store, settings)
    opened = f"import warpdata; table = warpdata.dataset({DATASET!r}, store={store!r}).table()"
    commands = {
        "pass": [*python, "pass"],
        "import": [*python, "import warpdata"],
        "pyarrow": [*python, "import pyarrow.parquet"],
        "head": [*python, f"{opened}; table.head(5)"],
        "filter": [*python, f"{opened}; table.filter('value > 0.5').head(5)"],
    }
    warp = shutil.which("warp", path=str(Path(sys.executable).parent))
    if warp is not None and find_spec("warpdata.cli") is not None:
        commands["help"] = [warp, "--help"]
    return commands


def _starting(command: Sequence[str], environment: Mapping[str, str]) -> Callable[[], int]:
    def start() -> int:
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
        return done.returncode

    return start


def _with_byte_code() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(scratch("startup-byte-code"))}


def _added_ms(timings: Timings, arm: str, base: str) -> float:
    pairs = zip(timings.by_arm[arm], timings.by_arm[base], strict=True)
    return statistics.median(ours - theirs for ours, theirs in pairs) * 1e3


def _ms(timings: Timings, arm: str) -> str:
    return f"{timings.median_s(arm) * 1e3:.1f} ms"
