"""If this fails, the compose file of the guide starts something else than this release, or nothing at all.

Containers are not started here. Images, volumes, the proxy and the creation of the bucket are read, but not run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import click
import pytest
import yaml

from tests.server.conftest import Scene
from tests.server.postgresql import new_database
from warpdata.cli.app import warp
from warpdata.server import ServiceOptions, check_options
from warpdata.server.guard import allowed_hosts
from warpdata.testing import S3Server

EXAMPLE = Path(__file__).parents[2] / "examples" / "service"
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = ("serve", "worker")
SETTINGS: dict[str, str] = SERVICES["serve"]["environment"]


def words(name: str) -> list[str]:
    """The command of a service, with the defaults of variables."""
    return shlex.split(re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", SERVICES[name]["command"]))


def probe() -> str:
    """The program of the health check of `serve`."""
    kind, python, flag, program = SERVICES["serve"]["healthcheck"]["test"]
    assert (kind, python, flag) == ("CMD", "python", "-c")
    return str(program)


def test_commands_are_those_of_the_command_line() -> None:
    assert 'ENTRYPOINT ["warp"]' in (EXAMPLE / "Dockerfile").read_text()
    for name in OWN:
        command, *options = words(name)
        found = warp.get_command(click.Context(warp), command)
        assert found is not None
        given = found.make_context(command, options).params
        if name == "serve":
            served = ServiceOptions(host=given["host"], port=given["port"], public_url=given["public_url"])
            check_options(served)
            assert given["no_jobs"], "jobs are for the worker"


def test_settings_are_read_by_the_code() -> None:
    known = (Path(__file__).parents[2] / "src" / "warpdata" / "settings.py").read_text()
    for name in OWN:
        assert SERVICES[name]["environment"] == SETTINGS, "all processes have the same settings"
    for name in SETTINGS:
        assert f'"{name}"' in known or f"`{name}`" in known or name in known, name
    assert len(SETTINGS["WARP_S3_MASTER_KEY"]) >= 32
    assert SETTINGS["AWS_ENDPOINT_URL"].startswith("https:") or SETTINGS["AWS_ALLOW_HTTP"] == "true"


def test_processes_find_each_other(local: Scene) -> None:
    database, given = urlsplit(SETTINGS["WARP_DATABASE"]), SERVICES["db"]["environment"]
    assert database.hostname == "db"
    assert (database.username, database.password) == (given["POSTGRES_USER"], given["POSTGRES_PASSWORD"])
    assert database.path == f"/{given['POSTGRES_DB']}"
    assert urlsplit(SETTINGS["AWS_ENDPOINT_URL"]).hostname == "store"
    (identity,) = json.loads((EXAMPLE / "s3.json").read_text())["identities"]
    keys = {"accessKey": SETTINGS["AWS_ACCESS_KEY_ID"], "secretKey": SETTINGS["AWS_SECRET_ACCESS_KEY"]}
    assert identity["credentials"] == [keys]
    assert f"--bucket {urlsplit(SETTINGS['WARP_STORE']).hostname}" in SERVICES["bucket"]["command"][0]
    port = words("serve")[words("serve").index("--port") + 1]
    assert f"reverse_proxy serve:{port}" in (EXAMPLE / "Caddyfile").read_text()
    checked = urlsplit(re.findall(r"urlopen\('([^']+)'\)", probe())[0])
    assert str(checked.port) == port
    assert checked.hostname in allowed_hosts(ServiceOptions(public_url="https://data.example.com"))
    assert local.client(None).get(checked.path).status_code == 200
    mounted = {volume.partition(":")[0] for one in SERVICES.values() for volume in one.get("volumes", ())}
    assert {name for name in mounted if not name.startswith("./")} == set(COMPOSE["volumes"])
    for name in (name for name in mounted if name.startswith("./")):
        assert (EXAMPLE / name).is_file()
    for one in SERVICES.values():
        assert set(one.get("depends_on", ())) <= set(SERVICES)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_processes_of_the_compose_file_run_by_hand(postgresql: str, tmp_path: Path) -> None:
    """PostgreSQL, an S3 server, `serve` with two processes and `worker`, with the commands and settings of the file."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with S3Server(("lake",)) as s3:
        settings = {
            **SETTINGS,
            "WARP_DATABASE": new_database(postgresql),
            "AWS_ENDPOINT_URL": s3.endpoint_url,
            "AWS_ACCESS_KEY_ID": s3.access_key_id,
            "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
        }
        serve = [port if word == "8765" else word for word in words("serve")]
        serve[serve.index("--host") + 1] = "127.0.0.1"
        with started(serve, settings), started(words("worker"), settings):
            check = [sys.executable, "-c", probe().replace("8765", port)]
            deadline = time.monotonic() + 120
            while subprocess.run(check, capture_output=True, check=False).returncode:
                assert time.monotonic() < deadline, "the service was not healthy in two minutes"
                time.sleep(0.5)
            made = json.loads(run(["server", "user", "ana", "--admin", "--json"], settings))
            assert made["name"] == "ana"
            key = json.loads(run(["server", "s3-key", "ana", "acme", "--json"], settings))
            assert len(key["secret_key"]) == 40
            (tmp_path / "a.csv").write_text("number\n1\n")
            run(["ingest", "csv", "acme/notes", str(tmp_path / "a.csv")], settings)
            secret = json.loads(run(["server", "token", "create", "ana", "--json"], settings))["secret"]
            url = f"http://localhost:{port}/api/v1/datasets"
            deadline = time.monotonic() + 120
            while "acme/notes" not in run_request(url, secret):  # the worker brings the index up to date
                assert time.monotonic() < deadline, "the worker has not seen the dataset"
                time.sleep(1)


def run_request(url: str, secret: str) -> str:
    from urllib.request import Request

    with urlopen(Request(url, headers={"Authorization": f"Bearer {secret}"})) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
        return text


def run(arguments: list[str], settings: dict[str, str]) -> str:
    """Run a command as in a container."""
    command = [sys.executable, "-m", "warpdata.cli", *arguments]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def started(arguments: list[str], settings: dict[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "warpdata.cli", *arguments]
    process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=None)
    try:
        yield
        assert process.poll() is None, "a process has ended"
    finally:
        process.terminate()
        process.wait(60)
