"""Frames of an encoded block in one file, decoded by GOP and cached.

Video decodes from a key frame on, so all frames of a group are decoded together. They are cached in segments, because
a group can be as long as the video. The cache has one bound for the process. Implements "Cameras" of
docs/specs/episodes.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from warpdata.errors import MediaDecodeError, UnsupportedError
from warpdata.formats.wshard import Array, Codec, FrameIndex, FrameReader, frames_block
from warpdata.kinds.episodes.source import ReadAheadSource
from warpdata.limits import EPISODES_MAX_FRAME_PIXELS, MIB
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.fork import register_after_fork

if TYPE_CHECKING:
    from warpdata.kinds.episodes.episode import FileEpisode

__all__ = ["FRAME_CACHE", "EncodedFrames", "PutFrame", "Size"]

Size: TypeAlias = tuple[int, int]
"""Height and width."""
PutFrame: TypeAlias = Callable[[int, Array], None]
"""Receives the number and the pixels of a frame. It must copy the pixels."""

_CACHE_BYTES = 512 * MIB
_INDEX_CACHE_BYTES = 64 * MIB
_INDEX_ENTRY_BYTES = 96
"""Memory for each entry of a frame index, with the arrays that are derived from it."""
_SEGMENT_BYTES = 8 * MIB
_LOCK_COUNT = 64

FRAME_CACHE: ByteLRU[tuple[object, ...], Array] = ByteLRU(_CACHE_BYTES, clear_after_fork=True)
"""Decoded segments of all cameras of the process."""
_INDEX_CACHE: ByteLRU[tuple[str, str], FrameIndex] = ByteLRU(_INDEX_CACHE_BYTES)


class EncodedFrames:
    """Implements `FrameSource` over an encoded block with a frame index. Safe to share between threads."""

    def __init__(self, episode: FileEpisode, block: str, size: Size | None = None) -> None:
        if frames_block(block) not in episode.file:
            raise UnsupportedError(
                f"block {block!r} of episode {episode.id!r} is encoded and has no frame index, so it has no rows",
                hint="Write it with index_video or index_images; episode.chunks[0].file[…] has its bytes.",
            )
        self._episode = episode
        self._block = block
        self._known_size = size

    def __len__(self) -> int:
        return len(self.index)

    @property
    def index(self) -> FrameIndex:
        """The frame index. Reads its block on first use."""
        key = (self._episode.hash, self._block)
        return _INDEX_CACHE.get_or_create(key, self._read_index, lambda found: len(found.entries) * _INDEX_ENTRY_BYTES)

    @property
    def times_ns(self) -> Array | None:
        return self.index.times_ns

    @property
    def size(self) -> Size | None:
        if self._known_size is None:
            self._known_size = self._episode.retry_corrupt(lambda: self._reader().size)
        return self._known_size

    def encoded(self, frame: int) -> bytes:
        """Return the stored bytes of a frame: an image, or a packet of a video."""
        return self._episode.retry_corrupt(lambda: self._reader().encoded(frame))

    def split(self, frames: Array, frame_bytes: int) -> Iterator[Array]:
        groups = self.index.group_numbers[frames]
        first = 0
        for at in range(1, len(frames)):
            is_far = groups[at] > groups[at - 1] + 1
            is_full = groups[at] > groups[at - 1] and (at - first) * frame_bytes >= _SEGMENT_BYTES
            if is_far or is_full:
                yield frames[first:at]
                first = at
        yield frames[first:]

    def decode(
        self, frames: Array, resize: Size | None, put: PutFrame, also: Array | None
    ) -> dict[int, MediaDecodeError]:
        missing = {
            number: left
            for number, segments in self._segments(frames, also, resize).items()
            if (left := _put_cached(segments, put))
        }
        reader = self._buffered(missing)
        failed: dict[int, MediaDecodeError] = {}
        for number, segments in missing.items():
            # One thread decodes a group; others that need it wait, and find it in the cache.
            with _LOCKS.of((self._episode.hash, self._block, number)):
                left = _put_cached(segments, put)
                decode = partial(self._decode, reader, left, resize, put)
                failed |= self._episode.retry_corrupt(decode) if left else {}
        return failed

    def _segments(self, frames: Array, also: Array | None, resize: Size | None) -> dict[int, list[_Segment]]:
        """Return by GOP the segments that hold these frames, and `also` those of the same GOPs."""
        index, size = self.index, resize or self.size
        length = max(1, _SEGMENT_BYTES // (3 * size[0] * size[1] or 1)) if size is not None and also is not None else 1
        also = frames[:0] if also is None else also
        out: dict[int, list[_Segment]] = {}
        groups, other_groups = index.group_numbers[frames], index.group_numbers[also]
        for group in np.unique(groups).tolist():
            members, wanted = index.group_frames(group), frames[groups == group]
            kept = np.concatenate([wanted, also[other_groups == group]])
            numbers = np.searchsorted(members, wanted) // length
            for number in np.unique(np.searchsorted(members, kept) // length).tolist():
                part = members[number * length : (number + 1) * length]
                key = (self._episode.hash, self._block, resize, length, group, number)
                out.setdefault(group, []).append(_Segment(key, part, frozenset(wanted[numbers == number].tolist())))
        return out

    def _decode(
        self, reader: FrameReader, segments: Sequence[_Segment], resize: Size | None, put: PutFrame
    ) -> dict[int, MediaDecodeError]:
        """Decode segments of one group, and cache those that are complete."""
        size = self.size if resize is None else resize
        waiting = {frame for segment in segments for frame in segment.wanted}
        needed = np.concatenate([segment.members for segment in segments]).tolist()
        decoded = reader.select(needed, resize=resize, max_pixels=EPISODES_MAX_FRAME_PIXELS)
        try:
            for segment in segments:
                pixels: Array | None = None
                for at in range(len(segment.members)):
                    frame, found = next(decoded)
                    if size is not None and found.shape[:2] != size:
                        raise _wrong_size(frame, found.shape[:2], size)
                    if pixels is None:
                        pixels = np.empty((len(segment.members), *found.shape), np.uint8)
                    pixels[at] = found
                    if frame in segment.wanted:
                        put(frame, found)
                        waiting.discard(frame)
                if pixels is not None:
                    FRAME_CACHE.put(segment.key, pixels, pixels.nbytes)
        except MediaDecodeError as error:
            # Not raised, because a retry would drop a valid copy of the file.
            return dict.fromkeys(sorted(waiting), error)
        return {}

    def _buffered(self, missing: dict[int, list[_Segment]]) -> FrameReader:
        """Return a reader that fetches the packets of these segments together."""
        episode, reader = self._episode, self._reader()
        entry = episode.file[self._block].entry
        if entry.codec is Codec.NONE:
            spans: set[tuple[int, int]] = set()  # a group can share packets with the next one
            for segments in missing.values():
                wanted = np.concatenate([segment.members for segment in segments]).tolist()
                spans |= {(entry.offset + start, entry.offset + end) for start, end in reader.extents(wanted)}
            ahead = ReadAheadSource(episode.source, sorted(spans))
            return reader.with_bytes(lambda start, end: ahead.read_range(entry.offset + start, entry.offset + end))
        if entry.is_chunked:
            return reader
        key = (episode.hash, self._block)
        whole = FRAME_CACHE.get_or_create(key, episode.file[self._block].read, lambda found: found.nbytes)
        return reader.with_bytes(lambda start, end: whole[start:end].data)

    def _reader(self) -> FrameReader:
        return FrameReader(self._episode.file, self._block, self.index)

    def _read_index(self) -> FrameIndex:
        return self._episode.retry_corrupt(lambda: FrameReader(self._episode.file, self._block).index)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Frames of one group that are cached together, and those of them that are wanted now."""

    key: tuple[object, ...]
    members: Array
    wanted: frozenset[int]


def _put_cached(segments: Sequence[_Segment], put: PutFrame) -> list[_Segment]:
    """Pass on the wanted frames of cached segments. Return the other segments; none if no frame is left."""
    left = []
    for segment in segments:
        pixels = FRAME_CACHE.get(segment.key)
        if pixels is None:
            left.append(segment)
            continue
        for at, frame in enumerate(segment.members.tolist() if segment.wanted else ()):
            if frame in segment.wanted:
                put(frame, pixels[at])
    return left if any(segment.wanted for segment in left) else []


def _wrong_size(frame: int, found: Size, wanted: Size) -> MediaDecodeError:
    return MediaDecodeError(
        f"frame {frame} has {found[1]} × {found[0]} pixels; the channel has {wanted[1]} × {wanted[0]}",
        hint="Use resize=(height, width) for frames of several sizes.",
    )


class _StripedLocks:
    """A fixed number of locks, shared by all GOPs."""

    def __init__(self) -> None:
        self._reset()
        register_after_fork(self._reset)

    def of(self, key: tuple[str, str, int]) -> threading.Lock:
        return self._locks[hash(key) % _LOCK_COUNT]

    def _reset(self) -> None:
        """Replace all locks: another thread of the parent may have held one."""
        self._locks = [threading.Lock() for _ in range(_LOCK_COUNT)]


_LOCKS = _StripedLocks()
