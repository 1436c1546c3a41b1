"""If this fails, the directory of an index has another form than specified, or a false one makes a reader map rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.test_spec_examples import example
from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError
from warpdata.formats.indexes import Directory, Segment, Source, encode_directory, parse_directory
from warpdata.limits import MAX_SEGMENT_ROWS


def digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()


SAMPLE = Directory(
    (
        Segment(digest("first"), (Source(digest("a"), "label", 100), Source(digest("b"), "Étiquette 1", 0)), 3),
        Segment(digest("second"), (Source(digest("c"), "label", 7),)),
    )
)
HASHES = [segment.hash for segment in SAMPLE.segments]


def stored() -> Any:
    return json.loads(encode_directory(SAMPLE))


def parse(document: Any, hashes: list[str] = HASHES) -> Directory:
    return parse_directory(json.dumps(document).encode(), hashes, "main.label")


def test_the_example_of_the_specification_is_one_segment() -> None:
    data = example("indexes.md", "json index-directory").encode()
    segment_hash = json.loads(data)["segments"][0]["hash"]
    directory = parse_directory(data, [segment_hash], "main.label")
    assert [source.key[1] for source in directory.segments[0].sources] == ["label"]
    assert directory.row_count == 100
    assert encode_directory(directory) == data


sources = st.builds(Source, st.integers(0, 99).map(lambda n: digest(str(n))), st.text(min_size=1), st.integers(0, 999))
segments = st.builds(
    Segment,
    st.integers(0, 99).map(lambda n: digest(str(n))),
    st.lists(sources, min_size=1, max_size=4).map(tuple),
    st.none() | st.integers(0, 2**40),
)


@given(st.lists(segments, max_size=5))
def test_a_directory_survives_the_round_trip(listed: list[Segment]) -> None:
    directory = Directory(tuple(listed))
    assert parse_directory(encode_directory(directory), [each.hash for each in listed], "x") == directory


def test_rows_of_a_segment_follow_the_order_of_its_sources() -> None:
    assert SAMPLE.segments[0].starts == (0, 100, 100)
    assert (SAMPLE.segments[0].row_count, SAMPLE.row_count) == (100, 107)


def _set(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("format", value=0), "format 0"),
        (_set("format", value="1"), "malformed"),
        (_set("more", value=1), "unknown field `more`"),
        (_set("segments", 0, "more", value=1), "unknown field `more`"),
        (_set("segments", 0, "hash", value=digest("other")), "other segments than the manifest"),
        (_set("segments", 1, "sources", value=[]), "segment 1 .* no sources"),
        (_set("segments", 0, "sources", 0, 0, value="ABC"), "without a hash"),
        (_set("segments", 0, "sources", 0, 1, value=7), "Expected `str`"),
        (_set("segments", 0, "sources", 0, value=[digest("a"), "label"]), "Expected `array` of length 3"),
        (_set("segments", 0, "sources", 0, 2, value=-1), "segment 0 .* rows"),
        (_set("segments", 0, "sources", 0, 2, value=MAX_SEGMENT_ROWS + 1), "the limit is 4294967295"),
        (_set("segments", 0, "sources", 0, 2, value=1.5), "Expected `int`"),
        (_set("segments", 0, "entries", value=-1), "-1 entries"),
    ],
)
def test_one_rejected_directory_for_each_rule(change: Callable[[Any], None], message: str) -> None:
    document = stored()
    change(document)
    with pytest.raises(CorruptError, match=message):
        parse(document)


def test_a_newer_format_is_unsupported_and_not_corrupt() -> None:
    with pytest.raises(UnsupportedError, match="format 2"):
        parse({"format": 2, "anything": []})


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CorruptError, UnsupportedError)):
        parse_directory(data, HASHES, "main.label")


def test_a_directory_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warpdata.formats.indexes.directory.MAX_INDEX_DIRECTORY_BYTES", 100)
    with pytest.raises(LimitExceededError, match="Compact the table"):
        encode_directory(SAMPLE)
