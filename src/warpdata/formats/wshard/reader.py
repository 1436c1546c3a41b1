"""Reading of files: the header and the index on open, and exactly the requested bytes later.

Arrays of uncompressed, aligned blocks are views of the mapped file, and stay valid after it is closed. Implements
"Reading" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from warpdata.errors import (
    BadInputError,
    CorruptError,
    NotFoundError,
    UnsupportedError,
)
from warpdata.formats.wshard.block_type import BlockType, find_block_type
from warpdata.formats.wshard.chunk_cache import BLOCK_CACHE_BYTES, CHUNK_CACHE
from warpdata.formats.wshard.codecs import Codec, check_match_offsets, crc32c, decompress
from warpdata.formats.wshard.container import (
    HEADER_BYTES,
    ROLE_EPISODE,
    ROLE_MANIFEST,
    BlockEntry,
    Header,
    parse_header,
    parse_index,
)
from warpdata.formats.wshard.dtypes import Array, DType, decode_array, np
from warpdata.formats.wshard.metadata import META_CHANNELS, META_EPISODE, META_WSHARD, EpisodeInfo, parse_info
from warpdata.formats.wshard.seek_table import SeekTable, read_seek_table
from warpdata.formats.wshard.source import BufferedSource, PathLike, open_source
from warpdata.limits import MIB, WSHARD_MAX_JSON_BYTES
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.reprs import short_repr
from warpdata.primitives.suggest import suggest
from warpdata.storage import RangeSource

__all__ = ["BlockReader", "WShardFile", "open_container", "open_file"]

_PIECE_BYTES = 1 * MIB


def open_file(path: PathLike | RangeSource, cache_bytes: int = BLOCK_CACHE_BYTES) -> WShardFile:
    """Open one episode file: its path, or a source. Reads the header and the index, nothing else."""
    if isinstance(cache_bytes, bool) or not isinstance(cache_bytes, int) or cache_bytes < 0:
        raise BadInputError(f"cache_bytes={cache_bytes!r} is not a number of bytes", hint="Use 0 for no cache.")
    file = open_container(path, cache_bytes)
    if file.header.role != ROLE_EPISODE:
        hint = "This is a manifest of chunks: open it by its path." if file.header.role == ROLE_MANIFEST else None
        raise UnsupportedError(f"the file has the role {file.header.role:#04x}, not that of an episode", hint=hint)
    return file


def open_container(path: PathLike | RangeSource, cache_bytes: int = 0) -> WShardFile:
    """Open a container of any role."""
    source = open_source(path)
    header = parse_header(source.read_range(0, min(HEADER_BYTES, source.size_bytes)), source.size_bytes)
    return WShardFile(source, header, parse_index(header, source.read_range(0, header.data_offset)), cache_bytes)


class WShardFile:
    """An open file: its block names, and a reader for each. Also a context manager."""

    def __init__(
        self, source: BufferedSource, header: Header, entries: tuple[BlockEntry, ...], cache_bytes: int = 0
    ) -> None:
        self.header = header
        self.cache_bytes = cache_bytes
        self._source: BufferedSource | None = source
        self._entries = {entry.name: entry for entry in entries}
        self._readers: dict[str, BlockReader] = {}
        self._info: EpisodeInfo | None = None

    def __repr__(self) -> str:
        return short_repr("WShardFile", blocks=list(self._entries), is_closed=self._source is None or None)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of all blocks, in the order of the index."""
        return tuple(self._entries)

    @property
    def info(self) -> EpisodeInfo | None:
        """The parsed metadata blocks, read on first use; None if the file has no `meta/episode`."""
        if self._info is None and META_EPISODE in self._entries:
            names = [name for name in (META_WSHARD, META_EPISODE, META_CHANNELS) if name in self._entries]
            self._info = parse_info({name: self.read_json(name) for name in names})
        return self._info

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all blocks."""
        return iter(self._entries)

    def __getitem__(self, name: str) -> BlockReader:
        reader = self._readers.get(name)
        if reader is None:
            if name not in self._entries:
                hint = suggest(name, self._entries, label="Blocks", shown=20)
                raise NotFoundError(f"there is no block {name!r}", hint=hint)
            reader = self._readers[name] = BlockReader(self, self._entries[name])
        return reader

    def read_json(self, name: str) -> bytes:
        """Return the bytes of a metadata block, whose size is bounded."""
        if self._entries[name].size_bytes > WSHARD_MAX_JSON_BYTES:
            raise CorruptError(
                f"block {name!r} has {self._entries[name].size_bytes} bytes; the most is {WSHARD_MAX_JSON_BYTES}"
            )
        return bytes(self[name].raw())

    def read_range(self, start: int, end: int) -> memoryview:
        if self._source is None:
            raise BadInputError("the file is closed")
        return self._source.read_range(start, end)

    @property
    def is_mapped(self) -> bool:
        """True if ranges are views of a mapped file."""
        return self._source is not None and self._source.is_mapped

    def close(self) -> None:
        """Close the file and drop its cache. Arrays that were read from it stay valid."""
        self._source = None
        self.clear_cache()

    def clear_cache(self) -> None:
        """Drop cached chunks and seek tables of all blocks, so that the next read fetches them again."""
        for reader in self._readers.values():
            reader.clear_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _WindowLayout(NamedTuple):
    """The properties of a block that every window needs, computed once."""

    rows: int
    step_bytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_decoded_in_place: bool


class BlockReader:
    """One block of an open file."""

    def __init__(
        self, file: WShardFile, entry: BlockEntry, block_type: BlockType | None = None, table: SeekTable | None = None
    ) -> None:
        self._file = file
        self.entry = entry
        self._block_type = block_type
        self._table = table
        self._mapped: Array | None = None
        self._is_checked = False
        self._cache = CHUNK_CACHE.open_block(file.cache_bytes) if entry.is_chunked and file.cache_bytes else None

    def __repr__(self) -> str:
        return short_repr("BlockReader", self.entry.name, size_bytes=self.entry.size_bytes)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def block_type(self) -> BlockType:
        """Element type, step shape and number of rows. Reads the metadata blocks on first use."""
        if self._block_type is None:
            self._block_type = find_block_type(self.entry.name, self.entry.size_bytes, self._file.info)
        return self._block_type

    def read(self) -> Array:
        """Read and verify the whole block, in its declared type and shape; as uint8 without a declaration."""
        block_type = self.block_type
        return decode_array(self.raw(), block_type.dtype, (block_type.rows, *block_type.shape))

    def window(self, start: int, stop: int, *, out: Array | None = None) -> Array:
        """Return rows `start` to `stop`, equal to `read()[start:stop]`, written into `out` if given.

        Uncompressed: reads only these bytes, which no checksum covers. With time chunks: decodes and verifies only
        their chunks, and caches them. A block of a local file that is read repeatedly is cached as one array, and
        windows are views of it. Otherwise: decodes and verifies the whole block.
        """
        layout = self._layout
        if not 0 <= start <= stop <= layout.rows:
            raise BadInputError(f"rows {start}…{stop} are not within the {layout.rows} of {self.entry.name!r}")
        if out is not None:
            if out.shape != (stop - start, *layout.shape) or out.dtype != layout.dtype:
                rows = f"{layout.dtype}{[stop - start, *layout.shape]}"
                raise BadInputError(f"out is {out.dtype}{list(out.shape)}, but the rows are {rows}")
            cached = None if self._cache is None else self._cache.rows
            if cached is not None:
                out[...] = cached[start:stop]
            elif layout.is_decoded_in_place and out.flags.c_contiguous and stop > start:
                bytes_out = memoryview(out).cast("B")  # type: ignore[arg-type]
                self._read_chunks(start * layout.step_bytes, bytes_out)
            else:
                out[...] = self._window(start, stop)
            return out
        return self._window(start, stop)

    def _window(self, start: int, stop: int) -> Array:
        if self._mapped is None and self._file.is_mapped:
            self._map(self.block_type)
        rows = self._mapped if self._cache is None else self._cache.rows
        if rows is not None:
            return rows[start:stop]
        block_type = self.block_type
        low, high = start * block_type.step_bytes, stop * block_type.step_bytes
        if self.entry.is_chunked:
            decoded = self._seek_table().allocate(self.entry, low, high)
            self._read_chunks(low, decoded)
            data = decoded.toreadonly()
        else:
            data = self._slice(low, high)
        return decode_array(data, block_type.dtype, (stop - start, *block_type.shape))

    def _read_chunks(self, low: int, out: memoryview) -> None:
        table, cache = self._seek_table(), self._cache
        table.read_into(self.entry, low, out, self._file.read_range, cache)
        if cache is not None and self._file.is_mapped and cache.should_load_all(out.nbytes, self.entry.size_bytes):
            with suppress(CorruptError):  # damage in other chunks is reported when they are read
                whole = table.allocate(self.entry, 0, self.entry.size_bytes)
                table.read_into(self.entry, 0, whole, self._file.read_range, cache)
                shape = (self._layout.rows, *self._layout.shape)
                cache.put_rows(decode_array(whole.toreadonly(), self.block_type.dtype, shape))

    @cached_property
    def _layout(self) -> _WindowLayout:
        block_type = self.block_type
        dtype = block_type.dtype.numpy
        # Booleans may be any non-zero byte, and a memoryview cannot hold bfloat16.
        is_in_place = self.entry.is_chunked and dtype.kind in "iuf" and block_type.step_bytes > 0
        return _WindowLayout(block_type.rows, block_type.step_bytes, block_type.shape, dtype, is_in_place)

    def clear_cache(self) -> None:
        """Drop the cached chunks and the seek table."""
        self._table = None
        if self._cache is not None:
            self._cache.clear()

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the byte range of the file that `window(start, stop)` reads, so that callers can prefetch it.

        With time chunks, the first call reads the seek table.
        """
        entry = self.entry
        low, high = (row * self.block_type.step_bytes for row in (start, stop))
        if entry.codec is Codec.NONE:
            return entry.offset + low, entry.offset + high
        if not entry.is_chunked:
            return entry.offset, entry.end
        low, high = self._seek_table().stored_span(low, high)
        return entry.offset + low, entry.offset + high

    @property
    def table_span(self) -> tuple[int, int] | None:
        """The byte range of the seek table in the file; None without time chunks."""
        return (self.entry.end - self._seek_table().size_bytes, self.entry.end) if self.entry.is_chunked else None

    def with_source(self, source: RangeSource) -> BlockReader:
        """Return a reader of the same block over another source, such as a prefetched range, without parsing again."""
        file = WShardFile(open_source(source), self._file.header, ())
        return BlockReader(file, self.entry, self.block_type, self._table)

    def _map(self, block_type: BlockType) -> None:
        """Store the block as one array over the mapped file, so that a window is a slice.

        Not for booleans, whose bytes must be inspected, nor for unaligned blocks.
        """
        entry = self.entry
        if (
            entry.codec is Codec.NONE
            and block_type.dtype is not DType.BOOL
            and entry.offset % block_type.dtype.size_bytes == 0
        ):
            data = self._slice(0, entry.size_bytes)
            self._mapped = decode_array(data, block_type.dtype, (block_type.rows, *block_type.shape))

    def raw(self) -> memoryview:
        """Return the decoded bytes. The checksum of an uncompressed block is verified once."""
        data = self._slice(0, self.entry.size_bytes)
        if not self._is_checked or self.entry.codec is not Codec.NONE:
            self._check(crc32c(data))
            self._is_checked = True
        return data

    def pieces(self) -> Iterator[memoryview]:
        """Yield the decoded bytes, and verify the checksum at the end. A single frame or lz4 block is one piece."""
        checksum = 0
        for piece in self._pieces():
            checksum = crc32c(piece, checksum)
            yield piece
        self._check(checksum)

    def _pieces(self) -> Iterator[memoryview]:
        entry = self.entry
        if entry.is_chunked:
            yield from self._seek_table().pieces(entry, self._file.read_range)
        elif entry.codec is not Codec.NONE:
            yield self._slice(0, entry.size_bytes)
        else:
            for start in range(0, entry.size_bytes, _PIECE_BYTES):
                yield self._slice(start, min(start + _PIECE_BYTES, entry.size_bytes))

    def _slice(self, low: int, high: int) -> memoryview:
        entry = self.entry
        if entry.codec is Codec.NONE:
            return self._file.read_range(entry.offset + low, entry.offset + high)
        if entry.is_chunked:
            return self._seek_table().read(entry, low, high, self._file.read_range)
        stored, what = self._file.read_range(entry.offset, entry.end), f"block {entry.name!r}"
        data = decompress(stored, entry.codec, entry.size_bytes, what)
        if entry.codec is Codec.LZ4 and not self._has_checksum:
            check_match_offsets(stored, what)
        if low or high != entry.size_bytes:
            self._check(crc32c(data))
        return memoryview(data)[low:high]

    def _seek_table(self) -> SeekTable:
        table = self._table  # another thread may clear the cache
        if table is None:
            table = self._table = read_seek_table(self.entry, self._file.read_range)
        return table

    @property
    def _has_checksum(self) -> bool:
        # A zero means "absent" only if the header does not promise checksums.
        return self.entry.checksum != 0 or self._file.header.has_checksums

    def _check(self, checksum: int) -> None:
        if self._has_checksum and checksum != self.entry.checksum:
            raise CorruptError(
                f"block {self.entry.name!r} has the checksum {checksum:08x} instead of {self.entry.checksum:08x}"
            )
