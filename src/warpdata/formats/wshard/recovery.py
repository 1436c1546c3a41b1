"""From a journal to a file: the end of a recording, and what recovery does after a crash.

Both take the same way, so a recovered file differs from a finished one only in what it says about itself.
Implements "Recovery" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    EpisodeCorruptedError,
    UnsupportedError,
)
from warpdata.formats.wshard.block_type import TIMESTAMPS, meaning_of
from warpdata.formats.wshard.byte_source import PathLike, translate
from warpdata.formats.wshard.canonical_json import is_count
from warpdata.formats.wshard.codecs import Codec, Compression, parse_compression
from warpdata.formats.wshard.container import ALIGNMENTS, JSON_CONTENT
from warpdata.formats.wshard.container_writer import (
    PLAIN,
    BlockPlan,
    ContainerOptions,
    check_names,
    is_decodable,
    plan_bytes,
    write_container,
)
from warpdata.formats.wshard.documents import fresh_metadata
from warpdata.formats.wshard.dtypes import decode_array
from warpdata.formats.wshard.journal import Journal, parse_begin, read_journal
from warpdata.formats.wshard.metadata import ChannelSpec, EpisodeInfo, parse_info
from warpdata.limits import WSHARD_MAX_STREAM_LZ4_BYTES

__all__ = ["PARTIAL", "Recovery", "assemble", "journal_metadata", "opened", "recover", "rehearse"]

PARTIAL = ".partial"
_MOST_CHUNK_STEPS = 2**32


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a recovery brought back, and what it could not.

    `is_complete` says that the recording had ended and nothing is missing. Otherwise up to
    `unflushed_steps_at_most` steps were only in memory when it stopped, and `lost_bytes` at the end of the
    journal could not be believed, for the reason in `problem`.
    """

    path: Path
    episode_id: str
    step_count: int
    is_complete: bool
    lost_bytes: int
    unflushed_steps_at_most: int
    problem: str | None


def recover(path: PathLike, output: PathLike | None = None, *, remove_partial: bool = False) -> Recovery:
    """Make an episode of what a journal holds: every flushed step, and a report of what was lost.

    The file is written beside the journal, under its name without `.partial`, unless `output` says where.
    The journal stays unless `remove_partial`.
    """
    source = Path(path)
    target = Path(output) if output is not None else _target(source)
    if target.exists():
        raise AlreadyExistsError(f"{target} exists already", hint="Name another output, or move it away.")
    with opened(source) as handle:
        journal = read_journal(handle)
        missing = {} if journal.is_complete else {"recovered": {"lost_bytes": journal.lost_bytes}}
        assemble(journal, handle, target, missing)
    if remove_partial:
        source.unlink(missing_ok=True)
    waiting = journal.document.get("buffer_steps", 0)
    return Recovery(
        target,
        str(journal.document["episode"].get("episode_id", "")),
        journal.step_count,
        journal.is_complete,
        journal.lost_bytes,
        0 if journal.is_complete else waiting if is_count(waiting, _MOST_CHUNK_STEPS) else 0,
        journal.problem,
    )


def assemble(
    journal: Journal, handle: int, target: Path, extra: dict[str, Any] | None = None, *, is_durable: bool = True
) -> None:
    """Write the file, reading the journal once for each block; memory stays at one record."""
    settings = _settings(journal.document)
    plans = [plan_bytes(name, data, JSON_CONTENT) for name, data in journal_metadata(journal, extra).items()]
    for number, part in enumerate(journal.parts):
        plans.append(_plan(journal, handle, number, part, settings))
    write_container(target, plans, replace(settings.container, is_durable=is_durable))


def rehearse(begin: bytes) -> None:
    """`BadInputError` for a beginning that no file could be assembled from: better now than when all is recorded."""
    try:
        document, parts = parse_begin(begin)
        settings = _settings(document)
        names = journal_metadata(Journal(document, parts, array("Q"), array("Q"), 0, False, 0, 0, None))
        check_names([*names, *(part.block for part in parts)], settings.container)
    except (CorruptError, UnsupportedError) as error:
        raise BadInputError(f"this cannot be recorded: {error.message}") from error


def journal_metadata(journal: Journal, extra: dict[str, Any] | None = None) -> dict[str, bytes]:
    """The metadata blocks of the episode so far."""
    document = {**journal.document["episode"], **(extra or {}), "length_T": journal.step_count}
    channels = [part for part in journal.parts if part.block.startswith(("signal/", "action/"))]
    blocks = fresh_metadata(document, channels)
    _check_parts(journal, parse_info(blocks))
    return blocks


def _check_parts(journal: Journal, info: EpisodeInfo) -> None:
    """A journal is as much other people's bytes as any file: what it leads to must be an episode."""
    names = [part.block for part in journal.parts]
    for part in journal.parts:
        meaning = meaning_of(part.block, part.step_bytes * journal.step_count, info)
        is_channel = part.block.startswith(("signal/", "action/"))
        is_alike = meaning.dtype is part.dtype and (is_channel or meaning.shape == part.shape)
        if part.block.startswith("meta/") or not meaning.is_declared or not is_alike:
            raise EpisodeCorruptedError(f"the journal records {part.block!r} as {part.dtype}{list(part.shape)}")
        if not part.step_bytes * journal.step_count:
            # Nothing can have an impossible shape, too.
            decode_array(b"", part.dtype, (journal.step_count, *part.shape))
    if len(set(names)) != len(names) or (info.timebase.type == "timestamps_ns" and TIMESTAMPS not in names):
        raise EpisodeCorruptedError("the journal records a block twice, or not what its timebase asks for")


@dataclass(frozen=True, slots=True)
class _Settings:
    container: ContainerOptions
    compression: dict[str, Compression]
    chunk_steps: int


def _settings(document: dict[str, Any]) -> _Settings:
    """How the recording asked to be saved. A journal that asks for nonsense is corrupt."""
    asked = document.get("save", {})
    try:
        compression = {
            str(block): parse_compression((str(name), level)) for block, (name, level) in asked["compression"].items()
        }
        alignment, steps, sealed = asked["alignment"], asked["time_chunk_steps"], asked["seal"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EpisodeCorruptedError(f"the journal does not say how to save the episode: {error}") from error
    counted = is_count(alignment, max(ALIGNMENTS)) and is_count(steps, _MOST_CHUNK_STEPS)
    if not counted or alignment not in ALIGNMENTS or not isinstance(sealed, bool):
        raise EpisodeCorruptedError(f"the journal asks for alignment {alignment!r} and chunks of {steps!r} steps")
    return _Settings(ContainerOptions(alignment=alignment, is_sealed=sealed), compression, steps)


def _plan(journal: Journal, handle: int, number: int, part: ChannelSpec, settings: _Settings) -> BlockPlan:
    size = part.step_bytes * journal.step_count
    how = settings.compression.get(part.block, PLAIN)
    chunk_bytes = settings.chunk_steps * part.step_bytes if how.codec is Codec.ZSTD else 0
    # A recording must not fail at its end: what readers would not decode stays uncompressed.
    if (how.codec is Codec.LZ4 and size > WSHARD_MAX_STREAM_LZ4_BYTES) or not is_decodable(size, chunk_bytes):
        how, chunk_bytes = PLAIN, 0
    return BlockPlan(part.block, size, lambda: journal.pieces(handle, number), compression=how, chunk_bytes=chunk_bytes)


def _target(source: Path) -> Path:
    if source.suffix != PARTIAL:
        raise BadInputError(f"{source} does not end in {PARTIAL}", hint="Say where to write: output=….")
    return source.with_suffix("")


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The journal for reading; it may still be growing."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise translate(error, path) from error
    try:
        yield handle
    finally:
        os.close(handle)
