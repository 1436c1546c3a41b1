"""If this fails, a histogram, an extreme or a difference of tensors is not that of their elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warpdata import tensors
from warpdata.errors import BadInputError, LimitExceededError, UnsupportedError
from warpdata.formats.tensors import Extent, TensorSet, compare_tensors, describe_tensor, open_sources, write_tensors
from warpdata.formats.tensors.dtypes import dtype_named
from warpdata.storage import FileRangeSource

RNG = np.random.default_rng(5)


def written(tmp_path: Path, arrays: dict[str, Any], name: str = "a.tensors") -> TensorSet:
    return write_tensors(tmp_path / name, arrays)


def test_statistics_are_those_of_numpy(tmp_path: Path) -> None:
    values = RNG.normal(2, 3, (300, 700)).astype(np.float32)
    values[0, :4] = [np.nan, np.inf, -np.inf, 0]
    art = written(tmp_path, {"w": values})
    found = describe_tensor(art, "w")
    finite = values[np.isfinite(values)].astype(np.float64)
    assert (found.element_count, found.read_count, found.is_sampled) == (values.size, values.size, False)
    assert (found.nan_count, found.infinite_count) == (1, 2)
    assert found.zero_count == int((values == 0).sum())
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(finite.mean())
    assert found.std == pytest.approx(finite.std())
    counts, edges = np.histogram(finite, 64)
    assert list(found.counts) == counts.tolist()
    assert list(found.edges) == pytest.approx(edges.tolist())


@pytest.mark.parametrize(
    "values",
    [
        np.array([[True, False], [True, True]]),
        np.arange(-5, 7, dtype=np.int64),
        np.full(3, 7, np.uint8),
        np.arange(12, dtype=np.float16).reshape(3, 4),
        np.float64(4.5),
    ],
)
def test_every_type_of_numbers_is_described(tmp_path: Path, values: Any) -> None:
    found = describe_tensor(written(tmp_path, {"w": np.asarray(values)}), "w")
    assert found.mean == pytest.approx(np.asarray(values, np.float64).mean())
    assert sum(found.counts) == np.asarray(values).size


def test_bfloat16_needs_no_other_library(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0xC000, 0x7FC0, 0x7F80], np.uint16)  # 1, -2, NaN, infinity
    index = tensors.pack_index({"w": ("torch.bfloat16", [4])})
    path = tmp_path / "bits"
    path.write_bytes(bits.tobytes())
    found = describe_tensor(open_sources(index, [FileRangeSource(path)], [Extent(0, 8, 0, 0)]), "w")
    assert (found.minimum, found.maximum, found.nan_count, found.infinite_count) == (-2, 1, 1, 1)


def test_a_large_tensor_is_sampled_over_its_whole_length_and_says_so(tmp_path: Path) -> None:
    values = np.arange(3_000_000, dtype=np.float32)
    art = written(tmp_path, {"a": np.zeros(100_003, np.uint8), "w": values})
    found = describe_tensor(art, "w", max_bytes=2 << 20)
    assert found.is_sampled
    assert found.read_bytes == found.read_count * 4 <= 2 << 20
    assert found.read_count > 300_000
    assert found.minimum is not None
    assert found.maximum is not None
    assert found.minimum == 0
    assert found.maximum == values[-1]
    assert sum(found.counts) == found.read_count


def test_empty_and_infinite_tensors_have_no_extremes(tmp_path: Path) -> None:
    art = written(tmp_path, {"empty": np.zeros((0, 4)), "nan": np.full(3, np.nan)})
    for name in ("empty", "nan"):
        found = describe_tensor(art, name)
        assert (found.minimum, found.mean, found.std, found.edges, found.counts) == (None, None, None, (), ())
    assert describe_tensor(art, "nan").nan_count == 3


def test_what_cannot_be_described_is_refused(tmp_path: Path) -> None:
    values = np.arange(6000, dtype=np.float32).reshape(60, 100)
    path = tmp_path / "turned"
    path.write_bytes(values.tobytes())
    entry = tensors.TensorEntry("turned", 0, 24_000, (100, 60), (1, 100), dtype_named("torch.float32"))
    art = open_sources(tensors.TensorIndex((entry,)), [FileRangeSource(path)], [Extent(0, 24_000, 0, 0)])
    assert describe_tensor(art, "turned").mean == values.mean(dtype=np.float64)
    assert compare_tensors(art, "turned", tensors.open_arrays({"w": values.T}), "w").norm == 0
    with pytest.raises(LimitExceededError, match="not stored row by row"):
        describe_tensor(art, "turned", max_bytes=1000)
    with pytest.raises(BadInputError, match="bins=0"):
        describe_tensor(art, "turned", bins=0)
    with pytest.raises(UnsupportedError, match="complex"):
        describe_tensor(tensors.open_arrays({"complex": np.zeros(3, np.complex64)}), "complex")


def test_a_difference_is_that_of_the_elements(tmp_path: Path) -> None:
    one = RNG.normal(0, 1, (40, 50)).astype(np.float32)
    two = one.copy()
    two[3, :7] += 0.5
    two[9, 9] = one[9, 9] = np.nan
    first, second = written(tmp_path, {"w": one}), written(tmp_path, {"w": two}, "b.tensors")
    found = compare_tensors(first, "w", second, "w")
    delta = np.abs(two.astype(np.float64) - one)[np.isfinite(one)]
    assert found.changed_count == 7
    assert found.max_absolute == delta.max()
    assert found.mean_absolute == pytest.approx(delta.mean())
    assert found.norm == pytest.approx(np.linalg.norm(delta))
    assert found.relative == pytest.approx(np.linalg.norm(delta) / np.linalg.norm(one[np.isfinite(one)]))
    assert compare_tensors(first, "w", first, "w").norm == 0
    with pytest.raises(BadInputError, match="shape"):
        compare_tensors(first, "w", written(tmp_path, {"w": one.T.copy()}, "c.tensors"), "w")


def test_a_difference_of_large_tensors_compares_the_same_elements(tmp_path: Path) -> None:
    values = RNG.normal(0, 1, 3_000_000).astype(np.float32)
    first = written(tmp_path, {"w": values})
    second = written(tmp_path, {"a": np.zeros(99_999, np.uint8), "w": values}, "b.tensors")
    found = compare_tensors(first, "w", second, "w", max_bytes=2 << 20)
    assert found.is_sampled
    assert (found.changed_count, found.norm) == (0, 0)
