"""Finding one member among many must not cost a look at all of them, in time or in memory.

The indexes are real and written by the code that publishes, but no shard has a blob: looking up never
asks for one. Ours opens the dataset by name and finds a member; the peer is handed the file of its index.
Memory is the peak of a process of its own that looks up members from all over the index.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import warpdata as wd
from benchmarks.harness.data import made, scratch
from benchmarks.harness.process import Child, reader
from benchmarks.harness.timing import Arm, Effort, Finding, Report, interleave, megabytes
from benchmarks.media.dataset import ARTIFACT, MEDIA
from benchmarks.media.pypi_peer import ABSENT, PEER, Peer, find_peer
from warpdata.artifacts import ArtifactEntry, Member, PackedMember, write_index
from warpdata.catalog import MAIN, Transaction, commit
from warpdata.datasets import Connection, connect
from warpdata.digest import blob_key, fingerprint_file
from warpdata.manifest import Manifest, Shard, page_shards
from warpdata.settings import Settings

__all__ = ["run"]

_MEMBER_BYTES = 10_000
_SHARD_MEMBERS = 10_000
_LOOKED_UP = 1000
_TIMES_FASTER = 50
_FLAT = 1.2


def run(effort: Effort) -> Report:
    few, many = (2000, 20_000) if effort.quick else (100_000, 10_000_000)
    peer = find_peer(effort)
    cache = scratch("media-cache")
    small, large = (_store(member_count) for member_count in (few, many))
    findings = [
        _opening(small, few, peer, cache, effort),
        _memory((small, few), (large, many), cache),
        _memory_of_more((large, many), cache),
    ]
    return Report(
        "Find one member among many",
        "A local store.",
        findings,
        ["Ours opens the dataset by name as well; the peer only opens its index.", *([] if peer else [ABSENT])],
    )


def _store(member_count: int) -> str:
    """A store with one dataset whose artifact has that many members."""
    return made(f"members-{member_count}", partial(_publish, member_count)).as_uri()


def _publish(member_count: int, folder: Path) -> None:
    link = connect(folder.as_uri(), Settings(store_url=folder.as_uri(), cache_dir=scratch("media-cache")))
    shards = [
        Shard(hashlib.sha256(number.to_bytes(8, "little")).hexdigest(), _SHARD_MEMBERS * _MEMBER_BYTES)
        for number in range(-(-member_count // _SHARD_MEMBERS))
    ]
    paged = page_shards(shards)
    for digest, data in paged.new_pages.items():
        link.writer.create(blob_key(digest), data)
    staged = scratch("media-index") / "members"
    written = write_index(_members(member_count), len(shards), staged)
    fingerprint = fingerprint_file(staged)
    link.writer.create_file(blob_key(fingerprint.blob.hash), staged, fingerprint)
    entry = ArtifactEntry("tar_shards", paged.shards, fingerprint.blob, written.footer, member_count)
    _commit(link, Manifest(MEDIA, artifacts={ARTIFACT: entry.payload()}))
    scratch("media-index")


def _members(member_count: int) -> Iterator[PackedMember]:
    for number in range(member_count):
        shard, place = divmod(number, _SHARD_MEMBERS)
        offset = place * _MEMBER_BYTES + 512
        yield PackedMember(Member(_path(number), shard, offset, _MEMBER_BYTES - 512, _MEMBER_BYTES - 512, number))


def _path(number: int) -> str:
    return f"train/{number // 1000:05d}/{number:08d}.jpg"


def _commit(link: Connection, manifest: Manifest) -> None:
    txn = Transaction(MEDIA, MAIN, link.new_id(), "replace", "bench", "members", link.timestamp())
    commit(link.writer, txn, lambda _: manifest, link.pause)


def _opening(store: str, member_count: int, peer: Peer | None, cache: Path, effort: Effort) -> Finding:
    case = f"open an index of {member_count:,} members and find one"
    settings = Settings(store_url=store, cache_dir=cache)
    chance = random.Random(6)

    def ours() -> Callable[[], int]:
        path = _path(chance.randrange(member_count))
        return lambda: int(
            wd.dataset(MEDIA, store=store, settings=settings).artifact(ARTIFACT).member(path).path == path
        )

    arms: dict[str, Arm] = {"ours": ours}
    if peer is None:
        return Finding(case, _ms(interleave(arms, effort.rounds).median_s("ours")))
    index = scratch("peer-index") / "index.parquet"
    with peer.start({}) as child:
        child.ask("write_index", paths=[_path(number) for number in range(member_count)], index=str(index))

        def theirs() -> Callable[[], int]:
            path = _path(chance.randrange(member_count))
            return partial(_found, child, index, path)

        timings = interleave(arms | {"peer": theirs}, effort.rounds)
    scratch("peer-index")
    ratio = timings.speed_ratio("ours", "peer")
    return Finding(
        f"{case}, against {PEER}",
        _ms(timings.median_s("ours")),
        _ms(timings.median_s("peer")),
        f"1/{ratio:,.0f} of the time ({timings.spread('ours', 'peer')})",
        f"≤ 1/{_TIMES_FASTER}",
        ratio >= _TIMES_FASTER,
    )


def _found(child: Child, index: Path, path: str) -> int:
    return int(child.ask("find", index=str(index), path=path)["found"])


def _memory(small: tuple[str, int], large: tuple[str, int], cache: Path) -> Finding:
    fewer, more = (_peak_bytes(store, count, _LOOKED_UP, cache) for store, count in (small, large))
    return Finding(
        f"peak memory of {_LOOKED_UP:,} look-ups among {large[1]:,} members, against {small[1]:,}",
        megabytes(more),
        megabytes(fewer),
        f"{more / fewer:.2f}× the memory",
        f"≤ {_FLAT}×",
        more / fewer <= _FLAT,
    )


def _memory_of_more(large: tuple[str, int], cache: Path) -> Finding:
    store, count = large
    fewer, more = (_peak_bytes(store, count, looked_up, cache) for looked_up in (_LOOKED_UP, 20 * _LOOKED_UP))
    return Finding(
        f"peak memory of {20 * _LOOKED_UP:,} look-ups among {count:,} members, against {_LOOKED_UP:,}",
        megabytes(more),
        megabytes(fewer),
        f"{more / fewer:.2f}× the memory",
    )


def _peak_bytes(store: str, member_count: int, looked_up: int, cache: Path) -> int:
    chance = random.Random(7)
    paths = [_path(chance.randrange(member_count)) for _ in range(looked_up)]
    with reader({"WARP_CACHE_DIR": str(cache)}) as child:
        answer = child.ask("find", store=store, paths=paths)
    assert answer["found"] == looked_up
    return int(answer["peak_bytes"])


def _ms(took_s: float) -> str:
    return f"{took_s * 1e3:,.1f} ms"
