"""A stream of batches for training: one order for everybody, and a place in it that can be written down.

Batches are prepared ahead by threads that end with the loop, however it ends. Where the stream stands is
where its consumer stands: what was prepared and not handed out is prepared again after a resume.
Implements docs/specs/streaming.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from warpdata.errors import BadInputError
from warpdata.limits import STREAM_THREADS
from warpdata.streaming.explanation import Explanation
from warpdata.streaming.feeds import ArrayFeed, Feed, MixedPlan, Place, Plan, TablePlan
from warpdata.streaming.mixture import STOPS, Mixture, Stop
from warpdata.streaming.options import StreamOptions
from warpdata.streaming.plan import Identity, Token, parse_token
from warpdata.streaming.samples import Made, hand_out_arrays, hand_out_rows, make_batch
from warpdata.streaming.steps import Steps
from warpdata.streaming.telemetry import Clock, Telemetry

__all__ = ["Stream", "mix_streams"]


class Stream:
    """Iterate over `epoch(n)`, or over the stream itself to go on where a token left off."""

    def __init__(self, plan: Plan, options: StreamOptions, clock: Clock) -> None:
        self.plan = plan
        self._options = options
        self._epoch = 0
        self._done = 0
        self.telemetry = Telemetry(clock)

    @property
    def identity(self) -> Identity:
        """All that the order depends on."""
        return self.plan.identity

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
        return Token.of(self.identity, self._epoch, self._done).document()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there. `TokenMismatchError` if the token is of another version, filter or seed."""
        token = parse_token(state)
        token.check(self.identity)
        if token.samples_done > self.identity.sample_count:
            raise BadInputError(f"the token says {token.samples_done} of {self.identity.sample_count} samples are done")
        self._epoch, self._done = token.epoch, token.samples_done

    def locate(self, step: int, epoch: int | None = None) -> list[Place]:
        """The global batch of a step: for each sample its part of a mixture (else 0) and its row in the table."""
        start, stop = self.steps_from(0).global_span(step)
        return self.plan.locate(start, stop, self._epoch if epoch is None else epoch)

    def find(self, row: int, *, part: int = 0, epoch: int | None = None) -> tuple[int, int]:
        """At which step of the epoch, and by which rank, a row is read."""
        place = self.plan.place_of((part, row), self._epoch if epoch is None else epoch)
        return self.steps_from(0).step_of(place)

    def explain(self) -> Explanation:
        """What an epoch takes, before any of it is read."""
        return Explanation.of(self.plan, self.steps_from(0), self._options)

    def stand_at(self, epoch: int, samples_done: int) -> None:
        """For those who hand out the stream's batches themselves, such as a loader with workers."""
        self._epoch, self._done = epoch, samples_done

    def steps_from(self, begin: int) -> Steps:
        """The steps of what is left of an epoch."""
        options = self._options
        return Steps(self.identity.sample_count, options.batch_size, options.world_size, options.remainder, begin)

    def _run(self, epoch: int, begin: int) -> Generator[Any, None, None]:
        steps, feed = self.steps_from(begin), self.plan.open(epoch)
        self._epoch, self._done = epoch, begin
        pool = ThreadPoolExecutor(STREAM_THREADS, thread_name_prefix="warp-stream")
        try:
            for step, made in self._prepared(steps, feed, pool):
                self._done = steps.done_after(step)
                self.telemetry.handed_out(made, self._options)
                yield made.batch
            self._epoch, self._done = epoch + 1, 0
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            feed.close()

    def _prepared(self, steps: Steps, feed: Feed | ArrayFeed, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Made]]:
        """Batches in order, each with its step, some of them begun before they are needed."""
        pending: deque[tuple[int, Future[Made]]] = deque()
        for step in range(self._options.worker, len(steps), self._options.workers):
            pending.append((step, pool.submit(self._make, steps, step, feed)))
            if len(pending) > self._options.prefetch:
                yield self._waited_for(pending)
        while pending:
            yield self._waited_for(pending)

    def _waited_for(self, pending: deque[tuple[int, Future[Made]]]) -> tuple[int, Made]:
        step, future = pending.popleft()
        return step, self.telemetry.waited_for(future, len(pending))

    def _make(self, steps: Steps, step: int, feed: Feed | ArrayFeed) -> Made:
        spans = list(steps.spans(step, self._options.rank))
        if isinstance(feed, ArrayFeed):
            return hand_out_arrays(feed.arrays(spans, step // self._options.workers), self._options)
        if self._options.collate == "arrow":
            import pyarrow as pa

            return hand_out_rows(pa.concat_tables([feed.rows(start, stop) for start, stop in spans]))
        parts = [feed.columns(start, stop) for start, stop in spans]
        columns = {name: [value for part in parts for value in part[name]] for name in parts[0]}
        return make_batch(columns, self._options)

    @property
    def options(self) -> StreamOptions:
        return self._options

    def for_worker(self, worker: int, workers: int) -> Stream:
        """The part of this rank's batches that one of several workers makes, from the beginning."""
        return Stream(self.plan, replace(self._options, worker=worker, workers=workers), self.telemetry.clock)


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
    return Stream(plan, first.options, first.telemetry.clock)
