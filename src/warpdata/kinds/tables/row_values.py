"""References among Python values: replaced by the stored values, with their artifacts kept beside them.

A row of a dataset as a dict has reference objects, which Arrow cannot convert. Knows references only by their
attributes, because kinds do not import each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DetachedReference", "detach_references"]


@dataclass(frozen=True, slots=True)
class DetachedReference:
    """The origin of some values of a column. It has the attributes of the type of a reference column."""

    address: Any
    artifact: Any
    ref_type: str


def detach_references(
    columns: Mapping[str, Iterable[Any]],
) -> tuple[dict[str, Any], dict[str, list[DetachedReference]]]:
    """Return the columns with stored values in place of references, and the distinct origins of each column."""
    plain: dict[str, Any] = {}
    origins: dict[str, list[DetachedReference]] = {}
    for name, values in columns.items():
        seen: dict[int, DetachedReference] = {}
        stored = [_stored_value(value, seen) for value in values]
        if seen:
            origins[name] = list(seen.values())
        plain[name] = _locations(stored) if seen and any(isinstance(value, dict) for value in stored) else stored
    return plain, origins


def _locations(stored: list[Any]) -> pa.Array:
    """Return byte ranges as Arrow. It would infer a signed checksum, which is too small."""
    import pyarrow as pa

    integers = [(name, pa.int64()) for name in ("shard", "offset", "length")]
    return pa.array(stored, pa.struct([*integers, ("xxh3", pa.uint64())]))


def _stored_value(value: Any, seen: dict[int, DetachedReference]) -> Any:
    artifact, locator = getattr(value, "artifact", None), getattr(value, "locator", None)
    if artifact is None or locator is None:
        return value
    seen.setdefault(id(artifact), DetachedReference(artifact.reopen, artifact, value.ref_type))
    return locator if isinstance(locator, str) else asdict(locator)
