"""Time to the first batch of a shuffled stream over many shards, with an empty cache, over a network.

Rows of eight numbers; nothing is decoded. The clock runs from before the stream is opened, in a process that has
imported everything, until the first batch is there. How many requests that took must not depend on the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.harness import Effort, Finding, Report, seconds
from benchmarks.stream_peers import OURS, peer_versions
from benchmarks.stream_stage import MakeSpec, Source, Stage, against, in_rounds, last_line, open_stage

__all__ = ["run"]

_TARGET = 0.5
_SHARD_ROWS = 500


def run(effort: Effort) -> Report:
    few, many = (2, 20) if effort.quick else (20, 2_000)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source("rows", many * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        small = stage.publish(Source("rows", few * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        arms = {arm: _turns(stage, arm, make) for arm, make in specs.items()}
        arms[f"{OURS}, few shards"] = _turns(stage, OURS, small)
        timings, failures = in_rounds(arms, effort.rounds)
        notes += [f"{arm} does not score: {last_line(failure)}" for arm, failure in failures.items()]
        taken, asked = timings["first"], timings["requests"]
        peers = [arm for arm in taken.by_arm if not arm.startswith(OURS)]
        best = min(peers, key=taken.median_s, default=None)
        findings = []
        for peer in peers:
            faster, spread = against(taken, OURS, peer)
            findings.append(
                Finding(
                    case=f"against {peer}" + (", the next best" if peer == best else ""),
                    ours=f"{seconds(taken.median_s(OURS))}, {asked.median_s(OURS):.0f} requests",
                    peer=f"{seconds(taken.median_s(peer))}, {asked.median_s(peer):.0f} requests",
                    ratio=f"{1 / faster:.2f}× the time; {faster:.2f} times as fast ({spread})",
                    target=f"≤ {_TARGET}×" if peer == best else "",
                    is_met=1 / faster <= _TARGET if peer == best else None,
                )
            )
        counts = {arm: asked.median_s(arm) for arm in (OURS, f"{OURS}, few shards")}
        findings.append(
            Finding(
                case=f"requests at {many:,} shards against {few}",
                ours=f"{counts[OURS]:.0f}",
                peer=f"{counts[f'{OURS}, few shards']:.0f}",
                target="the same",
                is_met=counts[OURS] <= counts[f"{OURS}, few shards"] + 1,
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
