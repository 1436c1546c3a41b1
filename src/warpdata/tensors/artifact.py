"""An artifact of tensors, opened: the façade over index, sources and views, and the doors to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from warpdata.errors import InvalidViewError, ViewPreconditionError
from warpdata.tensors.deferred import Deferred
from warpdata.tensors.engine import Engine
from warpdata.tensors.extents import Extent, Extents
from warpdata.tensors.identity import artifact_id, multihash, tree_root
from warpdata.tensors.index import TensorIndex
from warpdata.tensors.local import open_local
from warpdata.tensors.partial_files import write_parts
from warpdata.tensors.policy import SourcePolicy, Wanted, assemble, close_sources
from warpdata.tensors.reads import ReadCost
from warpdata.tensors.replica import Replica, data_digest
from warpdata.tensors.sources import ByteSource
from warpdata.tensors.spec import NormalView, ViewSpec, normalize, whole
from warpdata.tensors.tensor import Tensor
from warpdata.tensors.view import View

__all__ = ["Tensors", "open_sources", "open_tensors"]


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

    def keep(self, view: View, path: str | os.PathLike[str]) -> Tensors:
        """Fetch what a view needs into a file of its own, and open that: a part of this artifact.

        Leaves of the TreeHash that the view touches are kept whole, and checked if their hashes are known. The
        file serves every view it covers. What it lacks is an error, unless it is opened with other sources.
        """
        if view.artifact_index_multihash != self.index_multihash:
            raise ViewPreconditionError("the view is one of another artifact")
        write_parts(Path(path), self._replica, view.plan, ReadCost())
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
