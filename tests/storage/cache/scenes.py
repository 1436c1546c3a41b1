"""Stages for the tests of the cache: blobs, a clock that tests set, stores that fail or wait on demand."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from warpdata.limits import COALESCE_GAP_BYTES, KIB, MIB
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.storage import ByteRange, IOMetrics, LocalStore, MeteredReader, Reader
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy
from warpdata.storage.cache.partial import PartialBlob
from warpdata.testing import FaultyStore

__all__ = [
    "MEMBER",
    "Clock",
    "GatedStore",
    "Scene",
    "eventually",
    "members",
    "noise",
    "open_partial",
    "read_members",
    "run_python",
    "source_of",
    "start_python",
    "store_blob",
    "write_entry",
    "write_range",
]

MEMBER = 16 * KIB


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class GatedStore(FaultyStore):
    """Counts bytes and records ranges. Tests can make it block or return wrong bytes."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.open = threading.Event()
        self.open.set()
        self.counting = threading.Lock()
        self.bytes_out = 0
        self.spans: list[ByteRange] = []
        self.distort: Callable[[ByteRange, memoryview], memoryview] = lambda span, data: data
        self.before: Callable[[ByteRange], object] = lambda span: None
        self.gate = threading.Event()

    def hold(self, is_held: Callable[[ByteRange], bool]) -> threading.Event:
        """Block these reads until the gate is set, which the scene does at the latest when it closes."""
        self.before = lambda span: self.gate.wait(30) if is_held(span) else None
        return self.gate

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        for span in spans:
            self.before(span)
        assert self.open.wait(30), "a test did not open the store"
        found = super().read_ranges(key, spans, gap_bytes=gap_bytes)
        with self.counting:
            self.bytes_out += sum(map(len, found))
            self.spans += spans
        return [self.distort(span, data) for span, data in zip(spans, found, strict=True)]


class Scene:
    """A store with blobs, an empty cache, and readers in front of it."""

    def __init__(
        self, directory: Path, limit_bytes: int = 1000 * MIB, clock: Callable[[], float] | None = None
    ) -> None:
        self.directory = directory
        self.clock = clock or Clock()
        self.counters = IOMetrics()
        self.store = GatedStore(directory / "store")
        self.cache = BlobCache(directory / "cache", limit_bytes, self.clock, self.counters)
        self.blobs = directory / "cache" / "blobs"
        self.readers: list[CachedReader] = []

    def reader(self, policy: FetchPolicy, store: Reader | None = None) -> CachedReader:
        made = CachedReader(MeteredReader(store or self.store, self.counters), self.cache, policy)
        self.readers.append(made)
        return made

    def blob(self, size_bytes: int, seed: int = 0) -> tuple[Blob, bytes]:
        data = noise(seed, size_bytes)
        return store_blob(self.store, data), data

    def path(self, digest: str, suffix: str = "") -> Path:
        return self.blobs / digest[:2] / f"{digest}{suffix}"

    def files(self) -> dict[str, int]:
        """Return the names and sizes of all files but the quota."""
        found = {}
        for path in self.blobs.rglob("*"):
            if path.name != "ledger":
                try:
                    if path.is_file():
                        found[path.name] = path.stat().st_size
                except FileNotFoundError:
                    continue
        return found

    def has_partial(self, blob: Blob) -> bool:
        return any(name.startswith(blob.hash) and name.endswith(".part") for name in self.files())

    def is_idle(self) -> bool:
        return all(reader._fetcher.is_idle for reader in self.readers)

    def close(self) -> None:
        self.store.open.set()
        self.store.gate.set()
        for reader in self.readers:
            reader.close()


@lru_cache(maxsize=64)
def noise(seed: int, size_bytes: int) -> bytes:
    return Random(seed).randbytes(size_bytes)


def store_blob(store: FaultyStore, data: bytes) -> Blob:
    blob = Blob(sha256_hex(data), len(data))
    store.create(blob_key(blob.hash), data)
    return blob


def source_of(store: Reader) -> str:
    """Return the name that partial blobs of this store have."""
    return sha256_hex(store.url.encode())[:16]


def open_partial(cache: BlobCache, blob: Blob, source: str = "0" * 16, *, eager: bool = True) -> PartialBlob:
    opened = cache.open_partial(blob.hash, source, blob.byte_size, eager=eager)
    assert isinstance(opened, PartialBlob), opened
    return opened


def write_range(partial: PartialBlob, data: bytes, start: int, end: int) -> None:
    """Write bytes of a blob as a reader would: claim, write, release."""
    claimed = partial.claim([ByteRange(start, end)])
    for span in claimed:
        partial.write(span, memoryview(data)[span.start : span.end])
    partial.release(claimed)


def write_entry(cache: BlobCache, data: bytes, *, eager: bool = True) -> Blob | None:
    """Make an entry without a reader; None when the cache refused."""
    blob = Blob(sha256_hex(data), len(data))
    partial = cache.open_partial(blob.hash, "0" * 16, len(data), eager=eager)
    if not isinstance(partial, PartialBlob):
        return None
    write_range(partial, data, 0, len(data))
    eventually(lambda: partial.is_complete)  # another process may be writing the same blob
    strong, quick = partial.hashes()
    assert strong == blob.hash
    cache.commit(partial, quick)
    return blob


def members(size_bytes: int, seed: int, member_bytes: int = MEMBER) -> list[ByteRange]:
    """Return the ranges of all members of a blob, in random order."""
    spans = [ByteRange(start, min(start + member_bytes, size_bytes)) for start in range(0, size_bytes, member_bytes)]
    Random(seed).shuffle(spans)
    return spans


def read_members(reader: Reader, blob: Blob, data: bytes, spans: Sequence[ByteRange]) -> None:
    key = blob_key(blob.hash)
    for span in spans:
        assert reader.read_range(key, span) == data[span.start : span.end]


def eventually(holds: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait for background tasks."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.005)):
        if holds():
            return
        pause.wait(0.005)
    raise AssertionError("the condition did not become true in time")


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start another process that runs the code with these arguments in `sys.argv`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])},
    )


def run_python(code: str, *arguments: object, timeout_s: float = 60.0, expected_error: str = "") -> str:
    """Return the output. The process must succeed, with nothing but the expected text on standard error."""
    process = start_python(code, *arguments)
    out, err = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, err
    assert expected_error in err if expected_error else err == ""
    return out
