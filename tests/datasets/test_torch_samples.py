"""Samples for a DataLoader of the caller. If this failed, workers would train on samples twice, or never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import warpdata as wd

torch = pytest.importorskip("torch")

ROWS = 300


@pytest.fixture
def dataset(tmp_path: Path) -> wd.Dataset:
    rows = pa.table(
        {
            "number": range(ROWS),
            "label": [("cat", "dog", "bird")[number % 3] for number in range(ROWS)],
            "emb": pa.FixedSizeListArray.from_arrays(pa.array(range(2 * ROWS), pa.float32()), 2),
        }
    )
    wd.DatasetBuilder("acme/samples", tmp_path.as_uri()).add_table("main", rows).publish()
    return wd.dataset("acme/samples", store=tmp_path.as_uri())


def _double(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "double": 2 * sample["number"]}


def _read(samples: Any, workers: int) -> list[tuple[int, int, str]]:
    loader = torch.utils.data.DataLoader(samples, batch_size=64, num_workers=workers)
    out: list[tuple[int, int, str]] = []
    for batch in loader:
        assert batch["emb"].shape == (len(batch["label"]), 2)
        out += zip(batch["number"].tolist(), batch["double"].tolist(), batch["label"], strict=True)
    return out


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_each_sample_of_the_filter_once(dataset: wd.Dataset, workers: int) -> None:
    condition = wd.Filter.And([wd.Filter.Where("label", "==", "cat"), wd.Filter.Where("number", "<", 200)])
    samples = dataset.as_iterable_dataset(filter=condition, transform=_double, shuffle=True, seed=42, batch_size=16)
    expected = [(number, 2 * number, "cat") for number in range(0, 200, 3)]
    first = _read(samples, workers)
    assert sorted(first) == expected
    assert first != expected, "shuffled"
    samples.set_epoch(0)
    assert first == _read(samples, workers)
    samples.set_epoch(1)
    second = _read(samples, workers)
    assert sorted(second) == expected
    assert second != first
    assert samples.stats.samples


def test_a_sample_is_a_dict_of_values(dataset: wd.Dataset) -> None:
    first = next(iter(dataset.as_iterable_dataset(columns=["number", "label"])))
    assert first["number"].item() == 0
    assert first["label"] == "cat"
