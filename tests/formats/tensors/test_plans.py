"""If this fails, a view has wrong bytes, or a plan predicts other requests than the sources receive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, chosen_of, rows_of, samples, specs
from tests.reference import tensor_views as reference
from warpdata.errors import BadInputError, PartialCoverageError
from warpdata.formats.tensors.extents import ExtentMap
from warpdata.formats.tensors.plan import iter_blocks
from warpdata.primitives.ranges import RangeSet
from warpdata.tensors import Contiguous, Extent, Pad, ReadCost, Strided, crop, narrow, open_sources, pack_index

costs = st.builds(ReadCost, st.sampled_from([0, 1, 7, 64, 10**6]), st.sampled_from([1, 5, 64, 10**6]))


@given(st.data(), samples())
def test_runs_tile_the_view_and_take_the_right_bytes(data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    art, _ = sample.opened()
    plan = art.view(spec or None).plan
    at = 0
    out = b""
    for run in plan.runs:
        assert run.target == at
        assert run.size > 0
        at += run.size
        if isinstance(run, Pad):
            out += bytes(run.size)
            continue
        for source, target, size in iter_blocks(run):
            assert target == len(out)
            out += sample.data[source : source + size]
    assert at == plan.size == len(out)
    if not plan.permutes:
        assert out == reference.view_bytes(rows_of(sample.index), sample.data, chosen_of(sample.index, spec))


@given(st.data(), samples(), costs)
def test_explain_predicts_every_request(data: st.DataObject, sample: Sample, cost: ReadCost) -> None:
    spec = data.draw(specs(sample.index))
    some = (
        data.draw(st.none() | st.lists(st.sampled_from(sample.index.names()), unique=True))
        if sample.index.entries
        else None
    )
    art, source = sample.opened()
    view = art.view(spec or None, names=some, cost=cost)
    explained = view.explain()
    assert source.requested == []
    out = view.materialize()
    assert source.requested == [(start, end) for _, start, end in explained.reads]
    assert explained.requests == len(source.requested)
    assert explained.bytes_read == sum(end - start for start, end in source.requested)
    assert explained.bytes_kept + explained.pad_bytes == view.size
    plain, _ = sample.opened()
    assert bytes(out.region) == bytes(plain.view(spec or None, names=some).materialize().region)
    assert str(explained).startswith(f"{explained.requests} requests")


@given(st.data(), samples(), costs)
def test_the_cheapest_method_is_chosen(data: st.DataObject, sample: Sample, cost: ReadCost) -> None:
    spec = data.draw(specs(sample.index))
    art, _ = sample.opened()
    for choice in art.view(spec or None, cost=cost).explain().choices:
        assert choice.cost == choice.requests * cost.request_bytes + choice.bytes_read
        assert choice.alternative_cost is None or choice.cost <= choice.alternative_cost


ROWS = pack_index({"w": ("torch.float32", (1000, 256))})


def explain_rows(spec: dict[str, Any], cost: ReadCost) -> Any:
    source = RecordingSource(bytes(ROWS.total_size))
    art = open_sources(ROWS, [source], [Extent(0, ROWS.total_size, 0, 0)])
    return art.view(spec, cost=cost).explain()


def test_a_narrow_on_the_first_axis_reads_exactly_the_slice() -> None:
    explained = explain_rows({"w": narrow(0, 125, 125)}, ReadCost())
    assert explained.reads == ((0, 125 * 1024, 250 * 1024),)
    assert explained.bytes_read == explained.bytes_kept == 125 * 1024


def test_a_narrow_on_the_inner_axis_is_read_wide_or_in_blocks_by_cost() -> None:
    spec = {"w": narrow(1, 32, 32)}
    expensive = explain_rows(spec, ReadCost(request_bytes=100_000))
    assert (expensive.choices[0].method, expensive.requests, expensive.bytes_read) == ("wide", 1, 999 * 1024 + 128)
    cheap = explain_rows(spec, ReadCost(request_bytes=100))
    assert (cheap.choices[0].method, cheap.requests, cheap.bytes_read) == ("blocks", 1000, 128_000)
    bounded = explain_rows(spec, ReadCost(request_bytes=100_000, scratch_bytes=64 * 1024))
    assert bounded.requests == 16
    assert all(end - start <= 64 * 1024 for _, start, end in bounded.reads)


def test_a_read_can_group_an_inner_axis() -> None:
    index = pack_index({"w": ("torch.uint8", (10, 1000, 10))})
    art = open_sources(index, [RecordingSource(bytes(index.total_size))], [Extent(0, index.total_size, 0, 0)])
    explained = art.view({"w": crop(slice(None), slice(0, 20), slice(0, 5))}, cost=ReadCost(200)).explain()
    assert (explained.requests, explained.bytes_read) == (10, 10 * 195)


def test_reads_are_bounded_and_the_last_group_may_be_shorter() -> None:
    index = pack_index({"w": ("torch.uint8", (3, 100, 10))})
    source = RecordingSource(bytes(n * 7 % 251 for n in range(3000)))
    spec = {"w": crop(slice(None), slice(0, 7), slice(0, 5))}
    art = open_sources(index, [source], [Extent(0, 3000, 0, 0)])
    view = art.view(spec, cost=ReadCost(request_bytes=200, scratch_bytes=25))
    explained = view.explain()
    assert [end - start for _, start, end in explained.reads] == [25, 25, 5] * 3
    want = [source.data[a * 1000 + b * 10 + c] for a in range(3) for b in range(7) for c in range(5)]
    assert list(bytes(view.materialize().region)) == want
    narrowest = art.view(spec, cost=ReadCost(request_bytes=10**6, scratch_bytes=3)).explain()
    assert (narrowest.choices[0].method, narrowest.requests) == ("blocks", 21)


def test_neighbours_are_read_together() -> None:
    index = pack_index({f"t{n:02}": ("torch.int8", (5,)) for n in range(20)})
    art = open_sources(index, [RecordingSource(bytes(index.total_size))], [Extent(0, index.total_size, 0, 0)])
    assert art.view(names=index.names()).explain().requests == 1
    assert art.view(names=["t00", "t19"], cost=ReadCost(0)).explain().requests == 2


def test_missing_gaps_are_not_read() -> None:
    index = pack_index({"a": ("torch.int8", (8,)), "b": ("torch.int8", (8,)), "c": ("torch.int8", (8,))})
    art = open_sources(index, [RecordingSource(bytes(24))], [Extent(0, 8, 0, 0), Extent(16, 24, 0, 16)])
    assert art.view(names=["a", "c"]).explain().reads == ((0, 0, 8), (0, 16, 24))


@given(st.data(), samples(min_tensors=1))
def test_missing_ranges_are_exact_and_the_target_is_unchanged(data: st.DataObject, sample: Sample) -> None:
    total = sample.index.total_size
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=6)))
    have = [(start, end) for start, end in zip(cuts[::2], cuts[1::2], strict=False) if start < end]
    source = RecordingSource(sample.data)
    art = open_sources(sample.index, [source], [Extent(start, end, 0, start) for start, end in have])
    spec = data.draw(specs(sample.index))
    view = art.view(spec or None)
    needed = RangeSet((s, s + n) for run in view.plan.data_runs for s, _, n in iter_blocks(run))
    missing = [(start, end - start) for start, end in needed - RangeSet(have)]
    region = bytearray(b"\xaa" * view.size)
    if not missing:
        whole, _ = sample.opened()
        view.materialize_into(region)
        assert bytes(region) == bytes(whole.view(spec or None).materialize().region)
        return
    with pytest.raises(PartialCoverageError) as caught:
        view.materialize_into(region)
    assert region == b"\xaa" * view.size
    assert source.requested == []
    detail = caught.value.detail
    assert (detail.space_kind, detail.space_id) == ("canonical", art.index_multihash)
    assert list(detail.missing_ranges) == missing
    assert caught.value.status == "UNAVAILABLE"


def test_overlapping_extents_are_rejected() -> None:
    with pytest.raises(BadInputError, match="overlap"):
        ExtentMap([Extent(0, 10, 0, 0), Extent(9, 12, 0, 9)])


def test_runs_have_size_span_and_blocks() -> None:
    run = Strided("w", 0, 100, 4, (2, 3), (50, 10))
    assert (run.size, run.span) == (24, 74)
    assert [source for source, _, _ in iter_blocks(run)] == [100, 110, 120, 150, 160, 170]
    assert list(iter_blocks(Contiguous("w", 1, 2, 3))) == [(2, 1, 3)]
