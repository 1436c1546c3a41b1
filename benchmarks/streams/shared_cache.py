"""What is fetched again: a second version that shares 95 % with the first, and two jobs on one machine.

The second version has the same pictures but for the last twentieth, which are new. An arm reads an epoch of the
first version, then one of the second with the same cache. The two jobs run at the same time, with different seeds
and one cache between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.harness.data import made
from benchmarks.harness.timing import Effort, Finding, Report, megabytes
from benchmarks.streams.images import Pictures, pictures
from benchmarks.streams.peers import KEEPS_NOTHING, OURS, peer_versions
from benchmarks.streams.testbed import (
    PATIENCE_S,
    MakeSpec,
    Source,
    Stage,
    Turn,
    last_line,
    lost_and_repeated,
    open_stage,
)

__all__ = ["run"]

_OTHERS_FROM = 1_000_000
_AGAIN = 0.10
_TWICE = 1.05
_SHARES_NOTHING = ("mosaicml-streaming",)
"""Two jobs that start at once with one folder race for its index, and one of them fails."""


def run(effort: Effort) -> Report:
    first = pictures(400 if effort.quick else 8_000)
    second = _second_version(first)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source.of(first), without=KEEPS_NOTHING)
        findings, digests = [], {}
        for arm, make in specs.items():
            try:
                findings.append(_two_jobs(stage, first, arm, make))
                finding, digests[arm] = _two_versions(stage, second, arm, make)
            except RuntimeError as error:
                notes.append(f"{arm} does not score: {last_line(error)}")
                continue
            if digests[arm] == digests.get(OURS):
                findings.append(finding)
            else:
                notes.append(f"{arm} does not score: given the same cache, it shows pictures of the first version")
        return Report(
            "S6: a second version, and a second job",
            f"{first.count:,} JPEGs, {megabytes(first.size_bytes)}, of which the second version shares 95 %; "
            f"{stage.distance}; one epoch each.",
            sorted(findings, key=lambda finding: finding.case.split(": ")[1]),
            [
                *notes,
                f"{' and '.join(_SHARES_NOTHING)} fails where two jobs start with one folder, so each has its own.",
                f"{' and '.join(KEEPS_NOTHING)} keep nothing on this machine: everything is fetched each time.",
                peer_versions(stage.peers),
            ],
            is_timed=False,
        )


def _two_versions(stage: Stage, second: Pictures, arm: str, make: MakeSpec) -> tuple[Finding, int]:
    """An epoch of the one, then of the other; and what the pixels of the other come to."""
    spec = make(stage.fresh_cache())
    with stage.start(arm) as child:
        _checked(stage.turn(child, spec), second.count)
    source, peer = Source.of(second), next((peer for peer in stage.peers if peer.name == arm), None)
    if peer is None:
        newer = stage.publish(source, Path(spec.url).name)(spec.cache)
    else:
        newer = stage.prepare(peer, source)(stage.fresh_cache() if arm in _SHARES_NOTHING else spec.cache)
    with stage.start(arm) as child:
        turn = _checked(stage.turn(child, newer), second.count)
    share = turn.fetched_bytes / second.size_bytes
    told = f"{megabytes(turn.fetched_bytes)} of {megabytes(second.size_bytes)}"
    return _finding(f"{arm}: bytes for the second version", arm, told, share, _AGAIN), int(turn.answer["digest"])


def _two_jobs(stage: Stage, drawn: Pictures, arm: str, make: MakeSpec) -> Finding:
    spec = make(stage.fresh_cache())
    caches = (spec.cache, stage.fresh_cache() if arm in _SHARES_NOTHING else spec.cache)
    with stage.start(arm) as one, stage.start(arm) as other:
        stage.proxy.take()
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(child.ask_within, PATIENCE_S, "epoch", **asdict(replace(spec, seed=seed, cache=cache)))
                for seed, (child, cache) in enumerate(zip((one, other), caches, strict=True))
            ]
            answers = [future.result() for future in asked]
        seen = stage.proxy.take()
    turns = [_checked(Turn(answer, seen), drawn.count) for answer in answers]
    share = turns[0].fetched_bytes / drawn.size_bytes
    told = f"{megabytes(turns[0].fetched_bytes)} of {megabytes(drawn.size_bytes)}"
    return _finding(f"{arm}: bytes for two jobs at once", arm, told, share, _TWICE)


def _finding(case: str, arm: str, told: str, share: float, target: float) -> Finding:
    is_ours = arm == OURS
    return Finding(
        case=case,
        ours=told if is_ours else "",
        peer="" if is_ours else told,
        ratio=f"{share:.2f}× the bytes",
        target=f"≤ {target}×" if is_ours else "",
        is_met=share <= target if is_ours else None,
    )


def _checked(turn: Turn, count: int) -> Turn:
    if turn.failure:
        raise RuntimeError(turn.failure)
    lost, repeated = lost_and_repeated(turn.ids, range(count))
    if lost or repeated:
        raise RuntimeError(f"{lost} samples lost, {repeated} repeated")
    return turn


def _second_version(first: Pictures) -> Pictures:
    shared = first.count * 95 // 100
    others = pictures(first.count - shared, _OTHERS_FROM)

    def make(folder: Path) -> None:
        kept: Sequence[Path] = first.paths[:shared]
        for number, path in enumerate([*kept, *others.paths]):
            (folder / f"{number:08d}.jpg").hardlink_to(path)

    return Pictures(made(f"{first.folder.name}-second", make), first.count)
