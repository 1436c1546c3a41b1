"""Views and tensors: identity, cost and reads of some or all tensors of an artifact.

A `View` selects parts of many tensors and is made by `TensorSet.view`. A `Tensor` is one tensor or a slice of it,
made by `TensorSet[name]`. Both read nothing until they are materialized.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warpdata.errors import (
    BadInputError,
    CorruptError,
    NotFoundError,
    PartialCoverageDetail,
    StorageError,
    StoreUnavailableError,
    UnsupportedError,
)
from warpdata.formats.tensors import cuda
from warpdata.formats.tensors.buffers import Buffer, as_buffer, new_buffer
from warpdata.formats.tensors.display import clip_name, list_names, table_rows, tensor_table
from warpdata.formats.tensors.dtypes import numpy_dtype
from warpdata.formats.tensors.extents import missing_ranges
from warpdata.formats.tensors.hashing import (
    logical_layout_hash,
    multihash,
    selection_hash,
    tree_hash,
    view_id,
    view_subset_hash,
)
from warpdata.formats.tensors.index import TensorEntry, TensorIndex, encode_index
from warpdata.formats.tensors.multi_buffer import Layout, PlacedTensors, place_tensors
from warpdata.formats.tensors.plan import ViewPlan, make_plan
from warpdata.formats.tensors.reads import ReadCost, ViewExplanation, explain_reads
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.source_health import error_text
from warpdata.formats.tensors.spec import Bound, NormalView, TensorSelection
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.ranges import RangeSet

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Materialized", "Tensor", "View"]

_Key: TypeAlias = "int | slice | EllipsisType"


class Materialized(Mapping[str, Any]):
    """Tensors by name, over one region of memory: arrays of NumPy, or tensors of torch if torch owns the memory."""

    def __init__(self, contents: Any, arrays: Mapping[str, Any], byte_space: Callable[[], memoryview]) -> None:
        self._contents = contents
        self._arrays = arrays
        self._byte_space = byte_space

    def __repr__(self) -> str:
        return f"Materialized({len(self):,} tensors: {list_names(list(self))})"

    def _repr_html_(self) -> str:
        return tensor_table(f"{len(self):,} tensors", map(_table_row, self._arrays.items()), len(self))

    @property
    def region(self) -> Any:
        """The ByteSpace of the view as a memoryview or a flat tensor; with a layout, the memory of the caller."""
        return self._contents

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @cached_property
    def view_data_hash(self) -> str:
        """The TreeHash of the view's ByteSpace, computed from the memory on first use."""
        return multihash(tree_hash(self._byte_space()))


class View:
    """Some or all tensors of an artifact, sliced or transposed. Reads nothing until it is materialized."""

    def __init__(
        self, replica: Replica, normal: NormalView, names: Sequence[str] | None = None, cost: ReadCost | None = None
    ) -> None:
        self._replica = replica
        self._cost = cost or replica.cost
        self.normal = normal
        self.plan = make_plan(replica.index, normal, names)
        self._subset = None if names is None else view_subset_hash(names)

    def __repr__(self) -> str:
        identity = self.view_id or "identity"
        return f"View({len(self.names):,} tensors, {self.size:,} bytes, {identity}: {list_names(self.names)})"

    def _repr_html_(self) -> str:
        title = f"View {self.view_id or ''} · {len(self.names):,} tensors · {self.size:,} bytes"
        return tensor_table(title, table_rows(self.index[name] for name in self.names), len(self.names))

    @property
    def view_id(self) -> str | None:
        """The id of the view; None for the identity."""
        return view_id(self.normal, self._replica.index, self._replica.index_multihash)

    @property
    def index(self) -> TensorIndex:
        """The index of the view's own ByteSpace."""
        return self.plan.index

    @property
    def index_bytes(self) -> bytes:
        return encode_index(self.plan.index)

    @property
    def artifact_index_multihash(self) -> str:
        """The index multihash of the artifact."""
        return self._replica.index_multihash

    @property
    def space_kind(self) -> str:
        """`canonical` for all tensors without operations, else `view`."""
        return "canonical" if self.view_id is None and self._subset is None else "view"

    @property
    def space_id(self) -> str:
        """The id of the ByteSpace: the index multihash, the view id, or for some tensors a hash of their layout."""
        if self._subset is None:
            return self.view_id or self._replica.index_multihash
        layout = self._replica.index_multihash.encode() + self.selection_hash + self.logical_layout_hash
        return multihash(hashlib.sha256(layout).digest())

    @property
    def size(self) -> int:
        return self.plan.size

    @property
    def names(self) -> tuple[str, ...]:
        return self.plan.names

    @property
    def subset_hash(self) -> bytes | None:
        """The hash of the names; None if the view has all tensors."""
        return self._subset

    @property
    def selection_hash(self) -> bytes:
        return selection_hash(self.view_id, self._subset)

    @property
    def logical_layout_hash(self) -> bytes:
        is_canonical = self.view_id is None and self._subset is None
        return logical_layout_hash(self.index_bytes, "canonical" if is_canonical else "view")

    def only(self, names: Sequence[str]) -> View:
        """Return the same operations on some of the tensors, in this order."""
        return View(self._replica, self.normal, tuple(names), self._cost)

    def explain(self, device: Any = None, *, verify: bool | None = None, expect: str | None = None) -> ViewExplanation:
        """Return the exact requests and bytes of a read. `PartialCoverageError` if bytes are missing.

        The device need not exist on this machine. With a known hash, the view may be read from kept bytes: then
        `space_kind` is `view`, and offsets are those of the view's ByteSpace.
        """
        on_device = device is not None and not cuda.is_cpu(device)
        replica, plan = self._replica, self.plan
        kept = self._kept(expect)
        if kept is not None and not missing_ranges(kept[1].data_runs, kept[0].extents):
            replica, plan = kept
        planned = replica.plan_reads(plan, self._cost, verify=verify)
        requests = replica.requests(planned)
        threads = replica.threads(plan, self._cost, verify=verify)
        return explain_reads(plan, planned, requests, on_device=on_device, space=replica.space, threads=threads)

    def coverage(self, *, expect: str | None = None) -> tuple[PartialCoverageDetail, PartialCoverageDetail]:
        """Return the bytes of this view that are missing in the canonical ByteSpace, and in that of the view.

        One without missing ranges is enough to read the view. The bytes of the view are available only if a source
        has kept them and their hash is known, from `expect` or from the policy.
        """
        lacking = missing_ranges(self.plan.data_runs, self._replica.extents)
        canonical = _detail("canonical", self._replica.index_multihash, lacking)
        if self.space_kind == "canonical":
            return canonical, canonical
        kept = self._kept(expect)
        whole = RangeSet((entry.offset, entry.offset + entry.size) for entry in self.index if entry.size)
        lacking = whole if kept is None else missing_ranges(kept[1].data_runs, kept[0].extents)
        return canonical, _detail("view", self.space_id, lacking)

    def materialize(self, device: Any = None, *, verify: bool | None = None, expect: str | None = None) -> Materialized:
        """Read into new memory of NumPy, or of torch on a device. `device="cpu"` is NumPy if torch is not installed.

        `verify` checks every leaf whose hash is known. By default, the bytes of stores, peers and all sources of a
        policy are verified. `expect` is the `view_data_hash` that the result must have.
        """
        cuda.cuda_device(device)  # refuse a device before anything is planned
        made: list[Buffer] = []

        def buffer() -> Buffer:
            if not made:
                made.append(new_buffer(self.size, device))
            return made[0]

        return self._fill(buffer, verify=verify, expect=expect)

    def materialize_into(
        self, region: Any, *, layout: Layout = "view", verify: bool | None = None, expect: str | None = None
    ) -> Materialized:
        """Read into memory of the caller: contiguous, writable, at least `size` bytes. Later bytes are not changed.

        `layout` places the tensors: as in the "view", as in the "canonical" index, "packed" without padding, or at
        the bytes of a mapping; with several named regions, the mapping has (region, byte). Other layouts than "view"
        write elements only. Nothing is written if bytes are missing. If verification fails, the content of the
        region is undefined.
        """
        if layout != "view":
            return self._materialize_layout(region, layout, verify=verify, expect=expect)
        buffer = as_buffer(region).first(self.size)
        return self._fill(lambda: buffer, verify=verify, expect=expect)

    def _fill(self, buffer: Callable[[], Buffer], *, verify: bool | None, expect: str | None) -> Materialized:
        """Read the view's ByteSpace: kept bytes of the view if a source has them, else the canonical bytes.

        `buffer` is called when the bytes are known to be available, so that nothing is allocated in vain.
        """
        kept, failure = self._kept(expect), None
        if kept is not None:
            replica, plan = kept
            try:
                task = replica.transfer_task(plan, self._cost, verify=verify)
                if self.size:
                    self._replica.engine.fill(task, buffer().target())
                return self._materialized(buffer(), expect)
            except (CorruptError, StorageError, NotFoundError, OSError) as error:
                failure = error
        try:
            task = self._replica.transfer_task(self.plan, self._cost, verify=verify)
            if self.size:
                self._replica.engine.fill(task, buffer().target())
        except (CorruptError, StorageError, NotFoundError) as error:
            if failure is None:
                raise
            found = f"view {self.space_id}: {error_text(failure)}; canonical: {error_text(error)}"
            raise StoreUnavailableError(f"the view cannot be read from any source: {found}") from error
        return self._materialized(buffer(), expect)

    def _kept(self, expect: str | None) -> tuple[Replica, ViewPlan] | None:
        """Return kept bytes of this view, and the plan that reads all of them."""
        views = self._replica.views
        if views is None or self.space_kind == "canonical":
            return None
        found = views.find(self.space_id, self.index_bytes, expect)
        return None if found is None else (found, make_plan(found.index, NormalView(())))

    def _materialize_layout(
        self, region: Any, layout: Layout, *, verify: bool | None, expect: str | None
    ) -> Materialized:
        placed = place_tensors(self._replica.index, self.normal, self.names, layout, region)
        task = self._replica.transfer_task(placed.plan.plan(), self._cost, verify=verify)
        if placed.plan:
            self._replica.engine.fill(task, placed.plan.target(on_device=placed.on_device))
        arrays = {name: buffer.show(entry) for name, (entry, buffer) in placed.entries.items()}
        return _check_hash(Materialized(region, arrays, partial(self._collect_bytes, placed)), expect)

    def _collect_bytes(self, placed: PlacedTensors) -> memoryview:
        """Copy the view's ByteSpace together from tensors that a layout has placed."""
        out = memoryview(bytearray(self.size))
        for name, (entry, buffer) in placed.entries.items():
            home = self.plan.index[name]
            if not home.is_compact:
                raise UnsupportedError(f"{name!r} has more storage than elements, which a layout omits")
            start = entry.offset
            out[home.offset : home.offset + home.size] = buffer.to_host()[start : start + home.size]
        return out

    def _materialized(self, buffer: Buffer, expect: str | None) -> Materialized:
        arrays = {name: buffer.show(self.plan.index[name]) for name in self.names}
        return _check_hash(Materialized(buffer.contents, arrays, buffer.to_host), expect)


def _detail(kind: str, identity: str, missing: RangeSet) -> PartialCoverageDetail:
    return PartialCoverageDetail(kind, identity, tuple((span.start, span.size_bytes) for span in missing))


def _table_row(item: tuple[str, Any]) -> tuple[str, str, Sequence[int], int]:
    name, array = item
    return name, str(array.dtype), tuple(array.shape), int(array.nbytes)


def _check_hash(out: Materialized, expect: str | None) -> Materialized:
    if expect is not None and out.view_data_hash != expect:
        raise CorruptError(f"the bytes of the view hash to {out.view_data_hash}; expected {expect}")
    return out


@dataclass(frozen=True, slots=True, repr=False)
class Tensor:
    """A tensor or a slice of it. Indexing reads nothing; `numpy()` reads exactly the slice."""

    entry: TensorEntry
    _replica: Replica
    _bounds: tuple[Bound, ...]
    _axes: tuple[int, ...]

    def __repr__(self) -> str:
        part = "" if self.shape == self.entry.shape else f", part of {self.entry.shape}"
        return f"Tensor({clip_name(self.name)!r}, {self.dtype}, shape={self.shape}{part})"

    def _repr_html_(self) -> str:
        size = math.prod(self.shape) * self.entry.dtype.item_bytes
        return tensor_table("Tensor", [(self.name, self.dtype, self.shape, size)], 1)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def dtype(self) -> str:
        return self.entry.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._bounds[axis].length for axis in self._axes)

    def __len__(self) -> int:
        if not self._axes:
            raise TypeError(f"{self.name!r} is a scalar")
        return self.shape[0]

    def __getitem__(self, key: _Key | tuple[_Key, ...]) -> Tensor:
        """Slice like NumPy, with positive steps. An integer removes its axis."""
        keys = _expand(key if isinstance(key, tuple) else (key,), len(self._axes), self.name)
        bounds, axes = list(self._bounds), []
        for axis, part in zip(self._axes, keys, strict=True):
            bounds[axis] = _narrow_bound(bounds[axis], part, self.name)
            if isinstance(part, slice):
                axes.append(axis)
        return replace(self, _bounds=tuple(bounds), _axes=tuple(axes))

    def numpy(self, *, verify: bool | None = None) -> NDArray[Any]:
        """Read the slice into a new array."""
        if 0 in self.shape:
            return np.empty(self.shape, numpy_dtype(self.entry.dtype))
        array: NDArray[Any] = self._view().materialize(verify=verify)[self.name]
        return array.reshape(self.shape)

    def torch(self, device: Any = "cpu", *, verify: bool | None = None) -> Any:
        """Read the slice into a new tensor of torch. `MissingExtraError` if torch is not installed."""
        cuda.torch_library()
        if 0 in self.shape:
            return cuda.empty_tensor(self.shape, self.entry.dtype, cuda.cuda_device(device) or "cpu")
        return self._view().materialize(device, verify=verify)[self.name].reshape(self.shape)

    def _view(self) -> View:
        selection = TensorSelection(self._bounds, tuple(range(len(self._bounds))))
        return View(self._replica, NormalView(((self.name, selection),)), names=(self.name,))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)


def _expand(keys: tuple[_Key, ...], rank: int, name: str) -> list[int | slice]:
    """Return one key for each axis; `...` fills the axes without a key."""
    dots = [at for at, key in enumerate(keys) if key is Ellipsis]
    given: list[Any] = [key for key in keys if key is not Ellipsis]
    if len(dots) > 1 or len(given) > rank:
        raise BadInputError(f"{name!r} has {rank} axes here, but the index has {len(given)}")
    at = dots[0] if dots else len(given)
    return [*given[:at], *[slice(None)] * (rank - len(given)), *given[at:]]


def _narrow_bound(bound: Bound, part: int | slice, name: str) -> Bound:
    """Apply a key to a bound. Positions are relative to the bound."""
    if isinstance(part, slice):
        try:
            start, stop, step = part.indices(bound.length)
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{name!r}: {part!r} is not a slice: {error}") from error
        if step < 1:
            raise BadInputError(f"{name!r}: the step {step} is not positive")
        return bound.part(start, max(0, -(-(stop - start) // step)), step)
    try:
        position = operator.index(part)
    except TypeError as error:
        raise BadInputError(f"{name!r}: {part!r} is not an integer or a slice") from error
    if not -bound.length <= position < bound.length:
        raise BadInputError(f"{name!r}: {position} is out of range for {bound.length} entries")
    return bound.part(position % bound.length, 1)
