"""If this fails, `warp serve` does not start, lets strangers in, or does not end."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from email.message import Message
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tests.server.conftest import publish
from warpdata.cli.app import warp


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
        process.communicate()  # closes the pipes


@contextmanager
def open_url(url: str, cookie: str = "") -> Iterator[http.client.HTTPResponse]:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Cookie": cookie} if cookie else {})
        with connection.getresponse() as answer:
            yield answer


def get(url: str, cookie: str = "") -> tuple[int, bytes, Message]:
    with open_url(url, cookie) as answer:
        return answer.status, answer.read(), answer.headers


def test_serve_sign_in_and_look(tmp_path: Path) -> None:
    publish(str(tmp_path / "store"), "acme/pets")
    with serving(tmp_path) as (process, printed):
        url = printed["url"]
        assert get(f"{url}/healthz")[0] == get(f"{url}/readyz")[0] == 200
        _, page, headers = get(url + "/")
        assert b"/api/v1" in page
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert get(f"{url}/api/v1/datasets")[0] == 401
        status, _, headers = get(printed["sign_in_url"])
        assert status == 303
        cookie = headers["set-cookie"].partition(";")[0]
        assert get(printed["sign_in_url"])[0] == 401
        assert get(f"{url}/api/v1/datasets/acme/pets/samples", cookie)[0] == 200
        assert get(f"{url}/api/v1/datasets/acme/pets/images/cats%2F1.png", cookie)[1].startswith(b"\x89PNG")
        with open_url(f"{url}/api/v1/events", cookie) as events:
            assert events.readline() == b": connected\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0  # an open stream does not keep it
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("options", [("--host", "::", "--no-sign-in"), ("--host", "::")])
def test_strangers_are_refused_before_anything_listens(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = CliRunner().invoke(warp, ["serve", "--port", "0", "--store", str(tmp_path), *options])
    assert done.exit_code == 5
    assert "hint:" in done.stderr


def test_an_operator_makes_users_and_tokens(tmp_path: Path) -> None:
    publish(str(tmp_path / "store"), "acme/pets", 2)
    database = f"sqlite:///{tmp_path}/service.db"

    def run(*words: str, code: int = 0) -> str:
        place = ["--database", database, "--store", str(tmp_path / "store")]
        done = CliRunner().invoke(warp, ["server", *words, *place])
        assert done.exit_code == code, done.stderr
        return done.stdout

    assert json.loads(run("reindex", "--json")) == {"datasets": 1, "changed": 1, "removed": 0}
    run("user", "ci")
    run("role", "ci", "acme/pets", "viewer")
    secret = json.loads(run("token", "ci", "--json"))["secret"]
    assert secret.startswith("wd_")
    assert json.loads(run("audit", "--json")) == {"first_altered": None}
    run("token", "nobody", code=3)
