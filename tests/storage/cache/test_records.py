"""If these fail, an entry with a corrupt record is trusted, or the limit is computed from a corrupt quota file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdata.primitives.hashing import sha256_hex
from warpdata.primitives.lock_file import LockFile
from warpdata.storage.cache.layout import Record, decode_record, encode_record
from warpdata.storage.cache.quota import Quota

DIGEST = sha256_hex(b"blob")
RECORD = Record(1234, "0123456789abcdef" * 2)


def test_a_record_round_trips() -> None:
    assert decode_record(DIGEST, encode_record(DIGEST, RECORD)) == RECORD


def test_a_record_belongs_to_one_blob() -> None:
    assert decode_record(sha256_hex(b"other"), encode_record(DIGEST, RECORD)) is None


def test_every_flipped_bit_is_detected() -> None:
    valid = encode_record(DIGEST, RECORD)
    for bit in range(8 * len(valid)):
        corrupt = bytearray(valid)
        corrupt[bit // 8] ^= 1 << bit % 8
        assert decode_record(DIGEST, bytes(corrupt)) is None, bit


@given(st.binary(max_size=300))
def test_other_bytes_are_not_a_record(data: bytes) -> None:
    assert decode_record(DIGEST, data) is None
    assert decode_record(DIGEST, encode_record(DIGEST, RECORD) + data + b"x") is None


def test_the_total_is_kept(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "ledger")
    with quota.transaction() as transaction:
        assert transaction.total_bytes is None, "not counted yet"
        transaction.total_bytes = 5
    with Quota(tmp_path / "ledger").transaction() as transaction:
        transaction.add(7)
    with quota.transaction() as transaction:
        assert transaction.total_bytes == 12
        transaction.add(-100)
        assert transaction.total_bytes is None, "never negative, but unknown"


@pytest.mark.parametrize(
    "text", ["", "12", "warp-cache-1", "warp-cache-1 12\n", "warp-cache-2" + "12".rjust(27) + "\n"]
)
def test_a_corrupt_total_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger").write_text(text)
    with Quota(tmp_path / "ledger").transaction() as transaction:
        assert transaction.total_bytes is None
        transaction.add(3)
        assert transaction.total_bytes is None, "a change to an unknown total is unknown"


def test_the_total_is_written_after_an_error(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "ledger")

    def fail_midway() -> None:
        with quota.transaction() as transaction:
            transaction.total_bytes = 9
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_midway()
    with quota.transaction() as transaction:
        assert transaction.total_bytes == 9


def test_transactions_exclude_each_other(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "ledger")
    with quota.transaction() as transaction:
        transaction.total_bytes = 0

    def add() -> None:
        for _ in range(50):
            with Quota(tmp_path / "ledger").transaction() as transaction:
                transaction.add(1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with quota.transaction() as transaction:
        assert transaction.total_bytes == 200


def test_a_lock_that_stays_taken_is_an_error(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "ledger")
    with quota.transaction(), pytest.raises(OSError, match="stayed locked"), quota.transaction(0.02):
        pass


def test_a_quota_file_deleted_while_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two processes would each hold a lock, on two files."""
    path = tmp_path / "ledger"
    with Quota(path).transaction() as transaction:
        transaction.total_bytes = 4
    try_lock = LockFile.try_lock
    deleted: list[bool] = []

    def delete_first(file: LockFile, *, exclusive: bool) -> bool:
        if not deleted:
            deleted.append(True)
            path.unlink()
        return try_lock(file, exclusive=exclusive)

    monkeypatch.setattr(LockFile, "try_lock", delete_first)
    with Quota(path).transaction() as transaction:
        assert transaction.total_bytes is None
        transaction.total_bytes = 9
    assert path.exists()


def test_a_deleted_quota_file_starts_again(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "ledger")
    with quota.transaction() as transaction:
        transaction.total_bytes = 4
        (tmp_path / "ledger").unlink()
        with quota.transaction() as fresh:
            assert fresh.total_bytes is None
