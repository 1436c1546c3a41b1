"""If this fails, two functions that return a stream disagree about its keywords, or a wrong value is not refused."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

import warpdata as wd
from warpdata.errors import BadInputError
from warpdata.streaming import RowKeywords, StreamKeywords, StreamOptions

RESOLVED = {"shard": ("rank", "world_size")}
"""Keywords that options hold in another form."""
SET_BY_CALLS = {"collate", "encoded_images", "image_device", "worker", "workers"}


def test_keywords_and_options_have_the_same_names() -> None:
    keywords = set(RowKeywords.__annotations__) - {"columns", "filter"}
    fields = {field.name for field in dataclasses.fields(StreamOptions)} - SET_BY_CALLS
    assert {name for keyword in keywords for name in RESOLVED.get(keyword, (keyword,))} == fields


def test_defaults_come_from_options() -> None:
    assert StreamOptions.parse({}) == StreamOptions()
    assert StreamOptions.parse({"prefetch": "auto", "shard": None, "progress": False}) == StreamOptions()


def test_keywords_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    options = StreamOptions.parse({"shard": "auto", "progress": True, "prefetch": 0}, collate="torch")
    assert (options.rank, options.world_size, options.prefetch, options.collate) == (2, 3, 0, "torch")
    assert options.progress is sys.stderr
    assert options.for_workers().progress is None


def test_unknown_keywords_are_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"'bach_size'. Did you mean batch_size\?"):
        StreamOptions.parse({"bach_size": 1})
    with pytest.raises(TypeError, match="'decode'"):
        StreamOptions.parse({"decode": False}, StreamKeywords.__annotations__)
    StreamOptions.parse({"decode": False, "columns": ["a"]}, RowKeywords.__annotations__)


@pytest.mark.parametrize(
    "keywords",
    [
        {"batch_size": 0},
        {"batch_size": "8"},
        {"batch_size": True},
        {"batch_size": 2.0},
        {"shard": "all"},
        {"shard": (2, 2)},
        {"seed": "7"},
        {"seed": True},
        {"shuffle": "yes"},
        {"remainder": "keep"},
        {"prefetch": -1},
        {"prefetch": "many"},
        {"prefetch": True},
        {"on_error": "ignore"},
    ],
    ids=str,
)
def test_wrong_values_are_refused(keywords: dict[str, Any]) -> None:
    with pytest.raises(BadInputError):
        StreamOptions.parse(keywords, RowKeywords.__annotations__)


def test_rows_have_no_transform() -> None:
    with pytest.raises(BadInputError, match="arrow"):
        StreamOptions.parse({"transform": dict}, collate="arrow")


def test_a_shuffle_needs_positive_sizes() -> None:
    with pytest.raises(BadInputError):
        wd.Shuffle(0, 1)
