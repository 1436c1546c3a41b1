"""Recording of an episode step by step, so that a crash loses only steps that were not flushed.

Steps are checked, collected in buffers of fixed size, and appended to a journal beside the target. The end of the
episode assembles the file from the journal. Implements "Recording" of docs/specs/wshard.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.formats.wshard.block_type import TIMESTAMPS
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json
from warpdata.formats.wshard.container import ALIGNMENTS
from warpdata.formats.wshard.dtypes import Array, np
from warpdata.formats.wshard.journal import RecordKind, append_record, is_unstarted, read_journal
from warpdata.formats.wshard.metadata_writer import make_episode_document
from warpdata.formats.wshard.model import Episode, Timebase
from warpdata.formats.wshard.recovery import PARTIAL, assemble, check_recordable, claim_journal
from warpdata.formats.wshard.source import PathLike
from warpdata.formats.wshard.step_values import (
    ChannelBuffer,
    buffer_rows,
    bytes_of,
    check_flag,
    check_reward,
    check_timestamp,
    check_value,
    make_buffer,
    parse_channels,
    part_document,
    series_specs,
)
from warpdata.primitives.atomic_file import sync_directory
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.paths import check_path
from warpdata.primitives.reprs import short_repr
from warpdata.storage import explain_os_error

__all__ = ["WShardStreamWriter"]

_FSYNC = ("flush", "end", "never")


class _Position(NamedTuple):
    """The end of the journal. One assignment replaces all three, so that an interrupt cannot separate them."""

    size_bytes: int = 0
    sequence: int = 0
    steps: int = 0


class WShardStreamWriter:
    """Records one episode into `path`, through a journal at `path.partial`.

    `channels` are declarations like those of `meta/channels`: `id`, `dtype`, `shape`, and optionally `signal_block`
    (`action/…` for actions, `omen/…` and `uncert/…` for predictions), `compression` and `level`. Steps are flushed
    every `flush_steps`, or earlier if the buffers would exceed 16 MiB. `fsync` forces bytes to the disk at every
    `flush`, at the `end`, or `never`. A crash of the process alone loses no flushed step with any of them. The writer
    owns the journal until it ends or its process dies; a forked child has no part in it. Not safe for several
    threads.
    """

    def __init__(
        self,
        path: PathLike,
        episode_id: str,
        channels: Sequence[Mapping[str, Any]],
        *,
        flush_steps: int = 64,
        fsync: str = "flush",
        alignment: int = 64,
        time_chunk_steps: int = 0,
        seal: bool = False,
    ) -> None:
        is_counted = type(flush_steps) is int is type(time_chunk_steps) and flush_steps > 0 <= time_chunk_steps
        if fsync not in _FSYNC or alignment not in ALIGNMENTS or not is_counted:
            raise BadInputError(
                f"fsync={fsync!r}, alignment={alignment}, flush_steps={flush_steps} or "
                f"time_chunk_steps={time_chunk_steps} is not valid"
            )
        self._path, self._id, self._fsync, self._flush_steps = check_path(path), episode_id, fsync, flush_steps
        self._specs, self._compression = parse_channels(channels)
        self._save = {"alignment": alignment, "time_chunk_steps": time_chunk_steps, "seal": seal}
        self._buffers: tuple[ChannelBuffer, ...] = ()
        self._series: dict[str, Array] = {}
        self._views: list[Array] = []
        self._journal: LockFile | None = None
        self._is_begun = self._has_end = False
        self._position = _Position()
        self._steps = 0

    def __repr__(self) -> str:
        return short_repr("WShardStreamWriter", str(self._path), self._id, steps=self.step_count)

    @property
    def partial_path(self) -> Path:
        """The path of the journal."""
        return self._path.with_name(self._path.name + PARTIAL)

    @property
    def flushed_steps(self) -> int:
        """The number of steps in the journal, which survive a crash."""
        return self._position.steps

    @property
    def step_count(self) -> int:
        """The number of steps written so far, flushed or not."""
        return self._steps

    def begin_episode(
        self,
        env_id: str = "",
        *,
        tick_hz: float | None = None,
        timebase: Timebase | None = None,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> None:
        """Create the journal, and own it.

        `AlreadyExistsError` if the file or a journal with steps exists, `ConflictError` if another writer owns it.
        """
        if self._is_begun:
            raise BadInputError("the episode has already begun")
        base = timebase or Timebase("ticks", tick_hz)
        episode = Episode(self._id, 0, env_id, base, metadata=metadata or {}, attributes=attributes or {})
        parts = [*self._specs, *series_specs(base)]
        rows = buffer_rows(parts, self._flush_steps)
        document: dict[str, Json] = {
            "v": 1,
            "episode": make_episode_document(episode),
            "parts": [part_document(part) for part in parts],
            "save": {**self._save, "compression": self._compression},
            "buffer_steps": rows,
        }
        begin = encode_json(document)
        check_recordable(begin)
        journal = self._claim()
        self._buffers = tuple(make_buffer(spec, rows) for spec in self._specs)
        self._series = {spec.block: np.zeros(rows, spec.dtype.numpy) for spec in parts[len(self._specs) :]}
        self._views = [buffer.rows for buffer in self._buffers] + list(self._series.values())
        try:
            self._append(journal, RecordKind.BEGIN, 0, [memoryview(begin)])
        except BaseException:
            # A journal without its first record is useless.
            self.partial_path.unlink(missing_ok=True)
            journal.close()
            raise
        self._journal, self._is_begun = journal, True

    def write_timestep(
        self,
        values: Mapping[str, Any],
        *,
        reward: float = 0.0,
        done: bool = False,
        truncated: bool = False,
        timestamp_ns: int | None = None,
    ) -> None:
        """Add one step. `SchemaMismatchError`, and nothing is added, if a value is missing, unknown or does not fit.

        Values may be arrays or torch tensors of the channel's dtype and shape. Lists, tuples and numbers are
        converted to the dtype if every value fits.
        """
        self._own()
        if self._has_end:
            raise BadInputError("the episode has ended", hint="Call end_episode again if it failed.")
        # A failed flush may have left the buffers full.
        if self._buffered == len(self._views[-1]):
            self.flush()
        row = self._buffered
        try:
            if type(values) is not dict and not isinstance(values, Mapping):
                raise SchemaMismatchError(f"the values are a {type(values).__name__}, not a mapping from channel ids")
            if len(values) != len(self._buffers):
                self._raise_name_mismatch(values)
            arrays = [check_value(buffer, values) for buffer in self._buffers]
            series = self._check_series(reward, done, truncated, timestamp_ns)
        except BadInputError as error:
            raise SchemaMismatchError(f"step {self._steps}: {error.message}", hint=error.hint) from error
        for buffer, value in zip(self._buffers, arrays, strict=True):
            buffer.rows[row] = value
        for rows, number in zip(self._series.values(), series, strict=True):
            rows[row] = number
        self._steps += 1
        if self._buffered == len(self._views[-1]):
            self.flush()

    def flush(self) -> None:
        """Append the buffered steps to the journal. After a failure they stay buffered, for another attempt."""
        count = self._buffered
        if count:
            parts = [bytes_of(view[:count]) for view in self._views]
            self._append(self._own(), RecordKind.STEPS, count, parts)

    def end_episode(self) -> Path:
        """Flush, assemble the file, rename it into place, remove the journal. Return the path of the file.

        After a failure, such as a full disk, it can be called again.
        """
        owned = self._own()
        if not self._has_end:
            self.flush()
            self._append(owned, RecordKind.END, 0, [])
            self._has_end = True
        try:
            if self._fsync == "end":
                _sync_data(owned.fd)
            journal = read_journal(owned.fd)
            if not journal.is_complete or journal.step_count != self._steps or not owned.is_at(self.partial_path):
                raise CorruptError(f"another process changed {self.partial_path}: {journal.problem}")
            assemble(journal, owned.fd, self._path, is_durable=self._fsync != "never")
            # The journal is removed by its owner, so that no other recording can take its name before.
            self.partial_path.unlink(missing_ok=True)
        except OSError as error:
            if isinstance(error, WarpError):
                raise
            raise explain_os_error(error, self.partial_path) from error
        self.close()
        return self._path

    def close(self) -> None:
        """Stop recording, and give up the journal. Flushed steps stay in it, for `recover`."""
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Flush an episode that was not ended, and leave its journal for `recover`."""
        try:
            if self._journal is not None and self._journal.fd >= 0:
                self.flush()
        finally:
            self.close()

    @property
    def _buffered(self) -> int:
        return self._steps - self._position.steps

    def _own(self) -> LockFile:
        """Return the journal. A forked child does not have it."""
        if self._journal is None or self._journal.fd < 0:
            raise BadInputError("no episode is being recorded", hint="Call begin_episode first.")
        return self._journal

    def _claim(self) -> LockFile:
        """Create the journal, or take over one that a recording left before its first step."""
        journal = claim_journal(self.partial_path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            if not is_unstarted(journal.fd):
                hint = "Call recover on it, or remove it."
                raise AlreadyExistsError(f"{self.partial_path} is left from an earlier recording", hint=hint)
            # Checked with the journal in hand: the last owner renames its file before it gives up the journal.
            if self._path.exists():
                self.partial_path.unlink(missing_ok=True)
                raise AlreadyExistsError(f"{self._path} already exists")
            os.ftruncate(journal.fd, 0)
            if self._fsync == "flush":
                sync_directory(self._path.parent)
        except BaseException as error:
            journal.close()
            if isinstance(error, OSError) and not isinstance(error, WarpError):
                raise explain_os_error(error, self.partial_path) from error
            raise
        return journal

    def _append(self, journal: LockFile, kind: RecordKind, count: int, parts: list[memoryview]) -> None:
        before = self._position
        try:
            # A failure or an interrupt may have left a record that was not counted.
            if journal.size_bytes() != before.size_bytes:
                os.ftruncate(journal.fd, before.size_bytes)
            size = append_record(journal.fd, kind, before.sequence, (before.steps, count), parts)
            if self._fsync == "flush":
                _sync_data(journal.fd)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(journal.fd, before.size_bytes)
            raise explain_os_error(error, self.partial_path) from error
        self._position = _Position(before.size_bytes + size, before.sequence + 1, before.steps + count)

    def _raise_name_mismatch(self, values: Mapping[str, Any]) -> None:
        names = {buffer.spec.id for buffer in self._buffers}
        differing = ", ".join(sorted(map(str, names ^ set(values))))
        raise SchemaMismatchError(f"the step has missing or unknown channels: {differing}")

    def _check_series(self, reward: Any, done: Any, truncated: Any, timestamp_ns: Any) -> list[float | bool]:
        """Return the checked values of the series, in their order."""
        out: list[float | bool] = [check_reward(reward), check_flag("done", done)]
        out.append(check_flag("truncated", truncated))
        if (timestamp_ns is None) == (TIMESTAMPS in self._series):
            raise SchemaMismatchError(f"timestamp_ns is {timestamp_ns!r}, which contradicts the timebase")
        return out if timestamp_ns is None else [*out, check_timestamp(timestamp_ns)]


def _sync_data(handle: int) -> None:
    """Force the bytes and the size of a file to the disk. macOS has no `fdatasync`."""
    getattr(os, "fdatasync", os.fsync)(handle)
