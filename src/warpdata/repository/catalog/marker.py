"""The marker of a store root: its format, and whether every writer of it holds a lease.

Implements "Old writers" of docs/specs/gc.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from warpdata.errors import CorruptError, ObjectNotFoundError, UnsupportedError
from warpdata.primitives.strict_json import decode_json
from warpdata.repository.catalog.layout import STORE_MARKER
from warpdata.repository.catalog.writes import Pause, put_create_only
from warpdata.repository.manifest import canonical_json
from warpdata.storage import Reader, Writer

__all__ = ["StoreMarker", "mark_store", "read_marker", "upgrade_marker"]

STORE_FORMAT = 2


@dataclass(frozen=True, slots=True)
class StoreMarker:
    """`has_leases`: programs that know no leases refuse to write. `is_upgraded`: they could write at first."""

    has_leases: bool
    is_upgraded: bool = False


def read_marker(reader: Reader) -> StoreMarker | None:
    """Read the marker; None for a root without one. Raise `UnsupportedError` for a newer format."""
    try:
        data = reader.read(STORE_MARKER).data
    except ObjectNotFoundError:
        return None
    try:
        document = decode_json(data, STORE_MARKER)
    except CorruptError:
        document = None
    number = document.get("format") if isinstance(document, dict) else None
    if not isinstance(document, dict) or number not in (1, STORE_FORMAT):
        raise UnsupportedError(f"{reader.url} is a store of an unsupported format", hint="Upgrade warpdata.")
    return StoreMarker(has_leases=number == STORE_FORMAT, is_upgraded="upgraded" in document)


def mark_store(writer: Writer, pause: Pause) -> None:
    """Write the marker of a new store, or check that an existing one has a supported format."""
    if not put_create_only(writer, STORE_MARKER, canonical_json({"format": STORE_FORMAT}), pause):
        read_marker(writer)


def upgrade_marker(writer: Writer) -> None:
    """Keep programs that know no leases from writing. Every caller writes the same bytes."""
    writer.replace(STORE_MARKER, canonical_json({"format": STORE_FORMAT, "upgraded": True}))
