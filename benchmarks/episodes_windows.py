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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import warpdata as wd
from benchmarks.episode_data import CHANNELS, CHUNK_STEPS, LEVEL, SIDE, Recordings
from benchmarks.episode_peers import READERS, SMALL_CACHE, ReadWindow, memmap_reader
from benchmarks.harness import Arm, Effort, Finding, Report, Timings, interleave
from benchmarks.media_children import per_reference
from warpdata.streaming import Shuffle, Stream
from warpdata.wshard import BlockReader, open_wshard

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
_DECODING = "zstd alone"
Windows = Sequence[tuple[int, int]]
Fill: TypeAlias = Callable[[int, int, Sequence[Any]], None]
"""Writes the window of an episode that begins with a step into one array for each channel."""
Opener: TypeAlias = Callable[[], Fill]
_NOTES = (
    "`open_wshard` reads files in place, as memmap does, and compares nothing that is uncompressed with a checksum.",
    "Published episodes and streams compare every byte of an uncompressed file once.",
    "Streams make batches in threads of their own; peers are called by one thread.",
    f"Compressed: zstd, level {LEVEL}, chunks of {CHUNK_STEPS} steps, {CHUNK_STEPS * SIDE * SIDE:,} bytes of camera.",
    "Floats, here random walks, do not shrink: ours leaves such blocks plain, and h5py is told to; not so zarr.",
    "Parquet has zstd and row groups of 16 steps, `.npz` deflate, Lance what it chooses. Ours alone checks chunks.",
    "Ours and HDF5 2.0 keep 8 MiB of decoded chunks of each channel of an open file: here all of the data, 1.4 GB.",
    "Before 2.0, HDF5 kept 1 MiB. zarr keeps nothing. A stream holds two times 256 MiB: one in use, one ahead.",
    "Ours keeps a block of which windows took as much as it has in one array. Rounds that make it are low ends.",
    "Opened anew: before each round, untimed, so that a round begins with empty caches; compressed streams too.",
    f"'{_DECODING}': the two chunks of each window decoded by `zstandard`, nothing else: the least one thread needs.",
    "`shuffle=True`: a whole epoch, mixed within 256 MiB, each chunk decoded about once.",
    "`Shuffle(1, …)`: any window may follow any other. Plain: a whole epoch. Compressed: the first 8,192 windows.",
    "Peers read the windows of a stream in its order; zarr and h5py with small caches the first of them.",
    "Compressed windows are written by `window(…, out=)`. h5py's counterpart, `read_direct`, is slower than `[a:b]`.",
)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """How many windows an arm reads in a turn: those that take long read fewer."""

    direct: int
    slow: int
    streamed: int
    scattered: int

    def of(self, name: str, most: int) -> int:
        if name in _SLOW:
            return min(most, self.slow)
        return min(most, self.direct // 4) if name == SMALL_CACHE else most


def run(effort: Effort) -> Report:
    quick = effort.quick
    recordings = Recordings(4, 200) if quick else Recordings(200, 1000)
    noisy = Recordings(4, 200, "noisy") if quick else Recordings(200, 1000, "noisy")
    amounts = _Amounts(256, 64, 512, 256) if quick else _Amounts(8_192, 128, 10**9, 8_192)
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
        "open_wshard": _viewing(_files_blocks(recordings.paths("none"))),
        "published": _viewing(_stored_blocks(episodes)),
        **{name: READERS[name](recordings, "none") for name in peers},
    }
    fills = {name: _copying(read) for name, read in readers.items()}
    times = _direct(fills, recordings, amounts, effort)
    out = [_finding("plain, random, `open_wshard`", times, "open_wshard", "memmap", 0.8)]
    out += [_finding("plain, random, published", times, "published", "memmap", None)]
    out += [_finding("plain, random, `open_wshard`", times, "open_wshard", peer, None) for peer in peers]
    for kind, words in _STREAMS.items():
        opener = partial(_copying, memmap)
        times = _streamed(
            kind, lambda: episodes, {"memmap": opener}, replace(amounts, scattered=amounts.streamed), effort
        )
        out.append(_finding(f"plain, {words}", times, kind, "memmap", 0.8))
    return out


def _compressed(recordings: Recordings, amounts: _Amounts, effort: Effort) -> list[Finding]:
    """Peers with caches are measured opened anew first: HDF5 shares what it holds between all who open a file."""
    what = f"zstd, {recordings.camera}"
    openers: dict[str, Opener] = {name: partial(_opened, make, recordings) for name, make in READERS.items()}
    targets = {"h5py": 3.0, "zarr": 3.0, SMALL_CACHE: None}
    ours: dict[str, Opener] = {
        "open_wshard": lambda: _writing(_files_blocks(recordings.paths("zstd"))),
        "published": lambda: _writing(_stored_blocks(recordings.published("zstd"))),
    }
    # No two that open the same HDF5 files stand side by side, as one is still there when the next is opened.
    anew: dict[str, Opener] = {"h5py": openers["h5py"], **ours}
    times = _anew(anew, lambda: _decoding(recordings.paths("zstd")), _random(recordings, amounts.direct // 4), effort)
    arms = {**_DIRECT, _DECODING: f"{_DECODING!r}"}
    out = [_finding(f"{what}, random, {words}, opened anew", times, arm, "h5py", None) for arm, words in arms.items()]
    for kind, words in _STREAMS.items():
        times = _streamed(
            kind, lambda: _opened_all(recordings), {name: openers[name] for name in targets}, amounts, effort
        )
        # With nothing decoded yet, decoding is most of what everybody does: see what that takes alone.
        wanted = targets if kind == "stream" else targets | {"h5py": None}
        out += [_finding(f"{what}, {words}", times, kind, peer, target) for peer, target in wanted.items()]
    peers = ["h5py", "zarr", *(("npz", "Parquet", "Lance") if recordings.camera == "rendered" else ())]
    opened = {"open_wshard": ours["open_wshard"]()} | {name: openers[name]() for name in peers}
    times = _direct({"memmap": _copying(memmap_reader(recordings)), **opened}, recordings, amounts, effort)
    out.append(_finding(f"{what}, random, a memmap of it plain, kept open", times, "memmap", "h5py", None))
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


def _files_blocks(paths: Sequence[Path]) -> list[list[BlockReader]]:
    """The same files as the published ones, by path."""
    files = [open_wshard(path) for path in paths]
    return [[file[name] for name in _BLOCKS] for file in files]


def _stored_blocks(episodes: wd.Episodes) -> list[list[BlockReader]]:
    return [[episode.chunks[0].file[name] for name in _BLOCKS] for episode in episodes]


def _opened_all(recordings: Recordings) -> wd.Episodes:
    """With all files open, as peers have them."""
    episodes = recordings.published("zstd")
    _stored_blocks(episodes)
    return episodes


def _viewing(blocks: Sequence[Sequence[BlockReader]]) -> ReadWindow:
    return lambda episode, start: tuple(block.window(start, start + _WINDOW) for block in blocks[episode])


def _writing(blocks: Sequence[Sequence[BlockReader]]) -> Fill:
    def fill(episode: int, start: int, rooms: Sequence[Any]) -> None:
        for block, room in zip(blocks[episode], rooms, strict=True):
            block.window(start, start + _WINDOW, out=room)

    return fill


def _copying(read: ReadWindow) -> Fill:
    def fill(episode: int, start: int, rooms: Sequence[Any]) -> None:
        for room, array in zip(rooms, read(episode, start), strict=True):
            room[...] = array

    return fill


def _opened(make: Callable[[Recordings, str], ReadWindow], recordings: Recordings) -> Fill:
    return _copying(make(recordings, "zstd"))


def _decoding(paths: Sequence[Path]) -> Fill:
    """The chunks that windows of the camera lie in, decoded and dropped."""
    import zstandard

    decoder, frames = zstandard.ZstdDecompressor(), [_frames(path) for path in paths]

    def fill(episode: int, start: int, _rooms: Sequence[Any]) -> None:
        for number in range(start // CHUNK_STEPS, (start + _WINDOW - 1) // CHUNK_STEPS + 1):
            decoder.decompress(frames[episode][number])

    return fill


def _frames(path: Path) -> list[bytes]:
    block = open_wshard(path)[_BLOCKS[0]]
    data = path.read_bytes()
    spans = [block.span(step, step + 1) for step in range(0, block.block_type.rows, CHUNK_STEPS)]
    return [data[start:end] for start, end in spans]


def _direct(fills: Mapping[str, Fill], recordings: Recordings, amounts: _Amounts, effort: Effort) -> Timings:
    """Windows at random, read one after another by every arm, from files that stay open over all rounds."""
    windows = _random(recordings, amounts.direct)
    mine = {name: windows[: amounts.of(name, amounts.direct)] for name in fills}
    _compare({name: partial(_digest, fill, windows[: amounts.slow]) for name, fill in fills.items()})
    arms: dict[str, Arm] = {name: partial(_reading, fill, mine[name]) for name, fill in fills.items()}
    return per_reference(interleave(arms, effort.rounds), {name: len(own) for name, own in mine.items()})


def _anew(openers: Mapping[str, Opener], decoding: Opener, windows: Windows, effort: Effort) -> Timings:
    """The same from files that are opened anew before each round, untimed: nothing decoded is remembered."""
    for name, opener in openers.items():
        _compare({"first": partial(_digest, next(iter(openers.values()))(), windows[:64]),
                  name: partial(_digest, opener(), windows[:64])})  # fmt: skip
    everyone = {**openers, _DECODING: decoding}
    arms: dict[str, Arm] = {name: partial(_reading_anew, opener, windows) for name, opener in everyone.items()}
    return per_reference(interleave(arms, effort.rounds), dict.fromkeys(everyone, len(windows)))


def _reading_anew(opener: Opener, windows: Windows) -> Callable[[], int]:
    return _reading(opener(), windows)


def _random(recordings: Recordings, count: int) -> Windows:
    rng = np.random.default_rng(_SEED)
    starts = rng.integers(0, recordings.steps - _WINDOW + 1, count)
    return list(zip(rng.integers(0, recordings.episodes, count).tolist(), starts.tolist(), strict=True))


def _streamed(
    kind: str, ours: Callable[[], wd.Episodes], openers: Mapping[str, Opener], amounts: _Amounts, effort: Effort
) -> Timings:
    """A stream in its own order, and peers that read the same windows in the same order."""
    most = amounts.streamed if kind == "stream" else amounts.scattered
    windows, digest = _order_of(_stream(kind, ours()), most, amounts.slow)
    own = {name: windows[: amounts.of(name, most)] for name in openers}
    for name, opener in openers.items():
        _compare({kind: lambda: digest, name: partial(_digest, opener(), windows[: amounts.slow])})
    arms: dict[str, Arm] = {name: partial(_reading_anew, opener, own[name]) for name, opener in openers.items()}
    arms[kind] = lambda: partial(_consume, _stream(kind, ours()), len(windows))
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


def _reading(fill: Fill, windows: Windows) -> Callable[[], int]:
    rooms = _rooms()

    def run() -> int:
        for at, (episode, start) in enumerate(windows):
            fill(episode, start, rooms[at % _BATCH])
        return 0

    return run


def _digest(fill: Fill, windows: Windows) -> str:
    seen, rooms = hashlib.sha256(), _rooms()[0]
    for episode, start in windows:
        fill(episode, start, rooms)
        for room in rooms:
            seen.update(room.view(np.uint8).data)
    return seen.hexdigest()


def _compare(digests: Mapping[str, Callable[[], str]]) -> None:
    found = {name: digest() for name, digest in digests.items()}
    assert len(set(found.values())) == 1, f"the arms read different values: {found}"


def _rooms() -> list[tuple[Any, ...]]:
    """Where the windows of a batch go."""
    shapes = (((_BATCH, _WINDOW, SIDE, SIDE), np.uint8), *[((_BATCH, _WINDOW, 7), np.float32)] * 2)
    batch = [np.ones(shape, dtype) for shape, dtype in shapes]
    return [tuple(array[at] for array in batch) for at in range(_BATCH)]
