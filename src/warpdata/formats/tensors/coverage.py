"""What a view needs and a source lacks. Pure: runs and extents in, missing ranges out.

Nothing is ever filled in: bytes that are not here are named, before a target is touched. Implements
"Coverage" of docs/specs/tensors.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from warpdata.errors import PartialCoverageDetail, PartialCoverageError
from warpdata.formats.tensors.extents import Extents, merge_ranges
from warpdata.formats.tensors.plan import Contiguous, DataRun, iter_blocks
from warpdata.limits import MAX_MISSING_RANGES

__all__ = ["check_coverage", "coverage_error", "missing_ranges"]


def check_coverage(runs: Iterable[DataRun], extents: Extents, index_multihash: str) -> None:
    """`PartialCoverageError` with the exact canonical ranges, unless every byte is here."""
    missing = missing_ranges(runs, extents)
    if missing:
        raise coverage_error(missing, index_multihash)


def coverage_error(missing: Sequence[tuple[int, int]], index_multihash: str) -> PartialCoverageError:
    """At most `MAX_MISSING_RANGES` of them are carried; the message counts all."""
    total = sum(end - start for start, end in missing)
    shown = tuple((start, end - start) for start, end in missing[:MAX_MISSING_RANGES])
    return PartialCoverageError(
        f"{total} bytes in {len(missing)} ranges are not here; the first is {missing[0][0]}…{missing[0][1]}",
        detail=PartialCoverageDetail("canonical", index_multihash, shown),
        hint="read from a source that has them",
    )


def missing_ranges(runs: Iterable[DataRun], extents: Extents) -> list[tuple[int, int]]:
    """Ascending, apart from one another, in canonical bytes."""

    def absent() -> Iterator[tuple[int, int]]:
        for run in runs:
            span = run.size if isinstance(run, Contiguous) else run.span
            if extents.holding(run.source, run.source + span) is not None:
                continue
            for source, _, size in iter_blocks(run):
                for start, end, home in extents.pieces(source, source + size):
                    if home is None:
                        yield start, end

    return merge_ranges(absent())
