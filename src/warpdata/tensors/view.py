"""A view: what it is called, what reading it would cost, and reading it. Made by `Tensors.view`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from warpdata.errors import TensorsCorruptedError, ViewPreconditionError
from warpdata.tensors.dtypes import numpy_dtype
from warpdata.tensors.identity import (
    logical_layout_hash,
    multihash,
    selection_hash,
    tree_hash,
    view_id,
    view_subset_hash,
)
from warpdata.tensors.index import TensorEntry, TensorIndex
from warpdata.tensors.index_json import encode_index
from warpdata.tensors.plan import Pad, ViewPlan, make_plan
from warpdata.tensors.reads import Choice, ReadCost
from warpdata.tensors.replica import Replica
from warpdata.tensors.spec import NormalView

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Explanation", "Materialized", "View", "array_over", "region_bytes"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What reading a view will do, known before it is done.

    `reads` are (source, start, end), one for each request. `bytes_kept` are those that end up in the view.
    """

    requests: int
    bytes_read: int
    bytes_kept: int
    pad_bytes: int
    reads: tuple[tuple[int, int, int], ...]
    choices: tuple[Choice, ...]
    transposed: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.requests} requests, {self.bytes_read} bytes read, {self.bytes_kept} kept"]
        for choice in self.choices:
            other = "" if choice.alternative_cost is None else f", the next best costs {choice.alternative_cost}"
            lines.append(
                f"  {choice.name}: {choice.method}, {choice.requests} requests, {choice.bytes_read} bytes read, "
                f"{choice.bytes_kept} kept, cost {choice.cost}{other}"
            )
        lines += [f"  {name}: transposed after reading" for name in self.transposed]
        return "\n".join(lines)


class Materialized(Mapping[str, "NDArray[Any]"]):
    """Tensors by name, as arrays over one region of memory."""

    def __init__(self, plan: ViewPlan, region: memoryview) -> None:
        self.region = region
        self._arrays = {name: array_over(plan.index[name], region) for name in plan.names}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @cached_property
    def view_data_hash(self) -> str:
        """TreeHash of the region, over its bytes as they are when this is first asked."""
        return multihash(tree_hash(self.region))


class View:
    """Some or all tensors of an artifact, cut or transposed. Costs nothing until it is materialized."""

    def __init__(
        self, replica: Replica, normal: NormalView, names: Sequence[str] | None = None, cost: ReadCost | None = None
    ) -> None:
        self._replica = replica
        self._cost = cost or ReadCost()
        self.normal = normal
        self.plan = make_plan(replica.index, normal, names)
        self._subset = None if names is None else view_subset_hash(names)

    @property
    def view_id(self) -> str | None:
        """`None` for the identity."""
        return view_id(self.normal, self._replica.index, self._replica.index_multihash)

    @property
    def index(self) -> TensorIndex:
        """Where each tensor lies in the view's own ByteSpace."""
        return self.plan.index

    @property
    def index_bytes(self) -> bytes:
        return encode_index(self.plan.index)

    @property
    def artifact_index_multihash(self) -> str:
        """Of which artifact this is a view."""
        return self._replica.index_multihash

    @property
    def size(self) -> int:
        return self.plan.size

    @property
    def names(self) -> tuple[str, ...]:
        return self.plan.names

    @property
    def subset_hash(self) -> bytes | None:
        """`None` where all tensors are in the view."""
        return self._subset

    @property
    def selection_hash(self) -> bytes:
        return selection_hash(self.view_id, self._subset)

    @property
    def logical_layout_hash(self) -> bytes:
        canonical = self.view_id is None and self._subset is None
        return logical_layout_hash(self.index_bytes, "canonical" if canonical else "view")

    def explain(self, *, verify: bool = False) -> Explanation:
        """Requests and bytes, exactly as reading will make them. `PartialCoverageError` if bytes are missing."""
        planned = self._replica.plan_reads(self.plan, self._cost, verify=verify)
        return Explanation(
            requests=len(planned.reads),
            bytes_read=sum(read.end - read.start for read in planned.reads),
            bytes_kept=sum(run.size for run in self.plan.data_runs),
            pad_bytes=sum(run.size for run in self.plan.runs if isinstance(run, Pad)),
            reads=tuple((read.source, read.start, read.end) for read in planned.reads),
            choices=planned.choices,
            transposed=tuple(permute.name for permute in self.plan.permutes),
        )

    def materialize(self, *, verify: bool = False, expect: str | None = None) -> Materialized:
        """Read into new memory. `verify` checks every leaf whose hash is known; `expect` is a `view_data_hash`."""
        return self.materialize_into(np.empty(self.size, np.uint8), verify=verify, expect=expect)

    def materialize_into(self, region: Any, *, verify: bool = False, expect: str | None = None) -> Materialized:
        """Read into memory of the caller: writable, in one piece, at least `size` bytes. Bytes after them stay.

        Nothing is written if bytes are missing at the source. After damage was found, what the region holds
        is undefined.
        """
        target = region_bytes(region)
        if target.readonly:
            raise ViewPreconditionError("the target can not be written to")
        if len(target) < self.size:
            raise ViewPreconditionError(f"the target has {len(target)} bytes, and the view {self.size}")
        target = target[: self.size]
        self._replica.fill(self.plan, self._cost, target, verify=verify)
        out = Materialized(self.plan, target)
        if expect is not None and out.view_data_hash != expect:
            raise TensorsCorruptedError(f"the view's bytes hash to {out.view_data_hash}, not to {expect}")
        return out


def region_bytes(region: Any) -> memoryview:
    """Any memory in one piece, as bytes."""
    try:
        if isinstance(region, np.ndarray):
            region = region.reshape(-1).view(np.uint8) if region.flags.c_contiguous else None
        view = memoryview(region)
        return view.cast("B") if view.nbytes else memoryview(bytearray())
    except (TypeError, ValueError, BufferError) as error:
        raise ViewPreconditionError("the target is not memory in one piece", hint="pass a contiguous array") from error


def array_over(entry: TensorEntry, region: memoryview) -> NDArray[Any]:
    """A tensor as an array that looks into `region`."""
    dtype, item = numpy_dtype(entry.dtype), entry.dtype.item_bytes
    if entry.element_count == 0:
        return np.empty(entry.shape, dtype)
    strides = tuple(stride * item for stride in entry.stride)
    return np.ndarray(entry.shape, dtype, region, entry.offset + entry.storage_offset * item, strides)
