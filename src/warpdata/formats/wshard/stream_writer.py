"""Recording of an episode step by step, so that a crash loses only steps that were not flushed.

Steps are checked, collected in buffers of fixed size, and appended to a journal beside the target. The end of the
episode assembles the file from the journal. Implements "Recording" of docs/specs/wshard.md.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from warpdata.errors import (
    AlreadyExistsError,
    BadInputError,
    CorruptError,
    LimitExceededError,
    SchemaMismatchError,
    WarpError,
)
from warpdata.formats.wshard.array_input import is_bf16_tensor, to_array
from warpdata.formats.wshard.block_type import DONE, REWARD, SERIES_DTYPES, TIMESTAMPS, TRUNCATED
from warpdata.formats.wshard.canonical_json import Json, JsonObject, encode_json
from warpdata.formats.wshard.codecs import parse_compression
from warpdata.formats.wshard.container import ALIGNMENTS
from warpdata.formats.wshard.dtypes import Array, DType, np
from warpdata.formats.wshard.journal import RecordKind, append_record, is_unstarted, read_journal
from warpdata.formats.wshard.metadata import ChannelSpec, parse_channel
from warpdata.formats.wshard.metadata_writer import make_episode_document
from warpdata.formats.wshard.model import Episode, Timebase
from warpdata.formats.wshard.recovery import PARTIAL, assemble, check_recordable, claim_journal
from warpdata.formats.wshard.source import PathLike
from warpdata.limits import MIB, WSHARD_MAX_RECORD_BYTES
from warpdata.primitives.atomic_file import sync_directory
from warpdata.primitives.lock_file import LockFile
from warpdata.primitives.paths import check_path
from warpdata.primitives.reprs import short_repr
from warpdata.storage import explain_os_error

__all__ = ["WShardStreamWriter"]

_FSYNC = ("flush", "end", "never")
_BUFFER_BYTES = 16 * MIB
_F32_MAX = 3.4028235677973366e38
_LANES = ("signal/", "action/", "omen/", "uncert/")


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
        self._specs, self._compression = _parse_channels(channels)
        self._save = {"alignment": alignment, "time_chunk_steps": time_chunk_steps, "seal": seal}
        self._buffers: tuple[_ChannelBuffer, ...] = ()
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
        journal = self._claim()
        self._buffers = tuple(_make_buffer(spec, rows) for spec in self._specs)
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
            arrays = [_check_value(buffer, values) for buffer in self._buffers]
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
            parts = [_bytes_of(view[:count]) for view in self._views]
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
        out: list[float | bool] = [_check_reward(reward), _check_flag("done", done)]
        out.append(_check_flag("truncated", truncated))
        if (timestamp_ns is None) == (TIMESTAMPS in self._series):
            raise SchemaMismatchError(f"timestamp_ns is {timestamp_ns!r}, which contradicts the timebase")
        return out if timestamp_ns is None else [*out, _check_timestamp(timestamp_ns)]


@dataclass(frozen=True, slots=True)
class _ChannelBuffer:
    """The buffered rows of one channel: `rows[n]` is the n-th step since the last flush."""

    spec: ChannelSpec
    dtypes: tuple[Any, ...]
    rows: Array


def _parse_channels(channels: Sequence[Mapping[str, Any]]) -> tuple[list[ChannelSpec], dict[str, Json]]:
    specs: list[ChannelSpec] = []
    compression: dict[str, Json] = {}
    given: object = channels
    if not isinstance(given, list | tuple):
        raise BadInputError(f"the channels are a {type(given).__name__}, not a list of mappings")
    for item in channels:
        if not isinstance(item, Mapping):
            raise BadInputError(f"the channel {item!r} is not a mapping with id, dtype and shape")
        rest = dict(item)
        codec, level = rest.pop("compression", None), rest.pop("level", None)
        if isinstance(rest.get("shape"), tuple):
            rest["shape"] = list(rest["shape"])
        try:
            spec = parse_channel(rest)
        except (CorruptError, NotImplementedError) as error:
            raise BadInputError(f"the channel {item!r} cannot be recorded: {error}") from error
        if not spec.block.startswith(_LANES) or spec.block in _LANES:
            raise BadInputError(f"the block {spec.block!r} is not in one of {', '.join(_LANES)}")
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
    if type(value) is np.ndarray:
        array = value
    else:
        array = to_array(value, f"channel {spec.id!r}", spec.dtype)
        if is_bf16_tensor(value) and spec.dtype is not DType.BF16:
            raise SchemaMismatchError(f"channel {spec.id!r} has the dtype bf16 instead of {spec.dtype}")
    if array.shape != spec.shape:
        raise SchemaMismatchError(f"channel {spec.id!r} has the shape {array.shape} instead of {spec.shape}")
    if array.dtype not in buffer.dtypes:
        raise SchemaMismatchError(f"channel {spec.id!r} has the dtype {array.dtype} instead of {spec.dtype}")
    return array.view(np.dtype("<u2")) if spec.dtype is DType.BF16 else array


def _bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def _check_reward(reward: Any) -> float:
    if isinstance(reward, bool) or not isinstance(reward, int | float | np.floating | np.integer):
        reward = _unwrap("the reward", reward)
        if not isinstance(reward, int | float) or isinstance(reward, bool):
            raise SchemaMismatchError(f"the reward {reward!r} is not a number")
    try:
        number = float(reward)
    except OverflowError:
        raise SchemaMismatchError("the reward is an integer that does not fit in an f32") from None
    if math.isfinite(number) and abs(number) > _F32_MAX:
        raise SchemaMismatchError(f"the reward {reward!r} does not fit in an f32")
    return number


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        value = _unwrap(name, value)
        if not isinstance(value, bool):
            raise SchemaMismatchError(f"{name} is {value!r}, not a boolean")
    return bool(value)


def _check_timestamp(value: Any) -> int:
    try:
        number = operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, bool):
        raise SchemaMismatchError(f"timestamp_ns is {value!r}, not an integer")
    if not -(2**63) <= number < 2**63:
        raise SchemaMismatchError("timestamp_ns does not fit in 64 bits")
    return number


def _unwrap(what: str, value: Any) -> Any:
    """Return the number in an array or tensor without axes."""
    if isinstance(value, str | bytes | bool | list | tuple) or value is None:
        raise SchemaMismatchError(f"{what} is {value!r}, not a single number")
    array = to_array(value, what)
    if array.shape:
        raise SchemaMismatchError(f"{what} has the shape {array.shape}, not a single number")
    return array.item()


def _sync_data(handle: int) -> None:
    """Force the bytes and the size of a file to the disk. macOS has no `fdatasync`."""
    getattr(os, "fdatasync", os.fsync)(handle)
