"""Archives of users become directories: entry by entry, with bounds, and with names that stay inside.

Links, devices and encrypted entries are refused. Sizes are counted while bytes are written, not read from headers.
"""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from lzma import LZMAError
from pathlib import Path
from typing import IO

from warpdata.errors import BadInputError, InvalidSourceError, LimitExceededError
from warpdata.kinds.artifacts import check_member_path
from warpdata.limits import (
    MAX_ARCHIVE_ENTRIES,
    MAX_ARCHIVE_RATIO,
    MAX_UNPACKED_BYTES,
    MIB,
)

__all__ = ["ARCHIVE_SUFFIXES", "place_file", "unpack_archive"]

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_CHUNK_BYTES = 1 * MIB
_SLACK_BYTES = 64 * MIB
"""An archive may always unpack to this much, whatever its own size."""
_MAX_PART = 255
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, ValueError, NotImplementedError)


def unpack_archive(path: Path, name: str, target: Path, on_bytes: Callable[[int], None] = lambda _: None) -> int:
    """Unpack a ZIP or tar archive into a directory, and return the number of files."""
    most = min(MAX_UNPACKED_BYTES, max(_SLACK_BYTES, MAX_ARCHIVE_RATIO * path.stat().st_size))
    written = count = 0
    try:
        for member, content in _entries(path):
            count += 1
            if count > MAX_ARCHIVE_ENTRIES:
                raise LimitExceededError(f"{name!r} has more than {MAX_ARCHIVE_ENTRIES:,} entries")
            with content, place_file(target, member).open("xb") as out:
                while chunk := content.read(_CHUNK_BYTES):
                    written += len(chunk)
                    if written > most:
                        raise LimitExceededError(f"{name!r} unpacks to more than {most:,} bytes")
                    out.write(chunk)
                    on_bytes(len(chunk))
    except BadInputError:
        raise
    except FileExistsError as error:
        raise InvalidSourceError(f"{name!r} has two files of one name") from error
    except RuntimeError as error:  # how zipfile refuses encrypted entries
        raise InvalidSourceError(f"{name!r} cannot be unpacked: {error}", hint="Send it without a password.") from error
    except (*_BROKEN, OSError) as error:
        raise InvalidSourceError(f"{name!r} is not an archive that can be read: {error}") from error
    return count


def place_file(target: Path, member: str) -> Path:
    """Return the path of a member inside of a directory, with its directories. Every name is checked."""
    check_member_path(member, "archive")
    parts = member.split("/")
    if any(len(part.encode()) > _MAX_PART for part in parts) or "\\" in member or not member.isprintable():
        raise InvalidSourceError(f"{member[:200]!r} is not a name for a file", hint="Rename it.")
    path = target.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InvalidSourceError(f"{member!r} is in a directory that is a file too") from error
    return path


def _entries(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and the content of each plain file."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                kind = info.external_attr >> 28
                if info.is_dir():
                    continue
                if kind not in (0, 0o10):  # a link, a device or a socket
                    raise InvalidSourceError(f"{info.filename[:200]!r} in the archive is not a plain file")
                yield info.filename, archive.open(info)
        return
    with tarfile.open(path, mode="r|*") as packed:
        for member in packed:
            if member.isdir():
                continue
            content = packed.extractfile(member) if member.isreg() and member.sparse is None else None
            if content is None:
                raise InvalidSourceError(f"{member.name[:200]!r} in the archive is not a plain file")
            yield member.name.removeprefix("./"), content
