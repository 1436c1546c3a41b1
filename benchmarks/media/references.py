"""References one by one, in random order: from a local store, over S3, through the cache, beside a peer.

Every side reads in a process of its own, which opened the dataset and holds a reference for each row
before the clock starts. Ours come from a column of a table and verify what they read. The peer reads
tars of the same files that it packed itself; it is slow enough that a part of the order must do, and
speeds are compared by the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.harness.data import media_files, scratch
from benchmarks.harness.process import Child, per_reference, reader
from benchmarks.harness.timing import Arm, Effort, Finding, Report, Timings, interleave, megabytes
from benchmarks.media.dataset import Media, publish_media, shuffled
from benchmarks.media.pypi_peer import ABSENT, PEER, Peer, find_peer
from benchmarks.media.ranges import put_in_one_piece
from warpdata.limits import ARTIFACT_SHARD_BYTES
from warpdata.settings import load_settings
from warpdata.testing import S3Endpoint, S3Server

__all__ = ["run"]

_LOCALLY = 10.0
_OVER_S3 = 2.0
_OVER_AN_EPOCH = 10.0
_OF_PLAIN_FILES = 0.9


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one process reads when asked, and what that must come to."""

    child: Child
    do: str
    expected_bytes: int

    def __call__(self) -> int:
        """How many bytes were missing, so that arms which read different parts can agree."""
        return self.expected_bytes - int(self.child.ask(self.do)["bytes"])


def run(effort: Effort) -> Report:
    media = Media.of(media_files(300 if effort.quick else 20_000))
    peer = find_peer(effort)
    findings = _locally(media, peer, effort)
    with S3Server() as s3:
        store = s3.url("references")
        publish_media(media, store, s3.settings(cache_dir=scratch("media-publish")))
        version = peer and peer.publish(media, s3.url("peer"), s3.environ(), ARTIFACT_SHARD_BYTES)
        put_in_one_piece(s3)
        bench = _Bench(media, s3, store, peer, version or "", effort)
        findings += [_one_by_one(bench), *_first_epoch(bench), _second_epoch(bench)]
    return Report(
        "References in random order",
        f"{len(media):,} members of 5 to 15 kB, {megabytes(media.size_bytes)} together; everything is in the page "
        "cache of the system.",
        findings,
        ["The peer reads its local tars in its default mode, `hybrid`."] if peer else [ABSENT],
    )


def _locally(media: Media, peer: Peer | None, effort: Effort) -> list[Finding]:
    store, cache = scratch("media-store").as_uri(), scratch("media-cache")
    publish_media(media, store, load_settings({"WARP_CACHE_DIR": str(cache)}))
    part = 50 if effort.quick else 5000
    order = shuffled(len(media), seed=1)
    counts = {"ours": len(order), "scalars": len(order), "peer": part}
    with ExitStack() as stack:
        ours = stack.enter_context(_our_reader({"WARP_CACHE_DIR": str(cache)}, store, order))
        turns = {name: _Turn(ours, do, media.size_bytes) for name, do in (("ours", "read"), ("scalars", "scalars"))}
        if peer is not None:
            place = scratch("peer-store")
            version = peer.publish(media, place.as_uri(), {}, ARTIFACT_SHARD_BYTES)
            opened = _PeerOpening(peer, {}, place.as_uri(), version, place, "hybrid")
            turns["peer"] = stack.enter_context(opened.turn(media, order[:part]))
        timings = _interleaved(turns, counts, effort)
    scratch("peer-store")
    scratch("media-store")
    return [
        _against_peer("local store", timings, "ours", "peer", _LOCALLY),
        _against_peer("local store, elements of the Arrow column", timings, "scalars", "peer", None),
    ]


@dataclass(frozen=True, slots=True)
class _Bench:
    """Media published on S3 by both."""

    media: Media
    s3: S3Endpoint
    store: str
    peer: Peer | None
    version: str
    effort: Effort

    def environ(self, cache: Path, mode: str) -> dict[str, str]:
        return {**self.s3.environ(), "WARP_CACHE_DIR": str(cache), "WARP_MODE": mode}

    def peer_opening(self, peer: Peer, mode: str, place: str = "peer-workspace") -> _PeerOpening:
        return _PeerOpening(peer, self.s3.environ(), self.s3.url("peer"), self.version, scratch(place), mode)


def _one_by_one(bench: _Bench) -> Finding:
    """Mode `remote`: every reference is a request."""
    part = 20 if bench.effort.quick else 500
    order = shuffled(len(bench.media), seed=2, limit=part)
    size = bench.media.size_of(order)
    environ = bench.environ(scratch("media-cache"), "remote")
    with ExitStack() as stack:
        ours = stack.enter_context(_our_reader(environ, bench.store, order))
        turns = {"ours": _Turn(ours, "read", size)}
        if bench.peer is not None:
            turns["peer"] = stack.enter_context(bench.peer_opening(bench.peer, "remote").turn(bench.media, order))
        timings = _interleaved(turns, {"ours": part, "peer": part}, bench.effort)
    return _against_peer("S3, mode `remote`", timings, "ours", "peer", _OVER_S3)


def _first_epoch(bench: _Bench) -> list[Finding]:
    """Mode `auto`, all members once, with nothing cached. The peer also in its own mode that keeps shards."""
    order = shuffled(len(bench.media), seed=3)
    part = 20 if bench.effort.quick else 500
    numbers = count()
    with ExitStack() as stack:
        rounds = stack.enter_context(ExitStack())

        def ours() -> Callable[[], int]:
            rounds.close()
            cache = scratch(f"media-cache/{next(numbers)}")
            child = rounds.enter_context(_our_reader(bench.environ(cache, "auto"), bench.store, order))
            return _Turn(child, "read", bench.media.size_bytes)

        arms: dict[str, Arm] = {"ours": ours}
        if bench.peer is not None:
            asking = bench.peer_opening(bench.peer, "remote").turn(bench.media, order[:part])
            arms["peer"] = partial(_same, stack.enter_context(asking))
            arms["keeping"] = _keeping_peer(bench, bench.peer, order, stack)
        counts = {"ours": len(order), "peer": part, "keeping": len(order)}
        timings = per_reference(interleave(arms, bench.effort.rounds), counts)
    scratch("media-cache")
    scratch("peer-keeping")
    findings = [_against_peer("S3, mode `auto`, a whole epoch from cold", timings, "ours", "peer", _OVER_AN_EPOCH)]
    if bench.peer is not None:
        findings.append(_against_peer("the same, it in its mode `hybrid`", timings, "ours", "keeping", None))
    return findings


def _keeping_peer(bench: _Bench, peer: Peer, order: Sequence[int], stack: ExitStack) -> Arm:
    numbers = count()
    rounds = stack.enter_context(ExitStack())

    def prepare() -> Callable[[], int]:
        rounds.close()
        opening = bench.peer_opening(peer, "hybrid", f"peer-keeping/{next(numbers)}")
        return rounds.enter_context(opening.turn(bench.media, order, is_cold=True))

    return prepare


def _second_epoch(bench: _Bench) -> Finding:
    """Everything cached, against one plain file for each member."""
    order = shuffled(len(bench.media), seed=4)
    files = [str(bench.media.folder / path) for path in bench.media.paths]
    environ = bench.environ(scratch("media-cache"), "auto")
    with _our_reader(environ, bench.store, order, files) as child:
        for _ in range(2):
            child.ask("read")
        turns = {name: _Turn(child, do, bench.media.size_bytes) for name, do in (("ours", "read"), ("files", "plain"))}
        timings = _interleaved(turns, {"ours": len(order), "files": len(order)}, bench.effort)
    scratch("media-cache")
    ratio = timings.speed_ratio("ours", "files")
    return Finding(
        "S3, mode `auto`, the second epoch, against a plain file for each member",
        _rate(timings, "ours"),
        _rate(timings, "files"),
        f"{ratio:.2f} ({timings.spread('ours', 'files')})",
        f"≥ {_OF_PLAIN_FILES}",
        ratio >= _OF_PLAIN_FILES,
    )


@contextmanager
def _our_reader(
    environ: Mapping[str, str], store: str, order: Sequence[int], files: Sequence[str] = ()
) -> Iterator[Child]:
    with reader(environ) as child:
        child.ask("open", store=store)
        child.ask("order", positions=list(order), files=list(files))
        yield child


@dataclass(frozen=True, slots=True)
class _PeerOpening:
    """Where the peer finds what it published, and what it may keep where."""

    peer: Peer
    environ: Mapping[str, str]
    base: str
    version: str
    workspace: Path
    mode: str

    @contextmanager
    def turn(self, media: Media, order: Sequence[int], *, is_cold: bool = False) -> Iterator[_Turn]:
        """Unless it is to be cold, the peer has loaded its index when the clock starts."""
        with self.peer.start(self.environ) as child:
            child.ask(
                "open",
                base=self.base,
                version=self.version,
                workspace=str(self.workspace),
                mode=self.mode,
                paths=list(media.paths),
                is_cold=is_cold,
            )
            child.ask("order", positions=list(order))
            yield _Turn(child, "read", media.size_of(order))


def _interleaved(turns: Mapping[str, _Turn], counts: Mapping[str, int], effort: Effort) -> Timings:
    arms: dict[str, Arm] = {name: partial(_same, turn) for name, turn in turns.items()}
    return per_reference(interleave(arms, effort.rounds), counts)


def _same(turn: _Turn) -> Callable[[], int]:
    return turn


def _against_peer(case: str, timings: Timings, ours: str, peer: str, least: float | None) -> Finding:
    if peer not in timings.by_arm:
        return Finding(case, _rate(timings, ours))
    ratio = timings.speed_ratio(ours, peer)
    return Finding(
        f"{case}, against {PEER}",
        _rate(timings, ours),
        _rate(timings, peer),
        f"{ratio:.1f} ({timings.spread(ours, peer)})",
        "" if least is None else f"≥ {least:.0f}",
        None if least is None else ratio >= least,
    )


def _rate(timings: Timings, arm: str) -> str:
    return f"{1 / timings.median_s(arm):,.0f}/s"
