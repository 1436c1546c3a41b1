"""Which requests serve a set of byte ranges. Pure: ranges in, requests out.

Implements "Coalescing" of docs/specs/store.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpdata.errors import BadInputError
from warpdata.limits import COALESCE_GAP_BYTES
from warpdata.storage.types import ByteRange

__all__ = ["Request", "check_spans", "coalesce", "split_reply"]


@dataclass(frozen=True, slots=True)
class Request:
    """One read, and which of the wanted ranges (by position) it serves."""

    span: ByteRange
    serves: tuple[int, ...]


def coalesce(
    spans: Sequence[ByteRange], gap_bytes: int = COALESCE_GAP_BYTES, *, most_bytes: int | None = None
) -> list[Request]:
    """Merge ranges that overlap or lie within `gap_bytes` of one another, in offset order.

    Empty ranges need no request and are served by none. Nothing is merged into a request of more than
    `most_bytes`, so that requests for a long stretch can run side by side.
    """
    check_spans(spans)
    order = sorted((i for i, s in enumerate(spans) if s.size_bytes), key=lambda i: spans[i])
    requests: list[Request] = []
    for index in order:
        span = spans[index]
        last = requests[-1] if requests else None
        if last is not None and span.start - last.span.end <= gap_bytes:
            merged = ByteRange(last.span.start, max(last.span.end, span.end))
            if most_bytes is None or merged == last.span or merged.size_bytes <= most_bytes:
                requests[-1] = Request(merged, (*last.serves, index))
                continue
        requests.append(Request(span, (index,)))
    return requests


def check_spans(spans: Sequence[ByteRange]) -> None:
    """A range that runs backwards is the caller's mistake, whatever the object holds."""
    for span in spans:
        if not 0 <= span.start <= span.end:
            raise BadInputError(f"byte range {span.start}…{span.end} is not ascending")


def split_reply(
    spans: Sequence[ByteRange], requests: Sequence[Request], replies: Sequence[memoryview]
) -> list[memoryview]:
    """Cut the replies back into the wanted ranges, without copying."""
    out = [memoryview(b"")] * len(spans)
    for request, reply in zip(requests, replies, strict=True):
        for index in request.serves:
            start = spans[index].start - request.span.start
            out[index] = reply[start : start + spans[index].size_bytes]
    return out
