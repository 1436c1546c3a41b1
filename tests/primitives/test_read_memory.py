"""If these fail, readers together hold more memory than the process allows, or one keeps the others from reading."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from tests.primitives.test_fork import run_in_fork
from warpdata.primitives.read_memory import ReadMemory

WAIT_S = 10.0


@given(
    st.integers(0, 2_000),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.booleans()), max_size=60),
)
def test_readers_hold_no_more_than_half_and_one_item_each(limit_bytes: int, steps: list[tuple[int, int, bool]]) -> None:
    memory = ReadMemory(lambda: limit_bytes)
    readers = [memory.reader() for _ in range(4)]
    held: list[list[int]] = [[] for _ in readers]
    for reader in readers:
        reader.__enter__()
    for number, size_bytes, gives_back in steps:
        if gives_back and held[number]:
            readers[number].give_back(held[number].pop(0))
            continue
        is_taken = readers[number].take(size_bytes)
        assert is_taken or any(held[number]), "a reader that holds nothing may take any item"
        if is_taken:
            held[number].append(size_bytes)
        assert memory.used_bytes == sum(map(sum, held))
        largest = sum(max(items, default=0) for items in held)
        assert memory.used_bytes <= limit_bytes // 2 + largest
        assert all(sum(items) <= max(limit_bytes // 8, max(items, default=0)) for items in held)
    for reader in readers:
        reader.__exit__(None, None, None)
    assert memory.used_bytes == 0


def test_a_reader_alone_gets_the_whole_share() -> None:
    memory = ReadMemory(lambda: 1000)
    with memory.reader() as first:
        assert first.take(250)
        assert first.take(250)
        assert not first.take(1)
        with memory.reader() as second:
            assert second.take(100), "its first item"
            assert not second.take(1), "the first reader has not given back yet"
            first.give_back(250)
            assert second.take(100)
            assert not first.take(1), "half of the share is for the second reader now"
        first.give_back(250)
        assert first.take(500)


def test_requests_wait_in_turn() -> None:
    """Small requests that come later do not keep a large one waiting."""
    memory = ReadMemory(lambda: 200)
    order: list[str] = []
    waiting = threading.Event()

    def ask(name: str, size_bytes: int) -> None:
        with memory.request(size_bytes):
            order.append(name)

    with memory.request(50):
        large = threading.Thread(target=ask, args=("large", 90))
        large.start()
        while not memory._waiting:
            waiting.wait(0.001)
        small = threading.Thread(target=ask, args=("small", 10))
        small.start()
        while len(memory._waiting) < 2:
            waiting.wait(0.001)
        assert order == []
    for thread in (large, small):
        thread.join(WAIT_S)
    assert order == ["large", "small"]
    assert memory.used_bytes == 0


def test_a_request_larger_than_the_memory_is_sent_alone() -> None:
    memory = ReadMemory(lambda: 10)
    with memory.request(10**9):
        assert memory.used_bytes == 10**9
    assert memory.used_bytes == 0


def test_a_forked_child_has_an_unused_budget() -> None:
    memory = ReadMemory(lambda: 100)
    with memory.request(50), memory.reader() as reader:
        assert reader.take(50)
        run_in_fork(lambda: memory.used_bytes == 0)
