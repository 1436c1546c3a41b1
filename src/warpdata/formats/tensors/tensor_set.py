"""An artifact of tensors, opened: the façade over index, sources and views, and the doors to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from warpdata.errors import InvalidViewError, TensorsCorruptedError, ViewPreconditionError
from warpdata.formats.tensors.arrays import replica_of_arrays
from warpdata.formats.tensors.canonical_files import parse_tail
from warpdata.formats.tensors.deferred import Deferred
from warpdata.formats.tensors.engine import Engine
from warpdata.formats.tensors.extents import Extent, Extents
from warpdata.formats.tensors.hashing import artifact_id, multihash, tree_root
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.local import open_local
from warpdata.formats.tensors.partial_files import write_parts
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica, data_digest
from warpdata.formats.tensors.safetensors_writer import write_safetensors
from warpdata.formats.tensors.shards import FileShards, StoreShards
from warpdata.formats.tensors.source_selection import SourcePolicy, Wanted, assemble, close_sources
from warpdata.formats.tensors.sources import ByteSource
from warpdata.formats.tensors.spec import NormalView, ViewSpec, normalize, whole
from warpdata.formats.tensors.tensor import Tensor
from warpdata.formats.tensors.verify import Damage, find_damage
from warpdata.formats.tensors.view import View
from warpdata.formats.tensors.write_back import block_to_write, written_over
from warpdata.primitives.hashing import OnBytes, ignore_bytes

__all__ = ["Tensors", "open_arrays", "open_shards", "open_sources", "open_tensors"]


class Tensors:
    """Tensors by name. Opened with `open_tensors`; reads nothing but headers until asked to."""

    def __init__(self, replica: Replica, *, owns_engine: bool = True) -> None:
        self._replica = replica
        self._owns_engine = owns_engine
        self._digest: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Tensor:
        entry = self.index[name]
        return Tensor(entry, self._replica, whole(entry).bounds, tuple(range(len(entry.shape))))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, name: object) -> bool:
        return name in self.index

    @property
    def replica(self) -> Replica:
        """Where the bytes are. Changes with versions of this package."""
        return self._replica

    @property
    def index(self) -> TensorIndex:
        return self._replica.index

    @property
    def index_bytes(self) -> bytes:
        """The canonical JSON of the index."""
        return self._replica.index_bytes

    @property
    def index_multihash(self) -> str:
        return self._replica.index_multihash

    @property
    def data_multihash(self) -> str:
        """TreeHash of the canonical ByteSpace. Our own files carry it; of others every byte is read, once."""
        if self._digest is None:
            self._digest = data_digest(self._replica)
        return multihash(self._digest)

    @property
    def artifact_id(self) -> str:
        """The name of the artifact. Costs what `data_multihash` costs."""
        if self._digest is None:
            self._digest = data_digest(self._replica)
        return artifact_id(self.index_bytes, self._digest)

    @property
    def known_artifact_id(self) -> str | None:
        """The name of the artifact, if it can be told without reading data."""
        return None if self._digest is None and self._replica.leaves is None else self.artifact_id

    def names(self) -> list[str]:
        """All tensors, in name order."""
        return self.index.names()

    def view(
        self, spec: ViewSpec | None = None, *, names: Iterable[str] | None = None, cost: ReadCost | None = None
    ) -> View:
        """A view of all tensors, or of those named, packed in that order. Without a spec: as they are."""
        normal = NormalView(()) if spec is None else normalize(self.index, spec)
        if isinstance(names, str):
            raise InvalidViewError(f"names={names!r} is one name, not a list of them")
        return View(self._replica, normal, None if names is None else tuple(names), cost)

    def close(self) -> None:
        """Let go of files, and of staging unless somebody else's engine has it. Safe to call twice."""
        if self._owns_engine:
            self._replica.engine.close()
        close_sources(self._replica)

    def deferred(self, device: Any = None, *, cost: ReadCost | None = None) -> Deferred:
        """Memory for slices now, on this machine or on a device; all of their bytes in one go, at `commit()`."""
        return Deferred(self._replica, device, cost)

    def find_damage(
        self, ranges: Sequence[tuple[int, int]] | None = None, *, on_bytes: OnBytes = ignore_bytes
    ) -> list[Damage]:
        """Read everything, or some ranges of canonical bytes, and say which parts are not what was written.

        An empty list: all is well. Needs the hashes that our own files and published tensors have.
        """
        return find_damage(self._replica, ranges, on_bytes)

    def write_view(self, view: View, data: Mapping[str, Any] | Any) -> Tensors:
        """Another artifact: this one with a view's tensors written over, from arrays by name or from the view's bytes.

        What is stored never changes. Storages that are written to are held in memory; everything else is read from
        where it was, so this one is to be closed last. `DatasetBuilder.add_tensors` publishes the result.
        """
        return Tensors(written_over(self._replica, *block_to_write(self._replica, view, data)))

    def save_safetensors(
        self,
        path: str | os.PathLike[str],
        view: View | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        verify: bool = True,
        on_bytes: OnBytes = ignore_bytes,
    ) -> None:
        """Write all tensors, or a view's, as one safetensors file. `verify` checks them where hashes are known."""
        if view is not None and view.artifact_index_multihash != self.index_multihash:
            raise ViewPreconditionError("the view is one of another artifact")
        write_safetensors(Path(path), view or self.view(), metadata, verify=verify, on_bytes=on_bytes)

    def keep(self, view: View, path: str | os.PathLike[str]) -> Tensors:
        """Fetch what a view needs into a file of its own, and open that: a part of this artifact.

        Leaves of the TreeHash that the view touches are kept whole, and checked if their hashes are known. The
        file serves every view it covers. What it lacks is an error, unless it is opened with other sources.
        """
        if view.artifact_index_multihash != self.index_multihash:
            raise ViewPreconditionError("the view is one of another artifact")
        write_parts(Path(path), self._replica, view.plan, self._replica.cost)
        return open_tensors(path)


def open_tensors(
    place: str | os.PathLike[str], *, sources: SourcePolicy | None = None, engine: Engine | None = None
) -> Tensors:
    """Open a safetensors file, a folder of them, a file of ours, or a part of an artifact that `keep` made.

    With `sources`, what is not there is read from them, and `place` may also be the id of an artifact. Artifacts that
    are given the same engine share its staging; otherwise each has one of its own.
    """
    if isinstance(place, str) and place.startswith("mi2:"):
        replica = assemble(Wanted.parse(place), sources or SourcePolicy(), engine)
        return Tensors(replica, owns_engine=engine is None)
    replica = open_local(Path(place), engine)
    if sources is not None:
        data = None if replica.leaves is None else multihash(tree_root(replica.leaves))
        try:
            replica = assemble(Wanted(replica.index_multihash, data), sources, engine, first=replica)
        except BaseException:
            close_sources(replica)
            raise
    return Tensors(replica, owns_engine=engine is None)


def open_sources(
    index: TensorIndex, sources: Sequence[ByteSource], extents: Sequence[Extent], *, engine: Engine | None = None
) -> Tensors:
    """An artifact, or the parts of one that are here, over any sources of bytes."""
    return Tensors(Replica.of(index, tuple(sources), Extents(extents), engine=engine), owns_engine=engine is None)


def open_arrays(tensors: Mapping[str, Any]) -> Tensors:
    """Arrays of numpy or tensors of torch (a `state_dict`) as an artifact, over their own memory."""
    return Tensors(replica_of_arrays(tensors))


def open_shards(
    tail: bytes,
    shards: FileShards | StoreShards,
    present: Iterable[tuple[int, int]],
    *,
    cost: ReadCost | None = None,
    sources: SourcePolicy | None = None,
    engine: Engine | None = None,
) -> Tensors:
    """An artifact whose bytes lie in shards. `tail` is what a canonical file has behind its data.

    `present` are the ranges that are there. `sources` are asked in their order, the shards as a store among them.
    """
    told = parse_tail(tail, "the stored index")
    total = told.index.total_size
    if shards.size_bytes != align(total):
        raise TensorsCorruptedError(f"shards of {shards.size_bytes} bytes hold tensors of {total}")
    parts = [Extent(start, min(end, total), 0, start) for start, end in present if start < total]
    replica = Replica.of(told.index, (shards,), Extents(parts), leaves=told.leaves, engine=engine, cost=cost)
    if sources is not None:
        wanted = Wanted(replica.index_multihash, multihash(tree_root(told.leaves)))
        replica = assemble(wanted, sources, engine, stored=replica)
    return Tensors(replica, owns_engine=engine is None)
