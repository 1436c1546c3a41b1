"""Pictures that lie sorted by class, shuffled with a cache that holds a quarter of them: how mixed are the batches?

Mixed is measured by the entropy of the labels in a batch, against what a full shuffle would give. What it costs is
counted in requests, against the same arm reading in order.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.harness.timing import Effort, Finding, Report, megabytes, seconds
from benchmarks.streams.images import CLASSES, Pictures, pictures
from benchmarks.streams.peers import OURS, peer_versions
from benchmarks.streams.testbed import MakeSpec, Source, Stage, Turn, last_line, lost_and_repeated, open_stage

__all__ = ["run"]

_BATCH = 64
_MIXED = 0.98
_REQUESTS = 1.3
_TRIALS = 5
_NEEDS_SMALL_SHARDS = "mosaicml-streaming"


def run(effort: Effort) -> Report:
    drawn = pictures(400 if effort.quick else 8_000)
    limit_bytes = drawn.size_bytes // 4
    ideal = _ideal(drawn)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source.of(drawn), without=(_NEEDS_SMALL_SHARDS,))
        for peer in (peer for peer in stage.peers if peer.name == _NEEDS_SMALL_SHARDS):
            specs[peer.name] = stage.prepare(peer, replace(Source.of(drawn), shard_bytes=limit_bytes // 6))
            notes.append(f"{peer.name} wants a cache of four shards at least, so its shards are cut smaller here.")
        findings = []
        for arm, make in specs.items():
            try:
                in_order = _epoch(stage, drawn, arm, make, limit_bytes, shuffle=False)
                shuffled = _epoch(stage, drawn, arm, make, limit_bytes, shuffle=True)
            except RuntimeError as error:
                notes.append(f"{arm} does not score: {last_line(error)}")
                continue
            findings += _findings(arm, drawn, in_order, shuffled, ideal)
        return Report(
            "S5: sorted data under a small cache",
            f"{drawn.count:,} JPEGs in {CLASSES} classes that lie one after another; a cache of at most "
            f"{megabytes(limit_bytes)} of {megabytes(drawn.size_bytes)}; {stage.distance}; one epoch each.",
            findings,
            [*notes, f"A full shuffle has {ideal:.3f} bits in a batch of {_BATCH}.", peer_versions(stage.peers)],
            is_timed=False,
        )


def _findings(arm: str, drawn: Pictures, in_order: Turn, shuffled: Turn, ideal: float) -> list[Finding]:
    mixed = _entropy(shuffled.answer["batches"], drawn.label) / ideal
    times = shuffled.request_count / max(in_order.request_count, 1)
    is_ours = arm == OURS
    told = f"{mixed:.3f} of ideal; {shuffled.request_count:,} requests, {megabytes(shuffled.fetched_bytes)}"
    told += f", {seconds(shuffled.answer['took_s'])}"
    return [
        Finding(
            case=f"{arm}: entropy of a batch, against a full shuffle",
            ours=told if is_ours else "",
            peer="" if is_ours else told,
            ratio=f"{mixed:.3f}",
            target=f"≥ {_MIXED}" if is_ours else "",
            is_met=mixed >= _MIXED if is_ours else None,
        ),
        Finding(
            case=f"{arm}: requests, against reading in order",
            ours=f"{shuffled.request_count:,} / {in_order.request_count:,}" if is_ours else "",
            peer="" if is_ours else f"{shuffled.request_count:,} / {in_order.request_count:,}",
            ratio=f"{times:.2f}×",
            target=f"≤ {_REQUESTS}×" if is_ours else "",
            is_met=times <= _REQUESTS if is_ours else None,
        ),
    ]


def _epoch(stage: Stage, drawn: Pictures, arm: str, make: MakeSpec, limit_bytes: int, *, shuffle: bool) -> Turn:
    spec = replace(make(stage.fresh_cache()), cache_limit_bytes=limit_bytes, shuffle=shuffle, batch_size=_BATCH)
    with stage.start(arm) as child:
        turn = stage.turn(child, spec)
    if turn.failure:
        raise RuntimeError(turn.failure)
    lost, repeated = lost_and_repeated(turn.ids, range(drawn.count))
    if lost or repeated:
        raise RuntimeError(f"{lost} samples lost, {repeated} repeated")
    return turn


def _entropy(batches: Sequence[Sequence[int]], label: Callable[[int], int]) -> float:
    """Bits, on average over the whole batches."""
    whole = [batch for batch in batches if len(batch) == _BATCH]
    return statistics.fmean(_bits(Counter(map(label, batch))) for batch in whole)


def _bits(counts: Counter[int]) -> float:
    total = counts.total()
    return -sum(count / total * math.log2(count / total) for count in counts.values())


def _ideal(drawn: Pictures) -> float:
    """The average over a few full shuffles."""
    rng, numbers, found = random.Random(5), list(range(drawn.count)), []
    for _ in range(_TRIALS):
        rng.shuffle(numbers)
        batches = [numbers[at : at + _BATCH] for at in range(0, len(numbers), _BATCH)]
        found.append(_entropy(batches, drawn.label))
    return statistics.fmean(found)
