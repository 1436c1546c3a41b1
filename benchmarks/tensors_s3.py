"""Slices of published tensors over S3 that answers late: what they cost, and how long they take.

A checkpoint of bfloat16 matrices with small tensors between them is published, and lies beside it as one
safetensors file. A proxy lets every answer come 20 ms later and counts. Ours reads a view; one peer fetches the
file with obstore and slices it with safetensors; the other is what somebody would write by hand: the header,
then the ranges of the slices with obstore, several at once. All of them see the same proxy, which is a Python
program and the bottleneck for large transfers, so times compare arms and say nothing about S3. Results are
compared bit by bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import warpdata as wd
from benchmarks.counting_proxy import CountingProxy
from benchmarks.data import scratch
from benchmarks.harness import Arm, Effort, Finding, Report, Timings, interleave, megabytes, seconds
from warpdata.settings import Settings
from warpdata.tensors import TensorSet, View, ViewExplanation
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_LATENCY_S = 0.02
_MOST = 1.1
_DATASET = "bench/model"
_FILE = "model.safetensors"
_BF16 = np.dtype(ml_dtypes.bfloat16)
_Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Case:
    """A part of each matrix: `dim` None means all of it."""

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
    _Case("an eighth along the first axis, every byte checked", 0, verify=True),
    _Case("an eighth along the second axis", 1),
    _Case("everything", None),
)


def run(effort: Effort) -> Report:
    model = _model(256 if effort.quick else 2048, 2 if effort.quick else 12)
    with S3Server() as s3, CountingProxy(s3.endpoint_url, latency_s=_LATENCY_S) as proxy:
        store = s3.url("tensors")
        _publish(model, s3, store)
        through = replace(s3, endpoint_url=proxy.endpoint_url)
        settings = through.settings(cache_dir=scratch("tensors-cache"))
        findings = []
        for case in _CASES:
            findings += _measure(case, model, _Side(store, settings, through), proxy, effort)
        findings.append(_republish(model, s3, store))
    size = sum(array.nbytes for array in model.values())
    return Report(
        "Tensors over S3",
        f"Loopback S3 behind a proxy that adds {_LATENCY_S * 1000:.0f} ms to every answer; {len(model)} tensors, "
        f"{megabytes(size)}; mode `remote`, no cache.",
        findings,
        notes=(
            "The peer by hand is given the names and shapes it needs by the header of the file, which it reads first.",
            "Everything passes through a proxy in Python, which bounds all arms at a few hundred MB/s.",
        ),
    )


def _model(side: int, layers: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for layer in range(layers):
        made[f"layers.{layer:02}.w"] = rng.integers(0, 2**15, (side, 2 * side), np.uint16).view(_BF16)
        made[f"layers.{layer:02}.norm"] = rng.integers(0, 2**15, side, np.uint16).view(_BF16)
    return made


def _publish(model: _Arrays, s3: S3Endpoint, store: str) -> None:
    settings = s3.settings(cache_dir=scratch("tensors-publish"))
    wd.DatasetBuilder(_DATASET, store, settings=settings).add_tensors("weights", model).publish()
    path = scratch("tensors-publish") / _FILE
    wd.dataset(_DATASET, store=store, settings=settings).tensors().save_safetensors(path)
    import obstore

    obstore.put(_bucket(store, s3), _key(store), path)


def _republish(model: dict[str, Any], s3: S3Endpoint, store: str) -> Finding:
    """A checkpoint in which one layer is another."""
    name = next(iter(model))
    changed = {**model, name: (model[name].view(np.uint16) ^ 1).view(_BF16)}
    settings = s3.settings(cache_dir=scratch("tensors-publish"))
    done = wd.DatasetBuilder(_DATASET, store, settings=settings).add_tensors("weights", changed).publish()
    share = done.uploaded_bytes / model[name].nbytes
    return Finding(
        "sent for a version in which one matrix changed",
        f"{megabytes(done.uploaded_bytes)} in {done.uploaded_files} files",
        ratio=f"{share:.3f}× the matrix",
        target=f"≤ {_MOST}×",
        is_met=share <= _MOST,
    )


@dataclass(frozen=True, slots=True)
class _Side:
    store: str
    settings: Settings
    s3: S3Endpoint


def _measure(case: _Case, model: _Arrays, side: _Side, proxy: CountingProxy, effort: Effort) -> list[Finding]:
    art = wd.dataset(_DATASET, store=side.store, mode="remote", settings=side.settings).tensors()
    view = _view(case, art)
    told = view.explain(verify=case.verify)
    proxy.take()
    _check(case, model, view.materialize(verify=case.verify))
    seen = [exchange for exchange in proxy.take() if exchange.status in (200, 206)]
    for arm in (_whole_file, _by_hand):
        _check(case, model, arm(case, side))
    arms: dict[str, Arm] = {
        "ours": lambda: lambda: _bytes(view.materialize(verify=case.verify)),
        "from nothing": lambda: lambda: _bytes(_from_nothing(case, side)),
        "file": lambda: lambda: _bytes(_whole_file(case, side)),
        "by hand": lambda: lambda: _bytes(_by_hand(case, side)),
    }
    return _findings(case, told, [exchange.body_bytes for exchange in seen], interleave(arms, effort.rounds))


def _findings(case: _Case, told: ViewExplanation, sent: list[int], times: Timings) -> list[Finding]:
    share = sum(sent) / told.bytes_kept
    limited = case.dim == 0 and not case.verify
    cost = Finding(
        f"{case.title}: cost",
        f"{len(sent)} requests, {megabytes(sum(sent))}",
        f"{told.requests} requests, {megabytes(told.bytes_read)} told before",
        f"{share:.3f}× what is kept",
        f"as told{f', ≤ {_MOST}×' if limited else ''}",
        (len(sent), sum(sent)) == (told.requests, told.bytes_read) and (not limited or share <= _MOST),
    )
    out = [cost]
    for ours, peer, words in (
        ("ours", "file", "opened, against the whole file and safetensors"),
        ("ours", "by hand", "opened, against ranges by hand"),
        ("from nothing", "file", "from nothing, against the whole file and safetensors"),
    ):
        ratio = f"{times.speed_ratio(ours, peer):.2f} ({times.spread(ours, peer)})"
        mine, theirs = (seconds(times.median_s(arm)) for arm in (ours, peer))
        out.append(Finding(f"{case.title}: {words}", mine, theirs, ratio))
    return out


def _view(case: _Case, art: TensorSet) -> View:
    spec = {}
    for entry in art.index:
        if case.dim is not None and len(entry.shape) == 2:
            part = case.part(*entry.shape)[case.dim]
            spec[entry.name] = wd.narrow(case.dim, part.start, part.stop - part.start)
    return art.view(spec or None)


def _from_nothing(case: _Case, side: _Side) -> _Arrays:
    art = wd.dataset(_DATASET, store=side.store, mode="remote", settings=side.settings).tensors()
    return _view(case, art).materialize(verify=case.verify)


def _whole_file(case: _Case, side: _Side) -> _Arrays:
    import obstore
    from safetensors import safe_open

    path = Path(scratch("tensors-peer")) / _FILE
    with path.open("wb") as file:
        for chunk in obstore.get(_bucket(side.store, side.s3), _key(side.store)).stream(8 * 2**20):
            file.write(chunk)
    out = {}
    with safe_open(path, "np") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a mapping
            cut = opened.get_slice(name)
            shape = cut.get_shape()
            out[name] = cut[case.part(*shape)] if len(shape) == 2 else cut[:]
    return out


def _by_hand(case: _Case, side: _Side) -> _Arrays:
    """Rows of the first axis are one range; columns of the second are read with all rows between them."""
    import obstore

    bucket, key = _bucket(side.store, side.s3), _key(side.store)
    first = bytes(obstore.get_range(bucket, key, start=0, end=2**16))
    length = int.from_bytes(first[:8], "little")
    header = json.loads(first[8 : 8 + length])
    rows = {name: row for name, row in header.items() if name != "__metadata__"}
    starts, ends = [], []
    for row in rows.values():
        begin, end = row["data_offsets"]
        if len(row["shape"]) == 2 and case.dim == 0:
            part = case.part(*row["shape"])[0]
            begin, end = begin + part.start * row["shape"][1] * 2, begin + part.stop * row["shape"][1] * 2
        starts.append(8 + length + begin)
        ends.append(8 + length + end)
    out = {}
    for (name, row), data in zip(rows.items(), obstore.get_ranges(bucket, key, starts=starts, ends=ends), strict=True):
        array = np.frombuffer(memoryview(data), _BF16)
        if len(row["shape"]) == 2:
            array = array.reshape(-1, row["shape"][1])
            array = np.ascontiguousarray(array[:, case.part(*row["shape"])[1]])
        out[name] = array
    return out


def _bytes(arrays: _Arrays) -> int:
    return sum(array.nbytes for array in arrays.values())


def _check(case: _Case, model: _Arrays, got: _Arrays) -> None:
    assert set(got) == set(model)
    for name, array in model.items():
        want = array[case.part(*array.shape)] if array.ndim == 2 else array
        assert np.array_equal(np.asarray(got[name]).view(np.uint16), np.ascontiguousarray(want).view(np.uint16)), name


def _bucket(store: str, s3: S3Endpoint) -> Any:
    from obstore.store import S3Store

    make: Callable[..., Any] = S3Store
    return make(
        store.removeprefix("s3://").split("/")[0],
        endpoint=s3.endpoint_url,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )


def _key(store: str) -> str:
    return "/".join([*store.removeprefix("s3://").split("/")[1:], "peer", _FILE])
