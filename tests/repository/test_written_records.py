"""If these fail, something can be written that no reader accepts: a history that is broken for good."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warpdata as wd
from tests.faults.scenes import faulty, link, memory, rows
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError
from warpdata.limits import MAX_AUTHOR_LENGTH, MAX_MESSAGE_LENGTH
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog import Commit, Head, Hint, VersionLabel, parse_address
from warpdata.repository.catalog.records import decode_commit, decode_record, encode_commit, encode_record
from warpdata.repository.manifest import (
    Binding,
    ColumnFile,
    Deletes,
    External,
    Footer,
    Ids,
    Manifest,
    Page,
    Payload,
    SchemaChange,
    Shard,
    ShardList,
    TableEntry,
    canonical_json,
    encode_manifest,
    iter_shards,
    page_shards,
    parse_manifest,
)

D = sha256_hex(b"")
TIME = "2026-01-01T00:00:00.000Z"
TEXTS = st.text(max_size=30) | st.sampled_from(["x" * 200_000, "é" * 5000, "\ud800", "\x00", "", "\u2028", D, TIME])
NUMBERS = st.integers(-2, 2**54) | st.integers() | st.floats()
ODD = st.none() | st.booleans() | NUMBERS | st.binary(max_size=3) | st.lists(st.integers(), max_size=2)
ANYTHING: st.SearchStrategy[Any] = st.one_of(TEXTS, ODD)
TREES: st.SearchStrategy[Any] = st.recursive(
    ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5) | st.integers(), TREES, max_size=3)
METADATA = OBJECTS | ODD

_T = TypeVar("_T", Commit, Head, VersionLabel, Hint)


def changed(valid: _T) -> st.SearchStrategy[_T]:
    """Return the record with any values in up to two of its fields."""
    names = st.lists(st.sampled_from([field.name for field in fields(valid)]), max_size=2, unique=True)
    values = names.flatmap(lambda chosen: st.fixed_dictionaries(dict.fromkeys(chosen, ANYTHING)))
    return values.map(lambda drawn: replace(valid, **drawn))


COMMITS = changed(Commit(D, (D,), "txn", "replace", "ana", "first", TIME))
POINTERS: st.SearchStrategy[Head | VersionLabel | Hint] = st.one_of(
    changed(Head(1, D, D, "txn")), changed(VersionLabel("v1", D, D, TIME)), changed(Hint("main", 1, D, D))
)


@given(COMMITS)
def test_a_commit_is_refused_or_read_back(commit: Commit) -> None:
    try:
        commit_id, data = encode_commit(commit)
    except BadInputError:
        return
    assert decode_commit(data, commit_id) == commit
    datetime.fromisoformat(decode_commit(data, commit_id).time)


@given(POINTERS)
def test_a_pointer_is_refused_or_read_back(record: Head | VersionLabel | Hint) -> None:
    try:
        data = encode_record(record)
    except BadInputError:
        return
    assert decode_record(data, type(record), "here") == record


COUNTS = st.just(7) | st.integers(-2, 2**54)
DIGESTS = st.just(D) | TEXTS
FOOTERS = st.none() | st.builds(Footer, COUNTS, st.just("0" * 16) | TEXTS)
REVISIONS = st.sampled_from([0, 0, 0, 1, 2, -1])
RUNS = st.lists(st.tuples(COUNTS, COUNTS), max_size=3).map(tuple) | st.just(((9, 3), (0, 4)))
IDS = st.builds(Ids, first=COUNTS) | st.builds(Ids, runs=RUNS) | st.builds(Ids, first=st.none() | COUNTS, runs=RUNS)
IDS |= st.builds(Ids, hash=DIGESTS, byte_size=COUNTS)
POSITIONS = st.lists(COUNTS, max_size=3).map(tuple) | st.just((0, 3))
DELETES = st.builds(Deletes, st.just(2) | COUNTS, positions=POSITIONS)
DELETES |= st.builds(Deletes, COUNTS, hash=DIGESTS, byte_size=COUNTS)
SHARDS = st.builds(
    Shard,
    hash=DIGESTS,
    byte_size=COUNTS,
    row_count=st.none() | COUNTS,
    footer=FOOTERS,
    revision=REVISIONS,
    ids=st.none() | IDS,
    deletes=st.none() | DELETES,
    files=st.lists(st.builds(ColumnFile, DIGESTS, COUNTS, FOOTERS, REVISIONS), max_size=2).map(tuple),
    external=st.none() | st.builds(External, TEXTS, st.none() | TEXTS),
)
PAGES = st.builds(Page, DIGESTS, COUNTS, COUNTS, COUNTS, COUNTS, st.just(0) | COUNTS, st.sampled_from([1, 1, 2, 3]))
SHARD_LISTS = st.builds(ShardList, shards=st.lists(SHARDS, max_size=2).map(tuple)) | st.builds(
    ShardList, pages=st.lists(PAGES, max_size=2).map(tuple), levels=st.integers(-1, 9)
)
CHANGES = st.lists(st.builds(SchemaChange, TEXTS, st.none() | TEXTS), max_size=2).map(tuple)
TABLES = st.builds(TableEntry, SHARD_LISTS, schema=st.none() | OBJECTS, changes=CHANGES, next_id=st.none() | COUNTS)
NAMES = st.sampled_from(["main", "main", "main", "a" * 129, "", "no/slash"])
KINDS = st.sampled_from(["files", "files", "scrolls", ""])
MANIFESTS = st.builds(
    Manifest,
    dataset_id=st.sampled_from(["a/b", "a/b", "a/b", "A/b", "ab"]),
    tables=st.dictionaries(NAMES, TABLES, max_size=1),
    artifacts=st.dictionaries(NAMES, st.builds(Payload, KINDS, SHARD_LISTS, attributes=OBJECTS), max_size=1),
    bindings=st.lists(
        st.builds(Binding, NAMES, NAMES, NAMES, st.sampled_from(["image", "image", "smell"])), max_size=1
    ).map(tuple),
    metadata=METADATA,
    generations=st.just({}) | st.dictionaries(DIGESTS, st.just("0" * 8) | TEXTS, max_size=2),
)


@given(MANIFESTS)
def test_a_manifest_is_refused_or_read_back(manifest: Manifest) -> None:
    try:
        data = encode_manifest(manifest)
    except BadInputError:
        return
    parsed = parse_manifest(data)
    assert encode_manifest(parsed) == data
    assert canonical_json(parsed.metadata, fractions=True) == canonical_json(dict(manifest.metadata), fractions=True)


@given(st.lists(SHARDS, min_size=1, max_size=3))
def test_a_page_is_refused_or_read_back(shards: list[Shard]) -> None:
    try:
        paged = page_shards(shards, inline_limit=0)
        encode_manifest(Manifest("a/b", {"raw": TableEntry(paged.shards)}))
    except BadInputError:
        return
    assert list(iter_shards(paged.shards, lambda page: paged.new_pages[page.hash])) == shards


@settings(max_examples=40)
@given(
    author=ANYTHING,
    message=ANYTHING,
    metadata=st.dictionaries(st.text(max_size=5) | st.integers(), TREES, max_size=3) | ODD,
)
def test_a_publish_is_refused_before_anything_is_stored_or_its_history_is_readable(
    author: Any, message: Any, metadata: Any
) -> None:
    store = faulty(memory("written-records"))
    for info in list(store.list_objects("")):
        store.delete(info.key)
    store.clear()
    builder = wd.DatasetBuilder("a/b", link(store)).add_table("main", rows(0))
    try:
        builder.publish(message, author=author, metadata=metadata)
    except BadInputError:
        assert list(store.list_objects("")) == []
        return
    (revision,) = open_dataset(link(store), parse_address("a/b")).history()
    assert revision.message == message
    assert revision.author == author or not author
    manifest = open_dataset(link(store), parse_address("a/b")).manifest
    assert canonical_json(manifest.metadata, fractions=True) == canonical_json(metadata or {}, fractions=True)


@pytest.mark.parametrize("author", [5, "x" * 200_000, b"ana", "\ud800"])
def test_an_author_that_no_reader_accepts_is_refused(author: Any) -> None:
    store = memory(f"author-{author!r:.20}")
    with pytest.raises(BadInputError, match=r"author|surrogate"):
        wd.DatasetBuilder("a/b", link(store)).add_table("main", pa.table({"n": [1]})).publish(author=author)
    assert list(store.list_objects("")) == []


def test_the_longest_texts_fit_into_a_record() -> None:
    """Control characters take six bytes each in JSON."""
    commit = Commit(D, (), "t", "append", "\x01" * MAX_AUTHOR_LENGTH, "\x01" * MAX_MESSAGE_LENGTH, TIME)
    commit_id, data = encode_commit(commit)
    assert decode_commit(data, commit_id) == commit
