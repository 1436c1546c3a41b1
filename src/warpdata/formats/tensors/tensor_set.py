"""An opened artifact of tensors, and the functions that open one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from warpdata.errors import BadInputError, CorruptError, UnsupportedError
from warpdata.formats.tensors.display import list_names, table_rows, tensor_table
from warpdata.formats.tensors.extents import Extent, ExtentMap
from warpdata.formats.tensors.hashing import artifact_id, multihash, tree_root
from warpdata.formats.tensors.in_memory import overwrite_view, plan_write, replica_of_arrays
from warpdata.formats.tensors.index import TensorIndex, align
from warpdata.formats.tensors.multi_buffer import Deferred
from warpdata.formats.tensors.reads import ReadCost
from warpdata.formats.tensors.replica import Replica, data_digest
from warpdata.formats.tensors.safetensors_file import write_safetensors
from warpdata.formats.tensors.shards import FileShards, StoreShards
from warpdata.formats.tensors.source_health import SourceStats
from warpdata.formats.tensors.source_selection import (
    ArtifactKey,
    SourcePolicy,
    close_sources,
    open_local,
    select_sources,
)
from warpdata.formats.tensors.spec import NormalView, ViewSpec, normalize, whole
from warpdata.formats.tensors.tensor_file import parse_tail, write_partial
from warpdata.formats.tensors.transfer import Engine
from warpdata.formats.tensors.verify import CorruptRange, verify
from warpdata.formats.tensors.view import Tensor, View
from warpdata.formats.tensors.view_file import write_view_bytes
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.hashing import OnBytes, ignore_bytes
from warpdata.primitives.paths import check_path
from warpdata.storage import RangeSource

__all__ = ["TensorSet", "open_arrays", "open_shards", "open_sources", "open_tensors"]


class TensorSet:
    """The tensors of an artifact, by name. Opening reads headers only; data is read on demand."""

    def __init__(self, replica: Replica, *, owns_engine: bool = True) -> None:
        self._replica = replica
        self._owns_engine = owns_engine
        self._digest: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        failover = self._replica.failover
        count = len(self._replica.sources) if failover is None else len(failover.places)
        sources = f"{count} sources" if count != 1 else "1 source"
        size = f"{len(self):,} tensors, {self.index.total_size:,} bytes"
        return f"TensorSet({size}, {sources}, {self.index_multihash}: {list_names(self.names())})"

    def _repr_html_(self) -> str:
        title = f"TensorSet {self.index_multihash} · {len(self):,} tensors · {self.index.total_size:,} bytes"
        return tensor_table(title, table_rows(self.index), len(self))

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
        """The sources of the bytes. Not part of the stable interface."""
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
        """The TreeHash of the canonical ByteSpace. Reads every byte once, unless the leaf digests are known."""
        return multihash(self._data_digest())

    @property
    def artifact_id(self) -> str:
        """The id of the artifact. Costs what `data_multihash` costs."""
        return artifact_id(self.index_bytes, self._data_digest())

    @property
    def known_artifact_id(self) -> str | None:
        """The id of the artifact; None if data must be read to compute it."""
        return None if self._digest is None and self._replica.leaves is None else self.artifact_id

    def source_stats(self) -> list[SourceStats]:
        """Return the record of every source of the policy, in its order: reads, failures and back-off.

        Empty for an artifact without a policy.
        """
        failover = self._replica.failover
        if failover is None:
            return []
        found = [health.stats() for health in (*(place.health for place in failover.places), *failover.closed)]
        return found if self._replica.views is None else [*found, *self._replica.views.stats()]

    def names(self) -> list[str]:
        """Return all tensor names, in order."""
        return self.index.names()

    def view(
        self, spec: ViewSpec | None = None, *, names: Iterable[str] | None = None, cost: ReadCost | None = None
    ) -> View:
        """Return a view of all tensors, or of `names`, packed in that order. Without a spec, tensors are unchanged."""
        normal = NormalView(()) if spec is None else normalize(self.index, spec)
        if isinstance(names, str):
            raise BadInputError(f"names={names!r} is one name; expected a list")
        return View(self._replica, normal, None if names is None else tuple(names), cost)

    def close(self) -> None:
        """Close files and connections, and free pinned memory unless the engine is shared. Safe to call twice."""
        if self._owns_engine:
            self._replica.engine.close()
        close_sources(self._replica)
        if self._replica.views is not None:
            self._replica.views.close()

    def deferred(self, device: Any = None, *, cost: ReadCost | None = None) -> Deferred:
        """Return a load that allocates slices now, on the host or on a device, and reads all of them at `commit()`."""
        return Deferred(self._replica, device, cost)

    def verify(
        self, ranges: Sequence[tuple[int, int]] | None = None, *, on_bytes: OnBytes = ignore_bytes
    ) -> list[CorruptRange]:
        """Read all canonical bytes, or some ranges, and return the corrupt ranges. Empty: all bytes are valid.

        Needs hashes, which canonical files and published tensors have.
        """
        return verify(self._replica, ranges, on_bytes)

    def write_view(self, view: View, data: Mapping[str, Any] | Any) -> TensorSet:
        """Return another artifact: this one with the tensors of a view replaced, by arrays or by the view's bytes.

        Nothing stored changes. Written storages are in memory; other bytes are read from the sources of this
        artifact, so close this artifact last. `DatasetBuilder.add_tensors` publishes the result.
        """
        return TensorSet(overwrite_view(self._replica, *plan_write(self._replica, view, data)))

    def save_safetensors(
        self,
        path: str | os.PathLike[str],
        view: View | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
        verify: bool = True,
        on_bytes: OnBytes = ignore_bytes,
    ) -> None:
        """Write all tensors, or those of a view, as one safetensors file. `verify` checks bytes with known hashes."""
        if view is not None:
            self._check_view(view)
        write_safetensors(Path(path), view or self.view(), metadata, verify=verify, on_bytes=on_bytes)

    def save_partial(self, view: View, path: str | os.PathLike[str]) -> TensorSet:
        """Fetch the bytes of a view into a partial file, and open the file.

        Touched leaves are fetched whole, and verified if their digests are known. The file serves every view that it
        covers; other bytes are missing, unless the file is opened with other sources.
        """
        self._check_view(view)
        write_partial(Path(path), self._replica, view.plan, self._replica.cost)
        return open_tensors(path)

    def save_view(self, view: View, path: str | os.PathLike[str]) -> TensorSet:
        """Write the ByteSpace of a view, transposed and packed, as a view file, and open the file.

        The file opens as tensors with the index of the view, and its `data_multihash` is the `view_data_hash`. A
        policy that lists the file serves the view from it, if the hash is known.
        """
        self._check_view(view)
        write_view_bytes(Path(path), view)
        return open_tensors(path)

    def _data_digest(self) -> bytes:
        if self._digest is None:
            self._digest = data_digest(self._replica)
        return self._digest

    def _check_view(self, view: View) -> None:
        if view.artifact_index_multihash != self.index_multihash:
            raise UnsupportedError("the view belongs to another artifact")


@check_arguments
def open_tensors(
    place: str | os.PathLike[str], *, sources: SourcePolicy | None = None, engine: Engine | None = None
) -> TensorSet:
    """Open a safetensors file, a directory of them, a canonical file, or a partial file of `save_partial`.

    With `sources`, missing bytes are read from them, and `place` may be the id of an artifact. Artifacts with the
    same engine share its pinned memory; otherwise each has its own.
    """
    if isinstance(place, str) and place.startswith("mi2:"):
        replica = select_sources(ArtifactKey.parse(place), sources or SourcePolicy(), engine)
        return TensorSet(replica, owns_engine=engine is None)
    replica = open_local(check_path(place), engine)
    if sources is not None:
        data = None if replica.leaves is None else multihash(tree_root(replica.leaves))
        try:
            replica = select_sources(ArtifactKey(replica.index_multihash, data), sources, engine, first=replica)
        except BaseException:
            close_sources(replica)
            raise
    return TensorSet(replica, owns_engine=engine is None)


@check_arguments
def open_sources(
    index: TensorIndex, sources: Sequence[RangeSource], extents: Sequence[Extent], *, engine: Engine | None = None
) -> TensorSet:
    """Open an artifact, or the available parts of one, over any sources of bytes."""
    replica = Replica.create(index, tuple(sources), ExtentMap(extents), engine=engine)
    return TensorSet(replica, owns_engine=engine is None)


@check_arguments
def open_arrays(tensors: Mapping[str, Any]) -> TensorSet:
    """Open arrays of NumPy or tensors of torch (a `state_dict`) as an artifact, over their own memory."""
    return TensorSet(replica_of_arrays(tensors))


@check_arguments
def open_shards(
    tail: bytes,
    shards: FileShards | StoreShards,
    present: Iterable[tuple[int, int]],
    *,
    cost: ReadCost | None = None,
    sources: SourcePolicy | None = None,
    engine: Engine | None = None,
) -> TensorSet:
    """Open an artifact in shards. `tail` is the tail of a canonical file, which `encode_tail` makes.

    `present` are the available ranges. `sources` are used in their order; the shards count as the first store.
    """
    parsed = parse_tail(tail, "the stored index")
    total = parsed.index.total_size
    if shards.size_bytes != align(total):
        raise CorruptError(f"the shards have {shards.size_bytes} bytes; the index needs {align(total)}")
    parts = [Extent(start, min(end, total), 0, start) for start, end in present if start < total]
    extents = ExtentMap(parts)
    replica = Replica.create(parsed.index, (shards,), extents, leaves=parsed.leaves, engine=engine, cost=cost)
    if sources is not None:
        key = ArtifactKey(replica.index_multihash, multihash(tree_root(parsed.leaves)))
        replica = select_sources(key, sources, engine, stored=replica)
    return TensorSet(replica, owns_engine=engine is None)
