"""Reads of edited tables: a scan with deleted rows, a stratified sample beside DuckDB, and diffs.

The sample takes 5,000 of 5,000,000 rows with the shares of eight labels, without an index. DuckDB numbers the rows of
each label in random order with a window function. Diffs compare 1,000 changed samples in tables of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.timing import Arm, RunOptions, interleave
from benchmarks.living.dataset import copy_of, make_rows, open_dataset, publish_rows
from benchmarks.results import Outcome

__all__ = ["run"]

_SAMPLE = 5000
_CHANGED = 1000


def run(options: RunOptions) -> Outcome:
    count, large = (20_000, 50_000) if options.is_smoke else (1_000_000, 5_000_000)
    rows = make_rows(large)
    whole = publish_rows("reads-whole", rows)
    deleted = copy_of(whole, "reads-deleted")
    with open_dataset(deleted).edit() as edit:
        edit.delete("main", "id % 100 = 7")
    scans = interleave({"deleted": _scan(deleted, large * 99), "whole": _scan(whole, large * 100)}, options.rounds)
    samples = interleave({"ours": _sample(whole), "DuckDB": _sample_duckdb(rows)}, options.rounds)
    diffs = interleave({"many": _diff(count), "few": _diff(count // 10)}, options.rounds)
    return Outcome(
        title="Reads of edited tables",
        method="A local store in the page cache.",
        measurements=[
            scans.compare(
                f"scan of {large:,} rows, 1 % deleted",
                "deleted",
                "whole",
                peer_name="no deleted rows",
                promise="deleted-scan",
            ),
            samples.compare(f"stratified {_SAMPLE:,} of {large:,}", "ours", "DuckDB", promise="stratified-sample"),
            diffs.slowdown(
                f"diff of {_CHANGED:,} changed of {count:,}",
                "many",
                "few",
                baseline_name=f"{_CHANGED:,} of {count // 10:,}",
                promise="diff-time",
            ),
        ],
    )


def _scan(store: Path, hundredths: int) -> Arm:
    """Read all rows. The arms have other counts, so each checks its own."""
    table = open_dataset(store).table()

    def scan() -> int:
        found = sum(part.num_rows for part in table.row_groups())
        assert found * 100 == hundredths
        return 1

    return lambda: scan


def _sample(store: Path) -> Arm:
    table = open_dataset(store).table()

    def sample() -> int:
        return int(table.sample(_SAMPLE, by="label", seed=1).to_arrow().num_rows)

    return lambda: sample


def _sample_duckdb(rows: Path) -> Arm:
    import duckdb

    query = f"""
        SELECT id, x, y, label FROM (
            SELECT *, row_number() OVER (PARTITION BY label ORDER BY random()) AS rank,
                count(*) OVER (PARTITION BY label) AS size, count(*) OVER () AS total
            FROM '{rows}')
        WHERE rank <= round({_SAMPLE} * size / total)"""

    def sample() -> int:
        found = duckdb.connect().execute(query).to_arrow_table().num_rows
        assert abs(found - _SAMPLE) < 8
        return _SAMPLE

    return lambda: sample


def _diff(count: int) -> Callable[[], Callable[[], int]]:
    store = publish_rows(f"reads-diff-{count}", make_rows(count))
    before = open_dataset(store)
    step = count // _CHANGED
    with before.edit() as edit:
        edit.update("main", f"id % {step} = {step - 1}", {"label": "changed"})
    after = open_dataset(store)

    def diff() -> int:
        return sum(1 for change in after.diff_samples(before).rows() if change.change == "changed")

    return lambda: diff
