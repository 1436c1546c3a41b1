"""If this fails, a search for words ranks rows otherwise than BM25 does, or loses words of other scripts."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from warpdata.errors import BadInputError, ColumnNotFoundError, SchemaMismatchError
from warpdata.formats.search import split_words

STORE = "memory://text-scan"
WORDS = st.sampled_from(["red", "car", "night", "Red", "Straße", "ﬁne", "日本", "2", "é"])
TEXTS = st.one_of(st.none(), st.lists(WORDS, max_size=8).map(" ".join))


def published(texts: Any, **columns: Any) -> wd.Dataset:
    rows = pa.table({"caption": pa.array(texts, pa.string()), "n": pa.array(range(len(texts)), pa.int64()), **columns})
    wd.DatasetBuilder("a/b", STORE).add_table("main", rows).publish(replace=True)
    return wd.dataset("a/b", store=STORE)


def bm25(texts: dict[int, str | None], query: str) -> dict[int, float]:
    """The definition, one document at a time."""
    documents = {number: split_words(text) for number, text in texts.items() if text is not None}
    mean = sum(map(len, documents.values())) / max(len(documents), 1)
    scores: dict[int, float] = {}
    for word in split_words(query):
        having = [number for number, words in documents.items() if word in words]
        rarity = math.log(1 + (len(documents) - len(having) + 0.5) / (len(having) + 0.5))
        for number in having:
            count = documents[number].count(word)
            norm = 1.2 * (0.25 + 0.75 * len(documents[number]) / mean)
            scores[number] = scores.get(number, 0.0) + rarity * count * 2.2 / (count + norm)
    return scores


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A red CAR, at night_time!", ["a", "red", "car", "at", "night", "time"]),
        ("Straße STRASSE ﬁne Ｆｕｌｌ", ["strasse", "strasse", "fine", "full"]),
        ("e\u0301tude İstanbul ﾃｽﾄ 42x", ["étude", "i\u0307stanbul", "テスト", "42x"]),
        ("", []),
        ("... __ \n", []),
    ],
)
def test_words_have_one_spelling(text: str, words: list[str]) -> None:
    wanted = [word for each in words for word in each.replace("\u0307", " ").split()]
    assert split_words(text) == wanted
    assert split_words(" ".join(split_words(text))) == wanted


@settings(max_examples=40)
@given(st.lists(TEXTS, max_size=30), st.lists(WORDS, min_size=1, max_size=4), st.data())
def test_the_ranking_is_that_of_the_definition(texts: list[str | None], words: list[str], data: st.DataObject) -> None:
    dataset = published(texts)
    if data.draw(st.booleans()):
        with dataset.edit("drop") as edit:
            edit.delete("main", where="n % 4 = 2")
        dataset = wd.dataset("a/b", store=STORE)
    bound, k, query = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 20)), " ".join(words)
    ids = dataset.table().sample_ids().tolist()
    scores = bm25({number: texts[number] for number in ids}, query)
    wanted = sorted(((-score, number) for number, score in scores.items() if number < bound))[:k]
    hits = dataset.search(text=query, column="caption", k=k, filter=f"n < {bound}")
    assert len(hits) == len(wanted)
    assert hits.scores == pytest.approx([-score for score, _ in wanted])
    for number, found in zip(hits.ids, hits.scores, strict=True):
        assert found == pytest.approx(scores[number])
        assert number < bound
    assert [(-score, number) for number, score in zip(hits.ids, hits.scores, strict=True)] == sorted(
        (-score, number) for number, score in zip(hits.ids, hits.scores, strict=True)
    )


def test_a_vector_and_words_are_fused_by_rank() -> None:
    vectors = pa.array([[1, 0], [0.9, 0.1], [0, 1], [-1, 0]], pa.list_(pa.float32(), 2))
    dataset = published(["blue car", "red car", "red night", "red red car"], emb=vectors)
    hits = dataset.search(near=("emb", [1, 0]), text="red", column="caption", k=3)
    near = dataset.search(near=("emb", [1, 0]), k=4).ids
    words = dataset.search(text="red", column="caption", k=4).ids
    ranks = [{number: at + 1 for at, number in enumerate(part)} for part in (near, words)]
    wanted = {n: sum(1 / (60 + rank[n]) for rank in ranks if n in rank) for n in range(4)}
    assert hits.ids == sorted(wanted, key=lambda n: (-wanted[n], n))[:3]
    assert hits.scores == pytest.approx(sorted(wanted.values(), reverse=True)[:3])
    assert [part.kind for part in hits.explain().parts] == ["cosine", "bm25"]
    assert "fused by reciprocal rank" in str(hits.explain())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"text": "red"}, BadInputError, "needs a column"),
        ({"text": "red", "column": "nope"}, ColumnNotFoundError, "no column 'nope'"),
        ({"text": "red", "column": "n"}, SchemaMismatchError, "is int64, and not text"),
        ({"text": "?!", "column": "caption"}, BadInputError, "has no words"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    dataset = published(["red"])
    with pytest.raises(error, match=message):
        dataset.search(**arguments)
