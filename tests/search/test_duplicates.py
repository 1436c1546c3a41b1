"""If this fails, near-duplicates stay in a training set, or rows are called duplicates that are not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.search.oracle import is_comparable, score
from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError, UnsupportedError
from warpdata.search import duplicates

STORE = "memory://duplicates"


def published(vectors: Any, kind: Any = None) -> wd.Dataset:
    column = pa.array(vectors, pa.list_(kind or pa.float32(), 2))
    rows = pa.table({"n": pa.array(range(len(vectors)), pa.int64()), "emb": column})
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows).publish(replace=True)
    return wd.dataset("a/b", store=STORE)


@settings(max_examples=25)
@given(st.data())
def test_the_pairs_are_those_of_two_loops(data: Any) -> None:
    numbers = st.sampled_from([0.0, 1.0, 1.001, -1.0, 0.5, float("nan")])
    vectors = data.draw(st.lists(st.one_of(st.none(), st.tuples(numbers, numbers)), max_size=25))
    metric = data.draw(st.sampled_from(["cosine", "l2", "dot"]))
    threshold = data.draw(st.sampled_from([-0.0005, 0.0, 0.97] if metric == "l2" else [0.4, 0.97, 1.0]))
    dataset = published(vectors, data.draw(st.sampled_from([pa.float32(), pa.float64()])))
    stored = dataset.table().to_arrow()["emb"].to_pylist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_BLOCK_ROWS", data.draw(st.integers(1, 10)))
        found = dataset.duplicates("main", "emb", threshold=threshold, metric=metric).to_pylist()
    usable = [n for n, vector in enumerate(stored) if is_comparable(vector, metric)]
    every = {(a, b): score(stored[a], stored[b], metric) for a in usable for b in usable if a < b}
    got = {(hit["_id"], hit["_duplicate"]): hit["_score"] for hit in found}
    assert len(got) == len(found)
    for pair, value in every.items():
        if abs(value - threshold) > 1e-12:
            assert (pair in got) == (value > threshold), (pair, value)
    assert all(value == pytest.approx(every[pair], abs=1e-12) for pair, value in got.items())
    assert [(-hit["_score"], hit["_id"], hit["_duplicate"]) for hit in found] == sorted(
        (-hit["_score"], hit["_id"], hit["_duplicate"]) for hit in found
    )


def test_images_are_compared_without_a_model(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(1)
    pixels = random.integers(0, 255, (8, 12, 3)).repeat(16, 0).repeat(16, 1).astype("u1")
    other = random.integers(0, 255, (8, 12, 3)).repeat(16, 0).repeat(16, 1).astype("u1")
    for name, array, quality in (("a", pixels, 95), ("b", pixels, 40), ("c", other, 95)):
        buffer = io.BytesIO()
        image.fromarray(array).save(buffer, "JPEG", quality=quality)
        (tmp_path / f"{name}.jpg").write_bytes(buffer.getvalue())
    image.fromarray(pixels).resize((96, 64)).save(tmp_path / "d.png")
    names = ["a.jpg", "b.jpg", "c.jpg", "d.png", None]
    builder = wd.DatasetBuilder("a/pets", STORE).add_artifact("images", tmp_path)
    builder.add_table("main", {"image": names}).bind("main", "image", "images", "image").publish()
    dataset = wd.dataset("a/pets", store=STORE)
    found = dataset.duplicates("main", "image", threshold=0.9)
    assert {(hit["_id"], hit["_duplicate"]) for hit in found.to_pylist()} == {(0, 1), (0, 3), (1, 3)}
    assert dataset.duplicates("main", "image", threshold=0.9, filter="image != 'd.png'").num_rows == 1


def test_wrong_arguments_are_named() -> None:
    dataset = published([[1, 0]])
    with pytest.raises(ColumnNotFoundError, match="'nope'"):
        dataset.duplicates("main", "nope")
    with pytest.raises(SchemaMismatchError, match="neither vectors nor images"):
        dataset.duplicates("main", "n")
    with pytest.raises(BadInputError, match="threshold=2"):
        dataset.duplicates("main", "emb", threshold=2)
    with pytest.raises(BadInputError, match="none of cosine"):
        dataset.duplicates("main", "emb", metric="hamming")


class Encoder:
    """An object like those of sentence-transformers."""

    def encode(self, texts: list[str]) -> Any:
        return np.array([[len(text), text.count("a")] for text in texts], np.float32)


@pytest.mark.parametrize("model", [Encoder(), Encoder().encode])
def test_vectors_of_a_model_become_a_column(model: Any) -> None:
    wd.DatasetBuilder("a/c", STORE).add_table("main", {"text": ["banana", None, "bob"]}).publish(replace=True)
    dataset = wd.dataset("a/c", store=STORE).embed("main", "emb", model=model, column="text", batch_size=2)
    assert dataset.table().to_arrow()["emb"].to_pylist() == [[6, 3], None, [3, 0]]
    assert dataset.search(near=("emb", [2, 0])).ids == [2, 0]
    indexed = dataset.embed("main", "again", model=model, column="text", index="lsh")
    assert [(each.column, each.kind, each.covered_rows) for each in indexed.indexes()] == [("again", "lsh", 3)]


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("clip", UnsupportedError, "'clip' is a name"),
        (3, BadInputError, "unlike int"),
        (lambda texts: [1.0] * len(texts), SchemaMismatchError, "shape"),
        (lambda texts: [[1.0]], SchemaMismatchError, r"shape \(1, 1\)"),
        (lambda texts: [[1.0], [1.0, 2.0]], SchemaMismatchError, "various sizes"),
        (lambda texts: [["a"], ["b"]], SchemaMismatchError, "type <U1"),
    ],
)
def test_models_that_return_no_vectors_are_refused(model: Any, error: type[Exception], message: str) -> None:
    wd.DatasetBuilder("a/c", STORE).add_table("main", {"text": ["a", "b"]}).publish(replace=True)
    dataset = wd.dataset("a/c", store=STORE)
    with pytest.raises(error, match=message):
        dataset.embed("main", "emb", model=model, column="text")
    assert wd.dataset("a/c", store=STORE).version == dataset.version
