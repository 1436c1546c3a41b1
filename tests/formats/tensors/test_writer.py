"""If this fails, changed weights are written to wrong positions, or over published bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warpdata as wd
from tests.formats.tensors.artifacts import RecordingSource, Sample, array_of, chosen_of, samples, specs
from warpdata.errors import BadInputError, PartialCoverageError, UnsupportedError
from warpdata.tensors import Extent, open_arrays, open_sources


@given(st.data(), samples(min_tensors=1))
def test_write_view_is_the_numpy_assignment(data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    names = data.draw(st.lists(st.sampled_from(sample.index.names()), unique=True, min_size=1))
    art, _ = sample.opened()
    view = art.view(spec or None, names=names)
    seed = data.draw(st.integers(0, 100))
    new = {
        name: _filled(view.index[name].shape, array_of(sample.index[name], sample.data).dtype, seed) for name in names
    }
    changed = art.write_view(view, new)
    expected = bytearray(sample.data)
    for name in names:
        _part(sample, name, spec, expected)[...] = new[name]
    for name in sample.index.names():
        assert changed[name].numpy().tobytes() == array_of(sample.index[name], bytes(expected)).tobytes()
        assert art[name].numpy().tobytes() == array_of(sample.index[name], sample.data).tobytes()
    assert bytes(changed.view().materialize().region) == bytes(expected)
    assert changed.index_multihash == art.index_multihash


def _filled(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape)) * dtype.itemsize
    flat: np.ndarray[Any, Any] = np.frombuffer(bytes((seed + 3 * n) % 2 for n in range(count)), np.uint8).view(dtype)
    return flat.reshape(shape)


def _part(sample: Sample, name: str, spec: dict[str, Any], memory: bytearray) -> np.ndarray[Any, Any]:
    entry = sample.index[name]
    if not entry.element_count:
        return np.empty(_shape(sample, name, spec), array_of(entry, sample.data).dtype)
    item = entry.dtype.item_bytes
    strides = tuple(stride * item for stride in entry.stride)
    first = entry.offset + entry.storage_offset * item
    array: Any = np.ndarray(entry.shape, array_of(entry, sample.data).dtype, memory, first, strides)
    if name not in spec:
        return array  # type: ignore[no-any-return]
    bounds, order = chosen_of(sample.index, spec)[name]
    cut = array[tuple(slice(start, start + (n - 1) * step + 1 if n else start, step) for start, n, step in bounds)]
    return cut.transpose(order)  # type: ignore[no-any-return]


def _shape(sample: Sample, name: str, spec: dict[str, Any]) -> tuple[int, ...]:
    art, _ = sample.opened()
    return art.view({name: spec[name]} if name in spec else None).index[name].shape


def test_an_overwritten_storage_may_be_missing() -> None:
    whole = open_arrays({"a": np.zeros(4), "b": np.ones(4)})
    art = open_sources(whole.index, [RecordingSource(bytes(32))], [Extent(0, 32, 0, 0)])
    with pytest.raises(PartialCoverageError):
        art.write_view(art.view({"b": wd.narrow(0, 0, 2)}, names=["b"]), {"b": np.arange(2.0)})
    changed = art.write_view(art.view(names=["b"]), {"b": np.arange(4.0)})
    assert changed["b"].numpy().tolist() == [0, 1, 2, 3]
    assert changed["a"].numpy().tolist() == [0, 0, 0, 0]


def test_invalid_writes_are_rejected() -> None:
    art, other = open_arrays({"a": np.zeros(4)}), open_arrays({"c": np.zeros(4)})
    with pytest.raises(UnsupportedError, match="another artifact"):
        art.write_view(other.view(), {"c": np.zeros(4)})
    for data in ({"b": np.zeros(4)}, {"a": np.zeros(3)}, {"a": np.zeros(4, "f4")}, bytes(7)):
        with pytest.raises(BadInputError):
            art.write_view(art.view(), data)


def test_a_changed_checkpoint_is_published_as_a_change() -> None:
    weights = {"head": np.zeros((4, 1000)), "body": np.arange(2**20, dtype=np.float64)}
    first = wd.DatasetBuilder("a/b").add_tensors("weights", weights).publish()
    art = wd.dataset("a/b").tensors()
    tuned = art.write_view(art.view({"head": wd.narrow(1, 0, 10)}, names=["head"]), {"head": np.ones((4, 10))})
    second = wd.DatasetBuilder("a/b").add_tensors("weights", tuned).publish()
    assert second.version != first.version
    assert second.uploaded_bytes < 40_000
    head = wd.dataset("a/b").tensors()["head"].numpy(verify=True)
    assert head.sum() == 40
    assert wd.dataset(f"a/b@{first.version}").tensors()["head"].numpy(verify=True).sum() == 0
