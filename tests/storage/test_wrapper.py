"""If these fail, a wrapped reader loses an operation, or corrupt bytes of a cache are taken for those of the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from warpdata.errors import CorruptError
from warpdata.storage import ByteRange, LocalStore, Reader
from warpdata.storage.verified_read import read_verified, retry_corrupt
from warpdata.storage.wrapper import ReaderWrapper

MEMBERS = sorted(name for name in vars(Reader) if not name.startswith("_"))
SPAN = ByteRange(0, 4)


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_is_delegated(name: str) -> None:
    inner = MagicMock()
    wrapper = ReaderWrapper(inner)
    if isinstance(vars(Reader)[name], property):
        assert getattr(wrapper, name) is getattr(inner, name)
        return
    signature = inspect.signature(getattr(Reader, name))
    assert inspect.signature(getattr(ReaderWrapper, name)) == signature
    required = [object() for parameter in signature.parameters.values() if parameter.default is parameter.empty][1:]
    named = {p.name: object() for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    result = getattr(wrapper, name)(*required, **named)
    assert signature.return_annotation == "None" or result is getattr(inner, name).return_value
    getattr(inner, name).assert_called_once_with(*required, **named)


def test_a_wrapper_is_a_reader(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/k", b"data")
    reader: Reader = ReaderWrapper(store)
    assert isinstance(reader, Reader)
    assert bytes(reader.read_range("a/k", SPAN)) == b"data"


class CorruptCache(ReaderWrapper):
    """Returns corrupt bytes until `invalid_reads` were reported."""

    def __init__(self, reader: Reader, *, invalid_reads: int, can_drop: bool = True) -> None:
        super().__init__(reader)
        self.invalid_reads = invalid_reads
        self.can_drop = can_drop
        self.reads = 0

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        self.reads += 1
        return memoryview(b"junk") if self.reads <= self.invalid_reads else super().read_range(key, span)

    def invalidate(self, key: str) -> bool:
        return self.can_drop


def check(data: memoryview) -> str:
    if bytes(data) != b"data":
        raise CorruptError("corrupt")
    return bytes(data).decode()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    store.create("a/k", b"data")
    return store


@pytest.mark.parametrize(
    ("invalid_reads", "can_drop", "reads", "is_read"),
    [(0, True, 1, True), (1, True, 2, True), (2, True, 2, False), (1, False, 1, False)],
)
def test_a_range_is_read_again_once_if_a_copy_was_dropped(
    store: LocalStore, invalid_reads: int, can_drop: bool, reads: int, is_read: bool
) -> None:
    attempts: list[Callable[[Reader], str]] = [
        lambda cache: read_verified(cache, "a/k", SPAN, check),
        lambda cache: retry_corrupt(lambda: check(cache.read_range("a/k", SPAN)), lambda: cache.invalidate("a/k")),
    ]
    for attempt in attempts:
        cache = CorruptCache(store, invalid_reads=invalid_reads, can_drop=can_drop)
        if is_read:
            assert attempt(cache) == "data"
        else:
            with pytest.raises(CorruptError):
                attempt(cache)
        assert cache.reads == reads


def test_an_error_of_the_read_itself_is_not_retried(store: LocalStore) -> None:
    class Short(CorruptCache):
        def read_range(self, key: str, span: ByteRange) -> memoryview:
            self.reads += 1
            raise CorruptError("too short")

    cache = Short(store, invalid_reads=0)
    with pytest.raises(CorruptError, match="too short"):
        read_verified(cache, "a/k", SPAN, check)
    assert cache.reads == 1


def test_other_errors_are_not_retried() -> None:
    calls: list[int] = []

    def read() -> None:
        calls.append(1)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        retry_corrupt(read, lambda: True)
    assert len(calls) == 1
