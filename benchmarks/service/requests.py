"""The service beside a store's own server and beside the library: start, bytes of files, uploads, samples, readers.

The service is a process of its own, with SQLite, on a loopback port. Small images are compared with SeaweedFS over
HTTP, because a user of a service has a network in between; its server returns stored bytes, and the service compares
them with the checksums of the version. The library reads the store in this process, so the difference to it is that of
HTTP, roles and a second process.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import pyarrow as pa

import warpdata as wd
from benchmarks.harness.data import scratch
from benchmarks.harness.timing import RunOptions, interleave_all
from benchmarks.results import Measurement, Outcome
from benchmarks.service.gateway import fill, rounds
from benchmarks.service.load import run_load
from warpdata import Settings
from warpdata.server.s3 import presign
from warpdata.testing import S3Server

__all__ = ["run"]

_IMAGE_BYTES, _LARGE_BYTES = 300_000, 64 * 1024 * 1024
_CONNECTIONS = 16
_ROUTE = "/api/v1/datasets/bench/images"
_NUMBERS = count()


@dataclass(frozen=True)
class _Server:
    url: str
    start_s: float
    rss_bytes: int

    def get(self, path: str, **query: object) -> bytes:
        """Send a request on a connection of its own, and return the body."""
        return next(self.get_all([path], **query))

    def get_all(self, paths: Iterable[str], **query: object) -> Iterator[bytes]:
        """Send requests one after another on one connection, and yield the bodies."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        try:
            for path in paths:
                connection.request("GET", f"{path}?{urlencode(query)}")
                reply = connection.getresponse()
                data = reply.read()
                assert reply.status == 200, (reply.status, data[:200])
                yield data
        finally:
            connection.close()


def run(options: RunOptions) -> Outcome:
    images, rows, files = (20, 10_000, 50) if options.is_smoke else (200, 1_000_000, 2_000)
    readers = 20 if options.is_smoke else 500
    store = scratch("service-store")
    _publish(store, images, rows)
    with _serving(store) as server:
        measurements = [
            Measurement(case="until the first answer can come", unit="s", ours=server.start_s, promise="service-start"),
            Measurement(
                case="memory at rest",
                unit="MB",
                ours=server.rss_bytes / 1e6,
                quantity="memory",
                promise="service-memory",
            ),
            _images(server, store, images, options),
            *_transfers(server, store, images, files, options.rounds),
            *_samples(server, options),
            _readers(server, images, readers),
        ]
    return Outcome(
        title="Requests to the service",
        method="One process with SQLite on loopback, beside SeaweedFS over HTTP, and the library in this process.",
        measurements=measurements,
    )


@contextmanager
def _serving(store: Path) -> Iterator[_Server]:
    command = [sys.executable, "-m", "warpdata.cli", "serve", "--no-sign-in", "--no-jobs", "--json", "--port", "0"]
    command += ["--store", str(store), "--database", f"sqlite:///{scratch('service-database')}/service.db"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        start_s = time.perf_counter() - began
        status = Path(f"/proc/{process.pid}/status").read_text()
        rss = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) * 1024
        try:
            yield _Server(json.loads(text)["url"], start_s, rss)
        finally:
            process.terminate()


def _publish(store: Path, images: int, rows: int) -> None:
    rng = np.random.default_rng(0)
    files = {f"{at}.jpg": rng.bytes(_IMAGE_BYTES) for at in range(images)} | {"large.bin": rng.bytes(_LARGE_BYTES)}
    labels = pa.array([f"label {at}" for at in range(100)]).take(pa.array(rng.integers(0, 100, rows)))
    table = pa.table({"id": np.arange(rows), "score": rng.random(rows), "label": labels})
    builder = wd.DatasetBuilder("bench/images", str(store)).add_artifact("images", files, kind="files")
    builder.add_table("main", table).publish(replace=True)


def _images(server: _Server, store: Path, images: int, options: RunOptions) -> Measurement:
    """Measure images of 300 kB over many connections, beside those of a store's own server."""
    dataset = wd.dataset("bench/images", store=str(store))
    artifact, seconds = dataset.artifact("images"), 1 if options.is_smoke else 3
    with S3Server(("bench",)) as s3:
        key, now = (s3.access_key_id, s3.secret_access_key), datetime.now(UTC)
        fill(s3, {f"{at}.jpg": artifact.read(f"{at}.jpg") for at in range(images)})
        urls = {
            "service": [f"{server.url}{_ROUTE}/images/{at}.jpg?ref={dataset.version}" for at in range(images)],
            "SeaweedFS": [presign(f"{s3.endpoint_url}/bench/{at}.jpg", key, now, 86_400) for at in range(images)],
        }
        loads = {name: lambda urls=urls: _load(urls, seconds) for name, urls in urls.items()}
        measured = rounds(options, loads)
    case = f"images of 300 kB, {_CONNECTIONS} connections"
    return measured.compare(case, "service", "SeaweedFS", unit="requests/s", promise="service-small")


def _load(urls: list[str], seconds: float) -> float:
    return run_load(urls, connections=_CONNECTIONS, seconds=seconds).seconds_per_request


def _transfers(server: _Server, store: Path, images: int, files: int, rounds: int) -> list[Measurement]:
    dataset = wd.dataset("bench/images", store=str(store))
    artifact, ref = dataset.artifact("images"), dataset.version
    folder = scratch("service-folder")
    for at in range(files):
        (folder / f"{at}.bin").write_bytes(at.to_bytes(4, "big") * 1000)
    settings = Settings(store_url=str(store), cache_dir=scratch("service-cache"))
    far = wd.connect(server.url.replace("http", "warp+http", 1), settings)
    near = wd.connect(str(store), settings)

    def upload(session: wd.Connection) -> Callable[[], int]:
        collection = session.collection(f"bench/upload-{next(_NUMBERS)}")
        return lambda: collection.upload(folder).added_files

    def small() -> int:
        paths = [f"{_ROUTE}/images/{at}.jpg" for at in range(images)]
        return sum(len(data) for data in server.get_all(paths, ref=ref))

    timings = interleave_all(
        {
            "small": {
                "service": lambda: small,
                "store": lambda: lambda: sum(len(artifact.read(f"{at}.jpg")) for at in range(images)),
            },
            "large": {
                "service": lambda: lambda: len(server.get(f"{_ROUTE}/images/large.bin", ref=ref)),
                "store": lambda: lambda: len(artifact.read("large.bin")),
            },
            "upload": {"service": lambda: upload(far), "store": lambda: upload(near)},
        },
        rounds,
    )
    cases = {
        "small": (f"{images} images of 300 kB, one after another", ""),
        "large": ("one file of 64 MiB", "service-large"),
        "upload": (f"upload of {files:,} files of 4 kB to a collection", "service-upload"),
    }
    return [
        timings[name].compare(case, "service", "store", peer_name="the library", promise=promise)
        for name, (case, promise) in cases.items()
    ]


def _samples(server: _Server, options: RunOptions) -> list[Measurement]:
    """Measure pages of samples: plain ones, and those of filters that were not asked before."""
    asked = 10 if options.is_smoke else 60
    found = []
    cases = (("a page of 100 samples", ""), ("a page of 100 samples by a new filter", "score > 0.{}"))
    for case, where in cases:
        times = []
        for at in range(asked):
            began = time.perf_counter()
            server.get(f"{_ROUTE}/samples", limit=100, filter=where.format(at + 100))
            times.append(1e3 * (time.perf_counter() - began))
        p95 = statistics.quantiles(times, n=20)[-1]
        detail = f"median {statistics.median(times):.0f} ms"
        found.append(Measurement(case=f"{case}, P95", unit="ms", ours=p95, promise="service-samples", detail=detail))
    return found


def _readers(server: _Server, images: int, readers: int) -> Measurement:
    """Count the errors of many readers at once, each with a connection of its own."""

    def read(at: int) -> bool:
        try:
            return len(server.get(f"{_ROUTE}/images/{at % images}.jpg")) == _IMAGE_BYTES
        except (OSError, AssertionError, http.client.HTTPException):
            return False

    with ThreadPoolExecutor(readers) as pool:
        failed = readers - sum(pool.map(read, range(readers)))
    return Measurement(
        case=f"errors of {readers} readers at once",
        unit="errors",
        ours=failed,
        quantity="errors",
        promise="service-readers",
    )
