"""Testbed of the stream scenarios: a loopback S3 behind a proxy with latency, and the data of every arm in it.

Each peer writes its data once with its own writer; the data is kept under `.data` and uploaded past the proxy in
every run. An arm reads in a new process, which imports its libraries before its own clock starts.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import warpdata as wd
from benchmarks.harness.bare_store import open_bare_store, upload_in_one_part
from benchmarks.harness.data import DATA, make_once, scratch
from benchmarks.harness.process import Worker
from benchmarks.harness.proxy import Exchange, S3Proxy
from benchmarks.harness.timing import RunOptions, Timings
from benchmarks.streams.images import ImageFiles
from benchmarks.streams.peers import OURS, StreamPeer, find_stream_peers, start_worker
from benchmarks.streams.spec import ReadSpec, SourceSpec, make_features
from benchmarks.streams.worker import DATASET
from warpdata.testing import S3Endpoint, S3Server

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "TIMEOUT_S",
    "MakeSpec",
    "StreamRun",
    "Testbed",
    "common_rounds",
    "find_free_port",
    "image_source",
    "last_line",
    "open_testbed",
    "run_in_rounds",
]

MakeSpec: TypeAlias = Callable[[str], ReadSpec]
"""Returns the specification of a read, given a cache directory."""

TIMEOUT_S = 120.0
_DELAY_S = 0.02
_BYTES_PER_S = 60e6
_UPLOADS = 8
_SLOW_S = 45.0
_CACHE_COUNT = 4
"""Number of cache directories that exist at a time."""

_URL_LIFETIME_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class StreamRun:
    """Answer of one process and the traffic that it caused."""

    answer: Mapping[str, Any]
    seen: Sequence[Exchange] = ()

    @property
    def ids(self) -> list[int]:
        return [number for batch in self.answer["batches"] for number in batch]

    @property
    def request_count(self) -> int:
        return len(self.seen)

    @property
    def fetched_bytes(self) -> int:
        return sum(exchange.body_bytes for exchange in self.seen)

    def check_ids(self, expected: Sequence[int]) -> StreamRun:
        """Return the run itself; raise RuntimeError if a sample was lost or repeated."""
        received, due = Counter(self.ids), Counter(expected)
        lost, repeated = (due - received).total(), (received - due).total()
        if lost or repeated:
            raise RuntimeError(f"{lost} samples lost, {repeated} repeated")
        return self


@dataclass(frozen=True)
class Testbed:
    """A running server, the proxy in front of it, and the peers."""

    __test__ = False

    s3: S3Endpoint
    proxy: S3Proxy
    peers: Sequence[StreamPeer]
    home: Path
    """Directory of this run, removed at its end."""

    _cache_numbers: Iterator[int] = field(default_factory=itertools.count)
    _process_numbers: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def remote(self) -> S3Endpoint:
        """Server as the arms see it, through the proxy."""
        return replace(self.s3, endpoint_url=self.proxy.endpoint_url)

    @cached_property
    def environ(self) -> dict[str, str]:
        """Environment of the processes: the proxy's address under the names that each library reads."""
        home = self.empty_directory("home")
        return {
            **self.remote.environ(),
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
            "S3_ENDPOINT_URL": self.proxy.endpoint_url,
            "NO_PROXY": "127.0.0.1,localhost",
            "LITDATA_DISABLE_VERSION_CHECK": "1",
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
        }

    @property
    def distance(self) -> str:
        """Latency and bandwidth of the proxy, in words."""
        delay_ms, rate = self.proxy.delay_s * 1e3, self.proxy.bytes_per_s / 1e6
        return f"loopback S3 with {delay_ms:.0f} ms before each response and {rate:.0f} MB/s per connection"

    def launch(self, arm: str, more: Mapping[str, str] = MappingProxyType({})) -> Worker:
        """Start a process of an arm without waiting for its imports.

        Each process has a temporary directory of its own, so that it does not find files of a killed process.
        """
        peer = self.find_peer(arm)
        temporary = self.empty_directory(f"tmp-{next(self._process_numbers) % _CACHE_COUNT}")
        environ = {**self.environ, "TMPDIR": str(temporary), **more}
        return start_worker(environ) if peer is None else peer.start(environ)

    def start(self, arm: str) -> Worker:
        """Start a process of an arm and wait for its imports."""
        worker = self.launch(arm)
        try:
            worker.call("warm_up", timeout_s=TIMEOUT_S)
        except BaseException:
            worker.close()
            raise
        return worker

    def find_peer(self, arm: str) -> StreamPeer | None:
        return next((peer for peer in self.peers if peer.name == arm), None)

    def read(self, worker: Worker, spec: ReadSpec, limit: int | None = None) -> StreamRun:
        """Read an epoch or its first batches; raise RuntimeError if the process fails."""
        self.proxy.take()
        answer = worker.call("read_epoch", timeout_s=TIMEOUT_S, limit=limit, **asdict(spec))
        return StreamRun(answer, self.proxy.take())

    def prepare_all(self, source: SourceSpec, without: Sequence[str] = ()) -> tuple[dict[str, MakeSpec], list[str]]:
        """Write and upload the data of every arm; return a note for each peer whose writer failed."""
        specs: dict[str, MakeSpec] = {OURS: self.publish(source)}
        notes = []
        for peer in (peer for peer in self.peers if peer.name not in without):
            try:
                specs[peer.name] = self.prepare(peer, source)
            except RuntimeError as error:
                notes.append(f"{peer.title} could not write its data: {last_line(error)}")
        return specs, notes

    def prepare(self, peer: StreamPeer, source: SourceSpec) -> MakeSpec:
        directory = make_once(f"{peer.name}-{source.name}", partial(self._write, peer, source))
        prefix = f"{peer.name}/{source.name}"
        keys = self._upload(directory, prefix)
        files = [key for key in keys if key.endswith((".tar", ".parquet"))]
        files = self._sign(files) if peer.name == "webdataset" else [self.s3.url(key) for key in files]
        return partial(ReadSpec, self.s3.url(prefix), kind=source.kind, files=tuple(files))

    def publish(self, source: SourceSpec, name: str | None = None) -> MakeSpec:
        """Publish with warpdata: images as an artifact with a table of references, rows as a table of many shards."""
        store = self.s3.url(f"{OURS}/{name or source.name}")
        settings = self.s3.settings(cache_dir=self.empty_directory("publish"))
        builder = wd.DatasetBuilder(DATASET, store, settings=settings)
        if source.kind == "rows":
            shards = make_once(f"ours-{source.name}", partial(_write_shards, source))
            builder.add_table("main", sorted(shards.iterdir()))
        else:
            images = ImageFiles(Path(source.directory), source.count)
            builder.add_table("main", _image_table(images)).add_artifact("raw", images.directory)
            builder.bind("main", "image", "raw", "image")
        builder.publish()
        upload_in_one_part(self.s3)
        return partial(ReadSpec, store, kind=source.kind)

    def pin_version(self, make: MakeSpec) -> MakeSpec:
        """Name the newest version of our data in the specification."""
        settings = self.s3.settings(cache_dir=self.empty_directory("publish"))
        version = wd.dataset(DATASET, store=make("").url, settings=settings).version
        return lambda cache: replace(make(cache), version=version)

    def fresh_cache(self) -> str:
        return str(self.empty_directory(f"cache-{next(self._cache_numbers) % _CACHE_COUNT}"))

    def empty_directory(self, name: str) -> Path:
        directory = self.home / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory

    def _write(self, peer: StreamPeer, source: SourceSpec, directory: Path) -> None:
        with peer.start(self.environ) as worker:
            worker.call("write", out=str(directory), **asdict(source))

    def _upload(self, directory: Path, prefix: str) -> list[str]:
        import obstore

        store = open_bare_store(self.s3)
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        keys = [f"{prefix}/{path.relative_to(directory).as_posix()}" for path in paths]

        def put(path: Path, key: str) -> None:
            obstore.put(store, key, path.read_bytes(), use_multipart=False)

        with ThreadPoolExecutor(_UPLOADS) as pool:
            list(pool.map(put, paths, keys))
        return keys

    def _sign(self, keys: Sequence[str]) -> list[str]:
        import obstore

        store = open_bare_store(self.remote)
        return list(obstore.sign(store, "GET", list(keys), timedelta(seconds=_URL_LIFETIME_S)))


@contextmanager
def open_testbed(options: RunOptions) -> Iterator[Testbed]:
    peers = find_stream_peers(options)
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server())
        proxy = stack.enter_context(S3Proxy(s3.endpoint_url, delay_s=_DELAY_S, bytes_per_s=_BYTES_PER_S))
        home = scratch(f"streams-{os.getpid()}")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        yield Testbed(s3, proxy, peers, home)


def image_source(images: ImageFiles) -> SourceSpec:
    return SourceSpec("images", images.count, str(images.directory))


def run_in_rounds(
    arms: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int
) -> tuple[dict[str, Timings], dict[str, str]]:
    """Run every arm once per round, each round in another order; return values by quantity and failures by arm.

    An arm that fails once is out. An arm that is very slow runs in the first round only.
    """
    values: dict[str, dict[str, list[float]]] = {}
    failures: dict[str, str] = {}
    slow: set[str] = set()
    names = list(arms)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if name in failures or name in slow:
                continue
            try:
                start = time.perf_counter()
                for quantity, value in arms[name]().items():
                    values.setdefault(quantity, {}).setdefault(name, []).append(value)
                if time.perf_counter() - start > _SLOW_S:
                    slow.add(name)
            except RuntimeError as error:
                failures[name] = str(error)
    kept = {
        quantity: Timings({arm: found for arm, found in by_arm.items() if arm not in failures})
        for quantity, by_arm in values.items()
    }
    return kept, failures


def common_rounds(timings: Timings, arm: str, peer: str) -> Timings:
    """Return the rounds in which both took part; a slow peer runs once."""
    rounds = min(len(timings.by_arm[arm]), len(timings.by_arm[peer]))
    return Timings({name: timings.by_arm[name][:rounds] for name in (arm, peer)})


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def last_line(failure: object) -> str:
    """Return the message of an exception without its traceback."""
    lines = [line.strip() for line in str(failure).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)]
    return (lines or str(failure).strip().splitlines() or ["no message"])[-1].replace(str(DATA), "…")[:300]


def _image_table(images: ImageFiles) -> pa.Table:
    import pyarrow as pa

    numbers = range(images.count)
    return pa.table(
        {
            "id": list(numbers),
            "label": [images.label(number) for number in numbers],
            "score": [images.score(number) for number in numbers],
            "image": [path.name for path in images.paths],
        }
    )


def _write_shards(source: SourceSpec, directory: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert source.shard_rows is not None
    for number, first in enumerate(range(source.first, source.first + source.count, source.shard_rows)):
        values = make_features(first, source.shard_rows)
        columns = {f"x{n}": values[:, n] for n in range(values.shape[1])}
        table = pa.table({"id": pa.array(range(first, first + source.shard_rows)), **columns})
        pq.write_table(table, directory / f"{number:05d}.parquet", write_page_checksum=True)
