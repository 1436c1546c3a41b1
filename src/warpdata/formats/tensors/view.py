"""A view: what it is called, what reading it would cost, and reading it. Made by `Tensors.view`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from warpdata.errors import TensorsCorruptedError, ViewPreconditionError
from warpdata.formats.tensors.buffers import Region, new_region, region_of
from warpdata.formats.tensors.cuda.torch_interop import cuda_device
from warpdata.formats.tensors.hashing import (
    logical_layout_hash,
    multihash,
    selection_hash,
    tree_hash,
    view_id,
    view_subset_hash,
)
from warpdata.formats.tensors.index import TensorIndex
from warpdata.formats.tensors.index_json import encode_index
from warpdata.formats.tensors.layouts import Layout, Placed, lay_out
from warpdata.formats.tensors.plan import Pad, ViewPlan, make_plan
from warpdata.formats.tensors.reads import Choice, ReadCost, ReadPlan
from warpdata.formats.tensors.replica import Replica
from warpdata.formats.tensors.spec import NormalView
from warpdata.primitives.cached_property import cached_property

__all__ = ["Explanation", "Materialized", "View", "explain"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What reading a view will do, known before it is done.

    `reads` are (source, start, end), one for each request. `bytes_kept` are those that end up in the view.
    `on_device`: blocks are packed and axes swapped there, and not here.
    """

    requests: int
    bytes_read: int
    bytes_kept: int
    pad_bytes: int
    reads: tuple[tuple[int, int, int], ...]
    choices: tuple[Choice, ...]
    transposed: tuple[str, ...]
    on_device: bool = False

    def __str__(self) -> str:
        lines = [f"{self.requests} requests, {self.bytes_read} bytes read, {self.bytes_kept} kept"]
        for choice in self.choices:
            other = "" if choice.alternative_cost is None else f", the next best costs {choice.alternative_cost}"
            lines.append(
                f"  {choice.name}: {choice.method}, {choice.requests} requests, {choice.bytes_read} bytes read, "
                f"{choice.bytes_kept} kept, cost {choice.cost}{other}"
            )
            if choice.method == "wide":
                lines[-1] += ", packed on the device" if self.on_device else ", packed here"
        where = "on the device" if self.on_device else "here"
        lines += [f"  {name}: transposed after reading, {where}" for name in self.transposed]
        return "\n".join(lines)


class Materialized(Mapping[str, Any]):
    """Tensors by name, over one region of memory: arrays of numpy, or tensors of torch where torch owns it."""

    def __init__(self, contents: Any, arrays: Mapping[str, Any], byte_space: Callable[[], memoryview]) -> None:
        self._contents = contents
        self._arrays = arrays
        self._byte_space = byte_space

    @property
    def region(self) -> Any:
        """The view's ByteSpace: a memoryview, or a flat tensor of bytes. With a layout, the memory that was given."""
        return self._contents

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @cached_property
    def view_data_hash(self) -> str:
        """TreeHash of the view's ByteSpace, over the bytes as they are when this is first asked."""
        return multihash(tree_hash(self._byte_space()))


class View:
    """Some or all tensors of an artifact, cut or transposed. Costs nothing until it is materialized."""

    def __init__(
        self, replica: Replica, normal: NormalView, names: Sequence[str] | None = None, cost: ReadCost | None = None
    ) -> None:
        self._replica = replica
        self._cost = cost or replica.cost
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

    def only(self, names: Sequence[str]) -> View:
        """The same operations, for some of the tensors, in this order."""
        return View(self._replica, self.normal, tuple(names), self._cost)

    def explain(self, device: Any = None, *, verify: bool | None = None) -> Explanation:
        """Requests and bytes, exactly as reading will make them. `PartialCoverageError` if bytes are missing.

        `device` need not be here.
        """
        elsewhere = device is not None and str(device) != "cpu"
        planned = self._replica.plan_reads(self.plan, self._cost, verify=verify)
        return explain(self.plan, planned, self._replica.requests(planned), device=elsewhere)

    def materialize(self, device: Any = None, *, verify: bool | None = None, expect: str | None = None) -> Materialized:
        """Read into new memory, of numpy, or of torch on a device.

        `verify` checks every leaf whose hash is known; if it is not given, what stores and peers sent is checked.
        `expect` is a `view_data_hash`.
        """
        place = cuda_device(device)
        work = self._replica.work(self.plan, self._cost, verify=verify)
        region = new_region(self.size, place)
        if self.size:
            self._replica.engine.fill(work, region.target())
        return self._materialized(region, expect)

    def materialize_into(
        self, region: Any, *, layout: Layout = "view", verify: bool | None = None, expect: str | None = None
    ) -> Materialized:
        """Read into memory of the caller: writable, in one piece, at least `size` bytes. Bytes after them stay.

        `layout` says where each tensor goes: as in the "view", as in the "canonical" index, "packed" without
        padding, or at the bytes that a mapping names; with several regions by name, as (region, byte). Then only
        elements are written, and what lies between them stays. Nothing is written if bytes are missing at the
        source. After damage was found, what the region holds is undefined.
        """
        if layout != "view":
            return self._into_layout(region, layout, verify=verify, expect=expect)
        place = region_of(region).first(self.size)
        work = self._replica.work(self.plan, self._cost, verify=verify)
        if self.size:
            self._replica.engine.fill(work, place.target())
        return self._materialized(place, expect)

    def _into_layout(self, region: Any, layout: Layout, *, verify: bool | None, expect: str | None) -> Materialized:
        placed = lay_out(self._replica.index, self.normal, self.names, layout, region)
        work = self._replica.work(placed.assembly.plan(), self._cost, verify=verify)
        if placed.assembly:
            self._replica.engine.fill(work, placed.assembly.target(on_device=placed.on_device))
        arrays = {name: place.show(entry) for name, (entry, place) in placed.entries.items()}
        return _expected(Materialized(region, arrays, partial(self._own_bytes, placed)), expect)

    def _own_bytes(self, placed: Placed) -> memoryview:
        """The view's ByteSpace, put together from tensors that lie elsewhere."""
        out = memoryview(bytearray(self.size))
        for name, (entry, place) in placed.entries.items():
            home = self.plan.index[name]
            if not home.is_compact:
                raise ViewPreconditionError(f"{name!r} has more storage than elements, which a layout leaves out")
            start = entry.offset
            out[home.offset : home.offset + home.size] = place.to_host()[start : start + home.size]
        return out

    def _materialized(self, region: Region, expect: str | None) -> Materialized:
        arrays = {name: region.show(self.plan.index[name]) for name in self.names}
        return _expected(Materialized(region.contents, arrays, region.to_host), expect)


def _expected(out: Materialized, expect: str | None) -> Materialized:
    if expect is not None and out.view_data_hash != expect:
        raise TensorsCorruptedError(f"the view's bytes hash to {out.view_data_hash}, not to {expect}")
    return out


def explain(
    plan: ViewPlan, planned: ReadPlan, requests: tuple[tuple[int, int, int], ...], *, device: bool = False
) -> Explanation:
    """What carrying out these reads, by these requests, will amount to."""
    return Explanation(
        requests=len(requests),
        bytes_read=sum(read.size for read in planned.reads),
        bytes_kept=sum(run.size for run in plan.data_runs),
        pad_bytes=sum(run.size for run in plan.runs if isinstance(run, Pad)),
        reads=requests,
        choices=planned.choices,
        transposed=tuple(permute.name for permute in plan.permutes),
        on_device=device,
    )
