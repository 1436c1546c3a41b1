"""If this fails, `warp gateway` cannot be started or used, or an operator cannot make and end S3 keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

import warpdata as wd
from warpdata.cli import warp
from warpdata.cli.label_checks import LabelConnection, check_connection


@contextmanager
def gateway(store: Path, **environment: str) -> Iterator[dict[str, Any]]:
    """Yield what `warp gateway` prints while it serves."""
    command = [sys.executable, "-m", "warpdata.cli", "gateway", "acme/", "--store", str(store), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stdout is not None
    try:
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        yield json.loads(text)
    finally:
        process.terminate()
        process.communicate()


def link(printed: dict[str, Any], secret: str, prefix: str = "trips/HEAD/") -> LabelConnection:
    return LabelConnection(printed["endpoint"], printed["access_key"], secret, printed["bucket"], prefix)


def test_a_gateway_serves_with_the_key_that_it_prints(tmp_path: Path) -> None:
    wd.DatasetBuilder("acme/trips", str(tmp_path)).add_table("main", {"id": [1]}).publish()
    with gateway(tmp_path) as printed:
        found = {one.check: one for one in check_connection(link(printed, printed["secret_key"]))}
        assert {name: one.status for name, one in found.items()} == {
            "reach": "ok",
            "credentials": "ok",
            "listing": "ok",
            "browser": "ok",
            "address": "note",
        }
        wrong = {one.check: one for one in check_connection(link(printed, "x" * 40))}
        assert wrong["credentials"].status == "failed"
        assert "proxy_set_header Host" in (wrong["credentials"].next_step or "")
        absent = {one.check: one for one in check_connection(link(printed, printed["secret_key"], "none/"))}
        assert absent["listing"].status == "failed"
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"{printed['endpoint']}/acme")  # noqa: S310 - http on loopback
    gone = next(iter(check_connection(link(printed, "x"))))
    assert gone.status == "failed"
    assert "warp serve" in (gone.next_step or "")


def test_a_gateway_takes_its_key_from_the_environment(tmp_path: Path) -> None:
    wd.DatasetBuilder("acme/trips", str(tmp_path)).add_table("main", {"id": [1]}).publish()
    key = {"WARP_GATEWAY_ACCESS_KEY": "WDEXAMPLE0000000000A", "WARP_GATEWAY_SECRET_KEY": "k" * 40}
    with gateway(tmp_path, **key) as printed:
        assert printed["access_key"] == key["WARP_GATEWAY_ACCESS_KEY"]
        assert printed["secret_key"] is None
        assert next(iter(check_connection(link(printed, "k" * 40)))).status == "ok"


def run(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(warp, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_an_operator_makes_and_ends_keys() -> None:
    run("server", "user", "ana", "--admin")
    made = run("server", "s3-key", "ana", "acme/pets@v1", "--right", "inbox", "--days", "7")
    assert (len(made["access_key"]), len(made["secret_key"]), made["bucket"]) == (20, 40, "acme")
    assert run("server", "s3-revoke", "ana", made["access_key"]) == {"access_key": made["access_key"]}
    refused = CliRunner().invoke(warp, ["server", "s3-key", "ana", "Not A Place"])
    assert refused.exit_code != 0
