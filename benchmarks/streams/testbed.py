"""Where the stream benchmarks play: a loopback S3 behind a proxy with latency, and every arm's data in it.

Each peer's data is written once by its own writer and kept under `.data`; every run uploads it, past the proxy.
A turn is one process that is started, made ready, and then timed by its own clock.
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
from benchmarks.harness.counting_proxy import Exchange
from benchmarks.harness.data import DATA, made, scratch
from benchmarks.harness.process import Child
from benchmarks.harness.proxy import LatencyProxy
from benchmarks.harness.timing import Effort, Timings
from benchmarks.media.ranges import bare_store, put_in_one_piece
from benchmarks.streams.images import Pictures
from benchmarks.streams.peers import OURS, StreamPeer, find_stream_peers, our_child
from benchmarks.streams.spec import Spec, features
from benchmarks.streams.worker import DATASET
from warpdata.testing import S3Endpoint, S3Server

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "PATIENCE_S",
    "MakeSpec",
    "Source",
    "Stage",
    "Turn",
    "against",
    "free_port",
    "in_rounds",
    "last_line",
    "lost_and_repeated",
    "open_stage",
]

MakeSpec: TypeAlias = Callable[[str], Spec]
"""What an arm is to read, given a folder for its cache."""

_UPLOADS = 8
_SLOW_S = 45.0
_CACHES = 4
"""So many are kept at a time, not those of all turns."""

PATIENCE_S = 120.0
_URL_LIFE_S = 6 * 3600


@dataclass(frozen=True, slots=True)
class Source:
    """What is streamed: pictures, or as many rows in shards of `shard_rows`."""

    kind: str
    count: int
    folder: str = ""
    shard_rows: int | None = None
    first: int = 0
    """The id of the first row."""

    shard_bytes: int | None = None
    """Where a peer is to cut pictures into smaller shards than it would."""

    @staticmethod
    def of(pictures: Pictures) -> Source:
        return Source("pictures", pictures.count, str(pictures.folder))

    @property
    def name(self) -> str:
        shape = Path(self.folder).name if self.folder else f"{self.count}by{self.shard_rows}from{self.first}"
        return f"{self.kind}-{shape}" + (f"-{self.shard_bytes}" if self.shard_bytes else "")


def _with_version(make: MakeSpec, version: str, cache: str) -> Spec:
    return replace(make(cache), version=version)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of an arm came to; `failure` where it did not come to anything."""

    answer: Mapping[str, Any] = field(default_factory=dict)
    seen: Sequence[Exchange] = ()
    failure: str = ""

    @property
    def ids(self) -> list[int]:
        return [number for batch in self.answer["batches"] for number in batch]

    @property
    def request_count(self) -> int:
        return len(self.seen)

    @property
    def fetched_bytes(self) -> int:
        return sum(exchange.body_bytes for exchange in self.seen)


@dataclass(frozen=True)
class Stage:
    """A running server, the proxy before it, and who takes part."""

    s3: S3Endpoint
    proxy: LatencyProxy
    peers: Sequence[StreamPeer]
    home: Path
    """A folder of this run's own, which goes with it."""

    _turns: Iterator[int] = field(default_factory=itertools.count)
    _launches: Iterator[int] = field(default_factory=itertools.count)

    @cached_property
    def far(self) -> S3Endpoint:
        """The server as the arms see it."""
        return replace(self.s3, endpoint_url=self.proxy.endpoint_url)

    @cached_property
    def environ(self) -> dict[str, str]:
        """For children: how to reach the server through the proxy, in the words of every library."""
        home = self.folder("home")
        return {
            **self.far.environ(),
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

    def launch(self, arm: str, more: Mapping[str, str] = MappingProxyType({})) -> Child:
        """A process of that arm, which is still starting; `more` is added to its environment.

        Its folder for temporary files is its own: what a process that was killed left there is not found again.
        """
        peer = next((peer for peer in self.peers if peer.name == arm), None)
        environ = {**self.environ, "TMPDIR": str(self.folder(f"tmp-{next(self._launches) % _CACHES}")), **more}
        return our_child(environ) if peer is None else peer.start(environ)

    def start(self, arm: str) -> Child:
        """A process of that arm, ready to go."""
        child = self.launch(arm)
        try:
            child.ask_within(PATIENCE_S, "ready")
        except BaseException:
            child.close()
            raise
        return child

    def prepare(self, peer: StreamPeer, source: Source, name: str | None = None) -> MakeSpec:
        """Have the peer write the source, and upload that. What comes back makes a spec of a cache folder."""
        folder = made(f"{peer.name}-{source.name}", partial(self._write, peer, source))
        prefix = f"{peer.name}/{name or source.name}"
        keys = self._upload(folder, prefix)
        files = [key for key in keys if key.endswith((".tar", ".parquet"))]
        files = self._signed(files) if peer.name == "webdataset" else [self.s3.url(key) for key in files]
        return partial(Spec, self.s3.url(prefix), kind=source.kind, files=tuple(files))

    def publish(self, source: Source, name: str | None = None) -> MakeSpec:
        """The same for us: pictures as an artifact with a table of references, rows as a table of many shards."""
        store = self.s3.url(f"{OURS}/{name or source.name}")
        settings = self.s3.settings(cache_dir=self.folder("publish"))
        builder = wd.DatasetBuilder(DATASET, store, settings=settings)
        if source.kind == "rows":
            builder.add_table("main", sorted(made(f"ours-{source.name}", partial(_write_shards, source)).iterdir()))
        else:
            pictures = Pictures(Path(source.folder), source.count)
            builder.add_table("main", _table_of(pictures)).add_artifact("raw", pictures.folder)
            builder.bind("main", "image", "raw", "image")
        builder.publish()
        put_in_one_piece(self.s3)
        return partial(Spec, store, kind=source.kind)

    def pinned(self, make: MakeSpec) -> MakeSpec:
        """The same of ours, with the version that is the newest now."""
        settings = self.s3.settings(cache_dir=self.folder("publish"))
        version = wd.dataset(DATASET, store=make("").url, settings=settings).version
        return partial(_with_version, make, version)

    def prepare_all(self, source: Source, without: Sequence[str] = ()) -> tuple[dict[str, MakeSpec], list[str]]:
        """Every arm's data, and a note for each peer that could not write its own."""
        specs: dict[str, MakeSpec] = {OURS: self.publish(source)}
        notes = []
        for peer in (peer for peer in self.peers if peer.name not in without):
            try:
                specs[peer.name] = self.prepare(peer, source)
            except RuntimeError as error:
                notes.append(f"{peer.title} could not prepare its data: {last_line(error)}")
        return specs, notes

    @property
    def distance(self) -> str:
        """How far away the server is, for a report."""
        delay, rate = self.proxy.delay_s * 1e3, self.proxy.bytes_per_s / 1e6
        return f"loopback S3 with {delay:.0f} ms before each answer and {rate:.0f} MB/s for each connection"

    def fresh_cache(self) -> str:
        return str(self.folder(f"cache-{next(self._turns) % _CACHES}"))

    def folder(self, name: str) -> Path:
        """An empty one."""
        folder = self.home / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def turn(self, child: Child, spec: Spec, limit: int | None = None) -> Turn:
        """One epoch, or its first batches, and what the server saw meanwhile."""
        self.proxy.take()
        try:
            answer = child.ask_within(PATIENCE_S, "epoch", limit=limit, **asdict(spec))
        except RuntimeError as error:
            return Turn(seen=self.proxy.take(), failure=str(error))
        return Turn(answer, self.proxy.take())

    def _write(self, peer: StreamPeer, source: Source, folder: Path) -> None:
        with peer.start(self.environ) as child:
            child.ask("prepare", out=str(folder), **asdict(source))

    def _upload(self, folder: Path, prefix: str) -> list[str]:
        import obstore

        store = bare_store(self.s3)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        keys = [f"{prefix}/{path.relative_to(folder).as_posix()}" for path in paths]

        def put(path: Path, key: str) -> None:
            obstore.put(store, key, path.read_bytes(), use_multipart=False)

        with ThreadPoolExecutor(_UPLOADS) as pool:
            list(pool.map(put, paths, keys))
        return keys

    def _signed(self, keys: Sequence[str]) -> list[str]:
        """URLs that anybody can read, by way of the proxy."""
        import obstore

        store = bare_store(self.far)
        return list(obstore.sign(store, "GET", list(keys), timedelta(seconds=_URL_LIFE_S)))


@contextmanager
def open_stage(effort: Effort) -> Iterator[Stage]:
    peers = find_stream_peers(effort)
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server())
        proxy = stack.enter_context(LatencyProxy(s3.endpoint_url))
        home = scratch(f"streams-{os.getpid()}")
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        yield Stage(s3, proxy, peers, home)


def in_rounds(
    arms: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int
) -> tuple[dict[str, Timings], dict[str, str]]:
    """Every arm once per round, each round in another order → timings by what was measured, and failures by arm.

    An arm that fails once is out. One that takes very long is measured in the first round only.
    """
    taken: dict[str, dict[str, list[float]]] = {}
    failures: dict[str, str] = {}
    slow: set[str] = set()
    names = list(arms)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in failures or name in slow:
                continue
            try:
                begun = time.perf_counter()
                for what, value in arms[name]().items():
                    taken.setdefault(what, {}).setdefault(name, []).append(value)
                if time.perf_counter() - begun > _SLOW_S:
                    slow.add(name)
            except RuntimeError as error:
                failures[name] = str(error)
    kept = {
        what: Timings({arm: values for arm, values in by_arm.items() if arm not in failures})
        for what, by_arm in taken.items()
    }
    return kept, failures


def against(timings: Timings, arm: str, peer: str) -> tuple[float, str]:
    """How many times as fast an arm is as a peer, in the rounds that both took part in; and the range, in words."""
    rounds = min(len(timings.by_arm[arm]), len(timings.by_arm[peer]))
    paired = Timings({name: timings.by_arm[name][:rounds] for name in (arm, peer)})
    all_rounds = max(map(len, timings.by_arm.values()))
    told = paired.spread(arm, peer) if rounds == all_rounds else "it was so slow that it ran once"
    return paired.speed_ratio(arm, peer), told


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def last_line(failure: object) -> str:
    """What an exception says, without where it came from."""
    lines = [line.strip() for line in str(failure).splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)]
    return (lines or str(failure).strip().splitlines() or ["no reason given"])[-1].replace(str(DATA), "…")[:300]


def _table_of(pictures: Pictures) -> pa.Table:
    import pyarrow as pa

    numbers = range(pictures.count)
    return pa.table(
        {
            "id": list(numbers),
            "label": [pictures.label(number) for number in numbers],
            "score": [pictures.score(number) for number in numbers],
            "image": [path.name for path in pictures.paths],
        }
    )


def _write_shards(source: Source, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert source.shard_rows is not None
    for number, first in enumerate(range(source.first, source.first + source.count, source.shard_rows)):
        values = features(first, source.shard_rows)
        columns = {f"x{n}": values[:, n] for n in range(values.shape[1])}
        table = pa.table({"id": pa.array(range(first, first + source.shard_rows)), **columns})
        pq.write_table(table, folder / f"{number:05d}.parquet", write_page_checksum=True)


def lost_and_repeated(ids: Sequence[int], expected: Sequence[int]) -> tuple[int, int]:
    """How many samples did not come, and how many came again."""
    came, due = Counter(ids), Counter(expected)
    return (due - came).total(), (came - due).total()
