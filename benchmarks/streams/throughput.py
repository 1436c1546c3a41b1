"""A shuffled epoch of JPEGs, in batches of 64 by 2 workers: from cold over a network, and again from the cache.

Every arm reads the same pictures in its own format. One process for each turn: it opens its stream and reads an
epoch with an empty cache (cold), then opens it again and reads another one (warm). What it imports is not timed.
An arm that loses or repeats a sample, or shows other pixels, does not score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from benchmarks.harness.timing import Effort, Finding, Report, Timings, megabytes, seconds
from benchmarks.streams.images import Pictures, pictures
from benchmarks.streams.peers import KEEPS_NOTHING, OURS, peer_versions
from benchmarks.streams.testbed import (
    MakeSpec,
    Source,
    Stage,
    Turn,
    against,
    in_rounds,
    last_line,
    lost_and_repeated,
    open_stage,
)

__all__ = ["run"]

_TARGET = 1.0
_KEPT = f"{' and '.join(KEEPS_NOTHING)} keep nothing on this machine, so they have no warm epoch."
_THREADS = (
    "Peers decode in 2 worker processes. Ours is the default, threads of one process on the same 2 cores: the decoder "
    "lets go of Python's lock."
)


def run(effort: Effort) -> Report:
    drawn = pictures(400 if effort.quick else 8_000)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source.of(drawn))
        bench = _Bench(stage, drawn, specs)
        timings, failures = in_rounds({arm: bench.turns(arm) for arm in specs}, effort.rounds)
        notes += [f"{arm} does not score: {last_line(failure)}" for arm, failure in failures.items()]
        notes += [bench.traffic(arm) for arm in timings["cold"].by_arm]
        return Report(
            "S1: a shuffled epoch of pictures",
            f"{drawn.count:,} JPEGs, {megabytes(drawn.size_bytes)}; {stage.distance}; batches of 64, "
            "decoded by Pillow.",
            [*_findings("cold", timings, drawn), *_findings("warm", timings, drawn)],
            [*notes, _KEPT, _THREADS, peer_versions(stage.peers)],
        )


class _Bench:
    def __init__(self, stage: Stage, drawn: Pictures, specs: Mapping[str, MakeSpec]) -> None:
        self._stage = stage
        self._drawn = drawn
        self._specs = specs
        self._digest: int | None = None
        self._cold: dict[str, Turn] = {}

    def turns(self, arm: str) -> Callable[[], Mapping[str, float]]:
        def take() -> Mapping[str, float]:
            spec = self._specs[arm](self._stage.fresh_cache())
            with self._stage.start(arm) as child:
                cold = self._cold[arm] = self._checked(self._stage.turn(child, spec))
                if arm in KEEPS_NOTHING:
                    return {"cold": cold.answer["took_s"]}
                warm = self._checked(self._stage.turn(child, replace(spec, epoch=1)))
            return {"cold": cold.answer["took_s"], "warm": warm.answer["took_s"]}

        return take

    def traffic(self, arm: str) -> str:
        cold = self._cold[arm]
        return (
            f"{arm}, cold: {cold.request_count:,} requests, {megabytes(cold.fetched_bytes)}, the first batch after "
            f"{seconds(cold.answer['first_s'])}."
        )

    def _checked(self, turn: Turn) -> Turn:
        """The turn itself, if every sample came once and looked as it does for all."""
        if turn.failure:
            raise RuntimeError(turn.failure)
        lost, repeated = lost_and_repeated(turn.ids, range(self._drawn.count))
        if lost or repeated:
            raise RuntimeError(f"{lost} samples lost, {repeated} repeated")
        digest = int(turn.answer["digest"])
        self._digest = digest if self._digest is None else self._digest
        if digest != self._digest:
            raise RuntimeError("its pixels are others")
        return turn


def _findings(what: str, timings: Mapping[str, Timings], drawn: Pictures) -> Sequence[Finding]:
    taken = timings[what]
    peers = [arm for arm in taken.by_arm if arm != OURS]
    best = min(peers, key=taken.median_s, default=None)
    rows = []
    for peer in peers:
        ratio, spread = against(taken, OURS, peer)
        is_best = peer == best
        rows.append(
            Finding(
                case=f"{what}, against {peer}" + (", the best peer" if is_best else ""),
                ours=_speed(taken.median_s(OURS), drawn),
                peer=_speed(taken.median_s(peer), drawn),
                ratio=f"{ratio:.2f} ({spread})",
                target=f"≥ {_TARGET}" if is_best else "",
                is_met=ratio >= _TARGET if is_best else None,
            )
        )
    return rows


def _speed(took_s: float, drawn: Pictures) -> str:
    return f"{seconds(took_s)}, {drawn.count / took_s:,.0f}/s"
