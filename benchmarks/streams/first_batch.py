"""Time to the first batch of a shuffled stream over many shards, with an empty cache over a network.

Rows have eight numbers and nothing is decoded. The clock starts before the stream is opened, in a process that has
imported everything. Peers receive the location; warpdata receives a name, whose newest version it resolves first, or
a version. 20 shards have one page, 2,000 have four, and the first window reads from four places of the data: so up
to 130,000 shards take at most three requests more than 20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.harness.timing import RunOptions, Timings
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.peers import OURS, peer_notes
from benchmarks.streams.spec import SourceSpec
from benchmarks.streams.testbed import MakeSpec, Testbed, common_rounds, last_line, open_testbed, run_in_rounds

__all__ = ["run"]

_SHARD_ROWS = 500
_PINNED, _FEW = f"{OURS}, version", f"{OURS}, few shards"
_CASES = {OURS: "from a name", _PINNED: "from a version"}


def run(options: RunOptions) -> Outcome:
    few, many = (2, 20) if options.is_smoke else (20, 2_000)
    with open_testbed(options) as testbed:
        specs, notes = testbed.prepare_all(SourceSpec("rows", many * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        small = testbed.publish(SourceSpec("rows", few * _SHARD_ROWS, shard_rows=_SHARD_ROWS))
        arms = {arm: _prepare(testbed, arm, make) for arm, make in specs.items()}
        arms[_PINNED] = _prepare(testbed, OURS, testbed.pin_version(specs[OURS]))
        arms[_FEW] = _prepare(testbed, OURS, small)
        values, failures = run_in_rounds(arms, options.rounds)
        notes += [f"{arm} does not score: {last_line(failure)}" for arm, failure in failures.items()]
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="Time to the first batch",
            method=f"{many:,} shards, {many * _SHARD_ROWS:,} rows; {testbed.distance}; batches of 64, peers with 2 "
            "workers, empty cache.",
            measurements=[
                *_measure(values["first"], values["requests"]),
                _measure_requests(values["requests"], many, few),
            ],
            notes=[*notes, *versions],
            skipped=skipped,
        )


def _measure(timings: Timings, requests: Timings) -> list[Measurement]:
    peers = [arm for arm in timings.by_arm if not arm.startswith(OURS)]
    best = min(peers, key=timings.median_s, default=None)
    measurements = []
    for peer in peers:
        for ours, case in _CASES.items():
            measurements.append(
                common_rounds(timings, ours, peer).compare(
                    case,
                    ours,
                    peer,
                    promise="first-batch-time" if peer == best else "",
                    detail=f"{requests.median_s(ours):.0f} requests against {requests.median_s(peer):,.0f}",
                )
            )
    if not peers:
        for ours, case in _CASES.items():
            detail = f"{requests.median_s(ours):.0f} requests"
            measurements.append(Measurement(case=case, unit="ms", ours=timings.value(ours, "ms"), detail=detail))
    return measurements


def _measure_requests(requests: Timings, many: int, few: int) -> Measurement:
    counts = [requests.median_s(arm) for arm in (OURS, _FEW)]
    return Measurement(
        case=f"requests at {many:,} shards beyond those at {few}",
        unit="more requests",
        ours=counts[0] - counts[1],
        detail=f"{counts[0]:.0f} against {counts[1]:.0f}",
        promise="first-batch-requests",
    )


def _prepare(testbed: Testbed, arm: str, make: MakeSpec) -> Callable[[], Mapping[str, float]]:
    def read() -> Mapping[str, float]:
        with testbed.start(arm) as worker:
            run = testbed.read(worker, make(testbed.fresh_cache()), limit=1)
        return {"first": run.answer["first_s"], "requests": float(run.request_count)}

    return read
