"""`python -m benchmarks [names] [--quick] [--rounds N] [--record]`: run, print Markdown, keep sections.

Every finished benchmark is kept as `.data/sections/NAME.md`, so a run that was stopped has not lost
what it measured. `--record` also puts the sections into RESULTS.md, between markers, leaving the
prose around them alone.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.data import DATA, clean
from benchmarks.harness.timing import Effort, Report, describe_machine
from benchmarks.plots import draw_plot

NAMES = (
    "tables.open",
    "tables.scan",
    "tables.filters",
    "tables.publish",
    "tables.startup",
    "tables.commit",
    "media.references",
    "media.batches",
    "media.lookup",
    "media.first_read",
    "media.shared_shard",
    "media.packing",
    "tensors.remote_read",
    "streams.throughput",
    "streams.first_batch",
    "streams.selective_read",
    "streams.resume",
    "streams.shuffle_quality",
    "streams.shared_cache",
    "episodes.windows",
    "episodes.open",
    "episodes.remote_read",
    "episodes.recorder",
)
_RESULTS = Path(__file__).parent / "RESULTS.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure warpdata beside its peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run; default all: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; its numbers mean nothing")
    parser.add_argument("--rounds", type=int, help="how often each side runs (default 5)")
    parser.add_argument("--record", action="store_true", help="put the sections into RESULTS.md")
    parser.add_argument("--clean", action="store_true", help="remove the generated data and end")
    asked = parser.parse_args(arguments)
    if asked.clean:
        clean()
        return 0
    unknown = sorted(set(asked.names) - set(NAMES))
    if unknown or (asked.rounds is not None and asked.rounds < 1) or (asked.record and asked.quick):
        parser.error(f"no benchmark {unknown[0]!r}" if unknown else "--rounds must be positive, --record not --quick")
    effort = Effort(quick=asked.quick, rounds=asked.rounds or (1 if asked.quick else 5))
    print(describe_machine() + "\n", flush=True)
    for name in asked.names or NAMES:
        section = _measure(name, effort)
        print(section, flush=True)
        if asked.record:
            record(name, section)
            if name.startswith("streams_"):
                draw_plot()
    return 0


def _measure(name: str, effort: Effort) -> str:
    start = time.perf_counter()
    report: Report = importlib.import_module(f"benchmarks.{name}").run(effort)
    section = report.to_markdown(effort)
    if not effort.quick:
        folder = DATA / "sections"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(section, encoding="utf-8")
    print(f"({name} took {time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    return section


def record(name: str, section: str) -> None:
    """Replace what stands between the benchmark's markers in RESULTS.md, and the machine's line."""
    text = _RESULTS.read_text(encoding="utf-8")
    for marker, content in ((name, section), ("machine", describe_machine() + "\n")):
        found = re.search(rf"<!-- {marker} -->\n(.*?)<!-- /{marker} -->", text, re.DOTALL)
        if found is None:
            raise SystemExit(f"RESULTS.md has no place for {marker}")
        text = text[: found.start(1)] + content + text[found.end(1) :]
    _RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
