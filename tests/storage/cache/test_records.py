"""If these fail, an entry is believed whose record rotted, or the limit is counted from a damaged ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.primitives.hashing import sha256_hex
from warpdata.storage.cache.layout import Record, decode_record, encode_record
from warpdata.storage.cache.locks import Handle
from warpdata.storage.cache.quota import Ledger

DIGEST = sha256_hex(b"blob")
RECORD = Record(1234, "0123456789abcdef" * 2)


def test_a_record_comes_back() -> None:
    assert decode_record(DIGEST, encode_record(DIGEST, RECORD)) == RECORD


def test_a_record_is_of_one_blob() -> None:
    assert decode_record(sha256_hex(b"other"), encode_record(DIGEST, RECORD)) is None


def test_every_flipped_bit_shows() -> None:
    sound = encode_record(DIGEST, RECORD)
    for bit in range(8 * len(sound)):
        rotten = bytearray(sound)
        rotten[bit // 8] ^= 1 << bit % 8
        assert decode_record(DIGEST, bytes(rotten)) is None, bit


@given(st.binary(max_size=300))
def test_no_other_bytes_are_a_record(data: bytes) -> None:
    assert decode_record(DIGEST, data) is None
    assert decode_record(DIGEST, encode_record(DIGEST, RECORD) + data + b"x") is None


def test_the_total_is_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.locked() as account:
        assert account.total_bytes is None, "nobody has counted yet"
        account.total_bytes = 5
    with Ledger(tmp_path / "ledger").locked() as account:
        account.add(7)
    with ledger.locked() as account:
        assert account.total_bytes == 12
        account.add(-100)
        assert account.total_bytes == 0, "less than nothing is nothing"


@pytest.mark.parametrize(
    "text", ["", "12", "warp-cache-1", "warp-cache-1 12\n", "warp-cache-2" + "12".rjust(27) + "\n"]
)
def test_a_damaged_ledger_knows_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger").write_text(text)
    with Ledger(tmp_path / "ledger").locked() as account:
        assert account.total_bytes is None
        account.add(3)
        assert account.total_bytes is None, "a change to an unknown total is unknown"


def test_what_was_done_before_a_failure_is_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")

    def fail_half_way() -> None:
        with ledger.locked() as account:
            account.total_bytes = 9
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    with ledger.locked() as account:
        assert account.total_bytes == 9


def test_one_at_a_time(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.locked() as account:
        account.total_bytes = 0

    def add() -> None:
        for _ in range(50):
            with Ledger(tmp_path / "ledger").locked() as account:
                account.add(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ledger.locked() as account:
        assert account.total_bytes == 200


def test_patience_ends(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.locked(), pytest.raises(OSError, match="stayed locked"), ledger.locked(0.02):
        pass


def test_a_ledger_that_is_deleted_while_it_is_being_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two processes would each hold the lock, of two files."""
    path = tmp_path / "ledger"
    with Ledger(path).locked() as account:
        account.total_bytes = 4
    try_lock = Handle.try_lock
    is_done: list[bool] = []

    def delete_first(handle: Handle, *, exclusive: bool) -> bool:
        if not is_done:
            is_done.append(True)
            path.unlink()
        return try_lock(handle, exclusive=exclusive)

    monkeypatch.setattr(Handle, "try_lock", delete_first)
    with Ledger(path).locked() as account:
        assert account.total_bytes is None
        account.total_bytes = 9
    assert path.exists()


def test_a_ledger_that_was_deleted_is_another_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    with ledger.locked() as account:
        account.total_bytes = 4
        (tmp_path / "ledger").unlink()
        with ledger.locked() as fresh:
            assert fresh.total_bytes is None
