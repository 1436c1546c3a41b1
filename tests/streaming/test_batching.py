"""If this fails, ranks disagree on the number of steps, or a sample belongs to no rank or to several."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warpdata.streaming.order import BatchSchedule, Remainder

counts = st.integers(0, 200)


@st.composite
def many_steps(draw: st.DrawFn, remainders: tuple[Remainder, ...] = ("partial", "pad", "drop")) -> BatchSchedule:
    count = draw(counts)
    return BatchSchedule(
        count=count,
        batch_size=draw(st.integers(1, 20)),
        world_size=draw(st.integers(1, 9)),
        remainder=draw(st.sampled_from(remainders)),
        begin=draw(st.integers(0, count)),
    )


def taken(steps: BatchSchedule, rank: int, step: int) -> list[int]:
    return [position for start, stop in steps.spans(step, rank) for position in range(start, stop)]


@given(many_steps(("partial",)))
def test_partial_takes_everything_once_and_evenly(steps: BatchSchedule) -> None:
    everything = []
    for step in range(len(steps)):
        parts = [taken(steps, rank, step) for rank in range(steps.world_size)]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        joined = [position for part in parts for position in part]
        assert joined == list(range(*steps.global_span(step)))
        everything += joined
    assert everything == list(range(steps.begin, steps.count))


@given(many_steps(("pad",)))
def test_pad_gives_every_rank_a_full_batch(steps: BatchSchedule) -> None:
    seen = set()
    for step in range(len(steps)):
        for rank in range(steps.world_size):
            part = taken(steps, rank, step)
            assert len(part) == steps.batch_size
            seen.update(part)
    assert seen >= set(range(steps.begin, steps.count))


@given(many_steps(("drop",)))
def test_drop_leaves_out_less_than_a_global_batch(steps: BatchSchedule) -> None:
    joined = [p for step in range(len(steps)) for rank in range(steps.world_size) for p in taken(steps, rank, step)]
    assert joined == list(range(steps.begin, steps.begin + len(joined)))
    assert steps.count - steps.begin - len(joined) < steps.global_batch


@given(many_steps(), st.data())
def test_a_global_batch_is_the_same_for_every_number_of_ranks(steps: BatchSchedule, data: st.DataObject) -> None:
    whole = BatchSchedule(steps.count, steps.global_batch, 1, steps.remainder, steps.begin)
    assert len(whole) == len(steps)
    for step in range(len(steps)):
        joined = [position for rank in range(steps.world_size) for position in taken(steps, rank, step)]
        assert joined == taken(whole, 0, step)


@given(many_steps(("partial",)), st.data())
def test_a_resumed_schedule_loses_nothing(steps: BatchSchedule, data: st.DataObject) -> None:
    """The number of ranks and the batch size may change."""
    stopped = data.draw(st.integers(0, len(steps)))
    done = steps.done_after(stopped - 1) if stopped else steps.begin
    rest = BatchSchedule(steps.count, data.draw(st.integers(1, 20)), data.draw(st.integers(1, 9)), "partial", done)
    before = [p for step in range(stopped) for rank in range(steps.world_size) for p in taken(steps, rank, step)]
    after = [p for step in range(len(rest)) for rank in range(rest.world_size) for p in taken(rest, rank, step)]
    assert before + after == list(range(steps.begin, steps.count))


@given(many_steps(("partial", "drop")))
def test_a_position_maps_to_its_step_and_rank(steps: BatchSchedule) -> None:
    for step in range(len(steps)):
        for rank in range(steps.world_size):
            for position in taken(steps, rank, step):
                assert steps.step_of(position) == (step, rank)


@given(many_steps(("partial", "drop")), st.integers(1, 4), st.data())
def test_workers_own_the_positions_that_they_return(steps: BatchSchedule, workers: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, steps.count))
    stop = data.draw(st.integers(start, steps.count))
    rank, worker = data.draw(st.integers(0, steps.world_size - 1)), data.draw(st.integers(0, workers - 1))
    returned = [p for step in range(worker, len(steps), workers) for p in taken(steps, rank, step)]
    assert steps.owned_positions(rank, worker, workers, start, stop).tolist() == [
        p for p in returned if start <= p < stop
    ]
