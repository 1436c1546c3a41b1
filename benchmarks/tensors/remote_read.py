"""Slices of published tensors over S3 with latency: requests, bytes and time.

A checkpoint of bfloat16 matrices and small vectors is published, and stored as one safetensors file beside it. A
proxy adds 20 ms to every response and counts. One peer downloads the file with obstore and slices it with
safetensors. The other is hand-written: it reads the header, then the ranges of the slices with obstore, several at
once. All arms use the same Python proxy, which limits large transfers, so the times compare arms only. Results are
compared bit by bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import warpdata as wd
from benchmarks.harness.bare_store import open_bare_store
from benchmarks.harness.data import scratch
from benchmarks.harness.proxy import S3Proxy
from benchmarks.harness.timing import Arm, RunOptions, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from warpdata import Settings
from warpdata.tensors import Explanation, Tensors, View
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_DELAY_S = 0.02
_DATASET = "bench/model"
_FILE = "model.safetensors"
_BF16 = np.dtype(ml_dtypes.bfloat16)
_Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Case:
    """A part of each matrix; `dim` None means all of it."""

    title: str
    dim: int | None
    verify: bool = False

    def part(self, rows: int, columns: int) -> tuple[slice, slice]:
        if self.dim is None:
            return slice(0, rows), slice(0, columns)
        if self.dim == 0:
            return slice(3 * rows // 8, 4 * rows // 8), slice(0, columns)
        return slice(0, rows), slice(3 * columns // 8, 4 * columns // 8)


_CASES = (
    _Case("an eighth along the first axis", 0),
    _Case("an eighth along the first axis, verified", 0, verify=True),
    _Case("an eighth along the second axis", 1),
    _Case("everything", None),
)


@dataclass(frozen=True, slots=True)
class _PublishedModel:
    """Published tensors and the safetensors file beside them, as seen through the proxy."""

    store: str
    settings: Settings
    s3: S3Endpoint

    def open(self) -> Tensors:
        return wd.dataset(_DATASET, store=self.store, mode="remote", settings=self.settings).tensors()

    def bucket(self) -> Any:
        return open_bare_store(self.s3, f"{self.store.removeprefix('s3://').partition('/')[2]}/peer")


def run(options: RunOptions) -> Outcome:
    model = _make_model(256 if options.is_smoke else 2048, 2 if options.is_smoke else 12)
    measurements = []
    with S3Server() as s3, S3Proxy(s3.endpoint_url, delay_s=_DELAY_S) as proxy:
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        settings = through.settings(cache_dir=scratch("tensors-cache"))
        published = _PublishedModel(s3.url("tensors"), settings, through)
        _publish(model, s3, published)
        for case in _CASES:
            measurements += _measure_case(case, model, published, proxy, options)
        measurements.append(_measure_republish(model, s3, published.store))
    size_bytes = sum(array.nbytes for array in model.values())
    return Outcome(
        title="Tensors over S3",
        method=f"Loopback S3 behind a proxy that adds {_DELAY_S * 1000:.0f} ms to every response; {len(model)} "
        f"tensors, {format_bytes(size_bytes)}; mode `remote`, no cache.",
        measurements=measurements,
        notes=(
            "The hand-written peer learns the names and shapes from the header of the file, which it reads first.",
            "The proxy is a Python program and limits all arms to a few hundred MB/s.",
        ),
    )


def _make_model(side: int, layers: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    model: dict[str, Any] = {}
    for layer in range(layers):
        model[f"layers.{layer:02}.w"] = rng.integers(0, 2**15, (side, 2 * side), np.uint16).view(_BF16)
        model[f"layers.{layer:02}.norm"] = rng.integers(0, 2**15, side, np.uint16).view(_BF16)
    return model


def _publish(model: _Arrays, s3: S3Endpoint, published: _PublishedModel) -> None:
    import obstore

    settings = s3.settings(cache_dir=scratch("tensors-publish"))
    wd.DatasetBuilder(_DATASET, published.store, settings=settings).add_tensors("weights", model).publish()
    path = scratch("tensors-publish") / _FILE
    wd.dataset(_DATASET, store=published.store, settings=settings).tensors().save_safetensors(path)
    obstore.put(replace(published, s3=s3).bucket(), _FILE, path)


def _measure_republish(model: dict[str, Any], s3: S3Endpoint, store: str) -> Measurement:
    """Publish a checkpoint in which one matrix differs."""
    name = next(iter(model))
    changed = {**model, name: (model[name].view(np.uint16) ^ 1).view(_BF16)}
    settings = s3.settings(cache_dir=scratch("tensors-publish"))
    done = wd.DatasetBuilder(_DATASET, store, settings=settings).add_tensors("weights", changed).publish()
    return Measurement(
        case="uploaded for a version with one changed matrix",
        unit="MB",
        ours=done.uploaded_bytes / 1e6,
        peer=model[name].nbytes / 1e6,
        peer_name="the matrix",
        is_baseline=True,
        ratio=done.uploaded_bytes / model[name].nbytes,
        quantity="bytes",
        detail=f"{done.uploaded_files} files",
        promise="tensor-republish-bytes",
    )


def _measure_case(
    case: _Case, model: _Arrays, published: _PublishedModel, proxy: S3Proxy, options: RunOptions
) -> list[Measurement]:
    view = _make_view(case, published.open())
    plan = view.explain(verify=case.verify)
    proxy.take()
    _check(case, model, view.materialize(verify=case.verify))
    sent = [exchange.body_bytes for exchange in proxy.take() if exchange.status in (200, 206)]
    for read in (_read_whole_file, _read_ranges):
        _check(case, model, read(case, published))
    arms: dict[str, Arm] = {
        "opened": lambda: lambda: _size(view.materialize(verify=case.verify)),
        "from the name": lambda: lambda: _size(_read_from_name(case, published)),
        "file": lambda: lambda: _size(_read_whole_file(case, published)),
        "ranges": lambda: lambda: _size(_read_ranges(case, published)),
    }
    times = interleave(arms, options.rounds)
    names = {"file": "the whole file and safetensors", "ranges": "hand-written ranges"}
    comparisons = (("opened", "file"), ("opened", "ranges"), ("from the name", "file"))
    return [
        *_measure_traffic(case, plan, sent),
        *(times.compare(f"{case.title}: {arm}", arm, peer, peer_name=names[peer]) for arm, peer in comparisons),
    ]


def _measure_traffic(case: _Case, plan: Explanation, sent: list[int]) -> list[Measurement]:
    sent_mb = sum(sent) / 1e6
    return [
        Measurement(
            case=f"{case.title}: requests",
            unit="requests",
            ours=len(sent),
            peer=plan.requests,
            peer_name="predicted",
            is_baseline=True,
            ratio=len(sent) / plan.requests,
            quantity="requests",
            promise="tensor-plan-requests",
        ),
        Measurement(
            case=f"{case.title}: bytes",
            unit="MB",
            ours=sent_mb,
            peer=plan.bytes_read / 1e6,
            peer_name="predicted",
            is_baseline=True,
            ratio=sum(sent) / plan.bytes_read,
            quantity="bytes",
            promise="tensor-plan-bytes",
        ),
        Measurement(
            case=f"{case.title}: bytes, relative to those kept",
            unit="MB",
            ours=sent_mb,
            peer_name="the bytes kept",
            is_baseline=True,
            ratio=sum(sent) / plan.bytes_kept,
            quantity="bytes",
            promise="tensor-slice-bytes" if case.dim == 0 and not case.verify else "",
        ),
    ]


def _make_view(case: _Case, tensors: Tensors) -> View:
    spec = {}
    for entry in tensors.index:
        if case.dim is not None and len(entry.shape) == 2:
            part = case.part(*entry.shape)[case.dim]
            spec[entry.name] = wd.narrow(case.dim, part.start, part.stop - part.start)
    return tensors.view(spec or None)


def _read_from_name(case: _Case, published: _PublishedModel) -> _Arrays:
    return _make_view(case, published.open()).materialize(verify=case.verify)


def _read_whole_file(case: _Case, published: _PublishedModel) -> _Arrays:
    import obstore
    from safetensors import safe_open

    path = Path(scratch("tensors-peer")) / _FILE
    with path.open("wb") as file:
        for chunk in obstore.get(published.bucket(), _FILE).stream(8 * 2**20):
            file.write(chunk)
    arrays = {}
    with safe_open(path, "np") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a mapping
            tensor = opened.get_slice(name)
            shape = tensor.get_shape()
            arrays[name] = tensor[case.part(*shape)] if len(shape) == 2 else tensor[:]
    return arrays


def _read_ranges(case: _Case, published: _PublishedModel) -> _Arrays:
    """Read rows of the first axis as one range; read columns of the second axis with all bytes between them."""
    import obstore

    bucket = published.bucket()
    first = bytes(obstore.get_range(bucket, _FILE, start=0, end=2**16))
    length = int.from_bytes(first[:8], "little")
    header = json.loads(first[8 : 8 + length])
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    starts, ends = [], []
    for entry in entries.values():
        start, end = entry["data_offsets"]
        if len(entry["shape"]) == 2 and case.dim == 0:
            part, row_bytes = case.part(*entry["shape"])[0], entry["shape"][1] * 2
            start, end = start + part.start * row_bytes, start + part.stop * row_bytes
        starts.append(8 + length + start)
        ends.append(8 + length + end)
    arrays = {}
    pieces = obstore.get_ranges(bucket, _FILE, starts=starts, ends=ends)
    for (name, entry), data in zip(entries.items(), pieces, strict=True):
        array = np.frombuffer(memoryview(data), _BF16)
        if len(entry["shape"]) == 2:
            array = array.reshape(-1, entry["shape"][1])
            array = np.ascontiguousarray(array[:, case.part(*entry["shape"])[1]])
        arrays[name] = array
    return arrays


def _size(arrays: _Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _check(case: _Case, model: _Arrays, found: _Arrays) -> None:
    assert set(found) == set(model)
    for name, array in model.items():
        expected = np.ascontiguousarray(array[case.part(*array.shape)] if array.ndim == 2 else array)
        assert np.array_equal(np.asarray(found[name]).view(np.uint16), expected.view(np.uint16)), name
