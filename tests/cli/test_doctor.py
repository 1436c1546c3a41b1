"""If this fails, `warp doctor` passes a broken setup, or fails a working one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import warpdata as wd
from tests.cli.scenes import ask, publish, run
from tests.web_server import serving
from warpdata.cli.commands.doctor import read_table
from warpdata.cli.doctor_checks import (
    Finding,
    Status,
    StoreProbe,
    check_cache,
    check_credentials,
    check_images,
    check_machine,
    check_store,
    run_check,
)
from warpdata.errors import AuthenticationError, DeniedError, ErrorKind
from warpdata.formats.media import JpegDecoder
from warpdata.primitives.concurrency import usable_cores
from warpdata.settings import load_settings
from warpdata.storage import ByteRange, ObjectInfo, open_store
from warpdata.testing import FaultyStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class OverwritingStore(FaultyStore):
    """A server that ignores If-None-Match: every create succeeds and replaces the object."""

    def create(self, key: str, data: bytes) -> bool:
        self.replace(key, data)
        return True


class ReplacingStore(FaultyStore):
    """A server that reports a conflict for a second create, but stores its bytes."""

    def create(self, key: str, data: bytes) -> bool:
        made = super().create(key, data)
        self.replace(key, data)
        return made


class ReadOnlyStore(FaultyStore):
    def create(self, key: str, data: bytes) -> bool:
        raise DeniedError(f"{self.url} is read-only", kind=ErrorKind.READ_ONLY_STORE)


class WrongRangeStore(FaultyStore):
    """A proxy that answers every range request with the beginning of the object."""

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        return super().read_range(key, ByteRange(0, span.size_bytes))


class RemoteStore(FaultyStore):
    """A store on another machine, with a clock that is `ahead_s` ahead."""

    ahead_s = 0.0
    reports_time = True

    @property
    def url(self) -> str:
        return "s3://remote"

    def stat(self, key: str) -> ObjectInfo:
        found = super().stat(key)
        modified = NOW + timedelta(seconds=self.ahead_s) if self.reports_time else None
        return ObjectInfo(found.key, found.size_bytes, found.etag, modified)


def examine(kind: type[FaultyStore], name: str) -> dict[str, Finding]:
    store = kind(open_store(f"memory://{name}", load_settings()))
    findings = {finding.check: finding for finding in check_store(StoreProbe(store, "doctor/test", lambda: NOW))}
    assert [info.key for info in store.list_objects("doctor")] == []
    for finding in findings.values():
        assert (finding.status == "failed") is (finding.next_step is not None), finding
    return findings


def test_working_setup_passes(tmp_path: Path) -> None:
    shown = ask("doctor")
    assert shown["ok"] is True
    assert {check["status"] for check in shown["checks"]} == {"ok"}
    assert [check["check"] for check in shown["checks"]] == [
        "settings",
        "threads",
        "requests",
        "memory",
        "credentials",
        "DuckDB",
        "images",
        "cache",
        "store",
        "write",
        "read",
        "parquet",
        "create-only",
        "clock",
        "delete",
    ]
    text = " ".join(run("doctor", "--store", str(tmp_path / "other")).stdout.split())
    assert "all checks passed" in text
    assert "nothing is published there yet" in text
    publish()
    assert ask("doctor")["ok"] is True


def test_the_image_decoder_and_its_reason_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_images().detail.startswith("JPEG by ")
    pillow = JpegDecoder("Pillow", "13.0", "simplejpeg is not installed", True, None)
    monkeypatch.setattr("warpdata.cli.doctor_checks.choose_jpeg_decoder", lambda: pillow)
    assert check_images().status == "note"
    assert "JPEG by Pillow 13.0: simplejpeg is not installed; pip install" in check_images().detail
    monkeypatch.setattr("warpdata.cli.doctor_checks.choose_jpeg_decoder", lambda: replace(pillow, version=""))
    assert check_images().detail.startswith("no decoder is installed")


def test_memory_store_passes() -> None:
    assert ask("doctor", "--store", "memory://doctor")["ok"] is True
    assert {finding.status for finding in examine(FaultyStore, "working").values()} == {"ok"}


@pytest.mark.s3
def test_s3_server_passes(s3_url: str, s3_environment: None) -> None:
    shown = ask("doctor", "--store", s3_url)
    assert {check["check"]: check["status"] for check in shown["checks"]} == dict.fromkeys(
        [
            *("settings", "threads", "requests", "memory", "credentials", "DuckDB", "images", "cache"),
            *("store", "write"),
            *("read", "parquet", "create-only", "clock", "delete"),
        ],
        "ok",
    )
    details = {check["check"]: check["detail"] for check in shown["checks"]}
    assert details["clock"] == "matches the clock of the store"
    assert details["credentials"].endswith("accepted by the store")
    assert details["parquet"].startswith("a column read in 3 ranges")
    assert "secret" not in json.dumps(shown)


@pytest.mark.s3
def test_wrong_keys_fail(s3_url: str, s3_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    result = run("doctor", "--store", s3_url)
    assert result.exit_code == 7
    assert "does not accept these credentials" in " ".join(result.stdout.split())
    assert "→" in result.stdout
    checks = {one["check"]: one for one in json.loads(run("doctor", "--store", s3_url, "--json").stdout)["checks"]}
    assert checks["credentials"]["status"] == "failed", "keys that are set but wrong are not credentials"
    assert "AWS_PROFILE" in checks["credentials"]["next_step"]


@pytest.mark.parametrize(("kind", "text"), [(OverwritingStore, "accepted"), (ReplacingStore, "replaced the first")])
def test_store_without_create_only_fails(kind: type[FaultyStore], text: str) -> None:
    found = examine(kind, kind.__name__)
    assert found["create-only"].status == "failed"
    assert text in found["create-only"].detail
    assert "Do not publish to it" in (found["create-only"].next_step or "")


def test_wrong_ranges_fail() -> None:
    found = examine(WrongRangeStore, "wrong-range")
    assert found["read"].status == "failed"
    assert "range" in found["read"].detail


def test_read_only_store_passes() -> None:
    found = examine(ReadOnlyStore, "read-only-empty")
    assert {check: finding.status for check, finding in found.items()} == {
        "store": "ok",
        "write": "note",
        "read": "skipped",
        "parquet": "skipped",
        "clock": "skipped",
    }
    open_store("memory://read-only", load_settings()).create("warp-store.json", b'{"format":1}')
    assert examine(ReadOnlyStore, "read-only")["read"].status == "ok"


def test_parquet_of_read_only_store_is_read() -> None:
    """A read-only store has only what others published, so the check reads a row of it."""
    store = ReadOnlyStore(open_store("memory://read-only-parquet", load_settings()))
    assert read_table(wd.connect()) is None
    publish("acme/trips")
    probe = StoreProbe(store, "doctor/test", lambda: NOW, lambda: read_table(wd.connect()))
    found = {finding.check: finding for finding in check_store(probe)}
    assert (found["parquet"].status, found["parquet"].detail) == ("ok", "the first row of acme/trips, by byte ranges")


def test_web_server_passes_without_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARP_STORE", str(tmp_path))
    publish("acme/trips")
    with serving(tmp_path) as server:
        shown = ask("doctor", "--store", server.url)
    status = {check["check"]: check["status"] for check in shown["checks"]}
    assert (status["read"], status["write"], status["parquet"]) == ("ok", "note", "skipped")


class SplicingStore(FaultyStore):
    """A proxy that answers ranges of Parquet files with bytes of another position."""

    def read_range(self, key: str, span: ByteRange) -> memoryview:
        data = super().read_range(key, span)
        is_column = key.endswith(".parquet") and span.start < 1000
        return memoryview(bytes(reversed(data))) if is_column else data


def test_wrong_parquet_range_fails() -> None:
    found = examine(SplicingStore, "splicing")
    assert (found["read"].status, found["parquet"].status) == ("ok", "failed")


def test_unsupported_store_format_fails() -> None:
    open_store("memory://newer", load_settings()).create("warp-store.json", b'{"format":3}')
    found = examine(FaultyStore, "newer")
    assert (found["store"].status, found["store"].next_step) == ("failed", "Upgrade warpdata.")


@pytest.mark.parametrize(
    ("ahead_s", "status", "text"),
    [
        (0.0, "ok", "matches"),
        (1.9, "ok", "matches"),
        (-60.0, "note", "ahead of the store"),
        (60.0, "note", "behind the store"),
        (3600.0, "failed", "59 min"),
        (None, "skipped", "unknown"),
    ],
)
def test_clock_skew(ahead_s: float | None, status: Status, text: str) -> None:
    class Shifted(RemoteStore):
        pass

    Shifted.ahead_s, Shifted.reports_time = ahead_s or 0.0, ahead_s is not None
    found = examine(Shifted, f"clock{ahead_s}")["clock"]
    assert found.status == status
    assert text.replace("59", "60") in found.detail or text in found.detail


@pytest.fixture
def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def hanging_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def s3_at(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")


def test_unreachable_endpoint_fails(closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_at(closed_port, monkeypatch)
    result = run("doctor", "--store", "s3://bucket/x", "--json")
    assert result.exit_code == 7
    checks = {check["check"]: check for check in json.loads(result.stdout)["checks"]}
    assert checks["store"]["status"] == "failed"
    assert "network" in checks["store"]["next_step"]
    assert checks["write"]["status"] == "skipped"
    assert "hidden" not in result.stdout


def test_hanging_endpoint_fails(hanging_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_at(hanging_port, monkeypatch)
    monkeypatch.setenv("WARP_TIMEOUT_S", "1")
    monkeypatch.setenv("WARP_RETRY_TIMEOUT_S", "1")
    result = run("doctor", "--store", "s3://bucket/x")
    assert result.exit_code == 7
    assert "WARP_TIMEOUT_S" in result.stdout


def test_next_step_does_not_name_doctor() -> None:
    def fail() -> Finding:
        raise AuthenticationError("no keys", hint="Set AWS_PROFILE; `warp doctor` checks them.")

    assert run_check("keys", fail, "unused").next_step == "Set AWS_PROFILE."


def test_missing_credentials_have_next_step() -> None:
    result = run("doctor", "--store", "s3://bucket/x")
    assert result.exit_code == 7
    assert "AWS_PROFILE" in result.stdout


def test_invalid_settings_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "perhaps")
    result = run("doctor", "--json")
    assert result.exit_code == 7
    shown = json.loads(result.stdout)
    assert shown["store"] is None
    assert shown["checks"][0]["next_step"] == "Use true or false."


def test_origin_of_keys_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def detail() -> str:
        return check_credentials("s3://bucket", load_settings()).detail

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    assert detail() == "S3 key AKIA… from the environment; not tested"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    (tmp_path / "credentials").write_text("[lab]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = hidden\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert detail() == "S3 key AKIA… from the profile lab; not tested"
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert detail() == "anonymous S3; not tested"
    monkeypatch.delenv("AWS_SKIP_SIGNATURE")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    assert "using credentials of the instance or container" in detail()


def test_unwritable_cache_fails(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    found = check_cache(blocked / "cache")
    assert found.status == "failed"
    assert "WARP_CACHE_DIR" in (found.next_step or "")


# The machine


def budget_lines() -> dict[str, str]:
    return {finding.check: finding.detail for finding in check_machine()}


def test_doctor_shows_what_the_machine_gives_and_why() -> None:
    lines = budget_lines()
    assert lines["threads"].startswith(f"{usable_cores()}: ")
    assert "up to 256 while throughput grows" in lines["requests"]
    assert " for reads: a part of the " in lines["memory"]


def test_doctor_shows_what_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WARP_THREADS": "3", "WARP_IO_CONCURRENCY": "7", "WARP_READ_MEMORY_GB": "0.25"}.items():
        monkeypatch.setenv(name, value)
    document = ask("doctor", "--store", str(tmp_path / "store"))
    found = {check["check"]: check["detail"] for check in document["checks"]}
    assert found["threads"] == "3: set by WARP_THREADS"
    assert found["requests"] == "7 at a time: set by WARP_IO_CONCURRENCY"
    assert found["memory"].endswith("for reads: set by WARP_READ_MEMORY_GB")
