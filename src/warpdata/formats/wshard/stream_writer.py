"""Recording of an episode step by step, so that a crash loses only steps that were not flushed.

Steps are checked, collected in buffers of fixed size, and appended to a journal beside the target. The end of the
episode assembles the file from the journal. Implements "Recording" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    LimitExceededError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.formats.wshard.block_type import DONE, REWARD, SERIES_DTYPES, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json
from warpdata.formats.wshard.codecs import parse_compression
from warpdata.formats.wshard.container import ALIGNMENTS
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.formats.wshard.journal import RecordKind, append_record, read_journal
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.formats.wshard.metadata_writer import make_episode_document
from warpdata.formats.wshard.model import Episode, Timebase
from warpdata.formats.wshard.recovery import PARTIAL, assemble, check_recordable, open_journal
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MIB, WSHARD_MAX_RECORD_BYTES
from warpdata.primitives.atomic_file import sync_directory
from warpdata.primitives.reprs import short_repr
from warpdata.storage import explain_os_error

__all__ = ["WShardStreamWriter"]

_FSYNC = ("flush", "end", "never")
_BUFFER_BYTES = 16 * MIB
_F32_MAX = 3.4028235677973366e38


class WShardStreamWriter:
    """Records one episode into `path`, through a journal at `path.partial`.

    `channels` are declarations like those of `meta/channels`: `id`, `dtype`, `shape`, and optionally `signal_block`
    (`action/…` for actions), `compression` and `level`. Steps are flushed every `flush_steps`, or earlier if the
    buffers would exceed 16 MiB. `fsync` forces bytes to the disk at every `flush`, at the `end`, or `never`. A crash
    of the process alone loses no flushed step with any of them. Not safe for several threads.
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
            raise BadInputError(
                f"fsync={fsync!r}, alignment={alignment}, flush_steps={flush_steps} or "
                f"time_chunk_steps={time_chunk_steps} is not valid"
            )
        self._path, self._id, self._fsync, self._flush_steps = Path(path), episode_id, fsync, flush_steps
        self._specs, self._compression = _parse_channels(channels)
        self._save = {"alignment": alignment, "time_chunk_steps": time_chunk_steps, "seal": seal}
        self._buffers: tuple[_ChannelBuffer, ...] = ()
        self._series: dict[str, Array] = {}
        self._views: list[Array] = []
        self._handle = -1
        self._is_ended = False
        self._buffered = self._flushed = self._sequence = self._good_bytes = 0

    def __repr__(self) -> str:
        return short_repr("WShardStreamWriter", str(self._path), self._id, steps=self.step_count)

    @property
    def partial_path(self) -> Path:
        """The path of the journal."""
        return self._path.with_name(self._path.name + PARTIAL)

    @property
    def flushed_steps(self) -> int:
        """The number of steps in the journal, which survive a crash."""
        return self._flushed

    @property
    def step_count(self) -> int:
        """The number of steps written so far, flushed or not."""
        return self._flushed + self._buffered

    def begin_episode(
        self,
        env_id: str = "",
        *,
        tick_hz: float | None = None,
        timebase: Timebase | None = None,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
    ) -> None:
        """Create the journal. `AlreadyExistsError` if the file or its journal exists."""
        if self._handle >= 0 or self._is_ended:
            raise BadInputError("the episode has already begun")
        base = timebase or Timebase("ticks", tick_hz)
        episode = Episode(self._id, 0, env_id, base, metadata=metadata or {}, attributes=attributes or {})
        parts = [*self._specs, *_series_specs(base)]
        rows = _buffer_rows(parts, self._flush_steps)
        document: dict[str, Json] = {
            "v": 1,
            "episode": make_episode_document(episode),
            "parts": [_part_document(part) for part in parts],
            "save": {**self._save, "compression": self._compression},
            "buffer_steps": rows,
        }
        begin = encode_json(document)
        check_recordable(begin)
        self._create()
        self._buffers = tuple(_make_buffer(spec, rows) for spec in self._specs)
        self._series = {spec.block: np.zeros(rows, spec.dtype.numpy) for spec in parts[len(self._specs) :]}
        self._views = [buffer.rows for buffer in self._buffers] + list(self._series.values())
        try:
            self._append(RecordKind.BEGIN, 0, [memoryview(begin)])
        except WarpError:
            # A journal without its first record is useless, and would block the next attempt.
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
        """Add one step. `SchemaMismatchError`, and nothing is added, if a channel is missing, unknown or misshapen."""
        if self._handle < 0:
            raise BadInputError("no episode is being recorded", hint="Call begin_episode first.")
        row = self._buffered
        if len(values) != len(self._buffers):
            self._raise_name_mismatch(values)
        arrays = [_check_value(buffer, values) for buffer in self._buffers]
        _check_series(reward, done, truncated)
        self._check_timestamp(timestamp_ns)
        for buffer, value in zip(self._buffers, arrays, strict=True):
            buffer.rows[row] = value
        self._series[REWARD][row] = reward
        self._series[DONE][row] = done
        self._series[TRUNCATED][row] = truncated
        if timestamp_ns is not None:
            self._series[TIMESTAMPS][row] = timestamp_ns
        self._buffered = row + 1
        if self._buffered == len(self._views[-1]):
            self.flush()

    def flush(self) -> None:
        """Append the buffered steps to the journal. After a failure they stay buffered, for another attempt."""
        if self._buffered:
            count = self._buffered
            self._append(RecordKind.STEPS, count, [_bytes_of(view[:count]) for view in self._views])
            self._flushed += count
            self._buffered = 0

    def end_episode(self) -> Path:
        """Flush, assemble the file, rename it into place, remove the journal. Return the path of the file."""
        if self._handle < 0:
            raise BadInputError("no episode is being recorded")
        self.flush()
        self._append(RecordKind.END, 0, [])
        if self._fsync == "end":
            _sync_data(self._handle)
        with open_journal(self.partial_path) as handle:
            journal = read_journal(handle)
            if not journal.is_complete or journal.step_count != self._flushed:
                raise CorruptError(f"another process changed {self.partial_path}: {journal.problem}")
            assemble(journal, handle, self._path, is_durable=self._fsync != "never")
        self._is_ended = True
        self.close()
        self.partial_path.unlink(missing_ok=True)
        return self._path

    def close(self) -> None:
        """Stop recording. Flushed steps stay in the journal, for `recover`."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            self._is_ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Flush an episode that was not ended, and leave its journal for `recover`."""
        try:
            if self._handle >= 0 and not self._is_ended:
                self.flush()
        finally:
            self.close()

    def _create(self) -> None:
        if self._path.exists():
            raise AlreadyExistsError(f"{self._path} already exists")
        try:
            self._handle = os.open(self.partial_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            if self._fsync == "flush":
                sync_directory(self._path.parent)
        except FileExistsError as error:
            hint = "Call recover on it, or remove it."
            raise AlreadyExistsError(f"{self.partial_path} is left from an earlier recording", hint=hint) from error
        except OSError as error:
            raise explain_os_error(error, self.partial_path) from error

    def _append(self, kind: RecordKind, count: int, parts: list[memoryview]) -> None:
        try:
            size = append_record(self._handle, kind, self._sequence, (self._flushed, count), parts)
            if self._fsync == "flush":
                _sync_data(self._handle)
        except OSError as error:
            # An incomplete record would make the next one unreadable.
            os.ftruncate(self._handle, self._good_bytes)
            raise explain_os_error(error, self.partial_path) from error
        self._good_bytes += size
        self._sequence += 1

    def _raise_name_mismatch(self, values: Mapping[str, Any]) -> None:
        names = {buffer.spec.id for buffer in self._buffers}
        differing = ", ".join(sorted(map(str, names ^ set(values))))
        raise SchemaMismatchError(f"the step has missing or unknown channels: {differing}")

    def _check_timestamp(self, timestamp_ns: int | None) -> None:
        if (timestamp_ns is None) == (TIMESTAMPS in self._series):
            raise SchemaMismatchError(f"timestamp_ns is {timestamp_ns!r}, which contradicts the timebase")
        if timestamp_ns is not None and not -(2**63) <= timestamp_ns < 2**63:
            raise SchemaMismatchError(f"the timestamp {timestamp_ns} does not fit in 64 bits")


@dataclass(frozen=True, slots=True)
class _ChannelBuffer:
    """The buffered rows of one channel: `rows[n]` is the n-th step since the last flush."""

    spec: ChannelSpec
    dtypes: tuple[Any, ...]
    rows: Array


def _parse_channels(channels: Sequence[Mapping[str, Any]]) -> tuple[list[ChannelSpec], dict[str, Json]]:
    specs: list[ChannelSpec] = []
    compression: dict[str, Json] = {}
    for item in channels:
        rest = dict(item)
        codec, level = rest.pop("compression", None), rest.pop("level", None)
        if "shape" in rest:
            rest["shape"] = list(rest["shape"])
        try:
            spec = parse_channel(rest)
        except (CorruptError, NotImplementedError) as error:
            raise BadInputError(f"the channel {item!r} cannot be recorded: {error}") from error
        if not spec.block.startswith(("signal/", "action/")):
            raise BadInputError(f"the block {spec.block!r} is neither in signal/ nor in action/")
        if codec is not None:
            parsed = parse_compression((codec, level) if level is not None else codec)
            compression[spec.block] = [parsed.codec.name.lower(), parsed.level]
        specs.append(spec)
    if len({spec.id for spec in specs}) != len(specs) or len({spec.block for spec in specs}) != len(specs):
        raise BadInputError("two channels have the same id or block")
    return specs, compression


def _series_specs(timebase: Timebase) -> list[ChannelSpec]:
    names = [REWARD, DONE, TRUNCATED, *([TIMESTAMPS] if timebase.type == "timestamps_ns" else [])]
    return [ChannelSpec(name, SERIES_DTYPES[name], (), name) for name in names]


def _buffer_rows(parts: Sequence[ChannelSpec], flush_steps: int) -> int:
    """Return the number of steps to buffer: `flush_steps`, or fewer if they would not fit."""
    step_bytes = sum(part.step_bytes for part in parts)
    if step_bytes > WSHARD_MAX_RECORD_BYTES:
        raise LimitExceededError(f"one step takes {step_bytes} bytes; the most is {WSHARD_MAX_RECORD_BYTES}")
    return max(1, min(flush_steps, _BUFFER_BYTES // step_bytes))


def _part_document(spec: ChannelSpec) -> dict[str, Json]:
    own: dict[str, Json] = {"id": spec.id, "dtype": str(spec.dtype), "shape": spec.shape, "signal_block": spec.block}
    return {**spec.attributes, **own}


def _make_buffer(spec: ChannelSpec, rows: int) -> _ChannelBuffer:
    dtype = spec.dtype.numpy
    # bf16 values may also be passed as uint16 with the same bits.
    accepted = (dtype, np.dtype("<u2")) if spec.dtype is DType.BF16 else (dtype,)
    stored = np.dtype("<u2") if spec.dtype is DType.BF16 else dtype
    return _ChannelBuffer(spec, accepted, np.zeros((rows, *spec.shape), stored))


def _check_value(buffer: _ChannelBuffer, values: Mapping[str, Any]) -> Array:
    spec = buffer.spec
    try:
        value = values[spec.id]
    except KeyError:
        raise SchemaMismatchError(f"the step lacks the channel {spec.id!r}") from None
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.shape != spec.shape:
        raise SchemaMismatchError(f"channel {spec.id!r} has the shape {array.shape} instead of {spec.shape}")
    if array.dtype not in buffer.dtypes:
        raise SchemaMismatchError(f"channel {spec.id!r} has the dtype {array.dtype} instead of {spec.dtype}")
    return array.view(np.dtype("<u2")) if spec.dtype is DType.BF16 else array


def _bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def _check_series(reward: float, done: bool, truncated: bool) -> None:
    if not isinstance(reward, int | float | np.floating | np.integer) or isinstance(reward, bool):
        raise SchemaMismatchError(f"the reward {reward!r} is not a number")
    if math.isfinite(reward) and abs(reward) > _F32_MAX:
        raise SchemaMismatchError(f"the reward {reward!r} does not fit in an f32")
    for name, value in (("done", done), ("truncated", truncated)):
        if not isinstance(value, bool | np.bool_):
            raise SchemaMismatchError(f"{name} is {value!r}, not a boolean")


def _sync_data(handle: int) -> None:
    """Force the bytes and the size of a file to the disk. macOS has no `fdatasync`."""
    getattr(os, "fdatasync", os.fsync)(handle)
