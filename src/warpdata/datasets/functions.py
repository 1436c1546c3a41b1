"""Functions over several datasets: comparison, mixtures, listings and the search for a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, overload

from warpdata.datasets.dataset import open_dataset
from warpdata.datasets.info import Revision, to_revision
from warpdata.errors import BadInputError
from warpdata.primitives.arguments import check_arguments
from warpdata.repository.catalog import MAIN, check_dataset_id, find_transaction, parse_address
from warpdata.repository.manifest import VersionDiff
from warpdata.session import connect
from warpdata.settings import Settings

if TYPE_CHECKING:
    from warpdata.edit import SampleDiff
    from warpdata.streaming import Stop, Stream

__all__ = ["diff", "find_commit", "list_datasets", "mix"]


@check_arguments
def mix(streams: Mapping[Stream, float], *, seed: int = 0, stop: Stop = "first_exhausted") -> Stream:
    """Mix streams over tables by weight, in one deterministic order that can be resumed.

    Batch size, ranks, collation and `resize` are those of the first stream. An epoch ends when one stream runs out
    ("first_exhausted"), or when all streams have returned every sample ("all_exhausted").
    """
    from warpdata.datasets.streaming import mix_streams

    return mix_streams(streams, seed, stop)


@overload
def diff(
    older: str, newer: str, *, by: Literal["entry"] = ..., store: str | None = ..., settings: Settings | None = ...
) -> VersionDiff: ...
@overload
def diff(
    older: str, newer: str, *, by: Literal["sample"], store: str | None = ..., settings: Settings | None = ...
) -> SampleDiff: ...
@check_arguments
def diff(
    older: str, newer: str, *, by: str = "entry", store: str | None = None, settings: Settings | None = None
) -> VersionDiff | SampleDiff:
    """Compare two addresses, usually of one dataset: by entry, or by sample.

    `by="sample"` gives a `SampleDiff`, whose `rows()` yields every sample that was added, removed or changed.
    """
    if by not in ("entry", "sample"):
        raise BadInputError(f"by={by!r} is neither 'entry' nor 'sample'")
    session = connect(store, settings)
    old, new = (open_dataset(session, parse_address(address)) for address in (older, newer))
    return new.diff(old) if by == "entry" else new.diff_samples(old)


@check_arguments
def list_datasets(
    workspace: str | None = None, *, store: str | None = None, settings: Settings | None = None
) -> list[str]:
    """List published datasets. Only directories are listed. `workspace` may end in a slash."""
    return connect(store, settings).catalog.datasets(workspace.rstrip("/") if workspace else None)


@check_arguments
def find_commit(
    dataset_id: str, txn_id: str, *, branch: str = MAIN, store: str | None = None, settings: Settings | None = None
) -> Revision | None:
    """Find the commit of a publish that ended in `CommitUnknownError`. None if the branch does not have it.

    None is final once the branch has a later commit; until then a delayed request may still create it.
    """
    session = connect(store, settings)
    found = find_transaction(session.writer, check_dataset_id(dataset_id), branch, txn_id)
    return None if found is None else to_revision(found)
