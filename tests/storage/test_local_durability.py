"""If these fail, a power cut, a full disk or a killed process can leave a local store with half an object."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from warpdata.errors import AccessDeniedError, DeniedError, StorageError
from warpdata.limits import MIB
from warpdata.primitives.hashing import fingerprint_file
from warpdata.storage import LocalStore

Write = Callable[[LocalStore, Path], object]


def _create_file(store: LocalStore, folder: Path) -> None:
    source = folder / "source.bin"
    source.write_bytes(b"data")
    store.create_file("a/k", source, fingerprint_file(source))


WRITES: dict[str, Write] = {
    "create": lambda store, _: store.create("a/k", b"data"),
    "create_file": _create_file,
    "replace": lambda store, _: store.replace("a/k", b"data"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def _assert_untouched(store: LocalStore, root: Path) -> None:
    assert list(store.list_objects("")) == []
    assert not (root / ".tmp").exists() or list((root / ".tmp").iterdir()) == []


# Order: what a power cut leaves depends on what was synced before what


@pytest.mark.parametrize("name", WRITES)
def test_bytes_are_synced_before_their_name_and_the_name_after(
    store: LocalStore, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    events: list[str] = []
    real_fsync = os.fsync

    def fsync(handle: int) -> None:
        directories = [path for path in (tmp_path, root, root / "a") if path.is_dir()]
        synced = [path.name for path in directories if os.path.samestat(path.stat(), os.fstat(handle))]
        events.append(f"sync directory {synced[0]}" if synced else "sync file")
        real_fsync(handle)

    def naming(real: Callable[..., None]) -> Callable[..., None]:
        def act(*arguments: object, **options: object) -> None:
            events.append("name")
            real(*arguments, **options)

        return act

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", naming(os.link))
    monkeypatch.setattr(os, "replace", naming(os.replace))
    WRITES[name](store, tmp_path)
    assert events[:2] == [
        f"sync directory {tmp_path.name}",  # the root is new
        "sync directory store",  # so is the directory of temporary files
    ]
    # The directory of the object is new too. It may be synced at the same time as the bytes.
    assert sorted(events[2:4]) == ["sync directory store", "sync file"]
    assert events[4:] == ["name", "sync directory a"]


# A disk that refuses


@pytest.mark.parametrize(
    ("name", "call"),
    [
        *((name, call) for name in WRITES for call in ("mkdir", "fsync")),
        ("create", "link"),
        ("create_file", "link"),
        ("replace", "replace"),
    ],
)
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageError),
        (errno.EDQUOT, StorageError),
        (errno.EROFS, DeniedError),
        (errno.EACCES, AccessDeniedError),
        (errno.EIO, StorageError),
    ],
)
def test_a_refused_write_is_typed_and_leaves_nothing(
    store: LocalStore,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    call: str,
    code: int,
    kind: type[StorageError],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(kind) as caught:
            WRITES[name](store, tmp_path)
    assert "a/k" in str(caught.value)
    _assert_untouched(store, root)
    WRITES[name](store, tmp_path)
    assert store.read("a/k").data == b"data", "and works again once the disk does"


def test_a_file_the_system_cuts_short_is_typed_and_leaves_nothing(
    store: LocalStore, root: Path, tmp_path: Path
) -> None:
    """A real limit, so that the failure comes in the middle of a write."""
    source = tmp_path / "source.bin"
    source.write_bytes(bytes(3 * MIB))
    done = _run(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20 + 12345, 2**20 + 12345))
        for act in (
            lambda: store.create_file("a/k", source, fingerprint_file(source)),
            lambda: store.create("a/k", bytes(3 * 2**20)),
            lambda: store.replace("a/k", bytes(3 * 2**20)),
        ):
            try:
                act()
            except Exception as error:
                print(type(error).__name__)
        """,
        root,
        source,
    )
    assert done.split() == ["StorageError"] * 3
    _assert_untouched(store, root)


def test_a_directory_of_another_user_is_denied(store: LocalStore, root: Path, tmp_path: Path) -> None:
    """In a process without root's powers, which no mode bits stop."""
    store.create("a/k", b"private")
    root.chmod(0)
    try:
        done = _run(
            """
            import os
            import xxhash
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            for act in (
                lambda: store.read("a/k"),
                lambda: store.stat("a/k"),
                lambda: store.read_ranges("a/k", [ByteRange(0, 1)]),
                lambda: list(store.stream("a/k")),
                lambda: list(store.list_objects("")),
                lambda: store.list_folders(""),
                lambda: store.local_path("a/k"),
                lambda: store.create("a/new", b""),
                lambda: store.replace("a/k", b""),
                lambda: store.delete("a/k"),
            ):
                try:
                    print(act())
                except Exception as error:
                    print(type(error).__name__)
            """,
            root,
            root,
        )
    finally:
        root.chmod(0o700)
    assert done.split() == ["AccessDeniedError"] * 10
    assert store.read("a/k").data == b"private"


# A process that dies


def test_a_killed_upload_leaves_no_visible_object(store: LocalStore, root: Path, tmp_path: Path) -> None:
    """The source is a pipe that gives half of the bytes, so the kill surely comes in the middle."""
    whole = tmp_path / "whole.bin"
    whole.write_bytes(os.urandom(8 * MIB))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = "store.create_file('a/k', source, fingerprint_file(source.parent / 'whole.bin'))"
    with subprocess.Popen(_command(code, root, pipe)) as process:
        try:
            with pipe.open("wb", buffering=0) as half:
                half.write(whole.read_bytes()[: 4 * MIB])
                _wait_for(lambda: any(path.stat().st_size >= MIB for path in (root / ".tmp").iterdir()))
                process.send_signal(signal.SIGKILL)
                process.wait()
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert list(store.list_objects("")) == []
    assert store.list_folders("") == []
    assert store.local_path("a/k") is None
    assert store.create_file("a/k", whole, fingerprint_file(whole)) is True
    assert b"".join(store.stream("a/k")) == whole.read_bytes()


def test_whatever_a_killed_writer_made_is_whole(store: LocalStore, root: Path) -> None:
    code = """
        import itertools
        for number in itertools.count(start=len(list(store.list_objects("made")))):
            store.create(f"made/{number}", bytes([number % 256]) * 50_000)
            store.replace("hint", bytes([number % 256]) * 50_000)
        """
    for round_number in range(3):
        enough = len(list(store.list_objects("made"))) + 5
        with subprocess.Popen(_command(code, root, root)) as process:
            try:
                _wait_for(partial(_has_made, store, enough))
            finally:
                process.kill()
        made = {int(info.key.removeprefix("made/")) for info in store.list_objects("made")}
        assert made == set(range(len(made))), round_number
        for number in made:
            assert store.read(f"made/{number}").data == bytes([number % 256]) * 50_000
        hint = store.read("hint").data
        assert hint == hint[:1] * 50_000


def _has_made(store: LocalStore, count: int) -> bool:
    return len(list(store.list_objects("made"))) >= count


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except FileNotFoundError:
            pass
        time.sleep(0.01)
    pytest.fail("the child process did not get there in time")


def _run(code: str, root: Path, source: Path) -> str:
    done = subprocess.run(_command(code, root, source), check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def _command(code: str, root: Path, source: Path) -> list[str]:
    """Python that runs `code` with a `store` and a `source`."""
    preamble = """
        import sys
        from pathlib import Path
        from warpdata.primitives.hashing import fingerprint_file
        from warpdata.storage import ByteRange, LocalStore
        store, source = LocalStore(Path(sys.argv[1])), Path(sys.argv[2])
        """
    script = textwrap.dedent(preamble) + textwrap.dedent(code)
    return [sys.executable, "-c", script, str(root), str(source)]
