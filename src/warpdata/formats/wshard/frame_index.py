"""The index of an encoded block: the offset, size and time of each frame, so that single frames can be decoded.

Values and bytes only; decoding is in video.py. Implements "Frame index" of docs/specs/wshard.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, UnsupportedError
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.limits import MAX_VIDEO_FRAMES, WSHARD_MAX_EXTRADATA_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import short_repr

__all__ = ["FRAME_ENTRY", "HIDDEN", "IMAGE_CODECS", "KEY", "FrameIndex", "frames_block", "parse_frames"]

IMAGE_CODECS = frozenset({"jpeg", "png"})
"""Encodings in which every frame is an independent image."""

FRAME_ENTRY = np.dtype(
    [("offset", "<u8"), ("size", "<u4"), ("checksum", "<u4"), ("time_ns", "<i8"), ("flags", "<u4"), ("zero", "<u4")]
)
KEY, HIDDEN = 1, 2
_HEADER = struct.Struct("<4sHHQII8s")
_MAGIC, _VERSION = b"WSFI", 1
_MAX_CODEC_BYTES = 64


def frames_block(block: str) -> str:
    """Return the name of the block that holds the frame index of `block`."""
    return f"frames/{block}"


@dataclass(frozen=True, eq=False)
class FrameIndex:
    """The frames of a block. `entries` are in decoding order; frames are numbered in the order they are shown.

    `codec` is FFmpeg's name of the codec, or `jpeg` or `png`. `extradata` configures the decoder.
    """

    codec: str
    extradata: bytes
    entries: Array

    def __repr__(self) -> str:
        return short_repr("FrameIndex", self.codec, frames=len(self))

    def __len__(self) -> int:
        """Return the number of frames that are shown."""
        return len(self._shown)

    @cached_property
    def _shown(self) -> Array:
        """The entry number of each frame."""
        seen = np.flatnonzero((self.entries["flags"] & HIDDEN) == 0)
        return seen[np.argsort(self.entries["time_ns"][seen], kind="stable")]

    @cached_property
    def by_time(self) -> Array:
        """The entry numbers in the order of time, including hidden ones."""
        return np.argsort(self.entries["time_ns"], kind="stable")

    @cached_property
    def places(self) -> Array:
        """The position of each entry in the order of time."""
        return np.argsort(self.by_time, kind="stable")

    @cached_property
    def _starts(self) -> Array:
        """The key entry to start from for each entry: the last one before it that is not shown after it; or −1."""
        starts = np.full(len(self.entries), -1, np.int64)
        # A key frame that is shown after a later key frame is dropped, so the times of the remaining ones ascend.
        keys: list[int] = []
        times: list[int] = []
        shown = self.entries["time_ns"].tolist()
        for number, flags in enumerate(self.entries["flags"].tolist()):
            if flags & KEY:
                while times and times[-1] >= shown[number]:
                    times.pop()
                    keys.pop()
                keys.append(number)
                times.append(shown[number])
            at = bisect_right(times, shown[number])
            if at:
                starts[number] = keys[at - 1]
        return starts

    @property
    def times_ns(self) -> Array:
        """The times at which the frames are shown, ascending."""
        times: Array = self.entries["time_ns"][self._shown]
        return times

    @property
    def is_key(self) -> Array:
        """True for each frame that can be decoded alone."""
        flags: Array = self.entries["flags"][self._shown]
        return np.asarray((flags & KEY) != 0)

    def entry_of(self, frame: int) -> int:
        """Return the entry number of a frame."""
        if not 0 <= frame < len(self):
            raise BadInputError(f"there is no frame {frame}; the block has {len(self)}, numbered from 0")
        return int(self._shown[frame])

    def extent(self, frame: int) -> tuple[int, int]:
        """Return the byte range of a frame within the block."""
        entry = self.entries[self.entry_of(frame)]
        return int(entry["offset"]), int(entry["offset"]) + int(entry["size"])

    def start_of(self, first: int, last: int) -> int:
        """Return the entry at which decoding must begin for the frames `first` to `last`, both included."""
        return int(self._starts[self._shown[first : last + 1]].min())

    @cached_property
    def _groups(self) -> tuple[Array, Array, Array]:
        """The group of each frame, all frames sorted by group, and the position of each group in that list."""
        starts, groups = np.unique(self._starts[self._shown], return_inverse=True)
        order = np.argsort(groups, kind="stable")
        return groups, order, np.searchsorted(groups[order], np.arange(len(starts) + 1))

    @property
    def group_numbers(self) -> Array:
        """The GOP of each frame: the frames whose decoding begins at the same entry. Counted from 0."""
        return self._groups[0]

    @property
    def max_group_frames(self) -> int:
        """The number of frames in the largest group; 0 without frames."""
        return int(np.diff(self._groups[2]).max(initial=0))

    def group_frames(self, group: int) -> Array:
        """Return the frames of a group, ascending."""
        _, order, bounds = self._groups
        frames: Array = order[bounds[group] : bounds[group + 1]]
        return frames

    def entry_span(self, frames: Array) -> tuple[int, int]:
        """Return the range of entries, in decoding order, from which these frames are decoded."""
        entries = self._shown[frames]
        return int(self._starts[entries].min()), int(entries.max()) + 1

    def encode(self) -> bytes:
        """Return the bytes of the index block."""
        codec = self.codec.encode("ascii", "strict")
        head = _HEADER.pack(
            _MAGIC, _VERSION, FRAME_ENTRY.itemsize, len(self.entries), len(codec), len(self.extradata), bytes(8)
        )
        return head + codec + self.extradata + self.entries.tobytes()

    def check(self, size_bytes: int) -> None:
        """Raise `CorruptError` unless every frame is inside a block of this size and can be decoded."""
        entries = self.entries
        ends = entries["offset"] + entries["size"]
        if len(entries) and (int(ends.max()) > size_bytes or bool((ends < entries["offset"]).any())):
            raise CorruptError(f"a frame ends at byte {int(ends.max())} of {size_bytes}")
        if bool((entries["flags"] & ~np.uint32(KEY | HIDDEN)).any()) or bool(entries["zero"].any()):
            raise UnsupportedError("the frame index has unknown flags")
        times = self.times_ns
        if bool((times[1:] == times[:-1]).any()):
            raise CorruptError("two frames are shown at the same time")
        if len(self) and int(self._starts[self._shown].min()) < 0:
            raise CorruptError("the frame index has a frame without a preceding key frame")
        if self.codec in IMAGE_CODECS and not bool(self.is_key.all()):
            raise CorruptError("the frame index has an image that is not a key frame")


def parse_frames(data: bytes | memoryview, size_bytes: int) -> FrameIndex:
    """Parse and check the index of a block of `size_bytes`."""
    if len(data) < _HEADER.size:
        raise CorruptError(f"the frame index has {len(data)} bytes; its header alone takes {_HEADER.size}")
    magic, version, width, count, codec_bytes, extra_bytes, zeros = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptError(f"the frame index begins with {magic!r}")
    if version != _VERSION or width != FRAME_ENTRY.itemsize or zeros != bytes(8):
        raise UnsupportedError(f"the frame index has the version {version}, with entries of {width} bytes")
    if count > MAX_VIDEO_FRAMES or extra_bytes > WSHARD_MAX_EXTRADATA_BYTES or not 0 < codec_bytes <= _MAX_CODEC_BYTES:
        raise LimitExceededError(
            f"the frame index has {count} frames, {extra_bytes} bytes of extradata, {codec_bytes} of codec"
        )
    body = _HEADER.size + codec_bytes
    if len(data) != body + extra_bytes + count * FRAME_ENTRY.itemsize:
        raise CorruptError(f"the frame index has {len(data)} bytes, which do not fit its {count} frames")
    try:
        codec = bytes(data[_HEADER.size : body]).decode("ascii")
    except UnicodeDecodeError as error:
        raise CorruptError("the codec of the frame index is not ASCII") from error
    entries: Any = np.frombuffer(data, FRAME_ENTRY, offset=body + extra_bytes)
    index = FrameIndex(codec, bytes(data[body : body + extra_bytes]), entries)
    index.check(size_bytes)
    return index
