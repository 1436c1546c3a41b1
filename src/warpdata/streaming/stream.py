"""A stream of batches for training: one order for all ranks, and a state that resumes it.

Threads prepare batches ahead. They end with the loop, however it ends. The state is the position of the consumer:
batches that were prepared and not consumed are prepared again after a resume. Implements docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, UnsupportedError
from warpdata.limits import MEDIA_MEMORY_BYTES
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.parallel import IO_POOL, usable_cores
from warpdata.primitives.reprs import short_repr
from warpdata.storage import IOStats
from warpdata.streaming.collate import CollatedBatch, Columns, batch_of_arrays, batch_of_columns, batch_of_rows
from warpdata.streaming.estimate import EpochEstimate
from warpdata.streaming.media_memory import BatchDeferred, BatchMemory
from warpdata.streaming.mixture import MixedSource, Mixture, Stop
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.order import BatchSchedule, Span
from warpdata.streaming.shuffle_buffer import OwnedPositions
from warpdata.streaming.source import BatchReader, SampleLocation, SampleReader, SampleSource, VersionedSource
from warpdata.streaming.state import ConsumedSegment, StreamIdentity, StreamState, parse_consumed, parse_state
from warpdata.streaming.stats import BatchCounts, Clock, Telemetry

__all__ = ["Stream", "StreamContext", "max_batch_threads", "mix_streams"]

_MIN_BATCH_THREADS = 8

_MakeBatch: TypeAlias = Callable[[Sequence[Span], int, BatchMemory], CollatedBatch]
"""Makes a batch of the samples at some positions. The number counts the batches of this worker from 0."""

_HINT = "Begin a new epoch with a stream over the new versions."


@dataclass(frozen=True, slots=True)
class StreamContext:
    """Dependencies of a stream: a clock, the counters of its session, and the same stream at another version.

    `media_memory_bytes` bounds the media of a batch, and those of all prefetched batches of the process.
    """

    clock: Clock = field(repr=False)
    io_stats: Callable[[], IOStats] = field(default=IOStats, repr=False)
    at_version: Callable[[str], Stream] | None = field(default=None, repr=False)
    media_memory_bytes: int = MEDIA_MEMORY_BYTES


@check_arguments
class Stream:
    """Batches of samples. Iterate over `epoch(n)`, or over the stream itself to continue at its state."""

    def __init__(self, source: SampleSource, options: StreamOptions, context: StreamContext) -> None:
        self.source = source
        self.options = options
        self.context = context
        self.telemetry = Telemetry(context.clock, context.io_stats)
        self._rebased: tuple[int, VersionedSource] | None = None
        self._epoch = 0
        self._done = 0

    def __repr__(self) -> str:
        options = self.options
        shard = None if options.world_size == 1 else (options.rank, options.world_size)
        sizes = {"batch_size": options.batch_size, "shuffle": options.shuffle, "shard": shard}
        return short_repr("Stream", _title(self.source), **sizes, epoch=self._epoch, samples_done=self._done)

    @property
    def identity(self) -> StreamIdentity:
        """Everything that determines the order."""
        return self.source.identity

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rest of the current epoch. Then the next epoch is current."""
        return self._run(self._epoch, self._done)

    def epoch(self, number: int) -> Generator[Any, None, None]:
        """Iterate over an epoch: over its rest if it is the current one, else over all of it."""
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise BadInputError(f"epoch {number!r} is not a count")
        return self._run(number, self._done if number == self._epoch else 0)

    def skip_batches(self, count: int) -> Iterator[Any]:
        """Iterate over the stream without the next batches of this rank or worker. They are not read."""
        return self._run(self._epoch, self._done, count)

    def __len__(self) -> int:
        """Number of batches per rank in a full epoch."""
        return len(self.schedule(0))

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON: the same on every rank, valid for any number of ranks."""
        return self.state_at(self._epoch, self._done)

    def state_at(self, epoch: int, samples_done: int) -> dict[str, Any]:
        """Return the state after a number of samples of an epoch."""
        return StreamState.of(self.source_of(epoch).identity, epoch, samples_done).document()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at a state. `BadInputError` if it belongs to another version, filter or seed."""
        parsed = parse_state(state)
        continued = parse_consumed(parsed)
        rebased = None if continued is None else self._rebase_source(*continued)
        identity = self.identity if rebased is None or parsed.epoch != rebased[0] else rebased[1].identity
        parsed.check(identity)
        if parsed.samples_done > identity.sample_count:
            raise BadInputError(f"the token has {parsed.samples_done} samples done, of {identity.sample_count}")
        self._rebased, self._epoch, self._done = rebased, parsed.epoch, parsed.samples_done

    def seek(self, epoch: int, samples_done: int, consumed: Sequence[ConsumedSegment] = ()) -> None:
        """Set the state, for consumers that receive the batches from workers.

        With segments consumed from other versions, the epoch is what they left of it.
        """
        if consumed:
            self._rebased = self._rebase_source(epoch, consumed)
        self._epoch, self._done = epoch, samples_done

    def rebase(self, version: str) -> Stream:
        """Return the same stream over another version, at the state of this one.

        Rows that were consumed in this epoch do not come again, and added rows come. A row is identified by its
        shard and its position there, so rewritten rows count as added. Later epochs are those of the new version.
        `version` is what may follow the @ of an address.
        """
        stream = self._at_version(version)
        here, there = _versioned_source(self.source_of(self._epoch)), _versioned_source(stream.source)
        consumed = here.consumed
        if self._done:
            consumed = (*consumed, ConsumedSegment(here.version, here.shuffle, self._done))
        if len(consumed) == 1 and (consumed[0].version, consumed[0].shuffle) == (there.version, there.shuffle):
            stream.seek(self._epoch, consumed[0].samples_done)
        else:
            stream.seek(self._epoch, 0, consumed)
        return stream

    def locate(self, step: int, epoch: int | None = None) -> list[SampleLocation]:
        """Return the location of each sample in the global batch of a step: part of a mixture (else 0) and row."""
        epoch = self._epoch if epoch is None else epoch
        start, stop = self.schedule(0, epoch).global_span(step)
        return self.source_of(epoch).locate(start, stop, epoch)

    def find(self, row: int, *, part: int = 0, epoch: int | None = None) -> tuple[int, int]:
        """Return the step and the rank that read a row."""
        epoch = self._epoch if epoch is None else epoch
        return self.schedule(0, epoch).step_of(self.source_of(epoch).position_of((part, row), epoch))

    def explain(self) -> EpochEstimate:
        """Estimate what an epoch costs, before any of it is read."""
        concurrency, threads = IO_POOL.size, max_batch_threads()
        return EpochEstimate.of(self.source, self.options, concurrency=concurrency, threads=threads)

    def source_of(self, epoch: int) -> SampleSource:
        """Return the source of an epoch: that of the stream, or the rest of an epoch begun on another version."""
        return self._rebased[1] if self._rebased is not None and self._rebased[0] == epoch else self.source

    def schedule(self, begin: int, epoch: int | None = None) -> BatchSchedule:
        """Return the batches from a position on, of an epoch or of any full one."""
        options, source = self.options, self.source if epoch is None else self.source_of(epoch)
        count = source.identity.sample_count
        return BatchSchedule(count, options.batch_size, options.world_size, options.remainder, begin)

    def count_batch(self, step: int, schedule: BatchSchedule, counts: BatchCounts) -> None:
        """Count a batch in the telemetry, and write the progress line if the options name a file."""
        self.telemetry.count_batch(counts)
        if self.options.progress is not None:
            self.telemetry.write_line(self.options.progress, step + 1, len(schedule))

    def for_worker(self, worker: int, workers: int) -> Stream:
        """Return the batches that one of several workers of this rank makes, as a stream from the beginning."""
        options = replace(self.options.for_workers(), worker=worker, workers=workers)
        return Stream(self.source, options, self.context)

    def _rebase_source(self, epoch: int, consumed: Sequence[ConsumedSegment]) -> tuple[int, VersionedSource]:
        def source_at(version: str) -> VersionedSource:
            return _versioned_source(self._at_version(version).source)

        return epoch, _versioned_source(self.source).rebased(epoch, consumed, source_at)

    def _at_version(self, version: str) -> Stream:
        if self.context.at_version is None:
            raise UnsupportedError("this stream cannot continue with another version", hint=_HINT)
        return self.context.at_version(version)

    def _run(self, epoch: int, begin: int, skip: int = 0) -> Generator[Any, None, None]:
        schedule = self.schedule(begin, epoch)
        owned = self._owned(schedule)
        reader = self.source_of(epoch).open(epoch, owned, with_media=self.options.wants_media)
        self._epoch, self._done = epoch, begin
        make_batch, threads = self._batch_maker(reader)
        batches = self._prefetched(schedule, make_batch, IO_POOL.executor(threads), skip)
        try:
            for step, batch in batches:
                self._done = schedule.done_after(step)
                self.count_batch(step, schedule, BatchCounts(batch.size, batch.size_bytes, batch.substituted))
                yield batch.batch
                reader.advance(schedule.global_span(step)[0])
            self._epoch, self._done = epoch + 1, 0
        finally:
            batches.close()
            reader.close()

    def _owned(self, schedule: BatchSchedule) -> OwnedPositions:
        options = self.options
        return functools.partial(schedule.owned_positions, options.rank, options.worker, options.workers)

    def _batch_maker(self, reader: SampleReader | BatchReader) -> tuple[_MakeBatch, int]:
        """Return the function that makes batches, and the number of threads to call it from."""
        options = self.options
        if isinstance(reader, BatchReader):  # a slow check, so it is made once
            threads = reader.batch_threads if options.transform is None else _batch_threads(options)
            return functools.partial(_batch_of_arrays, reader, options), threads
        make_batch = _batch_of_rows if options.collate == "arrow" else _batch_of_samples
        return functools.partial(make_batch, reader, options), _batch_threads(options)

    def _prefetched(
        self, schedule: BatchSchedule, make_batch: _MakeBatch, executor: Executor, skip: int
    ) -> Generator[tuple[int, CollatedBatch], None, None]:
        """Yield batches in order, each with its step. Later batches are already in the making.

        Where memory does not suffice for them, fewer are prefetched from then on.
        """
        pending: deque[tuple[int, _PendingBatch]] = deque()
        # Without media to decode, other batches would only take time from the first one.
        ahead, most = self.options.prefetch if self.source.media_bytes else 0, self.options.prefetch
        try:
            for step in range(self.options.worker, len(schedule), self.options.workers)[skip:]:
                spans = list(schedule.spans(step, self.options.rank))
                batch = _PendingBatch(
                    functools.partial(make_batch, spans, step // self.options.workers),
                    BatchMemory(self.context.media_memory_bytes, is_ahead=ahead > 0),
                )
                batch.start(executor)
                pending.append((step, batch))
                if len(pending) > ahead:
                    first = pending[0][1]
                    yield self._next_batch(pending)
                    ahead = most = max(most - 1, 0) if first.is_deferred else most
            while pending:
                yield self._next_batch(pending)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
            for _, batch in pending:
                batch.memory.release()

    def _next_batch(self, pending: deque[tuple[int, _PendingBatch]]) -> tuple[int, CollatedBatch]:
        step, batch = pending.popleft()
        return step, self.telemetry.wait_for(batch.result, len(pending))


class _PendingBatch:
    """A batch in the making. If memory is short, it is made when the consumer waits for it."""

    def __init__(self, make: Callable[[BatchMemory], CollatedBatch], memory: BatchMemory) -> None:
        self.memory = memory
        self.is_deferred = False
        self._make = make

    def start(self, executor: Executor) -> None:
        self._future: Future[CollatedBatch | None] = executor.submit(self._made)

    def _made(self) -> CollatedBatch | None:
        try:
            return self._make(self.memory)
        except BatchDeferred:
            self.is_deferred = True
            self.memory.release()
            return None
        except BaseException:
            self.memory.release()
            raise

    def result(self) -> CollatedBatch:
        """Wait for the batch. Its memory belongs to the consumer now."""
        made = self._future.result()
        self.memory.release()
        return self._make(self.memory.for_consumer()) if made is None else made


def max_batch_threads() -> int:
    """Return the threads that make batches. They decode on all cores, and some wait for media."""
    return max(usable_cores(), _MIN_BATCH_THREADS)


def mix_streams(streams: Mapping[Stream, float], seed: int, stop: Stop) -> Stream:
    """Return a stream over a mixture of sources, with the options of the first stream."""
    if not all(isinstance(stream, Stream) for stream in streams):
        raise BadInputError("a mixture maps streams to weights, but has a key that is not a stream")
    sources = [stream.source for stream in streams]
    parts = tuple(source for source in sources if isinstance(source, VersionedSource))
    if len(parts) < len(sources):
        raise BadInputError("only streams of tables can be mixed, not mixtures or windows of episodes")
    if not parts:
        raise BadInputError("a mixture needs at least one stream")
    first = next(iter(streams))
    source = MixedSource(parts, Mixture.of(list(streams.values()), seed), stop)
    return Stream(source, first.options, replace(first.context, at_version=None))


def _batch_threads(options: StreamOptions) -> int:
    """Return the threads that make batches. One of several workers gets its share of the cores, and one that waits."""
    most = max_batch_threads()
    return most if options.workers == 1 else min(most, 1 + -(-usable_cores() // options.workers))


def _title(source: SampleSource) -> str:
    """Return a name of the samples, without a read."""
    if isinstance(source, MixedSource):
        return " + ".join(map(_title, source.parts))
    if isinstance(source, VersionedSource):
        return f"{source.dataset_id}@{source.version[:12]}"
    return str(getattr(source, "name", type(source).__name__))


def _batch_of_arrays(
    reader: BatchReader, options: StreamOptions, spans: Sequence[Span], turn: int, _memory: BatchMemory
) -> CollatedBatch:
    arrays, substituted = reader.arrays(spans, turn)
    return replace(batch_of_arrays(arrays, options), substituted=substituted)


def _batch_of_rows(
    reader: SampleReader, _options: StreamOptions, spans: Sequence[Span], _turn: int, _memory: BatchMemory
) -> CollatedBatch:
    import pyarrow as pa

    return batch_of_rows(pa.concat_tables([reader.rows(start, stop) for start, stop in spans]))


def _batch_of_samples(
    reader: SampleReader, options: StreamOptions, spans: Sequence[Span], _turn: int, memory: BatchMemory
) -> CollatedBatch:
    return batch_of_columns(Columns.concat([reader.columns(start, stop) for start, stop in spans]), options, memory)


def _versioned_source(source: SampleSource) -> VersionedSource:
    if not isinstance(source, VersionedSource):
        raise UnsupportedError("only a stream over one table can continue with another version", hint=_HINT)
    return source
