"""Random windows of 16 steps of three channels, from 200 episodes of 1,000 steps with an 84×84 camera.

All arms read the same windows in the same order and copy them into the arrays of a batch; before anything is
timed, a digest of what each gives is compared. Three ways of ours are measured: `open_wshard` on the files,
windows of published episodes, and the streams that training uses. A stream chooses its own order, which is told
to the peers. Everything is in the page cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import warpdata as wd
from benchmarks.episode_data import CHANNELS, CHUNK_STEPS, LEVEL, SIDE, Recordings
from benchmarks.episode_peers import READERS, SMALL_CACHE, ReadWindow, memmap_reader
from benchmarks.harness import Arm, Effort, Finding, Report, Timings, interleave
from benchmarks.media_children import per_reference
from warpdata.streaming import Shuffle, Stream
from warpdata.wshard import open_wshard

__all__ = ["run"]

_WINDOW = 16
_BATCH = 64
_SEED = 11
_ALL = 10**6
_SLOW = ("zarr", "npz", "Parquet", "Lance")
_KEYS = dict.fromkeys(CHANNELS, (0, _WINDOW))
_BLOCKS = ("signal/rgb", "signal/joint", "action/ctrl")
_DIRECT = {"open_wshard": "`open_wshard`", "published": "published"}
_STREAMS = {"stream": "`shuffle=True`", "scattered": "`Shuffle(1, …)`"}
Windows = Sequence[tuple[int, int]]
_NOTES = (
    "`open_wshard` reads files in place, as memmap does, and compares nothing that is uncompressed with a checksum.",
    "Published episodes and streams compare every byte of an uncompressed file once.",
    "Streams make batches in threads of their own; peers are called by one thread.",
    f"Compressed: zstd, level {LEVEL}, chunks of {CHUNK_STEPS} steps of each channel: ours, h5py (hdf5plugin), zarr.",
    "Parquet has zstd and row groups of 16 steps, `.npz` deflate, Lance what it chooses. Ours alone checks chunks.",
    "HDF5 2.0 keeps 8 MiB of decoded chunks for each channel of each open file: here all of the data, 1.4 GB.",
    "Before 2.0 it was 1 MiB. Ours and zarr keep nothing decoded, but a stream holds up to two times 256 MiB.",
    "Opened anew: before each round, untimed, so that a round begins with empty caches. So it is for streams.",
    "`shuffle=True`: a whole epoch, mixed within 256 MiB, each chunk decoded about once.",
    "`Shuffle(1, …)`: any window may follow any other; each decodes the chunks it lies in. Compressed: 8,192.",
    "Peers read the windows of a stream in the order of the stream; zarr only the first of them.",
)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """How many windows an arm reads in a turn: those that take long read fewer."""

    direct: int
    slow: int
    streamed: int
    scattered: int


def run(effort: Effort) -> Report:
    quick = effort.quick
    recordings = Recordings(4, 200) if quick else Recordings(200, 1000)
    noisy = Recordings(4, 200, "noisy") if quick else Recordings(200, 1000, "noisy")
    amounts = _Amounts(256, 64, 512, 256) if quick else _Amounts(8_192, 256, 10**9, 8_192)
    findings = _plain(recordings, amounts, effort)
    for kept in (recordings, noisy):
        findings += _compressed(kept, amounts, effort)
    return Report(
        "Windows of episodes",
        f"{recordings.episodes} episodes of {recordings.steps:,} steps with a camera of {SIDE}×{SIDE} bytes and two "
        f"channels of seven f32; {_WINDOW} steps of all three in each window, batches of {_BATCH}; from the page "
        "cache. Times are of one window.",
        findings,
        notes=_NOTES,
    )


def _plain(recordings: Recordings, amounts: _Amounts, effort: Effort) -> list[Finding]:
    memmap, episodes = memmap_reader(recordings), recordings.published("none")
    peers = [name for name in READERS if name != SMALL_CACHE]
    readers = {
        "memmap": memmap,
        "open_wshard": _files_reader(recordings.paths("none")),
        "published": _stored_reader(episodes),
        **{name: READERS[name](recordings, "none") for name in peers},
    }
    times = _direct(readers, recordings, amounts, effort)
    out = [_finding("plain, random, `open_wshard`", times, "open_wshard", "memmap", 0.8)]
    out += [_finding("plain, random, published", times, "published", "memmap", None)]
    out += [_finding("plain, random, `open_wshard`", times, "open_wshard", peer, None) for peer in peers]
    for kind, words in _STREAMS.items():
        times = _streamed(kind, episodes, {"memmap": lambda: memmap}, (amounts.streamed, amounts.slow), effort)
        out.append(_finding(f"plain, {words}", times, kind, "memmap", 0.8))
    return out


def _compressed(recordings: Recordings, amounts: _Amounts, effort: Effort) -> list[Finding]:
    """Peers with caches are measured opened anew first: HDF5 shares what it holds between all who open a file."""
    episodes, what = recordings.published("zstd"), f"zstd, {recordings.camera}"
    openers = {name: partial(make, recordings, "zstd") for name, make in READERS.items()}
    targets = {"h5py": 3.0, "zarr": 3.0, SMALL_CACHE: None}
    ours: dict[str, Callable[[], ReadWindow]] = {
        "open_wshard": lambda: _files_reader(recordings.paths("zstd")),
        "published": lambda: _stored_reader(recordings.published("zstd")),
    }
    # No two that open the same HDF5 files stand side by side, as one is still there when the next is opened.
    anew: dict[str, Callable[[], ReadWindow]] = {"h5py": openers["h5py"], **ours}
    times = _anew(anew, _random(recordings, amounts.direct // 4), effort)
    out = [_finding(f"{what}, random, {words}, opened anew", times, arm, "h5py", 3.0) for arm, words in _DIRECT.items()]
    for kind, words in _STREAMS.items():
        counts = amounts.streamed if kind == "stream" else amounts.scattered, amounts.slow
        times = _streamed(kind, episodes, {name: openers[name] for name in targets}, counts, effort)
        out += [_finding(f"{what}, {words}", times, kind, peer, target) for peer, target in targets.items()]
    peers = ["h5py", "zarr", *(("npz", "Parquet", "Lance") if recordings.camera == "rendered" else ())]
    opened = {name: opener() for name, opener in ours.items()}
    opened |= {name: openers[name]() for name in peers}
    times = _direct({"memmap": memmap_reader(recordings), **opened}, recordings, amounts, effort)
    out += [
        _finding(f"{what}, random, `open_wshard`, kept open", times, "open_wshard", peer, targets.get(peer))
        for peer in peers
    ]
    return out


def _finding(case: str, times: Timings, ours: str, peer: str, target: float | None) -> Finding:
    ratio = times.speed_ratio(ours, peer)
    return Finding(
        f"{case}, against {peer}",
        _micros(times.median_s(ours)),
        _micros(times.median_s(peer)),
        f"{ratio:.2f} ({times.spread(ours, peer)})",
        "" if target is None else f"≥ {target}",
        None if target is None else ratio >= target,
    )


def _micros(value_s: float) -> str:
    return f"{value_s * 1e6:,.1f} µs"


def _files_reader(paths: Sequence[Path]) -> ReadWindow:
    """The same files as the published ones, by path."""
    files = [open_wshard(path) for path in paths]
    blocks = [[file[name] for name in _BLOCKS] for file in files]
    return lambda episode, start: tuple(block.window(start, start + _WINDOW) for block in blocks[episode])


def _stored_reader(episodes: wd.Episodes) -> ReadWindow:
    blocks = [[episode[name] for name in CHANNELS] for episode in episodes]
    return lambda episode, start: tuple(block.window(start, start + _WINDOW) for block in blocks[episode])


def _direct(readers: Mapping[str, ReadWindow], recordings: Recordings, amounts: _Amounts, effort: Effort) -> Timings:
    """Windows at random, read one after another by every arm, from files that stay open over all rounds."""
    windows = _random(recordings, amounts.direct)
    mine = {name: windows[: amounts.slow if name in _SLOW else amounts.direct] for name in readers}
    _compare({name: partial(_digest, read, windows[: amounts.slow]) for name, read in readers.items()})
    arms: dict[str, Arm] = {name: partial(_reading, read, mine[name]) for name, read in readers.items()}
    return per_reference(interleave(arms, effort.rounds), {name: len(own) for name, own in mine.items()})


def _anew(openers: Mapping[str, Callable[[], ReadWindow]], windows: Windows, effort: Effort) -> Timings:
    """The same from files that are opened anew before each round, untimed: nothing decoded is remembered."""
    for name, opener in openers.items():
        _compare({"first": partial(_digest, next(iter(openers.values()))(), windows[:64]),
                  name: partial(_digest, opener(), windows[:64])})  # fmt: skip
    arms: dict[str, Arm] = {name: partial(_reading_anew, opener, windows) for name, opener in openers.items()}
    return per_reference(interleave(arms, effort.rounds), dict.fromkeys(openers, len(windows)))


def _reading_anew(opener: Callable[[], ReadWindow], windows: Windows) -> Callable[[], int]:
    return _reading(opener(), windows)


def _random(recordings: Recordings, count: int) -> Windows:
    rng = np.random.default_rng(_SEED)
    starts = rng.integers(0, recordings.steps - _WINDOW + 1, count)
    return list(zip(rng.integers(0, recordings.episodes, count).tolist(), starts.tolist(), strict=True))


def _streamed(
    kind: str,
    episodes: wd.Episodes,
    openers: Mapping[str, Callable[[], ReadWindow]],
    counts: tuple[int, int],
    effort: Effort,
) -> Timings:
    """A stream in its own order, and peers that read the same windows in the same order; all opened anew.

    `counts` are how many windows are read, and how many by those that take long.
    """
    windows, digest = _order_of(_stream(kind, episodes), *counts)
    own = {name: windows[: counts[1]] if name in _SLOW else windows for name in openers}
    for name, opener in openers.items():
        _compare({kind: lambda: digest, name: partial(_digest, opener(), windows[: counts[1]])})
    arms: dict[str, Arm] = {name: partial(_reading_anew, opener, own[name]) for name, opener in openers.items()}
    arms[kind] = lambda: partial(_consume, _stream(kind, episodes), len(windows))
    sizes = {kind: len(windows), **{name: len(part) for name, part in own.items()}}
    return per_reference(interleave(arms, effort.rounds), sizes)


def _stream(kind: str, episodes: wd.Episodes) -> Stream:
    shuffle: bool | Shuffle = True if kind == "stream" else Shuffle(1, _ALL)
    return episodes.windows(keys=_KEYS, pad=None, batch_size=_BATCH, shuffle=shuffle, seed=_SEED)


def _order_of(stream: Stream, most: int, checked: int) -> tuple[Windows, str]:
    """The windows that the stream gives, and a digest of the first of them."""
    windows: list[tuple[int, int]] = []
    seen = hashlib.sha256()
    with closing(stream.epoch(0)) as batches:
        for batch in batches:
            places = list(zip(batch["episode"].tolist(), batch["step"].tolist(), strict=True))
            for at in range(max(0, min(len(places), checked - len(windows)))):
                for name in CHANNELS:
                    seen.update(np.ascontiguousarray(batch[name][at]).view(np.uint8).data)
            windows += places
            if len(windows) >= most:
                break
    return windows, seen.hexdigest()


def _consume(stream: Stream, count: int) -> int:
    left = count
    with closing(stream.epoch(0)) as batches:
        for batch in batches:
            left -= len(batch["step"])
            if left <= 0:
                break
    return left


def _reading(read: ReadWindow, windows: Windows) -> Callable[[], int]:
    out = _room()

    def run() -> int:
        for at, (episode, start) in enumerate(windows):
            for room, array in zip(out, read(episode, start), strict=True):
                room[at % _BATCH] = array
        return 0

    return run


def _digest(read: ReadWindow, windows: Windows) -> str:
    seen = hashlib.sha256()
    for episode, start in windows:
        for array in read(episode, start):
            seen.update(np.ascontiguousarray(array).view(np.uint8).data)
    return seen.hexdigest()


def _compare(digests: Mapping[str, Callable[[], str]]) -> None:
    found = {name: digest() for name, digest in digests.items()}
    assert len(set(found.values())) == 1, f"the arms read different values: {found}"


def _room() -> tuple[Any, ...]:
    shapes = (((_BATCH, _WINDOW, SIDE, SIDE), np.uint8), *[((_BATCH, _WINDOW, 7), np.float32)] * 2)
    return tuple(np.ones(shape, dtype) for shape, dtype in shapes)
