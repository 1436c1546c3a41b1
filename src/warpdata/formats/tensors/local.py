"""What local files amount to: safetensors, alone or as a folder, files of ours, and parts of an artifact."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from warpdata.errors import LimitExceededError, ObjectNotFoundError, TensorsCorruptedError
from warpdata.formats.tensors.canonical_files import is_canonical, read_tail
from warpdata.formats.tensors.engine import Engine
from warpdata.formats.tensors.extents import Extent, Extents
from warpdata.formats.tensors.index_json import decode_object
from warpdata.formats.tensors.partial_files import is_partial, read_parts
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.safetensors_files import index_files
from warpdata.formats.tensors.sources import FileSource
from warpdata.limits import MAX_TENSOR_FILES, MAX_TENSOR_INDEX_BYTES

__all__ = ["open_local"]

_LIST = ".safetensors.index.json"


def open_local(place: Path, engine: Engine | None = None) -> Replica:
    """Reads headers only. Files stay open until their sources are closed."""
    told = _weight_map(place)
    if told is not None:
        folder = place if place.is_dir() else place.parent
        paths = [folder / name for name in sorted(set(told.values()))]
    elif place.is_dir():
        paths = sorted(file for file in place.iterdir() if file.suffix == ".safetensors")
        if not paths:
            raise ObjectNotFoundError(f"there is no .safetensors file in {place}")
    else:
        paths = [place]
    if len(paths) > MAX_TENSOR_FILES:
        raise LimitExceededError(f"{place} has {len(paths)} files; {MAX_TENSOR_FILES} are allowed")
    files = tuple(FileSource(file) for file in paths)
    try:
        replica = _understand(files, engine)
        if told is not None:
            _compare(told, replica, place)
        return replica
    except BaseException:
        for file in files:
            file.close()
        raise


def _weight_map(place: Path) -> dict[str, str] | None:
    """Which file has which tensor, where a list says so: of a checkpoint in several files."""
    if place.is_dir():
        lists = sorted(file for file in place.iterdir() if file.name.endswith(_LIST))
        if len(lists) != 1:
            return None  # none, or several checkpoints in one folder: then all files count
        place = lists[0]
    elif not place.name.endswith(_LIST):
        return None
    with closing(FileSource(place)) as file:
        size = file.size_bytes
        if size > MAX_TENSOR_INDEX_BYTES:
            raise TensorsCorruptedError(f"{place.name} has {size} bytes; {MAX_TENSOR_INDEX_BYTES} are allowed")
        told = decode_object(bytes(file.read_range(0, size)), place.name).get("weight_map")
    if not isinstance(told, dict) or not told:
        raise TensorsCorruptedError(f"{place.name} has no weight_map that names files")
    for name, file_name in told.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name or file_name in ("", ".", ".."):
            raise TensorsCorruptedError(f"{place.name} looks for {name!r} in {file_name!r}, not a file beside it")
    return told


def _compare(told: dict[str, str], replica: Replica, place: Path) -> None:
    """The list and the files name the same tensors, or one of them is not what it was."""
    odd = sorted(set(told) ^ set(replica.index.names()))
    if odd:
        raise TensorsCorruptedError(f"the list in {place} and its files differ: {', '.join(map(repr, odd[:5]))}")


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
