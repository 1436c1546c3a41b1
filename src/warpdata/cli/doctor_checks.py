"""What `warp doctor` finds out about this machine: settings, credentials, DuckDB, cache directory.

A check returns a `Finding` and never raises. What it finds out about a store is in `store_checkup`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from warpdata.cli.format import bytes_text
from warpdata.errors import WarpError
from warpdata.query import connect_open
from warpdata.settings import S3Settings, Settings
from warpdata.storage import resolve_s3

__all__ = ["Finding", "Status", "check_cache", "check_credentials", "check_duckdb", "examined"]

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


def examined(check: str, look: Callable[[], Finding], next_step: str) -> Finding:
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

    return examined("credentials", look, "Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.")


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

    return examined("DuckDB", look, "Reinstall duckdb and duckdb-extension-httpfs in the same version.")


def check_cache(folder: Path) -> Finding:
    def look() -> Finding:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"doctor")
            file.flush()
        free = shutil.disk_usage(folder).free
        detail = f"{folder} is writable, {bytes_text(free)} free"
        return Finding("cache", "note" if free < _LITTLE_SPACE_BYTES else "ok", detail)

    return examined("cache", look, "Make the directory writable, or set WARP_CACHE_DIR to another.")
