"""Audio: sample decoding and headers. The only user of soundfile.

libsndfile accepts a WAV whose end is missing, and guesses the length of an MP3 without a length tag. Both would
return a part of the audio without an error, so the lengths are checked here first.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError, UnsupportedError
from warpdata.formats.media.callback_file import CallbackFile, Reserve, reserve_nothing
from warpdata.formats.media.image import Array
from warpdata.limits import MAX_AUDIO_CHUNKS, MAX_AUDIO_SAMPLES, MAX_UNTAGGED_MP3_BYTES
from warpdata.primitives.extras import require

__all__ = ["AudioInfo", "audio_info", "decode_audio"]

_MP3_RUN_UP_FRAMES = 2**17
"""Packets of an MP3 depend on earlier packets, and libsndfile starts too few packets before the target."""

_VORBIS_PAGE_FRAMES = 255 * 4096
"""Upper bound on the frames of an Ogg page. libsndfile misses seek targets inside the last page."""

_UNKNOWN_SIZE = 0x7FFF_0000
"""A chunk size from here on is a placeholder of a writer that did not know the size, such as one into a pipe."""

_SAMPLE_BYTES = 4
_SAMPLE_CHUNKS = (b"data", b"SSND", b"BODY")
_LENGTH_TAGS = (b"Xing", b"Info", b"VBRI")
_MP3_KBITS = {
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Bit rates of layer III by their number in the header, from 1: for MPEG 1, and for the lower rates."""
_MP3_RATES = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """Properties of an audio file, from its header. A frame is one sample of each channel."""

    sample_rate: int
    channels: int
    frames: int
    duration_s: float
    format: str


def audio_info(file: BinaryIO, name: str) -> AudioInfo:
    """Read the header without decoding samples. The file stays open."""
    source = CallbackFile(file, name)
    with source.decoding(), _open_audio(source) as (audio, frames):
        return AudioInfo(audio.samplerate, audio.channels, frames, frames / audio.samplerate, audio.format)


def decode_audio(
    file: BinaryIO,
    name: str,
    *,
    start_s: float = 0.0,
    duration_s: float | None = None,
    reserve: Reserve = reserve_nothing,
) -> tuple[Array, int]:
    """Return samples as float32, frames × channels, and the sample rate.

    Both ends are rounded to the nearest frame, so that adjacent parts share no frame and miss none. A part that
    runs past the end stops there. The file stays open. `reserve` takes the memory of the samples before it is
    allocated.
    """
    source = CallbackFile(file, name)
    with source.decoding(), _open_audio(source) as (audio, frames):
        rate: int = audio.samplerate
        first, last = _frame_range(start_s, duration_s, rate, frames, name)
        if (last - first) * audio.channels > MAX_AUDIO_SAMPLES:
            raise LimitExceededError(
                f"{name}: {last - first} frames of {audio.channels} channels exceed the "
                f"{MAX_AUDIO_SAMPLES} samples that are decoded at once",
                hint="Decode parts, with start_s and duration_s.",
            )
        begin = _decoding_start(audio, first, frames)
        reserve((last - begin) * audio.channels * _SAMPLE_BYTES)
        audio.seek(begin)
        samples: Array = audio.read(last - begin, dtype="float32", always_2d=True)
    if begin + len(samples) != last:
        raise MediaDecodeError(f"{name}: the header promises {last} frames, {begin + len(samples)} are present")
    return samples[first - begin :], rate


def _frame_range(start_s: float, duration_s: float | None, rate: int, frames: int, name: str) -> tuple[int, int]:
    for value in (start_s, duration_s or 0.0):
        if not (math.isfinite(value) and value >= 0):
            raise BadInputError(f"{name}: {value} s is not a valid time")
    first = round(start_s * rate)
    if first > frames:
        raise BadInputError(f"{name}: start_s={start_s} is after the end at {frames / rate} s")
    return first, frames if duration_s is None else min(round((start_s + duration_s) * rate), frames)


def _decoding_start(audio: Any, first: int, frames: int) -> int:
    """Return a frame at or before `first` from which decoding gives the same samples as decoding everything."""
    if audio.format == "MP3":
        return max(0, first - _MP3_RUN_UP_FRAMES)
    if audio.subtype == "VORBIS":
        return min(first, max(0, frames - _VORBIS_PAGE_FRAMES))
    return first


@contextmanager
def _open_audio(source: CallbackFile) -> Iterator[tuple[Any, int]]:
    """Yield the open audio file and its number of frames."""
    soundfile = require("soundfile", purpose=f"decoding {source.member}", extra="audio")
    if missing := _missing_sample_bytes(source):
        raise MediaDecodeError(
            f"{source.member}: the header promises {missing[0]} bytes of samples, {missing[1]} are present"
        )
    source.seek(0)
    with soundfile.SoundFile(source) as audio:
        counted: int | None = None
        if audio.format == "MP3":
            position = source.tell()
            counted = _count_mp3_frames(source)
            source.seek(position)
        frames: int = audio.frames if counted is None else counted
        if frames > min(audio.frames, 2**62):
            raise UnsupportedError(
                f"{source.member}: this {audio.format} file does not state its length",
                hint="Rewrite it with a length, for example with `ffmpeg -i IN -c copy OUT`.",
            )
        yield audio, frames


def _missing_sample_bytes(file: CallbackFile) -> tuple[int, int] | None:
    """Return promised and present bytes of samples if a WAV or AIFF promises more than it has."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    magic = file.read(12)[:4]
    if magic not in (b"RIFF", b"FORM"):
        return None
    at = 12
    for _ in range(MAX_AUDIO_CHUNKS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            break
        promised = int.from_bytes(head[4:], "little" if magic == b"RIFF" else "big")
        if head[:4] in _SAMPLE_CHUNKS:
            present = size - at - 8
            return (promised, present) if present < promised < _UNKNOWN_SIZE else None
        at += 8 + promised + promised % 2
    return None


def _count_mp3_frames(file: CallbackFile) -> int | None:
    """Count the samples per channel of an MP3 over all its packets; None if a tag states the exact length."""
    file.seek(_skip_id3(file))
    data = file.read(4096)
    if any(tag in data for tag in _LENGTH_TAGS):
        return None
    data += file.read(MAX_UNTAGGED_MP3_BYTES)
    if len(data) > MAX_UNTAGGED_MP3_BYTES:
        raise LimitExceededError(
            f"{file.member}: an MP3 without a length tag must be read completely to count its frames, "
            f"and has more than {MAX_UNTAGGED_MP3_BYTES} bytes"
        )
    at = frames = 0
    while at + 4 <= len(data):
        packet = _parse_mp3_header(data[at : at + 4])
        if packet is None:
            at = data.find(b"\xff", at + 1)
            if at < 0:
                break
            continue
        size, samples = packet
        frames += samples
        at += size
    return frames


def _skip_id3(file: CallbackFile) -> int:
    """Return the offset after all ID3 tags, whose sizes are bytes of seven bits."""
    at = 0
    for _ in range(MAX_AUDIO_CHUNKS):
        file.seek(at)
        head = file.read(10)
        if head[:3] != b"ID3" or len(head) < 10:
            break
        at += 10 + sum((byte & 0x7F) << shift for byte, shift in zip(head[6:], (21, 14, 7, 0), strict=True))
    return at


def _parse_mp3_header(head: bytes) -> tuple[int, int] | None:
    """Return the packet's size in bytes and samples per channel; None if this is not a packet header."""
    bits = int.from_bytes(head, "big")
    version, layer, kbits, rate = bits >> 19 & 3, bits >> 17 & 3, bits >> 12 & 15, bits >> 10 & 3
    if bits >> 21 != 0x7FF or version == 1 or layer != 1 or kbits in (0, 15) or rate == 3:
        return None
    is_mpeg1 = version == 3
    samples = 1152 if is_mpeg1 else 576
    size = samples // 8 * _MP3_KBITS[is_mpeg1][kbits - 1] * 1000 // _MP3_RATES[version][rate] + (bits >> 9 & 1)
    return size, samples
