"""A filtered epoch of pictures, of which a half, a tenth or a hundredth is kept: what is fetched for each kept sample.

The score that is filtered by has nothing to do with where a picture lies. litdata, mosaicml-streaming and WebDataset
know no filter: they read everything and drop, before decoding. Lance and datasets are given the filter.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness.timing import Effort, Finding, Report, megabytes, seconds
from benchmarks.streams.images import Pictures, pictures
from benchmarks.streams.peers import OURS, peer_versions
from benchmarks.streams.testbed import MakeSpec, Source, Stage, last_line, lost_and_repeated, open_stage

__all__ = ["run"]

_KEPT = (0.5, 0.1, 0.01)
_TARGET_AT = 0.01
_TARGET = 10.0
_DROPPING = ("litdata", "mosaicml-streaming", "webdataset")


def run(effort: Effort) -> Report:
    drawn = pictures(400 if effort.quick else 8_000)
    with open_stage(effort) as stage:
        specs, notes = stage.prepare_all(Source.of(drawn))
        findings = []
        for keep in _KEPT:
            arms = {}
            for arm, make in specs.items():
                try:
                    arms[arm] = _epoch(stage, drawn, arm, make, keep)
                except RuntimeError as error:
                    notes.append(f"{arm}, {keep:.0%} kept, does not score: {last_line(error)}")
            findings += _findings(arms, keep)
        return Report(
            "S3: a filtered epoch",
            f"{drawn.count:,} JPEGs, {megabytes(drawn.size_bytes)}; {stage.distance}; empty cache, one epoch each. "
            "The ratio is how many times as many bytes the peer fetches for a sample that is kept.",
            findings,
            [*notes, peer_versions(stage.peers)],
            is_timed=False,
        )


def _epoch(stage: Stage, drawn: Pictures, arm: str, make: MakeSpec, keep: float) -> tuple[float, float, int]:
    """Bytes for each kept sample, seconds, requests."""
    with stage.start(arm) as child:
        turn = stage.turn(child, replace(make(stage.fresh_cache()), keep=keep))
    if turn.failure:
        raise RuntimeError(turn.failure)
    expected = [number for number in range(drawn.count) if drawn.score(number) < keep]
    lost, repeated = lost_and_repeated(turn.ids, expected)
    if lost or repeated:
        raise RuntimeError(f"{lost} samples lost, {repeated} repeated")
    return turn.fetched_bytes / len(expected), turn.answer["took_s"], turn.request_count


def _findings(arms: dict[str, tuple[float, float, int]], keep: float) -> list[Finding]:
    findings = []
    dropping = [arm for arm in arms if arm in _DROPPING]
    best = min(dropping, key=lambda arm: arms[arm][0], default=None)
    ours = arms.get(OURS)
    for arm, figures in arms.items():
        if arm == OURS or ours is None:
            continue
        ratio = figures[0] / ours[0]
        is_judged = arm == best and keep == _TARGET_AT
        findings.append(
            Finding(
                case=f"{keep:.0%} kept, against {arm}" + (" (reads and drops)" if arm in _DROPPING else ""),
                ours=_told(*ours),
                peer=_told(*figures),
                ratio=f"{ratio:.1f}× the bytes",
                target=f"≥ {_TARGET:.0f}×" if is_judged else "",
                is_met=ratio >= _TARGET if is_judged else None,
            )
        )
    return findings


def _told(bytes_each: float, took_s: float, requests: int) -> str:
    return f"{megabytes(bytes_each)} each, {requests:,} requests, {seconds(took_s)}"
