"""If this fails, the stored bytes of a removal change, or software that knows only format 1 misreads them."""

from __future__ import annotations

import json

import pytest

import warpdata as wd
from tests.faults.scenes import link, memory, replace, rows
from warpdata.datasets import execute_removal, open_dataset, plan_removal
from warpdata.errors import ConflictError, CorruptError, DatasetNotFoundError, NotFoundError, UnsupportedError
from warpdata.primitives.hashing import sha256_hex
from warpdata.repository.catalog import Catalog, Head, Removal, VersionLabel, parse_address
from warpdata.repository.catalog.records import LabelEntry, LabelMarker, decode_record, encode_record
from warpdata.session import Session
from warpdata.storage import Writer
from warpdata.testing import FaultyStore

COMMIT, VERSION = "c" * 64, "d" * 64
TIME = "2026-11-18T12:00:00.000Z"


def remove(session: Session, address: str) -> None:
    execute_removal(session, plan_removal(session, parse_address(address)))


def stored(store: Writer, key: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(store.read(f"datasets/a/b/{key}").data)
    return found


def test_tombstones_and_markers_have_these_bytes() -> None:
    removal = Removal(TIME, "ana", "a/c")
    body = {"commit": COMMIT, "format": 2, "removed": {"author": "ana", "renamed_to": "a/c", "time": TIME}}
    cases: dict[Head | LabelEntry | LabelMarker, dict[str, object]] = {
        Head(2, COMMIT, VERSION, "t", removal): {**body, "sequence": 2, "txn_id": "t", "version": VERSION},
        LabelEntry("v1", 2, COMMIT, VERSION, TIME, "t", removal): {
            **body, "name": "v1", "sequence": 2, "time": TIME, "txn_id": "t", "version": VERSION,
        },
        LabelMarker("v1"): {"format": 2, "name": "v1"},
    }  # fmt: skip
    for record, members in cases.items():
        canonical = json.dumps(members, sort_keys=True, separators=(",", ":"))
        whole = {**members, "checksum": sha256_hex(canonical.encode())}
        data = json.dumps(whole, sort_keys=True, separators=(",", ":")).encode()
        assert encode_record(record) == data
        if isinstance(record, Head):
            assert decode_record(data, Head, "here") == record


def test_a_removal_is_stored_as_specified() -> None:
    store = memory("stored-removal")
    replace(link(store), 0)
    opened = open_dataset(link(store), parse_address("a/b"))
    opened.snapshot("v1")
    opened.branch("exp")
    remove(link(store, 1), "a/b@v1")
    remove(link(store, 2), "a/b@exp")
    assert stored(store, "labels/v1.json").keys() == {"checksum", "format", "name"}
    tombstone = stored(store, f"labels/v1/{2:020d}.json")
    assert (tombstone["format"], tombstone["version"]) == (2, opened.version)
    head = stored(store, f"heads/exp/{2:020d}.json")
    assert (head["format"], head["version"], head["sequence"]) == (2, opened.version, 2)
    assert stored(store, "removed/exp.json") == {"branch": "exp", "format": 1}


def test_readers_of_format_1_refuse_a_marker_and_a_tombstone() -> None:
    marker = encode_record(LabelMarker("v1"))
    with pytest.raises(UnsupportedError):
        decode_record(marker, VersionLabel, "labels/v1.json")
    assert json.loads(encode_record(Head(2, COMMIT, VERSION, "t", Removal(TIME, ""))))["format"] == 2


@pytest.mark.parametrize(
    "change", [{"removed": None}, {"format": 1}, {"removed": {"time": "x", "author": ""}}, {"format": 3}]
)
def test_malformed_tombstones_are_refused(change: dict[str, object]) -> None:
    body = json.loads(encode_record(Head(2, COMMIT, VERSION, "t", Removal(TIME, ""))))
    del body["checksum"]
    body.update(change)
    checksum = sha256_hex(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    data = json.dumps({**body, "checksum": checksum}).encode()
    if change == {"format": 1}:  # an unknown member, which format 1 allows
        assert decode_record(data, Head, "here").removed is None
        return
    with pytest.raises((CorruptError, UnsupportedError)):
        decode_record(data, Head, "here")


def test_a_label_that_was_never_removed_costs_one_read() -> None:
    store = memory("label-cost")
    replace(link(store), 0)
    open_dataset(link(store), parse_address("a/b")).snapshot("v1")
    counting = FaultyStore(store)
    Catalog(counting).resolve(parse_address("a/b@v1"))
    assert [operation.name for operation in counting.log] == ["read"]


def test_a_removed_label_names_another_version_later() -> None:
    store = memory("label-again")
    replace(link(store), 0)
    old = open_dataset(link(store), parse_address("a/b"))
    old.snapshot("v1")
    replace(link(store, 1), 100)
    new = open_dataset(link(store), parse_address("a/b"))
    for _ in range(3):
        remove(link(store, 2), "a/b@v1")
        with pytest.raises(NotFoundError, match="was removed at 2026-01-01") as caught:
            open_dataset(link(store), parse_address("a/b@v1"))
        assert caught.value.hint
        assert f"warp label a/b@{old.version} v1" in caught.value.hint or new.version in caught.value.hint
        new.snapshot("v1")
        assert Catalog(store).resolve(parse_address("a/b@v1")).version == new.version
    assert [label.name for label in Catalog(store).labels("a/b")] == ["v1"]


def test_work_of_another_writer_is_not_removed() -> None:
    store = memory("remove-race")
    replace(link(store), 0)
    open_dataset(link(store), parse_address("a/b")).branch("exp")
    for address, branch in (("a/b", "main"), ("a/b@exp", "exp")):
        found = plan_removal(link(store, 1), parse_address(address))
        wd.DatasetBuilder("a/b", link(store, 2)).add_table("main", rows(50)).publish(branch=branch, replace=True)
        with pytest.raises(ConflictError):
            execute_removal(link(store, 3), found)
        assert Catalog(store).resolve(parse_address(f"a/b@{branch}")).version != found.version


def test_an_append_to_a_dataset_that_is_removed_meanwhile_conflicts() -> None:
    """Without the check, the rows would become a dataset of their own."""
    store = memory("append-removed")
    replace(link(store), 0)
    builder = wd.DatasetBuilder("a/b", link(store, 1)).append_table("main", rows(100))

    change = builder._change_set(
        builder._find_head("main"), builder._mode(replace=False, keep=False), {}, lambda _: None
    )
    change.build(builder._find_head("main"))
    remove(link(store, 2), "a/b")
    with pytest.raises(ConflictError, match="was removed"):
        change.proposal(None, lambda _: None)(None)


def test_a_dataset_begins_again_without_its_labels() -> None:
    store = memory("begin-again")
    replace(link(store), 0)
    open_dataset(link(store), parse_address("a/b")).snapshot("v1")
    remove(link(store, 1), "a/b")
    with pytest.raises(DatasetNotFoundError, match="was removed"):
        open_dataset(link(store), parse_address("a/b@v1"))
    replace(link(store, 2), 100)
    assert len(open_dataset(link(store), parse_address("a/b")).history()) == 1
    with pytest.raises(NotFoundError):
        open_dataset(link(store), parse_address("a/b@v1"))
