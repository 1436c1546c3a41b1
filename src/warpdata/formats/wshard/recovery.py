"""Assembly of an episode file from a journal, at the end of a recording or after a crash.

Both share this code. A recovered file differs from a finished one only in its `recovered` member. Implements
"Recovery" of docs/specs/wshard.md.
"""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    ConflictError,
    CorruptError,
    UnsupportedError,
    WarpError,
)
from warpdata.formats.wshard.block_type import TIMESTAMPS, find_block_type
from warpdata.formats.wshard.canonical_json import is_count
from warpdata.formats.wshard.codecs import Codec, Compression, parse_compression
from warpdata.formats.wshard.container import ALIGNMENTS, JSON_CONTENT
from warpdata.formats.wshard.container_writer import (
    UNCOMPRESSED,
    BlockPlan,
    ContainerOptions,
    check_names,
    is_decodable,
    plan_bytes,
    write_container,
)
from warpdata.formats.wshard.dtypes import decode_array
from warpdata.formats.wshard.identity import identity
from warpdata.formats.wshard.journal import Journal, has_later_record, parse_begin, read_journal
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo, parse_info
from warpdata.formats.wshard.metadata_writer import make_metadata
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MIB
from warpdata.primitives.lock_file import LockFile, claim_file
from warpdata.primitives.paths import check_path
from warpdata.storage import explain_os_error

__all__ = [
    "PARTIAL",
    "Recovery",
    "assemble",
    "check_recordable",
    "claim_journal",
    "journal_metadata",
    "open_journal",
    "recover",
]

PARTIAL = ".partial"
_MAX_CHUNK_STEPS = 2**32
_MAX_LZ4_BYTES = 64 * MIB
"""Larger blocks stay uncompressed, because lz4 needs the whole block in memory."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a recovery.

    `is_complete` means that the recording had ended and nothing is missing. Otherwise, at most
    `unflushed_steps_at_most` steps were only in memory when it stopped. `problem` is the reason why the `lost_bytes`
    at the end of the journal are not valid.
    """

    path: Path
    episode_id: str
    step_count: int
    is_complete: bool
    lost_bytes: int
    unflushed_steps_at_most: int
    problem: str | None


def recover(path: PathLike, output: PathLike | None = None, *, remove_partial: bool = False) -> Recovery:
    """Write an episode file with every flushed step of a journal, and report the loss.

    The default `output` is the path of the journal without `.partial`; a file there with the same episode counts as
    written. `ConflictError` if the recording still runs. The journal stays unless `remove_partial`, and also if
    flushed steps after a damaged record could not be read.
    """
    source = check_path(path)
    target = check_path(output) if output is not None else _target(source)
    owned = claim_journal(source, os.O_RDWR)
    try:
        journal = read_journal(owned.fd)
        missing = {} if journal.is_complete else {"recovered": {"lost_bytes": journal.lost_bytes}}
        assemble(journal, owned.fd, target, missing)
        problem = journal.problem
        if remove_partial and journal.lost_bytes and has_later_record(owned.fd, journal):
            problem = f"{problem}; later records cannot be read, so the journal stays"
        elif remove_partial:
            if owned.size_bytes() != journal.good_bytes + journal.lost_bytes:
                raise ConflictError(f"{source} grew while it was recovered, so it was not removed")
            source.unlink(missing_ok=True)
    except OSError as error:
        if isinstance(error, WarpError):
            raise
        raise explain_os_error(error, source) from error
    finally:
        owned.close()
    buffered = journal.document.get("buffer_steps", 0)
    return Recovery(
        target,
        str(journal.document["episode"].get("episode_id", "")),
        journal.step_count,
        journal.is_complete,
        journal.lost_bytes,
        0 if journal.is_complete else buffered if is_count(buffered, _MAX_CHUNK_STEPS) else 0,
        problem,
    )


def claim_journal(path: Path, flags: int) -> LockFile:
    """Open a journal as its only owner; `ConflictError` if another process or object records or recovers it."""
    try:
        try:
            owned = claim_file(path, flags)
        except OSError as error:
            if flags & os.O_CREAT or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            # A journal that this user may only read can still be recovered into another directory.
            owned = claim_file(path, os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise BadInputError(f"the file name {path.name[:40]}… is too long for its file system") from error
        raise explain_os_error(error, path) from error
    if owned is None:
        hint = "Wait until the recording has ended. Read a running one with load_wshard."
        raise ConflictError(f"{path} is in use by another recording or recovery", hint=hint)
    return owned


def assemble(
    journal: Journal, handle: int, target: Path, extra: dict[str, Any] | None = None, *, is_durable: bool = True
) -> None:
    """Write the file. Reads the journal once for each block; memory is one record.

    The caller owns the journal. The temporary file is named after it, so that the next owner finds and removes a file
    that a killed process left. A target with the same content stays; `AlreadyExistsError` for another one.
    """
    status = os.fstat(handle)
    saving = target.with_name(f".{status.st_dev:x}-{status.st_ino:x}.saving")
    try:
        saving.unlink(missing_ok=True)
        is_present = target.exists()
    except OSError as error:
        raise explain_os_error(error, target) from error
    if not is_present:
        _write(journal, handle, target, extra, ContainerOptions(is_durable=is_durable, temporary=saving))
        return
    # A process may die after the file has its name, and before the journal is removed.
    try:
        _write(journal, handle, saving, extra, ContainerOptions(is_durable=False))
        is_same = _has_same_content(saving, target)
    finally:
        saving.unlink(missing_ok=True)
    if not is_same:
        raise AlreadyExistsError(f"{target} already exists", hint="Pass another output, or move the file.")


def _has_same_content(left: Path, right: Path) -> bool:
    with suppress(WarpError, OSError):
        return identity(left) == identity(right)
    return False


def _write(
    journal: Journal, handle: int, target: Path, extra: dict[str, Any] | None, options: ContainerOptions
) -> None:
    settings = _settings(journal.document)
    plans = [plan_bytes(name, data, JSON_CONTENT) for name, data in journal_metadata(journal, extra).items()]
    for number, part in enumerate(journal.parts):
        plans.append(_plan(journal, handle, number, part, settings))
    container = replace(settings.container, is_durable=options.is_durable, temporary=options.temporary)
    write_container(target, plans, container)


def check_recordable(begin: bytes) -> None:
    """Raise `BadInputError` for a first record from which no file can be assembled, before steps are recorded."""
    try:
        document, parts = parse_begin(begin)
        settings = _settings(document)
        names = journal_metadata(Journal(document, parts, array("Q"), array("Q"), 0, False, 0, 0, None))
        check_names([*names, *(part.block for part in parts)], settings.container)
    except (CorruptError, UnsupportedError) as error:
        raise BadInputError(f"the episode cannot be recorded: {error.message}") from error


def journal_metadata(journal: Journal, extra: dict[str, Any] | None = None) -> dict[str, bytes]:
    """Return the metadata blocks of the episode so far."""
    document = {**journal.document["episode"], **(extra or {}), "length_T": journal.step_count}
    channels = [part for part in journal.parts if part.block.startswith(("signal/", "action/"))]
    lanes = [part for part in journal.parts if part.block.startswith(("omen/", "uncert/"))]
    blocks = make_metadata(document, channels, lanes)
    _check_parts(journal, parse_info(blocks))
    return blocks


def _check_parts(journal: Journal, info: EpisodeInfo) -> None:
    """Check that the parts form a valid episode: a journal is foreign input like any file."""
    names = [part.block for part in journal.parts]
    for part in journal.parts:
        block_type = find_block_type(part.block, part.step_bytes * journal.step_count, info)
        is_channel = part.block.startswith(("signal/", "action/"))
        is_same = block_type.dtype is part.dtype and (is_channel or block_type.shape == part.shape)
        if part.block.startswith("meta/") or not block_type.is_declared or not is_same:
            raise CorruptError(f"the journal records {part.block!r} as {part.dtype}{list(part.shape)}")
        if not part.step_bytes * journal.step_count:
            # An empty part may still have an impossible shape.
            decode_array(b"", part.dtype, (journal.step_count, *part.shape))
    if len(set(names)) != len(names) or (info.timebase.type == "timestamps_ns" and TIMESTAMPS not in names):
        raise CorruptError("the journal records a block twice, or lacks the timestamps of its timebase")


@dataclass(frozen=True, slots=True)
class _Settings:
    container: ContainerOptions
    compression: dict[str, Compression]
    chunk_steps: int


def _settings(document: dict[str, Any]) -> _Settings:
    """Parse the save options of the recording."""
    options = document.get("save", {})
    try:
        compression = {
            str(block): parse_compression((str(name), level)) for block, (name, level) in options["compression"].items()
        }
        alignment, steps, is_sealed = options["alignment"], options["time_chunk_steps"], options["seal"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptError(f"the journal has no valid save options: {error}") from error
    is_valid = is_count(alignment, max(ALIGNMENTS)) and is_count(steps, _MAX_CHUNK_STEPS)
    if not is_valid or alignment not in ALIGNMENTS or not isinstance(is_sealed, bool):
        raise CorruptError(f"the journal has the save options alignment={alignment!r}, time_chunk_steps={steps!r}")
    return _Settings(ContainerOptions(alignment=alignment, is_sealed=is_sealed), compression, steps)


def _plan(journal: Journal, handle: int, number: int, part: ChannelSpec, settings: _Settings) -> BlockPlan:
    size = part.step_bytes * journal.step_count
    compression = settings.compression.get(part.block, UNCOMPRESSED)
    chunk_bytes = settings.chunk_steps * part.step_bytes if compression.codec is Codec.ZSTD else 0
    # A recording must not fail at its end, so blocks that readers would not decode stay uncompressed.
    if (compression.codec is Codec.LZ4 and size > _MAX_LZ4_BYTES) or not is_decodable(size, chunk_bytes):
        compression, chunk_bytes = UNCOMPRESSED, 0
    return BlockPlan(
        part.block, size, lambda: journal.pieces(handle, number), compression=compression, chunk_bytes=chunk_bytes
    )


def _target(source: Path) -> Path:
    if source.suffix != PARTIAL:
        raise BadInputError(f"{source} does not end in {PARTIAL}", hint="Pass output=….")
    return source.with_suffix("")


@contextmanager
def open_journal(path: Path) -> Iterator[int]:
    """Open a journal for reading. A writer may still append to it."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise explain_os_error(error, path) from error
    try:
        yield handle
    finally:
        os.close(handle)
