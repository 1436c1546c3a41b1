"""If this fails, a reader of an edited table shows a deleted row, misses a live one, or mixes up its columns.

Random histories of deletes, column files, drops, renames and appends are stored directly. Every public read is
compared with the naive reader in tests/reference, which follows the specification literally.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.tables.edited import ExtraColumns, StoredShard, publish_edited
from tests.kinds.tables.scenes import flip
from tests.reference.edited_table_reader import SampleRow, read_rows
from warpdata.errors import CorruptError, NotFoundError
from warpdata.primitives.hashing import blob_key
from warpdata.repository.catalog.layout import manifest_key
from warpdata.repository.manifest import SchemaChange

_stores = itertools.count()
_NAMES = ("n", "word", "x", "extra", "other")


def memory_store() -> str:
    return f"memory://edited-{next(_stores)}"


def reference_rows(dataset: wd.Dataset) -> list[SampleRow]:
    reader = dataset.session.writer
    manifest = reader.read(manifest_key(dataset.id, dataset.version)).data
    return read_rows(manifest, "main", lambda digest: reader.read(blob_key(digest)).data)


@dataclass
class History:
    """A table under edit: what is stored, and the columns that readers see."""

    shards: list[StoredShard] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    visible: list[str] = field(default_factory=lambda: ["n", "word"])
    next_value: int = 0

    def values(self, name: str, count: int) -> pa.Array:
        """Return `count` distinct values of a column, or texts with nulls; the type depends on the name alone."""
        start, self.next_value = self.next_value, self.next_value + count
        numbers = range(start, start + count)
        if name in ("word", "other"):
            return pa.array([None if number % 5 == 0 else f"w{number % 3}" for number in numbers], pa.string())
        return pa.array(list(numbers), pa.float64() if name == "x" else pa.int64())


@st.composite
def histories(draw: st.DrawFn) -> tuple[History, dict[str, Any]]:
    history, types = History(), {"n": "n", "word": "word"}
    group_rows = draw(st.integers(1, 9))
    steps = ["append", *draw(st.lists(st.sampled_from(["append", "delete", "add", "drop", "rename"]), max_size=9))]
    for step in steps:
        if step == "append":
            count = draw(st.integers(0, 25))
            names = draw(st.permutations(history.visible)) if history.shards else history.visible
            rows = pa.table({name: history.values(types[name], count) for name in names})
            history.shards.append(StoredShard(rows, group_rows=group_rows, revision=len(history.changes)))
        elif step == "delete":
            at = draw(st.integers(0, len(history.shards) - 1))
            count = history.shards[at].rows.num_rows
            gone = draw(st.sets(st.integers(0, count - 1), max_size=count)) if count else set()
            old = history.shards[at]
            history.shards[at] = replace(old, deleted=sorted({*old.deleted, *gone}))
        elif step == "add":
            free = [name for name in _NAMES if name not in history.visible]
            if free:
                name = draw(st.sampled_from(free))
                types[name] = name
                history.visible.insert(draw(st.integers(0, len(history.visible))), name)
                for at, shard in enumerate(history.shards):
                    extra = pa.table({name: history.values(name, shard.rows.num_rows)})
                    files = (*shard.files, ExtraColumns(extra, len(history.changes)))
                    history.shards[at] = replace(shard, files=files)
        elif len(history.visible) > 1:
            name = draw(st.sampled_from(history.visible))
            at = history.visible.index(name)
            if step == "drop":
                history.changes.append(SchemaChange(name))
                history.visible.pop(at)
            else:
                free = [other for other in _NAMES if other not in history.visible]
                if free:
                    other = draw(st.sampled_from(free))
                    history.changes.append(SchemaChange(name, other))
                    history.visible[at] = other
                    types[other] = types[name]
    stored = sum(shard.rows.num_rows for shard in history.shards)
    next_id = stored
    if draw(st.booleans()) and stored:
        shuffled = draw(st.permutations([list(range(at, min(at + 4, stored))) for at in range(0, stored, 4)]))
        ids, start = [n + 10 for run in shuffled for n in run], 0
        for at, shard in enumerate(history.shards):
            history.shards[at] = replace(shard, ids=ids[start : start + shard.rows.num_rows])
            start += shard.rows.num_rows
        next_id = stored + 10
    listed = history.visible if draw(st.booleans()) else None
    options = {"columns": listed, "next_id": next_id, "inline_limit": draw(st.sampled_from([0, 16]))}
    return history, options


@settings(max_examples=40)
@given(histories(), st.data())
def test_every_read_equals_the_naive_reader(case: tuple[History, dict[str, Any]], data: st.DataObject) -> None:
    history, options = case
    dataset = publish_edited(memory_store(), history.shards, changes=history.changes, **options)
    table, reference = dataset.table(), reference_rows(dataset)
    expected = [row.values for row in reference]
    _check_ids(table, reference, data)
    assert table.count() == len(expected)
    assert table.to_arrow().to_pylist() == expected
    assert table.head(3).to_pylist() == expected[:3]
    if options["columns"] is not None and history.shards:
        assert table.schema().names == history.visible
    limit = data.draw(st.integers(0, len(expected) + 1), label="limit")
    assert table.to_arrow(limit=limit).to_pylist() == expected[:limit]
    if expected:
        rows = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=8), label="rows")
        assert table.take(rows).to_pylist() == [expected[row] for row in rows]
    world = data.draw(st.integers(1, 4), label="world")
    parts = [batch.to_pylist() for rank in range(world) for batch in table.batches(4, shard=(rank, world))]
    assert [row for part in parts for row in part] == expected
    name = data.draw(st.sampled_from(table.schema().names), label="column")
    assert table.select([name]).to_arrow().to_pylist() == [{name: row[name]} for row in expected]
    _check_filter(table, expected, name, data)
    _check_sample(table, expected, name, data)
    assert _fetch(table) in (None, expected)


def _check_ids(table: wd.Table, reference: list[SampleRow], data: st.DataObject) -> None:
    ids = [row.sample_id for row in reference]
    assert table.sample_ids().tolist() == ids
    rows = data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=6) if ids else st.just([]), label="ids of")
    assert table.rows_of([ids[row] for row in rows]).tolist() == rows
    assert table.take(ids=[ids[row] for row in rows]).to_pylist() == [reference[row].values for row in rows]
    located = [
        (part.index, position, sample_id)
        for part in table.locate(np.array(sorted(set(rows)), np.int64))
        for position, sample_id in zip(part.positions.tolist(), part.ids.tolist(), strict=True)
    ]
    assert located == [(row.shard, row.position, row.sample_id) for row in (reference[n] for n in sorted(set(rows)))]
    with pytest.raises(NotFoundError, match=r"sample id 999999\n"):
        table.rows_of([*ids[:2], 999_999])


def _check_filter(table: wd.Table, expected: list[dict[str, Any]], name: str, data: st.DataObject) -> None:
    values = sorted({row[name] for row in expected if row[name] is not None})
    if not values:
        return
    bound = data.draw(st.sampled_from(values), label="bound")
    literal = f"'{bound}'" if isinstance(bound, str) else repr(bound)
    kept = table.filter(f'"{name}" >= {literal}')
    matching = [n for n, row in enumerate(expected) if row[name] is not None and row[name] >= bound]
    assert kept.row_numbers().tolist() == matching
    assert kept.count() == len(matching)
    assert kept.to_arrow().to_pylist() == [expected[n] for n in matching]
    assert kept.head(2).to_pylist() == [expected[n] for n in matching[:2]]
    assert _fetch(kept) in (None, [expected[n] for n in matching])


def _check_sample(table: wd.Table, expected: list[dict[str, Any]], name: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(expected) + 1), label="sample")
    by = data.draw(st.sampled_from([None, name]), label="by")
    sample = table.sample(count, by=by, seed=3)
    numbers = sample.row_numbers().tolist()
    assert numbers == sorted(set(numbers))
    assert len(numbers) == sample.count() == min(count, len(expected))
    chosen = [expected[n] for n in numbers]
    assert sample.to_arrow().to_pylist() == chosen
    assert sample.to_arrow(limit=2).to_pylist() == chosen[:2]
    assert [
        row for rank in range(3) for batch in sample.batches(2, shard=(rank, 3)) for row in batch.to_pylist()
    ] == chosen
    assert _fetch(sample) == chosen
    kept = sample.filter(f'"{name}" IS NOT NULL')
    assert kept.row_numbers().tolist() == [n for n in numbers if expected[n][name] is not None]
    assert kept.to_arrow().to_pylist() == [row for row in chosen if row[name] is not None]


def _fetch(table: wd.Table) -> list[dict[str, Any]] | None:
    """Return the rows by way of DuckDB; None if the table is not edited, because DuckDB reads no files in memory."""
    if table.entry.manifest_format == 1 and table.rows is None:
        return None
    relation = table.duckdb()
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


@pytest.mark.parametrize("scheme", ["memory", "file"])
@pytest.mark.parametrize("every", [2, 100, 5000])
def test_a_bitmap_of_deleted_rows_is_read(tmp_path: Any, scheme: str, every: int) -> None:
    store = memory_store() if scheme == "memory" else (tmp_path / "s").as_uri()
    rows = pa.table({"n": np.arange(20_000), "word": [f"w{n % 7}" for n in range(20_000)]})
    shard = StoredShard(rows, deleted=range(0, 20_000, every), group_rows=3000)
    table = publish_edited(store, [shard]).table()
    expected = [n for n in range(20_000) if n % every]
    assert table.to_arrow()["n"].to_pylist() == expected
    assert table.filter("n >= 19990").to_arrow()["n"].to_pylist() == [n for n in expected if n >= 19_990]
    assert table.take([5, len(expected) - 1, 0])["n"].to_pylist() == [expected[5], expected[-1], expected[0]]
    assert [row.values["n"] for row in reference_rows(wd.dataset("a/b", store=store))] == expected


def test_row_groups_of_other_sizes_are_corrupt() -> None:
    rows, extra = pa.table({"n": range(10)}), pa.table({"m": range(10)})
    session = publish_edited(memory_store(), [StoredShard(rows)]).session
    good = publish_edited(session, [StoredShard(rows, files=[ExtraColumns(extra)])]).table().entry
    other = publish_edited(session, [StoredShard(extra, group_rows=4)]).table().entry.shards.shards[0]
    shard = good.shards.shards[0]
    file = replace_struct(shard.files[0], hash=other.hash, byte_size=other.byte_size, footer=other.footer)
    broken = replace(good, shards=replace(good.shards, shards=(replace_struct(shard, files=(file,)),)))
    table = replace(wd.dataset("a/b", store=session.writer.url).table(), entry=broken)
    with pytest.raises(CorruptError, match=f"column file {other.hash} .* shard {shard.hash}"):
        table.to_arrow()


def test_a_column_in_two_files_is_corrupt() -> None:
    rows, extra = pa.table({"n": range(10)}), pa.table({"n": range(10, 20)})
    dataset = publish_edited(memory_store(), [StoredShard(rows, files=[ExtraColumns(extra)])])
    with pytest.raises(CorruptError, match="column 'n' is both in file"):
        dataset.table().to_arrow()


def replace_struct(value: Any, **changes: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(value, **changes)


def test_only_files_with_wanted_columns_are_fetched() -> None:
    """Otherwise adding an embedding would make every scan of labels as slow as one of the embedding."""
    noise = np.random.default_rng(0).bytes(2_000_000)
    rows = pa.table({"n": np.arange(1000)})
    extra = pa.table({"embedding": [noise[at : at + 2000] for at in range(0, 2_000_000, 2000)]})
    shard = StoredShard(rows, range(0, 1000, 50), files=[ExtraColumns(extra)], group_rows=500)
    dataset = publish_edited(memory_store(), [shard])
    before = dataset.io_stats
    table = dataset.table()
    assert table.filter("n >= 40").to_arrow(limit=3)["n"].to_pylist() == [40, 41, 42]
    assert table.select(["n"]).to_arrow()["n"].to_pylist() == [n for n in range(1000) if n % 50]
    assert dataset.io_stats.bytes_fetched - before.bytes_fetched < 100_000
    kept = table.filter("n = 999").to_arrow()
    assert kept["embedding"].to_pylist() == [noise[-2000:]]


def test_a_corrupt_bitmap_is_refused() -> None:
    rows = pa.table({"n": range(100)})
    dataset = publish_edited(memory_store(), [StoredShard(rows, range(40))])
    deletes = dataset.manifest.tables["main"].shards.shards[0].deletes
    assert deletes is not None
    assert deletes.hash is not None
    flip(dataset.session.writer, blob_key(deletes.hash), 10)
    with pytest.raises(CorruptError, match=f"blob {deletes.hash} do not have this hash"):
        wd.dataset("a/b", store=dataset.session.writer.url).table().to_arrow()


def test_a_deleted_value_cannot_fail_a_filter() -> None:
    rows = pa.table({"text": ["1", "bad", "3"]})
    table = publish_edited(memory_store(), [StoredShard(rows, [1])]).table()
    assert table.filter("CAST(text AS INTEGER) > 1").to_arrow()["text"].to_pylist() == ["3"]
