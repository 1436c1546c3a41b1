"""If these fail, a reader can see half a file, a power cut can lose one, or failed writes leave rubbish behind."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import pytest

from warpdata.primitives.atomic_file import AtomicFile, make_directories, replacing, staged_path, sync_directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The system calls that decide what a power cut leaves, in order."""
    log: list[str] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def spy_fsync(fd: int) -> None:
        log.append("sync directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"sync {os.fstat(fd).st_size} bytes")
        fsync(fd)

    def spy_link(source: Path, target: Path) -> None:
        log.append("link")
        link(source, target)

    def spy_replace(self: Path, target: Path) -> Path:
        log.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "link", spy_link)
    monkeypatch.setattr(Path, "replace", spy_replace)
    return log


def test_bytes_are_synced_before_the_name_and_the_directory_after(tmp_path: Path, calls: list[str]) -> None:
    with AtomicFile(tmp_path / "a") as new:
        new.file.write(b"data")
        assert names(tmp_path) == [new.temporary.name]
        assert new.create()
    with replacing(tmp_path / "b") as file:
        file.write(b"more")
    assert calls == ["sync 4 bytes", "link", "sync directory", "sync 4 bytes", "rename", "sync directory"]
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "a").read_bytes() == b"data"


def test_nothing_is_synced_on_request(tmp_path: Path, calls: list[str]) -> None:
    with replacing(tmp_path / "a", is_durable=False) as file:
        file.write(b"data")
    assert calls == ["rename"]
    with AtomicFile(tmp_path / "b") as new:
        new.create(sync_parent=False)
    assert calls == ["rename", "sync 0 bytes", "link"]


def test_create_never_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with AtomicFile(tmp_path / "a") as new:
        new.file.write(b"new")
        assert not new.create()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_replace_replaces(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), replacing(tmp_path / "a") as file:
        file.writelines([b"half", 1])  # type: ignore[list-item]
    with AtomicFile(tmp_path / "a"):
        pass
    assert names(tmp_path) == []


def test_a_failed_name_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("on purpose")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(OSError, match="on purpose"), AtomicFile(tmp_path / "a") as new:
        new.create()
    assert names(tmp_path) == []


def test_a_fixed_temporary_name_excludes_a_second_writer(tmp_path: Path) -> None:
    temporary = tmp_path / "a.partial"
    with AtomicFile(tmp_path / "a", temporary=temporary):
        with pytest.raises(FileExistsError):
            AtomicFile(tmp_path / "a", temporary=temporary)
        assert names(tmp_path) == ["a.partial"]
    assert names(tmp_path) == []


def test_close_leaves_a_later_writer_alone(tmp_path: Path) -> None:
    temporary = tmp_path / "a.partial"
    first = AtomicFile(tmp_path / "a", temporary=temporary)
    first.replace()
    with AtomicFile(tmp_path / "a", temporary=temporary):
        first.close()
        assert temporary.exists()


def test_room_is_allocated_and_can_be_mapped(tmp_path: Path) -> None:
    with AtomicFile(tmp_path / "a", size_bytes=5000) as new:
        assert os.fstat(new.file.fileno()).st_blocks * 512 >= 5000
        with mmap.mmap(new.file.fileno(), 5000) as mapped:
            mapped[:4] = b"head"
            mapped.flush()
        new.file.seek(5000)
        new.file.write(b"tail")
        assert new.create()
    data = (tmp_path / "a").read_bytes()
    assert data == b"head" + bytes(4996) + b"tail"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("on purpose")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(OSError, match="on purpose"):
        AtomicFile(tmp_path / "a", size_bytes=1)
    assert names(tmp_path) == []


def test_the_mode_is_the_users_default(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "a"):
        pass
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_staged_path_is_renamed_or_removed(tmp_path: Path, is_directory: bool) -> None:
    target = tmp_path / "new" / "a"

    def make(staged: Path, *, is_failing: bool = False) -> None:
        if is_directory:
            staged.mkdir()
            (staged / "inside").touch()
        else:
            staged.touch()
        if is_failing:
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"), staged_path(target) as staged:
        make(staged, is_failing=True)
    assert names(target.parent) == []
    with staged_path(target) as staged:
        make(staged)
    assert names(target.parent) == ["a"]
    with pytest.raises(FileExistsError), staged_path(target):
        pass


def test_directories_are_synced_from_the_top(tmp_path: Path, calls: list[str]) -> None:
    make_directories(tmp_path / "a" / "b")
    make_directories(tmp_path / "a" / "b")
    sync_directory(tmp_path)
    assert calls == ["sync directory"] * 3
    assert (tmp_path / "a" / "b").is_dir()
