"""A shuffled epoch of JPEGs in batches of 64: cold over a network, then warm from the cache.

Every arm reads the same images in its own format. Each round starts a process per arm, which opens its stream and
reads an epoch with an empty cache, then opens it again and reads another epoch. Imports are not timed. An arm that
loses or repeats a sample, or decodes other pixels, does not score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.harness.timing import RunOptions, Timings, format_bytes, format_seconds
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.images import ImageFiles, make_images
from benchmarks.streams.peers import OURS, UNCACHED, peer_notes
from benchmarks.streams.testbed import (
    MakeSpec,
    StreamRun,
    Testbed,
    common_rounds,
    image_source,
    last_line,
    open_testbed,
    run_in_rounds,
)

__all__ = ["run"]

_NOTES = (
    f"{' and '.join(UNCACHED)} have no local cache here, so they have no warm epoch.",
    "Peers decode in 2 worker processes. warpdata uses its default, threads of one process on the same 2 cores.",
)


def run(options: RunOptions) -> Outcome:
    images = make_images(400 if options.is_smoke else 8_000)
    with open_testbed(options) as testbed:
        specs, notes = testbed.prepare_all(image_source(images))
        arms = _Arms(testbed, images, specs)
        timings, failures = run_in_rounds({arm: arms.prepare(arm) for arm in specs}, options.rounds)
        notes += [f"{arm} does not score: {last_line(failure)}" for arm, failure in failures.items()]
        notes += [arms.describe_traffic(arm) for arm in timings["cold"].by_arm]
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="A shuffled epoch of images",
            method=f"{images.count:,} JPEGs, {format_bytes(images.size_bytes)}; {testbed.distance}; batches of 64, "
            "decoded by Pillow.",
            measurements=[
                *_measure("cold", timings["cold"], images.count),
                *_measure("warm", timings["warm"], images.count),
            ],
            notes=[*notes, *_NOTES, *versions],
            skipped=skipped,
        )


class _Arms:
    def __init__(self, testbed: Testbed, images: ImageFiles, specs: Mapping[str, MakeSpec]) -> None:
        self._testbed = testbed
        self._images = images
        self._specs = specs
        self._digest: int | None = None
        self._cold: dict[str, StreamRun] = {}

    def prepare(self, arm: str) -> Callable[[], Mapping[str, float]]:
        def read() -> Mapping[str, float]:
            spec = self._specs[arm](self._testbed.fresh_cache())
            with self._testbed.start(arm) as worker:
                cold = self._cold[arm] = self._check(self._testbed.read(worker, spec))
                if arm in UNCACHED:
                    return {"cold": cold.answer["took_s"]}
                warm = self._check(self._testbed.read(worker, replace(spec, epoch=1)))
                return {"cold": cold.answer["took_s"], "warm": warm.answer["took_s"]}

        return read

    def describe_traffic(self, arm: str) -> str:
        cold = self._cold[arm]
        return (
            f"{arm}, cold: {cold.request_count:,} requests, {format_bytes(cold.fetched_bytes)}, first batch after "
            f"{format_seconds(cold.answer['first_s'])}."
        )

    def _check(self, run: StreamRun) -> StreamRun:
        run.check_ids(range(self._images.count))
        digest = int(run.answer["digest"])
        self._digest = digest if self._digest is None else self._digest
        if digest != self._digest:
            raise RuntimeError("the pixels differ from those of the first arm")
        return run


def _measure(case: str, timings: Timings, sample_count: int) -> list[Measurement]:
    peers = [arm for arm in timings.by_arm if arm != OURS]
    if not peers:
        return [Measurement(case=case, unit="s", ours=timings.value(OURS, "s"))]
    best = min(peers, key=timings.median_s)
    measurements = []
    for peer in peers:
        rates = [sample_count / timings.median_s(arm) for arm in (OURS, peer)]
        measurements.append(
            common_rounds(timings, OURS, peer).compare(
                case,
                OURS,
                peer,
                unit="s",
                promise=f"epoch-{case}" if peer == best else "",
                detail=f"{rates[0]:,.0f} images/s against {rates[1]:,.0f}",
            )
        )
    return measurements
