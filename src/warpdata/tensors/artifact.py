"""An artifact of tensors, opened: the façade over index, sources and views, and the doors to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from warpdata.errors import InvalidViewError, LimitExceededError, ObjectNotFoundError
from warpdata.limits import MAX_TENSOR_FILES
from warpdata.tensors.canonical_files import is_canonical, read_tail
from warpdata.tensors.engine import Engine
from warpdata.tensors.extents import Extent, Extents
from warpdata.tensors.identity import artifact_id, multihash
from warpdata.tensors.index import TensorIndex
from warpdata.tensors.reads import ReadCost
from warpdata.tensors.replica import Replica, data_digest
from warpdata.tensors.safetensors_files import index_files
from warpdata.tensors.sources import ByteSource, FileSource
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
        for source in self._replica.sources:
            if isinstance(source, FileSource):
                source.close()


def open_tensors(path: str | os.PathLike[str], *, engine: Engine | None = None) -> Tensors:
    """Open a safetensors file, a folder of them, or a file that `create_tensors` or `write_tensors` made.

    Artifacts that are given the same engine share its staging; otherwise each has one of its own.
    """
    place = Path(path)
    if place.is_dir():
        paths = sorted(file for file in place.iterdir() if file.suffix == ".safetensors")
        if not paths:
            raise ObjectNotFoundError(f"there is no .safetensors file in {place}")
        if len(paths) > MAX_TENSOR_FILES:
            raise LimitExceededError(f"{place} has {len(paths)} files; {MAX_TENSOR_FILES} are allowed")
    else:
        paths = [place]
    files = tuple(FileSource(file) for file in paths)
    try:
        return Tensors(_open_files(files, engine), owns_engine=engine is None)
    except BaseException:
        for file in files:
            file.close()
        raise


def open_sources(
    index: TensorIndex, sources: Sequence[ByteSource], extents: Sequence[Extent], *, engine: Engine | None = None
) -> Tensors:
    """An artifact, or the parts of one that are here, over any sources of bytes."""
    return Tensors(Replica.of(index, tuple(sources), Extents(extents), engine=engine), owns_engine=engine is None)


def _open_files(files: tuple[FileSource, ...], engine: Engine | None) -> Replica:
    if len(files) == 1 and is_canonical(files[0]):
        tail = read_tail(files[0])
        extents = Extents([Extent(0, tail.index.total_size, 0, 0)])
        return Replica.of(tail.index, files, extents, leaves=tail.leaves, engine=engine)
    index, extents = index_files(files)
    return Replica.of(index, files, extents, engine=engine)
