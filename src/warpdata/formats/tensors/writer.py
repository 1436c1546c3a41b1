"""A canonical file being assembled: views are written back into it until every tensor is there, then it is sealed.

Whichever views it is assembled from, and in whichever order, the sealed file and its id are those of writing it
whole. It appears under its name complete or not at all. Implements "Writing back" of docs/specs/tensors.md.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from warpdata.errors import AlreadyExistsError, ViewPreconditionError
from warpdata.formats.tensors.arrays import array_type
from warpdata.formats.tensors.canonical_files import encode_tail
from warpdata.formats.tensors.coverage import coverage_error
from warpdata.formats.tensors.extents import Extents, merge_ranges, subtract_ranges
from warpdata.formats.tensors.hashing import leaf_hashes
from warpdata.formats.tensors.index import TensorIndex, align, pack_index
from warpdata.formats.tensors.new_files import create_file, write_all
from warpdata.formats.tensors.plan import make_plan
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import NormalView, ViewSpec, normalize, whole
from warpdata.formats.tensors.tensor_set import Tensors, open_tensors
from warpdata.formats.tensors.transfer import write_back
from warpdata.formats.tensors.view import View
from warpdata.formats.tensors.write_back import block_to_write, written_ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DraftTensors", "create_tensors", "write_tensors"]


class DraftTensors:
    """Made by `create_tensors`. Leaving it without `seal()` removes what was written."""

    def __init__(self, path: Path, index: TensorIndex) -> None:
        self.path = path
        self._replica = Replica.of(index, (), Extents(()))
        self._partial = path.with_name(path.name + ".partial")
        self._file = create_file(self._partial, index.total_size)
        self._map = mmap.mmap(self._file, index.total_size) if index.total_size else None
        self._written: list[tuple[int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def index(self) -> TensorIndex:
        return self._replica.index

    def view(self, spec: ViewSpec | None = None, *, names: tuple[str, ...] | None = None) -> View:
        """A view to write, as `Tensors.view` makes one to read."""
        normal = NormalView(()) if spec is None else normalize(self.index, spec)
        return View(self._replica, normal, names)

    def write_view(self, view: View, data: Mapping[str, NDArray[Any]] | Any) -> None:
        """Put a view's tensors where they belong. `data` is a mapping of arrays, or the view's bytes.

        Arrays must have the view's shapes and types. Writing the same bytes again is allowed.
        """
        if self._file < 0:
            raise ViewPreconditionError("the draft is closed")
        plan, block = block_to_write(self._replica, view, data)
        if self._map is not None:
            with memoryview(self._map) as canonical:
                write_back(plan, block, canonical)
        self._written = merge_ranges([*self._written, *written_ranges(plan)])

    def seal(self) -> Tensors:
        """Finish the file and open it. `PartialCoverageError` while elements of a tensor are missing."""
        whole_tensors = NormalView(tuple((entry.name, whole(entry)) for entry in self.index))
        wanted = merge_ranges(written_ranges(make_plan(self.index, whole_tensors, self.index.names())))
        missing = subtract_ranges(wanted, self._written)
        if missing:
            raise coverage_error(missing, self._replica.index_multihash)
        leaves = tuple(leaf_hashes(memoryview(self._map))) if self._map is not None else ()
        os.lseek(self._file, self.index.total_size, os.SEEK_SET)
        total = self.index.total_size
        write_all(self._file, bytes(align(total) - total) + encode_tail(total, self._replica.index_bytes, leaves))
        if self._map is not None:
            self._map.flush()
        os.fsync(self._file)
        try:
            os.link(self._partial, self.path)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{self.path} is already there") from error
        self.close()
        return open_tensors(self.path)

    def close(self) -> None:
        """Let go, and remove what was not sealed. Safe to call twice."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            self._partial.unlink(missing_ok=True)


def create_tensors(path: str | os.PathLike[str], index: TensorIndex) -> DraftTensors:
    """Begin a canonical file for these tensors, all of them still to be written."""
    place = Path(path)
    if place.exists():
        raise AlreadyExistsError(f"{place} is already there")
    return DraftTensors(place, index)


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> Tensors:
    """Write arrays, or tensors of torch, as a canonical file, and open it. One of them is copied at a time."""
    index = pack_index({name: (array_type(array), tuple(array.shape)) for name, array in tensors.items()})
    with create_tensors(path, index) as draft:
        for name, array in tensors.items():
            draft.write_view(draft.view(names=(name,)), {name: array})
        return draft.seal()
