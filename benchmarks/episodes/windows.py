"""Windows of 16 steps and three channels, from 200 episodes of 1,000 steps with an 84×84 camera.

All arms read the same windows in the same order and copy them into batch arrays. A digest of each arm's windows is
compared before anything is timed. Three ways of warpdata are measured: `open_wshard` on files, windows of published
episodes, and training streams. A stream chooses its own order, in which the peers then read.
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
from benchmarks.episodes.peers import READERS, SMALL_CACHE, ReadWindow, available_readers, memmap_reader
from benchmarks.episodes.recordings import CHANNELS, CHUNK_STEPS, LEVEL, SIDE, Recordings
from benchmarks.harness.timing import Arm, RunOptions, Timings, interleave
from benchmarks.results import Measurement, Outcome
from warpdata import Shuffle, Stream
from warpdata.wshard import BlockReader, open_wshard

__all__ = ["run"]

_WINDOW = 16
_BATCH = 64
_SEED = 11
_SHUFFLE_BUFFER = 10**6
_SLOW = ("zarr", "npz", "Parquet", "Lance")
_KEYS = dict.fromkeys(CHANNELS, (0, _WINDOW))
_BLOCKS = ("signal/rgb", "signal/joint", "action/ctrl")
_STREAMS = {"stream": "`shuffle=True`", "scattered": "`Shuffle(1, …)`"}
_DECODING = "zstd alone"
_PROMISES = {"h5py": "window-h5py", "zarr": "window-zarr"}
Windows: TypeAlias = Sequence[tuple[int, int]]
Fill: TypeAlias = Callable[[int, int, Sequence[Any]], None]
"""Writes the window of an episode from a first step into one array per channel."""
Opener: TypeAlias = Callable[[], Fill]
_NOTES = (
    "`open_wshard` reads files in place, as memmap does, and verifies no checksum of uncompressed data.",
    "Published episodes and streams verify every byte of an uncompressed file once.",
    "Streams assemble batches in threads of their own; the peers run in one thread.",
    f"Compressed: zstd, level {LEVEL}, chunks of {CHUNK_STEPS} steps, {CHUNK_STEPS * SIDE * SIDE:,} bytes of camera.",
    "The float channels do not shrink: warpdata and h5py store them uncompressed; zarr compresses them.",
    "Parquet uses zstd and row groups of 16 steps, `.npz` deflate. Only warpdata verifies chunks.",
    "warpdata and HDF5 2.0 cache 8 MiB of decoded chunks per channel of an open file: here all data, 1.4 GB.",
    "Before 2.0, HDF5 cached 1 MiB. zarr has no cache. A stream holds two buffers of 256 MiB.",
    "warpdata keeps a whole block in one array after windows of that size were read; such rounds are the low ends.",
    "Reopened: files are opened before each round, untimed, with empty caches. Compressed streams are reopened too.",
    f"'{_DECODING}': `zstandard` decodes the two chunks of each window: the minimum for one thread.",
    "`shuffle=True`: a whole epoch, shuffled within 256 MiB; each chunk is decoded about once.",
    "`Shuffle(1, …)`: windows in any order. Plain: a whole epoch. Compressed: the first 8,192 windows.",
    "zarr and h5py with small caches read only the first windows of a stream's order.",
)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Number of windows per round; slow arms read fewer."""

    direct: int
    slow: int
    streamed: int
    scattered: int

    def of(self, name: str, most: int) -> int:
        if name in _SLOW:
            return min(most, self.slow)
        return min(most, self.direct // 4) if name == SMALL_CACHE else most


def run(options: RunOptions) -> Outcome:
    episodes, steps = (4, 200) if options.is_smoke else (200, 1000)
    recordings = Recordings(episodes, steps)
    amounts = _Amounts(256, 64, 512, 256) if options.is_smoke else _Amounts(8_192, 128, 10**9, 8_192)
    measurements = _measure_plain(recordings, amounts, options)
    for kept in (recordings, Recordings(episodes, steps, "noisy")):
        measurements += _measure_compressed(kept, amounts, options)
    return Outcome(
        title="Windows of episodes",
        method=f"{episodes} episodes of {steps:,} steps with a camera of {SIDE}×{SIDE} bytes and two channels of seven "
        f"f32; {_WINDOW} steps of all three per window, batches of {_BATCH} from the page cache. Times are per window.",
        measurements=measurements,
        notes=_NOTES,
        skipped=available_readers("zstd")[1],
    )


def _measure_plain(recordings: Recordings, amounts: _Amounts, options: RunOptions) -> list[Measurement]:
    memmap, episodes = memmap_reader(recordings), recordings.published("none")
    peers = [name for name in available_readers("none")[0] if name != SMALL_CACHE]
    readers = {
        "memmap": memmap,
        "open_wshard": _viewing(_file_blocks(recordings.paths("none"))),
        "published": _viewing(_published_blocks(episodes)),
        **{name: READERS[name](recordings, "none") for name in peers},
    }
    fills = {name: _copying(read) for name, read in readers.items()}
    times = _time_open_files(fills, recordings, amounts, options)
    random = "plain, random, `open_wshard`"
    measurements = [
        _measure(random, times, "open_wshard", "memmap", "window-memmap"),
        _measure("plain, random, published", times, "published", "memmap"),
        *(_measure(random, times, "open_wshard", peer) for peer in peers),
    ]
    whole_epoch = replace(amounts, scattered=amounts.streamed)
    for kind, words in _STREAMS.items():
        openers: dict[str, Opener] = {"memmap": partial(_copying, memmap)}
        times = _time_stream(kind, lambda: episodes, openers, whole_epoch, options)
        measurements.append(_measure(f"plain, {words}", times, kind, "memmap", "window-memmap"))
    return measurements


def _measure_compressed(recordings: Recordings, amounts: _Amounts, options: RunOptions) -> list[Measurement]:
    """Measure reopened files first: HDF5 shares its cache between all handles of a file."""
    name = f"zstd, {recordings.camera}"
    available = available_readers("zstd")[0]
    openers: dict[str, Opener] = {peer: partial(_open_peer, READERS[peer], recordings) for peer in available}
    ours: dict[str, Opener] = {
        "open_wshard": lambda: _writing(_file_blocks(recordings.paths("zstd"))),
        "published": lambda: _writing(_published_blocks(recordings.published("zstd"))),
    }
    measurements: list[Measurement] = []
    if "h5py" in openers:
        # Arms that open the same HDF5 files must not follow one another: the first is still open.
        windows = _random_windows(recordings, amounts.direct // 4)
        decoding = partial(_decoding, recordings)
        times = _time_reopened({"h5py": openers["h5py"], **ours}, decoding, windows, options)
        for arm, words in (("open_wshard", "`open_wshard`"), ("published", "published"), (_DECODING, f"'{_DECODING}'")):
            measurements.append(_measure(f"{name}, random, {words}, reopened", times, arm, "h5py"))
    stream_peers = [peer for peer in ("h5py", "zarr", SMALL_CACHE) if peer in openers]
    for kind, words in _STREAMS.items():
        if not stream_peers:
            break
        peers = {peer: openers[peer] for peer in stream_peers}
        times = _time_stream(kind, lambda: _open_all(recordings), peers, amounts, options)
        for peer in stream_peers:
            # A scattered order decodes a chunk per window in every arm, so h5py has no target there.
            promise = "" if kind == "scattered" and peer == "h5py" else _PROMISES.get(peer, "")
            measurements.append(_measure(f"{name}, {words}", times, kind, peer, promise))
    peers_kept = ["h5py", "zarr", *(("npz", "Parquet", "Lance") if recordings.camera == "rendered" else ())]
    peers_kept = [peer for peer in peers_kept if peer in openers]
    fills = {"memmap": _copying(memmap_reader(recordings)), "open_wshard": ours["open_wshard"]()}
    times = _time_open_files(fills | {peer: openers[peer]() for peer in peers_kept}, recordings, amounts, options)
    if "h5py" in peers_kept:
        measurements.append(_measure(f"{name}, random, a memmap of the plain data, kept open", times, "memmap", "h5py"))
    case = f"{name}, random, `open_wshard`, kept open"
    return measurements + [_measure(case, times, "open_wshard", peer, _PROMISES.get(peer, "")) for peer in peers_kept]


def _measure(case: str, times: Timings, arm: str, peer: str, promise: str = "") -> Measurement:
    return times.compare(case, arm, peer, unit="µs", promise=promise)


def _file_blocks(paths: Sequence[Path]) -> list[list[BlockReader]]:
    files = [open_wshard(path) for path in paths]
    return [[file[name] for name in _BLOCKS] for file in files]


def _published_blocks(episodes: wd.Episodes) -> list[list[BlockReader]]:
    return [[episode.chunks[0].file[name] for name in _BLOCKS] for episode in episodes]


def _open_all(recordings: Recordings) -> wd.Episodes:
    """Return published episodes with all files open, as the peers have them."""
    episodes = recordings.published("zstd")
    _published_blocks(episodes)
    return episodes


def _viewing(blocks: Sequence[Sequence[BlockReader]]) -> ReadWindow:
    return lambda episode, start: tuple(block.window(start, start + _WINDOW) for block in blocks[episode])


def _writing(blocks: Sequence[Sequence[BlockReader]]) -> Fill:
    def fill(episode: int, start: int, outputs: Sequence[Any]) -> None:
        for block, output in zip(blocks[episode], outputs, strict=True):
            block.window(start, start + _WINDOW, out=output)

    return fill


def _copying(read: ReadWindow) -> Fill:
    def fill(episode: int, start: int, outputs: Sequence[Any]) -> None:
        for output, array in zip(outputs, read(episode, start), strict=True):
            output[...] = array

    return fill


def _open_peer(make: Callable[[Recordings, str], ReadWindow], recordings: Recordings) -> Fill:
    return _copying(make(recordings, "zstd"))


def _decoding(recordings: Recordings) -> Fill:
    """Decode the camera chunks of a window and discard them."""
    import zstandard

    decoder, frames = zstandard.ZstdDecompressor(), [_frames(path) for path in recordings.paths("zstd")]

    def fill(episode: int, start: int, _outputs: Sequence[Any]) -> None:
        for number in range(start // CHUNK_STEPS, (start + _WINDOW - 1) // CHUNK_STEPS + 1):
            decoder.decompress(frames[episode][number])

    return fill


def _frames(path: Path) -> list[bytes]:
    block = open_wshard(path)[_BLOCKS[0]]
    data = path.read_bytes()
    spans = [block.span(step, step + 1) for step in range(0, block.meaning.rows, CHUNK_STEPS)]
    return [data[start:end] for start, end in spans]


def _time_open_files(
    fills: Mapping[str, Fill], recordings: Recordings, amounts: _Amounts, options: RunOptions
) -> Timings:
    """Time random windows from files that stay open over all rounds."""
    windows = _random_windows(recordings, amounts.direct)
    by_arm = {name: windows[: amounts.of(name, amounts.direct)] for name in fills}
    _check_equal({name: _digest(fill, windows[: amounts.slow]) for name, fill in fills.items()})
    arms: dict[str, Arm] = {name: partial(_reading, fill, by_arm[name]) for name, fill in fills.items()}
    return interleave(arms, options.rounds).per_item({name: len(own) for name, own in by_arm.items()})


def _time_reopened(openers: Mapping[str, Opener], decoding: Opener, windows: Windows, options: RunOptions) -> Timings:
    """Time random windows from files that are reopened before each round, untimed."""
    first = next(iter(openers.values()))
    for name, opener in openers.items():
        _check_equal({"first": _digest(first(), windows[:64]), name: _digest(opener(), windows[:64])})
    arms: dict[str, Arm] = {
        name: partial(_reopen_and_read, opener, windows) for name, opener in {**openers, _DECODING: decoding}.items()
    }
    return interleave(arms, options.rounds).per_item(dict.fromkeys(arms, len(windows)))


def _reopen_and_read(opener: Opener, windows: Windows) -> Callable[[], int]:
    return _reading(opener(), windows)


def _random_windows(recordings: Recordings, count: int) -> Windows:
    rng = np.random.default_rng(_SEED)
    starts = rng.integers(0, recordings.steps - _WINDOW + 1, count)
    return list(zip(rng.integers(0, recordings.episodes, count).tolist(), starts.tolist(), strict=True))


def _time_stream(
    kind: str, ours: Callable[[], wd.Episodes], openers: Mapping[str, Opener], amounts: _Amounts, options: RunOptions
) -> Timings:
    """Time a stream in its own order, and peers that read the same windows in that order."""
    most = amounts.streamed if kind == "stream" else amounts.scattered
    windows, digest = _stream_order(_open_stream(kind, ours()), most, amounts.slow)
    by_peer = {name: windows[: amounts.of(name, most)] for name in openers}
    for name, opener in openers.items():
        _check_equal({kind: digest, name: _digest(opener(), windows[: amounts.slow])})
    arms: dict[str, Arm] = {name: partial(_reopen_and_read, opener, by_peer[name]) for name, opener in openers.items()}
    arms[kind] = lambda: partial(_consume, _open_stream(kind, ours()), len(windows))
    counts = {kind: len(windows), **{name: len(part) for name, part in by_peer.items()}}
    return interleave(arms, options.rounds).per_item(counts)


def _open_stream(kind: str, episodes: wd.Episodes) -> Stream:
    shuffle: bool | Shuffle = True if kind == "stream" else Shuffle(1, _SHUFFLE_BUFFER)
    return episodes.windows(keys=_KEYS, pad=None, batch_size=_BATCH, shuffle=shuffle, seed=_SEED)


def _stream_order(stream: Stream, most: int, checked: int) -> tuple[Windows, str]:
    """Return the windows of the stream in order, and a digest of the first of them."""
    windows: list[tuple[int, int]] = []
    digest = hashlib.sha256()
    with closing(stream.epoch(0)) as batches:
        for batch in batches:
            positions = list(zip(batch["episode"].tolist(), batch["step"].tolist(), strict=True))
            for row in range(max(0, min(len(positions), checked - len(windows)))):
                for name in CHANNELS:
                    digest.update(np.ascontiguousarray(batch[name][row]).view(np.uint8).data)
            windows += positions
            if len(windows) >= most:
                break
    return windows, digest.hexdigest()


def _consume(stream: Stream, count: int) -> int:
    remaining = count
    with closing(stream.epoch(0)) as batches:
        for batch in batches:
            remaining -= len(batch["step"])
            if remaining <= 0:
                break
    return remaining


def _reading(fill: Fill, windows: Windows) -> Callable[[], int]:
    outputs = _batch_arrays()

    def run() -> int:
        for number, (episode, start) in enumerate(windows):
            fill(episode, start, outputs[number % _BATCH])
        return 0

    return run


def _digest(fill: Fill, windows: Windows) -> str:
    digest, outputs = hashlib.sha256(), _batch_arrays()[0]
    for episode, start in windows:
        fill(episode, start, outputs)
        for output in outputs:
            digest.update(output.view(np.uint8).data)
    return digest.hexdigest()


def _check_equal(digests: Mapping[str, str]) -> None:
    assert len(set(digests.values())) == 1, f"the arms read different values: {digests}"


def _batch_arrays() -> list[tuple[Any, ...]]:
    """Return views of the arrays of a batch, one tuple per window."""
    shapes = (((_BATCH, _WINDOW, SIDE, SIDE), np.uint8), *[((_BATCH, _WINDOW, 7), np.float32)] * 2)
    batch = [np.ones(shape, dtype) for shape, dtype in shapes]
    return [tuple(array[row] for array in batch) for row in range(_BATCH)]
