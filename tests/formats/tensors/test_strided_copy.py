"""If this fails, a strided copy puts bytes at wrong positions, or a forked process uses state of its parent."""

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
from warpdata.formats.tensors import transfer
from warpdata.formats.tensors.shards import gather
from warpdata.formats.tensors.strided_copy import StridedCopy, clip_copy, copy_strided, split_copy
from warpdata.storage import FileRangeSource
from warpdata.tensors import Engine, ReadCost, create_tensors, open_tensors, write_tensors


def moves(copies: Iterable[StridedCopy]) -> list[tuple[int, int]]:
    """Return every byte as (source, target), one by one."""
    out = []
    for copy in copies:
        for step in itertools.product(*(range(count) for count in copy.counts)):
            source = copy.source + sum(i * s for i, s in zip(step, copy.strides, strict=True))
            target = copy.target + sum(i * s for i, s in zip(step, copy.target_strides, strict=True))
            out += [(source + byte, target + byte) for byte in range(copy.block)]
    return sorted(out)


@st.composite
def strided_copies(draw: st.DrawFn) -> StridedCopy:
    """Draw any source strides, 0 and overlapping ones included, and a dense target in any order of axes."""
    counts = draw(st.lists(st.integers(1, 4), max_size=3))
    block = draw(st.integers(1, 9))
    order = draw(st.permutations(range(len(counts))))
    targets, step = [0] * len(counts), block
    for axis in order:
        targets[axis] = step
        step *= counts[axis]
    strides = [draw(st.integers(0, 40)) for _ in counts]
    start = draw(st.integers(0, 30))
    return StridedCopy(start, draw(st.integers(0, 9)), block, tuple(counts), tuple(strides), tuple(targets))


@given(st.data(), strided_copies())
def test_windows_divide_a_copy_completely(data: st.DataObject, copy: StridedCopy) -> None:
    """Windows end at, before and after bytes of the copy."""
    near = sorted({source + off for source, _ in moves([copy]) for off in (-1, 0, 1, 2) if source + off > 0})
    edges = [0, *sorted(data.draw(st.lists(st.sampled_from(near), max_size=6))), 1000]
    parts: list[StridedCopy] = []
    for start, end in itertools.pairwise(edges):
        inside = list(clip_copy(copy, start, end))
        assert all(start <= part.source and part.source + part.span <= end for part in inside)
        parts += inside
    assert moves(parts) == moves([copy])


@given(strided_copies(), st.integers(1, 40))
def test_parts_are_small_and_complete(copy: StridedCopy, max_bytes: int) -> None:
    parts = list(split_copy(copy, max_bytes))
    assert all(part.size <= max_bytes for part in parts)
    assert moves(parts) == moves([copy])


@given(strided_copies())
def test_a_strided_copy_equals_single_bytes(copy: StridedCopy) -> None:
    data = bytes(n * 7 % 251 for n in range(copy.source + copy.span))
    target = bytearray(copy.target + copy.target_span)
    want = bytearray(len(target))
    for source, position in moves([copy]):
        want[position] = data[source]
    copy_strided(copy, memoryview(data), 0, memoryview(target), 0)
    assert target == want


@given(st.data(), samples(), st.sampled_from([1, 4]), st.booleans())
def test_explain_predicts_every_read_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, sample: Sample, threads: int, verify: bool
) -> None:
    requested: list[tuple[int, int, int]] = []

    class Recorded(FileRangeSource):
        def read_into(self, start: int, targets: Any) -> None:
            size = sum(len(target) for target in targets)
            requested.append((start, start + size, size))
            super().read_into(start, targets)

    def recorded_gather(source: Any, copy: StridedCopy, target: memoryview, target_at: int) -> None:
        requested.append((copy.source, copy.source + copy.span, copy.size))
        gather(source, copy, target, target_at)

    path = tmp_path_factory.mktemp("recorded") / "t"
    with create_tensors(path, sample.index) as writer:
        writer.write_view(writer.view(), sample.data)
        writer.seal().close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdata.formats.tensors.source_selection.FileRangeSource", Recorded)
        patch.setattr(transfer, "gather", recorded_gather)
        patch.setattr(transfer, "_BYTES_PER_THREAD", 1)
        art = open_tensors(path, engine=Engine(threads=threads))
        view = art.view(data.draw(specs(sample.index)) or None, cost=ReadCost(7, 64, 24))
        explained = view.explain(verify=verify)
        requested.clear()
        got = bytes(view.materialize(verify=verify).region)
    assert sorted((start, end) for start, end, _ in requested) == sorted(
        (start, end) for _, start, end in explained.reads
    )
    assert explained.bytes_read == sum(size for _, _, size in requested)
    memory, _ = sample.opened()
    assert got == bytes(type(view)(memory.replica, view.normal).materialize().region)
    art.close()


def test_a_forked_process_can_read(tmp_path: Path) -> None:
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
