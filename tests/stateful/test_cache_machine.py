"""If this fails, some order of fills, evictions, damage and deaths makes the cache lie or forget its limit.

The model is a dictionary of what was filled. The cache may have less than the model, never other bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.storage.cache.scenes import Clock, noise, write_entry
from warpdata.limits import CACHE_IDLE_S, CACHE_REST_S
from warpdata.primitives.hashing import Blob, sha256_hex
from warpdata.storage.cache import BlobCache, Refusal
from warpdata.storage.cache.locks import LockFile
from warpdata.storage.cache.partial import Part
from warpdata.storage.cache.quota import Quota

LIMIT = 20_000
CONTENTS = [noise(seed, size) for seed, size in enumerate([0, 1, 500, 3000, 3000, 7000, 7000, 9000, LIMIT, 30_000])]
BLOBS = [Blob(sha256_hex(data), len(data)) for data in CONTENTS]
NUMBERS = st.integers(0, len(BLOBS) - 1)


class Folder(RuleBasedStateMachine):
    """Two processes' views of one folder. `filled` are blobs whose entry may be there, `rotten` those damaged."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="warp-cache-machine-"))
        self.shelves = self.folder / "blobs"
        self.clock = Clock()
        self.views = [BlobCache(self.folder, LIMIT, self.clock) for _ in range(2)]
        self.filled: set[int] = set()
        self.rotten: set[int] = set()
        self.parts: dict[int, Part] = {}
        self.pieces: list[tuple[int, memoryview]] = []

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def path(self, number: int, suffix: str = "") -> Path:
        return self.shelves / BLOBS[number].hash[:2] / f"{BLOBS[number].hash}{suffix}"

    @rule(number=NUMBERS, view=st.integers(0, 1), eager=st.booleans())
    def fill(self, number: int, view: int, eager: bool) -> None:
        had_entry = self.views[view].contains(BLOBS[number].hash)
        done = write_entry(self.views[view], CONTENTS[number], eager=eager)
        if done is not None:
            assert not had_entry
            assert number not in self.parts
            self.filled.add(number)
            self.rotten.discard(number)
        elif len(CONTENTS[number]) >= LIMIT:
            assert not had_entry

    @rule(number=NUMBERS, view=st.integers(0, 1))
    def begin_to_fill(self, number: int, view: int) -> None:
        part = self.views[view].begin(BLOBS[number], eager=True)
        if number in self.parts:
            assert part in (Refusal.BUSY, Refusal.TOO_LARGE, Refusal.PRESENT)
        elif isinstance(part, Part):
            part.write(0, memoryview(CONTENTS[number])[:100])
            self.parts[number] = part

    @precondition(lambda self: self.parts)
    @rule(choice=st.randoms(use_true_random=False), how=st.sampled_from(["finish", "abandon", "die"]))
    def end_a_fill(self, choice: object, how: str) -> None:
        number = sorted(self.parts)[0]
        part = self.parts.pop(number)
        if how == "finish":
            part.write(0, memoryview(CONTENTS[number]))
            self.views[0].commit(part, part.hashes()[1])
            self.filled.add(number)
            self.rotten.discard(number)
        elif how == "abandon":
            self.views[0].abandon(part)
        else:
            part.handle.close()  # as by the end of its process: the lock goes, the file stays

    @rule(number=NUMBERS, garbage=st.binary(max_size=200), suffix=st.sampled_from([".part", ".new"]))
    def a_killed_process_left_this(self, number: int, garbage: bytes, suffix: str) -> None:
        if number not in self.parts:
            self.path(number).parent.mkdir(parents=True, exist_ok=True)
            self.path(number, suffix).write_bytes(garbage)

    @rule(number=NUMBERS, view=st.integers(0, 1))
    def read(self, number: int, view: int) -> None:
        entry = self.views[view].find(BLOBS[number].hash)
        if entry is None:
            return
        assert number in self.filled
        if number not in self.rotten:
            assert entry.view == CONTENTS[number]
        if len(self.pieces) < 3 and number not in self.rotten:
            self.pieces.append((number, entry.view[:50]))

    @rule(number=NUMBERS, view=st.integers(0, 1))
    def read_whole(self, number: int, view: int) -> None:
        """What is checked in full is right, however the file was treated, unless it was checked before."""
        view_of_it = self.views[view]
        view_of_it.opened._checked.clear()
        entry = view_of_it.find_intact(BLOBS[number].hash)
        if entry is not None:
            assert entry.view == CONTENTS[number]

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
        self.rotten.add(number)
        self.pieces = [(other, piece) for other, piece in self.pieces if other != number]

    @rule(number=NUMBERS, suffix=st.sampled_from(["", ".ok"]))
    def lose_a_file(self, number: int, suffix: str) -> None:
        self.path(number, suffix).unlink(missing_ok=True)

    @rule(number=NUMBERS, view=st.integers(0, 1))
    def drop(self, number: int, view: int) -> None:
        self.views[view].remove(BLOBS[number].hash)
        assert self.views[view].find(BLOBS[number].hash) is None

    @rule(view=st.integers(0, 1), limit=st.integers(0, LIMIT))
    def collect(self, view: int, limit: int) -> None:
        done = self.views[view].collect(limit)
        stats = self.views[view].stats()
        assert stats.bytes + stats.part_bytes <= limit or done.kept_pinned or stats.parts
        assert stats.parts == len(self.parts), "what dead processes left is gone"

    @rule(view=st.integers(0, 1))
    def verify(self, view: int) -> None:
        there = {number for number, blob in enumerate(BLOBS) if self.views[view].contains(blob.hash)}
        digests = {damage.digest for damage in self.views[view].verify()}
        damaged = {number for number, blob in enumerate(BLOBS) if blob.hash in digests}
        assert damaged <= self.rotten
        for number in there - damaged:
            assert self.path(number).read_bytes() == CONTENTS[number]

    @rule(seconds=st.sampled_from([1.0, CACHE_REST_S, CACHE_IDLE_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def let_go_of_bytes(self) -> None:
        self.pieces.clear()

    @rule(damage=st.sampled_from(["gone", "garbage"]))
    def lose_the_ledger(self, damage: str) -> None:
        ledger = self.shelves / "ledger"
        if damage == "gone":
            ledger.unlink(missing_ok=True)
        elif ledger.exists():
            ledger.write_bytes(b"garbage")

    @invariant()
    def the_limit_is_kept(self) -> None:
        if not hasattr(self, "folder") or not self.shelves.exists():
            return
        sizes = 0
        for shelf in self.shelves.iterdir():
            for path in shelf.iterdir() if shelf.is_dir() else ():
                is_entry = len(path.name) == 64 and path.with_name(f"{path.name}.ok").exists()
                if is_entry or (path.suffix == ".part" and _is_live(path)):
                    sizes += path.stat().st_size
        assert sizes <= LIMIT

    @invariant()
    def the_total_is_never_too_low(self) -> None:
        if not hasattr(self, "folder") or not (self.shelves / "ledger").exists():
            return
        with Quota(self.shelves / "ledger").transaction() as account:
            total = account.total_bytes
        if total is not None:
            stats = self.views[0].stats()
            live = sum(part.handle.size_bytes() for part in self.parts.values())
            assert total >= stats.bytes + live

    @invariant()
    def bytes_in_hand_stay_what_they_are(self) -> None:
        for number, piece in getattr(self, "pieces", []):
            assert piece == CONTENTS[number][:50]


def _is_live(path: Path) -> bool:
    handle = LockFile.open(path, os.O_RDWR)
    is_free = handle.try_lock(exclusive=True)
    handle.close()
    return not is_free


TestFolder = Folder.TestCase
TestFolder.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
