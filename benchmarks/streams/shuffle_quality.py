"""Mixing of batches when sorted images are shuffled with a cache that holds a quarter of them.

The measure is the entropy of the labels in a batch, relative to a full shuffle. The cost is the number of requests,
relative to the same arm reading in order.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.harness.timing import RunOptions, format_bytes, format_seconds
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.images import CLASS_COUNT, ImageFiles, make_images
from benchmarks.streams.peers import OURS, peer_notes
from benchmarks.streams.testbed import MakeSpec, StreamRun, Testbed, image_source, last_line, open_testbed

__all__ = ["run"]

_BATCH = 64
_TRIALS = 5
_NEEDS_SMALL_SHARDS = "mosaicml-streaming"


@dataclass(frozen=True, slots=True)
class _Quality:
    entropy: float
    """Share of the entropy of a full shuffle."""
    shuffled: StreamRun
    in_order_requests: int

    @property
    def request_ratio(self) -> float:
        return self.shuffled.request_count / max(self.in_order_requests, 1)

    @property
    def words(self) -> str:
        return (
            f"{self.shuffled.request_count:,} requests, {format_bytes(self.shuffled.fetched_bytes)}, "
            f"{format_seconds(self.shuffled.answer['took_s'])}"
        )


def run(options: RunOptions) -> Outcome:
    images = make_images(400 if options.is_smoke else 8_000)
    limit_bytes = images.size_bytes // 4
    ideal = _full_shuffle_entropy(images)
    found: dict[str, _Quality] = {}
    with open_testbed(options) as testbed:
        source = image_source(images)
        specs, notes = testbed.prepare_all(source, without=(_NEEDS_SMALL_SHARDS,))
        for peer in (peer for peer in testbed.peers if peer.name == _NEEDS_SMALL_SHARDS):
            specs[peer.name] = testbed.prepare(peer, replace(source, shard_bytes=limit_bytes // 6))
            notes.append(f"{peer.name} needs a cache of at least four shards, so its shards are smaller here.")
        for arm, make in specs.items():
            try:
                in_order = _read(testbed, images, arm, make, limit_bytes, shuffle=False)
                shuffled = _read(testbed, images, arm, make, limit_bytes, shuffle=True)
            except RuntimeError as error:
                notes.append(f"{arm} does not score: {last_line(error)}.")
                continue
            entropy = _mean_entropy(shuffled.answer["batches"], images.label) / ideal
            found[arm] = _Quality(entropy, shuffled, in_order.request_count)
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="Shuffle quality of sorted data under a small cache",
            method=f"{images.count:,} JPEGs in {CLASS_COUNT} classes, stored class by class; a cache of at most "
            f"{format_bytes(limit_bytes)} of {format_bytes(images.size_bytes)}; {testbed.distance}; one epoch each.",
            measurements=_measure(found),
            notes=[*notes, f"A full shuffle has {ideal:.3f} bits in a batch of {_BATCH}.", *versions],
            skipped=skipped,
            is_timed=False,
        )


def _measure(found: Mapping[str, _Quality]) -> list[Measurement]:
    ours = found[OURS]
    measurements = [
        Measurement(
            case="entropy of a batch",
            unit="of a full shuffle",
            ours=round(ours.entropy, 3),
            peer=1,
            peer_name="a full shuffle",
            is_baseline=True,
            ratio=round(ours.entropy, 3),
            quantity="entropy",
            detail=ours.words,
            promise="shuffle-entropy",
        ),
        Measurement(
            case="requests of a shuffled epoch",
            unit="requests",
            ours=ours.shuffled.request_count,
            peer=ours.in_order_requests,
            peer_name="in order",
            is_baseline=True,
            ratio=ours.request_ratio,
            quantity="requests",
            promise="shuffle-requests",
        ),
    ]
    for arm, quality in ((arm, quality) for arm, quality in found.items() if arm != OURS):
        measurements.append(
            Measurement(
                case="entropy of a batch",
                unit="of a full shuffle",
                ours=round(ours.entropy, 3),
                peer=round(quality.entropy, 3),
                peer_name=arm,
                ratio=ours.entropy / quality.entropy,
                quantity="entropy",
                detail=f"{arm}: {quality.words}; {quality.request_ratio:.2f}× the requests of reading in order",
            )
        )
    return measurements


def _read(
    testbed: Testbed, images: ImageFiles, arm: str, make: MakeSpec, limit_bytes: int, *, shuffle: bool
) -> StreamRun:
    spec = replace(make(testbed.fresh_cache()), cache_limit_bytes=limit_bytes, shuffle=shuffle, batch_size=_BATCH)
    with testbed.start(arm) as worker:
        return testbed.read(worker, spec).check_ids(range(images.count))


def _mean_entropy(batches: Sequence[Sequence[int]], label: Callable[[int], int]) -> float:
    """Return the mean entropy of the full batches, in bits."""
    full = [batch for batch in batches if len(batch) == _BATCH]
    return statistics.fmean(_entropy(Counter(map(label, batch))) for batch in full)


def _entropy(counts: Counter[int]) -> float:
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def _full_shuffle_entropy(images: ImageFiles) -> float:
    rng, numbers, found = random.Random(5), list(range(images.count)), []
    for _ in range(_TRIALS):
        rng.shuffle(numbers)
        batches = [numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH)]
        found.append(_mean_entropy(batches, images.label))
    return statistics.fmean(found)
