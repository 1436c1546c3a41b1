"""Two of twenty channels of an episode on S3 that answers late: requests, bytes, and time.

A proxy lets every answer come 20 ms later and counts. The set is opened first, which costs what opening any
version costs and is told beside it; then come the index and the channels. Two peers read an HDF5 file of the same
arrays: h5py through a file object that asks for ranges (fsspec is not needed for that), and h5py after a download.
Everything passes through a proxy in Python, so times compare arms and say nothing about S3.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.episodes.peers import write_h5
from benchmarks.episodes.recordings import to_episode
from benchmarks.harness.counting_proxy import CountingProxy
from benchmarks.harness.data import scratch
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint, S3Server
from warpdata.wshard import save_wshard

__all__ = ["run"]

_LATENCY_S = 0.02
_MOST_REQUESTS = 3
_MOST_BYTES = 1.1
_CHANNELS = 20
_WANTED = ("c04", "c15")
_CHUNK_STEPS = 512
_SET = "demos"
_DATASET = "bench/episodes"
Arrays = Mapping[str, Any]
_NOTES = (
    "The index of the set is fetched once, whatever is read of it afterwards.",
    "Opening the version before that is the head of the catalog and the manifest.",
    "The index has the tables of time chunks. Chunks of 16 steps would be 1 kB here, and the index twice as large.",
    "h5py by ranges reads through a Python file object over `obstore.get_range` with a buffer of 64 kB.",
)


@dataclass(frozen=True, slots=True)
class _Side:
    store: str
    settings: Settings
    s3: S3Endpoint

    def episodes(self) -> wd.Episodes:
        return wd.dataset(_DATASET, store=self.store, mode="remote", settings=self.settings).episodes(_SET)

    def file(self) -> Any:
        from obstore.store import S3Store

        return S3Store(
            self.store.removeprefix("s3://").split("/")[0],
            endpoint=self.s3.endpoint_url,
            access_key_id=self.s3.access_key_id,
            secret_access_key=self.s3.secret_access_key,
            region="us-east-1",
            client_options={"allow_http": True},
        )


def run(effort: Effort) -> Report:
    steps = 200 if effort.quick else 5_000
    findings = []
    with S3Server() as s3, CountingProxy(s3.endpoint_url, latency_s=_LATENCY_S) as proxy:
        for compression in ("none", "zstd"):
            store = s3.url(f"episodes-{compression}")
            recorded = _publish(store, s3, steps, compression)
            through = replace(s3, endpoint_url=proxy.endpoint_url)
            side = _Side(store, through.settings(cache_dir=scratch("episodes-s3-cache")), through)
            findings += _measure(compression, side, recorded, proxy, effort)
    each = megabytes(_array(0, 0, steps).nbytes)
    return Report(
        "Episodes over S3",
        f"Loopback S3 behind a proxy that adds {_LATENCY_S * 1000:.0f} ms to every answer; 10 episodes of "
        f"{_CHANNELS} channels of {each} each; two channels that do not lie side by side; mode `remote`, no cache.",
        findings,
        notes=_NOTES,
    )


def _array(episode: int, channel: int, steps: int) -> Any:
    rng = np.random.default_rng(100 * episode + channel)
    return (rng.normal(size=(steps, 16)).cumsum(axis=0) * 8).round().astype(np.float32)


def _publish(store: str, s3: S3Endpoint, steps: int, compression: str) -> Arrays:
    import obstore

    settings = s3.settings(cache_dir=scratch("episodes-s3-publish"))
    files = scratch("episodes-s3-files")
    recorded: Arrays = {}
    for number in range(10):
        arrays = {f"c{channel:02}": _array(number, channel, steps) for channel in range(_CHANNELS)}
        save_wshard(
            to_episode(f"ep_{number}", arrays, ()), files / f"{number}.wshard",
            compression=compression, time_chunk_steps=_CHUNK_STEPS if compression == "zstd" else 0,
        )  # fmt: skip
        if number == 3:
            recorded = arrays
    wd.DatasetBuilder(_DATASET, store, settings=settings).add_episodes(_SET, files).publish()
    peer = scratch("episodes-s3-files") / "peer.h5"
    write_h5(peer, recorded, compression)
    obstore.put(_Side(store, settings, s3).file(), _key(store), peer)
    return recorded


def _measure(compression: str, side: _Side, recorded: Arrays, proxy: CountingProxy, effort: Effort) -> list[Finding]:
    proxy.take()
    episodes = side.episodes()
    opening = _seen(proxy)
    _check(episodes[3].read(_WANTED), recorded)
    first = _seen(proxy)
    _check(episodes[4].read(_WANTED), None)
    next_one = _seen(proxy)
    entries = [episodes[3].chunks[0][name].entry for name in _WANTED]
    stored = sum(entry.stored_bytes for entry in entries)
    others = sum(episodes[4].chunks[0][name].entry.stored_bytes for name in _WANTED)
    hdf5 = partial(_by_ranges, side)
    proxy.take()
    _check(hdf5(), recorded)
    peer = _seen(proxy)
    _check(_downloaded(side), recorded)
    proxy.take()
    arms: dict[str, Arm] = {
        "ours": lambda: lambda: _bytes(side.episodes()[3].read(_WANTED)),
        "open": lambda: lambda: _bytes(episodes[3].read(_WANTED)),
        "ranges": lambda: lambda: _bytes(hdf5()),
        "file": lambda: lambda: _bytes(_downloaded(side)),
    }
    times = interleave(arms, effort.rounds)
    what = "plain" if compression == "none" else f"zstd, chunks of {_CHUNK_STEPS} steps"
    return [
        _cost(f"{what}: index and two channels", first, stored, _spelled(peer) + " by h5py"),
        _cost(f"{what}: two channels of the next episode", next_one, others, ""),
        Finding(f"{what}: opening the version before that", _spelled(opening)),
        _time(f"{what}: from the name of the dataset, against h5py by ranges", times, "ours", "ranges"),
        _time(f"{what}: from the name of the dataset, against the whole file and h5py", times, "ours", "file"),
        _time(f"{what}: of an open set, against h5py by ranges", times, "open", "ranges"),
    ]


def _seen(proxy: CountingProxy) -> list[int]:
    return [exchange.body_bytes for exchange in proxy.take()]


def _spelled(sent: list[int]) -> str:
    return f"{len(sent)} requests, {megabytes(sum(sent))}"


def _cost(case: str, sent: list[int], wanted: int, peer: str) -> Finding:
    share = sum(sent) / wanted
    return Finding(
        case,
        _spelled(sent),
        peer,
        f"{share:.3f}× the channels",
        f"≤ {_MOST_REQUESTS} requests, ≤ {_MOST_BYTES}×",
        len(sent) <= _MOST_REQUESTS and share <= _MOST_BYTES,
    )


def _time(case: str, times: Timings, ours: str, peer: str) -> Finding:
    ratio = f"{times.speed_ratio(ours, peer):.2f} ({times.spread(ours, peer)})"
    return Finding(case, seconds(times.median_s(ours)), seconds(times.median_s(peer)), ratio)


def _by_ranges(side: _Side) -> Arrays:
    import h5py
    import hdf5plugin  # noqa: F401 - registers the filter

    bucket, key = side.file(), _key(side.store)
    with io.BufferedReader(_Ranges(bucket, key), 64 * 1024) as lazily, h5py.File(lazily, "r") as file:
        return {name: file[name][:] for name in _WANTED}


def _downloaded(side: _Side) -> Arrays:
    import h5py
    import hdf5plugin  # noqa: F401 - registers the filter
    import obstore

    whole = io.BytesIO(bytes(obstore.get(side.file(), _key(side.store)).bytes()))
    with h5py.File(whole, "r") as file:
        return {name: file[name][:] for name in _WANTED}


class _Ranges(io.RawIOBase):
    """An object as a file that can be read anywhere."""

    def __init__(self, bucket: Any, key: str) -> None:
        import obstore

        self._read: Callable[..., Any] = partial(obstore.get_range, bucket, key)
        self._size = int(obstore.head(bucket, key)["size"])
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, out: Any) -> int:
        end = min(self._at + len(out), self._size)
        if end <= self._at:
            return 0
        data = bytes(self._read(start=self._at, end=end))
        out[: len(data)] = data
        self._at = end
        return len(data)


def _bytes(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _check(got: Arrays, recorded: Arrays | None) -> None:
    assert set(got) == set(_WANTED)
    for name in _WANTED:
        steps = len(got[name])
        wanted = recorded[name] if recorded is not None else _array(4, int(name[1:]), steps)
        assert np.array_equal(got[name], wanted), name


def _key(store: str) -> str:
    return "/".join([*store.removeprefix("s3://").split("/")[1:], "peer", "peer.h5"])
