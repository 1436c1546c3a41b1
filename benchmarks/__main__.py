"""Command line: `python -m benchmarks SCENARIO… [--rounds N] [--smoke] [--json]`, `--list`, `report`.

A run stores each finished scenario as `benchmarks/results/SCENARIO.json`, or in a directory such as
`benchmarks/results/16-cores` if the stored one has another number of cores. `report` writes RESULTS.md and the plots
from these files.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.harness.data import remove_data
from benchmarks.harness.machine import current_commit, describe_machine, installed_versions
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError
from benchmarks.promises import SCENARIOS, judge
from benchmarks.report import format_measurements, write_report
from benchmarks.results import Outcome, ScenarioResult, render_json, result_path

_DEFAULT_ROUNDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure warpdata beside its peers.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="SCENARIO",
        help="scenario such as tables.scan, package such as tables, 'all', or 'report' to write RESULTS.md",
    )
    parser.add_argument("--rounds", type=int, help=f"smallest number of rounds (default {_DEFAULT_ROUNDS})")
    parser.add_argument("--latency-ms", type=float, default=30.0, help="latency of `cloud` scenarios (default 30)")
    parser.add_argument("--connection-mbps", type=float, help="MB/s of a connection (default: 4 for each core)")
    parser.add_argument("--skip-s3", action="store_true", help="leave out the cases of scans and filters over S3")
    parser.add_argument("--smoke", action="store_true", help="use tiny data and one round, and store nothing")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--clean", action="store_true", help="remove the generated data")
    parsed = parser.parse_args(arguments)
    if parsed.list:
        print("\n".join(f"{name:26}{_summary(name)}" for name in SCENARIOS))
        return 0
    if parsed.clean:
        remove_data()
        return 0
    if parsed.names == ["report"]:
        write_report()
        return 0
    if parsed.rounds is not None and parsed.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {parsed.rounds}")
    selected = _select(parsed.names)
    if not selected:
        parser.error(f"no scenario matches {' '.join(parsed.names) or 'an empty selection'}; --list shows all")
    rate = parsed.connection_mbps
    options = RunOptions(
        parsed.rounds or (1 if parsed.smoke else _DEFAULT_ROUNDS),
        parsed.smoke,
        parsed.latency_ms / 1000,
        None if rate is None else rate * 1e6,
        parsed.skip_s3,
    )
    for name in selected:
        _run(name, options, as_json=parsed.json)
    return 0


def _select(names: Sequence[str]) -> list[str]:
    known = {"all", *SCENARIOS, *(name.partition(".")[0] for name in SCENARIOS)}
    if not set(names) <= known:
        return []
    return [name for name in SCENARIOS if {"all", name, name.partition(".")[0]} & set(names)]


def _summary(name: str) -> str:
    module = importlib.import_module(f"benchmarks.{name}")
    return (module.__doc__ or "").partition("\n")[0]


def _run(name: str, options: RunOptions, *, as_json: bool) -> None:
    start = time.perf_counter()
    try:
        outcome: Outcome = importlib.import_module(f"benchmarks.{name}").run(options)
    except ScenarioUnavailableError as error:
        print(f"{name}: skipped: {error}", file=sys.stderr, flush=True)
        return
    result = make_result(name, outcome, options)
    for line in result.skipped:
        print(f"{name}: skipped: {line}", file=sys.stderr)
    if not options.is_smoke:
        path = result_path(result)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_json(result), encoding="utf-8")
    elif not as_json:
        print("A smoke run on tiny data: the numbers mean nothing.")
    print(render_json(result) if as_json else f"{result.title}\n\n{format_measurements(result)}\n", flush=True)
    print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def make_result(name: str, outcome: Outcome, options: RunOptions) -> ScenarioResult:
    """Add the circumstances of this run and judge each measurement, except after a smoke run."""
    return ScenarioResult(
        scenario=name,
        title=outcome.title,
        method=outcome.method,
        measurements=tuple(outcome.measurements if options.is_smoke else map(judge, outcome.measurements)),
        notes=tuple(outcome.notes),
        skipped=tuple(outcome.skipped),
        rounds=options.rounds if outcome.is_timed else None,
        date=datetime.now(UTC).date().isoformat(),
        commit=current_commit(),
        machine=describe_machine(),
        versions=installed_versions(),
    )


if __name__ == "__main__":
    sys.exit(main())
