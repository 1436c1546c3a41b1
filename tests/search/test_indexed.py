"""If this fails, an index changes an answer: after edits, with damage, or for rows that it does not cover."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, IndexWarning, MissingExtraError, SchemaMismatchError
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import iter_shards
from warpdata.search import SearchIndexes
from warpdata.search.search_memory import search_memory
from warpdata.testing import S3Endpoint

pytest.importorskip("faiss")

STORE = "memory://indexed"
WORDS = ["red", "car", "night", "blue", "dog"]


def rows_of(random: np.random.Generator, start: int, count: int) -> pa.Table:
    vectors = random.standard_normal((count, 3)).round(1).astype("f4")
    lists = [None if random.random() < 0.1 else vector.tolist() for vector in vectors]
    texts = [None if random.random() < 0.1 else " ".join(random.choice(WORDS, random.integers(0, 6))) for _ in lists]
    numbers = pa.array(range(start, start + count), pa.int64())
    return pa.table({"n": numbers, "emb": pa.array(lists, pa.list_(pa.float32(), 3)), "text": pa.array(texts)})


def vector_column(dataset: wd.Dataset) -> str:
    names: list[str] = dataset.table().schema().names
    return next(name for name in names if name.startswith("emb"))


def change(dataset: wd.Dataset, random: np.random.Generator, step: str) -> wd.Dataset:
    """Make one change. Every call may leave rows that no index covers."""
    address, column = dataset.id, vector_column(dataset)
    if step == "compact":
        dataset.compact(target_bytes="1MiB", max_deleted=0.0)
    elif step == "update":
        for index in dataset.indexes():
            dataset = dataset.update_index(index.name)
    else:
        with dataset.edit(step) as edit:
            if step == "append":
                rows = rows_of(random, int(random.integers(1000)), 7)
                edit.append("main", rows.rename_columns(["n", column, "text"]))
            elif step == "delete":
                edit.delete("main", where=f"n % 5 = {random.integers(5)}")
            elif step == "rewrite":
                edit.update("main", where=f"n % 4 = {random.integers(4)}", set={"text": "a red dog", column: None})
            else:
                edit.rename_column("main", column, "emb2" if column == "emb" else "emb")
    return wd.dataset(address, store=STORE)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.soak) for n in range(4, 100))])
def test_an_index_never_changes_an_answer(seed: int) -> None:
    """Segments have fewer rows than are compared exactly, so a search by lists finds all of the best rows."""
    random = np.random.default_rng(seed)
    kind = "ivf" if seed % 2 else "lsh"
    metric = str(random.choice(["cosine", "l2", "dot"])) if kind == "ivf" else "cosine"
    options: dict[str, Any] = {"lists": int(random.choice([1, 4]))} if kind == "ivf" else {}
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows_of(random, 0, 30)).publish(replace=True)
    dataset = wd.dataset("a/b", store=STORE).create_index("main", "text", kind="text")
    dataset = dataset.create_index("main", "emb", kind=kind, metric=metric, **options)
    steps = ["append", "delete", "rewrite", "rename", "compact", "update"]
    for step in random.permutation(steps)[:4].tolist():
        dataset = change(dataset, random, step)
        column = vector_column(dataset)
        k, bound = int(random.integers(0, 12)), int(random.integers(0, 60))
        near, where = (column, random.standard_normal(3)), f"n < {bound}"
        exact = dataset.search(near=near, k=k, metric=metric, filter=where, exact=True)
        found = dataset.search(near=near, k=k, metric=metric, filter=where)
        assert len(found) == len(exact)
        assert set(found.ids) <= set(dataset.table().filter(where).sample_ids().tolist())
        if dataset.indexes()[0].sources < 2:
            assert found.to_arrow().equals(exact.to_arrow())
        query = " ".join(random.choice(WORDS, 2))
        found = dataset.search(text=query, column="text", k=k, filter=where)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SearchIndexes, "texts", lambda *_: None)
            plain = dataset.search(text=query, column="text", k=k, filter=where)
        assert plain.explain().parts[0].index is None
        assert found.to_arrow().equals(plain.to_arrow())


def published(count: int = 40) -> wd.Dataset:
    rows = rows_of(np.random.default_rng(5), 0, count)
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows).publish(replace=True)
    return wd.dataset("a/b", store=STORE)


def test_the_explanation_names_the_index() -> None:
    dataset = published().create_index("main", "emb", kind="ivf").create_index("main", "text", kind="text")
    with dataset.edit("more") as edit:
        edit.append("main", rows_of(np.random.default_rng(6), 100, 5))
    dataset = wd.dataset("a/b", store=STORE)
    explained = dataset.search(near=("emb", [1, 2, 3]), text="red", column="text").explain()
    vectors, words = explained.parts
    assert (vectors.index, words.index) == ("main.emb", "main.text")
    assert (vectors.scanned, words.scanned) == (5, 5)
    assert vectors.lists > 0
    assert "index 'main.emb'" in str(explained)
    other = dataset.search(near=("emb", [1, 2, 3]), metric="l2").explain().parts[0]
    assert (other.index, other.scanned) == (None, 45)
    assert dataset.search(near=("emb", [1, 2, 3]), exact=True).explain().parts[0].index is None


@pytest.mark.parametrize("kind", ["ivf", "text"])
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_index_is_named_and_not_used(tmp_path: Path, kind: str, damage: str) -> None:
    store = tmp_path.as_uri()
    wd.DatasetBuilder("a/b", store).add_table("main", rows_of(np.random.default_rng(5), 0, 40)).publish()
    plain = wd.dataset("a/b", store=store)
    dataset = plain.create_index("main", "emb" if kind == "ivf" else "text", kind=kind)
    arguments: dict[str, Any] = {"near": ("emb", [1, 2, 3])} if kind == "ivf" else {"text": "red car", "column": "text"}
    index = dataset.manifest.indexes[dataset.indexes()[0].name]
    for shard in iter_shards(index.shards, dataset.load_page):
        path = tmp_path / blob_key(shard.hash)
        path.chmod(0o644)
        content = bytearray(path.read_bytes())
        for at in range(0, len(content), 16):
            content[at] ^= 1
        path.write_bytes(content) if damage == "flip" else path.unlink()
    search_memory(0).clear()  # another test may have read the same segment
    dataset = wd.dataset("a/b", store=store)
    with pytest.warns(IndexWarning, match=f"index 'main.{'emb' if kind == 'ivf' else 'text'}' of a/b is damaged"):
        found = dataset.search(**arguments)
    assert found.to_arrow().equals(plain.search(**arguments).to_arrow())
    assert found.explain().parts[0].index is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dataset.search(**arguments).ids == found.ids
        repaired = dataset.update_index(dataset.indexes()[0].name, rebuild=True)
        assert repaired.search(**arguments).explain().parts[0].index is not None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"column": "text", "kind": "ivf"}, SchemaMismatchError, "not a fixed-size list"),
        ({"column": "emb", "kind": "text"}, SchemaMismatchError, "and not text"),
        ({"column": "emb", "kind": "ivf", "metric": "hamming"}, BadInputError, "none of cosine"),
        ({"column": "emb", "kind": "ivf", "lists": 0}, BadInputError, "lists=0"),
        ({"column": "text", "kind": "text", "lists": 3}, BadInputError, "no parameter 'lists'"),
        ({"column": "n", "kind": "btree", "metric": "l2"}, BadInputError, "no parameter 'metric'"),
        ({"column": "emb", "kind": "imi"}, SchemaMismatchError, "vectors of 3 numbers, which cannot be halved"),
        ({"column": "emb", "kind": "lsh", "metric": "l2"}, BadInputError, "metric='l2' is none of cosine"),
        ({"column": "emb", "kind": "lsh", "lists": 4}, BadInputError, "no parameter 'lists'"),
        ({"column": "n", "kind": "hnsw"}, BadInputError, "'hnsw' is not a kind"),
    ],
)
def test_indexes_that_do_not_fit_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        published().create_index("main", **arguments)


def test_building_without_faiss_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(MissingExtraError, match="Building an index of vectors needs") as raised:
        published().create_index("main", "emb", kind="ivf")
    assert "warpdata-lake[vector]" in str(raised.value.hint)


@pytest.mark.parametrize("kind", ["imi", "lsh"])
def test_other_kinds_of_vector_indexes_live_like_ivf(kind: str) -> None:
    random = np.random.default_rng(5)
    vectors = random.standard_normal((3000, 8)).astype("f4")
    rows = pa.table({"n": np.arange(3000), "emb": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 8)})
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows).publish(replace=True)
    dataset = wd.dataset("a/b", store=STORE).create_index("main", "emb", kind=kind)
    with dataset.edit("change") as edit:
        edit.delete("main", where="n % 7 = 0")
        edit.append("main", rows.slice(0, 5))
    dataset = wd.dataset("a/b", store=STORE)
    near = ("emb", vectors[8] + 0.1)
    for where in (None, "n < 1500"):
        found, best = (dataset.search(near=near, filter=where, exact=exact) for exact in (False, True))
        part = found.explain().parts[0]
        assert (part.index, part.scanned) == ("main.emb", 5)
        assert part.lists > 0
        assert part.recall < 1
        assert len(set(found.ids) & set(best.ids)) >= 9
    dataset = dataset.update_index("main.emb", rebuild=True)
    assert dataset.search(near=near).explain().parts[0].scanned == 0
    dataset = dataset.drop_index("main.emb")
    assert dataset.search(near=near).explain().parts[0].index is None


def test_a_filter_of_another_version_selects_other_rows() -> None:
    """Memory of selected rows must not outlive the version that it is of."""
    dataset = published().create_index("main", "emb", kind="ivf")
    near = ("emb", [1, 2, 3])
    before = dataset.search(near=near, filter="n < 10").ids
    with dataset.edit("less") as edit:
        edit.delete("main", where="n < 5")
    after = wd.dataset("a/b", store=STORE).search(near=near, filter="n < 10").ids
    assert after == [found for found in before if found >= 5]
    assert wd.dataset("a/b", store=STORE).search(near=near, filter="n < 10").ids == after
    assert dataset.search(near=near, filter="n < 10").ids == before


def test_an_empty_column_can_be_indexed() -> None:
    rows = pa.table({"emb": pa.array([None, None], pa.list_(pa.float32(), 3)), "text": pa.array([None, ""])})
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows).publish(replace=True)
    dataset = wd.dataset("a/b", store=STORE).create_index("main", "emb", kind="ivf")
    dataset = dataset.create_index("main", "text", kind="text")
    assert dataset.search(near=("emb", [1, 2, 3])).ids == []
    assert dataset.search(text="red", column="text").ids == []


@pytest.mark.s3
def test_a_cold_search_reads_a_small_part_of_the_index(
    s3_url: str, s3_server: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps: the directory, the head, and the codes and then the vectors of a few lists."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    random = np.random.default_rng(5)
    centers = random.standard_normal((400, 64))
    vectors = (centers[random.integers(0, 400, 20_000)] + 0.3 * random.standard_normal((20_000, 64))).astype("f4")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64)
    wd.DatasetBuilder("a/cold", s3_url).add_table("main", pa.table({"emb": column})).publish()
    wd.dataset("a/cold", store=s3_url).create_index("main", "emb", kind="ivf")
    dataset = wd.dataset("a/cold", store=s3_url, mode="remote")
    size_bytes = dataset.indexes()[0].size_bytes
    table = dataset.table()
    table.schema()
    explained = dataset.search(near=("emb", vectors[5]), columns=[]).explain()
    lists = explained.parts[0].lists
    assert explained.requests <= 3 + 3 * lists
    assert explained.bytes_fetched < 0.2 * size_bytes
