"""What the tests of the cache stand on: blobs, a clock that is turned by hand, stores that misbehave."""

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
from warpdata.storage import ByteRange, LocalStore, Reader
from warpdata.storage.cache import BlobCache, CachedReader, FillPolicy, IOMetrics, MeteredReader
from warpdata.storage.cache.partial import Part
from warpdata.testing import FaultyStore

__all__ = [
    "MEMBER",
    "Clock",
    "GatedStore",
    "Scene",
    "eventually",
    "members",
    "noise",
    "read_members",
    "run_python",
    "start_python",
    "store_blob",
    "write_entry",
]

MEMBER = 16 * KIB


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class GatedStore(FaultyStore):
    """Counts bytes, notes every range asked for, and may be made to stand still or to lie."""

    def __init__(self, root: Path) -> None:
        super().__init__(LocalStore(root))
        self.open = threading.Event()
        self.open.set()
        self.bytes_out = 0
        self.spans: list[ByteRange] = []
        self.distort: Callable[[ByteRange, memoryview], memoryview] = lambda span, data: data
        self.before: Callable[[ByteRange], object] = lambda span: None
        self.gate = threading.Event()

    def hold(self, is_held: Callable[[ByteRange], bool]) -> threading.Event:
        """Let these reads stand still until the gate is opened, at the latest at the end of the test."""
        self.before = lambda span: self.gate.wait(30) if is_held(span) else None
        return self.gate

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return self.read_ranges(key, [span])[0]

    def read_ranges(
        self, key: str, spans: Sequence[ByteRange], *, gap_bytes: int = COALESCE_GAP_BYTES
    ) -> list[memoryview]:
        for span in spans:
            self.before(span)
        assert self.open.wait(30), "a test forgot to open the gate"
        found = super().read_ranges(key, spans, gap_bytes=gap_bytes)
        self.bytes_out += sum(map(len, found))
        self.spans += spans
        return [self.distort(span, data) for span, data in zip(spans, found, strict=True)]


class Scene:
    """A store with blobs, an empty cache, and readers in front of it."""

    def __init__(self, folder: Path, limit_bytes: int = 1000 * MIB, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or Clock()
        self.counters = IOMetrics()
        self.store = GatedStore(folder / "store")
        self.cache = BlobCache(folder / "cache", limit_bytes, self.clock, self.counters)
        self.shelves = folder / "cache" / "blobs"
        self.readers: list[CachedReader] = []

    def reader(self, policy: FillPolicy, store: Reader | None = None) -> CachedReader:
        made = CachedReader(MeteredReader(store or self.store, self.counters), self.cache, policy)
        self.readers.append(made)
        return made

    def blob(self, size_bytes: int, seed: int = 0) -> tuple[Blob, bytes]:
        data = noise(seed, size_bytes)
        return store_blob(self.store, data), data

    def files(self) -> dict[str, int]:
        """Everything among the blobs but the ledger, and its size."""
        found = (path for path in self.shelves.rglob("*") if path.is_file())
        return {path.name: path.stat().st_size for path in found if path.name != "ledger"}

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


def write_entry(cache: BlobCache, data: bytes, *, eager: bool = True) -> Blob | None:
    """Make an entry by hand; None when the cache refused."""
    blob = Blob(sha256_hex(data), len(data))
    part = cache.begin(blob, eager=eager)
    if not isinstance(part, Part):
        return None
    part.write(0, memoryview(data))
    strong, quick = part.hashes()
    assert strong == blob.hash
    cache.commit(part, quick)
    return blob


def members(size_bytes: int, seed: int, member_bytes: int = MEMBER) -> list[ByteRange]:
    """All members of a blob, in random order."""
    spans = [ByteRange(start, min(start + member_bytes, size_bytes)) for start in range(0, size_bytes, member_bytes)]
    Random(seed).shuffle(spans)
    return spans


def read_members(reader: Reader, blob: Blob, data: bytes, spans: Sequence[ByteRange]) -> None:
    key = blob_key(blob.hash)
    for span in spans:
        assert reader.read_range(key, span) == data[span.start : span.end]


def eventually(holds: Callable[[], bool], patience_s: float = 10.0) -> None:
    """Wait for what threads in the background are about to do."""
    pause = threading.Event()
    for _ in range(int(patience_s / 0.005)):
        if holds():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen in time")


def start_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs the code with these words in `sys.argv`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])},
    )


def run_python(code: str, *arguments: object, patience_s: float = 60.0, complaints: str = "") -> str:
    """What it printed. It must end well, and complain about nothing else than expected."""
    process = start_python(code, *arguments)
    out, err = process.communicate(timeout=patience_s)
    assert process.returncode == 0, err
    assert complaints in err if complaints else err == ""
    return out
