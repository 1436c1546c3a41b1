"""If these fail, a power cut can leave a head without what it refers to, or take a commit that was acknowledged.

A disk is modelled by its syncs: a file has its bytes, and a directory the names that it had, at the last sync.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import warpdata as wd
from tests.faults.scenes import link
from warpdata.datasets import Dataset, open_dataset
from warpdata.repository.catalog import parse_address
from warpdata.session import Session
from warpdata.storage import LocalStore

_UNSYNCED = (".tmp", "leases")
"""What a power cut may take: unfinished writes, and leases of processes that have ended with the machine."""


class Disk:
    """Keeps what the syncs so far have made durable, and looks at it whenever a log entry gets its name."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.heads = 0
        self.problems: list[str] = []
        self._contents: set[int] = set()
        self._names: dict[int, set[str]] = {}
        self._lock = threading.Lock()
        self._fsync, self._link = os.fsync, os.link
        patch.setattr(os, "fsync", self.fsync)
        patch.setattr(os, "link", self.link)

    def fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            names = set(os.listdir(descriptor))
            self._fsync(descriptor)
            with self._lock:
                self._names.setdefault(status.st_ino, set()).update(names)
        else:
            self._fsync(descriptor)
            with self._lock:
                self._contents.add(status.st_ino)

    def link(self, source: Path, target: Path) -> None:
        if "heads" in Path(target).parts:
            self.heads += 1
            self.problems += self.lost()
        self._link(source, target)

    def lost(self) -> list[str]:
        """Return the files of the store that a power cut would take or empty now."""
        with self._lock:
            return [str(path.relative_to(self.root)) for path in self._files() if not self._is_durable(path)]

    def _files(self) -> Iterator[Path]:
        for parent, directories, names in os.walk(self.root):
            directories[:] = [name for name in directories if name not in _UNSYNCED]
            yield from (Path(parent, name) for name in names if name != "latest.json")

    def _is_durable(self, path: Path) -> bool:
        if path.stat().st_ino not in self._contents:
            return False
        for child in [path, *path.parents]:
            if child == self.root:
                return True
            if child.name not in self._names.get(child.parent.stat().st_ino, ()):
                return False
        raise AssertionError("the file is below the root")


def _open(session: Session, ref: str = "main") -> Dataset:
    return open_dataset(session, parse_address(f"a/b@{ref}"))


def _append(session: Session) -> None:
    with _open(session).edit() as edit:
        edit.append("main", {"n": [1], "label": ["b"]})


def _change_everything(session: Session) -> None:
    with _open(session).edit() as edit:
        edit.update("main", "n % 3 = 0", {"label": "c"})
        edit.delete("main", "n % 5 = 0")
        edit.add_column("main", "twice", wd.expr("n * 2"))
        edit.append("other", pa.table({"z": range(5000)}))
        edit.add_files("files", {"new/b": b"b" * 100})


def _merge(session: Session) -> None:
    _open(session).branch("dev")
    with _open(session, "dev").edit() as edit:
        edit.append("main", {"n": [7], "label": ["d"]})
    _append(session)
    _open(session).merge("dev")


def _publish(session: Session) -> None:
    wd.DatasetBuilder("a/b", session).append_table("main", {"n": [3], "label": ["e"]}).publish()


def _append_often(session: Session) -> None:
    for _ in range(20):
        _append(session)


def _compact(session: Session) -> None:
    _append(session)
    _append(session)
    _open(session).compact()


def _restore(session: Session) -> None:
    _append(session)
    _open(session).restore("first")


OPERATIONS: dict[str, Callable[[Session], None]] = {
    "append": _append,
    "appends that merge shards": _append_often,
    "edit": _change_everything,
    "merge": _merge,
    "compact": _compact,
    "restore": _restore,
    "publish": _publish,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_head_comes_after_everything_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_bytes(b"a")
    disk = Disk(tmp_path / "store", monkeypatch)
    session = link(LocalStore(disk.root))
    builder = wd.DatasetBuilder("a/b", session).add_table("main", {"n": list(range(100)), "label": ["a"] * 100})
    builder.add_artifact("files", tmp_path / "files").publish(label="first")
    OPERATIONS[name](session)
    assert disk.heads >= 2
    assert disk.problems == []
    assert disk.lost() == [], "everything that was acknowledged is durable, too"


def test_the_model_sees_a_missing_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path / "store", monkeypatch)
    store = LocalStore(disk.root)
    store.create("a/synced", b"x")
    (disk.root / "a" / "other").write_bytes(b"y")
    assert disk.lost() == ["a/other"]


def test_the_head_waits_for_the_disk_only_for_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are synced with the other objects. A wait of its own would be a quarter of a small commit."""
    disk = Disk(tmp_path / "store", monkeypatch)
    session = link(LocalStore(disk.root))
    wd.DatasetBuilder("a/b", session).add_table("main", {"n": [1], "label": ["a"]}).publish()
    events: list[str] = []
    sync, name = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        events.append("names" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "bytes")
        sync(descriptor)

    def link_to(source: Path, target: Path) -> None:
        events.append(f"link {Path(target).relative_to(disk.root).parts[0]}")
        name(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link_to)
    _append(session)
    assert events.count("bytes") == 4, "a blob, a manifest, a commit and a head"
    assert events[-2:] == ["link datasets", "names"]
    assert "bytes" not in events[-3:]


@pytest.mark.parametrize("sync_writes", [True, False])
def test_writes_are_synced_unless_the_settings_say_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_writes: bool
) -> None:
    store = (tmp_path / "store").as_uri()
    settings = wd.Settings(store_url=store, cache_dir=tmp_path / "cache", sync_writes=sync_writes)
    wd.DatasetBuilder("a/b", settings=settings).add_table("main", {"n": [1], "label": ["a"]}).publish()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    _append(wd.connect(store, settings=settings))
    assert bool(synced) == sync_writes
    assert wd.dataset("a/b", settings=settings).table().count() == 2
