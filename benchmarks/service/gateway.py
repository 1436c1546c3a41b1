"""Images of 100 kB and listings through the S3 gateway, beside the S3 server SeaweedFS.

Both serve the same files on loopback, by presigned URLs. `wrk` sends requests on 16 connections from one thread, which
shares the cores with the server. The gateway verifies each signature and the checksum of each image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import urlopen

import numpy as np

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.timing import RunOptions, ScenarioUnavailableError, Timings
from benchmarks.results import Measurement, Outcome
from warpdata.primitives.parallel import IO_POOL
from warpdata.server.s3 import presign
from warpdata.storage import open_store
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_IMAGE_BYTES = 100_000
_CONNECTIONS = 16
_PREFIX = "images/v1/images/"
_SCRIPT = """local paths = {%s}
local at = 0
request = function() at = at %% #paths + 1; return wrk.format("GET", paths[at]) end
done = function(summary) io.write(string.format("FOUND %%d %%d %%d %%d\\n",
  summary.requests, summary.duration, summary.errors.status, summary.bytes)) end
"""


@dataclass(frozen=True, slots=True)
class _Server:
    """An endpoint with a key, and a bucket that has the files."""

    endpoint: str
    key: tuple[str, str]
    bucket: str

    def url(self, path: str) -> str:
        return presign(f"{self.endpoint}/{self.bucket}{path}", self.key, datetime.now(UTC), 86_400)


def run(options: RunOptions) -> Outcome:
    wrk = shutil.which("wrk")
    if wrk is None:
        raise ScenarioUnavailableError("wrk is not installed")
    images, keys, many = (50, 200, 1_000) if options.is_smoke else (300, 10_000, 100_000)
    rng, store = np.random.default_rng(7), str(scratch("gateway") / "store")
    contents = {f"{at:05}.jpg": rng.bytes(_IMAGE_BYTES) for at in range(images)}
    small = {f"small/{at:06}.jpg": b"%d" % at for at in range(keys)}
    publish("acme/images", store, contents, "files")
    publish("acme/keys", store, small, "files")
    publish("acme/many", store, {f"small/{at:06}.jpg": b"%d" % at for at in range(many)}, "tar_shards")
    with S3Server(("acme",)) as s3, gateway(store) as ours:
        peer = _Server(s3.endpoint_url, (s3.access_key_id, s3.secret_access_key), "acme")
        fill(s3, {f"{_PREFIX}{path}": data for path, data in contents.items()})
        fill(s3, {f"keys/v1/images/{path}": data for path, data in small.items()})
        servers = {"ours": ours, "SeaweedFS": peer}
        reads = {name: [server.url(f"/{_PREFIX}{path}") for path in contents] for name, server in servers.items()}
        images_s = rounds(options, {name: lambda urls=urls: load(wrk, urls, options) for name, urls in reads.items()})
        listed_s = rounds(
            options,
            {name: lambda one=server: list_keys(one, "keys/v1/images/", keys) for name, server in servers.items()},
        )
        many_s = rounds(options, {"ours": lambda: list_keys(ours, "many/v1/images/", many)})
    return Outcome(
        title="The S3 gateway",
        method=f"Images of 100 kB by presigned URLs, {_CONNECTIONS} connections of wrk; listings in pages of 1,000.",
        measurements=[
            images_s.compare("GET of images", "ours", "SeaweedFS", unit="requests/s", promise="gateway-reads"),
            listed_s.compare(f"listing {keys:,} keys", "ours", "SeaweedFS"),
            Measurement(
                case=f"listing {many:,} keys", unit="s", ours=many_s.median_s("ours"), promise="gateway-listing"
            ),
        ],
        notes=["SeaweedFS returns stored bytes; the gateway also compares them with the checksums of the version."],
    )


def publish(dataset_id: str, store: str, files: dict[str, bytes], kind: Any) -> None:
    wd.DatasetBuilder(dataset_id, store).add_artifact("images", files, kind=kind).publish(label="v1")


def fill(s3: S3Endpoint, objects: dict[str, bytes]) -> None:
    store = open_store(s3.url(), s3.settings())
    IO_POOL.map_all(lambda item: store.create(*item), list(objects.items()))


@contextmanager
def gateway(store: str) -> Iterator[_Server]:
    """Run `warp gateway` in a process of its own."""
    command = [sys.executable, "-m", "warpdata.cli", "gateway", "acme/", "--store", store, "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            break
    printed = json.loads(text)
    try:
        yield _Server(printed["endpoint"], (printed["access_key"], printed["secret_key"]), printed["bucket"])
    finally:
        process.terminate()
        process.communicate()


def rounds(options: RunOptions, arms: dict[str, Any]) -> Timings:
    """Run all arms in turn, in another order each round. The first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for number in range(options.rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            took_s = arms[name]()
            if number or options.is_smoke:
                times[name].append(took_s)
    return Timings(times)


def load(wrk: str, urls: Sequence[str], options: RunOptions) -> float:
    """Return the seconds for one request under load."""
    parts = [urlsplit(url) for url in urls]
    script = Path(scratch("gateway-wrk"), "paths.lua")
    script.write_text(_SCRIPT % ",".join(json.dumps(f"{part.path}?{part.query}") for part in parts))
    seconds = 1 if options.is_smoke else 3
    command = [wrk, "-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s", "-s", str(script), f"http://{parts[0].netloc}"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"FOUND (\d+) (\d+) (\d+) (\d+)", printed)
    assert found is not None, printed
    count, micros, errors, size_bytes = map(int, found.groups())
    assert not errors, printed
    assert size_bytes > count * _IMAGE_BYTES * 0.95, printed
    return micros / 1e6 / count


def list_keys(server: _Server, prefix: str, expected: int) -> float:
    """Return the seconds for listing all keys of a prefix."""
    start, count, token = time.perf_counter(), 0, ""
    while True:
        following = f"&continuation-token={quote(token, safe='')}" if token else ""
        url = server.url(f"?list-type=2&max-keys=1000&prefix={quote(prefix, safe='')}{following}")
        with urlopen(url) as answer:  # noqa: S310 - http on loopback
            page = answer.read().decode()
        count += page.count("<Key>")
        found = re.search("<NextContinuationToken>([^<]+)<", page)
        if found is None:
            break
        token = found[1]
    assert count == expected, (count, expected)
    return time.perf_counter() - start
