"""If this fails, `warp serve` does not start, lets strangers in, or does not end."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.conftest import publish


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run `warp serve` on a free port, and yield the process and what it printed."""
    command = [
        sys.executable,
        "-m",
        "warpdata.cli",
        "serve",
        "--json",
        "--port",
        "0",
        "--store",
        str(tmp_path / "store"),
    ]
    database = ["--database", f"sqlite:///{tmp_path}/service.db"]
    process = subprocess.Popen(
        [*command, *database, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        yield process, json.loads(text)
    finally:
        process.kill()
        process.wait()


def get(url: str, cookie: str = "") -> http.client.HTTPResponse:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}?{parts.query}", headers={"Cookie": cookie} if cookie else {})
    return connection.getresponse()


def test_serve_sign_in_and_look(tmp_path: Path) -> None:
    publish(str(tmp_path / "store"), "acme/pets")
    with serving(tmp_path) as (process, printed):
        url = printed["url"]
        assert get(f"{url}/healthz").status == 200
        assert get(f"{url}/readyz").status == 200
        page = get(url + "/")
        assert b"/api/v1" in page.read()
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert get(f"{url}/api/v1/datasets").status == 401
        signed_in = get(printed["sign_in_url"])
        assert signed_in.status == 303
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        assert get(printed["sign_in_url"]).status == 401
        assert get(f"{url}/api/v1/datasets/acme/pets/samples", cookie).status == 200
        assert get(f"{url}/api/v1/datasets/acme/pets/images/cats%2F1.png", cookie).read().startswith(b"\x89PNG")
        events = get(f"{url}/api/v1/events", cookie)
        assert events.readline() == b": connected\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("options", [("--host", "::", "--no-sign-in"), ("--host", "::")])
def test_strangers_are_refused_before_anything_listens(tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--port", "0", "--store", str(tmp_path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=dict(os.environ))
    assert done.returncode == 5
    assert "hint:" in done.stderr


def test_an_operator_makes_users_and_tokens(tmp_path: Path) -> None:
    publish(str(tmp_path / "store"), "acme/pets", 2)
    database = f"sqlite:///{tmp_path}/service.db"

    def run(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "warpdata.cli", "server", *words, "--database", database]
        done = subprocess.run(
            [*command, "--store", str(tmp_path / "store")], capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout

    assert json.loads(run("reindex", "--json")) == {"datasets": 1, "changed": 1, "removed": 0}
    run("user", "ci")
    run("role", "ci", "acme/pets", "viewer")
    secret = json.loads(run("token", "ci", "--json"))["secret"]
    assert secret.startswith("wd_")
    assert json.loads(run("audit", "--json")) == {"first_altered": None}
    run("token", "nobody", code=3)
