"""If these fail, a cache grows without bound, returns another key's value, or drops what was just used."""

from __future__ import annotations

import threading

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.primitives.test_fork import run_in_fork
from warpdata.primitives.byte_lru import ByteLRU

KEYS = st.integers(0, 5)
MAX_BYTES, MAX_ENTRIES = 20, 4


class ByteLRUMachine(RuleBasedStateMachine):
    """A cache against a list of entries, the least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.evicted: list[tuple[int, str]] = []
        self.expected: list[tuple[int, str]] = []
        self.cache: ByteLRU[int, str] = ByteLRU(
            MAX_BYTES, max_entries=MAX_ENTRIES, on_evict=lambda *entry: self.evicted.append(entry)
        )
        self.model: list[tuple[int, str, int]] = []
        self.count = 0

    def value(self) -> str:
        self.count += 1
        return f"value {self.count}"

    def find(self, key: int) -> tuple[int, str, int] | None:
        return next((entry for entry in self.model if entry[0] == key), None)

    def use(self, entry: tuple[int, str, int]) -> None:
        self.model.remove(entry)
        self.model.append(entry)

    def insert(self, key: int, value: str, size: int) -> bool:
        if size > MAX_BYTES:
            return False
        self.model.append((key, value, size))
        while sum(entry[2] for entry in self.model) > MAX_BYTES or len(self.model) > MAX_ENTRIES:
            self.expected.append(self.model.pop(0)[:2])
        return True

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        found = self.find(key)
        assert self.cache.get(key) == (found[1] if found else None)
        if found:
            self.use(found)

    @rule(key=KEYS, size=st.integers(0, MAX_BYTES + 2))
    def put(self, key: int, size: int) -> None:
        found, value = self.find(key), self.value()
        if found:
            self.model.remove(found)
            self.expected.append(found[:2])
        assert self.cache.put(key, value, size) == self.insert(key, value, size)

    @rule(key=KEYS, size=st.integers(0, MAX_BYTES + 2))
    def get_or_create(self, key: int, size: int) -> None:
        found, value = self.find(key), self.value()
        assert self.cache.get_or_create(key, lambda: value, lambda _: size) == (found[1] if found else value)
        if found:
            self.use(found)
        else:
            self.insert(key, value, size)

    @rule(key=KEYS)
    def pop(self, key: int) -> None:
        found = self.find(key)
        assert self.cache.pop(key) == (found[1] if found else None)
        if found:
            self.model.remove(found)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.expected += [entry[:2] for entry in self.model]
        self.model = []

    @invariant()
    def equals_the_model(self) -> None:
        assert len(self.cache) == len(self.model)
        assert self.cache.size_bytes == sum(entry[2] for entry in self.model)
        assert all((key in self.cache) == (self.find(key) is not None) for key in range(6))
        assert self.evicted == self.expected


TestByteLRU = ByteLRUMachine.TestCase


def test_threads_that_miss_together_get_the_value_cached_first() -> None:
    cache: ByteLRU[str, object] = ByteLRU(10)
    meeting = threading.Barrier(4, timeout=10)
    found: list[object] = []

    def create() -> object:
        meeting.wait()
        return object()

    threads = [threading.Thread(target=lambda: found.append(cache.get_or_create("key", create))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert set(found) == {cache.get("key")}


def test_values_may_be_created_in_terms_of_others() -> None:
    cache: ByteLRU[int, int] = ByteLRU(10)

    def factorial(n: int) -> int:
        return cache.get_or_create(n, lambda: n * factorial(n - 1) if n else 1)

    assert factorial(5) == 120


def test_a_callback_may_use_the_cache() -> None:
    cache: ByteLRU[int, int]
    cache = ByteLRU(max_entries=1, on_evict=lambda key, value: counts.append(len(cache)))
    counts: list[int] = []
    cache.put(1, 1)
    cache.put(2, 2)
    assert counts == [1]


def test_a_forked_child_gets_a_free_lock_and_an_empty_cache_on_request() -> None:
    kept: ByteLRU[int, int] = ByteLRU(10)
    cleared: ByteLRU[int, int] = ByteLRU(10, clear_after_fork=True)
    for cache in (kept, cleared):
        cache.put(1, 1, 4)
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with kept._lock, cleared._lock:
            locked.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(10)
    try:
        run_in_fork(lambda: kept.get(1) == 1 and kept.size_bytes == 4 and not len(cleared) and cleared.put(2, 2, 10))
    finally:
        done.set()
        thread.join()
    assert cleared.get(1) == 1
