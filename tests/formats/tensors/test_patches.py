"""If this fails, packing puts a byte where another one belongs, or a forked process inherits what is not its own."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, samples, specs
from warpdata.formats.tensors.sources import FileSource
from warpdata.formats.tensors.strided_copy import Patch, clip_patch, copy_patch, split_patch
from warpdata.formats.tensors.workers import for_each
from warpdata.tensors import Engine, ReadCost, create_tensors, open_tensors, write_tensors


def moves(patches: Iterable[Patch]) -> list[tuple[int, int]]:
    """Every byte as (source, target), counted out one by one."""
    out = []
    for patch in patches:
        for place in itertools.product(*(range(count) for count in patch.counts)):
            source = patch.source + sum(i * s for i, s in zip(place, patch.strides, strict=True))
            target = patch.target + sum(i * s for i, s in zip(place, patch.target_strides, strict=True))
            out += [(source + byte, target + byte) for byte in range(patch.block)]
    return sorted(out)


@st.composite
def patches(draw: st.DrawFn) -> Patch:
    """Any strides in the source, also overlapping ones and 0; a dense target in any order of axes."""
    counts = draw(st.lists(st.integers(1, 4), max_size=3))
    block = draw(st.integers(1, 9))
    order = draw(st.permutations(range(len(counts))))
    targets, step = [0] * len(counts), block
    for axis in order:
        targets[axis] = step
        step *= counts[axis]
    strides = [draw(st.integers(0, 40)) for _ in counts]
    start = draw(st.integers(0, 30))
    return Patch(start, draw(st.integers(0, 9)), block, tuple(counts), tuple(strides), tuple(targets))


@given(st.data(), patches())
def test_windows_share_out_every_byte(data: st.DataObject, patch: Patch) -> None:
    """Windows that end at, before and behind bytes of the patch."""
    near = sorted({source + off for source, _ in moves([patch]) for off in (-1, 0, 1, 2) if source + off > 0})
    edges = [0, *sorted(data.draw(st.lists(st.sampled_from(near), max_size=6))), 1000]
    parts: list[Patch] = []
    for start, end in itertools.pairwise(edges):
        inside = list(clip_patch(patch, start, end))
        assert all(start <= part.source and part.source + part.span <= end for part in inside)
        parts += inside
    assert moves(parts) == moves([patch])


@given(patches(), st.integers(1, 40))
def test_parts_of_a_patch_are_small_and_complete(patch: Patch, most: int) -> None:
    parts = list(split_patch(patch, most))
    assert all(part.size <= most for part in parts)
    assert moves(parts) == moves([patch])


@given(patches())
def test_copying_is_byte_by_byte_copying(patch: Patch) -> None:
    data = bytes(n * 7 % 251 for n in range(patch.source + patch.span))
    target = bytearray(patch.target + patch.target_span)
    want = bytearray(len(target))
    for source, place in moves([patch]):
        want[place] = data[source]
    copy_patch(patch, memoryview(data), 0, memoryview(target), 0)
    assert target == want


@given(st.data(), samples(), st.sampled_from([1, 4]), st.booleans())
def test_explain_predicts_every_read_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, threads: int, verify: bool
) -> None:
    asked: list[tuple[int, int, int]] = []

    class Watched(FileSource):
        def read_into(self, start: int, targets: Any) -> None:
            size = sum(len(target) for target in targets)
            asked.append((start, start + size, size))
            super().read_into(start, targets)

        def gather(self, patch: Patch, target: memoryview, target_at: int) -> None:
            asked.append((patch.source, patch.source + patch.span, patch.size))
            super().gather(patch, target, target_at)

    path = tmp_path_factory.mktemp("watched") / "t"
    with create_tensors(path, sample.index) as draft:
        draft.write_view(draft.view(), sample.data)
        draft.seal().close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.formats.tensors.local.FileSource", Watched)
        patch.setattr("warpdata.formats.tensors.transfer.VIEW_THREAD_BYTES", 1)
        art = open_tensors(path, engine=Engine(threads=threads))
        view = art.view(data.draw(specs(sample.index)) or None, cost=ReadCost(7, 64, 24))
        told = view.explain(verify=verify)
        asked.clear()
        got = bytes(view.materialize(verify=verify).region)
    assert sorted((start, end) for start, end, _ in asked) == sorted((start, end) for _, start, end in told.reads)
    assert told.bytes_read == sum(size for _, _, size in asked)
    memory, _ = sample.opened()
    assert got == bytes(type(view)(memory.replica, view.normal).materialize().region)
    art.close()


def test_a_forked_process_reads_for_itself(tmp_path: Path) -> None:
    array = np.arange(3_000_000)
    art = write_tensors(tmp_path / "t", {"a": array})
    art.view().materialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.array_equal(art.view().materialize(verify=True)["a"], array) else 2
            art.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(art["a"].numpy(), array)


def test_the_first_error_is_the_one_that_is_told() -> None:
    from contextlib import nullcontext

    done: list[int] = []

    def work(thing: int) -> None:
        if thing == 5:
            raise LookupError(thing)
        done.append(thing)

    for threads in (1, 3):
        with pytest.raises(LookupError):
            for_each(range(1000), threads, lambda: nullcontext(work))
        assert len(done) < 1500
