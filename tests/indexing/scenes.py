"""Random tables, histories and filters for tests of indexes. Everything follows from a seed."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

import warpdata as wd
from tests.faults.scenes import link, memory
from warpdata.datasets import Dataset, open_dataset
from warpdata.kinds.tables import Table
from warpdata.repository.catalog import parse_address
from warpdata.session import Session

WORDS = ["", "a", "ab", "abc", "b", "É", "é", "日本", "😀", "～", "O'Brien", "zz%", "_", "null"]
FLOATS = [math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf, 1e300, 0.1, 2.0]
START = datetime(2024, 1, 1)
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "i": pa.int32(),
        "f": pa.float64(),
        "s": pa.string(),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "ts": pa.timestamp("us"),
        "day": pa.date32(),
        "ok": pa.bool_(),
        "dec": pa.decimal128(9, 2),
        "tags": pa.list_(pa.string()),
    }
)
INDEXED = [name for name in SCHEMA.names if name != "n"]
_stores = itertools.count()


def connect() -> Session:
    return link(memory(f"indexes-{next(_stores)}"))


def head(session: Session, branch: str = "main") -> Dataset:
    return open_dataset(session, parse_address(f"a/b@{branch}"))


def random_rows(rng: random.Random, first: int, count: int, *, narrow: bool = False) -> pa.Table:
    """Rows with ties, nulls, NaN and Unicode. `narrow` gives the types that an append may have."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    cells: dict[str, list[Any]] = {
        "n": list(range(first, first + count)),
        "i": [maybe(rng.randint(-5, 20)) for _ in range(count)],
        "f": [maybe(rng.choice(FLOATS)) for _ in range(count)],
        "s": [maybe(rng.choice(WORDS)) for _ in range(count)],
        "d": [maybe(rng.choice(WORDS[:5])) for _ in range(count)],
        "ts": [maybe(START + timedelta(hours=rng.randint(0, 50))) for _ in range(count)],
        "day": [maybe(date(2024, 1, 1) + timedelta(days=rng.randint(0, 9))) for _ in range(count)],
        "ok": [maybe(rng.random() < 0.3) for _ in range(count)],
        "dec": [maybe(Decimal(rng.randint(0, 9)) / 4) for _ in range(count)],
        "tags": [maybe([maybe(rng.choice(WORDS[:6])) for _ in range(rng.randint(0, 3))]) for _ in range(count)],
    }
    table = pa.table(cells, schema=SCHEMA)
    if narrow:
        table = table.set_column(1, "i", table["i"].cast(pa.int8()))
        table = table.set_column(2, "f", pa.array(cells["i"], pa.int16()))
    return table


def random_filter(rng: random.Random, names: dict[str, str] | None = None, depth: int = 0) -> str:
    """An SQL filter over the columns. `names` has the present names of renamed columns."""
    if depth < 3 and rng.random() < 0.55:
        parts = [random_filter(rng, names, depth + 1) for _ in range(rng.randint(2, 3))]
        joined = rng.choice([" AND ", " OR "]).join(f"({part})" for part in parts)
        return f"NOT ({joined})" if rng.random() < 0.2 else joined
    leaf = _leaf(rng, names or {})
    return f"NOT ({leaf})" if rng.random() < 0.2 else leaf


def _leaf(rng: random.Random, names: dict[str, str]) -> str:
    column = rng.choice(INDEXED)
    name = f'"{names.get(column, column)}"'
    if rng.random() < 0.12:
        return f"{name} IS {'NOT ' if rng.random() < 0.5 else ''}NULL"
    values = [_literal(rng, column) for _ in range(rng.choice([1, 2, 5]))]
    op = rng.choice(["=", "=", "!=", "<", "<=", ">", ">="])
    if column == "tags":
        return f"list_contains({name}, {values[0]})"
    if column == "ok":
        return rng.choice([name, f"{name} = false"])
    if column in ("s", "d") and rng.random() < 0.3:
        text = rng.choice([word for word in WORDS if word.isalpha()])
        return f"{name} {rng.choice(['', 'NOT '])}LIKE '{rng.choice([f'{text}%', f'%{text}', f'%{text}%'])}'"
    if rng.random() < 0.25:
        return f"{name} {rng.choice(['', 'NOT '])}IN ({', '.join(values)})"
    if rng.random() < 0.2:
        return f"{name} BETWEEN {values[0]} AND {values[-1]}"
    if column == "i" and rng.random() < 0.2:
        return f"{name} % 3 = 1"  # only the SQL engine can evaluate it
    return f"{name} {op} {values[0]}"


def _literal(rng: random.Random, column: str) -> str:
    if column == "i":
        return str(rng.randint(-6, 21))
    if column == "f":
        return rng.choice(["0", "1.5", "-1.5", "2", "0.1", "1000", "'nan'::DOUBLE"])
    if column == "ts":
        return f"'{START + timedelta(hours=rng.randint(-2, 52))}'"
    if column == "day":
        return f"'{date(2024, 1, 1) + timedelta(days=rng.randint(-1, 10))}'"
    if column == "dec":
        return rng.choice(["0.25", "1", "1.75"])
    quoted = rng.choice(WORDS).replace("'", "''")
    return f"'{quoted}'"


def without_indexes(table: Table) -> Table:
    return table._with(indexes=None)


def check_equal(table: Table, text: str) -> None:
    """Compare every way to read a filtered table with and without indexes."""
    fast, slow = table.filter(text), without_indexes(table).filter(text)
    expected = slow.select_rows().numbers
    assert np.array_equal(fast.select_rows().numbers, expected), text
    assert fast.count() == len(expected), text
    assert fast.select("n").to_arrow().equals(slow.select("n").to_arrow()), text


@dataclass
class History:
    """A dataset with indexes that changes at random."""

    rng: random.Random
    session: Session = field(default_factory=connect)
    next_n: int = 0
    names: dict[str, str] = field(default_factory=dict)

    def rows(self, *, narrow: bool = False) -> pa.Table:
        count = self.rng.choice([0, 1, 7, 40])
        self.next_n += count
        rows = random_rows(self.rng, self.next_n - count, count, narrow=narrow)
        return rows.rename_columns([self.names.get(name, name) for name in rows.column_names])

    def begin(self) -> None:
        builder = wd.DatasetBuilder("a/b", self.session)
        first = random_rows(self.rng, 0, 30)
        self.next_n = 30
        builder.add_table("main", [first]).publish()
        for _ in range(self.rng.randint(0, 3)):
            wd.DatasetBuilder("a/b", self.session).append_table("main", self.rows()).publish()
        for column in self.rng.sample(INDEXED, self.rng.randint(2, len(INDEXED))):
            kind = "bitmap" if column == "tags" else self.rng.choice([None, "bitmap", "btree"])
            head(self.session).create_index("main", column, kind=kind)

    def step(self) -> str:
        """Make one random change, and return its name."""
        change = self.rng.choice(["append", "narrow", "delete", "update", "compact", "index", "rename", "cast"])
        dataset, rng = head(self.session), self.rng
        i = self.names.get("i", "i")
        if change in ("append", "narrow"):
            wd.DatasetBuilder("a/b", self.session).append_table("main", self.rows(narrow=change == "narrow")).publish()
        elif change == "delete":
            with dataset.edit() as edit:
                edit.delete("main", f"n % {rng.randint(3, 9)} = {rng.randint(0, 2)}")
        elif change == "update":
            with dataset.edit() as edit:
                edit.update("main", f"n % {rng.randint(5, 9)} = 1", {i: rng.randint(-5, 20)})
        elif change == "compact":
            dataset.compact(max_deleted=rng.choice([0.0, 0.3]))
        elif change == "index" and dataset.manifest.indexes:
            dataset.update_index(rng.choice(sorted(dataset.manifest.indexes)), rebuild=rng.random() < 0.3)
        elif change == "rename":
            column = rng.choice(["i", "s", "f"])
            old, new = self.names.get(column, column), f"{column} №{self.next_n}-{rng.randint(0, 10**6)}"
            with dataset.edit() as edit:
                edit.rename_column("main", old, new)
            self.names[column] = new
        elif change == "cast":
            with dataset.edit() as edit:
                edit.cast("main", i, rng.choice(["int64", "int32"]))
        return change

    def check(self, queries: int) -> None:
        table = head(self.session).table()
        for _ in range(queries):
            check_equal(table, random_filter(self.rng, self.names))
