"""Two of twenty channels of an episode over S3 with latency: requests, bytes and time.

A proxy adds 20 ms to every response and counts. Opening the version is counted separately; then follow the index of
the episodes and the channels. Two peers read an HDF5 file of the same arrays: h5py through a file object that sends
range requests, and h5py after a download. All arms use the same Python proxy, so the times compare arms only.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.episodes.peers import write_h5
from benchmarks.episodes.recordings import to_episode
from benchmarks.harness.bare_store import open_bare_store
from benchmarks.harness.data import scratch
from benchmarks.harness.machine import is_installed, skip_lines
from benchmarks.harness.proxy import S3Proxy
from benchmarks.harness.timing import Arm, RunOptions, Timings, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from warpdata import Settings
from warpdata.testing import S3Endpoint, S3Server
from warpdata.wshard import save_wshard

__all__ = ["run"]

_DELAY_S = 0.02
_CHANNEL_COUNT = 20
_EPISODE_COUNT = 10
_EPISODE = 3
_WANTED = ("c04", "c15")
_CHUNK_STEPS = 512
_EPISODES = "demos"
_DATASET = "bench/episodes"
_KEY = "peer/peer.h5"
Arrays = Mapping[str, Any]
_NOTES = (
    "The index of the episodes is fetched once.",
    "Opening the version fetches the head of the catalog and the manifest.",
    "The index contains the tables of time chunks. Chunks of 16 steps would be 1 kB and the index twice as large.",
    "h5py by ranges reads through a Python file object over `obstore.get_range` with a buffer of 64 kB.",
)


@dataclass(frozen=True, slots=True)
class _PublishedEpisodes:
    """Published episodes and the HDF5 copy of one of them, as seen through the proxy."""

    store: str
    settings: Settings
    s3: S3Endpoint
    compression: str

    @property
    def title(self) -> str:
        return "plain" if self.compression == "none" else f"zstd, chunks of {_CHUNK_STEPS} steps"

    @property
    def has_peer(self) -> bool:
        return is_installed("h5py") and (self.compression == "none" or is_installed("hdf5plugin"))

    def open(self) -> wd.Episodes:
        return wd.dataset(_DATASET, store=self.store, mode="remote", settings=self.settings).episodes(_EPISODES)

    def bucket(self) -> Any:
        return open_bare_store(self.s3, f"{self.store.removeprefix('s3://').partition('/')[2]}")


def run(options: RunOptions) -> Outcome:
    steps = 200 if options.is_smoke else 5_000
    measurements = []
    with S3Server() as s3, S3Proxy(s3.endpoint_url, delay_s=_DELAY_S) as proxy:
        for compression in ("none", "zstd"):
            through = replace(s3, endpoint_url=proxy.endpoint_url)
            settings = through.settings(cache_dir=scratch("episodes-s3-cache"))
            published = _PublishedEpisodes(s3.url(f"episodes-{compression}"), settings, through, compression)
            arrays = _publish(published, s3, steps)
            measurements += _measure_all(published, arrays, proxy, options)
    return Outcome(
        title="Episodes over S3",
        method=f"Loopback S3 behind a proxy that adds {_DELAY_S * 1000:.0f} ms to every response; {_EPISODE_COUNT} "
        f"episodes of {_CHANNEL_COUNT} channels of {format_bytes(_make_array(0, 0, steps).nbytes)} each; two channels "
        "that are not adjacent; mode `remote`, no cache.",
        measurements=measurements,
        notes=_NOTES,
        skipped=skip_lines(["h5py", "hdf5plugin"]),
    )


def _make_array(episode: int, channel: int, steps: int) -> Any:
    rng = np.random.default_rng(100 * episode + channel)
    return (rng.normal(size=(steps, 16)).cumsum(axis=0) * 8).round().astype(np.float32)


def _publish(published: _PublishedEpisodes, s3: S3Endpoint, steps: int) -> Arrays:
    """Publish the episodes past the proxy, and put the HDF5 copy beside them; return the arrays of that episode."""
    import obstore

    settings = s3.settings(cache_dir=scratch("episodes-s3-publish"))
    files = scratch("episodes-s3-files")
    recorded: Arrays = {}
    for number in range(_EPISODE_COUNT):
        arrays = {f"c{channel:02}": _make_array(number, channel, steps) for channel in range(_CHANNEL_COUNT)}
        save_wshard(
            to_episode(f"ep_{number}", arrays, ()),
            files / f"{number}.wshard",
            compression=published.compression,
            time_chunk_steps=_CHUNK_STEPS if published.compression == "zstd" else 0,
        )
        if number == _EPISODE:
            recorded = arrays
    wd.DatasetBuilder(_DATASET, published.store, settings=settings).add_episodes(_EPISODES, files).publish()
    if published.has_peer:
        peer = scratch("episodes-s3-files") / "peer.h5"
        write_h5(peer, recorded, published.compression)
        obstore.put(replace(published, s3=s3).bucket(), _KEY, peer)
    return recorded


def _measure_all(
    published: _PublishedEpisodes, arrays: Arrays, proxy: S3Proxy, options: RunOptions
) -> list[Measurement]:
    proxy.take()
    episodes = published.open()
    opening = _sizes(proxy)
    _check(episodes[_EPISODE].read(_WANTED), arrays)
    first = _sizes(proxy)
    _check(episodes[_EPISODE + 1].read(_WANTED), None)
    following = _sizes(proxy)
    stored = [
        sum(chunk.file[chunk.block_name(name)].entry.stored_bytes for name in _WANTED)
        for chunk in (episodes[number].chunks[0] for number in (_EPISODE, _EPISODE + 1))
    ]
    measurements = [
        *_measure_traffic(f"{published.title}: index and two channels", first, stored[0]),
        *_measure_traffic(f"{published.title}: two channels of the next episode", following, stored[1]),
        Measurement(
            case=f"{published.title}: opening the version",
            unit="requests",
            ours=len(opening),
            detail=format_bytes(sum(opening)),
        ),
    ]
    if published.has_peer:
        measurements += _measure_times(published, episodes, arrays, proxy, options)
    return measurements


def _measure_times(
    published: _PublishedEpisodes, episodes: wd.Episodes, arrays: Arrays, proxy: S3Proxy, options: RunOptions
) -> list[Measurement]:
    proxy.take()
    _check(_read_by_ranges(published), arrays)
    peer = _sizes(proxy)
    _check(_read_after_download(published), arrays)
    arms: dict[str, Arm] = {
        "name": lambda: lambda: _size(published.open()[_EPISODE].read(_WANTED)),
        "open": lambda: lambda: _size(episodes[_EPISODE].read(_WANTED)),
        "ranges": lambda: lambda: _size(_read_by_ranges(published)),
        "file": lambda: lambda: _size(_read_after_download(published)),
    }
    times = interleave(arms, options.rounds)
    by_ranges = f"h5py: {len(peer)} requests, {format_bytes(sum(peer))}"
    return [
        _measure_time(f"{published.title}: from the name", times, "name", "ranges", by_ranges),
        _measure_time(f"{published.title}: from the name", times, "name", "file"),
        _measure_time(f"{published.title}: from open episodes", times, "open", "ranges"),
    ]


def _measure_time(case: str, times: Timings, arm: str, peer: str, detail: str = "") -> Measurement:
    names = {"ranges": "h5py by ranges", "file": "the whole file and h5py"}
    return times.compare(case, arm, peer, peer_name=names[peer], detail=detail)


def _measure_traffic(case: str, sent: Sequence[int], stored_bytes: int) -> list[Measurement]:
    return [
        Measurement(case=f"{case}, requests", unit="requests", ours=len(sent), promise="episode-remote-requests"),
        Measurement(
            case=f"{case}, bytes",
            unit="kB",
            ours=sum(sent) / 1e3,
            peer=stored_bytes / 1e3,
            peer_name="the channels",
            is_baseline=True,
            ratio=sum(sent) / stored_bytes,
            quantity="bytes",
            promise="episode-remote-bytes",
        ),
    ]


def _sizes(proxy: S3Proxy) -> list[int]:
    return [exchange.body_bytes for exchange in proxy.take()]


def _read_by_ranges(published: _PublishedEpisodes) -> Arrays:
    source = _RangeFile(published.bucket(), _KEY)
    with io.BufferedReader(source, 64 * 1024) as file:
        return _read_h5(file, published.compression)


def _read_after_download(published: _PublishedEpisodes) -> Arrays:
    import obstore

    content = bytes(obstore.get(published.bucket(), _KEY).bytes())
    return _read_h5(io.BytesIO(content), published.compression)


def _read_h5(file: Any, compression: str) -> Arrays:
    import h5py

    if compression == "zstd":
        import hdf5plugin  # noqa: F401 - registers the filter
    with h5py.File(file, "r") as opened:
        return {name: opened[name][:] for name in _WANTED}


class _RangeFile(io.RawIOBase):
    """Seekable file over range requests for an object."""

    def __init__(self, bucket: Any, key: str) -> None:
        import obstore

        self._get_range = partial(obstore.get_range, bucket, key)
        self._size = int(obstore.head(bucket, key)["size"])
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = bytes(self._get_range(start=self._position, end=end))
        buffer[: len(data)] = data
        self._position = end
        return len(data)


def _size(arrays: Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _check(found: Arrays, recorded: Arrays | None) -> None:
    assert set(found) == set(_WANTED)
    for name in _WANTED:
        steps = len(found[name])
        expected = recorded[name] if recorded is not None else _make_array(_EPISODE + 1, int(name[1:]), steps)
        assert np.array_equal(found[name], expected), name
