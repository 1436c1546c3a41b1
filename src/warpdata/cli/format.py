"""Numbers, sizes and times as people read them. Pure."""

from __future__ import annotations

from datetime import datetime

__all__ = ["bytes_text", "count_text", "rate_text", "rows_text", "seconds_text", "short", "short_id", "time_text"]

_PREFIXES = ("k", "M", "G", "T", "P")


def bytes_text(size_bytes: float) -> str:
    """Decimal units, three digits: `1.24 MB`."""
    return f"{size_bytes:.0f} B" if size_bytes < 1000 else f"{_scaled(size_bytes)}B"


def rows_text(count: float) -> str:
    """As `bytes_text`: `1.24 M rows`."""
    return f"{count:.0f} rows" if count < 1000 else f"{_scaled(count)} rows"


def _scaled(value: float) -> str:
    for prefix in _PREFIXES:
        value /= 1000
        if value < 999.5 or prefix == _PREFIXES[-1]:
            break
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {prefix}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """`1 row`, `1,797 rows`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def seconds_text(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def rate_text(count: int, seconds: float, noun: str) -> str:
    """Two significant digits are all that a short measurement knows."""
    rate = count / max(seconds, 1e-9)
    rounded = int(float(f"{rate:.2g}"))
    return f"{rounded:,} {noun}/s"


def short(digest: str) -> str:
    """Enough digits of a version to name it in practice."""
    return digest[:12]


def short_id(artifact_id: str) -> str:
    """Of tensors: enough of their index and of their data to tell them apart."""
    return ":".join(part[:14] for part in artifact_id.split(":"))


def time_text(moment: datetime) -> str:
    """In the reader's own time zone, to the minute."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
