"""Sources of an artifact: local files, peers and stores, and the order in which they are used.

The plan is made once, when an artifact is opened: each canonical byte gets the first source that has it. Sources
without the artifact are skipped; bytes that no source has stay missing. `failover` handles sources that fail later.
Implements "Several sources" of docs/specs/tensors.md.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from warpdata.errors import BadInputError, CorruptError, LimitExceededError, ObjectNotFoundError, WarpError
from warpdata.formats.tensors.extents import Extent, ExtentMap, ViewRecord
from warpdata.formats.tensors.failover import AssembledSource, Failover, SourcePlace, assign_extents
from warpdata.formats.tensors.hashing import leaf_size, multihash, tree_root
from warpdata.formats.tensors.index import decode_object, parse_index
from warpdata.formats.tensors.peer import TIMEOUT_S, PeerAccess, PeerSource
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.safetensors_file import index_safetensors
from warpdata.formats.tensors.shards import FileShards, StoreShards
from warpdata.formats.tensors.source_health import SourceHealth, SourceStats
from warpdata.formats.tensors.tensor_file import is_canonical, is_partial, is_view_file, read_partial, read_tail
from warpdata.formats.tensors.transfer import Engine
from warpdata.limits import MAX_TENSOR_FILES, MAX_TENSOR_INDEX_BYTES
from warpdata.primitives.arguments import check_fields
from warpdata.primitives.fork import register_after_fork
from warpdata.primitives.parallel import IO_POOL
from warpdata.storage import ConcurrentSource, FileRangeSource, ObjectRangeSource, RangeSource

__all__ = ["ArtifactKey", "SourcePolicy", "close_sources", "open_local", "select_sources"]

_KINDS = ("replica", "peer", "store")
_MAX_KEPT_VIEWS = 64
_WEIGHT_MAP_SUFFIX = ".safetensors.index.json"


@dataclass(frozen=True, slots=True)
class SourcePolicy:
    """The places to look at, in the order of `prefer`. Kinds that `prefer` does not name are not used.

    `replicas` are local files and directories, `peers` URLs of hosts that serve tensors, `stores` objects with a
    canonical file. Peers get `token`, or else that of WARP_TENSORS_TOKEN. A peer that is silent for
    `peer_timeout_s` seconds has failed. `view_hashes` maps `View.space_id` to the `view_data_hash` of views whose kept
    bytes may be used.
    """

    prefer: Sequence[str] = _KINDS
    replicas: Sequence[str | os.PathLike[str]] = ()
    peers: Sequence[str] = ()
    stores: Sequence[ObjectRangeSource] = ()
    token: str | None = field(default=None, repr=False)
    peer_timeout_s: float = TIMEOUT_S
    view_hashes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("prefer", "replicas", "peers", "stores"):
            if isinstance(getattr(self, name), str | bytes | os.PathLike):
                raise BadInputError(f"{name}={getattr(self, name)!r} is one value; expected a list")
        check_fields(self)
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

    Index and leaf digests match the key, whichever source sent them. Sources that cannot be opened are recorded.
    """
    held: list[tuple[SourceHealth, Replica]] = []
    if first is not None:
        held.append((SourceHealth("replica", _file_names(first)), first))
    opened = _open_all(policy, key)
    for kind in policy.prefer:
        if kind == "store" and stored is not None:
            held.append((SourceHealth("store", "published tensors"), stored))
        held += [(health, found) for health, found in opened if health.kind == kind and found is not None]
    closed = [health for health, found in opened if found is None]
    if stored is not None and "store" not in policy.prefer:
        held.append((SourceHealth("store", "published index"), replace(stored, sources=(), extents=ExtentMap(()))))
    if not held:
        reason = "; ".join(f"{one.kind} {one.name}: {one.stats().last_error}" for one in closed)
        reason = reason or "the policy names none"
        raise ObjectNotFoundError(f"no source has the artifact {key.index_multihash}: {reason}")
    found = _combine(key, held, closed, engine, trusted=None if first is None else first.leaves)
    return replace(found, views=_KeptViews(policy, found.engine, key.index_multihash))


class _KeptViews:
    """The kept bytes of views of one artifact: local files, peers and stores with the ByteSpace of a view.

    Any file with the bytes of a view is found by its hash, so a view is found only if its hash is known.
    """

    def __init__(self, policy: SourcePolicy, engine: Engine, artifact_index: str) -> None:
        self._policy = policy
        self._engine = engine
        self._artifact_index = artifact_index
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], Replica | None] = {}
        register_after_fork(self._reset_after_fork)

    def find(self, space_id: str, index_bytes: bytes, expect: str | None) -> Replica | None:
        """Return the bytes of a view, or None. Reads headers and asks peers on the first call for a view."""
        data_hash = expect or self._policy.view_hashes.get(space_id)
        if data_hash is None:
            return None
        key = ArtifactKey(multihash(hashlib.sha256(index_bytes).digest()), data_hash)
        with self._lock:
            if (space_id, data_hash) not in self._found:
                if len(self._found) >= _MAX_KEPT_VIEWS:
                    self._found.pop(next(iter(self._found)))  # closed when its last reader drops it
                self._found[space_id, data_hash] = self._open(space_id, key)
            return self._found[space_id, data_hash]

    def stats(self) -> list[SourceStats]:
        with self._lock:
            spaces = [space.failover for space in self._found.values() if space is not None]
        return [place.health.stats() for space in spaces if space is not None for place in space.places]

    def close(self) -> None:
        with self._lock:
            for space in self._found.values():
                if space is not None:
                    close_sources(space)
            self._found.clear()

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def _open(self, space_id: str, key: ArtifactKey) -> Replica | None:
        view = ViewRecord(self._artifact_index, space_id)
        opened = _open_all(self._policy, key, view)
        # Without digests, nothing ties the bytes to the hash.
        held = [(health, found) for health, found in opened if found is not None and found.leaves]
        closed = [health for health, found in opened if found is None or not found.leaves]
        if not held:
            return None
        space = _combine(key, held, closed, self._engine, trusted=None)
        return replace(space, view=view)


def _open_all(
    policy: SourcePolicy, key: ArtifactKey, view: ViewRecord | None = None
) -> list[tuple[SourceHealth, Replica | None]]:
    """Open all sources of a policy together, in its order, so that silent peers cost one time-out, not one each."""
    space_kind = "canonical" if view is None else "view"
    named = [
        (SourceHealth(kind, name, space_kind=space_kind), open_replica)
        for kind in policy.prefer
        for name, open_replica in _candidates(kind, policy, key.index_multihash, view)
    ]
    found = IO_POOL.map_all(lambda one: _open_candidate(one[1], key, one[0], view), named)
    return [(health, replica) for (health, _), replica in zip(named, found, strict=True)]


def _open_candidate(
    open_replica: Callable[[], Replica], key: ArtifactKey, health: SourceHealth, view: ViewRecord | None = None
) -> Replica | None:
    """Open one source. None, with the reason on record, if it fails or has another artifact or view."""
    try:
        found = open_replica()
    except (WarpError, OSError) as error:
        health.fail_open(error)
        return None
    if found.index_multihash != key.index_multihash or found.view != view:
        health.skip(f"has the {found.space.kind} ByteSpace {found.space.id}, not this one")
    elif found.leaves and key.data_multihash and not _are_digests_of(found.leaves, key.data_multihash):
        health.skip("has tensors of these names and shapes with other values")
    else:
        return found
    close_sources(found)
    return None


def _combine(
    key: ArtifactKey,
    held: Sequence[tuple[SourceHealth, Replica]],
    closed: Sequence[SourceHealth],
    engine: Engine | None,
    *,
    trusted: tuple[bytes, ...] | None,
) -> Replica:
    """Return one artifact over opened sources. `trusted` digests are used as they are, others if they match the key."""
    known = (one.leaves for _, one in held if one.leaves and _are_digests_of(one.leaves, key.data_multihash))
    leaves = next(known, None) if trusted is None else trusted
    index = held[0][1].index
    sources: tuple[RangeSource, ...] = ()
    places: list[SourcePlace] = []
    for health, one in held:
        moved = [replace(part, source=part.source + len(sources)) for part in one.extents.parts]
        if one.sources:
            places.append(SourcePlace(health, ExtentMap(moved)))
        sources += one.sources
    extents = assign_extents(index, places, by_leaf=leaves is not None, assembled=len(sources))
    failover = Failover(index, sources, places, extents=extents, leaves=leaves, closed=closed)
    if any(part.source == len(sources) for part in extents.parts):
        concurrency = min(s.concurrency if isinstance(s, ConcurrentSource) else 1 for s in sources)
        sources += (AssembledSource(failover, index.total_size, concurrency),)
    cost = max((one.cost for _, one in held), key=lambda cost: cost.request_bytes)
    return Replica.create(index, sources, extents, leaves=leaves, engine=engine, cost=cost, failover=failover)


def _file_names(replica: Replica) -> str:
    names = [str(source.path) for source in replica.sources if isinstance(source, FileRangeSource)]
    return names[0] if len(names) == 1 else f"{len(names)} files"


def close_sources(replica: Replica) -> None:
    """Close the files and connections of a replica."""
    for source in replica.sources:
        if isinstance(source, FileRangeSource | PeerSource | FileShards | StoreShards):
            source.close()


def _candidates(
    kind: str, policy: SourcePolicy, index_multihash: str, view: ViewRecord | None = None
) -> Iterator[tuple[str, Callable[[], Replica]]]:
    """Yield the name of each source of a kind, and the function that opens it."""
    if kind == "replica":
        open_path = open_local if view is None else _open_view_file
        yield from ((str(path), partial(open_path, Path(path))) for path in policy.replicas)
    elif kind == "peer":
        access = PeerAccess(policy.token, policy.peer_timeout_s)
        path = None if view is None else f"{view.artifact_index}/views/{view.space_id}"
        peers = [PeerSource(url, index_multihash, access=access, path=path) for url in policy.peers]
        yield from ((peer.url, partial(_open_peer, peer, view)) for peer in peers)
    else:
        yield from ((source.key, partial(_open_object, source)) for source in policy.stores)


def _open_view_file(path: Path) -> Replica:
    """Open a local view file. Other files are rejected without parsing their headers."""
    with closing(FileRangeSource(path)) as file:
        if path.is_dir() or not is_view_file(file):
            raise ObjectNotFoundError(f"{path} is not a view file")
    return open_local(path)


def _open_peer(peer: PeerSource, view: ViewRecord | None) -> Replica:
    try:
        index = parse_index(peer.index_bytes(), f"the index at {peer.url}")
        leaves = peer.leaves()
        expected = -(-index.total_size // leaf_size(index.total_size))
        if leaves is not None and len(leaves) != expected:
            raise CorruptError(f"{peer.url} has {len(leaves)} leaf digests; its index needs {expected}")
        parts = [Extent(start, min(end, index.total_size), 0, start) for start, end in peer.ranges()]
    except BaseException:
        peer.close()
        raise
    return Replica.create(index, (peer,), ExtentMap(parts), leaves=leaves, view=view)


def _open_object(source: ObjectRangeSource) -> Replica:
    if not is_canonical(source):
        raise CorruptError(f"{source.key} is not a canonical tensor file")
    tail = read_tail(source, source.key)
    extents = ExtentMap([Extent(0, tail.index.total_size, 0, 0)])
    return Replica.create(tail.index, (source,), extents, leaves=tail.leaves, view=tail.view)


def _are_digests_of(leaves: tuple[bytes, ...], data_multihash: str | None) -> bool:
    """Return whether leaf digests belong to the data. Digests of unknown data are not used."""
    return data_multihash is not None and multihash(tree_root(leaves)) == data_multihash


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
        return Replica.create(tail.index, files, extents, leaves=tail.leaves, engine=engine, view=tail.view)
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
