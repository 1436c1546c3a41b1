"""What `warp doctor` finds out about this machine: settings, credentials, DuckDB, cache directory.

A check returns a `Finding` and never raises. What it finds out about a store is in `store_checkup`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from warpdata.cli.format import bytes_text, seconds_text
from warpdata.errors import (
    AccessDeniedError,
    CorruptError,
    ObjectNotFoundError,
    ReadOnlyStoreError,
    StorageError,
    UnsupportedFormatError,
    WarpError,
)
from warpdata.query import connect_open
from warpdata.repository.catalog import STORE_MARKER
from warpdata.settings import S3Settings, Settings
from warpdata.storage import ByteRange, Writer, resolve_s3

__all__ = [
    "Finding",
    "Status",
    "StoreProbe",
    "check_cache",
    "check_credentials",
    "check_duckdb",
    "check_store",
    "run_check",
]

Status = Literal["ok", "note", "failed", "skipped"]

_LITTLE_SPACE_BYTES = 1_000_000_000
_TO_THE_DOCTOR = re.compile(r"; `warp doctor` [^.;]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """`next_step` is there exactly where something failed."""

    check: str
    status: Status
    detail: str
    next_step: str | None = None


def run_check(check: str, look: Callable[[], Finding], next_step: str) -> Finding:
    """The finding, or the failure that kept it from being made."""
    try:
        return look()
    except WarpError as error:
        hint = _TO_THE_DOCTOR.sub("", error.hint or "")
        return Finding(check, "failed", error.message, hint or next_step)
    except Exception as error:  # noqa: BLE001 - a doctor reports whatever is wrong
        return Finding(check, "failed", f"{type(error).__name__}: {error}", next_step)


def check_credentials(store_url: str, settings: Settings) -> Finding:
    def look() -> Finding:
        scheme = urlsplit(store_url).scheme
        if scheme == "s3":
            return Finding("credentials", "ok", _describe_keys(settings.s3))
        if scheme in ("gs", "az"):
            return Finding("credentials", "note", f"{scheme}:// finds its own; the store check below uses them")
        return Finding("credentials", "ok", f"none needed for {scheme}://")

    return run_check("credentials", look, "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")


def _describe_keys(s3: S3Settings) -> str:
    keys = resolve_s3(s3)
    where = f" for {keys.endpoint_url}" if keys.endpoint_url else ""
    if keys.skip_signature:
        return f"anonymous S3{where}"
    if not keys.access_key_id:
        return f"no S3 keys set; the instance or container will be asked{where}"
    origin = "the environment" if s3.access_key_id else f"the profile {s3.profile or 'default'}"
    return f"S3 key {keys.access_key_id[:4]}… from {origin}{where}"


def check_duckdb(settings: Settings) -> Finding:
    """Load httpfs from its wheel, which must work with no network."""

    def look() -> Finding:
        connection = connect_open("https://", settings)
        try:
            row = connection.execute("SELECT version()").fetchone()
        finally:
            connection.close()
        assert row is not None
        return Finding("DuckDB", "ok", f"{row[0]}, httpfs loads offline")

    return run_check("DuckDB", look, "Reinstall duckdb and duckdb-extension-httpfs in the same version.")


def check_cache(folder: Path) -> Finding:
    def look() -> Finding:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"doctor")
            file.flush()
        free = shutil.disk_usage(folder).free
        detail = f"{folder} is writable, {bytes_text(free)} free"
        return Finding("cache", "note" if free < _LITTLE_SPACE_BYTES else "ok", detail)

    return run_check("cache", look, "Make the directory writable, or set WARP_CACHE_DIR to another.")


_WORDS = bytes(range(256)) * 16
_SPAN = ByteRange(1000, 1100)
_HARMLESS_SKEW_S = 5.0
_DANGEROUS_SKEW_S = 300.0
_CHECK_ENDPOINT = "Check the URL, AWS_ENDPOINT_URL and the network."


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """What the checks need. `key` is unused so far; `clock` is this machine's."""

    writer: Writer
    key: str
    clock: Callable[[], datetime]


def check_store(probe: StoreProbe) -> Iterator[Finding]:
    """Findings as they are made; after a store that cannot be reached, nothing more is asked."""
    reached = run_check("store", lambda: _reach(probe.writer), _CHECK_ENDPOINT)
    yield reached
    if reached.status == "failed":
        yield from (Finding(check, "skipped", "the store was not reached") for check in ("write", "read", "clock"))
        return
    sent_at = probe.clock()
    written = run_check("write", lambda: _write(probe), "Ask for the right to write, or read only.")
    yield written
    if written.status != "ok":
        yield run_check("read", lambda: _read_marker(probe.writer), _CHECK_ENDPOINT)
        yield Finding("clock", "skipped", "unknown: nothing was written whose time could be compared")
        return
    try:
        yield run_check("read", lambda: _read_back(probe), "Check what stands between you and the store.")
        yield run_check("create-only", lambda: _create_twice(probe), "Use a store that honours conditional puts.")
        yield run_check("clock", lambda: _compare_clocks(probe, sent_at), "Synchronise this machine's clock.")
    finally:
        with suppress(WarpError):
            probe.writer.delete(probe.key)
    yield run_check("delete", lambda: _is_gone(probe), f"Remove {probe.key} by hand.")


def _reach(writer: Writer) -> Finding:
    try:
        marker = writer.read(STORE_MARKER).data
    except ObjectNotFoundError as error:
        if error.hint:  # the bucket itself is missing
            raise
        return Finding("store", "ok", f"{writer.url} answers; nothing is published there yet")
    if marker.replace(b" ", b"").strip() != b'{"format":1}':
        raise UnsupportedFormatError(f"{writer.url} is a store of another format", hint="Upgrade warpdata.")
    return Finding("store", "ok", f"{writer.url} answers")


def _write(probe: StoreProbe) -> Finding:
    try:
        made = probe.writer.create(probe.key, _WORDS)
    except (ReadOnlyStoreError, AccessDeniedError) as error:
        return Finding("write", "note", f"read-only, which is fine for reading: {error.message}")
    if not made:
        raise StorageError(f"a new object was reported as already there: {probe.key}")
    return Finding("write", "ok", f"wrote {len(_WORDS):,} bytes")


def _read_back(probe: StoreProbe) -> Finding:
    if probe.writer.read(probe.key).data != _WORDS:
        raise CorruptError("what was read is not what was written")
    if bytes(probe.writer.read_range(probe.key, _SPAN)) != _WORDS[_SPAN.start : _SPAN.end]:
        raise CorruptError("a range of bytes is not the range asked for")
    return Finding("read", "ok", "whole object and byte range are as written")


def _read_marker(reader: Writer) -> Finding:
    """All that can be read of a store that takes no writes, before anything is published."""
    try:
        whole = reader.read(STORE_MARKER).data
    except ObjectNotFoundError:
        return Finding("read", "skipped", "nothing is published there to read")
    if bytes(reader.read_range(STORE_MARKER, ByteRange(1, len(whole)))) != whole[1:]:
        raise CorruptError("a range of bytes is not the range asked for")
    return Finding("read", "ok", "a byte range is as published")


def _create_twice(probe: StoreProbe) -> Finding:
    """Publishing rests on this: of two who create one key, exactly one wins."""
    if probe.writer.create(probe.key, b"another"):
        raise StorageError(
            "a second create of the same key was accepted",
            hint="This store ignores If-None-Match: two publishers could lose commits. Do not publish to it.",
        )
    if probe.writer.read(probe.key).data != _WORDS:
        raise CorruptError(
            "a second create was refused, but its bytes replaced the first",
            hint="This store breaks create-only puts. Do not publish to it.",
        )
    return Finding("create-only", "ok", "a second create is refused and changes nothing")


def _compare_clocks(probe: StoreProbe, sent_at: datetime) -> Finding:
    if probe.writer.url.startswith(("file://", "memory://")):
        return Finding("clock", "ok", "the store uses this machine's clock")
    stored_at = probe.writer.stat(probe.key).modified
    if stored_at is None:
        return Finding("clock", "skipped", "unknown: the store does not say when an object was written")
    skew_s = _skew(stored_at, sent_at, probe.clock())
    if abs(skew_s) <= _HARMLESS_SKEW_S:
        return Finding("clock", "ok", "agrees with the store's")
    detail = f"this machine is {seconds_text(abs(skew_s))} {'behind' if skew_s > 0 else 'ahead of'} the store"
    if abs(skew_s) >= _DANGEROUS_SKEW_S:
        return Finding(
            "clock", "failed", detail, "Synchronise this machine's clock: S3 refuses 15 minutes of difference."
        )
    return Finding("clock", "note", detail)


def _skew(stored_at: datetime, sent_at: datetime, seen_at: datetime) -> float:
    """Seconds by which the store is ahead, beyond what the round trip and whole seconds explain."""
    earliest, latest = sent_at - timedelta(seconds=1), seen_at + timedelta(seconds=1)
    moment = stored_at.astimezone(UTC)
    if moment < earliest:
        return (moment - earliest).total_seconds()
    return max(0.0, (moment - latest).total_seconds())


def _is_gone(probe: StoreProbe) -> Finding:
    try:
        probe.writer.stat(probe.key)
    except ObjectNotFoundError:
        return Finding("delete", "ok", "the test object is gone")
    raise StorageError("the test object is still there after it was deleted")
