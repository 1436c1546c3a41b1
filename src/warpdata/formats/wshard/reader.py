"""Open a file without reading it: header and index now, exactly the bytes asked for later.

Arrays are views of the mapped file where the block is uncompressed and lies well; they stay valid after
the file is closed. Implements "Reading" of docs/specs/wshard.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from warpdata.errors import (
    BadInputError,
    EpisodeCorruptedError,
    NotFoundError,
    UnsupportedFormatError,
)
from warpdata.formats.wshard.block_type import Meaning, meaning_of
from warpdata.formats.wshard.byte_source import ByteSource, HeadSource, PathLike, open_source
from warpdata.formats.wshard.chunk_cache import KEPT
from warpdata.formats.wshard.codecs import Codec, check_distances, decompress
from warpdata.formats.wshard.container import (
    HEADER_BYTES,
    ROLE_EPISODE,
    ROLE_MANIFEST,
    Entry,
    Header,
    parse_header,
    parse_index,
)
from warpdata.formats.wshard.dtypes import Array, DType, decode_array
from warpdata.formats.wshard.libraries import crc32c, np
from warpdata.formats.wshard.metadata import META_CHANNELS, META_EPISODE, META_WSHARD, EpisodeInfo, parse_info
from warpdata.formats.wshard.seek_table import SeekTable, read_seek_table
from warpdata.limits import COPY_CHUNK_BYTES, WSHARD_KEPT_BLOCK_BYTES, WSHARD_MAX_JSON_BYTES
from warpdata.primitives.cached_property import cached_property

__all__ = ["BlockReader", "WShardFile", "open_container", "open_wshard"]


def open_wshard(path: PathLike | ByteSource, *, kept_bytes: int = WSHARD_KEPT_BLOCK_BYTES) -> WShardFile:
    """Open an episode: a path, or anything with `size` and `read_range(start, end)`.

    Reads the header and the index, nothing else. `kept_bytes` bounds the decoded time chunks that windows of each
    block leave in memory for windows to come; 0 keeps none.
    """
    if isinstance(kept_bytes, bool) or not isinstance(kept_bytes, int) or kept_bytes < 0:
        raise BadInputError(f"kept_bytes={kept_bytes!r} is not a number of bytes", hint="Use 0 to keep nothing.")
    file = open_container(path, kept_bytes)
    if file.header.role != ROLE_EPISODE:
        hint = "This is a manifest of chunks: use load_chunk_manifest." if file.header.role == ROLE_MANIFEST else None
        raise UnsupportedFormatError(
            f"the file has the role {file.header.role:#04x}, not that of an episode", hint=hint
        )
    return file


def open_container(path: PathLike | ByteSource, kept_bytes: int = 0) -> WShardFile:
    """Open a container of any role."""
    source = open_source(path)
    header = parse_header(source.read_range(0, min(HEADER_BYTES, source.size)), source.size)
    return WShardFile(source, header, parse_index(header, source.read_range(0, header.data_offset)), kept_bytes)


class WShardFile:
    """An open file: its block names, and a reader for each. Also a context manager."""

    def __init__(self, source: HeadSource, header: Header, entries: tuple[Entry, ...], kept_bytes: int = 0) -> None:
        self.header = header
        self.kept_bytes = kept_bytes
        self._source: HeadSource | None = source
        self._entries = {entry.name: entry for entry in entries}
        self._readers: dict[str, BlockReader] = {}
        self._info: EpisodeInfo | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of all blocks, in the order of the index."""
        return tuple(self._entries)

    @property
    def info(self) -> EpisodeInfo | None:
        """What the metadata blocks say, read on first use; `None` where the file has no `meta/episode`."""
        if self._info is None and META_EPISODE in self._entries:
            names = [name for name in (META_WSHARD, META_EPISODE, META_CHANNELS) if name in self._entries]
            self._info = parse_info({name: self.read_json(name) for name in names})
        return self._info

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> BlockReader:
        reader = self._readers.get(name)
        if reader is None:
            if name not in self._entries:
                raise NotFoundError(f"there is no block {name!r}", hint=f"There are: {', '.join(self.blocks[:20])}.")
            reader = self._readers[name] = BlockReader(self, self._entries[name])
        return reader

    def read_json(self, name: str) -> bytes:
        """The bytes of a metadata block, which must be small."""
        if self._entries[name].size_bytes > WSHARD_MAX_JSON_BYTES:
            raise EpisodeCorruptedError(f"block {name!r} has {self._entries[name].size_bytes} bytes of metadata")
        return bytes(self[name].raw())

    def read_range(self, start: int, end: int) -> memoryview:
        if self._source is None:
            raise BadInputError("the file is closed")
        return self._source.read_range(start, end)

    @property
    def is_mapped(self) -> bool:
        """Whether ranges are views of a mapped file."""
        return self._source is not None and self._source.is_mapped

    def close(self) -> None:
        """Forget the file. Arrays that were read from it stay valid."""
        self._source = None
        self.forget()

    def forget(self) -> None:
        """Let go of what was read of blocks and kept, for whoever has reason to read it again."""
        for reader in self._readers.values():
            reader.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Form(NamedTuple):
    """What every window of a block needs to know, put together once."""

    rows: int
    step_bytes: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_decoded_in_place: bool


class BlockReader:
    """One block of an open file."""

    def __init__(
        self, file: WShardFile, entry: Entry, meaning: Meaning | None = None, table: SeekTable | None = None
    ) -> None:
        self._file = file
        self.entry = entry
        self._meaning = meaning
        self._table = table
        self._mapped: Array | None = None
        self._is_checked = False
        self._shelf = KEPT.shelf(file.kept_bytes) if entry.is_chunked and file.kept_bytes else None

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def meaning(self) -> Meaning:
        """Element type, step shape and rows. Reads the metadata blocks on first use."""
        if self._meaning is None:
            self._meaning = meaning_of(self.entry.name, self.entry.size_bytes, self._file.info)
        return self._meaning

    def read(self) -> Array:
        """The whole block, checked, in its declared type and shape; as uint8 where none is declared."""
        meaning = self.meaning
        return decode_array(self.raw(), meaning.dtype, (meaning.rows, *meaning.shape))

    def window(self, start: int, stop: int, *, out: Array | None = None) -> Array:
        """Rows `start` to `stop`, as `read()[start:stop]` would give them; written into `out` if that is given.

        Uncompressed: only these bytes are touched, and no checksum can cover them. With time chunks: only
        the chunks they lie in are decoded, each checked, and kept for windows to come; of a local file's block that
        is read again and again all is kept, and windows are views of it. Otherwise the whole block is decoded and
        checked.
        """
        form = self._form
        if not 0 <= start <= stop <= form.rows:
            raise BadInputError(f"rows {start}…{stop} are not within the {form.rows} of {self.entry.name!r}")
        if out is not None:
            if out.shape != (stop - start, *form.shape) or out.dtype != form.dtype:
                rows = f"{form.dtype}{[stop - start, *form.shape]}"
                raise BadInputError(f"out is {out.dtype}{list(out.shape)}, and the rows are {rows}")
            kept = None if self._shelf is None else self._shelf.rows
            if kept is not None:
                out[...] = kept[start:stop]
            elif form.is_decoded_in_place and out.flags.c_contiguous and stop > start:
                bytes_out = memoryview(out).cast("B")  # type: ignore[arg-type]
                self._read_chunks(start * form.step_bytes, bytes_out)
            else:
                out[...] = self._window(start, stop)
            return out
        return self._window(start, stop)

    def _window(self, start: int, stop: int) -> Array:
        if self._mapped is None and self._file.is_mapped:
            self._map(self.meaning)
        rows = self._mapped if self._shelf is None else self._shelf.rows
        if rows is not None:
            return rows[start:stop]
        meaning = self.meaning
        low, high = start * meaning.step_bytes, stop * meaning.step_bytes
        if self.entry.is_chunked:
            room = self._seek_table().room(self.entry, low, high)
            self._read_chunks(low, room)
            data = room.toreadonly()
        else:
            data = self._slice(low, high)
        return decode_array(data, meaning.dtype, (stop - start, *meaning.shape))

    def _read_chunks(self, low: int, out: memoryview) -> None:
        table = self._seek_table()
        table.read_into(self.entry, low, out, self._file.read_range, self._shelf)
        shelf = self._shelf
        if shelf is not None and self._file.is_mapped and shelf.deserves_all(out.nbytes, self.entry.size_bytes):
            with suppress(EpisodeCorruptedError):  # damage elsewhere is told to whoever reads there
                whole = table.room(self.entry, 0, self.entry.size_bytes)
                table.read_into(self.entry, 0, whole, self._file.read_range, shelf)
                rows = decode_array(whole.toreadonly(), self.meaning.dtype, (self._form.rows, *self._form.shape))
                shelf.keep_rows(rows)

    @cached_property
    def _form(self) -> _Form:
        meaning = self.meaning
        dtype = meaning.dtype.numpy
        # A boolean may be any byte but 0, and bfloat16 is no type that a view of bytes knows.
        is_in_place = self.entry.is_chunked and dtype.kind in "iuf" and meaning.step_bytes > 0
        return _Form(meaning.rows, meaning.step_bytes, meaning.shape, dtype, is_in_place)

    def forget(self) -> None:
        """Let go of the chunks that were kept, and of the table that says where chunks lie."""
        self._table = None
        if self._shelf is not None:
            self._shelf.clear()

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The bytes of the file that `window(start, stop)` reads, for whoever fetches them beforehand.

        With time chunks the table that says where they lie is read first, once.
        """
        entry = self.entry
        low, high = (row * self.meaning.step_bytes for row in (start, stop))
        if entry.codec is Codec.NONE:
            return entry.offset + low, entry.offset + high
        if not entry.is_chunked:
            return entry.offset, entry.end
        low, high = self._seek_table().stored_span(low, high)
        return entry.offset + low, entry.offset + high

    @property
    def table_span(self) -> tuple[int, int] | None:
        """Where the table of time chunks lies in the file; `None` where there are none."""
        return (self.entry.end - self._seek_table().size_bytes, self.entry.end) if self.entry.is_chunked else None

    def over(self, source: ByteSource) -> BlockReader:
        """The same block with its bytes from elsewhere, such as a range fetched beforehand. Nothing is parsed anew."""
        file = WShardFile(open_source(source), self._file.header, ())
        return BlockReader(file, self.entry, self.meaning, self._table)

    def _map(self, meaning: Meaning) -> None:
        """Remember the block as one array over the mapped file: a window is then a slice, and reads nothing else.

        Not for booleans, whose bytes must be looked at, nor where they do not lie well.
        """
        entry = self.entry
        if (
            entry.codec is Codec.NONE
            and meaning.dtype is not DType.BOOL
            and entry.offset % meaning.dtype.size_bytes == 0
        ):
            data = self._slice(0, entry.size_bytes)
            self._mapped = decode_array(data, meaning.dtype, (meaning.rows, *meaning.shape))

    def raw(self) -> memoryview:
        """The uncompressed bytes, checked against the checksum once."""
        data = self._slice(0, self.entry.size_bytes)
        if not self._is_checked or self.entry.codec is not Codec.NONE:
            self._check(crc32c(data))
            self._is_checked = True
        return data

    def pieces(self) -> Iterator[memoryview]:
        """The uncompressed bytes piece by piece, checked at the end; one frame or lz4 block comes as one."""
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
            for start in range(0, entry.size_bytes, COPY_CHUNK_BYTES):
                yield self._slice(start, min(start + COPY_CHUNK_BYTES, entry.size_bytes))

    def _slice(self, low: int, high: int) -> memoryview:
        entry = self.entry
        if entry.codec is Codec.NONE:
            return self._file.read_range(entry.offset + low, entry.offset + high)
        if entry.is_chunked:
            return self._seek_table().read(entry, low, high, self._file.read_range)
        stored, what = self._file.read_range(entry.offset, entry.end), f"block {entry.name!r}"
        data = decompress(stored, entry.codec, entry.size_bytes, what)
        if entry.codec is Codec.LZ4 and not self._has_checksum:
            check_distances(stored, what)
        if low or high != entry.size_bytes:
            self._check(crc32c(data))
        return memoryview(data)[low:high]

    def _seek_table(self) -> SeekTable:
        table = self._table  # another thread may forget it
        if table is None:
            table = self._table = read_seek_table(self.entry, self._file.read_range)
        return table

    @property
    def _has_checksum(self) -> bool:
        # A zero means "absent" only where the header does not promise checksums.
        return self.entry.checksum != 0 or self._file.header.has_checksums

    def _check(self, checksum: int) -> None:
        if self._has_checksum and checksum != self.entry.checksum:
            raise EpisodeCorruptedError(
                f"block {self.entry.name!r} has the checksum {checksum:08x} instead of {self.entry.checksum:08x}"
            )
