"""Checks of `warp doctor`: credentials, DuckDB and cache of this machine, then the store.

A check returns a `Finding` and never raises. The store checks write one small object under `doctor/` and
remove it. A read-only store passes.
"""

from __future__ import annotations

import io
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

from warpdata.cli.format import bytes_text, count_text, seconds_text
from warpdata.errors import (
    AccessDeniedError,
    CorruptError,
    DeniedError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
    WarpError,
)
from warpdata.formats.media import choose_jpeg_decoder
from warpdata.primitives.concurrency import core_limit, memory_limit
from warpdata.primitives.extras import DISTRIBUTION
from warpdata.primitives.parallel import READ_MEMORY, REQUEST_LIMIT
from warpdata.primitives.redaction import redact
from warpdata.query import connect_open
from warpdata.repository.catalog import STORE_MARKER, read_marker
from warpdata.settings import S3Settings, Settings
from warpdata.storage import ByteRange, Reader, Writer, resolve_s3
from warpdata.storage.cache import reclaim_staging

__all__ = [
    "Finding",
    "Status",
    "StoreProbe",
    "check_cache",
    "check_credentials",
    "check_duckdb",
    "check_images",
    "check_machine",
    "check_store",
    "run_check",
]

Status = Literal["ok", "note", "failed", "skipped"]

_LOW_SPACE_BYTES = 1_000_000_000
_PAYLOAD = bytes(range(256)) * 16
_RANGE = ByteRange(1000, 1100)
_OK_SKEW_S = 5.0
_MAX_SKEW_S = 300.0
_STORE_CHECKS = ("write", "read", "parquet", "clock")
_CHECK_PROXIES = "Check proxies between this machine and the store."
_CHECK_ENDPOINT = "Check the URL, AWS_ENDPOINT_URL and the network."
_CREDENTIALS_STEPS = {
    "s3": "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of a user who may read this bucket.",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`.",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or log in with `az login`.",
}
_PARQUET_ROWS = 1000
_DOCTOR_HINT = re.compile(r"; `warp doctor` [^.;]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `next_step` is set if and only if the check failed."""

    check: str
    status: Status
    detail: str
    next_step: str | None = None


def run_check(name: str, check: Callable[[], Finding], next_step: str) -> Finding:
    """Run a check; an exception becomes a failed finding."""
    try:
        return check()
    except WarpError as error:
        hint = _DOCTOR_HINT.sub("", error.hint or "")
        return Finding(name, "failed", error.message, hint or next_step)
    except Exception as error:  # noqa: BLE001 - every failure is a finding
        return Finding(name, "failed", f"{type(error).__name__}: {error}", next_step)


def check_credentials(store_url: str, settings: Settings, reader: Reader | None = None) -> Finding:
    """Describe the credentials, and send one request with them if there is a reader."""
    scheme = urlsplit(store_url).scheme

    def check() -> Finding:
        if scheme not in _CREDENTIALS_STEPS:
            return Finding("credentials", "ok", f"none needed for {scheme}://")
        described = _describe_keys(settings.s3) if scheme == "s3" else f"{scheme}:// credentials of the environment"
        if reader is None:
            return Finding("credentials", "note", f"{described}; not tested")
        try:
            reader.stat(STORE_MARKER)
        except ObjectNotFoundError:
            pass  # a missing object is an answer, so the credentials were accepted
        except DeniedError as error:
            return Finding("credentials", "failed", f"{described}: {error.message}", _CREDENTIALS_STEPS[scheme])
        except StorageError:
            return Finding("credentials", "skipped", f"{described}; not tested, the store cannot be reached")
        return Finding("credentials", "ok", f"{described}, accepted by the store")

    return run_check("credentials", check, _CREDENTIALS_STEPS.get(scheme, _CHECK_ENDPOINT))


def _describe_keys(s3: S3Settings) -> str:
    keys = resolve_s3(s3)
    where = f" for {redact(keys.endpoint_url)}" if keys.endpoint_url else ""
    if keys.skip_signature:
        return f"anonymous S3{where}"
    if not keys.access_key_id:
        return f"no S3 keys set; using credentials of the instance or container{where}"
    origin = "the environment" if s3.access_key_id else f"the profile {s3.profile or 'default'}"
    return f"S3 key {keys.access_key_id[:4]}… from {origin}{where}"


def check_duckdb(settings: Settings) -> Finding:
    """Check that httpfs loads from its wheel, without a network."""

    def check() -> Finding:
        row = connect_open("https://", settings).execute("SELECT version()").fetchone()
        assert row is not None
        return Finding("DuckDB", "ok", f"{row[0]}, httpfs loads offline")

    return run_check("DuckDB", check, "Reinstall duckdb and duckdb-extension-httpfs in the same version.")


def check_images() -> Finding:
    """Name the decoder of JPEG images, and the reason for it. A missing library is no failure: tables need none."""

    def check() -> Finding:
        chosen = choose_jpeg_decoder()
        if not chosen.version:
            return Finding("images", "note", f"no decoder is installed; pip install '{DISTRIBUTION}[image]'")
        detail = f"JPEG by {chosen.name} {chosen.version}: {chosen.reason}"
        if chosen.name != "Pillow":
            return Finding("images", "ok", detail)
        faster = f"; pip install '{DISTRIBUTION}[image-fast]' decodes faster"
        return Finding("images", "note", detail + faster)

    return run_check("images", check, f"pip install '{DISTRIBUTION}[image]'")


def check_machine() -> Iterator[Finding]:
    """Describe the budgets of this process: threads, requests and memory, each with its reason."""
    cores = core_limit()
    yield Finding("threads", "ok", f"{cores.value}: {cores.reason}")
    if REQUEST_LIMIT.is_fixed:
        yield Finding("requests", "ok", f"{REQUEST_LIMIT.value} at a time: set by WARP_IO_CONCURRENCY")
    else:
        first, most = REQUEST_LIMIT.value, REQUEST_LIMIT.highest
        yield Finding("requests", "ok", f"{first} at a time, up to {most} while throughput grows, fewer on errors")
    memory, shown = memory_limit(), bytes_text(READ_MEMORY.limit_bytes)
    reason = "set by WARP_READ_MEMORY_GB"
    if not READ_MEMORY.is_fixed:
        reason = f"a part of the {bytes_text(memory.value)} {memory.reason}"
    yield Finding("memory", "ok", f"{shown} for reads: {reason}")


def check_cache(directory: Path) -> Finding:
    def check() -> Finding:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"doctor")
            file.flush()
        staging = reclaim_staging(directory)
        free = shutil.disk_usage(directory).free
        detail = f"{directory} is writable, {bytes_text(free)} free"
        if staging.directories:
            removed = count_text(staging.directories, "staging directory", "staging directories")
            detail += f"; removed {removed} of killed publishes, {bytes_text(staging.size_bytes)}"
        return Finding("cache", "note" if free < _LOW_SPACE_BYTES else "ok", detail)

    return run_check("cache", check, "Make the directory writable, or set WARP_CACHE_DIR to another.")


@dataclass(frozen=True, slots=True)
class StoreProbe:
    """A store to check, a key that does not exist in it, and the clock of this machine.

    `read_table` reads a published table and describes it; None if there is no table. A read-only store needs it.
    """

    writer: Writer
    key: str
    clock: Callable[[], datetime]
    read_table: Callable[[], str | None] = lambda: None


def check_store(probe: StoreProbe) -> Iterator[Finding]:
    """Yield findings as the checks run. If the store cannot be reached, the other checks are skipped."""
    reached = run_check("store", lambda: _reach(probe.writer), _CHECK_ENDPOINT)
    yield reached
    if reached.status == "failed":
        yield from (Finding(check, "skipped", "the store cannot be reached") for check in _STORE_CHECKS)
        return
    sent_at = probe.clock()
    written = run_check("write", lambda: _write(probe), "Request write access, or only read from this store.")
    yield written
    if written.status != "ok":
        yield run_check("read", lambda: _read_marker(probe.writer), _CHECK_ENDPOINT)
        yield run_check("parquet", lambda: _read_published(probe), _CHECK_PROXIES)
        yield Finding("clock", "skipped", "unknown: needs a written object")
        return
    try:
        yield run_check("read", lambda: _read_back(probe), _CHECK_PROXIES)
        yield run_check("parquet", lambda: _read_parquet(probe), _CHECK_PROXIES)
        yield run_check("create-only", lambda: _create_twice(probe), "Use a store that supports conditional puts.")
        yield run_check("clock", lambda: _compare_clocks(probe, sent_at), "Synchronise the clock of this machine.")
    finally:
        with suppress(WarpError):
            probe.writer.delete(probe.key)
    yield run_check("delete", lambda: _check_deleted(probe), f"Remove {probe.key} by hand.")


def _reach(writer: Writer) -> Finding:
    try:
        writer.read(STORE_MARKER)
    except ObjectNotFoundError as error:
        if error.hint:  # the bucket itself is missing
            raise
        return Finding("store", "ok", f"{writer.url} responds; nothing is published there yet")
    read_marker(writer)
    return Finding("store", "ok", f"{writer.url} responds")


def _write(probe: StoreProbe) -> Finding:
    try:
        made = probe.writer.create(probe.key, _PAYLOAD)
    except (DeniedError, AccessDeniedError) as error:
        return Finding("write", "note", f"read-only: {error.message}")
    if not made:
        raise StorageError(f"create reported that a new key already exists: {probe.key}")
    return Finding("write", "ok", f"wrote {len(_PAYLOAD):,} bytes")


def _read_back(probe: StoreProbe) -> Finding:
    if probe.writer.read(probe.key).data != _PAYLOAD:
        raise CorruptError("the object that was read differs from the one written")
    if bytes(probe.writer.read_range(probe.key, _RANGE)) != _PAYLOAD[_RANGE.start : _RANGE.end]:
        raise CorruptError("a range read returned the wrong bytes")
    return Finding("read", "ok", "object and byte range match")


def _read_parquet(probe: StoreProbe) -> Finding:
    """Write a small Parquet file and read one of its columns by byte ranges, as every table is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    key, expected = f"{probe.key}.parquet", pa.table({"x": range(_PARQUET_ROWS), "y": range(_PARQUET_ROWS)})
    encoded = pa.BufferOutputStream()
    pq.write_table(expected, encoded, compression="none", use_dictionary=False)
    probe.writer.create(key, encoded.getvalue().to_pybytes())
    try:
        size_bytes = probe.writer.stat(key).size_bytes
        fetched = _Fetched(probe.writer, key, size_bytes)
        footer_bytes = int.from_bytes(fetched.read(size_bytes - 8, size_bytes - 4), "little")
        fetched.read(size_bytes - 8 - footer_bytes, size_bytes)
        column = pq.read_metadata(fetched.file()).row_group(0).column(0)
        fetched.read(column.data_page_offset, column.data_page_offset + column.total_compressed_size)
        if pq.ParquetFile(fetched.file()).read_row_group(0, ["x"]) != expected.select(["x"]):
            raise CorruptError("a column of a Parquet file differs from the one written")
    finally:
        with suppress(WarpError):
            probe.writer.delete(key)
    return Finding("parquet", "ok", f"a column read in {fetched.count} ranges, {fetched.size_bytes:,} bytes")


class _Fetched:
    """The byte ranges of an object that were read. All other bytes are zero."""

    def __init__(self, reader: Reader, key: str, size_bytes: int) -> None:
        self._reader, self._key = reader, key
        self._data = bytearray(size_bytes)
        self.count = self.size_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        self._data[start:end] = data = bytes(self._reader.read_range(self._key, ByteRange(start, end)))
        self.count += 1
        self.size_bytes += len(data)
        return data

    def file(self) -> io.BytesIO:
        return io.BytesIO(self._data)


def _read_published(probe: StoreProbe) -> Finding:
    """Read a row of a published table, the only Parquet files that a read-only store may have."""
    try:
        read = probe.read_table()
    except UnsupportedError as error:
        return Finding("parquet", "skipped", error.message)
    return Finding("parquet", "ok" if read else "skipped", read or "no table is published there yet")


def _read_marker(reader: Writer) -> Finding:
    """Read the store marker, the only object that a read-only store is known to have."""
    try:
        whole = reader.read(STORE_MARKER).data
    except ObjectNotFoundError:
        return Finding("read", "skipped", "nothing is published there yet")
    if bytes(reader.read_range(STORE_MARKER, ByteRange(1, len(whole)))) != whole[1:]:
        raise CorruptError("a range read returned the wrong bytes")
    return Finding("read", "ok", "a byte range matches")


def _create_twice(probe: StoreProbe) -> Finding:
    """Check that of two creates of the same key exactly one succeeds. Commits depend on this."""
    if probe.writer.create(probe.key, b"another"):
        raise StorageError(
            "a second create of the same key was accepted",
            hint="This store ignores If-None-Match: two publishers could lose commits. Do not publish to it.",
        )
    if probe.writer.read(probe.key).data != _PAYLOAD:
        raise CorruptError(
            "a second create failed, but its bytes replaced the first",
            hint="This store breaks create-only puts. Do not publish to it.",
        )
    return Finding("create-only", "ok", "a second create of the same key is refused")


def _compare_clocks(probe: StoreProbe, sent_at: datetime) -> Finding:
    if probe.writer.url.startswith(("file://", "memory://")):
        return Finding("clock", "ok", "same clock as the store")
    stored_at = probe.writer.stat(probe.key).modified
    if stored_at is None:
        return Finding("clock", "skipped", "unknown: the store reports no modification time")
    skew_s = _skew(stored_at, sent_at, probe.clock())
    if abs(skew_s) <= _OK_SKEW_S:
        return Finding("clock", "ok", "matches the clock of the store")
    detail = f"this machine is {seconds_text(abs(skew_s))} {'behind' if skew_s > 0 else 'ahead of'} the store"
    if abs(skew_s) >= _MAX_SKEW_S:
        return Finding(
            "clock", "failed", detail, "Synchronise the clock of this machine: S3 rejects a difference of 15 minutes."
        )
    return Finding("clock", "note", detail)


def _skew(stored_at: datetime, sent_at: datetime, seen_at: datetime) -> float:
    """Return the seconds by which the store is ahead, beyond the round trip and rounding to whole seconds."""
    earliest, latest = sent_at - timedelta(seconds=1), seen_at + timedelta(seconds=1)
    moment = stored_at.astimezone(UTC)
    if moment < earliest:
        return (moment - earliest).total_seconds()
    return max(0.0, (moment - latest).total_seconds())


def _check_deleted(probe: StoreProbe) -> Finding:
    try:
        probe.writer.stat(probe.key)
    except ObjectNotFoundError:
        return Finding("delete", "ok", "the test object is deleted")
    raise StorageError("the test object still exists after its deletion")
