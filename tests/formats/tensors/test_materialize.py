"""If this fails, a model gets other numbers than the stored ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import RecordingSource, Sample, array_of, chosen_of, rows_of, samples, specs
from tests.reference import tensor_views as reference
from warpdata.errors import BadInputError, CorruptError, StorageError, UnsupportedError
from warpdata.tensors import Extent, TensorSet, narrow, open_sources, pack_index, transpose


def expected(sample: Sample, name: str, spec: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the NumPy expression of a view."""
    array = array_of(sample.index[name], sample.data)
    if name not in spec:
        return array
    bounds, order = chosen_of(sample.index, spec)[name]
    cut = array[
        tuple(
            slice(start, start + (length - 1) * step + 1 if length else start, step) for start, length, step in bounds
        )
    ]
    return cut.transpose(order)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Compare bits, so that NaNs are equal."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


@given(st.data(), samples())
def test_a_view_is_the_numpy_expression(data: st.DataObject, sample: Sample) -> None:
    spec = data.draw(specs(sample.index))
    art, _ = sample.opened()
    out = art.view(spec or None).materialize()
    assert list(out) == sample.index.names()
    for name in out:
        assert same(out[name], expected(sample, name, spec))
    realized = reference.view_bytes(rows_of(sample.index), sample.data, chosen_of(sample.index, spec))
    assert bytes(out.region) == realized
    assert out.view_data_hash == reference.multihash(reference.tree_hash(realized))


@given(st.data(), samples(min_tensors=1))
def test_some_tensors_are_packed_in_the_order_given(data: st.DataObject, sample: Sample) -> None:
    some = data.draw(st.lists(st.sampled_from(sample.index.names()), unique=True))
    spec = data.draw(specs(sample.index))
    art, _ = sample.opened()
    view = art.view(spec or None, names=some)
    out = view.materialize()
    assert list(out) == some
    at = 0
    for name in some:
        at = -(-at // 8) * 8
        assert view.index[name].offset == at
        at += view.index[name].size
        assert same(out[name], expected(sample, name, spec))
    assert view.subset_hash == reference.subset_hash(some)
    assert view.selection_hash == reference.selection_hash(view.view_id or "", view.subset_hash)


keys = st.tuples(st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.sampled_from([None, 1, 2, 3]))


@given(st.data(), samples(min_tensors=1))
def test_lazy_slicing_is_numpy_slicing(data: st.DataObject, sample: Sample) -> None:
    art, source = sample.opened()
    name = data.draw(st.sampled_from(art.names()))
    lazy, array = art[name], array_of(sample.index[name], sample.data)
    for _ in range(data.draw(st.integers(0, 3))):
        parts: list[Any] = []
        for count in array.shape[: data.draw(st.integers(0, array.ndim))]:
            whole_number = count > 0 and data.draw(st.integers(0, 3)) == 0
            parts.append(data.draw(st.integers(-count, count - 1)) if whole_number else slice(*data.draw(keys)))
        if data.draw(st.booleans()):
            parts.insert(data.draw(st.integers(0 if len(parts) == array.ndim else len(parts), len(parts))), Ellipsis)
        # The ellipsis keeps NumPy from returning a scalar, which would normalize an invalid bool.
        lazy, array = lazy[tuple(parts)], array[tuple(parts if Ellipsis in parts else [*parts, Ellipsis])]
        assert lazy.shape == array.shape
    assert source.requested == []
    assert same(lazy.numpy(), array)
    assert same(np.asarray(lazy), array)


def test_steps_of_steps() -> None:
    art = small()
    array = np.asarray(art["a"])
    assert same(art["a"][:, ::2][:, ::2].numpy(), np.ascontiguousarray(array[:, ::2][:, ::2]))
    assert same(art["a"][1:, 1::2][::2, 1:].numpy(), np.ascontiguousarray(array[1:, 1::2][::2, 1:]))
    assert same(art["a"][::3, 5].numpy(), np.ascontiguousarray(array[::3, 5]))


def small() -> TensorSet:
    index = pack_index({"a": ("torch.float32", (4, 6)), "b": ("torch.int8", (3,)), "s": ("torch.float64", ())})
    source = RecordingSource(bytes(range(index.total_size)))
    return open_sources(index, [source], [Extent(0, index.total_size, 0, 0)])


def test_memory_of_the_caller_is_filled() -> None:
    view = small().view({"a": transpose(0, 1)})
    want = bytes(view.materialize().region)
    regions: list[Any] = [
        bytearray(view.size),
        np.zeros(view.size, np.uint8),
        np.zeros((view.size // 8 + 1, 2), np.float32),
    ]
    for region in regions:
        out = view.materialize_into(region)
        assert bytes(out.region) == want
        assert memoryview(region).cast("B")[: view.size] == want
    larger = bytearray(b"\x77" * (view.size + 9))
    view.materialize_into(larger)
    assert larger[view.size :] == b"\x77" * 9


@pytest.mark.parametrize(
    "region",
    [bytes(1000), bytearray(3), np.zeros((40, 40))[:, ::2], "text", None, 3, memoryview(bytes(1000))],
)
def test_an_unusable_target_is_rejected(region: Any) -> None:
    with pytest.raises(UnsupportedError) as caught:
        small().view({"a": transpose(0, 1)}).materialize_into(region)
    assert caught.value.status == "FAILED_PRECONDITION"


def test_an_expected_hash_is_checked() -> None:
    view = small().view({"a": narrow(1, 2, 2)})
    known = view.materialize().view_data_hash
    assert view.materialize(expect=known).view_data_hash == known
    with pytest.raises(CorruptError, match="hash"):
        view.materialize(expect="b" + "a" * 55)


def test_a_source_that_returns_too_few_bytes_is_an_error() -> None:
    index = pack_index({"a": ("torch.int8", (8,))})

    class ShortSource(RecordingSource):
        def read_range(self, start: int, end: int) -> memoryview:
            return super().read_range(start, start + 1)

    with pytest.raises(StorageError, match="returned 1 bytes"):
        open_sources(index, [ShortSource(bytes(8))], [Extent(0, 8, 0, 0)]).view().materialize()


@pytest.mark.parametrize("key", [5, -5, (0, 0, 0), (Ellipsis, Ellipsis), slice(None, None, -1), "x", 1.5, slice("a")])
def test_invalid_keys_are_rejected(key: Any) -> None:
    with pytest.raises(BadInputError):
        small()["a"][key]


def test_a_tensor_set_is_a_collection_of_names() -> None:
    art = small()
    assert list(art) == art.names() == ["a", "b", "s"]
    assert len(art) == 3
    assert "a" in art
    assert "x" not in art
    assert (art["a"].shape, art["a"].dtype, len(art["a"])) == ((4, 6), "torch.float32", 4)
    with pytest.raises(TypeError):
        len(art["s"])
    with pytest.raises(BadInputError):
        art["x"]
    with pytest.raises(BadInputError):
        art.view(names="a")
    with pytest.raises(BadInputError):
        art.view(names=["a", "a"])
