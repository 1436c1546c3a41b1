"""If this fails, decoded pixels or samples are wrong, or a file in a dataset can harm its reader.

Expectations come from the encoder's input, or from decoding a video sequentially.
"""

from __future__ import annotations

import io
import math
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import av
import numpy as np
import PIL
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from tests.kinds.artifacts.media import (
    HEIGHT,
    UNIT,
    WIDTH,
    Array,
    CountedFile,
    FailingFile,
    Scene,
    encode_test_image,
    hide_frames,
    melody,
    mp3_without_length,
    number_in,
    pts_order,
    sound,
)
from warpdata.errors import (
    BadInputError,
    LimitExceededError,
    MediaDecodeError,
    MissingExtraError,
    StoreTimeoutError,
    UnsupportedError,
    WarpError,
)
from warpdata.formats.media import (
    VideoReader,
    audio_info,
    decode_audio,
    decode_image,
    image_size,
    image_to_array,
    read_image_size,
    video_seek,
)
from warpdata.formats.media import audio as audio_module
from warpdata.formats.media import image as image_module
from warpdata.formats.media.callback_file import CallbackFile

RAMP = np.arange(12 * 20, dtype=np.uint8).reshape(12, 20)
COLOUR = np.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=2)

# Images

sides = st.integers(1, 24)


@given(st.data(), st.sampled_from(["PNG", "TIFF", "WEBP", "BMP", "PPM", "QOI", "JPEG2000"]), sides, sides)
def test_lossless_images_round_trip(data: st.DataObject, kind: str, height: int, width: int) -> None:
    depths = {"BMP": [0, 3], "PPM": [0, 3], "QOI": [3, 4], "WEBP": [3, 4]}.get(kind, [0, 3, 4])
    depth = data.draw(st.sampled_from(depths))
    shape = (height, width, depth) if depth else (height, width)
    pixels = data.draw(arrays.arrays(np.uint8, shape))
    options: dict[str, Any] = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    if kind == "WEBP" and depth == 4:
        pixels[0, 0, 3] = 128  # an image without transparency is stored without alpha
    encoded = encode_test_image(pixels, kind, **options)
    decoded = image_to_array(encoded, "p")
    assert decoded.dtype == np.uint8
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded, pixels)
    assert image_size(encoded, "p") == (width, height)


@given(st.sampled_from(["PNG", "TIFF", "PPM"]), arrays.arrays(np.uint16, st.tuples(sides, sides)))
def test_16_bit_grey_keeps_its_depth(kind: str, pixels: Array) -> None:
    decoded = image_to_array(encode_test_image(pixels, kind), "deep")
    assert decoded.dtype == np.uint16
    np.testing.assert_array_equal(decoded, pixels)


def test_big_endian_and_wide_pixels_keep_their_depth() -> None:
    def tiff(mode: str, raw: bytes) -> bytes:
        out = io.BytesIO()
        Image.frombytes(mode, (20, 12), raw).save(out, "TIFF")
        return out.getvalue()

    deep = RAMP.astype(np.uint16) * 250
    decoded = image_to_array(tiff("I;16B", deep.astype(">u2").tobytes()), "p")
    assert decoded.dtype == np.uint16
    assert decoded.dtype.isnative
    np.testing.assert_array_equal(decoded, deep)
    for mode, dtype in (("I", np.int32), ("F", np.float32)):
        wide = (RAMP.astype(dtype) - 100) * 300
        np.testing.assert_array_equal(image_to_array(tiff(mode, wide.tobytes()), "p"), wide, strict=True)


def test_every_colour_mode_becomes_grey_rgb_or_rgba() -> None:
    def shape(data: bytes) -> Any:
        decoded = image_to_array(data, "p")
        assert decoded.dtype == np.uint8
        return decoded.shape

    assert shape(encode_test_image(RAMP, "PNG", "1")) == (12, 20)
    assert shape(encode_test_image(RAMP, "PNG", "LA")) == (12, 20, 4)
    assert shape(encode_test_image(COLOUR, "PNG", "P")) == (12, 20, 3)
    assert shape(encode_test_image(COLOUR, "GIF", "P")) == (12, 20, 3)
    if int(PIL.__version__.partition(".")[0]) >= 13:  # older versions write it, but cannot read it
        assert shape(encode_test_image(COLOUR, "TIFF", "YCbCr")) == (12, 20, 3)
    assert shape(encode_test_image(COLOUR, "TIFF", "LAB")) == (12, 20, 3)
    assert shape(encode_test_image(COLOUR, "JPEG", "L")) == (12, 20)
    assert shape(encode_test_image(COLOUR, "AVIF")) == (12, 20, 3)
    assert set(np.unique(image_to_array(encode_test_image(RAMP, "PNG", "1"), "p"))) == {0, 255}


def test_palette_is_expanded_with_its_transparency() -> None:
    image = Image.frombytes("P", (20, 12), (RAMP % 3).tobytes())
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
    plain, clear = io.BytesIO(), io.BytesIO()
    image.save(plain, "PNG")
    image.save(clear, "PNG", transparency=bytes([255, 128, 0]))
    np.testing.assert_array_equal(image_to_array(plain.getvalue(), "p"), colours[RAMP % 3])
    expected = np.concatenate([colours, np.array([[255], [128], [0]], np.uint8)], axis=1)
    np.testing.assert_array_equal(image_to_array(clear.getvalue(), "p"), expected[RAMP % 3])
    gif = io.BytesIO()
    image.save(gif, "GIF", transparency=1)
    np.testing.assert_array_equal(image_to_array(gif.getvalue(), "p")[..., 3], np.where(RAMP % 3 == 1, 0, 255))


def test_cmyk_becomes_rgb() -> None:
    flat = np.broadcast_to(np.array([200, 100, 50], np.uint8), (16, 16, 3))
    decoded = image_to_array(encode_test_image(np.ascontiguousarray(flat), "JPEG", "CMYK", quality=100), "p")
    assert decoded.shape == (16, 16, 3)
    assert np.abs(decoded.astype(int) - flat).max() <= 4


def test_orientation_is_not_applied_except_by_pillow_itself() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    decoded = decode_image(encode_test_image(COLOUR, "JPEG", exif=exif), "p")
    assert decoded.size == (20, 12)
    assert decoded.getexif()[0x0112] == 6
    turned = encode_test_image(COLOUR, "TIFF", exif=exif)
    assert decode_image(turned, "p").size == image_size(turned, "p") == (12, 20)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "PNG", "WEBP", "AVIF"])
def test_first_of_several_frames(kind: str) -> None:
    first, second = (Image.fromarray(np.full((12, 20, 3), value, np.uint8)) for value in (10, 240))
    out = io.BytesIO()
    first.save(out, kind, save_all=True, append_images=[second])
    decoded = decode_image(out.getvalue(), "p")
    assert decoded.format == kind
    assert getattr(decoded, "n_frames", 1) == 1
    assert abs(int(np.asarray(decoded.convert("L")).max()) - 10) < 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP"])
def test_decoded_image_does_not_need_its_source(kind: str) -> None:
    source = bytearray(encode_test_image(COLOUR, kind))
    expected = image_to_array(bytes(source), "p")
    with memoryview(source) as view:
        decoded = decode_image(view, "p")
    source[:] = bytes(len(source))
    source.clear()
    np.testing.assert_array_equal(np.asarray(decoded.convert("RGB")), expected)


def png_header(width: int, height: int) -> bytes:
    """Return a header without pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    data = b"IDAT" + zlib.compress(b"")
    return b"\x89PNG\r\n\x1a\n" + body + struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))


def test_huge_image_is_refused_by_its_header() -> None:
    data = png_header(60_000, 60_000)
    with pytest.raises(LimitExceededError, match=r"bombs/1\.png has 60000 × 60000"):
        decode_image(data, "bombs/1.png")
    assert image_size(data, "bombs/1.png") == (60_000, 60_000)
    webp = bytearray(encode_test_image(COLOUR, "WEBP", lossless=True))
    webp[21:25] = struct.pack("<I", 16382 | 16382 << 14)
    with pytest.raises(LimitExceededError, match="w"):
        decode_image(bytes(webp), "w")


def test_image_at_the_limit_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "MAX_IMAGE_PIXELS", 12 * 20)
    assert decode_image(encode_test_image(RAMP, "PNG"), "p").size == (20, 12)
    with pytest.raises(LimitExceededError):
        decode_image(encode_test_image(np.zeros((12, 21), np.uint8), "PNG"), "p")


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "GIF", "JPEG", "WEBP"])
def test_pillow_does_not_warn_about_allowed_sizes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    data = encode_test_image(COLOUR, kind)
    with pytest.warns(Image.DecompressionBombWarning):
        Image.open(io.BytesIO(data)).load()
    before = list(warnings.filters)
    assert decode_image(data, "p").size == (20, 12)
    assert warnings.filters == before


KINDS = ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "PPM", "JPEG2000", "AVIF", "QOI"]
ENCODED = {kind: encode_test_image(COLOUR, kind) for kind in KINDS}
DECODED = {kind: image_to_array(data, "p") for kind, data in ENCODED.items()}


@given(st.sampled_from(KINDS), st.floats(0, 1, exclude_max=True))
@example("JPEG", 0.5)
@example("JPEG2000", 0.5859375)
def test_truncated_image_is_an_error(kind: str, kept: float) -> None:
    """Bytes at the end that hold no pixels may be missing."""
    data = ENCODED[kind]
    cut = data[: int(len(data) * kept)]
    try:
        decoded = image_to_array(cut, "p")
    except MediaDecodeError:
        return
    np.testing.assert_array_equal(decoded, DECODED[kind])


@given(st.sampled_from(KINDS), st.data())
def test_damaged_image_raises_typed_errors_only(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(ENCODED[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for act in (decode_image, image_to_array, image_size):
        with suppress(MediaDecodeError, LimitExceededError, UnsupportedError):
            act(bytes(damaged), "p")


@given(st.binary(max_size=64))
@example(b"")
@example(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
@example(b"\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00\x18\x00abc")
def test_bytes_of_no_known_image_format_are_refused(data: bytes) -> None:
    """Including formats that run a program, and formats without a signature."""
    with pytest.raises(MediaDecodeError, match=r"notes\.txt"):
        image_to_array(data, "notes.txt")


def test_format_that_pillow_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.WebPImagePlugin.SUPPORTED", False)
    with pytest.raises(UnsupportedError, match="WEBP support not installed"):
        decode_image(ENCODED["WEBP"], "p")


# Audio


@given(
    st.sampled_from([("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("AIFF", "PCM_16"), ("WAV", "PCM_24"), ("CAF", "ALAC_16")]),
    arrays.arrays(np.int16, st.tuples(st.integers(1, 300), st.integers(1, 3))),
    st.sampled_from([8000, 44_100]),
)
def test_lossless_audio_round_trips(kind: tuple[str, str], samples: Array, rate: int) -> None:
    file = io.BytesIO(sound(samples, kind[0], rate, kind[1]))
    decoded, rate_found = decode_audio(file, "s")
    np.testing.assert_array_equal(decoded, samples.astype(np.float32) / 32768, strict=True)
    info = audio_info(file, "s")
    assert rate_found == info.sample_rate == rate
    assert (info.frames, info.channels, info.format) == (*samples.shape, kind[0])
    assert info.duration_s == len(samples) / rate
    assert not file.closed


SOUNDS = {
    "WAV": sound(melody(20_000, 2), "WAV"),
    "FLAC": sound(melody(20_000, 2), "FLAC"),
    "VORBIS": sound(melody(20_000, 2), "OGG", subtype="VORBIS"),
    "OPUS": sound(melody(20_000, 2), "OGG", subtype="OPUS"),
    "MP3": sound(melody(20_000, 2), "MP3"),
    "MP3 of low rate": sound(np.concatenate([melody(150_000) * 0.001, melody(50_000)]), "MP3", 44_100),
    "MP3 without length": mp3_without_length(melody(200_000, rate=44_100)),
}
EXACT = ("WAV", "FLAC", "VORBIS")
WHOLE = {kind: decode_audio(io.BytesIO(data), kind) for kind, data in SOUNDS.items()}


@pytest.mark.parametrize("kind", [*SOUNDS][:5])
def test_lossy_audio_resembles_its_source(kind: str) -> None:
    decoded, rate = WHOLE[kind]
    assert decoded.dtype == np.float32
    assert (decoded.shape, rate) == ((20_000, 2), 8000)
    assert float(np.abs(decoded - melody(20_000, 2)).mean()) < 0.1


@given(st.sampled_from([*SOUNDS]), st.data())
def test_part_equals_slice_of_the_whole(kind: str, data: st.DataObject) -> None:
    """Up to rounding, if a decoder may add in another order."""
    whole, rate = WHOLE[kind]
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, min(len(whole) + 10, first + 3000)))
    part, _ = decode_audio(io.BytesIO(SOUNDS[kind]), kind, start_s=first / rate, duration_s=(last - first) / rate)
    assert part.shape == whole[first:last].shape
    np.testing.assert_allclose(part, whole[first:last], rtol=0, atol=0 if kind in EXACT else 1e-6)


@given(st.lists(st.floats(0, 2.5), min_size=1, max_size=5))
def test_adjacent_parts_form_the_whole(times: list[float]) -> None:
    ends = [0.0, *sorted(times), 2.5]
    parts = [
        decode_audio(io.BytesIO(SOUNDS["WAV"]), "s", start_s=start, duration_s=end - start)[0]
        for start, end in pairwise(ends)
    ]
    assume(all(start + (end - start) == end for start, end in pairwise(ends)))
    np.testing.assert_array_equal(np.concatenate(parts), WHOLE["WAV"][0])


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_only_the_requested_part_is_read(kind: str) -> None:
    file = CountedFile(sound(melody(1_000_000), kind))
    part, _ = decode_audio(file, "long", start_s=100, duration_s=0.5)
    assert len(part) == 4000
    assert file.taken < 0.2 * len(file.getvalue())
    file.taken = 0
    audio_info(file, "long")
    assert file.taken < 20_000


def flac_that_claims(frames: int) -> bytes:
    data = bytearray(SOUNDS["FLAC"])
    fields = int.from_bytes(data[18:26], "big")
    data[18:26] = (fields >> 36 << 36 | frames).to_bytes(8, "big")
    return bytes(data)


def wav_that_claims(size: int) -> bytes:
    data = bytearray(SOUNDS["WAV"])
    at = data.index(b"data") + 4
    data[at : at + 4] = struct.pack("<I", size)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        SOUNDS["WAV"][:-1000],
        wav_that_claims(80_001),
        wav_that_claims(1_000_000_000),
        sound(melody(9000), "AIFF")[:-1000],
        SOUNDS["FLAC"][:-1000],
        flac_that_claims(20_001),
        SOUNDS["MP3"][:-1000],
        SOUNDS["MP3 without length"][:-100],
        b"",
        b"RIFF\x00\x00\x00\x00WAVE",
        b"no sound at all",
        ENCODED["PNG"],
    ],
    ids=range(12),
)
def test_truncated_audio_is_an_error(data: bytes) -> None:
    with pytest.raises(MediaDecodeError, match=r"talks/1\.wav"):
        decode_audio(io.BytesIO(data), "talks/1.wav")


def test_placeholder_size_of_a_pipe_is_accepted() -> None:
    decoded, _ = decode_audio(io.BytesIO(wav_that_claims(0xFFFF_FFFF)), "s")
    np.testing.assert_array_equal(decoded, WHOLE["WAV"][0])


@pytest.mark.skipif(
    not hasattr(av.AudioCodecContext, "global_quality"), reason="this PyAV cannot write MP3 files of variable rate"
)
def test_audio_of_unknown_length_is_refused() -> None:
    loud, silent = melody(200_000, rate=44_100), np.zeros((200_000, 1), np.float32)
    for data in (flac_that_claims(0), mp3_without_length(np.concatenate([loud, silent]), varies=True)):
        with pytest.raises(UnsupportedError, match="does not state its length"):
            decode_audio(io.BytesIO(data), "s")
        with pytest.raises(UnsupportedError, match="does not state its length"):
            audio_info(io.BytesIO(data), "s")
    whole = io.BytesIO(mp3_without_length(np.concatenate([silent, loud]), varies=True))
    decoded, _ = decode_audio(whole, "s")
    assert 400_000 <= len(decoded) == audio_info(whole, "s").frames < 404_000


def test_seek_near_the_end_of_long_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last page of this file holds 4000 frames, the farthest distance from the end that matters."""
    monkeypatch.setattr(audio_module, "_VORBIS_PAGE_FRAMES", 4500)
    whole, rate = WHOLE["VORBIS"]
    for first in range(0, len(whole), 499):
        part, _ = decode_audio(io.BytesIO(SOUNDS["VORBIS"]), "s", start_s=first / rate, duration_s=0.01)
        np.testing.assert_array_equal(part, whole[first : first + 80])


def test_sample_limit_is_checked_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitExceededError, match=r"68719476735 frames of 2 channels"):
        decode_audio(io.BytesIO(flac_that_claims(2**36 - 1)), "s")
    monkeypatch.setattr(audio_module, "MAX_AUDIO_SAMPLES", 16_000)
    assert decode_audio(io.BytesIO(SOUNDS["WAV"]), "s", duration_s=1)[0].size == 16_000
    with pytest.raises(LimitExceededError, match="16000") as caught:
        decode_audio(io.BytesIO(SOUNDS["WAV"]), "s", duration_s=1.001)
    assert "start_s" in (caught.value.hint or "")
    monkeypatch.setattr(audio_module, "MAX_UNTAGGED_MP3_BYTES", 5000)
    with pytest.raises(LimitExceededError, match="5000 bytes"):
        decode_audio(io.BytesIO(SOUNDS["MP3 without length"]), "s")


@pytest.mark.parametrize("asked", [(-1.0, None), (math.nan, None), (0.0, -0.1), (0.0, math.inf), (2.6, None)])
def test_times_outside_of_the_audio_are_refused(asked: tuple[float, float | None]) -> None:
    with pytest.raises(BadInputError, match=r"^s: "):
        decode_audio(io.BytesIO(SOUNDS["WAV"]), "s", start_s=asked[0], duration_s=asked[1])


# Video

X264 = {"preset": "veryfast", "g": "10", "bf": "3"}
MPEG = {"g": "10", "bf": "2", "b": "4000000"}


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("options", [{}, {"progressive": True, "comment": b"x" * 400}, {"optimize": True}])
def test_sizes_are_read_without_pillow(kind: str, options: dict[str, Any]) -> None:
    """If this fails, the index of an episode set has another frame size than its cameras."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        shape = (int(rng.integers(1, 400)), int(rng.integers(1, 400)), 3)
        data = encode_test_image(rng.integers(0, 255, shape, dtype=np.uint8), kind, **options)
        assert read_image_size(data) == shape[:2]
        for cut in rng.integers(0, len(data), 10).tolist():
            assert read_image_size(data[:cut]) in (None, shape[:2])
        for at in rng.integers(0, min(len(data), 600), 10).tolist():
            found = read_image_size(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
            assert found is None or all(0 <= side < 2**32 for side in found)


OPEN_GOP = {"x264-params": "open-gop=1:bframes=3:keyint=8:min-keyint=8:scenecut=0:b-pyramid=normal"}
SCENES = [
    Scene("libx264", "mp4", X264),
    Scene("libx264", "mp4", X264, varies=True),
    Scene("libx264", "matroska", X264, varies=True),
    Scene("libx264", "mpegts", X264),
    Scene("libx264", "mp4", OPEN_GOP),
    Scene("libx264", "matroska", OPEN_GOP, varies=True),
    Scene("libx264", "mp4", {"x264-params": "open-gop=1:bframes=1:keyint=2:min-keyint=1:scenecut=0"}),
    Scene("libx264", "mp4", X264, hides=7),
    Scene("libx264", "mp4", {"x264-params": "intra-refresh=1:bframes=0:keyint=8"}),
    Scene("libx264", "avi", X264),
    Scene("libx265", "mp4", {"x265-params": "open-gop=1:keyint=8:min-keyint=8:bframes=3:log-level=none"}),
    Scene("mpeg4", "mp4", MPEG),
    Scene("mpeg4", "matroska", MPEG, varies=True),
    Scene("mpeg2video", "matroska", MPEG, unit=Fraction(1, 30)),
    Scene("libvpx", "matroska", {"g": "15", "b": "4000000", "deadline": "realtime"}),
]
WITH_B_FRAMES = SCENES[:8]
HIDES, REFRESHES, TIMELESS, _, MPEG4 = SCENES[7:12]
VP8 = SCENES[-1]
SLOW = (REFRESHES, TIMELESS, SCENES[-2], VP8)
"""Scenes whose packets do not determine their frames."""


def reader(scene: Scene) -> VideoReader:
    return VideoReader(io.BytesIO(scene.data), str(scene))


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_frame_by_number_equals_sequential_decoding(scene: Scene) -> None:
    expected = [pixels for _, pixels in scene.decoded]
    assert len(expected) == scene.length - scene.hides
    with reader(scene) as video:
        assert len(video) == len(expected)
        for number in np.random.default_rng(3).permutation(len(expected)).tolist():
            shown = video.frame(number)
            np.testing.assert_array_equal(shown, expected[number], strict=True)
            assert number_in(shown) == number + scene.hides
        timeline = video._video.timeline()
        assert timeline.from_packets == (scene not in SLOW)
        assert bool(timeline.starts) == (scene not in (REFRESHES, TIMELESS))
    with reader(scene) as video:
        np.testing.assert_array_equal(np.stack(list(video.frames())), np.stack(expected), strict=True)
        assert (video.info.width, video.info.height) == (WIDTH, HEIGHT)


def test_scenes_have_the_claimed_properties() -> None:
    for scene in WITH_B_FRAMES:
        order = list(pts_order(scene.data))
        assert order != sorted(order), f"{scene} has no frames that depend on later ones"
    for scene in SCENES:
        times = [pts for pts, _ in scene.decoded if pts is not None]
        assert (len({after - before for before, after in pairwise(times)}) > 3) == scene.varies or "avi" in str(scene)


def test_hidden_packets_are_not_counted() -> None:
    hidden = [17, 18, 39]
    data = hide_frames(VP8.data, hidden)
    assert len(pts_order(data)) == 40
    with VideoReader(io.BytesIO(data), "v") as video:
        assert number_in(video.frame(30)) == 32
    with VideoReader(io.BytesIO(data), "v") as video:
        assert [number_in(video.frame(number)) for number in reversed(range(len(video)))] == [
            number for number in reversed(range(40)) if number not in hidden
        ]


def test_decoding_starts_with_the_key_packet() -> None:
    """Regardless of the frames that FFmpeg returns for packets with missing references."""

    @dataclass
    class Packet:
        pts: int
        is_keyframe: bool
        shows: list[int]

        def decode(self) -> list[Any]:
            return [SimpleNamespace(pts=pts) for pts in self.shows]

    packets = [Packet(4, True, [1, 2]), Packet(9, True, [4, 8]), Packet(7, False, [7]), Packet(10, False, [9, 10])]
    container = SimpleNamespace(demux=lambda _: iter(packets))
    found = video_seek._decode(cast(Any, container), cast(Any, None), 9)
    assert [frame.pts for frame in found] == [9, 10]
    packets[0].shows = [11]
    assert [frame.pts for frame in video_seek._decode(cast(Any, container), cast(Any, None), 9)] == [9, 10]


def test_container_that_cannot_seek_is_read_from_its_beginning() -> None:
    scene = SCENES[0]

    def reopen() -> Any:
        container = av.open(io.BytesIO(scene.data), "r")

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError("no seeking here")

        stuck = SimpleNamespace(
            demux=container.demux, close=container.close, seek=refuse, start_time=container.start_time
        )
        return stuck, container.streams.video[0]

    found = video_seek.SeekableVideo(reopen, "stuck")
    for number in (25, 3, 39):
        found.timeline()
        frame = found.frame(number)
        assert frame is not None
        np.testing.assert_array_equal(frame.to_ndarray(format="rgb24"), scene.decoded[number][1])
    found.reset()


operations = st.one_of(
    st.tuples(st.just("frame"), st.integers(0, 39)),
    st.tuples(st.just("frame_at"), st.integers(0, 39)),
    st.tuples(st.just("next"), st.integers(0, 2)),
)


@settings(max_examples=40)
@given(
    st.sampled_from([*SCENES[:7], MPEG4]),
    st.lists(st.tuples(st.integers(0, 39), st.none() | st.integers(0, 45), st.integers(1, 15)), min_size=3, max_size=3),
    st.lists(operations, max_size=12),
)
def test_accesses_in_any_order_are_independent(
    scene: Scene, ranges: list[tuple[int, int | None, int]], asked: list[tuple[str, int]]
) -> None:
    expected = [pixels for _, pixels in scene.decoded]
    times = [pts for pts, _ in scene.decoded if pts is not None]
    unit = unit_of(scene)
    with reader(scene) as video:
        running = [video.frames(*some) for some in ranges]
        awaited = [islice(expected, *some) for some in ranges]
        for what, number in asked:
            if what == "next":
                shown, due = next(running[number], None), next(awaited[number], None)
            elif what == "frame":
                shown, due = video.frame(number), expected[number]
            else:
                shown, due = video.frame_at(float((times[number] - times[0]) * unit)), expected[number]
            assert (shown is None) == (due is None)
            assert shown is None or due is None or np.array_equal(shown, due)


def unit_of(scene: Scene) -> Any:
    with av.open(io.BytesIO(scene.data), "r") as container:
        return container.streams.video[0].time_base


@pytest.mark.parametrize("scene", [*SCENES[:4], HIDES], ids=str)
def test_frame_by_time_is_the_last_that_began(scene: Scene) -> None:
    times = [float(time * UNIT) for time in scene.times()[scene.hides :]]
    times = [time - times[0] for time in times]
    with reader(scene) as video:
        for number, time in enumerate(times):
            assert number_in(video.frame_at(time + 0.002)) == number + scene.hides
            if number:
                assert number_in(video.frame_at(time - 0.002)) == number + scene.hides - 1
        assert number_in(video.frame_at(times[-1] + 100)) == scene.length - 1
        for wrong in (-0.1, math.nan, math.inf):
            with pytest.raises(BadInputError, match="not a valid time"):
                video.frame_at(wrong)


def test_video_that_begins_late_has_no_earlier_frame() -> None:
    """Time counts from the beginning of the file, in which audio may come first."""
    out = io.BytesIO()
    with av.open(io.BytesIO(SCENES[0].data), "r") as source, av.open(out, "w", format="matroska") as target:
        video_stream = target.add_stream_from_template(source.streams.video[0])
        sound_stream = target.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 16_000), np.int16), format="s16", layout="mono")
        frame.sample_rate, frame.pts = 8000, 0
        target.mux(sound_stream.encode(frame))
        for packet in source.demux(video=0):
            if packet.pts is not None and packet.dts is not None:
                packet.pts, packet.dts = packet.pts + 15_000, packet.dts + 15_000
                packet.stream = video_stream
                target.mux(packet)
    with VideoReader(io.BytesIO(out.getvalue()), "late") as video:
        with pytest.raises(BadInputError, match=r"no frame is shown yet at 0\.4 s"):
            video.frame_at(0.4)
        assert number_in(video.frame_at(0.5)) == 0
        assert number_in(video.frame_at(0.5 + 10.5 / 30)) == 10


def test_frames_without_times_are_available_by_number_only() -> None:
    with reader(TIMELESS) as video, pytest.raises(UnsupportedError, match="have no times"):
        video.frame_at(0.5)


def test_video_info() -> None:
    with reader(SCENES[0]) as video:
        info = video.info
        assert (info.codec, info.fps, info.frame_count) == ("h264", 30.0, 40)
        assert info.duration_s == pytest.approx(40 / 30)
    with reader(VP8) as video:
        assert (video.info.codec, video.info.frame_count) == ("vp8", None)


@pytest.mark.parametrize("number", [-1, 40, 10**12])
def test_missing_frame_is_named(number: int) -> None:
    with reader(SCENES[0]) as video:
        with pytest.raises(BadInputError, match=rf"no frame {number}; it has 40"):
            video.frame(number)
        assert number_in(video.frame(39)) == 39


@pytest.mark.parametrize("asked", [(-1, None, 1), (0, -1, 1), (0, None, 0), (0, None, -1)])
def test_invalid_ranges_are_refused_at_once(asked: tuple[int, int | None, int]) -> None:
    with reader(SCENES[0]) as video, pytest.raises(BadInputError):
        video.frames(*asked)


LONG = Scene("libx264", "mp4", X264, length=400)


def test_access_reads_from_the_preceding_key_frame_only() -> None:
    file = CountedFile(LONG.data)
    with VideoReader(file, "long") as video:
        len(video)
        for number in (399, 200, 17):
            file.taken = 0
            video.frame(number)
            assert file.taken < 0.4 * len(LONG.data)
        file.taken = 0
        video.frame(18)
        assert file.taken < 70_000, "the next frame continues decoding"


def test_sequential_frames_need_no_pass_over_the_file() -> None:
    file = CountedFile(LONG.data)
    with VideoReader(file, "long") as video:
        list(islice(video.frames(), 20))
        assert file.taken < 0.7 * len(LONG.data), "head, tail and some packets"


def test_videos_are_limited_in_frames_and_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(video_seek, "MAX_VIDEO_FRAMES", 39)
        for scene in (SCENES[0], VP8):
            with reader(scene) as video, pytest.raises(LimitExceededError, match="39"):
                video.frame(0)
    monkeypatch.setattr(image_module, "MAX_IMAGE_PIXELS", WIDTH * HEIGHT - 1)
    with pytest.raises(LimitExceededError, match=f"{WIDTH} × {HEIGHT}"):
        reader(SCENES[0])


def test_playlist_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FFmpeg's default would open the file beside it."""
    (tmp_path / "secret.mp4").write_bytes(SCENES[0].data)
    monkeypatch.chdir(tmp_path)
    playlist = b"ffconcat version 1.0\nfile secret.mp4\n"
    with av.open(io.BytesIO(playlist), "r") as container:
        assert container.streams.video
    hls = b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2.0,\nsecret.mp4\n#EXT-X-ENDLIST\n"
    for data in (playlist, hls):
        with pytest.raises(MediaDecodeError, match="list"):
            VideoReader(io.BytesIO(data), "list")


def test_bytes_of_no_video_are_refused() -> None:
    mute = io.BytesIO()
    with av.open(mute, "w", format="matroska") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    for data in (b"", b"text" * 100, ENCODED["PNG"], SOUNDS["WAV"], mute.getvalue(), SCENES[0].data[:5000]):
        with pytest.raises(MediaDecodeError, match=r"clips/1\.mp4"):
            VideoReader(io.BytesIO(data), "clips/1.mp4")


@settings(max_examples=40)
@given(st.sampled_from([SCENES[0], SCENES[2], SCENES[3], MPEG4]), st.data())
def test_damaged_video_raises_typed_errors_only(scene: Scene, data: st.DataObject) -> None:
    damaged = bytearray(scene.data[: data.draw(st.integers(1, len(scene.data)))])
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WarpError), VideoReader(io.BytesIO(damaged), "p") as video:
        assert len(list(video.frames())) == len(video)
        video.frame(5)
        video.frame_at(1)


def test_close_closes_the_file() -> None:
    file = io.BytesIO(SCENES[0].data)
    with VideoReader(file, "f") as video:
        frames = video.frames()
        next(frames)
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        next(frames)
    with pytest.raises(ValueError, match="closed"):
        video.frame(0)


# Failing files


def read_video(file: FailingFile) -> Any:
    return VideoReader(file, "f").frame(25)


def read_sound(file: FailingFile) -> Any:
    return decode_audio(file, "f", start_s=1.0)[0]


@pytest.mark.parametrize(
    ("act", "data"),
    [(read_video, LONG.data), (read_video, SCENES[3].data)]
    + [(read_sound, SOUNDS[kind]) for kind in ("WAV", "FLAC", "VORBIS", "MP3")]
    + [(read_sound, mp3_without_length(melody(50_000)))],
    ids=["long", "scene", "wav", "flac", "vorbis", "mp3", "mp3 without length"],  # encoders may write other bytes
)
@pytest.mark.parametrize("error", [StoreTimeoutError("no answer"), KeyboardInterrupt()], ids=repr)
def test_failure_of_the_file_is_raised_unchanged(
    act: Callable[[FailingFile], Any], data: bytes, error: BaseException
) -> None:
    """At any read: never as damage, and never as a shorter result."""
    whole = FailingFile(data, None, error)
    expected = act(whole)
    assert whole.reads > 1
    for number in range(whole.reads):
        with pytest.raises(type(error)) as caught:
            act(FailingFile(data, number, error))
        assert caught.value is error
    np.testing.assert_array_equal(act(FailingFile(data, whole.reads, error)), expected)


@pytest.mark.parametrize("container", ["mp4", "mpegts", "matroska"])
def test_reader_survives_a_failure_of_its_file(container: str) -> None:
    long = Scene("libx264", container, X264, length=200)
    file = FailingFile(long.data, None, StoreTimeoutError("no answer"))
    with VideoReader(file, "f") as video:
        frames = video.frames()
        for number in (3, 180, 60, 199):
            file.fails_at = file.reads
            with pytest.raises(StoreTimeoutError):
                video.frame(number)
            file.fails_at = None
            np.testing.assert_array_equal(video.frame(number), long.decoded[number][1])
        np.testing.assert_array_equal(next(frames), long.decoded[0][1])
        assert video._video.timeline().from_packets, "the timeline comes from the packets"


def test_seek_before_the_file_is_not_a_failure_of_the_file() -> None:
    """Damaged bytes make libraries seek there."""
    watched = CallbackFile(io.BytesIO(b"abcdef"), "w")
    with watched.decoding():
        assert watched.seek(-9, io.SEEK_END) == -1
        assert watched.seek(-2, io.SEEK_END) == watched.tell() == 4
        assert watched.seek(-1, io.SEEK_CUR) == 3
        assert watched.read(2) == b"de"
        assert watched.seek(100) == 100
        assert watched.read(1) == b""


# Libraries


@pytest.mark.parametrize(
    ("module", "library", "extra", "act"),
    [
        ("PIL.Image", "Pillow", "image", lambda: decode_image(ENCODED["PNG"], "m")),
        ("PIL.Image", "Pillow", "image", lambda: image_size(ENCODED["PNG"], "m")),
        ("numpy", "numpy", "image", lambda: image_to_array(ENCODED["PNG"], "m")),
        ("soundfile", "soundfile", "audio", lambda: decode_audio(io.BytesIO(SOUNDS["WAV"]), "m")),
        ("soundfile", "soundfile", "audio", lambda: audio_info(io.BytesIO(SOUNDS["WAV"]), "m")),
        ("av", "PyAV", "video", lambda: VideoReader(io.BytesIO(SCENES[0].data), "m")),
    ],
)
def test_missing_library_is_named_with_its_extra(
    module: str, library: str, extra: str, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"decoding m needs {library}") as caught:
        act()
    assert caught.value.hint == f"pip install 'warpdata-lake[{extra}]'"


def test_libraries_are_imported_on_first_use() -> None:
    code = "import sys, warpdata.formats.media\nprint([n for n in ('PIL', 'soundfile', 'av') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
