"""Contents of media on their way into an artifact: one staged file, and a member path for each content.

A foreign dataset may hold millions of small images. Each content is appended to one file and packed from there, so
that memory holds only paths and offsets, and the disk no file for each image.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from warpdata.errors import InvalidSourceError, StorageError
from warpdata.formats.media import media_suffix, ref_type_of, suffix_of
from warpdata.kinds.artifacts import FileRange
from warpdata.primitives.paths import take_free_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MediaFiles", "MediaSpool", "artifact_name", "is_media_type", "media_cells"]

_PORTABLE_NAME = re.compile(r"[\w .()+,=@%~-]+", re.ASCII)
_MAX_NAME_LENGTH = 120
_HEAD_BYTES = 64


def artifact_name(column: str) -> str:
    """Return the name of the artifact for the files of a column."""
    return "raw_" + re.sub(r"[^A-Za-z0-9_.-]", "_", column)


def is_media_type(arrow_type: pa.DataType) -> bool:
    """Return whether a column of this type can hold contents: bytes, or structs of `bytes` and `path`."""
    import pyarrow as pa

    if pa.types.is_struct(arrow_type):
        names = {arrow_type.field(index).name for index in range(arrow_type.num_fields)}
        return names <= {"bytes", "path"} and "bytes" in names
    return bool(
        pa.types.is_binary(arrow_type)
        or pa.types.is_large_binary(arrow_type)
        or pa.types.is_binary_view(arrow_type)
        or pa.types.is_fixed_size_binary(arrow_type)
    )


class MediaFiles:
    """Reads files that rows name by path instead of holding their bytes. Only files inside of `root` are read."""

    def __init__(self, root: Path | None) -> None:
        self._root = None if root is None else root.expanduser().resolve()

    def find(self, path: str, where: str) -> FileRange:
        """Return the file. `InvalidSourceError` for a path outside of the root, for a URL, and for other than files."""
        if self._root is None or "://" in path:
            raise InvalidSourceError(
                f"{where}: the row has no bytes, only the path {path!r}",
                hint="Pass media_root=DIRECTORY (--media-root) to read files inside of that directory.",
            )
        found = self._resolve(path, where)
        if not found.is_relative_to(self._root):
            raise InvalidSourceError(
                f"{where}: {path!r} is outside of {self._root}", hint="Pass another media_root (--media-root)."
            )
        try:
            status = found.stat()
        except OSError as error:
            raise InvalidSourceError(f"{where}: {found} cannot be read: {error.strerror or error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise InvalidSourceError(f"{where}: {found} is not a regular file")
        return FileRange(found, 0, status.st_size)

    def _resolve(self, path: str, where: str) -> Path:
        assert self._root is not None, "checked by the caller"
        try:
            return (self._root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidSourceError(f"{where}: {path!r} is not a path: {error}") from error


class MediaSpool:
    """Appends contents to one file and names each member: by its file name if that is free, or else by its row.

    A content that is a file already stays there.
    """

    def __init__(self, path: Path, ref_type: str) -> None:
        self._path = path
        self.ref_type = ref_type
        self._members: dict[str, FileRange] = {}
        self._taken: set[str] = set()
        self._end = 0
        try:
            self._file = path.open("xb")
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def members(self) -> dict[str, FileRange]:
        return self._members

    def add(self, content: bytes | memoryview | FileRange, name: str | None, prefix: str, row: int) -> str:
        """Append a content and return its member path. `prefix` is a directory of the artifact, or ""."""
        if isinstance(content, FileRange):
            path = self._member_path(_head(content), name, prefix, row)
            self._members[path] = content
            return path
        path = self._member_path(content, name, prefix, row)
        try:
            self._file.write(content)
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written: {error.strerror or error}",
                hint="Free some space, or set WARP_CACHE_DIR to a directory on a larger disk.",
            ) from error
        self._members[path] = FileRange(self._path, self._end, len(content))
        self._end += len(content)
        return path

    def _member_path(self, content: bytes | memoryview, name: str | None, prefix: str, row: int) -> str:
        base = _file_name(name)
        if base is None or (self.ref_type != "file" and ref_type_of(base) != self.ref_type):
            suffix = media_suffix(content) or (suffix_of(base) if base is not None else "")
            stem = f"{row:08d}" if base is None else base.rpartition(".")[0] or base
            base = f"{stem}.{suffix}" if suffix else stem
        # Directories of people's machines may ignore case, and an export writes these names there.
        return take_free_path(prefix, base, row, self._taken)


def _head(file: FileRange) -> bytes:
    """Return the first bytes, which show the type of the content."""
    try:
        with file.path.open("rb") as opened:
            return opened.read(_HEAD_BYTES)
    except OSError as error:
        raise InvalidSourceError(f"{file.path} cannot be read: {error.strerror or error}") from error


def _file_name(name: str | None) -> str | None:
    """Return the last part of a path if it is a portable file name, or None."""
    base = re.split(r"[/\\]", name)[-1] if name else ""
    is_portable = _PORTABLE_NAME.fullmatch(base) and len(base) <= _MAX_NAME_LENGTH and base.strip(". ")
    return base if is_portable and not base.startswith(".") else None


def media_cells(column: pa.Array) -> list[tuple[Any, str | None] | None]:
    """Return the content and the path of each row of a media column; None for a null."""
    import pyarrow as pa

    if not pa.types.is_struct(column.type):
        return [None if not cell.is_valid else (memoryview(cell.as_buffer()), None) for cell in column]
    contents = column.field("bytes")
    has_path = column.type.get_field_index("path") >= 0
    paths = column.field("path").to_pylist() if has_path else [None] * len(column)
    cells: list[tuple[Any, str | None] | None] = []
    for row, (cell, path) in enumerate(zip(contents, paths, strict=True)):
        if not column[row].is_valid or (not cell.is_valid and path is None):
            cells.append(None)
        else:
            cells.append((memoryview(cell.as_buffer()) if cell.is_valid else None, path))
    return cells
