"""If this fails, a file format reads other bytes than a file or an object holds, or an error has no type."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from warpdata.errors import ObjectNotFoundError, StorageError
from warpdata.storage import (
    ConcurrentSource,
    DirectSource,
    FileRangeSource,
    InvalidatableSource,
    LocalStore,
    MappableSource,
    ObjectRangeSource,
    RangeSource,
)
from warpdata.storage.local import OPEN_FILES

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").write_bytes(DATA)
    return tmp_path / "data"


def test_a_file_has_every_capability_but_a_cache(path: Path) -> None:
    file = FileRangeSource(path)
    for protocol in (RangeSource, DirectSource, MappableSource, ConcurrentSource):
        assert isinstance(file, protocol)
    assert not isinstance(file, InvalidatableSource)
    assert file.size_bytes == len(DATA)
    assert file.read_range(5, 999) == DATA[5:999]
    assert not file.read_range(7, 7)
    assert file.map() == DATA


def test_read_into_fills_more_targets_than_one_call_takes(path: Path) -> None:
    targets = [memoryview(bytearray(size % 9)) for size in range(2000)]
    FileRangeSource(path).read_into(3, targets)
    joined = b"".join(targets)
    assert joined == DATA[3 : 3 + len(joined)]


def test_a_mapping_outlives_its_file_and_sees_new_bytes(path: Path) -> None:
    file = FileRangeSource(path)
    before = file.map()
    with path.open("ab") as out:
        out.write(b"more")
    assert file.map() == DATA + b"more"
    file.close()
    file.close()
    assert before == DATA
    (path.parent / "empty").write_bytes(b"")
    assert not FileRangeSource(path.parent / "empty").map()


def test_errors_of_files_are_typed(path: Path) -> None:
    for absent in (path.parent / "absent", path / "below"):
        with pytest.raises(ObjectNotFoundError, match="does not exist"):
            FileRangeSource(absent)
    with pytest.raises(StorageError, match="more bytes were expected"):
        FileRangeSource(path).read_range(0, len(DATA) + 1)
    with pytest.raises(StorageError):
        FileRangeSource(path.parent).read_range(0, 1)


def test_an_object_is_read_by_range(path: Path) -> None:
    source = ObjectRangeSource(LocalStore(path.parent), "data", len(DATA))
    for protocol in (RangeSource, ConcurrentSource, InvalidatableSource):
        assert isinstance(source, protocol)
    assert source.read_range(10, 20) == DATA[10:20]
    assert not source.invalidate(10, 20)


def test_storage_imports_no_third_party_module() -> None:
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import warpdata.storage\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - sys.stdlib_module_names - {'warpdata'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_file_that_was_closed_for_others_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with closing(FileRangeSource(path)) as source:
        OPEN_FILES.clear()
        assert bytes(source.read_range(2, 5)) == b"234"
        mapped = source.map()
        OPEN_FILES.clear()
        assert bytes(mapped[2:5]) == bytes(source.map()[2:5]) == b"234"


def test_a_file_that_was_replaced_is_not_taken_for_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with closing(FileRangeSource(path)) as source:
        path.rename(tmp_path / "older")
        path.write_bytes(b"abcdefghij")
        assert bytes(source.read_range(2, 5)) == b"234", "the open file is the older one"
        OPEN_FILES.clear()
        with pytest.raises(StorageError, match="changed since it was opened"):
            source.read_range(2, 5)
        path.unlink()
        with pytest.raises(ObjectNotFoundError, match="does not exist"):
            source.read_range(2, 5)
        (tmp_path / "older").rename(path)
        assert bytes(source.read_range(2, 5)) == b"234"
    with pytest.raises(StorageError, match="closed"):
        source.read_range(2, 5)
