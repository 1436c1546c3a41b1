"""What local files amount to: safetensors, alone or as a folder, files of ours, and parts of an artifact."""

from __future__ import annotations

from pathlib import Path

from warpdata.errors import LimitExceededError, ObjectNotFoundError
from warpdata.limits import MAX_TENSOR_FILES
from warpdata.tensors.canonical_files import is_canonical, read_tail
from warpdata.tensors.engine import Engine
from warpdata.tensors.extents import Extent, Extents
from warpdata.tensors.partial_files import is_partial, read_parts
from warpdata.tensors.replica import Replica
from warpdata.tensors.safetensors_files import index_files
from warpdata.tensors.sources import FileSource

__all__ = ["open_local"]


def open_local(place: Path, engine: Engine | None = None) -> Replica:
    """Reads headers only. Files stay open until their sources are closed."""
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
        return _understand(files, engine)
    except BaseException:
        for file in files:
            file.close()
        raise


def _understand(files: tuple[FileSource, ...], engine: Engine | None) -> Replica:
    if len(files) == 1 and is_canonical(files[0]):
        tail = read_tail(files[0])
        extents = Extents([Extent(0, tail.index.total_size, 0, 0)])
        return Replica.of(tail.index, files, extents, leaves=tail.leaves, engine=engine)
    if len(files) == 1 and is_partial(files[0]):
        parts = read_parts(files[0])
        return Replica.of(parts.index, files, Extents(parts.extents), leaves=parts.leaves, engine=engine)
    index, extents = index_files(files)
    return Replica.of(index, files, extents, engine=engine)
