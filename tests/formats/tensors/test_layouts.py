"""If this fails, a layout overwrites a tensor, or writes it to a wrong position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, samples, specs
from tests.formats.tensors.test_materialize import expected, same
from warpdata.errors import BadInputError, PartialCoverageError, UnsupportedError
from warpdata.tensors import Extent, narrow, open_arrays, open_sources, transpose

UNTOUCHED = 0xA5


class OnlyDlpack:
    """Memory with DLPack and without the buffer protocol."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


KINDS: dict[str, Any] = {
    "numpy": lambda array: array,
    "memoryview": memoryview,
    "torch": torch.from_numpy,
    "dlpack": OnlyDlpack,
}


@given(st.data(), samples(min_tensors=1), st.sampled_from(sorted(KINDS)))
def test_a_layout_places_every_tensor(data: st.DataObject, sample: Sample, kind: str) -> None:
    spec = data.draw(specs(sample.index))
    names = data.draw(st.permutations(sample.index.names()))
    art, _ = sample.opened()
    arrays = {name: expected(sample, name, spec) for name in names}
    layout: dict[str, tuple[str, int]] = {}
    ends = {"one": 0, "two": 0}
    for name, array in arrays.items():
        storage = data.draw(st.sampled_from(sorted(ends)))
        item = min(array.dtype.itemsize, 8)
        start = -(-(ends[storage] + data.draw(st.integers(0, 20))) // item) * item
        layout[name] = (storage, start)
        ends[storage] = start + array.nbytes
    memory = {storage: np.full(end + 5, UNTOUCHED, np.uint8) for storage, end in ends.items()}
    regions = {storage: KINDS[kind](array) for storage, array in memory.items()}
    out = art.view(spec or None, names=names).materialize_into(regions, layout=layout)
    free = {storage: np.ones(len(array), bool) for storage, array in memory.items()}
    for name, array in arrays.items():
        storage, start = layout[name]
        span = slice(start, start + array.nbytes)
        assert memory[storage][span].tobytes() == np.ascontiguousarray(array).tobytes()
        free[storage][span] = False
        if kind != "torch":
            assert same(np.asarray(out[name]), array)
    assert list(out) == list(names)
    for storage, array in memory.items():
        assert (array[free[storage]] == UNTOUCHED).all()


@given(st.data(), samples(min_tensors=1))
def test_the_offsets_of_the_view_are_the_view_layout(data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    names = sample.index.names()
    art, _ = sample.opened()
    view = art.view(spec or None, names=names)
    plain = view.materialize()
    memory = np.zeros(view.size, np.uint8)
    layout = {name: view.index[name].offset for name in names}
    if all(view.index[name].is_compact for name in names):
        out = view.materialize_into(memory, layout=layout, expect=plain.view_data_hash)
        assert memory.tobytes() == bytes(plain.region)
        assert out.region is memory
    else:
        out = view.materialize_into(memory, layout=layout)
        with pytest.raises(UnsupportedError, match="more storage than elements"):
            _ = out.view_data_hash


ARRAYS: dict[str, Any] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(5, dtype=np.int8),
    "c": np.arange(4, dtype=np.float64),
}


def test_named_layouts() -> None:
    art = open_arrays(ARRAYS)
    region = np.full(art.index.total_size, UNTOUCHED, np.uint8)
    view = art.view({"a": narrow(1, 0, 2), "c": transpose(0, 0)})
    out = view.materialize_into(region, layout="canonical")
    assert region[:16].view(np.float32).tolist() == [0, 1, 3, 4]
    assert (region[16:24] == UNTOUCHED).all()
    assert region[24:29].tolist() == [0, 1, 2, 3, 4]
    assert (region[29:32] == UNTOUCHED).all()
    assert region[32:].view(np.float64).tolist() == [0, 1, 2, 3]
    assert out.view_data_hash == view.materialize().view_data_hash
    tight = np.full(24 + 5 + 3 + 32, UNTOUCHED, np.uint8)
    art.view(names=["b", "a", "c"]).materialize_into(tight, layout="packed")
    assert tight[:5].tolist() == [0, 1, 2, 3, 4]
    assert tight[8:32].view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert tight[32:64].view(np.float64).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("layout", "error", "message"),
    [
        ({"a": 0, "b": 23, "c": 40}, BadInputError, "'a' and 'b' overlap in the layout, at byte 23"),
        ({"a": 0, "b": 24}, BadInputError, r"name different tensors: \['c'\]"),
        ({"a": 2, "b": 40, "c": 48}, BadInputError, "'a' cannot begin at byte 2"),
        ({"a": -8, "b": 40, "c": 48}, BadInputError, "'a' cannot begin at byte -8"),
        ({"a": ("other", 0), "b": 40, "c": 48}, BadInputError, "puts 'a' into 'other'"),
        ({"a": 0, "b": 24, "c": 80}, UnsupportedError, "has 100 bytes, but the view needs 112"),
        ("upside down", BadInputError, "layout='upside down' is not valid"),
    ],
)
def test_invalid_layouts_are_rejected(layout: Any, error: type[Exception], message: str) -> None:
    art = open_arrays(ARRAYS)
    region = np.full(100, UNTOUCHED, np.uint8)
    with pytest.raises(error, match=message):
        art.view().materialize_into(region, layout=layout)
    assert (region == UNTOUCHED).all()


def test_missing_bytes_are_found_before_the_region_is_written() -> None:
    whole = open_arrays(ARRAYS)
    data = bytes(whole.view().materialize().region)

    art = open_sources(whole.index, [RecordingSource(data)], [Extent(0, 30, 0, 0)])
    region = np.full(100, UNTOUCHED, np.uint8)
    with pytest.raises(PartialCoverageError):
        art.view().materialize_into(region, layout="packed")
    assert (region == UNTOUCHED).all()
    read_only = np.zeros(100, np.uint8)
    read_only.flags.writeable = False
    with pytest.raises(UnsupportedError, match="read-only"):
        whole.view().materialize_into(read_only, layout="packed")
