"""Images of 100 kB and listings through the S3 gateway, beside the S3 server SeaweedFS.

Both serve the same files on loopback, by presigned URLs. A client sends requests on 16 connections from one thread,
which shares the cores with the server. The gateway verifies each signature and the checksum of each image.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.timing import RunOptions, Timings
from benchmarks.results import Measurement, Outcome
from benchmarks.service.load import run_load
from warpdata.primitives.parallel import IO_POOL
from warpdata.server.s3 import presign
from warpdata.storage import open_store
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_IMAGE_BYTES = 100_000
_CONNECTIONS = 16
_PREFIX = "images/v1/images/"


@dataclass(frozen=True, slots=True)
class _Server:
    """An endpoint with a key, and a bucket that has the files."""

    endpoint: str
    key: tuple[str, str]
    bucket: str

    def url(self, path: str) -> str:
        return presign(f"{self.endpoint}/{self.bucket}{path}", self.key, datetime.now(UTC), 86_400)


def run(options: RunOptions) -> Outcome:
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
        images_s = rounds(options, {name: lambda urls=urls: load(urls, options) for name, urls in reads.items()})
        listed_s = rounds(
            options,
            {name: lambda one=server: list_keys(one, "keys/v1/images/", keys) for name, server in servers.items()},
        )
        many_s = rounds(options, {"ours": lambda: list_keys(ours, "many/v1/images/", many)})
    return Outcome(
        title="The S3 gateway",
        method=f"Images of 100 kB by presigned URLs, {_CONNECTIONS} connections; listings in pages of 1,000.",
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


def load(urls: Sequence[str], options: RunOptions) -> float:
    """Return the seconds for one request under load."""
    found = run_load(urls, connections=_CONNECTIONS, seconds=1 if options.is_smoke else 3)
    assert found.size_bytes > found.requests * _IMAGE_BYTES, found
    return found.seconds_per_request


def list_keys(server: _Server, prefix: str, expected: int) -> float:
    """Return the seconds for listing all keys of a prefix, on one connection."""
    start, count, token = time.perf_counter(), 0, ""
    with closing(http.client.HTTPConnection(urlsplit(server.endpoint).netloc, timeout=60)) as connection:
        while True:
            following = f"&continuation-token={quote(token, safe='')}" if token else ""
            url = server.url(f"?list-type=2&max-keys=1000&prefix={quote(prefix, safe='')}{following}")
            connection.request("GET", url.removeprefix(server.endpoint))
            reply = connection.getresponse()
            page = reply.read().decode()
            assert reply.status == 200, page[:500]
            count += page.count("<Key>")
            found = re.search("<NextContinuationToken>([^<]+)<", page)
            if found is None:
                break
            token = found[1]
    assert count == expected, (count, expected)
    return time.perf_counter() - start
