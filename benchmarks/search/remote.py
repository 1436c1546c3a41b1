"""The first search of a process over S3 with latency, by vectors and under filters, beside Lance.

The clock runs from an opened dataset without anything in memory or in a cache to the numbers of the rows. Round trips
are found by the growth of that time with the latency of a proxy, so requests at the same time count once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from benchmarks.harness.data import scratch
from benchmarks.harness.proxy import S3Proxy
from benchmarks.harness.timing import RunOptions, Timings, format_bytes, interleave
from benchmarks.results import Measurement, Outcome
from benchmarks.search.vectors import DATASET, SELECTIVITIES, K, Vectors, build_lance, find_fewest, search_lance
from warpdata import Dataset, DatasetBuilder, dataset
from warpdata.formats.indexes import forget_groups
from warpdata.search.search_memory import search_memory
from warpdata.testing import S3Endpoint, S3Server

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["run"]

_LONG_DELAY_S = 0.25
_NOTE = "Index of vectors: {size}. Recall of ours: {recalls}."


@dataclass(frozen=True)
class _Cloud:
    """A published dataset as seen through a proxy."""

    s3: S3Endpoint
    proxy: S3Proxy
    data: Vectors
    index_bytes: int

    def open_ours(self) -> Dataset:
        """Open the dataset as a process without caches does."""
        forget_groups()
        search_memory(0).clear()
        settings = self.s3.settings(cache_dir=scratch("search-cache") / str(next(_numbers)), mode="remote")
        opened = dataset(DATASET, store=self.s3.url("vectors"), settings=settings)
        opened.table().schema()
        return opened

    def ours(self, selectivity: float) -> Callable[[], Callable[[], int]]:
        queries = (self.data.queries[number % len(self.data.queries)] for number in count())

        def begin() -> Callable[[], int]:
            opened, query = self.open_ours(), next(queries)
            return lambda: len(_search(opened, query, selectivity))

        return begin

    def lance(self, selectivity: float, probes: int) -> Callable[[], Callable[[], int]]:
        queries = (self.data.queries[number % len(self.data.queries)] for number in count())

        def begin() -> Callable[[], int]:
            opened, query = _open_lance(self.s3), next(queries)
            search = search_lance(opened, probes)
            return lambda: len(search(query, selectivity))

        return begin


_numbers = count()


def run(options: RunOptions) -> Outcome:
    data = Vectors.make(10_000 if options.is_smoke else 200_000)
    measurements: list[Measurement] = []
    recalls: list[str] = []
    with S3Server() as s3:
        index_bytes = _publish(s3, data)
        probes = None if options.is_smoke else _prepare_lance(s3, data)
        with S3Proxy(s3.endpoint_url, delay_s=options.latency_s) as proxy:
            cloud = _Cloud(replace(s3, endpoint_url=proxy.endpoint_url), proxy, data, index_bytes)
            for selectivity in SELECTIVITIES:
                case = f"first search, {selectivity:.1%} of the rows"
                measurements += _measure(cloud, case, selectivity, probes, options)
                search = partial(_search, cloud.open_ours())
                recalls.append(f"{data.recall(search, selectivity):.3f}")
    return Outcome(
        title="First search over S3",
        method=f"{len(data.vectors):,} vectors of {data.vectors.shape[1]} numbers; k = {K}; "
        f"{options.latency_s * 1000:g} ms for each request; mode `remote`.",
        measurements=measurements,
        notes=[_NOTE.format(size=format_bytes(index_bytes), recalls=", ".join(recalls))],
    )


def _measure(
    cloud: _Cloud, case: str, selectivity: float, probes: dict[float, int] | None, options: RunOptions
) -> list[Measurement]:
    cloud.proxy.take()
    begin = cloud.ours(selectivity)()
    cloud.proxy.take()
    begin()
    taken = cloud.proxy.take()
    fetched = sum(each.body_bytes for each in taken)
    out = [
        Measurement(
            case=case,
            unit="% of the index",
            ours=100 * fetched / cloud.index_bytes,
            quantity="bytes",
            promise="search-cold-bytes",
            detail=f"{format_bytes(fetched)} in {len(taken)} requests",
        ),
        Measurement(
            case=case,
            unit="round trips",
            ours=_round_trips(cloud, selectivity),
            quantity="requests",
            promise="search-cold-trips",
        ),
    ]
    arms = {"ours": cloud.ours(selectivity)}
    if probes is not None and selectivity in probes:
        arms["lance"] = cloud.lance(selectivity, probes[selectivity])
    timings: Timings = interleave(arms, options.rounds)
    if "lance" in arms:
        out.append(timings.compare(case, "ours", "lance", peer_name="Lance", promise="search-cold-lance"))
    return out


def _round_trips(cloud: _Cloud, selectivity: float) -> float:
    """Return the time of a search with a long latency, in latencies, above that of one with none."""
    delay_s, took = cloud.proxy.delay_s, []
    for cloud.proxy.delay_s in (0.0, _LONG_DELAY_S):
        search = cloud.ours(selectivity)()
        start = time.perf_counter()
        search()
        took.append(time.perf_counter() - start)
    cloud.proxy.delay_s = delay_s
    return round((took[1] - took[0]) / _LONG_DELAY_S)


def _search(opened: Dataset, query: NDArray[np.float32], selectivity: float) -> Sequence[int]:
    where = None if selectivity == 1 else f"key < {selectivity}"
    found: list[int] = opened.search(near=("emb", query), k=K, filter=where, columns=[]).row_numbers.tolist()
    return found


def _publish(s3: S3Endpoint, data: Vectors) -> int:
    settings = s3.settings(cache_dir=scratch("search-publish"))
    DatasetBuilder(DATASET, s3.url("vectors"), settings=settings).add_table("main", data.table()).publish()
    opened = dataset(DATASET, store=s3.url("vectors"), settings=settings).create_index("main", "emb", kind="ivf")
    opened = opened.create_index("main", "key", kind="btree")
    return next(index.size_bytes for index in opened.indexes() if index.kind == "ivf")


def _prepare_lance(s3: S3Endpoint, data: Vectors) -> dict[float, int] | None:
    """Write the rows for Lance. Return the probes with which it reaches the recall, by selectivity."""
    try:
        opened = build_lance(data, s3.url("lance") + "/rows.lance", _options(s3))
    except ImportError:
        return None
    out = {}
    for selectivity in SELECTIVITIES:
        found = find_fewest(data, selectivity, lambda probes: search_lance(opened, probes))
        if found is not None:
            out[selectivity] = found
    return out


def _open_lance(s3: S3Endpoint) -> Any:
    import lance  # type: ignore[import-not-found, unused-ignore]

    return lance.dataset(s3.url("lance") + "/rows.lance", storage_options=_options(s3))


def _options(s3: S3Endpoint) -> dict[str, str]:
    return {
        "aws_access_key_id": s3.access_key_id,
        "aws_secret_access_key": s3.secret_access_key,
        "aws_endpoint": s3.endpoint_url,
        "aws_region": "us-east-1",
        "allow_http": "true",
    }
