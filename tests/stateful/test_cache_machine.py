"""If this fails, some order of reads, fills, evictions, damage and deaths makes the cache return wrong bytes.

The model is a dictionary of blobs. The cache may hold less than the model, never other bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.storage.cache.scenes import Clock, GatedStore, noise, store_blob, write_entry, write_range
from warpdata.primitives.hashing import Blob, blob_key, sha256_hex
from warpdata.primitives.lock_file import LockFile
from warpdata.storage import ByteRange
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy, Filled
from warpdata.storage.cache.blob_cache import BACKOFF_S
from warpdata.storage.cache.eviction import IDLE_S
from warpdata.storage.cache.partial import PartialBlob
from warpdata.storage.cache.quota import Quota

LIMIT = 200_000
SIZES = [0, 1, 500, 30_000, 30_000, 70_000, 70_000, 90_000, LIMIT, 300_000]
CONTENTS = [noise(seed, size) for seed, size in enumerate(SIZES)]
BLOBS = [Blob(sha256_hex(data), len(data)) for data in CONTENTS]
NUMBERS = st.integers(0, len(BLOBS) - 1)
VIEWS = st.integers(0, 1)
SOURCE = "1" * 16


class CacheMachine(RuleBasedStateMachine):
    """Two caches over one directory, as two processes have them, each with a reader.

    `filled` are blobs whose entry may exist, `corrupt` those whose file was changed.
    """

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="warp-cache-machine-"))
        self.blobs = self.directory / "blobs"
        self.clock = Clock()
        self.store = GatedStore(self.directory / "store")
        for data in CONTENTS:
            store_blob(self.store, data)
        self.views = [BlobCache(self.directory, LIMIT, self.clock) for _ in range(2)]
        self.readers = [CachedReader(self.store, view, FetchPolicy.EAGER) for view in self.views]
        self.filled: set[int] = set()
        self.corrupt: set[int] = set()
        self.partials: dict[int, PartialBlob] = {}
        self.slices: list[tuple[int, memoryview]] = []

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            for reader in self.readers:
                reader.close()
            shutil.rmtree(self.directory)

    def path(self, number: int, suffix: str = "") -> Path:
        return self.blobs / BLOBS[number].hash[:2] / f"{BLOBS[number].hash}{suffix}"

    # Readers

    @rule(number=NUMBERS, view=VIEWS, policy=st.sampled_from(FetchPolicy), data=st.data())
    def read_a_range(self, number: int, view: int, policy: FetchPolicy, data: st.DataObject) -> None:
        size = len(CONTENTS[number])
        start = data.draw(st.integers(0, size))
        span = ByteRange(start, data.draw(st.integers(start, size)))
        reader, key = self.readers[view].with_policy(policy), blob_key(BLOBS[number].hash)
        found = bytes(reader.read_range(key, span))
        self.filled.add(number)  # the background may fill it
        if found != CONTENTS[number][span.start : span.end]:
            assert number in self.corrupt, "only a changed file has wrong bytes"
            reader.invalidate(key)
            other = self.readers[1 - view]
            other.invalidate(key)
            assert bytes(reader.read_range(key, span)) == CONTENTS[number][span.start : span.end]

    @rule(number=NUMBERS, view=VIEWS)
    def fill_by_a_reader(self, number: int, view: int) -> None:
        outcome = self.readers[view].fill(BLOBS[number])
        assert (outcome is Filled.NO_ROOM) <= (len(CONTENTS[number]) > 0)
        self.filled.add(number)

    @rule(number=NUMBERS, view=VIEWS)
    def read_by_a_path(self, number: int, view: int) -> None:
        """A path is returned only for an intact file, unless this process has checked the file before."""
        self.views[view].opened._checked.clear()
        path = self.readers[view].local_path(blob_key(BLOBS[number].hash))
        assert path is not None
        assert path.read_bytes() == CONTENTS[number]

    @rule(view=VIEWS)
    def restart_a_reader(self, view: int) -> None:
        self.readers[view].close()
        self.readers[view] = CachedReader(self.store, self.views[view], FetchPolicy.EAGER)

    # Fills without a reader, which may end at any step

    @rule(number=NUMBERS, view=VIEWS, eager=st.booleans())
    def fill(self, number: int, view: int, eager: bool) -> None:
        if write_entry(self.views[view], CONTENTS[number], eager=eager) is not None:
            self.filled.add(number)

    @rule(number=NUMBERS, view=VIEWS)
    def open_a_partial_blob(self, number: int, view: int) -> None:
        blob = BLOBS[number]
        partial = self.views[view].open_partial(blob.hash, SOURCE, blob.byte_size, eager=True)
        if isinstance(partial, PartialBlob):
            if number in self.partials:
                self.views[view].abandon(partial)
                return
            write_range(partial, CONTENTS[number], 0, min(100, blob.byte_size))
            self.partials[number] = partial

    @precondition(lambda self: self.partials)
    @rule(how=st.sampled_from(["commit", "abandon", "die", "drop"]))
    def end_a_partial_blob(self, how: str) -> None:
        number = min(self.partials)
        partial = self.partials.pop(number)
        if how == "commit":
            write_range(partial, CONTENTS[number], 0, len(CONTENTS[number]))
            self.views[0].commit(partial, partial.hashes()[1])
            self.views[0].abandon(partial)
            self.filled.add(number)
        elif how == "die":
            partial.data.close()  # as by the end of its process: locks go, files stay
            partial.map.close()
        else:
            self.views[0].abandon(partial, for_all=how == "drop")

    @rule(number=NUMBERS, garbage=st.binary(max_size=200), suffix=st.sampled_from(["part", "map", "new"]))
    def leave_garbage(self, number: int, garbage: bytes, suffix: str) -> None:
        self.path(number).parent.mkdir(parents=True, exist_ok=True)
        self.path(number, f".{'2' * 16}.{suffix}" if suffix != "new" else ".new").write_bytes(garbage)

    # Entries

    @rule(number=NUMBERS, view=VIEWS)
    def find(self, number: int, view: int) -> None:
        entry = self.views[view].find(BLOBS[number].hash)
        if entry is None:
            return
        assert number in self.filled
        if number not in self.corrupt:
            assert entry.view == CONTENTS[number]
            if len(self.slices) < 3:
                self.slices.append((number, entry.view[:50]))

    @precondition(lambda self: self.filled)
    @rule(number=NUMBERS, position=st.integers(0, 10_000))
    def flip_a_byte(self, number: int, position: int) -> None:
        path = self.path(number)
        if not path.exists() or not path.stat().st_size:
            return
        position %= path.stat().st_size
        with path.open("r+b") as file:
            file.seek(position)
            byte = file.read(1)
            file.seek(position)
            file.write(bytes([byte[0] ^ 64]))
        self.corrupt.add(number)
        self.slices = [(other, found) for other, found in self.slices if other != number]

    @rule(number=NUMBERS, suffix=st.sampled_from(["", ".ok"]))
    def lose_a_file(self, number: int, suffix: str) -> None:
        self.path(number, suffix).unlink(missing_ok=True)

    @rule(number=NUMBERS, view=VIEWS)
    def remove(self, number: int, view: int) -> None:
        self.views[view].remove(BLOBS[number].hash)

    @rule(view=VIEWS, limit=st.integers(0, LIMIT))
    def collect(self, view: int, limit: int) -> None:
        was_busy = self._is_busy()  # a background task may commit an entry after the eviction
        done = self.views[view].collect(limit)
        stats = self.views[view].stats()
        assert stats.bytes + stats.part_bytes <= LIMIT
        assert stats.bytes + stats.part_bytes <= limit or done.kept_pinned or stats.parts or was_busy

    @rule(view=VIEWS)
    def verify(self, view: int) -> None:
        found = {damage.digest for damage in self.views[view].verify()}
        assert {number for number, blob in enumerate(BLOBS) if blob.hash in found} <= self.corrupt

    @rule(seconds=st.sampled_from([1.0, BACKOFF_S, IDLE_S]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def release_slices(self) -> None:
        self.slices.clear()

    @rule(damage=st.sampled_from(["gone", "garbage"]))
    def lose_the_total(self, damage: str) -> None:
        path = self.blobs / "ledger"
        if self._is_busy():
            return
        if damage == "gone":
            path.unlink(missing_ok=True)
        elif path.exists():
            path.write_bytes(b"garbage")

    @invariant()
    def the_limit_is_kept(self) -> None:
        if not hasattr(self, "directory") or not self.blobs.exists():
            return
        with Quota(self.blobs / "ledger").transaction() as quota:
            entries = live = 0
            for path in self.blobs.rglob("*"):
                if len(path.name) == 64 and path.with_name(f"{path.name}.ok").exists():
                    entries += path.stat().st_size
                elif path.suffix == ".part" and _is_used(path.with_suffix(".map")):
                    live += path.stat().st_size
            assert entries + live <= LIMIT
            if quota.total_bytes is not None:
                assert quota.total_bytes >= entries + live, "a total may be too high, never too low"

    @invariant()
    def slices_keep_their_bytes(self) -> None:
        for number, found in getattr(self, "slices", []):
            assert found == CONTENTS[number][:50]

    def _is_busy(self) -> bool:
        return not all(reader._fetcher.is_idle for reader in self.readers)


def _is_used(path: Path) -> bool:
    try:
        file = LockFile.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    is_free = file.try_lock(exclusive=True)
    file.close()
    return not is_free


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
