"""`read_many` in batches of 256 random references, beside the same ranges fetched bare.

The ceiling is `obstore` asked for exactly the bytes of these members, with as many requests at once as
suits it best; it knows where they are and verifies nothing. WebDataset streams whole tars in order, and
Lance takes blobs of its own format by row: they do something else, and stand here to compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import warpdata as wd
from benchmarks.harness.data import media_files, scratch
from benchmarks.harness.process import per_reference
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes
from benchmarks.media.dataset import ARTIFACT, MEDIA, Media, artifact_shards, open_references, publish_media, shuffled
from benchmarks.media.peers import (
    has_lance,
    has_webdataset,
    lance_bytes,
    lance_options,
    open_lance,
    streamed_bytes,
    write_lance,
)
from benchmarks.media.ranges import Range, bare_store, put_in_one_piece, read_ranges
from warpdata.artifacts import FileRef
from warpdata.settings import Settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_BATCH = 256
_AT_ONCE = (16, 32, 64)
_OF_BARE = 0.8


@dataclass(frozen=True, slots=True)
class _Work:
    """The references to read, in batches, and what they come to."""

    media: Media
    batches: Sequence[Sequence[int]]

    @property
    def reference_count(self) -> int:
        return sum(map(len, self.batches))

    @property
    def size_bytes(self) -> int:
        return sum(self.media.size_of(batch) for batch in self.batches)


def run(effort: Effort) -> Report:
    media = Media.of(media_files(300 if effort.quick else 20_000))
    order = shuffled(len(media), seed=5, limit=2 * _BATCH if effort.quick else 16 * _BATCH)
    work = _Work(media, [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)])
    with S3Server() as s3:
        remote = _over_s3(work, s3, effort)
    local = _locally(work, effort)
    findings = [
        _finding("S3, against bare obstore ranges", remote, _best(remote), _OF_BARE),
        *(_finding(f"S3, against {name}", remote, arm) for name, arm in _OTHERS if arm in remote.by_arm),
        *(_finding(f"local store, against {name}", local, arm) for name, arm in _OTHERS if arm in local.by_arm),
    ]
    bare = ", ".join(f"{_rate(remote, str(at_once))} with {at_once}" for at_once in _AT_ONCE)
    return Report(
        f"Batches of {_BATCH} references in random order",
        f"{work.reference_count:,} of {len(media):,} members of 5 to 15 kB, {megabytes(work.size_bytes)}; "
        "over S3 in mode `remote`.",
        findings,
        [f"Bare ranges by how many are asked for at once: {bare}.", *_absent()],
    )


_OTHERS = (("Lance blobs, taken by row", "lance"), ("WebDataset, whole tars in order", "webdataset"))


def _over_s3(work: _Work, s3: S3Endpoint, effort: Effort) -> Timings:
    store, settings = s3.url("batches"), s3.settings(cache_dir=scratch("media-cache"))
    publish_media(work.media, store, settings)
    bare, ranges = bare_store(s3, "batches"), _ranges(work, store, settings)
    arms: dict[str, Arm] = {"ours": _ours(work, open_references(store, settings, "remote"))}
    for at_once in _AT_ONCE:
        arms[str(at_once)] = partial(_counted, partial(read_ranges, bare, ranges, at_once), work.size_bytes)
    if has_lance():
        options = lance_options(s3)
        write_lance(work.media, s3.url("lance"), options)
        arms["lance"] = _lance(work, open_lance(s3.url("lance"), options))
    put_in_one_piece(s3)
    if has_webdataset():
        reader = wd.connect(store, settings).reader
        tars = [reader.signed_url(key, 3600) for key, _ in artifact_shards(store, settings)]
        arms["webdataset"] = partial(_counted, partial(streamed_bytes, tars), work.media.size_bytes)
    return _measured(arms, work, effort)


def _locally(work: _Work, effort: Effort) -> Timings:
    store = scratch("media-store").as_uri()
    settings = Settings(store_url=store, cache_dir=scratch("media-cache"))
    publish_media(work.media, store, settings)
    arms: dict[str, Arm] = {"ours": _ours(work, open_references(store, settings))}
    if has_lance():
        place = str(scratch("media-lance") / "media.lance")
        write_lance(work.media, place)
        arms["lance"] = _lance(work, open_lance(place))
    if has_webdataset():
        reader = wd.connect(store, settings).reader
        tars = [str(reader.local_path(key)) for key, _ in artifact_shards(store, settings)]
        arms["webdataset"] = partial(_counted, partial(streamed_bytes, tars), work.media.size_bytes)
    timings = _measured(arms, work, effort)
    for name in ("media-store", "media-cache", "media-lance"):
        scratch(name)
    return timings


def _measured(arms: dict[str, Arm], work: _Work, effort: Effort) -> Timings:
    counts = dict.fromkeys(arms, work.reference_count) | {"webdataset": len(work.media)}
    return per_reference(interleave(arms, effort.rounds), counts)


def _ours(work: _Work, references: Sequence[FileRef]) -> Arm:
    batches = [[references[position] for position in batch] for batch in work.batches]

    def read() -> int:
        return sum(len(content or b"") for batch in batches for content in wd.read_many(batch))

    return partial(_counted, read, work.size_bytes)


def _lance(work: _Work, opened: object) -> Arm:
    return partial(_counted, partial(lance_bytes, opened, work.batches), work.size_bytes)


def _counted(read: Callable[[], int], expected_bytes: int) -> Callable[[], int]:
    """How many bytes were missing, so that arms which read different parts can agree."""
    return lambda: expected_bytes - read()


def _ranges(work: _Work, store: str, settings: Settings) -> list[list[Range]]:
    """Where the members lie, for those who do not look them up."""
    artifact = wd.dataset(MEDIA, store=store, settings=settings).artifact(ARTIFACT)
    keys = [key for key, _ in artifact_shards(store, settings)]

    def place(position: int) -> Range:
        member = artifact.member(work.media.paths[position])
        return keys[member.shard], member.offset, member.offset + member.stored_bytes

    return [[place(position) for position in batch] for batch in work.batches]


def _best(timings: Timings) -> str:
    return min(map(str, _AT_ONCE), key=timings.median_s)


def _absent() -> list[str]:
    names = [name for name, is_there in (("webdataset", has_webdataset()), ("pylance", has_lance())) if not is_there]
    return [f"{name} is not installed; it was not measured." for name in names]


def _finding(case: str, timings: Timings, peer: str, least: float | None = None) -> Finding:
    ratio = timings.speed_ratio("ours", peer)
    return Finding(
        case,
        _rate(timings, "ours"),
        _rate(timings, peer),
        f"{ratio:.2f} ({timings.spread('ours', peer)})",
        "" if least is None else f"≥ {least}",
        None if least is None else ratio >= least,
    )


def _rate(timings: Timings, arm: str) -> str:
    return f"{1 / timings.median_s(arm):,.0f}/s"
