"""Time to the first batch of a shuffled stream over many shards, with an empty cache, over a network.

Rows of eight numbers; nothing is decoded. The clock runs from before the stream is opened, in a process that has
imported everything, until the first batch is there. Peers are told what to read; we are told a name, whose newest
version is found out first, or a version. At 20 shards there is one page of them, at 2,000 there are four, and the
first window looks in four places: so up to 130,000 shards take at most three requests more than 20 do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.harness.timing import Effort, Finding, Report, seconds
from benchmarks.streams.peers import OURS, peer_versions
from benchmarks.streams.testbed import MakeSpec, Source, Stage, against, in_rounds, last_line, open_stage

__all__ = ["run"]

_TARGET = 0.5
_SHARD_ROWS = 500
_MOST_PAGES = 4
_PINNED, _FEW = f"{OURS}, a version", f"{OURS}, few shards"


def run(effort: Effort) -> Report:
    few, many = (2, 20) if effort.quick else (20, 2_000)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source("rows", many * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        small = stage.publish(Source("rows", few * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        arms = {arm: _turns(stage, arm, make) for arm, make in specs.items()}
        arms[_PINNED] = _turns(stage, OURS, stage.pinned(specs[OURS]))
        arms[_FEW] = _turns(stage, OURS, small)
        timings, failures = in_rounds(arms, effort.rounds)
        notes += [f"{arm} does not score: {last_line(failure)}" for arm, failure in failures.items()]
        taken, asked = timings["first"], timings["requests"]
        peers = [arm for arm in taken.by_arm if not arm.startswith(OURS)]
        best = min(peers, key=taken.median_s, default=None)
        findings = []
        for peer, ours in ((peer, ours) for peer in peers for ours in (OURS, _PINNED)):
            faster, spread = against(taken, ours, peer)
            given = "a name is given" if ours == OURS else "a version is given"
            findings.append(
                Finding(
                    case=f"{given}, against {peer}" + (", the next best" if peer == best else ""),
                    ours=f"{seconds(taken.median_s(ours))}, {asked.median_s(ours):.0f} requests",
                    peer=f"{seconds(taken.median_s(peer))}, {asked.median_s(peer):.0f} requests",
                    ratio=f"{1 / faster:.2f}× the time; {faster:.2f} times as fast ({spread})",
                    target=f"≤ {_TARGET}×" if peer == best else "",
                    is_met=1 / faster <= _TARGET if peer == best else None,
                )
            )
        counts = {arm: asked.median_s(arm) for arm in (OURS, _FEW)}
        findings.append(
            Finding(
                case=f"requests at {many:,} shards against {few}",
                ours=f"{counts[OURS]:.0f}",
                peer=f"{counts[_FEW]:.0f}",
                target=f"≤ {_MOST_PAGES - 1} more",
                is_met=counts[OURS] < counts[_FEW] + _MOST_PAGES,
            )
        )
        return Report(
            "S2: time to the first batch",
            f"{many:,} shards, {many * _SHARD_ROWS:,} rows; {stage.distance}; batches of 64, peers with 2 workers, "
            "empty cache.",
            findings,
            [*notes, peer_versions(stage.peers)],
        )


def _turns(stage: Stage, arm: str, make: MakeSpec) -> Callable[[], Mapping[str, float]]:
    def take() -> Mapping[str, float]:
        with stage.start(arm) as child:
            turn = stage.turn(child, make(stage.fresh_cache()), limit=1)
        if turn.failure:
            raise RuntimeError(turn.failure)
        return {"first": turn.answer["first_s"], "requests": float(turn.request_count)}

    return take
