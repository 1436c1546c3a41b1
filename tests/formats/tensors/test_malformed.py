"""If this fails, hostile bytes or invalid specs cause a crash, a hang or wrong values instead of an error."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.tensors.artifacts import Sample, samples
from warpdata import errors
from warpdata.errors import (
    BadInputError,
    CorruptError,
    PartialCoverageDetail,
    UnsupportedError,
)
from warpdata.formats.tensors.dtypes import dtype_named
from warpdata.tensors import (
    Crop,
    Narrow,
    ReadCost,
    TensorEntry,
    TensorIndex,
    Transpose,
    crop,
    encode_index,
    make_plan,
    narrow,
    normalize,
    pack_index,
    parse_index,
    transpose,
)

ROW = [0, 16, [2, 2], [2, 1], "torch.float32", 0]


def spelled(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def changed(at: int, value: Any) -> bytes:
    return spelled({"a": [*ROW[:at], value, *ROW[at + 1 :]]})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b'{"a":',
        b"\xff\xfe",
        b'{"a":[0,16,[2,2],[2,1],"torch.float32",0],"a":[0,16,[2,2],[2,1],"torch.float32",0]}',
        b'{"a": [0,16,[2,2],[2,1],"torch.float32",0]}',
        b'{"a":[0,16,[2,2],[2,1],"torch.float32",0]}\n',
        b'{"\\u0061":[0,16,[2,2],[2,1],"torch.float32",0]}',
        b'{"\\ud800":[0,16,[2,2],[2,1],"torch.float32",0]}',
        spelled({"b": ROW, "a": [16, *ROW[1:]]}),
        spelled({"": ROW}),
        spelled({"n" * 5000: ROW}),
        spelled({"a": ROW[:5]}),
        spelled({"a": [*ROW, 0]}),
        spelled({"a": {}}),
        changed(0, 4),
        changed(0, -8),
        changed(0, 0.0),
        changed(0, True),
        changed(0, "0"),
        changed(0, 2**60),
        changed(1, 15),
        changed(1, -1),
        changed(1, 2**53),
        changed(2, [2, -2]),
        changed(2, [2, 3]),
        changed(2, [2]),
        changed(2, [2**40, 2**40]),
        changed(2, 4),
        changed(2, [1] * 33),
        changed(3, [2, -1]),
        changed(3, [3, 1]),
        changed(3, [2, 1, 1]),
        changed(3, [2.0, 1]),
        changed(3, None),
        changed(4, "float32"),
        changed(4, "torch.float128"),
        changed(4, 4),
        changed(5, 1),
        changed(5, -1),
        changed(5, None),
        spelled({"a": ROW, "b": [8, *ROW[1:]]}),
        spelled({"a": ROW, "b": [0, 24, *ROW[2:]]}),
    ],
)
def test_every_rule_of_the_index_is_checked(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_index(data)


def test_all_problems_are_reported() -> None:
    with pytest.raises(CorruptError) as caught:
        parse_index(spelled({"a": [4, *ROW[1:]], "b": [12, *ROW[1:]]}))
    assert len(caught.value.problems) == 2


INDEX = pack_index({"s": ("torch.int8", ()), "t": ("torch.float32", (4, 5)), "z": ("torch.int8", (0, 3))})


@pytest.mark.parametrize(
    "spec",
    [
        {},
        None,
        [],
        {"x": narrow(0, 0, 1)},
        {3: narrow(0, 0, 1)},
        {"t": None},
        {"t": "narrow"},
        {"t": [3]},
        {"t": [narrow(0, 0, 4)] * 65},
        {"t": narrow(2, 0, 1)},
        {"t": narrow(-3, 0, 1)},
        {"t": narrow(0, 0, 0)},
        {"t": narrow(0, 0, -1)},
        {"t": narrow(0, 4, 1)},
        {"t": narrow(0, -5, 1)},
        {"t": narrow(0, 3, 2)},
        {"t": Narrow(True, 0, 1)},
        {"t": Narrow(0, 0.0, 1)},  # type: ignore[arg-type]
        {"t": Narrow("0", 0, 1)},  # type: ignore[arg-type]
        {"t": [narrow(0, 0, 2), narrow(0, 2, 1)]},
        {"t": [transpose(0, 1), narrow(0, 0, 6)]},
        {"t": [crop(slice(0, 2)), crop(slice(0, 3))]},
        {"t": transpose(0, 2)},
        {"t": transpose(-3, 0)},
        {"t": Transpose(None, 0)},  # type: ignore[arg-type]
        {"s": transpose(0, 0)},
        {"s": narrow(0, 0, 1)},
        {"z": narrow(0, 0, 1)},
        {"z": narrow(0, 0, 0)},
        {"t": crop(slice(0, 5))},
        {"t": crop(slice(2, 2))},
        {"t": crop(slice(3, 1))},
        {"t": crop(slice(-9, 2))},
        {"t": crop(slice(0, 4, -1))},
        {"t": crop(slice(0, 4, 0))},
        {"t": crop(slice("a", 4))},
        {"t": Crop((3,))},  # type: ignore[arg-type]
        {"t": crop(slice(None), slice(None), slice(None))},
        {"t": crop(order=(0,))},
        {"t": crop(order=(0, 0))},
        {"t": crop(order=(0, 2))},
        {"s": crop(slice(0, 1))},
        {"z": crop(slice(0, 1))},
    ],
)
def test_every_rule_of_specs_is_checked(spec: Any) -> None:
    with pytest.raises(BadInputError) as caught:
        normalize(INDEX, spec)
    assert caught.value.status == "INVALID_ARGUMENT"


def _mangled_bytes(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(3):
            case 0:
                out[at:at] = bytes([chance.choice(b'0123456789-.,:[]{}"eE \\untf\x00\xff')])
            case 1:
                del out[at : at + chance.randint(1, 3)]
            case _:
                out[at : at + 1] = bytes([chance.randrange(256)])
    return bytes(out)


_JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    8,
    2**31,
    2**53,
    2**64,
    2**200,
    0.5,
    "",
    "torch.int8",
    [],
    [0],
    [-1],
    {},
    [[]],
)


def _mangled_rows(chance: random.Random, data: bytes) -> bytes:
    rows = json.loads(data)
    for _ in range(chance.randint(1, 3)):
        row = rows.get(chance.choice(list(rows)))
        if not isinstance(row, list) or not row:
            continue
        at = chance.randrange(len(row))
        if isinstance(row[at], list) and row[at] and chance.random() < 0.6:
            row[at][chance.randrange(len(row[at]))] = copy.deepcopy(chance.choice(_JUNK))
        else:
            row[at] = copy.deepcopy(chance.choice(_JUNK))
    return spelled(rows)


def mangle_indexes(count: int, seed: int) -> int:
    """Corrupt an index `count` times and return the number of rejections. Accepted bytes must be a valid index."""
    chance = random.Random(seed)
    good = encode_index(
        TensorIndex(
            (
                *pack_index(
                    {"a": ("torch.float32", (3, 4)), "b": ("torch.int8", (7,)), "ü": ("torch.bool", ())}
                ).entries,
                TensorEntry("ý", 0, 48, (2, 2), (1, 4), dtype_named("torch.float32"), 2),
            )
        )
    )
    rejected = 0
    for _ in range(count):
        data = (_mangled_bytes if chance.random() < 0.5 else _mangled_rows)(chance, good)
        try:
            index = parse_index(data)
        except CorruptError:
            rejected += 1
        else:
            assert encode_index(index) == data
    return rejected


def mangle_specs(count: int, seed: int) -> int:
    """Try `count` invalid specs and return the number of rejections. Accepted specs must have a plan."""
    chance = random.Random(seed)
    numbers = (None, -7, -2, -1, 0, 1, 2, 3, 4, 5, 6, 2**40, 2**70, 1.5, "1", True)

    def number() -> Any:
        return chance.choice(numbers)

    def op() -> Any:
        match chance.randrange(6):
            case 0 | 1:
                return Narrow(number(), number(), number())
            case 2:
                return Transpose(number(), number())
            case 3:
                slices = tuple(slice(number(), number(), number()) for _ in range(chance.randrange(4)))
                return Crop(slices, chance.choice([None, (0, 1), (1, 0), (0,), (0, 5), (1, 1)]))
            case 4:
                return number()
            case _:
                return [op() for _ in range(chance.randrange(3))]

    rejected = 0
    for _ in range(count):
        spec: Any = {chance.choice(["s", "t", "z", "absent", 3]): op() for _ in range(chance.randrange(3))}
        try:
            view = normalize(INDEX, spec)
        except BadInputError:
            rejected += 1
        else:
            assert make_plan(INDEX, view).size >= 0
    return rejected


@pytest.mark.parametrize("seed", range(4))
def test_corrupt_indexes_and_invalid_specs_raise_typed_errors(seed: int) -> None:
    assert mangle_indexes(500, seed) > 400
    assert mangle_specs(500, seed) > 350


@pytest.mark.soak
def test_ten_thousand_corrupt_indexes_and_invalid_specs() -> None:
    assert mangle_indexes(13_000, 99) > 10_000
    assert mangle_specs(13_000, 99) > 10_000


@given(st.binary(max_size=60))
def test_any_bytes_are_an_index_or_rejected(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        assert encode_index(parse_index(data)) == data


@given(st.data(), samples(min_tensors=1))
def test_a_constructed_index_is_checked_like_a_parsed_one(data: st.DataObject, sample: Sample) -> None:
    entry = data.draw(st.sampled_from(sample.index.entries))
    twice = (*sample.index.entries, entry)
    with pytest.raises(BadInputError):
        TensorIndex(twice)
    with pytest.raises(BadInputError):
        TensorIndex((TensorEntry(entry.name, entry.offset + 4, entry.size, entry.shape, entry.stride, entry.dtype),))


def test_other_invalid_values() -> None:
    with pytest.raises(UnsupportedError):
        pack_index({"a": ("torch.quint8", (2,))})
    for bad in ((-1, 5), (0, 0)):
        with pytest.raises(BadInputError):
            ReadCost(*bad)


def test_errors_keep_their_detail_across_processes() -> None:
    detail = PartialCoverageDetail("canonical", "bciq", ((0, 8),))
    error = errors.PartialCoverageError("gone", detail=detail)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert again.detail == detail
    assert isinstance(error, OSError)
    corrupt = pickle.loads(pickle.dumps(errors.CorruptError("bad", problems=("a",))))  # noqa: S301
    assert corrupt.problems == ("a",)
    assert errors.UnsupportedError.status == "FAILED_PRECONDITION"
