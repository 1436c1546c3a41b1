"""If this fails, a damaged index gives a wrong answer or ends a query, or a killed build leaves a wrong index."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import faulty, link, memory
from tests.indexing.scenes import connect, head, random_rows, without_indexes
from warpdata.errors import IndexWarning
from warpdata.formats.indexes import write_btree
from warpdata.primitives.hashing import Blob, blob_key
from warpdata.session import Session
from warpdata.testing import KillAt, Killed

FILTERS = ("i = 3", "NOT (i = 3) AND i < 9", "i IS NULL")


@pytest.fixture(autouse=True)
def always_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.query.planner._MAX_SCAN_SHARE", 1e9)
    monkeypatch.setattr("warpdata.kinds.tables.row_indexes._SELECTIVE_SHARE", 1.0)


def publish(session: Session) -> None:
    wd.DatasetBuilder("a/b", session).add_table("main", random_rows(random.Random(1), 0, 200)).publish()


def blobs(session: Session, part: str) -> list[Blob]:
    index = head(session).manifest.indexes["main.i"]
    assert index.index is not None
    return [index.index] if part == "directory" else [shard.blob for shard in index.shards.shards]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


@pytest.mark.parametrize("kind", ["bitmap", "btree"])
@pytest.mark.parametrize("part", ["directory", "segment"])
def test_every_flipped_byte_is_found_or_harmless(kind: str, part: str) -> None:
    session = connect()
    publish(session)
    head(session).create_index("main", "i", kind=kind)
    blob = blobs(session, part)[0]
    key = blob_key(blob.hash)
    intact = bytes(session.reader.read(key).data)
    expected = [without_indexes(head(session).table()).filter(text).row_numbers() for text in FILTERS]
    warned = 0
    for at in range(0, len(intact), max(1, len(intact) // 60)):
        session.writer.replace(key, flip(intact, at))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            table = head(session).table()
            for text, rows in zip(FILTERS, expected, strict=True):
                assert np.array_equal(table.filter(text).row_numbers(), rows), (at, text)
        warned += any(issubclass(each.category, IndexWarning) for each in caught)
    assert warned > (50 if part == "directory" else 20)


@pytest.mark.parametrize("part", ["directory", "segment"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "flipped"])
def test_damage_is_named_and_repaired(part: str, damage: str) -> None:
    session = connect()
    publish(session)
    head(session).create_index("main", "i", kind="btree")
    blob = blobs(session, part)[0]
    key = blob_key(blob.hash)
    data = bytes(session.reader.read(key).data)
    if damage == "missing":
        session.writer.delete(key)
    else:
        session.writer.replace(key, data[:-9] if damage == "truncated" else flip(data, len(data) - 20))
    table = head(session).table()
    with pytest.warns(IndexWarning, match=r"index 'main\.i' of a/b is damaged"):
        assert table.filter("i = 3").count() == without_indexes(table).filter("i = 3").count()
    problems = " ".join(wd.verify(head(session)).problems)
    assert "index 'main.i'" in problems
    assert blob.hash in problems
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_args, **_more: None)
        head(session).update_index("main.i", rebuild=True)
    assert not wd.verify(head(session)).problems
    assert head(session).table().filter("i = 3").explain().undecided_rows == 0


def test_a_damaged_segment_costs_only_its_rows() -> None:
    session = connect()
    publish(session)
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 200, 50)).publish()
    head(session).create_index("main", "i", kind="btree")
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(3), 250, 50)).publish()
    head(session).update_index("main.i")
    session.writer.replace(blob_key(blobs(session, "segment")[1].hash), b"other")
    table = head(session).table()
    with pytest.warns(IndexWarning):
        plan = table.filter("i = 3").explain()
    assert plan.certain_rows > 0
    assert 0 < plan.undecided_rows <= 50
    assert table.filter("i = 3").count() == without_indexes(table).filter("i = 3").count()


def ask(dataset: wd.Dataset, kind: str) -> list[object]:
    """The answer to a question that an index of this kind answers. Filters are compared with a scan."""
    if kind == "btree":
        table = dataset.table()
        assert np.array_equal(table.filter("i = 3").row_numbers(), without_indexes(table).filter("i = 3").row_numbers())
        return list(table.filter("i = 3").row_numbers())
    hits = dataset.search(near=("v", [1, 2]), k=5) if kind == "ivf" else dataset.search(text="ab", column="s", k=5)
    return list(zip(hits.ids, hits.to_arrow()["_score"].to_pylist(), strict=True))


def is_used(dataset: wd.Dataset, kind: str) -> bool:
    if kind == "btree":
        return dataset.table().filter("i = 3").explain().undecided_rows == 0
    arguments: dict[str, Any] = {"near": ("v", [1, 2])} if kind == "ivf" else {"text": "ab", "column": "s"}
    part = dataset.search(**arguments).explain().parts[0]
    return part.index is not None and part.scanned == 0


@pytest.mark.parametrize(("kind", "column"), [("btree", "i"), ("ivf", "v"), ("text", "s")])
def test_a_build_that_is_killed_at_any_operation_leaves_the_rows_right(kind: str, column: str) -> None:
    if kind == "ivf":
        pytest.importorskip("faiss")
    rows = random_rows(random.Random(1), 0, 200)
    vectors = pa.array(np.random.default_rng(1).standard_normal(400), pa.float32())
    rows = rows.append_column("v", pa.FixedSizeListArray.from_arrays(vectors, 2))
    done, expected, left = False, None, 0
    for n in range(200):
        store = memory(f"killed-index-{kind}-{n}")
        wd.DatasetBuilder("a/b", link(store)).add_table("main", rows).publish()
        expected = expected or ask(head(link(store)), kind)
        try:
            head(link(faulty(store, KillAt(n)), 1)).create_index("main", column, kind=kind)
            done = True
        except Killed:
            pass
        dataset = head(link(store))
        assert ask(dataset, kind) == expected
        assert is_used(dataset, kind) == bool(dataset.manifest.indexes)
        left += not dataset.manifest.indexes
        if done:
            assert dataset.manifest.indexes
            assert left > 3
            return
    pytest.fail("the build never ended")


def test_a_build_goes_on_with_the_segments_that_were_finished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("warpdata.indexing.segment_builder.SEGMENT_ROWS", 50)
    session = connect()
    publish(session)
    for step in range(3):
        more = random_rows(random.Random(step), 200 + 100 * step, 100)
        wd.DatasetBuilder("a/b", session).append_table("main", more).publish()
    written: list[str] = []

    def fail_third(chunks: object, value_type: object, path: Path) -> int:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path.name)
        return write_btree(chunks, value_type, path)  # type: ignore[arg-type]

    monkeypatch.setattr("warpdata.indexing.segment_builder._PARALLEL_SEGMENTS", 1)
    monkeypatch.setattr("warpdata.indexing.segment_kinds.write_btree", fail_third)
    with pytest.raises(KeyboardInterrupt):
        head(session).create_index("main", "i", kind="btree")
    assert not head(session).manifest.indexes
    kept = {path.name for path in (tmp_path / "cache" / "indexes").rglob("*.segment")}
    assert len(kept) == 2
    written[:] = ["again"] * 10
    monkeypatch.setattr("warpdata.indexing.segment_kinds.write_btree", fail_third)
    dataset = head(session).create_index("main", "i", kind="btree")
    assert len(written) == 12
    assert dataset.table().filter("i = 3").explain().undecided_rows == 0
    assert not list((tmp_path / "cache" / "indexes").rglob("*"))


def test_a_damaged_directory_does_not_end_a_merge() -> None:
    session = connect()
    publish(session)
    head(session).create_index("main", "i")
    head(session).branch("dev")
    wd.DatasetBuilder("a/b", session).append_table("main", random_rows(random.Random(2), 200, 5)).publish()
    with head(session, "dev").edit() as edit:
        edit.append("main", random_rows(random.Random(3), 300, 5))
    head(session).update_index("main.i")
    head(session, "dev").update_index("main.i")
    damaged = head(session, "dev").manifest.indexes["main.i"].index
    assert damaged is not None
    session.writer.replace(blob_key(damaged.hash), b"other")
    merged = head(session).merge("dev")
    assert merged.table().count() == 210
    assert merged.indexes()[0].covered_rows == 205
