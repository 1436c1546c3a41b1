"""If this fails, an encoded camera returns wrong frames, or reads more bytes than it needs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kinds.artifacts.media import Scene, encode_test_image
from tests.reference import wshard_reader as reference
from warpdata.errors import (
    BadInputError,
    CorruptError,
    LimitExceededError,
    MediaDecodeError,
    NotFoundError,
    UnsupportedError,
)
from warpdata.formats.wshard.frame_decoder import entry_extent, verify_packet
from warpdata.formats.wshard.frame_index import parse_frames
from warpdata.wshard import (
    Block,
    Channel,
    DType,
    Episode,
    FrameReader,
    compose_wshard,
    frames_block,
    index_images,
    index_video,
    load_wshard,
    open_wshard,
    save_wshard,
)

SCENES = [
    Scene("libx264", "mp4", {"g": "10", "bf": "0"}),
    Scene("libx264", "mp4", {"g": "12", "bf": "3", "x264-params": "open-gop=1"}),
    Scene("libx264", "mp4", {"g": "12", "bf": "2"}, varies=True),
    Scene("libx264", "mp4", {"g": "8", "bf": "2"}, hides=5),
    Scene("libx264", "matroska", {"g": "10", "bf": "2"}),
    Scene("libsvtav1", "mp4", {"g": "10"}),
    Scene("libx265", "mp4", {"g": "12", "x265-params": "log-level=0"}),
    Scene("libvpx-vp9", "matroska", {"g": "10"}),
    Scene("ffv1", "matroska", {"g": "5"}),
]


def with_video(scene: Scene, directory: Path) -> Path:
    video = directory / f"video.{scene.container}"
    video.write_bytes(scene.data)
    rows, block = index_video(video, "cam")
    target = directory / "ep.wshard"
    # A large block first, because the beginning of a file is read at once.
    before = {"before": Channel("before", np.zeros((3, 40_000), np.uint8))}
    episode = Episode("ep", 3, observations=before, extra={frames_block("signal/cam"): block})
    compose_wshard(episode, target, {"signal/cam": rows})
    return target


class Counting:
    """A source that records the ranges that are read."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        self.size_bytes = len(self._data)
        self.requested: list[tuple[int, int]] = []

    def read_range(self, start: int, end: int) -> memoryview:
        self.requested.append((start, end))
        return memoryview(self._data)[start:end]


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_each_frame_equals_sequential_decoding(scene: Scene, tmp_path: Path) -> None:
    path = with_video(scene, tmp_path)
    pixels = [frame for _, frame in scene.decoded]
    with open_wshard(path) as file:
        assert bytes(file["signal/cam"].raw()) == scene.data
        reader = FrameReader(file, "signal/cam")
        assert len(reader) == len(pixels)
        for number in np.random.default_rng(2).permutation(len(pixels))[:12].tolist():
            np.testing.assert_array_equal(reader.frame(number), pixels[number])
        for start, stop in ((0, len(pixels)), (9, 14), (len(pixels) - 3, len(pixels)), (4, 4)):
            found = list(reader.frames(start, stop))
            assert len(found) == stop - start
            assert all(np.array_equal(one, two) for one, two in zip(found, pixels[start:stop], strict=True))


def test_only_bytes_from_the_key_frame_on_are_read(tmp_path: Path) -> None:
    scene = SCENES[0]
    source = Counting(with_video(scene, tmp_path))
    with open_wshard(source) as file:
        reader = FrameReader(file, "signal/cam")
        begin = file["signal/cam"].entry.offset
        source.requested.clear()
        reader.frame(25)
        low = min(start for start, _ in source.requested) - begin
        high = max(end for _, end in source.requested) - begin
        # Key frames are 0, 10, 20, 30. A decoder delays some frames, but less than a whole group.
        assert low == reader.index.extent(20)[0]
        assert reader.index.extent(25)[1] <= high <= reader.index.extent(39)[1]
        assert np.flatnonzero(reader.index.is_key).tolist() == [0, 10, 20, 30]
        times = [round(time * 10**9 / 30_000) for time in scene.times()]
        assert reader.index.times_ns.tolist() == times


def jpegs(count: int) -> list[bytes]:
    chance = np.random.default_rng(4)
    return [encode_test_image(chance.integers(0, 255, (9, 7, 3), dtype=np.uint8), "JPEG") for _ in range(count)]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_images_are_stored_unchanged(kind: str, tmp_path: Path) -> None:
    from PIL import Image

    chance = np.random.default_rng(4)
    files = [encode_test_image(chance.integers(0, 255, (9, 7, 3), dtype=np.uint8), kind) for _ in range(6)]
    channel, block = index_images(files, range(0, 600, 100), "cam")
    episode = Episode("ep", 6, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
    save_wshard(episode, tmp_path / "ep.wshard")
    # Loading and saving keeps the index, although it is not interpreted.
    save_wshard(load_wshard(tmp_path / "ep.wshard"), tmp_path / "again.wshard")
    with open_wshard(tmp_path / "again.wshard") as file:
        reader = FrameReader(file, "signal/cam")
        assert [reader.encoded(number) for number in range(6)] == files
        assert reader.index.times_ns.tolist() == [0, 100, 200, 300, 400, 500]
        for number, data in enumerate(files):
            with Image.open(io.BytesIO(data)) as image:
                np.testing.assert_array_equal(reader.frame(number), np.asarray(image))


def test_reference_reader_agrees(tmp_path: Path) -> None:
    files = jpegs(3)
    channel, block = index_images(files, [5, 6, 7], "cam")
    episode = Episode("ep", 3, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
    save_wshard(episode, tmp_path / "ep.wshard")
    codec, extradata, entries = reference.read_frames(block.data)
    assert (codec, extradata) == ("jpeg", b"")
    data = channel.data.tobytes()
    assert [data[entry["offset"] : entry["offset"] + entry["size"]] for entry in entries] == files
    assert [(entry["time_ns"], entry["flags"]) for entry in entries] == [(5, 1), (6, 1), (7, 1)]


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 32 + 4 + 3 * 32 - 1), flip=st.integers(1, 255))
def test_flipped_index_is_refused_or_gives_the_same_bytes(at: int, flip: int) -> None:
    files = jpegs(3)
    channel, block = index_images(files, [5, 600, 70_000], "cam")
    data = bytearray(block.data)
    data[at] ^= flip
    try:
        index = parse_frames(bytes(data), channel.data.nbytes)
    except (CorruptError, UnsupportedError, LimitExceededError):
        return
    # The remaining flips are in times, or in offsets and checksums that are verified with each frame.
    body = io.BytesIO(channel.data.tobytes()).getbuffer()
    for number in range(len(index)):
        entry = index.entry_of(number)
        start, end = entry_extent(index, entry)
        try:
            assert bytes(verify_packet(index, entry, body[start:end])) in files
        except CorruptError:
            continue


SPOILT: dict[str, tuple[int, bytes, type[Exception]]] = {
    "magic": (0, b"WSFX", CorruptError),
    "version": (4, b"\2", UnsupportedError),
    "entry size": (6, b"\x28", UnsupportedError),
    "number of entries": (8, b"\2", CorruptError),
    "too many entries": (8, b"\xff\xff\xff\xff", LimitExceededError),
    "no codec": (16, b"\0", LimitExceededError),
    "long codec": (16, b"\x41", LimitExceededError),
    "extradata": (20, b"\0\0\0\x7f", LimitExceededError),
    "reserved": (24, b"\1", UnsupportedError),
    "codec": (32, b"\xff", CorruptError),
    "offset": (36, b"\xff\xff", CorruptError),
    "offset that wraps": (36, b"\xff" * 8, CorruptError),
    "size": (44, b"\0\xff\xff", CorruptError),
    "time": (36 + 32 + 16, b"\5\0\0", CorruptError),
    "unknown flag": (36 + 24, b"\5", UnsupportedError),
    "no key": (36 + 24, b"\0", CorruptError),
    "zeros": (36 + 28, b"\1", UnsupportedError),
}


@pytest.mark.parametrize("what", SPOILT)
def test_index_that_breaks_a_rule_is_refused(what: str) -> None:
    channel, block = index_images(jpegs(3), [5, 600, 70_000], "cam")
    assert len(parse_frames(block.data, channel.data.nbytes)) == 3
    at, spoil, error = SPOILT[what]
    data = bytearray(block.data)
    data[at : at + len(spoil)] = spoil
    with pytest.raises(error):
        parse_frames(bytes(data), channel.data.nbytes)
    for cut in (0, 20, len(data) - 1):
        with pytest.raises(CorruptError):
            parse_frames(block.data[:cut], channel.data.nbytes)


def test_times_may_be_far_apart() -> None:
    """The difference of these times does not fit in 64 bits."""
    channel, block = index_images(jpegs(2), [-(2**63), 2**63 - 1], "cam")
    assert parse_frames(block.data, channel.data.nbytes).times_ns.tolist() == [-(2**63), 2**63 - 1]


def test_compressed_encoded_block_is_readable(tmp_path: Path) -> None:
    files = [data + bytes(500) for data in jpegs(3)]
    channel, block = index_images(files, [1, 2, 3], "cam")
    episode = Episode("ep", 3, observations={"cam": channel}, extra={frames_block("signal/cam"): block})
    save_wshard(episode, tmp_path / "ep.wshard", compression="zstd")
    with open_wshard(tmp_path / "ep.wshard") as file:
        assert file["signal/cam"].entry.codec.name == "ZSTD"
        reader = FrameReader(file, "signal/cam")
        assert [reader.encoded(number) for number in range(3)] == files


def test_damaged_frame_is_detected_on_read(tmp_path: Path) -> None:
    files = jpegs(3)
    channel, block = index_images(files, [1, 2, 3], "cam")
    data = channel.data.copy()
    data[len(files[0]) + 40] ^= 1
    episode = Episode("ep", 3, observations={"cam": replace(channel, data=data)})
    save_wshard(replace(episode, extra={frames_block("signal/cam"): block}), tmp_path / "ep.wshard")
    with open_wshard(tmp_path / "ep.wshard") as file:
        reader = FrameReader(file, "signal/cam")
        reader.frame(0)
        with pytest.raises(CorruptError, match="fail their checksum"):
            reader.frame(1)


def test_unsupported_media_are_refused(tmp_path: Path) -> None:
    def refused(data: bytes, error: type[Exception], match: str) -> None:
        (tmp_path / "video").write_bytes(data)
        with pytest.raises(error, match=match):
            index_video(tmp_path / "video", "cam")

    refused(b"no video at all", MediaDecodeError, "cannot be decoded")
    refused(Scene("libx264", "mpegts").data, MediaDecodeError, "cannot be decoded")
    refused(Scene("mpeg4", "mp4").data, UnsupportedError, "each packet is a frame")
    with pytest.raises(BadInputError, match="not all JPEG"):
        index_images([b"GIF89a"], [0], "cam")
    with pytest.raises(BadInputError, match="same time"):
        index_images(jpegs(2), [3, 3], "cam")
    with pytest.raises(BadInputError, match="2 images"):
        index_images(jpegs(2), [3], "cam")


def test_unknown_video_codec_is_refused(tmp_path: Path) -> None:
    path = with_video(SCENES[0], tmp_path)
    episode = load_wshard(path)
    block = episode.extra[frames_block("signal/cam")]
    other = Block(block.data.replace(b"h264", b"bmp\0", 1))
    named = Block(block.data[:16] + b"\3\0\0\0" + block.data[20:32] + b"bmp" + block.data[36:])
    for number, odd in enumerate((other, named)):
        save_wshard(replace(episode, extra={frames_block("signal/cam"): odd}), tmp_path / f"{number}.wshard")
        with open_wshard(tmp_path / f"{number}.wshard") as file, pytest.raises(UnsupportedError, match="cannot decode"):
            FrameReader(file, "signal/cam").frame(3)


def test_frames_out_of_range_and_missing_index(tmp_path: Path) -> None:
    channel, block = index_images(jpegs(2), [0, 1], "cam")
    plain = Channel("x", np.zeros(3, np.float32))
    extra: dict[str, Any] = {frames_block("signal/cam"): block, "other/block": Block(b"")}
    save_wshard(Episode("ep", 3, observations={"cam": channel, "x": plain}, extra=extra), tmp_path / "ep.wshard")
    with open_wshard(tmp_path / "ep.wshard") as file:
        reader = FrameReader(file, "signal/cam")
        with pytest.raises(BadInputError, match="there is no frame 2"):
            reader.encoded(2)
        with pytest.raises(BadInputError):
            reader.frames(1, 3)
        with pytest.raises(NotFoundError, match="no frame index"):
            FrameReader(file, "signal/x")


def test_declared_frame_type_survives_without_the_origin(tmp_path: Path) -> None:
    """A channel that moves to another episode, or is loaded alone, has no old declaration."""
    video = Channel("rgb", np.arange(50, dtype=np.uint8), None, {"encoding": "h264"}, decoded=(DType.U16, (48, 64, 3)))
    save_wshard(Episode("a", 5, observations={"rgb": video}), tmp_path / "a.wshard")
    loaded = load_wshard(tmp_path / "a.wshard", ["rgb"])
    assert loaded.origin is None
    taken = load_wshard(tmp_path / "a.wshard").observations["rgb"]
    for number, episode in enumerate((loaded, Episode("b", 9, observations={"rgb": taken}))):
        path = tmp_path / f"{number}.wshard"
        save_wshard(episode, path)
        with open_wshard(path) as file:
            assert file.info is not None
            spec = file.info.channels["signal/rgb"]
            assert (spec.dtype, spec.shape) == (DType.U16, (48, 64, 3))
            assert file["signal/rgb"].read().tolist() == list(range(50))
