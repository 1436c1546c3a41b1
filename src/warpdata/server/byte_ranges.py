"""The `Range` header of HTTP: one range of bytes. Several ranges are answered with the whole file."""

from __future__ import annotations

import re

__all__ = ["is_one_range", "parse_range"]

_ONE_RANGE = re.compile(r"bytes=([0-9]+-[0-9]*|-[0-9]+)")


def is_one_range(header: str | None) -> bool:
    """Return whether a header asks for one range, which is answered with 206, also if it is the whole file."""
    return _ONE_RANGE.fullmatch(header or "") is not None


def parse_range(header: str | None, size_bytes: int) -> range | None:
    """Return the bytes of a `Range` header; all of them for one that is absent, malformed or has several ranges.

    None if the range begins behind the end of the file.
    """
    whole = range(size_bytes)
    unit, _, text = (header or "").partition("=")
    first, dash, last = text.strip().partition("-")
    is_number = all(part == "" or (part.isascii() and part.isdecimal() and len(part) < 20) for part in (first, last))
    if unit.strip().lower() != "bytes" or not dash or not is_number or not (first or last):
        return whole
    if not first:
        suffix = min(int(last), size_bytes)
        return range(size_bytes - suffix, size_bytes) if suffix else None
    start, stop = int(first), min(int(last) + 1, size_bytes) if last else size_bytes
    if last and int(last) < start:
        return whole
    return range(start, stop) if start < size_bytes else None
