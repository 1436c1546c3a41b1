"""Record an episode step by step, so that a crash loses only what was not yet flushed.

Steps are checked, gathered in buffers of fixed size, and appended to a journal beside the target. When the
episode ends, the file is assembled from the journal and renamed into place. Implements "Recording" of
docs/specs/wshard.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.formats.wshard.atomic_file import sync_data, sync_folder
from warpdata.formats.wshard.block_type import DONE, REWARD, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.byte_source import PathLike, translate
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json
from warpdata.formats.wshard.container import ALIGNMENTS
from warpdata.formats.wshard.documents import episode_document
from warpdata.formats.wshard.dtypes import Array
from warpdata.formats.wshard.journal import RecordKind, append_record, read_journal
from warpdata.formats.wshard.libraries import np
from warpdata.formats.wshard.model import Episode, Timebase
from warpdata.formats.wshard.recovery import PARTIAL, assemble, opened, rehearse
from warpdata.formats.wshard.step_buffer import (
    Slot,
    buffer_rows,
    bytes_of,
    check_series,
    check_value,
    list_part,
    make_slot,
    parse_channels,
    series_specs,
)

__all__ = ["WShardStreamWriter"]

_FSYNC = ("flush", "end", "never")


class WShardStreamWriter:
    """Records one episode into `path`, through a journal at `path.partial`.

    `channels` are declarations as in `meta/channels`: `id`, `dtype`, `shape`, and where wanted
    `signal_block` (`action/…` for actions), `compression` and `level`. Steps are flushed every
    `flush_steps`, or sooner where the buffers would exceed 16 MiB. `fsync` says when bytes are forced to
    the disk: at every `flush`, at the `end`, or `never`; a crash of the process alone loses nothing that
    was flushed, whatever is chosen. Not safe for several threads.
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
        if fsync not in _FSYNC or alignment not in ALIGNMENTS or flush_steps < 1 or time_chunk_steps < 0:
            raise BadInputError(f"fsync={fsync!r}, alignment={alignment}, flush_steps={flush_steps} cannot work")
        self._path, self._id, self._fsync, self._flush_steps = Path(path), episode_id, fsync, flush_steps
        self._specs, self._compression = parse_channels(channels)
        self._save = {"alignment": alignment, "time_chunk_steps": time_chunk_steps, "seal": seal}
        self._slots: tuple[Slot, ...] = ()
        self._series: dict[str, Array] = {}
        self._views: list[Array] = []
        self._handle = -1
        self._is_ended = False
        self._waiting = self._flushed = self._sequence = self._good_bytes = 0

    @property
    def partial_path(self) -> Path:
        """The journal, while there is one."""
        return self._path.with_name(self._path.name + PARTIAL)

    @property
    def flushed_steps(self) -> int:
        """Steps that are in the journal: what a crash from now on cannot take."""
        return self._flushed

    @property
    def step_count(self) -> int:
        """Steps written so far, flushed or not."""
        return self._flushed + self._waiting

    def begin_episode(
        self,
        env_id: str = "",
        *,
        tick_hz: float | None = None,
        timebase: Timebase | None = None,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> None:
        """Create the journal. `AlreadyExistsError` where the file or a journal of it is there already."""
        if self._handle >= 0 or self._is_ended:
            raise BadInputError("the episode has begun already")
        base = timebase or Timebase("ticks", tick_hz)
        episode = Episode(self._id, 0, env_id, base, metadata=metadata or {}, attributes=attributes or {})
        parts = [*self._specs, *series_specs(base)]
        rows = buffer_rows(parts, self._flush_steps)
        document: dict[str, Json] = {
            "v": 1,
            "episode": episode_document(episode),
            "parts": [list_part(part) for part in parts],
            "save": {**self._save, "compression": self._compression},
            "buffer_steps": rows,
        }
        begin = encode_json(document)
        rehearse(begin)
        self._create()
        self._slots = tuple(make_slot(spec, rows) for spec in self._specs)
        self._series = {spec.block: np.zeros(rows, spec.dtype.numpy) for spec in parts[len(self._specs) :]}
        self._views = [slot.rows for slot in self._slots] + list(self._series.values())
        try:
            self._append(RecordKind.BEGIN, 0, [memoryview(begin)])
        except WarpError:
            # A journal without a beginning helps nobody, and would stand in the way of the next attempt.
            self.partial_path.unlink(missing_ok=True)
            self.close()
            raise

    def write_timestep(
        self,
        values: Mapping[str, Any],
        *,
        reward: float = 0.0,
        done: bool = False,
        truncated: bool = False,
        timestamp_ns: int | None = None,
    ) -> None:
        """Take one step, or refuse it whole: `SchemaMismatchError` for a channel missing, unknown or misshapen."""
        if self._handle < 0:
            raise BadInputError("there is no episode to write to", hint="Call begin_episode first.")
        row = self._waiting
        if len(values) != len(self._slots):
            self._refuse_names(values)
        arrays = [check_value(slot, values) for slot in self._slots]
        check_series(reward, done, truncated)
        self._check_timestamp(timestamp_ns)
        for slot, value in zip(self._slots, arrays, strict=True):
            slot.rows[row] = value
        self._series[REWARD][row] = reward
        self._series[DONE][row] = done
        self._series[TRUNCATED][row] = truncated
        if timestamp_ns is not None:
            self._series[TIMESTAMPS][row] = timestamp_ns
        self._waiting = row + 1
        if self._waiting == len(self._views[-1]):
            self.flush()

    def flush(self) -> None:
        """Append the waiting steps to the journal. Where that fails they still wait, and it may be tried again."""
        if self._waiting:
            count = self._waiting
            self._append(RecordKind.STEPS, count, [bytes_of(view[:count]) for view in self._views])
            self._flushed += count
            self._waiting = 0

    def end_episode(self) -> Path:
        """Flush, assemble the file, rename it into place, remove the journal. Returns the file's path."""
        if self._handle < 0:
            raise BadInputError("there is no episode to end")
        self.flush()
        self._append(RecordKind.END, 0, [])
        if self._fsync == "end":
            sync_data(self._handle)
        with opened(self.partial_path) as handle:
            journal = read_journal(handle)
            if not journal.is_complete or journal.step_count != self._flushed:
                raise CorruptError(f"{self.partial_path} was changed by somebody else: {journal.problem}")
            assemble(journal, handle, self._path, is_durable=self._fsync != "never")
        self._is_ended = True
        self.close()
        self.partial_path.unlink(missing_ok=True)
        return self._path

    def close(self) -> None:
        """Stop recording. What was flushed stays in the journal, for `recover`."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._is_ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """An episode that was not ended is flushed and left as a journal: nothing that was written is thrown away."""
        try:
            if self._handle >= 0 and not self._is_ended:
                self.flush()
        finally:
            self.close()

    def _create(self) -> None:
        if self._path.exists():
            raise AlreadyExistsError(f"{self._path} exists already")
        try:
            self._handle = os.open(self.partial_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            if self._fsync == "flush":
                sync_folder(self._path.parent)
        except FileExistsError as error:
            hint = "Call recover on it, or remove it."
            raise AlreadyExistsError(f"{self.partial_path} is left from an earlier recording", hint=hint) from error
        except OSError as error:
            raise translate(error, self.partial_path) from error

    def _append(self, kind: RecordKind, count: int, parts: list[memoryview]) -> None:
        try:
            size = append_record(self._handle, kind, self._sequence, (self._flushed, count), parts)
            if self._fsync == "flush":
                sync_data(self._handle)
        except OSError as error:
            # Half a record must not stand between this one and the next attempt.
            os.ftruncate(self._handle, self._good_bytes)
            raise translate(error, self.partial_path) from error
        self._good_bytes += size
        self._sequence += 1

    def _refuse_names(self, values: Mapping[str, Any]) -> None:
        names = {slot.spec.id for slot in self._slots}
        odd = ", ".join(sorted(map(str, names ^ set(values))))
        raise SchemaMismatchError(f"the step has these channels too many or too few: {odd}")

    def _check_timestamp(self, timestamp_ns: int | None) -> None:
        if (timestamp_ns is None) == (TIMESTAMPS in self._series):
            raise SchemaMismatchError(f"timestamp_ns is {timestamp_ns!r}, and the timebase says otherwise")
        if timestamp_ns is not None and not -(2**63) <= timestamp_ns < 2**63:
            raise SchemaMismatchError(f"the timestamp {timestamp_ns} does not fit in 64 bits")
