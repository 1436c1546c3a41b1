"""If this fails, a new payload kind needs changes outside its package, or an entry is not found by its name."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warpdata as wd
from tests.faults.scenes import link, memory, rows
from warpdata.datasets import open_dataset
from warpdata.errors import EpisodeNotFoundError, NotFoundError
from warpdata.kinds import (
    PayloadKind,
    StageContext,
    StagedBlob,
    StagedEntry,
    VersionContext,
    payload,
    payload_kind,
    pick_entry,
    shards_of,
)
from warpdata.primitives.hashing import blob_key, fingerprint_file
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import Manifest, ManifestEntry, Payload, ShardList, TableEntry

SECTIONS = ("tables", "artifacts", "episodes", "tensors", "indexes")


@dataclass(frozen=True)
class IndexInfo:
    name: str
    entries: int
    size_bytes: int


class IndexKind(PayloadKind[Payload, bytes]):
    """A fifth kind: an index is one blob of bytes."""

    section, noun, plural, item, count_field = "indexes", "index", "indexes", "entry", "entries"
    columns = ((">entries", "entries"), (">size", "size_bytes"))

    def not_found(self, message: str, hint: str | None) -> NotFoundError:
        return NotFoundError(message, hint=hint)

    def parse(self, name: str, entry: ManifestEntry) -> Payload:
        assert isinstance(entry, Payload)
        return entry

    def open(self, version: VersionContext, name: str | None = None) -> bytes:
        _, entry = pick_entry(self, version.manifest, name)
        return version.session.reader.read(blob_key(entry.shards.shards[0].hash)).data

    def describe(self, name: str, entry: ManifestEntry) -> IndexInfo:
        return IndexInfo(name, entry.shards.shard_count, entry.shards.data_bytes)

    def stage(self, name: str, source: Any, context: StageContext) -> StagedEntry:
        path: Path = context.directory / f"{name}.index"
        path.write_bytes(source)
        blobs = (StagedBlob(path, fingerprint_file(path)),)
        return StagedEntry(Payload("bytes", ShardList()), shards_of(blobs), blobs, 1)


@pytest.fixture
def index_kind(monkeypatch: pytest.MonkeyPatch) -> IndexKind:
    module = ModuleType("index_kind_of_a_test")
    kind = module.INDEXES = IndexKind()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(payload._REGISTRY, "indexes", f"{module.__name__}:INDEXES")
    return kind


def test_a_new_kind_needs_one_registration(index_kind: IndexKind) -> None:
    store = memory("fifth kind")
    session = link(store)
    builder = wd.DatasetBuilder("a/b", session).add_table("main", rows(0))
    builder._add("indexes", "by_name", b"sorted names")
    assert builder.plan().counts == {"tables": {"main": 4}, "indexes": {"by_name": 1}}
    builder.publish()
    wd.DatasetBuilder("a/b", session).append_table("main", rows(4)).publish()

    dataset = open_dataset(link(store), parse_address("a/b"))
    context = VersionContext(session, dataset._version_ref, dataset.manifest, session.catalog.load_page)
    assert index_kind.open(context) == b"sorted names"
    assert dataset.info().entries["indexes"] == (IndexInfo("by_name", 1, 12),)
    assert dataset.manifest.indexes["by_name"].shards.shards[0].blob in set(dataset.blobs())
    assert not wd.verify(dataset).problems


@pytest.mark.parametrize("section", SECTIONS)
def test_every_kind_describes_its_columns(section: str) -> None:
    kind = payload_kind(section)
    assert kind.section == section
    assert kind.section in Manifest("a/b").sections()
    assert kind.count_field in {field for _, field in kind.columns}


def test_an_entry_is_picked_by_name_or_if_it_is_the_only_one() -> None:
    tables, entry = payload_kind("tables"), TableEntry(ShardList())
    assert pick_entry(tables, Manifest("a/b", tables={"x": entry}), None) == ("x", entry)
    assert pick_entry(tables, Manifest("a/b", tables={"x": entry, "main": entry}), None) == ("main", entry)
    with pytest.raises(NotFoundError, match="no table 'main'") as several:
        pick_entry(tables, Manifest("a/b", tables={"x": entry, "y": entry}), None)
    assert several.value.hint == "Tables: x, y"
    with pytest.raises(NotFoundError, match="no table 'trps'") as misspelled:
        pick_entry(tables, Manifest("a/b", tables={"trips": entry}), "trps")
    assert misspelled.value.hint == "Did you mean trips?"


@pytest.mark.parametrize(
    ("section", "error"),
    [("artifacts", NotFoundError), ("episodes", EpisodeNotFoundError), ("tensors", NotFoundError)],
)
def test_several_payloads_need_a_name(section: str, error: type[Exception]) -> None:
    entries = {"x": Payload("any", ShardList()), "y": Payload("any", ShardList())}
    manifest = Manifest("a/b", **{section: entries})  # type: ignore[arg-type]
    with pytest.raises(error, match="a/b has 2") as raised:
        pick_entry(payload_kind(section), manifest, None)
    assert raised.value.hint == "Name one of: x, y."  # type: ignore[attr-defined]
