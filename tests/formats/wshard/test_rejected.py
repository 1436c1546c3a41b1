"""If this fails, a reader accepts an invalid file, or crashes on it.

One rejected file for each rule of docs/specs/wshard.md. Each is a valid file with one change and correct checksums, so
that only the rule rejects it.
"""

from __future__ import annotations

import json
import resource
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import lz4.block
import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.wshard.scenes import RawFile, write
from warpdata.errors import CorruptError, LimitExceededError, UnsupportedError, WarpError
from warpdata.wshard import identity, load_wshard, open_wshard

CHANNELS: dict[str, Any] = {"channels": [{"id": "s", "dtype": "f32", "shape": [2], "signal_block": "signal/s"}]}
EPISODE: dict[str, Any] = {"episode_id": "e", "env_id": "E", "length_T": 4}


def valid_file(**documents: Any) -> RawFile:
    """Return a file of four steps, with some documents replaced."""
    found = {"wshard": {"version": 1}, "episode": EPISODE, "channels": CHANNELS} | documents
    blocks = {
        f"meta/{name}": value if isinstance(value, bytes) else json.dumps(value).encode()
        for name, value in found.items()
    }
    return RawFile(blocks | {"signal/s": bytes(32), "reward": bytes(16), "done": bytes(4)})


def test_valid_file_is_accepted(tmp_path: Path) -> None:
    assert load_wshard(write(tmp_path / "a.wshard", valid_file().build())).length == 4


def header(**fields: Any) -> Callable[[RawFile], object]:
    return lambda file: file.header.update(fields)


def entry(number: int, **fields: int) -> Callable[[RawFile], object]:
    return lambda file: file.entries[number].update(fields)


def shifted(number: int, field: str, by: int) -> Callable[[RawFile], object]:
    def spoil(file: RawFile) -> None:
        file.entries[number][field] += by

    return spoil


def renamed(number: int, name: bytes) -> Callable[[RawFile], object]:
    """Set another name of the same length, with its hash."""

    def spoil(file: RawFile) -> None:
        assert len(name) == len(file.names[number])
        file.names[number] = name
        file.entries[number]["hash"] = xxhash.xxh64(name).intdigest()

    return spoil


def stored(data: bytes, flags: int, size: int, plain: bytes = b"") -> Callable[[RawFile], object]:
    """Replace the bytes of the last block, `done`, so that nothing else moves."""

    def spoil(file: RawFile) -> None:
        file.payloads[-1] = data
        file.entries[-1].update(flags=flags, stored=len(data), size=size, checksum=crc32c.crc32c(plain))
        file.size = file.entries[-1]["offset"] + len(data)
        file.header["total"] = file.size

    return spoil


def unknown(data: bytes, flags: int, size: int) -> Callable[[RawFile], object]:
    """Do the same, under a name without a declaration."""

    def spoil(file: RawFile) -> None:
        renamed(5, b"x/yz")(file)
        stored(data, flags, size)(file)

    return spoil


def seekable(frames: list[bytes], rows: list[tuple[int, int, int]], **wrong: int) -> bytes:
    table = b"".join(struct.pack("<III", *row) for row in rows)
    count = wrong.get("count", len(rows))
    footer = struct.pack("<IBI", count, wrong.get("descriptor", 0x80), wrong.get("magic", 0x8F92EAB1))
    head = struct.pack("<II", wrong.get("skippable", 0x184D2A5E), wrong.get("bytes", len(table) + 9))
    return b"".join(frames) + head + table + footer


def zstd(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


FOUR = bytes(4)
FRAME = zstd(FOUR)
CHECK = xxhash.xxh64(FOUR).intdigest() & 0xFFFFFFFF
ROW = (len(FRAME), 4, CHECK)
HUGE = 2**62
CONTAINER: dict[str, tuple[Callable[[RawFile], object], str]] = {
    "magic": (header(magic=b"SHRE"), "begins with"),
    "version": (header(version=3), "version 3"),
    "role": (header(role=1), "role 0x01"),
    "big-endian": (header(flags=0x00A4), "big-endian"),
    "alignment of the header": (header(alignment=8), "alignment 8"),
    "default compression": (header(codec=3), "compression 3"),
    "entry size": (header(entry_size=56), "56 bytes"),
    "total too small": (header(total=64), "promises 64"),
    "total too large": (header(total=HUGE), "promises"),
    "count beyond the file": (header(count=900_000), "do not fit"),
    "count beyond the limit": (header(count=2**32 - 1), "entries"),
    "count too small": (header(count=5), "between the index and the names"),
    "names before the index ends": (header(names=100), "do not fit"),
    "names beyond the file": (header(names=HUGE), "do not fit"),
    "data before names": (header(data=64), "do not fit"),
    "data beyond the file": (header(data=HUGE), "do not fit"),
    "schema beyond the file": (header(schema=HUGE), "do not fit"),
    "name outside": (entry(0, name_at=10_000), "outside"),
    "empty name": (entry(0, name_bytes=0), "outside"),
    "name hash": (shifted(0, "hash", 1), "hash"),
    "name not UTF-8": (renamed(4, b"rewa\xff\xff"), "not UTF-8"),
    "unknown flag": (entry(4, flags=16), "flags"),
    "codec without compressed": (entry(4, flags=2), "not compressed"),
    "both codecs": (entry(4, flags=7), "both"),
    "compressed by nothing": (entry(4, flags=1), "nothing says how"),
    "chunked but plain": (entry(4, flags=8), "not compressed"),
    "chunked lz4": (entry(4, flags=1 | 4 | 8), "only zstd"),
    "offset before the data": (entry(4, offset=64), "outside"),
    "offset beyond the file": (entry(4, offset=HUGE), "outside"),
    "offset that wraps around": (entry(4, offset=2**64 - 64), "outside"),
    "offset not aligned": (shifted(4, "offset", 4), "not aligned"),
    "blocks overlap": (shifted(4, "offset", -64), "overlap"),
    "stored beyond the file": (entry(5, stored=HUGE, size=HUGE), "outside"),
    "plain sizes differ": (entry(4, size=15), "not compressed"),
    "checksum": (shifted(4, "checksum", 1), "checksum"),
    "no checksum although promised": (entry(3, checksum=0), "checksum"),
    "zstd is not zstd": (stored(b"nonsense", 3, 4, FOUR), "zstd"),
    "zstd of another size": (stored(zstd(bytes(5)), 3, 4, FOUR), "promises 5"),
    "zstd cut short": (stored(FRAME[:-1], 3, 4, FOUR), "zstd"),
    "zstd with a tail": (stored(FRAME + b"x", 3, 4, FOUR), "zstd"),
    "two zstd frames": (stored(zstd(bytes(2)) * 2, 3, 4, FOUR), "promises 2"),
    "zstd without a size, longer": (stored(zstd(bytes(5), write_content_size=False), 3, 4, FOUR), "zstd"),
    "zstd without a size, shorter": (stored(zstd(bytes(3), write_content_size=False), 3, 4, FOUR), "3 bytes"),
    "zstd bomb": (stored(FRAME, 3, 2**30, FOUR), "cannot hold"),
    "zstd beyond the limit": (stored(FRAME, 3, 2**31, FOUR), "decoded"),
    "lz4 is not lz4": (stored(b"\xff" * 8, 5, 4, FOUR), "lz4"),
    "lz4 shorter": (stored(lz4.block.compress(bytes(3), store_size=False), 5, 4, FOUR), "lz4|3 bytes"),
    "lz4 longer": (stored(lz4.block.compress(bytes(9), store_size=False), 5, 4, FOUR), "lz4"),
    "lz4 bomb": (stored(b"\x00", 5, 2**20, FOUR), "cannot hold"),
    "chunks: no table": (stored(FRAME, 11, 4, FOUR), "seek table"),
    "chunks: footer": (stored(seekable([FRAME], [ROW], magic=1), 11, 4, FOUR), "ends with"),
    "chunks: descriptor": (stored(seekable([FRAME], [ROW], descriptor=0), 11, 4, FOUR), "ends with"),
    "chunks: count": (stored(seekable([FRAME], [ROW], count=2**31), 11, 4, FOUR), "lists"),
    "chunks: skippable": (stored(seekable([FRAME], [ROW], skippable=1), 11, 4, FOUR), "skippable"),
    "chunks: table size": (stored(seekable([FRAME], [ROW], bytes=8), 11, 4, FOUR), "skippable"),
    "chunks: stored sum": (stored(seekable([FRAME], [(1, 4, CHECK)]), 11, 4, FOUR), "sums"),
    "chunks: decoded sum": (stored(seekable([FRAME], [(len(FRAME), 5, CHECK)]), 11, 4, FOUR), "sums"),
    "chunks: empty chunk": (stored(seekable([FRAME], [ROW, (0, 0, 0)]), 11, 4, FOUR), "empty"),
    "chunks: checksum": (stored(seekable([FRAME], [(len(FRAME), 4, CHECK ^ 1)]), 11, 4, FOUR), "checksum"),
    "chunks: bomb": (unknown(seekable([FRAME], [(len(FRAME), 2**20, 0)]), 11, 2**20), "cannot hold"),
    "chunks: beyond the limit": (unknown(seekable([FRAME], [(len(FRAME), 2**31, 0)]), 11, 2**31), "decoded"),
}


@pytest.mark.parametrize("rule", CONTAINER)
def test_container_that_breaks_a_rule(rule: str, tmp_path: Path) -> None:
    spoil, message = CONTAINER[rule]
    with pytest.raises((CorruptError, UnsupportedError, LimitExceededError), match=message):
        load_wshard(write(tmp_path / "a.wshard", valid_file().build(spoil)))


def forge_seek_table(chunk_count: int) -> bytes:
    """Return a small file whose seek table promises a GiB, the most for one chunk, for each chunk."""
    frame = zstd(bytes(200)).ljust(2**15, b"?")
    rows = [(len(frame), 2**30, 0)] * chunk_count
    return valid_file().build(unknown(seekable([frame] * chunk_count, rows), 11, chunk_count * 2**30))


def test_seek_table_with_a_huge_total_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wshard", forge_seek_table(128))
    assert path.stat().st_size < 5 * 2**20
    with pytest.raises(LimitExceededError, match="too many to load at once"):
        load_wshard(path)
    with open_wshard(path) as file, pytest.raises(LimitExceededError, match="too many to decode at once"):
        file["x/yz"].read()
    with pytest.raises(CorruptError, match="time chunk 0"):
        identity(path)


def test_blocks_with_a_huge_total_are_refused(tmp_path: Path) -> None:
    """Each block respects the limit for one block."""
    extra = {f"x/{number}": bytes(2**15) for number in range(17)}
    plain = valid_file()
    names = [name.decode() for name in plain.names]
    file = RawFile({**dict(zip(names, plain.payloads, strict=True)), **extra})
    for entry in file.entries[-len(extra) :]:
        entry.update(flags=3, size=2**30)
    path = write(tmp_path / "a.wshard", file.build())
    with pytest.raises(LimitExceededError, match="18253611008 bytes, decoded from 557056"):
        load_wshard(path)
    with pytest.raises(CorruptError, match="zstd"):
        load_wshard(path, ["x/3"])


def test_forged_seek_table_allocates_no_memory(tmp_path: Path) -> None:
    """Twelve GiB are within the limit, but must not be touched before the first chunk is decoded."""
    path = write(tmp_path / "a.wshard", forge_seek_table(12))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((CorruptError, LimitExceededError)):
        load_wshard(path)
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown_bytes < 2**30 + 2**28, "at most one chunk"


def test_failed_allocation_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(np, "empty", refuse)
    with pytest.raises(LimitExceededError, match="too many"):
        load_wshard(write(tmp_path / "a.wshard", forge_seek_table(1)))


def without_checksums(data: bytes, size: int) -> Callable[[RawFile], object]:
    """Write an undeclared lz4 block into a file without checksums."""

    def spoil(file: RawFile) -> None:
        unknown(data, 5, size)(file)
        file.header["flags"] = 0
        file.entries[-1]["checksum"] = 0

    return spoil


# Four literals, a match of 8 bytes with offset 0, twelve literals.
SELFISH = b"\x44abcd\0\0" + b"\xc0" + b"x" * 12


def test_lz4_match_with_offset_zero_is_refused(tmp_path: Path) -> None:
    """Without a checksum the rule detects it; with one, the checksum."""
    with pytest.raises(CorruptError, match="0 bytes back"):
        load_wshard(write(tmp_path / "a.wshard", valid_file().build(without_checksums(SELFISH, 24))))
    with pytest.raises(CorruptError, match="checksum"):
        load_wshard(write(tmp_path / "b.wshard", valid_file().build(unknown(SELFISH, 5, 24))))


@given(st.lists(st.binary(max_size=8) | st.integers(0, 600).map(bytes), max_size=12).map(b"".join))
def test_valid_lz4_without_checksums_is_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    packed = lz4.block.compress(data, store_size=False)
    path = tmp_path_factory.getbasetemp() / "honest.wshard"
    loaded = load_wshard(write(path, valid_file().build(without_checksums(packed, len(data)))))
    assert loaded.extra["x/yz"].data == data


def test_duplicate_block_name(tmp_path: Path) -> None:
    def spoil(file: RawFile) -> None:
        file.entries[5].update({key: file.entries[4][key] for key in ("hash", "name_at", "name_bytes")})

    with pytest.raises(CorruptError, match="same name"):
        load_wshard(write(tmp_path / "a.wshard", valid_file().build(spoil)))


def channel(**members: Any) -> dict[str, Any]:
    return {"channels": [{**CHANNELS["channels"][0], **members}]}


METADATA: dict[str, tuple[str, Any]] = {
    "not JSON": ("episode", b"{"),
    "not UTF-8": ("episode", b'{"a":"\xff"}'),
    "not an object": ("episode", b"[]"),
    "a key twice": ("episode", b'{"episode_id":"e","episode_id":"f","length_T":4}'),
    "NaN": ("episode", b'{"episode_id":"e","length_T":4,"metadata":{"a":NaN}}'),
    "a number beyond measure": ("episode", b'{"episode_id":"e","length_T":4,"metadata":{"a":1e999}}'),
    "an integer beyond measure": ("episode", EPISODE | {"metadata": {"a": 10**400}}),
    "a negative integer beyond measure": ("episode", EPISODE | {"metadata": {"a": [-(2**1024)]}}),
    "half a surrogate pair": ("episode", b'{"episode_id":"\\ud800","length_T":4}'),
    "deep": ("episode", b'{"episode_id":"e","length_T":4,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
    "a number of many digits": ("episode", b'{"episode_id":"e","length_T":' + b"9" * 5000 + b"}"),
    "no id": ("episode", {"length_T": 4}),
    "no length": ("episode", {"episode_id": "e"}),
    "negative length": ("episode", EPISODE | {"length_T": -4}),
    "length of a boolean": ("episode", EPISODE | {"length_T": True}),
    "length of a fraction": ("episode", EPISODE | {"length_T": 4.0}),
    "huge length": ("episode", EPISODE | {"length_T": 2**50}),
    "another length": ("episode", EPISODE | {"length_T": 5}),
    "env_id": ("episode", EPISODE | {"env_id": 5}),
    "metadata": ("episode", EPISODE | {"metadata": []}),
    "timebase": ("episode", EPISODE | {"timebase": 30}),
    "timebase type": ("episode", EPISODE | {"timebase": {"type": "moons"}}),
    "negative rate": ("episode", EPISODE | {"timebase": {"type": "ticks", "tick_hz": -1}}),
    "rate beyond measure": ("episode", EPISODE | {"timebase": {"type": "ticks", "tick_hz": 10**400}}),
    "range of another length": ("episode", EPISODE | {"timestep_range": [0, 9]}),
    "range of one": ("episode", EPISODE | {"timestep_range": [0]}),
    "chunk index": ("episode", EPISODE | {"chunk_index": -1}),
    "shard version": ("wshard", {"version": 2}),
    "shard version of a boolean": ("wshard", {"version": True}),
    "endianness": ("wshard", {"version": 1, "endianness": "big"}),
    "channels": ("channels", {"channels": {}}),
    "a channel": ("channels", {"channels": [5]}),
    "channel id": ("channels", channel(id=5)),
    "channel block": ("channels", channel(signal_block=5)),
    "a channel twice": ("channels", {"channels": CHANNELS["channels"] * 2}),
    "dtype": ("channels", channel(dtype="f31")),
    "no dtype": ("channels", channel(dtype=None)),
    "dtype of another size": ("channels", channel(dtype="f64")),
    "negative shape": ("channels", channel(shape=[-2])),
    "shape of a boolean": ("channels", channel(shape=[True, 2])),
    "shape of fractions": ("channels", channel(shape=[2.0])),
    "shape is a number": ("channels", channel(shape=2)),
    "huge shape": ("channels", channel(shape=[2**31 - 1] * 16)),
    "endless shape": ("channels", channel(shape=[1] * 17)),
    "shape of nothing": ("channels", channel(shape=[0])),
}


@pytest.mark.parametrize("rule", METADATA)
def test_metadata_that_breaks_a_rule(rule: str, tmp_path: Path) -> None:
    name, document = METADATA[rule]
    with pytest.raises((CorruptError, UnsupportedError)):
        load_wshard(write(tmp_path / "a.wshard", valid_file(**{name: document}).build()))


def test_missing_metadata(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="meta/episode"):
        load_wshard(write(tmp_path / "a.wshard", RawFile({"x": b"y"}).build()))


@pytest.mark.parametrize("size", [0, 1, 4, 63, 64, 200, 700])
def test_truncated_file(size: int, tmp_path: Path) -> None:
    with pytest.raises(WarpError):
        load_wshard(write(tmp_path / "a.wshard", valid_file().build()[:size]))


def test_paths_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_wshard(tmp_path / "nothing.wshard")
    with pytest.raises(WarpError):
        load_wshard(tmp_path)
