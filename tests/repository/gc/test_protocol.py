"""If this fails, some order of publishes, collections, lost replies and crashes leaves a version without its blobs.

The model is independent of the library. Weaker protocols run under the same schedules and must fail, which shows that
the schedules are hard enough.
"""

from __future__ import annotations

import pytest

from tests.repository.gc.protocol_model import Protocol, run_schedule

SCHEDULES = 4000
WEAKER_SCHEDULES = 600


def test_no_schedule_leaves_a_dangling_version() -> None:
    acknowledged = generations = 0
    for seed in range(SCHEDULES):
        violation, world = run_schedule(seed, "full")
        assert violation is None, violation
        acknowledged += world.acknowledged
        generations += world.generations
    assert acknowledged > 2 * SCHEDULES, "most schedules must get something done"
    assert generations > SCHEDULES / 10, "condemned content must be needed again in many schedules"


@pytest.mark.parametrize("protocol", ["grace period", "no condemned list", "same key again"])
def test_weaker_protocols_fail(protocol: Protocol) -> None:
    failed = [seed for seed in range(WEAKER_SCHEDULES) if run_schedule(seed, protocol)[0] is not None]
    assert failed, "these schedules are too easy to show anything"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_schedule_of_many_leaves_a_dangling_version() -> None:
    for seed in range(SCHEDULES, 50 * SCHEDULES):
        violation, _ = run_schedule(seed, "full")
        assert violation is None, violation
