"""A stream of batches for training: one order for everybody, and a place in it that can be written down.

Batches are prepared ahead by threads that end with the loop, however it ends. Where the stream stands is
where its consumer stands: what was prepared and not handed out is prepared again after a resume.
Implements docs/specs/streaming.md.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from warpdata.errors import BadInputError, UnsupportedError
from warpdata.limits import STREAM_THREADS
from warpdata.streaming.batching import Steps
from warpdata.streaming.collate import Made, hand_out_arrays, hand_out_rows, make_batch
from warpdata.streaming.columns import Columns
from warpdata.streaming.explain import Explanation
from warpdata.streaming.mixed import MixedPlan
from warpdata.streaming.mixture import STOPS, Mixture, Stop
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.rebase import RestPlan, Segment, parse_rest, rest_of
from warpdata.streaming.shuffle_buffer import Mine
from warpdata.streaming.sources import ArrayFeed, Feed, OnSelection, Place, Plan, TablePlan
from warpdata.streaming.state import Identity, Token, parse_token
from warpdata.streaming.telemetry import Clock, Telemetry, Traffic

__all__ = ["AtVersion", "Outside", "Stream", "mix_streams"]

AtVersion: TypeAlias = "Callable[[str], Stream]"
"""Opens the same stream over another version."""

_Spans: TypeAlias = Sequence[tuple[int, int]]
_Make: TypeAlias = Callable[[_Spans, int], Made]
"""Makes a batch of the samples at some places; the number counts the batches of this worker, from 0."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What a stream is handed that only the root has."""

    clock: Clock
    traffic: Callable[[], Traffic] = Traffic
    at_version: AtVersion | None = None
    on_selection: OnSelection | None = None


_REBASE_PARTS = "Begin a new epoch of a mixture of the new versions."


class Stream:
    """Iterate over `epoch(n)`, or over the stream itself to go on where a token left off."""

    def __init__(self, plan: Plan, options: StreamOptions, outside: Outside) -> None:
        self.plan = plan
        self._options = options
        self.outside = outside
        self._rest: RestPlan | None = None
        self._epoch = 0
        self._done = 0
        self.telemetry = Telemetry(outside.clock, outside.traffic)

    @property
    def identity(self) -> Identity:
        """All that the order depends on."""
        return self.plan.identity

    def plan_of(self, epoch: int) -> Plan:
        """The plan of an epoch: the stream's own, but for one that was begun on another version."""
        return self._rest if self._rest is not None and self._rest.epoch == epoch else self.plan

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch the stream is in; at its end, the next one begins."""
        return self._run(self._epoch, self._done)

    def epoch(self, number: int) -> Generator[Any, None, None]:
        """The batches of an epoch: what is left of it if the stream stands within it, else all of it."""
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise BadInputError(f"epoch {number!r} is not a count")
        return self._run(number, self._done if number == self._epoch else 0)

    def __len__(self) -> int:
        """How many batches every rank gets from a whole epoch."""
        return len(self.steps_from(0))

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, as JSON: the same on every rank, and good for any number of ranks."""
        return self.token_at(self._epoch, self._done)

    def token_at(self, epoch: int, samples_done: int) -> dict[str, Any]:
        """What `state_dict` is when so many samples of an epoch are done."""
        return Token.of(self.plan_of(epoch).identity, epoch, samples_done).document()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. `TokenMismatchError` if the token is of another version, filter or seed."""
        token = parse_token(state)
        continued = parse_rest(token.plan)
        rest = None if continued is None else self._rest_after(*continued)
        identity = self.identity if rest is None or token.epoch != rest.epoch else rest.identity
        token.check(identity)
        if token.samples_done > identity.sample_count:
            raise BadInputError(f"the token says {token.samples_done} of {identity.sample_count} samples are done")
        self._rest, self._epoch, self._done = rest, token.epoch, token.samples_done

    def rebase(self, version: str) -> Stream:
        """The same stream over another version, which goes on where this one stands.

        What was taken in this epoch does not come again, and what was added comes. Rows are known by their
        place in their shard: rows that were written anew count as added. Epochs after this one are those of the
        new version. `version` is whatever may stand behind the @ of a name.
        """
        stream = self._elsewhere(version)
        here, there = _of_table(self.plan_of(self._epoch)), _of_table(stream.plan)
        after = here.after if isinstance(here, RestPlan) else ()
        if self._done:
            after = (*after, Segment(here.version, here.shuffle, self._done))
        if len(after) == 1 and (after[0].version, after[0].shuffle) == (there.version, there.shuffle):
            stream.stand_at(self._epoch, after[0].samples_done)
        else:
            stream.stand_after(self._epoch, after)
        return stream

    def locate(self, step: int, epoch: int | None = None) -> list[Place]:
        """The global batch of a step: for each sample its part of a mixture (else 0) and its row in the table."""
        epoch = self._epoch if epoch is None else epoch
        start, stop = self.steps_from(0, epoch).global_span(step)
        return self.plan_of(epoch).locate(start, stop, epoch)

    def find(self, row: int, *, part: int = 0, epoch: int | None = None) -> tuple[int, int]:
        """At which step of the epoch, and by which rank, a row is read."""
        epoch = self._epoch if epoch is None else epoch
        return self.steps_from(0, epoch).step_of(self.plan_of(epoch).place_of((part, row), epoch))

    def explain(self) -> Explanation:
        """What an epoch takes, before any of it is read."""
        return Explanation.of(self.plan, self._options)

    def show(self, step: int, steps: int) -> None:
        """Write the live line, if one was asked for."""
        if self._options.progress is not None:
            self.telemetry.show(self._options.progress, step + 1, steps)

    def stand_at(self, epoch: int, samples_done: int) -> None:
        """For those who hand out the stream's batches themselves, such as a loader with workers."""
        self._epoch, self._done = epoch, samples_done

    def stand_after(self, epoch: int, after: Sequence[Segment]) -> None:
        """At the beginning of what these segments left of an epoch."""
        self._rest = self._rest_after(epoch, after) if after else None
        self.stand_at(epoch, 0)

    def steps_from(self, begin: int, epoch: int | None = None) -> Steps:
        """The steps of what is left of an epoch, or of one like any other."""
        options, plan = self._options, self.plan if epoch is None else self.plan_of(epoch)
        return Steps(plan.identity.sample_count, options.batch_size, options.world_size, options.remainder, begin)

    def _rest_after(self, epoch: int, after: Sequence[Segment]) -> RestPlan:
        return rest_of(_of_table(self.plan), epoch, after, lambda version: _of_table(self._elsewhere(version).plan))

    def _elsewhere(self, version: str) -> Stream:
        if self.outside.at_version is None:
            raise UnsupportedError("this stream can not go on with another version", hint=_REBASE_PARTS)
        return self.outside.at_version(version)

    def after(self, batches: int) -> Iterator[Any]:
        """As iterating over the stream, without this rank's, or this worker's, next batches."""
        return self._run(self._epoch, self._done, batches)

    def _run(self, epoch: int, begin: int, skip: int = 0) -> Generator[Any, None, None]:
        steps = self.steps_from(begin, epoch)
        feed = self.plan_of(epoch).open(epoch, self._mine(steps), with_media=self._options.wants_media)
        self._epoch, self._done = epoch, begin
        make, makers = self._maker(feed)
        pool = ThreadPoolExecutor(makers, thread_name_prefix="warp-stream")
        try:
            for step, made in self._prepared(steps, make, pool, skip):
                self._done = steps.done_after(step)
                self.telemetry.handed_out(made.size, made.size_bytes, made.substituted)
                self.show(step, len(steps))
                yield made.batch
                feed.ahead(steps.global_span(step)[0])
            self._epoch, self._done = epoch + 1, 0
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            feed.close()

    def _maker(self, feed: Feed | ArrayFeed) -> tuple[_Make, int]:
        """What makes a batch of the samples at some places, and how many threads do so best."""
        options = self._options
        if isinstance(feed, ArrayFeed):  # which takes so long to find out that it is asked once
            makers = feed.makers if options.transform is None else STREAM_THREADS
            return functools.partial(_batch_of_arrays, feed, options), makers
        make = _batch_of_rows if options.collate == "arrow" else _batch_of_samples
        return functools.partial(make, feed, options), STREAM_THREADS

    def _prepared(self, steps: Steps, make: _Make, pool: ThreadPoolExecutor, skip: int) -> Iterator[tuple[int, Made]]:
        """Batches in order, each with its step, some of them begun before they are needed."""
        pending: deque[tuple[int, Future[Made]]] = deque()
        # Where nothing has to be decoded, other batches would only take time from the first.
        ahead = self._options.prefetch if self.plan.media_bytes else 0
        for step in range(self._options.worker, len(steps), self._options.workers)[skip:]:
            spans = list(steps.spans(step, self._options.rank))
            pending.append((step, pool.submit(make, spans, step // self._options.workers)))
            if len(pending) > ahead:
                yield self._waited_for(pending)
                ahead = self._options.prefetch
        while pending:
            yield self._waited_for(pending)

    def _waited_for(self, pending: deque[tuple[int, Future[Made]]]) -> tuple[int, Made]:
        step, future = pending.popleft()
        return step, self.telemetry.waited_for(future.result, len(pending))

    def _mine(self, steps: Steps) -> Mine:
        options = self._options
        return functools.partial(steps.places_of, options.rank, options.worker, options.workers)

    @property
    def options(self) -> StreamOptions:
        return self._options

    def for_worker(self, worker: int, workers: int) -> Stream:
        """The part of this rank's batches that one of several workers makes, from the beginning."""
        options = replace(self._options.for_workers(), worker=worker, workers=workers)
        return Stream(self.plan, options, self.outside)


def _batch_of_arrays(feed: ArrayFeed, options: StreamOptions, spans: _Spans, turn: int) -> Made:
    return hand_out_arrays(feed.arrays(spans, turn), options)


def _batch_of_rows(feed: Feed, _options: StreamOptions, spans: _Spans, _turn: int) -> Made:
    import pyarrow as pa

    return hand_out_rows(pa.concat_tables([feed.rows(start, stop) for start, stop in spans]))


def _batch_of_samples(feed: Feed, options: StreamOptions, spans: _Spans, _turn: int) -> Made:
    return make_batch(Columns.joined([feed.columns(start, stop) for start, stop in spans]), options)


def _of_table(plan: Plan) -> TablePlan:
    if not isinstance(plan, TablePlan):
        raise UnsupportedError("only streams over one table go on with another version", hint=_REBASE_PARTS)
    return plan


def mix_streams(streams: Mapping[Stream, float], seed: int, stop: Stop) -> Stream:
    """A stream over the plans of several; everything else is as in the first."""
    plans = []
    for stream in streams:
        if not isinstance(stream.plan, TablePlan):
            raise BadInputError("only streams of tables can be mixed, neither mixtures nor windows of episodes")
        plans.append(stream.plan)
    if not plans:
        raise BadInputError("there is nothing to mix")
    if stop not in STOPS:
        raise BadInputError(f"stop={stop!r} is not known", hint=f"Use {' or '.join(STOPS)}.")
    first = next(iter(streams))
    plan = MixedPlan(tuple(plans), Mixture.of(list(streams.values()), seed), stop)
    return Stream(plan, first.options, replace(first.outside, at_version=None))
