"""Many references at once: the fast path for training."""

from __future__ import annotations

from collections.abc import Iterable

from warpdata.artifacts.artifact import Artifact
from warpdata.artifacts.refs import FileRef
from warpdata.errors import BadInputError

__all__ = ["read_far", "read_many"]


def read_many(refs: Iterable[FileRef | None]) -> list[bytes | None]:
    """The content of each reference, in order, verified; None for None.

    References into one artifact are fetched together: neighbours share a request, shards are read at
    once. Takes references, their Arrow scalars, or a whole Arrow column of them.
    """
    listed = [_reference(ref) for ref in refs]
    by_artifact: dict[int, tuple[Artifact, list[int]]] = {}
    for position, ref in enumerate(listed):
        if ref is not None:
            by_artifact.setdefault(id(ref.artifact), (ref.artifact, []))[1].append(position)
    out: list[bytes | None] = [None] * len(listed)
    for artifact, positions in by_artifact.values():
        wanted = [ref.locator for position in positions if (ref := listed[position]) is not None]
        for position, content in zip(positions, artifact.read_at(wanted), strict=True):
            out[position] = content
    return out


def read_far(refs: Iterable[FileRef | None]) -> list[bytes | None]:
    """As `read_many`, for those whose bytes are not on this machine; None for the others, which are best read late."""
    listed = list(refs)
    far = [at for at, ref in enumerate(listed) if ref is not None and not ref.artifact.is_near(ref.locator)]
    out: list[bytes | None] = [None] * len(listed)
    for at, content in zip(far, read_many(listed[at] for at in far), strict=True):
        out[at] = content
    return out


def _reference(value: object) -> FileRef | None:
    """References come as they are or as Arrow scalars that know theirs."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if value is None or isinstance(value, FileRef):
        return value
    raise BadInputError(f"read_many takes references, not a {type(value).__name__}")
