"""Tensors: the tree of a checkpoint, statistics of one tensor on demand, and two checkpoints compared."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from warpdata.formats.tensors import TensorEntry
from warpdata.kinds.tensors import TensorDiff
from warpdata.limits import MAX_REF_LENGTH, MAX_TENSOR_NAME_BYTES
from warpdata.server.caller import ServiceOf
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer, EntryName, RefQuery, page_behind
from warpdata.server.service import Service
from warpdata.server.tensors import compare_sets, describe, difference, find_tensor, open_set, tree_level

__all__ = ["router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}", tags=["tensors"])
_MAX_PAGE = 1000
_REF = r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$"

SetName = Annotated[EntryName, Query(alias="set")]
TensorName = Annotated[
    str, Query(alias="tensor", min_length=1, max_length=MAX_TENSOR_NAME_BYTES, examples=["layers.0.attn.q.weight"])
]
NameCursor = Annotated[
    str | None, Query(max_length=MAX_TENSOR_NAME_BYTES, description="The `next_cursor` of the page before.")
]
PageSize = Annotated[int, Query(ge=1, le=_MAX_PAGE)]
Compared = Query(pattern=_REF, max_length=MAX_REF_LENGTH, description="A version, label or branch.", examples=["main"])
OfSet = Query(pattern=r"^[^\x00-\x1f/]+$", max_length=128, description="A set of tensors. Default: the only one.")
Kind = Literal["added", "removed", "retyped", "changed", "undecided", "same"]


class TensorView(Answer):
    """A tensor: its type, its shape, and the bytes of its elements."""

    name: str
    dtype: str
    shape: list[int]
    elements: int
    size_bytes: int


class TensorList(Answer):
    """Tensors by name. `total` counts all that match; `size_bytes` is what the whole set takes."""

    version: str
    set: str
    tensors: list[TensorView]
    total: int
    size_bytes: int
    artifact_id: str | None
    next_cursor: str | None


class TensorNodeView(Answer):
    """A part of a dotted name. A tensor has its description, and a group the counts of all tensors in it."""

    label: str
    path: str
    tensor: TensorView | None
    is_group: bool
    tensors: int
    elements: int
    size_bytes: int


class TensorTree(Answer):
    """One level of the tree of names. The first four counts are of the whole set."""

    version: str
    set: str
    tensors: int
    elements: int
    element_bytes: int
    size_bytes: int
    artifact_id: str | None
    nodes: list[TensorNodeView]
    next_cursor: str | None


class TensorStatisticsView(Answer):
    """Counts of elements, and extremes, mean, deviation and histogram of the finite ones.

    `read` elements were read; if `is_sampled`, a part of all. `edges` has one number more than `counts`.
    """

    version: str
    set: str
    tensor: TensorView
    read: int
    read_bytes: int
    is_sampled: bool
    nan: int
    infinite: int
    zero: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    std: float | None
    edges: list[float]
    counts: list[int]


class TensorChangeView(Answer):
    """A tensor of two sets. "retyped" has another shape or type, and "undecided" may have changed."""

    name: str
    change: Kind
    before: TensorView | None
    after: TensorView | None


class TensorDiffView(Answer):
    """Two sets of tensors by content hash. `undecided_bytes` would have to be read to decide all."""

    older: str
    newer: str
    older_set: str
    newer_set: str
    counts: dict[str, int]
    undecided_bytes: int
    changes: list[TensorChangeView]
    total: int
    next_cursor: str | None


class TensorDifferenceView(Answer):
    """How far two tensors are apart, over elements that are finite in both. `changed` counts elements that differ."""

    older: str
    newer: str
    name: str
    elements: int
    read: int
    read_bytes: int
    is_sampled: bool
    changed: int
    max_absolute: float | None
    mean_absolute: float | None
    norm: float | None
    relative: float | None


@router.get("/tensors", summary="List tensors")
def list_tensors(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    set_name: SetName = None,
    contains: Annotated[str, Query(max_length=1024, description="Keep names with this text.")] = "",
    limit: PageSize = 100,
    cursor: NameCursor = None,
) -> TensorList:
    """List the tensors of a set by name. Reads the index, and no data."""
    _, dataset = service.open(dataset_id, ref)
    stored = open_set(service, dataset, set_name)
    wanted = contains.lower()
    found = [(entry.name, entry) for entry in stored.tensors.index if wanted in entry.name.lower()]
    page, following = page_behind(found, cursor, limit)
    return TensorList(
        version=dataset.version,
        set=stored.name,
        tensors=[_view(entry) for entry in page],
        total=len(found),
        size_bytes=stored.tensors.index.total_size,
        artifact_id=stored.tensors.known_artifact_id,
        next_cursor=following,
    )


@router.get("/tensors/tree", summary="Show a level of the tree of tensors")
def get_tensor_tree(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    ref: RefQuery = None,
    set_name: SetName = None,
    prefix: Annotated[
        str, Query(max_length=MAX_TENSOR_NAME_BYTES, description="The path of a node. Default: the root.")
    ] = "",
    limit: PageSize = _MAX_PAGE,
    cursor: NameCursor = None,
) -> TensorTree:
    """Show the nodes below a path, where a dot in a name begins a level. Reads the index, and no data."""
    _, dataset = service.open(dataset_id, ref)
    stored = open_set(service, dataset, set_name)
    index = stored.tensors.index
    nodes, following = page_behind([(node.path, node) for node in tree_level(index, prefix)], cursor, limit)
    return TensorTree(
        version=dataset.version,
        set=stored.name,
        tensors=len(index),
        elements=sum(entry.element_count for entry in index),
        element_bytes=sum(entry.byte_size for entry in index),
        size_bytes=index.total_size,
        artifact_id=stored.tensors.known_artifact_id,
        nodes=[
            TensorNodeView(
                label=node.label,
                path=node.path,
                tensor=None if node.tensor is None else _view(node.tensor),
                is_group=node.is_group,
                tensors=node.tensor_count,
                elements=node.element_count,
                size_bytes=node.size_bytes,
            )
            for node in nodes
        ],
        next_cursor=following,
    )


@router.get("/tensors/statistics", summary="Describe a tensor")
def get_tensor_statistics(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    tensor: TensorName,
    ref: RefQuery = None,
    set_name: SetName = None,
) -> TensorStatisticsView:
    """Count and summarize the elements of a tensor, with a histogram of 64 bins.

    At most 64 MiB are read. Of a larger tensor these are evenly spaced ranges, and `is_sampled` is true.
    """
    _, dataset = service.open(dataset_id, ref)
    stored = open_set(service, dataset, set_name)
    found = describe(service, dataset, stored, tensor)
    return TensorStatisticsView(
        version=dataset.version,
        set=stored.name,
        tensor=_view(find_tensor(stored, tensor)),
        read=found.read_count,
        read_bytes=found.read_bytes,
        is_sampled=found.is_sampled,
        nan=found.nan_count,
        infinite=found.infinite_count,
        zero=found.zero_count,
        minimum=found.minimum,
        maximum=found.maximum,
        mean=found.mean,
        std=found.std,
        edges=list(found.edges),
        counts=list(found.counts),
    )


@router.get("/tensors/diff", summary="Compare two sets of tensors")
def get_tensor_diff(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    older: Annotated[str, Query(alias="from"), Compared],
    newer: Annotated[str | None, Query(alias="to"), Compared] = None,
    older_set: Annotated[str | None, Query(alias="from_set"), OfSet] = None,
    newer_set: Annotated[str | None, Query(alias="to_set"), OfSet] = None,
    change: Annotated[Kind | None, Query(description="Keep tensors with this change.")] = None,
    reads: Annotated[
        bool, Query(alias="read", description="Read small tensors that hashes leave open, at most 64 MiB.")
    ] = False,
    limit: PageSize = 200,
    cursor: NameCursor = None,
) -> TensorDiffView:
    """Compare the tensors of two versions, or of two sets, by content hash. Without `read`, no data is read.

    A small tensor shares a stored file with its neighbours. If the file changed, the tensor is "undecided".
    """
    found, versions = _diff(service, dataset_id, (older, newer), (older_set, newer_set), reads=reads)
    kept = [(one.name, one) for one in found.changes if (one.kind == change if change else one.kind != "same")]
    page, following = page_behind(kept, cursor, limit)
    return TensorDiffView(
        older=versions[0],
        newer=versions[1],
        older_set=found.older.name,
        newer_set=found.newer.name,
        counts={str(kind): count for kind, count in found.counts.items()},
        undecided_bytes=found.undecided_bytes,
        changes=[
            TensorChangeView(
                name=one.name,
                change=one.kind,
                before=None if one.before is None else _view(one.before),
                after=None if one.after is None else _view(one.after),
            )
            for one in page
        ],
        total=len(kept),
        next_cursor=following,
    )


@router.get("/tensors/difference", summary="Measure the difference of a tensor")
def get_tensor_difference(
    *,
    service: ServiceOf,
    dataset_id: Readable,
    tensor: TensorName,
    older: Annotated[str, Query(alias="from"), Compared],
    newer: Annotated[str | None, Query(alias="to"), Compared] = None,
    older_set: Annotated[str | None, Query(alias="from_set"), OfSet] = None,
    newer_set: Annotated[str | None, Query(alias="to_set"), OfSet] = None,
) -> TensorDifferenceView:
    """Read a tensor of two sets, at most 64 MiB of each, and measure how far they are apart."""
    found, versions = _diff(service, dataset_id, (older, newer), (older_set, newer_set), reads=False)
    measured = difference(service, found, versions, tensor)
    return TensorDifferenceView(
        older=versions[0],
        newer=versions[1],
        name=tensor,
        elements=measured.element_count,
        read=measured.read_count,
        read_bytes=measured.read_bytes,
        is_sampled=measured.is_sampled,
        changed=measured.changed_count,
        max_absolute=measured.max_absolute,
        mean_absolute=measured.mean_absolute,
        norm=measured.norm,
        relative=measured.relative,
    )


def _diff(
    service: Service,
    dataset_id: str,
    refs: tuple[str, str | None],
    names: tuple[str | None, str | None],
    *,
    reads: bool,
) -> tuple[TensorDiff, tuple[str, str]]:
    older, newer = (service.open(dataset_id, ref)[1] for ref in refs)
    return compare_sets(service, (older, newer), names, reads=reads), (older.version, newer.version)


def _view(entry: TensorEntry) -> TensorView:
    return TensorView(
        name=entry.name,
        dtype=entry.dtype.name.removeprefix("torch."),
        shape=list(entry.shape),
        elements=entry.element_count,
        size_bytes=entry.byte_size,
    )
