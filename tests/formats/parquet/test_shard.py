"""If this fails, a reader returns corrupt bytes as rows, or trusts bytes that it has not verified."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.kinds.tables.scenes import counted, flip, published
from warpdata.errors import CorruptError
from warpdata.formats.parquet.mmap_cache import MMAP_CACHE
from warpdata.primitives.hashing import blob_key
from warpdata.repository.manifest import iter_shards
from warpdata.session import connect
from warpdata.storage import Writer
from warpdata.testing import FaultyStore


@given(st.lists(st.sampled_from(["n", "word", "x"]), unique=True), st.integers(1, 3000))
def test_split_columns_returns_all_columns_in_order(
    tmp_path_factory: pytest.TempPathFactory, columns: list[str], max_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("split")
    read = published([counted(0, 100)], f"memory://{folder.name}", folder, compression="none", use_dictionary=False)
    file = read.shards.open(read.entry.shards.shards[0])
    parts = list(file.layout.split_columns(0, columns, max_bytes))
    assert [name for part in parts for name in part] == columns
    for part in parts:
        assert len(part) == 1 or sum(span.size_bytes for span in file.layout.spans(0, part)) <= max_bytes


def test_a_dictionary_that_the_writer_abandoned_is_not_rebuilt(tmp_path: Path) -> None:
    words = pa.table({"word": [f"{n:09d}" for n in range(200_000)]})
    few = pa.table({"word": [f"{n % 9:09d}" for n in range(200_000)]})
    for number, (rows, expected) in enumerate([(words, []), (few, ["word"])]):
        folder = tmp_path / str(number)
        folder.mkdir()
        read = published([rows], folder.as_uri(), folder, dictionary_pagesize_limit=1024)
        (shard,) = read.entry.shards.shards
        assert read.shards.open(shard).layout.small_dictionaries(0, ["word"]) == expected
        assert read.to_arrow().equals(rows)


def test_a_local_file_is_mapped_once_for_all_threads_and_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = published([counted(0, 1000)], (tmp_path / "s").as_uri(), tmp_path, row_group_size=10)
    opened: list[str] = []
    memory_map = pa.memory_map

    def record(path: str) -> Any:
        opened.append(path)
        return memory_map(path)

    monkeypatch.setattr(pa, "memory_map", record)
    for _ in range(3):
        reopened = wd.dataset("a/b", store=(tmp_path / "s").as_uri()).table("main")
        assert sum(batch.num_rows for batch in reopened.filter("n > 5 AND word != 'w7'").batches(7)) == 993
    assert 1 <= len(opened) <= 2, "threads may map the file together on the first scan"
    assert table.count() == 1000


def test_corruption_of_a_local_file_after_a_scan_is_detected(tmp_path: Path) -> None:
    """The change is in place, with the same size and modification time, as a repair tool might do it."""
    rows = pa.table({"n": np.arange(5000), "word": [f"w{n % 17}" for n in range(5000)]})
    url = (tmp_path / "store").as_uri()
    wd.DatasetBuilder("a/b", url).add_table("main", rows).publish()
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    path = connect(url).reader.local_path(blob_key(shard.hash))
    assert path is not None
    for _ in range(2):
        assert dataset.table().to_arrow().equals(rows)
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(shard.byte_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(CorruptError):
            dataset.table().to_arrow()
        with pytest.raises(CorruptError):
            wd.dataset("a/b", store=url).table().to_arrow()


def test_only_verified_column_chunks_are_trusted(tmp_path: Path) -> None:
    """Reading a column verifies neither another column nor the next row group."""
    rows = pa.table({"n": np.arange(5000), "m": np.arange(5000) ** 2})
    url = (tmp_path / "store").as_uri()
    published([rows], url, tmp_path, row_group_size=2500, write_page_checksum=True)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    file = dataset.table().shards.open(shard)
    flip(connect(url).writer, blob_key(shard.hash), file.layout.spans(1, ["m"])[0].end - 5)
    table = dataset.table()
    assert table.select(["n"]).to_arrow() == rows.select(["n"])
    assert table.head(2500) == rows.slice(0, 2500)
    for columns in (["m"], ["n", "m"], ["n", "m"]):
        with pytest.raises(CorruptError):
            table.select(columns).to_arrow()
    assert table.select(["n"]).to_arrow() == rows.select(["n"])


def test_a_local_file_that_disappears_is_read_from_the_store(tmp_path: Path) -> None:
    """A cached copy may be evicted between opening a shard and reading it."""
    table = published([counted(0, 100)], (tmp_path / "s").as_uri(), tmp_path, row_group_size=10)
    file = table.shards.open(table.entry.shards.shards[0])
    assert file.is_local
    file._reader = _MissingCopy(connect((tmp_path / "s").as_uri()).writer)
    assert file.decode(3, ["n"], {})["n"].to_pylist() == list(range(30, 40))


def test_a_corrupt_copy_is_not_trusted_because_another_was_valid(tmp_path: Path) -> None:
    """Otherwise a thread that still has the corrupt copy open would not verify it."""
    store = (tmp_path / "s").as_uri()
    table = published([counted(0, 100)], store, tmp_path, row_group_size=10, write_page_checksum=True)
    file = table.shards.open(table.entry.shards.shards[0])
    path = connect(store).reader.local_path(blob_key(file.shard.hash))
    assert path is not None
    valid = path.read_bytes()
    position = file.layout.spans(3, ["n"])[0].end - 5
    copy = tmp_path / "copy"
    copy.write_bytes(valid[:position] + bytes([valid[position] ^ 1]) + valid[position + 1 :])
    corrupt = MMAP_CACHE.open(copy)
    file._reader = _RepairedCopy(connect(store).writer, copy, valid)
    for _ in range(3):
        assert file.decode(3, ["n"], {})["n"].to_pylist() == list(range(30, 40))
    assert corrupt.verified == set()
    assert MMAP_CACHE.open(copy).verified == {(3, 0)}


class _RepairedCopy(FaultyStore):
    def __init__(self, inner: Writer, copy: Path, valid: bytes) -> None:
        super().__init__(inner)
        self._copy, self._valid = copy, valid

    def local_path(self, key: str) -> Path | None:
        return self._copy

    def invalidate(self, key: str) -> bool:
        self._copy.unlink()
        self._copy.write_bytes(self._valid)
        return True


class _MissingCopy(FaultyStore):
    def local_path(self, key: str) -> Path | None:
        return Path("/nowhere") / key


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_no_flipped_bit_in_a_written_file_is_returned(tmp_path: Path, scheme: str) -> None:
    """Page checksums cover every page, and the checksum in the manifest covers the footer."""
    url = f"memory://{tmp_path.name}" if scheme == "memory" else (tmp_path / "store").as_uri()
    numbers = np.random.default_rng(0).integers(0, 2**40, 5000)  # they do not compress, so most bytes are in pages
    rows = pa.table({"n": numbers, "at": np.arange(5000), "word": [f"w{n % 17}" for n in range(5000)]})
    wd.DatasetBuilder("a/b", url).add_table("main", rows).publish()
    session = connect(url)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = iter_shards(dataset.manifest.tables["main"].shards, session.catalog.load_page)
    key = blob_key(shard.hash)
    served, caught = 0, 0
    for position in range(0, shard.byte_size, max(1, shard.byte_size // 150)):
        flip(session.writer, key, position)
        try:
            seen = dataset.table().to_arrow()
        except CorruptError:
            caught += 1
        else:
            served += 1
            assert seen.equals(rows), f"byte {position} of {shard.byte_size}"
        flip(session.writer, key, position)
    assert caught > served


def test_the_checksum_covers_every_byte_of_the_footer(tmp_path: Path) -> None:
    """A flipped bit in statistics would prune the wrong rows without any error."""
    url = f"memory://{tmp_path.name}"
    wd.DatasetBuilder("a/b", url).add_table("main", counted(0, 50)).publish()
    session = connect(url)
    dataset = wd.dataset("a/b", store=url)
    (shard,) = dataset.manifest.tables["main"].shards.shards
    assert shard.footer is not None
    for position in range(shard.byte_size - shard.footer.byte_size, shard.byte_size):
        flip(session.writer, blob_key(shard.hash), position)
        with pytest.raises(CorruptError):
            wd.dataset("a/b", store=url).table().schema()
        flip(session.writer, blob_key(shard.hash), position)
    assert wd.dataset("a/b", store=url).table().count() == 50
