"""Bytes fetched again: for a second version that shares 95% with the first, and by two jobs on one machine.

The second version replaces the last twentieth of the images. An arm reads an epoch of the first version, then one of
the second with the same cache. The two jobs run concurrently with different seeds and one cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.harness.data import make_once
from benchmarks.harness.timing import RunOptions, format_bytes
from benchmarks.results import Measurement, Outcome
from benchmarks.streams.images import ImageFiles, make_images
from benchmarks.streams.peers import OURS, UNCACHED, peer_notes
from benchmarks.streams.testbed import (
    TIMEOUT_S,
    MakeSpec,
    StreamRun,
    Testbed,
    image_source,
    last_line,
    open_testbed,
)

__all__ = ["run"]

_OTHER_IMAGES_SEED = 1_000_000
_JOBS, _VERSION = "two jobs at once", "second version"
_CANNOT_SHARE = ("mosaicml-streaming",)
"""Peers of which one job fails if two start with one cache directory."""


def run(options: RunOptions) -> Outcome:
    first = make_images(400 if options.is_smoke else 8_000)
    second = _make_second_version(first)
    fetched: dict[str, dict[str, int]] = {_JOBS: {}, _VERSION: {}}
    digests: dict[str, int] = {}
    with open_testbed(options) as testbed:
        specs, notes = testbed.prepare_all(image_source(first), without=UNCACHED)
        for arm, make in specs.items():
            try:
                fetched[_JOBS][arm] = _run_two_jobs(testbed, first, arm, make)
                run = _read_two_versions(testbed, second, arm, make)
            except RuntimeError as error:
                notes.append(f"{arm} does not score: {last_line(error)}.")
                continue
            digests[arm] = int(run.answer["digest"])
            if digests[arm] == digests.get(OURS):
                fetched[_VERSION][arm] = run.fetched_bytes
            else:
                notes.append(f"{arm} does not score: with the same cache it returns images of the first version.")
        versions, skipped = peer_notes(testbed.peers)
        return Outcome(
            title="A second version and a second job",
            method=f"{first.count:,} JPEGs, {format_bytes(first.size_bytes)}, of which the second version shares 95%; "
            f"{testbed.distance}; one epoch each.",
            measurements=[
                *_measure(_VERSION, fetched[_VERSION], second.size_bytes, "cache-version-bytes"),
                *_measure(_JOBS, fetched[_JOBS], first.size_bytes, "cache-jobs-bytes"),
            ],
            notes=[
                *notes,
                f"{_CANNOT_SHARE[0]} fails if two jobs start with one directory, so each job has its own.",
                f"{' and '.join(UNCACHED)} have no local cache here: they fetch everything each time.",
                *versions,
            ],
            skipped=skipped,
            is_timed=False,
        )


def _read_two_versions(testbed: Testbed, second: ImageFiles, arm: str, make: MakeSpec) -> StreamRun:
    """Read the first version, then the second with the same cache; return the second read."""
    spec = make(testbed.fresh_cache())
    with testbed.start(arm) as worker:
        testbed.read(worker, spec).check_ids(range(second.count))
    peer = testbed.find_peer(arm)
    if peer is None:
        newer = testbed.publish(image_source(second), Path(spec.url).name)(spec.cache)
    else:
        cache = testbed.fresh_cache() if arm in _CANNOT_SHARE else spec.cache
        newer = testbed.prepare(peer, image_source(second))(cache)
    with testbed.start(arm) as worker:
        return testbed.read(worker, newer).check_ids(range(second.count))


def _run_two_jobs(testbed: Testbed, images: ImageFiles, arm: str, make: MakeSpec) -> int:
    """Run two jobs at once and return the bytes that both fetched."""
    spec = make(testbed.fresh_cache())
    caches = (spec.cache, testbed.fresh_cache() if arm in _CANNOT_SHARE else spec.cache)
    specs = [asdict(replace(spec, seed=seed, cache=cache)) for seed, cache in enumerate(caches)]
    with testbed.start(arm) as one, testbed.start(arm) as other:
        testbed.proxy.take()
        with ThreadPoolExecutor(2) as pool:
            futures = [
                pool.submit(worker.call, "read_epoch", timeout_s=TIMEOUT_S, **each)
                for worker, each in zip((one, other), specs, strict=True)
            ]
            answers = [future.result() for future in futures]
        seen = testbed.proxy.take()
    runs = [StreamRun(answer, seen).check_ids(range(images.count)) for answer in answers]
    return runs[0].fetched_bytes


def _measure(case: str, fetched: Mapping[str, int], size_bytes: int, promise: str) -> list[Measurement]:
    ours_bytes = fetched[OURS]
    measurements = [
        Measurement(
            case=f"bytes, {case}",
            unit="MB",
            ours=ours_bytes / 1e6,
            peer=size_bytes / 1e6,
            peer_name="the dataset",
            is_baseline=True,
            ratio=ours_bytes / size_bytes,
            quantity="bytes",
            promise=promise,
        )
    ]
    measurements += [
        Measurement(
            case=f"bytes, {case}",
            unit="MB",
            ours=ours_bytes / 1e6,
            peer=peer_bytes / 1e6,
            peer_name=arm,
            ratio=peer_bytes / ours_bytes,
            quantity="bytes",
            detail=f"{arm}: {peer_bytes / size_bytes:.2f}× the bytes of the dataset",
        )
        for arm, peer_bytes in fetched.items()
        if arm != OURS
    ]
    return measurements


def _make_second_version(first: ImageFiles) -> ImageFiles:
    shared = first.count * 95 // 100
    others = make_images(first.count - shared, _OTHER_IMAGES_SEED)

    def make(directory: Path) -> None:
        for number, path in enumerate([*first.paths[:shared], *others.paths]):
            (directory / f"{number:08d}.jpg").hardlink_to(path)

    return ImageFiles(make_once(f"{first.directory.name}-second", make), first.count)
