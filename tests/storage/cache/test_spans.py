"""If this fails, the cache believes to have bytes that it lacks, and serves holes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from warpdata.storage import ByteRange
from warpdata.storage.cache.spans import Spans

RANGES = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda pair: ByteRange(pair[0], pair[0] + pair[1]))
CHANGES = st.lists(st.tuples(st.booleans(), RANGES), max_size=30)


def _bytes_of(span: ByteRange) -> set[int]:
    return set(range(span.start, span.end))


@given(changes=CHANGES, question=RANGES)
def test_it_is_a_set_of_bytes(changes: list[tuple[bool, ByteRange]], question: ByteRange) -> None:
    spans, model = Spans(), set[int]()
    for is_added, span in changes:
        if is_added:
            spans.add(span)
            model |= _bytes_of(span)
        else:
            spans.discard(span)
            model -= _bytes_of(span)
        asked = _bytes_of(question)
        assert spans.size_bytes == len(model)
        assert spans.covers(question) == (asked <= model)
        assert spans.touches(question) == bool(asked & model)
        missing = spans.missing(question)
        assert [byte for gap in missing for byte in range(gap.start, gap.end)] == sorted(asked - model)
        assert all(gap.size_bytes > 0 for gap in missing)
        assert all(before.end < after.start for before, after in pairwise(missing))
        assert spans.prefix_end() == next(byte for byte in range(100) if byte not in model)


@given(st.lists(RANGES, max_size=30))
def test_ranges_that_touch_are_one(added: list[ByteRange]) -> None:
    spans = Spans()
    for span in added:
        spans.add(span)
    model = set().union(*map(_bytes_of, added)) if added else set()
    runs = sum(byte - 1 not in model for byte in model)
    assert len(spans._starts) == len(spans._ends) == runs
