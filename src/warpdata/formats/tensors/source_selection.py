"""Sources of an artifact: local files, peers and stores, and the order in which they are used.

The choice is made once, when an artifact is opened: each canonical byte gets the first source that has it. Sources
without the artifact are skipped; bytes that no source has stay missing. Implements "Several sources" of
docs/specs/tensors.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from warpdata.errors import (
    BadInputError,
    CorruptError,
    LimitExceededError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
)
from warpdata.formats.tensors.extents import Extent, ExtentMap
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.index import decode_object, parse_index
from warpdata.formats.tensors.peer import PeerSource
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.safetensors_file import index_safetensors
from warpdata.formats.tensors.shards import FileShards, StoreShards
from warpdata.formats.tensors.tensor_file import is_canonical, is_partial, read_partial, read_tail
from warpdata.formats.tensors.transfer import Engine
from warpdata.limits import MAX_TENSOR_FILES, MAX_TENSOR_INDEX_BYTES
from warpdata.primitives.ranges import RangeSet
from warpdata.storage import FileRangeSource, ObjectRangeSource

__all__ = ["ArtifactKey", "SourcePolicy", "close_sources", "open_local", "select_sources"]

_KINDS = ("replica", "peer", "store")
_WEIGHT_MAP_SUFFIX = ".safetensors.index.json"


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """The places to look at, in the order of `prefer`. Kinds that `prefer` does not name are not used.

    `replicas` are local files and directories, `peers` URLs of hosts that serve tensors, `stores` objects with a
    canonical file.
    """

    prefer: Sequence[str] = _KINDS
    replicas: Sequence[str | os.PathLike[str]] = ()
    peers: Sequence[str] = ()
    stores: Sequence[ObjectRangeSource] = ()

    def __post_init__(self) -> None:
        if len(set(self.prefer)) != len(self.prefer) or not set(self.prefer) <= set(_KINDS):
            raise BadInputError(f"prefer={list(self.prefer)!r} is not an order of {', '.join(_KINDS)}")


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """An artifact by the multihash of its index, and of its data if that is known."""

    index_multihash: str
    data_multihash: str | None = None

    @classmethod
    def parse(cls, artifact_id: str) -> ArtifactKey:
        parts = artifact_id.split(":")
        if len(parts) != 3 or parts[0] != "mi2" or not all(len(part) == 56 for part in parts[1:]):
            raise BadInputError(f"{artifact_id!r} is not an artifact id", hint="Write mi2:<index>:<data>.")
        return cls(parts[1], parts[2])


def select_sources(
    key: ArtifactKey,
    policy: SourcePolicy,
    engine: Engine | None,
    *,
    first: Replica | None = None,
    stored: Replica | None = None,
) -> Replica:
    """Return the artifact over the sources of a policy. `first` precedes all others, `stored` the other stores.

    Index and leaf digests match the key, whichever source sent them.
    """
    held = [] if first is None else [first]
    problems: list[str] = []
    for kind in policy.prefer:
        if kind == "store" and stored is not None:
            held.append(stored)
        for open_replica in _candidates(kind, policy, key.index_multihash):
            try:
                found = open_replica()
            except (NotFoundError, StorageError) as error:
                problems.append(error.message)
                continue
            if found.index_multihash == key.index_multihash:
                held.append(found)
            else:
                problems.append(f"{kind} has another artifact")
                close_sources(found)
    if stored is not None and "store" not in policy.prefer:
        held.append(replace(stored, sources=(), extents=ExtentMap(())))
    if not held:
        reason = "; ".join(problems[:3]) or "the policy names none"
        raise ObjectNotFoundError(f"no source has the artifact {key.index_multihash}: {reason}")
    known = (one.leaves for one in held if one.leaves and _are_digests_of(one.leaves, key.data_multihash))
    leaves = next(known, None) if first is None or first.leaves is None else first.leaves
    sources = tuple(source for one in held for source in one.sources)
    extents = _assign_extents(held, by_leaf=leaves is not None)
    cost = max((one.cost for one in held), key=lambda cost: cost.request_bytes)
    return Replica.create(held[0].index, sources, extents, leaves=leaves, engine=engine, cost=cost)


def close_sources(replica: Replica) -> None:
    """Close the files and connections of a replica."""
    for source in replica.sources:
        if isinstance(source, FileRangeSource | PeerSource | FileShards | StoreShards):
            source.close()


def _candidates(kind: str, policy: SourcePolicy, index_multihash: str) -> Iterator[Callable[[], Replica]]:
    if kind == "replica":
        yield from (partial(open_local, Path(path)) for path in policy.replicas)
    elif kind == "peer":
        yield from (partial(_open_peer, url, index_multihash) for url in policy.peers)
    else:
        yield from (partial(_open_object, source) for source in policy.stores)


def _open_peer(url: str, index_multihash: str) -> Replica:
    peer = PeerSource(url, index_multihash)
    try:
        index = parse_index(peer.index_bytes(), f"the index at {url}")
        leaves = peer.leaves()
        expected = -(-index.total_size // leaf_size(index.total_size))
        if leaves is not None and len(leaves) != expected:
            raise CorruptError(f"{url} has {len(leaves)} leaf digests; its index needs {expected}")
        parts = [Extent(start, min(end, index.total_size), 0, start) for start, end in peer.ranges()]
    except BaseException:
        peer.close()
        raise
    return Replica.create(index, (peer,), ExtentMap(parts), leaves=leaves)


def _open_object(source: ObjectRangeSource) -> Replica:
    if not is_canonical(source):
        raise CorruptError(f"{source.key} is not a canonical tensor file")
    tail = read_tail(source, source.key)
    extents = ExtentMap([Extent(0, tail.index.total_size, 0, 0)])
    return Replica.create(tail.index, (source,), extents, leaves=tail.leaves)


def _are_digests_of(leaves: tuple[bytes, ...], data_multihash: str | None) -> bool:
    """Return whether leaf digests belong to the data. Digests of unknown data are not used."""
    return data_multihash is not None and multihash(tree_root(leaves)) == data_multihash


def _assign_extents(held: Sequence[Replica], *, by_leaf: bool) -> ExtentMap:
    """Assign each byte to the first replica that has it.

    With `by_leaf`, whole leaves are assigned before parts of leaves, because only whole leaves can be verified.
    """
    total = held[0].index.total_size
    leaf = leaf_size(total)
    taken = RangeSet()
    parts: list[Extent] = []
    for whole in (True, False) if by_leaf else (False,):
        source_count = 0
        for one in held:
            for extent in one.extents.parts:
                start, end = extent.start, extent.end
                if whole:
                    start, end = -(-start // leaf) * leaf, end if end == total else end // leaf * leaf
                for first, last in taken.missing((start, end)):
                    offset = extent.offset + first - extent.start
                    parts.append(Extent(first, last, source_count + extent.source, offset))
            taken = RangeSet((part.start, part.end) for part in parts)
            source_count += len(one.sources)
    return ExtentMap(parts)


def open_local(path: Path, engine: Engine | None = None) -> Replica:
    """Open a safetensors file, a directory of them, a canonical file or a partial file. Reads headers only.

    The files stay open until `close_sources`.
    """
    weight_map = _read_weight_map(path)
    if weight_map is not None:
        directory = path if path.is_dir() else path.parent
        paths = [directory / name for name in sorted(set(weight_map.values()))]
    elif path.is_dir():
        paths = sorted(file for file in path.iterdir() if file.suffix == ".safetensors")
        if not paths:
            raise ObjectNotFoundError(f"{path} has no .safetensors file")
    else:
        paths = [path]
    if len(paths) > MAX_TENSOR_FILES:
        raise LimitExceededError(f"{path} has {len(paths)} files; {MAX_TENSOR_FILES} are allowed")
    files = tuple(FileRangeSource(file) for file in paths)
    try:
        replica = _open_files(files, engine)
        if weight_map is not None:
            _check_weight_map(weight_map, replica, path)
        return replica
    except BaseException:
        for file in files:
            file.close()
        raise


def _open_files(files: tuple[FileRangeSource, ...], engine: Engine | None) -> Replica:
    if len(files) == 1 and is_canonical(files[0]):
        tail = read_tail(files[0], files[0].path.name)
        extents = ExtentMap([Extent(0, tail.index.total_size, 0, 0)])
        return Replica.create(tail.index, files, extents, leaves=tail.leaves, engine=engine)
    if len(files) == 1 and is_partial(files[0]):
        held = read_partial(files[0], files[0].path.name)
        return Replica.create(held.index, files, ExtentMap(held.extents), leaves=held.leaves, engine=engine)
    index, extents = index_safetensors(files)
    return Replica.create(index, files, extents, engine=engine)


def _read_weight_map(path: Path) -> dict[str, str] | None:
    """Return the file of each tensor, if a checkpoint in several files has such a list."""
    if path.is_dir():
        lists = sorted(file for file in path.iterdir() if file.name.endswith(_WEIGHT_MAP_SUFFIX))
        if len(lists) != 1:
            return None  # none, or several checkpoints in one directory: all files are read
        path = lists[0]
    elif not path.name.endswith(_WEIGHT_MAP_SUFFIX):
        return None
    with closing(FileRangeSource(path)) as file:
        size = file.size_bytes
        if size > MAX_TENSOR_INDEX_BYTES:
            raise CorruptError(f"{path.name} has {size} bytes; {MAX_TENSOR_INDEX_BYTES} are allowed")
        weight_map = decode_object(bytes(file.read_range(0, size)), path.name).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptError(f"{path.name} has no weight_map that names files")
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name or file_name in ("", ".", ".."):
            raise CorruptError(f"{path.name} puts {name!r} in {file_name!r}, which is not a file beside it")
    return weight_map


def _check_weight_map(weight_map: dict[str, str], replica: Replica, path: Path) -> None:
    odd = sorted(set(weight_map) ^ set(replica.index.names()))
    if odd:
        shown = ", ".join(map(repr, odd[:5]))
        raise CorruptError(f"the weight_map of {path} and its files name different tensors: {shown}")
