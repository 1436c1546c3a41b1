"""If this fails, cached data is missing when the network is down, or is corrupt."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import warpdata as wd
from tests.cli.scenes import PROGRAM, ask, run, run_program
from tests.cli.test_app import loaded
from tests.cli.throttle import Throttle
from tests.ingest.scenes import plant, png
from warpdata.session import open_cache
from warpdata.testing import S3Endpoint

pytestmark = pytest.mark.s3
UNREACHABLE = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}


@pytest.fixture
def on_s3(s3_url: str, s3_environment: None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WARP_STORE", s3_url)
    return s3_url


@pytest.fixture
def pets(on_s3: str, tmp_path: Path) -> dict[str, bytes]:
    """Ingest eight images of 40 kB in four shards."""
    files = {f"{pet}/{n}.png": png(n) + os.urandom(40_000) for pet in ("cat", "dog") for n in range(4)}
    plant(tmp_path / "pets", {**files})
    assert ask("ingest", "imagefolder", "acme/pets", str(tmp_path / "pets"), "--shard-size", "100kB")["changed"]
    return files


def cached_files() -> Iterator[Path]:
    """Yield the cached blobs, whose names have 64 digits."""
    return (path for path in (open_cache().directory / "blobs").glob("??/*") if len(path.name) == 64)


def test_warmed_dataset_is_readable_without_network(pets: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(iter(pets))
    assert run("cat", "acme/pets", "--ref", first, "--mode", "remote").stdout_bytes == pets[first]
    assert ask("cache", "stats")["entries"] == 0
    warmed = ask("warm", "acme/pets")
    assert list(warmed) == list(loaded("warm").json_keys)
    assert (warmed["present_bytes"], warmed["skipped_bytes"]) == (0, 0)
    assert warmed["fetched_bytes"] == sum(blob.byte_size for blob in wd.dataset("acme/pets").blobs())
    again = ask("warm", "acme/pets")
    assert (again["fetched_bytes"], again["present_bytes"]) == (0, warmed["fetched_bytes"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", UNREACHABLE["AWS_ENDPOINT_URL"])
    refs = [word for name in pets for word in ("--ref", name)]
    local = subprocess.run(
        [*PROGRAM, "cat", "acme/pets", "--mode", "local", *refs], capture_output=True, timeout=60, check=True
    )
    assert local.stdout == b"".join(pets.values())
    assert [row["image"] for row in ask("head", "acme/pets", "-n", "9", "--mode", "local")["rows"]] == list(pets)
    assert [member["path"] for member in ask("members", "acme/pets", "--mode", "local")["members"]] == list(pets)
    monkeypatch.setenv("WARP_MODE", "local")
    assert ask("info", "acme/pets")["rows"] == 8


def test_local_mode_without_warming_suggests_warm(pets: dict[str, bytes]) -> None:
    ask("info", "acme/pets")
    result = run("cat", "acme/pets", "--ref", next(iter(pets)), "--mode", "local")
    assert (result.exit_code, result.stdout_bytes) == (3, b"")
    assert "warp warm" in result.stderr


def test_warm_part_of_dataset(pets: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("warm", "acme/pets", "--tables", "main")["blobs"] == 1
    two = ask("warm", "acme/pets", "--artifacts", "raw_images", "--shards", "1:3")
    assert two["blobs"] == 3
    assert 150_000 < two["fetched_bytes"] < 200_000
    bounded = ask("warm", "acme/pets", "--max-bytes", "100kB")
    assert bounded["fetched_bytes"] + bounded["present_bytes"] <= 100_000
    assert bounded["skipped_bytes"] > 200_000
    assert "skipped" in run("warm", "acme/pets", "--max-bytes", "100kB").stderr
    monkeypatch.setenv("WARP_MODE", "local")
    assert ask("warm", "acme/pets")["fetched_bytes"] > 0, "warm downloads even in local mode"


def test_stats_gc_and_clear(pets: dict[str, bytes]) -> None:
    for name in ("stats", "gc", "verify"):
        assert list(ask("cache", name)) == list(loaded(f"cache {name}").json_keys)
    warmed = ask("warm", "acme/pets")["fetched_bytes"]
    full = ask("cache", "stats")
    assert (full["entries"], full["size_bytes"], full["parts"]) == (6, warmed, 0)
    assert full["folder"] == str(open_cache().directory)
    assert "6 files" in run("cache", "stats").stdout
    assert ask("cache", "gc")["evicted_entries"] == 0
    # The warmed files may still be in use in this process, so another process evicts.
    evicted = json.loads(run_program("cache", "gc", "--limit", "200kB", "--json").stdout)
    remaining = ask("cache", "stats")
    assert evicted["evicted_entries"] + evicted["kept_in_use"] > 0
    assert remaining["entries"] == 6 - evicted["evicted_entries"]
    assert remaining["size_bytes"] == warmed - evicted["evicted_bytes"]
    refused = run("cache", "clear")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert ask("cache", "stats") == remaining
    cleared = run_program("cache", "clear", "--yes")
    assert cleared.returncode == 0
    assert cleared.stdout.startswith("removed ")


@pytest.mark.parametrize(("answer", "remaining"), [(b"n\n", 6), (b"y\n", 0)])
def test_clear_asks_for_confirmation(pets: dict[str, bytes], answer: bytes, remaining: int) -> None:
    assert run_program("warm", "acme/pets").returncode == 0
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, "cache", "clear"], stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal
    ) as program:
        os.close(terminal)
        shown = b""
        while b"?" not in shown:
            shown += os.read(controller, 1000)
        assert b"Remove 6 files" in shown
        os.write(controller, answer)
        assert program.wait(timeout=30) == 0
    os.close(controller)
    assert ask("cache", "stats")["entries"] == remaining


def test_corrupt_file_is_found_and_fetched_again(pets: dict[str, bytes]) -> None:
    assert run_program("warm", "acme/pets").returncode == 0
    valid = run("cache", "verify")
    assert valid.exit_code == 0
    assert "6 files" in valid.stdout
    victim = max(cached_files(), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.chmod(0o644)
    victim.write_bytes(data)
    result = run_program("cache", "verify", "--json")
    assert result.returncode == 8
    found = json.loads(result.stdout)
    assert (found["ok"], [damage["hash"] for damage in found["damaged"]]) == (False, [victim.name])
    assert result.stderr == "", "the document says what was removed"
    assert run_program("cache", "verify").returncode == 0
    assert ask("warm", "acme/pets")["fetched_bytes"] == len(data)


def test_ctrl_c_leaves_valid_cache(
    on_s3: str, s3_server: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete files stay, the next run fetches the rest, and partial files are never served."""
    files = {f"{n}.bin": os.urandom(1_000_000) for n in range(12)}
    wd.DatasetBuilder("acme/raw").add_artifact("raw", files, shard_bytes=1_000_000).publish()
    server = urlsplit(s3_server.endpoint_url)
    with Throttle(str(server.hostname), server.port or 80, bytes_per_s=4_000_000) as slow:
        environment = {**os.environ, "AWS_ENDPOINT_URL": slow.url}
        with subprocess.Popen(
            [*PROGRAM, "warm", "acme/raw"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as program:
            slow.wait_for(5_500_000)
            program.send_signal(signal.SIGINT)
            assert program.wait(timeout=20) == 130
            assert program.stderr is not None
            assert program.stderr.read() == b"interrupted\n"
    kept = ask("cache", "stats")
    assert 0 < kept["entries"] < 13
    assert run_program("cache", "verify").returncode == 0
    resumed = ask("warm", "acme/raw")
    assert resumed["fetched_bytes"] > 0
    assert resumed["present_bytes"] == kept["size_bytes"]
    assert ask("cache", "stats")["parts"] == 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", UNREACHABLE["AWS_ENDPOINT_URL"])
    opened = wd.dataset("acme/raw", mode="local").artifact()
    assert {name: opened.read(name) for name in files} == files
