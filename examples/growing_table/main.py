"""Keep a table that grows every day: append, label, look back, compare, and query with SQL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import warpdata as wd

DATASET = "examples/trips"


def make_day(day: int) -> pa.Table:
    rng = np.random.default_rng(day)
    fares = np.round(rng.gamma(2.0, 8.0, 1_000), 2)
    return pa.table(
        {
            "day": pa.array([day] * len(fares), pa.int32()),
            "fare": fares,
            "city": rng.choice(["cairo", "lima", "oslo"], len(fares)),
        }
    )


def main() -> None:
    wd.DatasetBuilder(DATASET).add_table("main", make_day(1)).publish("day 1")
    for day in (2, 3):
        wd.DatasetBuilder(DATASET).append_table("main", make_day(day)).publish(f"day {day}")
    dataset = wd.dataset(DATASET)
    label = f"three-days-{dataset.version[:8]}"
    dataset.snapshot(label)
    wd.DatasetBuilder(DATASET).append_table("main", make_day(4)).publish("day 4")

    newest, pinned = wd.dataset(DATASET), wd.dataset(f"{DATASET}@{label}")
    print(f"{newest.table().count()} rows now, {pinned.table().count()} rows at {label}")
    assert (newest.table().count(), pinned.table().count()) == (4_000, 3_000)

    for change in wd.diff(f"{DATASET}@{label}", DATASET).changes:
        print(f"{change.name}: {change.rows_added} rows added")

    expensive = newest.table().filter("fare > 60 AND city = 'lima'")
    print(f"{expensive.count()} expensive trips in Lima, the first: {expensive.head(1).to_pylist()}")

    by_city = newest.table().duckdb().aggregate("city, round(avg(fare), 2) AS mean", "city").order("city")
    print(by_city.fetchall())

    for revision in list(newest.history())[:4]:
        print(revision.version[:12], revision.message)


if __name__ == "__main__":
    main()
