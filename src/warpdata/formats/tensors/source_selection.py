"""Where an artifact's bytes may come from, and in which order: what is here, other hosts, a store.

Decided once, when an artifact is opened: each canonical byte gets the first source that has it. Sources that do
not have the artifact are passed over; what nobody has stays missing. Implements "Several sources" of
docs/specs/tensors.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from warpdata.errors import BadInputError, NotFoundError, ObjectNotFoundError, StorageError, TensorsCorruptedError
from warpdata.formats.tensors.canonical_files import is_canonical, read_tail
from warpdata.formats.tensors.engine import Engine
from warpdata.formats.tensors.extents import Extent, Extents, merge_ranges, subtract_ranges
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.index_json import parse_index
from warpdata.formats.tensors.local import open_local
from warpdata.formats.tensors.peer import PeerSource
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.shards import FileShards, StoreShards
from warpdata.formats.tensors.sources import FileSource, StoreSource

__all__ = ["SourcePolicy", "Wanted", "assemble", "close_sources"]

_KINDS = ("replica", "peer", "store")


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """What to look at. Kinds that `prefer` does not name are not used, whatever is listed for them.

    `replicas` are local files and folders, `peers` addresses of hosts that serve tensors, `stores` objects that hold
    a file of ours.
    """

    prefer: Sequence[str] = _KINDS
    replicas: Sequence[str | os.PathLike[str]] = ()
    peers: Sequence[str] = ()
    stores: Sequence[StoreSource] = ()

    def __post_init__(self) -> None:
        if len(set(self.prefer)) != len(self.prefer) or not set(self.prefer) <= set(_KINDS):
            raise BadInputError(f"prefer={list(self.prefer)!r} does not order {', '.join(_KINDS)}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which artifact: the multihash of its index, and that of its data where it is known."""

    index_multihash: str
    data_multihash: str | None = None

    @classmethod
    def parse(cls, artifact_id: str) -> Wanted:
        parts = artifact_id.split(":")
        if len(parts) != 3 or parts[0] != "mi2" or not all(len(part) == 56 for part in parts[1:]):
            raise BadInputError(f"{artifact_id!r} is not the id of an artifact", hint="mi2:<index>:<data>")
        return cls(parts[1], parts[2])


def assemble(
    wanted: Wanted,
    policy: SourcePolicy,
    engine: Engine | None,
    *,
    first: Replica | None = None,
    stored: Replica | None = None,
) -> Replica:
    """The artifact from wherever the policy allows; `first` comes before everything else, `stored` before other stores.

    Index and leaf hashes are those of the names asked for, whoever gave them.
    """
    held = [] if first is None else [first]
    problems: list[str] = []
    for kind in policy.prefer:
        if kind == "store" and stored is not None:
            held.append(stored)
        for look in _places(kind, policy, wanted.index_multihash):
            try:
                found = look()
            except (NotFoundError, StorageError) as error:
                problems.append(error.message)
                continue
            if found.index_multihash == wanted.index_multihash:
                held.append(found)
            else:
                problems.append(f"{kind} has another artifact")
                close_sources(found)
    if stored is not None and "store" not in policy.prefer:
        held.append(replace(stored, sources=(), extents=Extents(())))
    if not held:
        told = "; ".join(problems[:3]) or "no source was given"
        raise ObjectNotFoundError(f"no source has the artifact {wanted.index_multihash}: {told}")
    known = (one.leaves for one in held if one.leaves and _is_of(one.leaves, wanted.data_multihash))
    leaves = next(known, None) if first is None or first.leaves is None else first.leaves
    sources = tuple(source for one in held for source in one.sources)
    extents = _assigned(held, leaves is not None)
    cost = max((one.cost for one in held), key=lambda cost: cost.request_bytes)
    return Replica.of(held[0].index, sources, extents, leaves=leaves, engine=engine, cost=cost)


def close_sources(replica: Replica) -> None:
    """Let go of files and connections."""
    for source in replica.sources:
        if isinstance(source, FileSource | PeerSource | FileShards | StoreShards):
            source.close()


def _places(kind: str, policy: SourcePolicy, index_multihash: str) -> Iterator[Callable[[], Replica]]:
    if kind == "replica":
        yield from (partial(open_local, Path(place)) for place in policy.replicas)
    elif kind == "peer":
        yield from (partial(_open_peer, url, index_multihash) for url in policy.peers)
    else:
        yield from (partial(_open_store, source) for source in policy.stores)


def _open_peer(url: str, index_multihash: str) -> Replica:
    peer = PeerSource(url, index_multihash)
    try:
        index = parse_index(peer.index_bytes(), f"the index at {url}")
        leaves = peer.leaves()
        if leaves is not None and len(leaves) != -(-index.total_size // leaf_size(index.total_size)):
            raise TensorsCorruptedError(f"{url} has {len(leaves)} leaf hashes, too many or too few")
        parts = [Extent(start, min(end, index.total_size), 0, start) for start, end in peer.ranges()]
    except BaseException:
        peer.close()
        raise
    return Replica.of(index, (peer,), Extents(parts), leaves=leaves)


def _open_store(source: StoreSource) -> Replica:
    if not is_canonical(source):
        raise TensorsCorruptedError(f"{source.name} is not a file of tensors of ours")
    tail = read_tail(source)
    extents = Extents([Extent(0, tail.index.total_size, 0, 0)])
    return Replica.of(tail.index, (source,), extents, leaves=tail.leaves)


def _is_of(leaves: tuple[bytes, ...], data_multihash: str | None) -> bool:
    """Hashes that nobody vouches for are no hashes."""
    return data_multihash is not None and multihash(tree_root(leaves)) == data_multihash


def _assigned(held: Sequence[Replica], by_leaf: bool) -> Extents:
    """Each byte to the first who has it; whole leaves before parts of leaves, because only those can be checked."""
    total = held[0].index.total_size
    leaf = leaf_size(total)
    taken: list[tuple[int, int]] = []
    parts: list[Extent] = []
    for whole in (True, False) if by_leaf else (False,):
        before = 0
        for one in held:
            for extent in one.extents.parts:
                start, end = extent.start, extent.end
                if whole:
                    start, end = -(-start // leaf) * leaf, end if end == total else end // leaf * leaf
                for first, last in subtract_ranges([(start, end)] if start < end else [], taken):
                    parts.append(Extent(first, last, before + extent.source, extent.offset + first - extent.start))
            taken = merge_ranges([*taken, *((part.start, part.end) for part in parts)])
            before += len(one.sources)
    return Extents(parts)
