"""If this fails, a codec that the specification lists cannot be decoded frame by frame.

The frames are really encoded, and compared with a decoder that reads the container from its beginning.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import pytest
from av.video.stream import VideoStream

from tests.formats.wshard.scenes import RawFile, write
from warpdata.errors import WarpError
from warpdata.wshard import Block, Episode, FrameReader, compose_wshard, frames_block, index_video, open_wshard

WIDTH, HEIGHT, FRAMES = 48, 32, 14
CASES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "ffv1": ("ffv1", "matroska", "yuv420p", {}),
    "ffv1 version 1": ("ffv1", "matroska", "yuv420p", {"level": "1"}),
    "ffv1 version 3": ("ffv1", "matroska", "yuv444p", {"level": "3", "slices": "4", "g": "5"}),
    "ffv1 rgb": ("ffv1", "matroska", "bgr0", {"level": "3", "coder": "1", "g": "1"}),
    "mjpeg": ("mjpeg", "mov", "yuvj420p", {}),
    "png": ("png", "mov", "rgb24", {}),
    "prores": ("prores_ks", "mov", "yuv422p10le", {}),
}


def encode(path: Path, name: str) -> list[np.ndarray[Any, Any]]:
    codec, container, pix_fmt, options = CASES[name]
    chance = np.random.default_rng(3)
    base = chance.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    with av.open(str(path), "w", format=container) as out:
        stream = cast(VideoStream, out.add_stream(codec, rate=30))
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        stream.codec_context.options = options
        for number in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.roll(base, 2 * number, axis=1)), format="rgb24")
            frame.pts = number
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    with av.open(str(path)) as file:
        return [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]


def stored(directory: Path, name: str) -> tuple[Path, list[np.ndarray[Any, Any]]]:
    video, target = directory / "video", directory / "ep.wshard"
    pixels = encode(video, name)
    rows, block = index_video(video, "cam")
    compose_wshard(Episode("ep", 3, extra={frames_block("signal/cam"): block}), target, {"signal/cam": rows})
    return target, pixels


@pytest.mark.parametrize("name", CASES)
def test_each_frame_equals_sequential_decoding(name: str, tmp_path: Path) -> None:
    target, pixels = stored(tmp_path, name)
    with open_wshard(target) as file:
        reader = FrameReader(file, "signal/cam")
        assert len(reader) == len(pixels) == FRAMES
        for number in (9, 0, FRAMES - 1, 3):
            np.testing.assert_array_equal(reader.frame(number), pixels[number])
        for found, expected in zip(reader.frames(4, 11), pixels[4:11], strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shape", [None, [HEIGHT, WIDTH], [HEIGHT, "wide", 3], [2**31 - 1, 2**31 - 1, 3]], ids=str)
def test_frames_without_a_valid_size_are_refused(shape: Any, tmp_path: Path) -> None:
    """The size is foreign input, and FFmpeg allocates by it."""
    target, _ = stored(tmp_path, "ffv1")
    with open_wshard(target) as file:
        blocks = {name: bytes(file[name].raw()) for name in file.blocks}
    document = json.loads(blocks["meta/channels"])
    document["channels"][0] |= {"frame_shape": shape}
    blocks["meta/channels"] = json.dumps(document).encode()
    changed = write(tmp_path / "changed.wshard", RawFile(blocks).build())
    with open_wshard(changed) as file:
        reader = FrameReader(file, "signal/cam")
        assert Block(reader.encoded(0)).data
        with pytest.raises(WarpError):
            reader.frame(0)
