"""A canonical file that is assembled from views, until every tensor is complete and the file is sealed.

The sealed file and its id do not depend on the views or on their order. The file appears complete or not at all.
Implements "Writing back" of docs/specs/tensors.md.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from warpdata.errors import ConflictError, UnsupportedError
from warpdata.formats.tensors.extents import ExtentMap, coverage_error
from warpdata.formats.tensors.hashing import leaf_hashes
from warpdata.formats.tensors.in_memory import array_dtype, plan_write, written_ranges
from warpdata.formats.tensors.index import TensorIndex, align, pack_index
from warpdata.formats.tensors.plan import ViewPlan, make_plan
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import NormalView, ViewSpec, normalize, whole
from warpdata.formats.tensors.tensor_file import create_file, encode_tail, finish_file
from warpdata.formats.tensors.tensor_set import TensorSet, open_tensors
from warpdata.formats.tensors.transfer import write_back
from warpdata.formats.tensors.view import View
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.ranges import ByteRange, RangeSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TensorWriter", "create_tensors", "write_tensors"]


class TensorWriter:
    """A canonical file in progress, made by `create_tensors`. `close()` without `seal()` removes it."""

    def __init__(self, path: Path, index: TensorIndex) -> None:
        self.path = path
        self._replica = Replica.create(index, (), ExtentMap(()))
        self._new = create_file(path, index.total_size)
        self._map = mmap.mmap(self._new.file.fileno(), index.total_size) if index.total_size else None
        self._written = RangeSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        total = self.index.total_size
        return f"TensorWriter({str(self.path)!r}, {len(self.index)} tensors, {total:,} bytes)"

    @property
    def index(self) -> TensorIndex:
        return self._replica.index

    def view(self, spec: ViewSpec | None = None, *, names: tuple[str, ...] | None = None) -> View:
        """Return a view to write. Its arguments are those of `TensorSet.view`."""
        normal = NormalView(()) if spec is None else normalize(self.index, spec)
        return View(self._replica, normal, names)

    def write_view(self, view: View, data: Mapping[str, NDArray[Any]] | Any) -> None:
        """Write the tensors of a view. `data` maps names to arrays, or is the bytes of the view.

        Arrays must have the shapes and types of the view. Bytes may be written again with the same values. Other
        values are a `ConflictError`, and then nothing of this call is written.
        """
        if self._new.file.closed:
            raise UnsupportedError("this tensor writer is closed")
        plan, block = plan_write(self._replica, view, data)
        if self._map is not None:
            with memoryview(self._map) as canonical:
                _write_runs(plan, block, canonical, self._written)

    def seal(self) -> TensorSet:
        """Finish the file and open it. `PartialCoverageError` if elements of a tensor are missing."""
        whole_tensors = NormalView(tuple((entry.name, whole(entry)) for entry in self.index))
        missing = written_ranges(make_plan(self.index, whole_tensors, self.index.names())) - self._written
        if missing:
            raise coverage_error(missing, self._replica.space)
        leaves = leaf_hashes(memoryview(self._map)) if self._map is not None else []
        total = self.index.total_size
        self._new.file.seek(total)
        self._new.file.write(bytes(align(total) - total) + encode_tail(total, self._replica.index_bytes, leaves))
        if self._map is not None:
            self._map.flush()
        finish_file(self._new)
        self.close()
        return open_tensors(self.path)

    def close(self) -> None:
        """Close the file, and remove it unless it was sealed. Safe to call twice."""
        if self._map is not None:
            self._map.close()
            self._map = None
        self._new.close()


def _write_runs(plan: ViewPlan, block: memoryview, canonical: memoryview, written: RangeSet) -> None:
    """Write a plan and add its ranges to `written`. If a written byte would change, undo everything and raise."""
    new: list[ByteRange] = []
    for run in plan.data_runs:
        # Runs of one plan overlap each other if their tensors share a storage.
        alone = replace(plan, runs=(run,))
        ranges = list(written_ranges(alone))
        before = [(part, bytes(canonical[part.start : part.end])) for span in ranges for part in written.present(span)]
        write_back(alone, block, canonical)
        changed = next((part for part, old in before if canonical[part.start : part.end] != old), None)
        new += [part for span in ranges for part in written.missing(span)]
        for span in ranges:
            written.add(span)
        if changed is not None:
            for part, old in before:
                canonical[part.start : part.end] = old
            for part in new:
                canonical[part.start : part.end] = bytes(part.size_bytes)
                written.discard(part)
            raise ConflictError(
                f"{run.name!r}: bytes {changed.start}…{changed.end} were written with other values",
                hint="Write each element once, or with equal values.",
            )


@check_arguments
def create_tensors(path: str | os.PathLike[str], index: TensorIndex) -> TensorWriter:
    """Begin a canonical file for these tensors."""
    return TensorWriter(Path(path), index)


@check_arguments
def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Any]) -> TensorSet:
    """Write arrays, or tensors of torch, as a canonical file, and open it. Copies one tensor at a time."""
    index = pack_index({name: (array_dtype(array), tuple(array.shape)) for name, array in tensors.items()})
    with create_tensors(path, index) as writer:
        for name, array in tensors.items():
            writer.write_view(writer.view(names=(name,)), {name: array})
        return writer.seal()
