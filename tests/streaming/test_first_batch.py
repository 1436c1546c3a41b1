"""If this fails, the first batch is wrong, or waits for requests in sequence that could run in parallel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import warpdata as wd
from warpdata.datasets import open_dataset
from warpdata.errors import ColumnNotFoundError, ManifestCorruptedError, StorageError
from warpdata.limits import MAX_LISTED_NAMES_BYTES
from warpdata.repository.catalog import parse_address
from warpdata.repository.manifest import JsonObject, TableEntry
from warpdata.session import Session, connect
from warpdata.storage import ByteRange, GetResult
from warpdata.testing import FaultyStore

DELAY_S = 0.15
SHARDS = 700


class Far(FaultyStore):
    """A store whose reads take a while. It records the start and end of each read."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reads: list[tuple[float, float]] = []

    def _waited(self, read: Any) -> Any:
        begun = time.perf_counter()
        time.sleep(DELAY_S)
        try:
            return read()
        finally:
            self.reads.append((begun, time.perf_counter()))

    def read(self, key: str) -> GetResult:
        found: GetResult = self._waited(lambda: FaultyStore.read(self, key))
        return found

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(self, key: str, spans: Sequence[ByteRange], **options: Any) -> list[memoryview]:
        found: list[memoryview] = self._waited(lambda: FaultyStore.read_ranges(self, key, spans, **options))
        return found

    @property
    def rounds(self) -> int:
        """The longest sequence of reads in which each waited for the one before."""
        count, until = 0, 0.0
        for begun, ended in sorted(self.reads, key=lambda read: read[1]):
            if begun >= until:
                count, until = count + 1, ended
        return count


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table whose shards fill several pages of the manifest."""
    directory = tmp_path_factory.mktemp("shards")
    url = f"memory://{directory.name}"
    for salt in range(20):  # pages are cut by content, and Arrow writes the number of its release into every file
        for n in range(SHARDS):
            rows = pa.table({"id": range(n * 4, n * 4 + 4), "x": [n] * 4, "salt": [salt] * 4})
            pq.write_table(rows, directory / f"{n:04d}.parquet")
        wd.DatasetBuilder("a/b", url).add_table("main", str(directory / "*.parquet")).publish()
        if len(wd.dataset("a/b", store=url).manifest.tables["main"].shards.pages) > 1:
            return url
    pytest.fail("one page held all shards, 20 times")


def opened(far: FaultyStore, url: str) -> wd.Dataset:
    return open_dataset(Session(far, far, connect(url).settings), parse_address("a/b"))


def test_the_first_batch_takes_four_rounds(store: str) -> None:
    far = Far(connect(store).writer)
    dataset = opened(far, store)
    assert dataset.manifest.tables["main"].shards.levels == 1
    assert len(dataset.manifest.tables["main"].shards.pages) > 1
    stream = dataset.stream(columns=["id", "x"], batch_size=16, shuffle=wd.Shuffle(4, 64, 8), prefetch=0)
    batches = stream.epoch(0)
    batch = next(batches)
    rounds, requests = far.rounds, len(far.reads)
    batches.close()
    assert [n // 4 for n in batch["id"]] == list(batch["x"])
    assert rounds == 4, "the hint; the manifest, while the hint is verified; pages; shards"
    assert requests <= 3 + len(dataset.manifest.tables["main"].shards.pages) + 8 + 1


def test_column_names_are_checked_without_a_read(store: str) -> None:
    recorded = FaultyStore(connect(store).writer)
    dataset = opened(recorded, store)
    before = len(recorded.log)
    with pytest.raises(ColumnNotFoundError, match="no column 'idd'") as caught:
        dataset.stream(columns=["idd"])
    assert caught.value.hint == "Did you mean id?"
    dataset.stream(columns=["x", "id"], shuffle=True)
    assert len(recorded.log) == before


def test_a_manifest_may_omit_column_names(store: str) -> None:
    session = connect(store)
    dataset = wd.dataset("a/b", store=store)
    entry = dataset.manifest.tables["main"]
    odd: list[JsonObject | None] = [None, {}, {"columns": "id"}, {"columns": ["id", 7]}]
    for schema in odd:
        manifest = replace(dataset.manifest, tables={"main": replace(entry, schema=schema)})
        plain = wd.Dataset(session, dataset.version_ref, manifest)
        assert plain.table().select(["x"]).head(1).to_pylist() == [{"x": 0}]
        with pytest.raises(ColumnNotFoundError):
            plain.table().select(["y"])


def test_a_manifest_that_lists_a_missing_column(store: str) -> None:
    dataset = wd.dataset("a/b", store=store)
    wrong = replace(dataset.manifest.tables["main"], schema={"columns": ["id", "x", "y"]})
    opened_wrong = wd.Dataset(connect(store), dataset.version_ref, replace(dataset.manifest, tables={"main": wrong}))
    with pytest.raises(ColumnNotFoundError, match="no column 'y'"):
        next(iter(opened_wrong.stream(columns=["y"])))


def test_long_lists_of_names_are_omitted() -> None:
    few = [f"column-{n}" for n in range(100)]
    assert TableEntry.listing(few) == {"columns": few}
    assert TableEntry.listing(["x" * MAX_LISTED_NAMES_BYTES]) is None


def test_appends_list_the_same_columns(tmp_path: Path) -> None:
    parts = [pa.table({"a": [n], "b": [str(n)]}) for n in range(3)]
    files = [tmp_path / f"{number}.parquet" for number in range(len(parts))]
    for part, file in zip(parts, files, strict=True):
        pq.write_table(part, file)
    at_once, in_steps = f"memory://{tmp_path.name}-one", f"memory://{tmp_path.name}-two"
    wd.DatasetBuilder("a/b", at_once).add_table("main", files).publish()
    wd.DatasetBuilder("a/b", in_steps).add_table("main", files[:1]).publish()
    wd.DatasetBuilder("a/b", in_steps).append_table("main", files[1:]).publish()
    published = [wd.dataset("a/b", store=url) for url in (at_once, in_steps)]
    assert published[0].version == published[1].version
    assert published[0].manifest.tables["main"].column_names == ("a", "b")


class Misleading(FaultyStore):
    """A store that answers the first read of a manifest with something else."""

    def __init__(self, reader: Any, answer: Any) -> None:
        super().__init__(reader)
        self._answer = answer

    def read(self, key: str) -> GetResult:
        if "/manifests/" in key and self._answer is not None:
            answer, self._answer = self._answer, None
            if isinstance(answer, BaseException):
                raise answer
            return GetResult(answer, None)
        return super().read(key)


def test_a_failed_early_read_of_the_manifest_is_repeated(store: str) -> None:
    failing = Misleading(connect(store).writer, StorageError("the line was cut"))
    assert opened(failing, store).version == wd.dataset("a/b", store=store).version
    with pytest.raises(ManifestCorruptedError):
        opened(Misleading(connect(store).writer, b"{}"), store)


def test_an_early_manifest_of_a_stale_hint_is_discarded(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    session = connect(url)
    hint = "datasets/a/b/latest.json"
    wd.DatasetBuilder("a/b", url).add_table("main", pa.table({"n": [1]})).publish()
    old = session.writer.read(hint).data
    newest = wd.DatasetBuilder("a/b", url).add_table("main", pa.table({"n": [1, 2]})).publish()
    session.writer.replace(hint, old)
    assert wd.dataset("a/b", store=url).version == newest.version
