"""If this fails, a list of operations selects other elements than the same operations of NumPy, one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, array_of, samples
from warpdata.errors import BadInputError
from warpdata.formats.tensors.spec import Bound
from warpdata.tensors import (
    Crop,
    Narrow,
    Transpose,
    crop,
    encode_index,
    narrow,
    normalize,
    open_arrays,
    pack_index,
    transpose,
)

Array = np.ndarray[Any, Any]


@st.composite
def operations(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Any]:
    """Draw operations that are valid one after another, with integers of Python or NumPy."""
    number = draw(st.sampled_from([int, np.int64, np.int32, np.uint8, np.array]))
    array, ops = np.empty(shape, np.int8), []
    for _ in range(draw(st.integers(0, 5))):
        op = draw(_operation(array.shape, number))
        ops.append(op)
        array = applied(array, op)
    return ops


@st.composite
def _operation(draw: st.DrawFn, shape: tuple[int, ...], number: Any) -> Any:
    dims = [dim for dim, count in enumerate(shape) if count]
    kind = draw(st.sampled_from(["narrow", "transpose", "crop"]))
    if kind == "narrow" and dims:
        dim = draw(st.sampled_from(dims))
        start = draw(st.integers(0, shape[dim] - 1))
        length = draw(st.integers(1, shape[dim] - start))
        negative = number is not np.uint8 and draw(st.booleans())
        return narrow(
            number(dim - len(shape) if negative else dim),
            number(start - shape[dim] if negative else start),
            number(length),
        )
    if kind == "transpose" and shape:
        return transpose(*(number(draw(st.integers(0, len(shape) - 1))) for _ in range(2)))
    slices = []
    for count in shape[: draw(st.integers(0, len(shape)))]:
        start = draw(st.integers(0, max(0, count - 1)))
        step = number(draw(st.integers(1, 3)))
        slices.append(slice(number(start), number(draw(st.integers(start + 1, count))), step) if count else slice(None))
    order = draw(st.none() | st.permutations([number(dim) for dim in range(len(shape))]))
    return crop(*slices, order=order)


def applied(array: Array, op: Any) -> Array:
    """Return the result of one operation by NumPy."""
    if isinstance(op, Narrow):
        start = int(op.start) % array.shape[int(op.dim)]
        return np.take(array, range(start, start + int(op.length)), axis=int(op.dim))
    if isinstance(op, Crop):
        key: Any = (*op.slices, ...)
        cut: Array = array[key]
        return cut if op.order is None else cut.transpose([int(dim) for dim in op.order])
    return np.swapaxes(array, int(op.dim0), int(op.dim1))


@given(st.data(), samples(min_tensors=1))
def test_a_folded_view_equals_numpy_step_by_step(data: st.DataObject, sample: Sample) -> None:
    spec, expected = {}, {}
    for entry in sample.index:
        ops = data.draw(operations(entry.shape))
        array = array_of(entry, sample.data)
        for op in ops:
            array = applied(array, op)
        expected[entry.name] = array
        if ops:
            spec[entry.name] = ops
    art, _ = sample.opened()
    view = art.view(spec or None)
    out = view.materialize()
    for name, array in expected.items():
        assert out[name].shape == array.shape
        assert out[name].tobytes() == array.tobytes()
    # One crop per tensor says the same, and so has the same id.
    single = {
        name: crop(
            *(
                slice(b.start, b.start + (b.length - 1) * b.step + 1, b.step) if b.length else slice(None)
                for b in s.bounds
            ),
            order=s.order,
        )
        for name, s in view.normal.selections
    }
    if single:
        assert normalize(sample.index, single) == view.normal
        assert art.view(single).view_id == view.view_id


def slice_of(bound: Bound) -> slice:
    last = bound.start + (bound.length - 1) * bound.step
    return slice(bound.start, last + 1, bound.step) if bound.length else slice(None)


ART = open_arrays({"t": np.arange(24).reshape(2, 3, 4)})


@pytest.mark.parametrize(
    ("ops", "same"),
    [
        ([transpose(0, 1), transpose(0, 1)], None),
        ([transpose(0, 1), transpose(1, 2), transpose(0, 1)], [transpose(0, 2)]),
        ([narrow(2, 1, 3), narrow(2, 1, 1)], [narrow(2, 2, 1)]),
        ([transpose(0, 2), narrow(0, 1, 2), transpose(0, 2)], [narrow(2, 1, 2)]),
        ([narrow(1, 0, 3), transpose(0, 1)], [transpose(0, 1)]),
        ([crop(slice(0, 2), slice(0, 3), slice(0, 4, 2)), narrow(2, 1, 1)], [narrow(2, 2, 1)]),
    ],
)
def test_operations_that_version_1_can_express_have_its_id(ops: list[Any], same: list[Any] | None) -> None:
    expected = None if same is None else ART.view({"t": same}).view_id
    assert ART.view({"t": ops}).view_id == expected


def test_every_integer_of_numpy_is_an_integer() -> None:
    plain = ART.view({"t": [narrow(1, 1, 2)]}, names=["t"])
    kinds: list[Any] = [np.int8, np.int64, np.uint16, np.array]
    for number in kinds:
        view = ART.view({"t": [narrow(number(1), number(1), number(2))]})
        assert view.view_id == plain.view_id
        np.testing.assert_array_equal(ART["t"][number(1), number(0) : number(2)].numpy(), ART["t"].numpy()[1, :2])
        with ART.deferred() as deferred:
            got = deferred.slice("t", number(0), number(1), number(1))
            deferred.commit()
        np.testing.assert_array_equal(got, ART["t"].numpy()[1:2])
        memory = np.zeros(400, np.uint8)
        out = ART.view().materialize_into(memory, layout={"t": number(8)})
        np.testing.assert_array_equal(out["t"], ART["t"].numpy())


@pytest.mark.parametrize(
    "ops",
    [
        [narrow(0, 0, 1), narrow(0, 0, 2)],
        [narrow(2, 1, 3), transpose(0, 2), narrow(0, 3, 1)],
        [Narrow(0, True, 1)],
        [Narrow(0, 0.0, 1)],  # type: ignore[arg-type]
        [Narrow(0, np.float64(0), 1)],  # type: ignore[arg-type]
        [Narrow(0, np.bool_(False), 1)],  # type: ignore[arg-type]
        [Transpose("0", 1)],  # type: ignore[arg-type]
        [crop(slice(None, "2"))],
        [crop(slice(0, 1)), "narrow"],
    ],
)
def test_an_operation_outside_of_the_result_so_far_is_refused(ops: list[Any]) -> None:
    with pytest.raises(BadInputError):
        ART.view({"t": ops})


def test_a_shape_of_numpy_integers_has_the_same_index() -> None:
    shape: Any = (np.int64(2), np.uint8(3))
    index = pack_index({"a": ("torch.int8", shape)})
    assert encode_index(index) == encode_index(pack_index({"a": ("torch.int8", (2, 3))}))
    with pytest.raises(BadInputError):
        pack_index({"a": ("torch.int8", (2.0,))})  # type: ignore[dict-item]
