"""Many references at once: the fast path for training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from warpdata.errors import BadInputError
from warpdata.kinds.artifacts.artifact import Artifact, Coming
from warpdata.kinds.artifacts.member import Locator
from warpdata.kinds.artifacts.refs import FileRef

__all__ = ["read_ahead", "read_many"]

_T = TypeVar("_T")


def read_many(refs: Iterable[FileRef | None]) -> list[bytes | None]:
    """The content of each reference, in order, verified; None for None.

    References into one artifact are fetched together: neighbours share a request, shards are read at
    once. Takes references, their Arrow scalars, or a whole Arrow column of them.
    """
    return _by_artifact(refs, lambda artifact, locators: artifact.read_at(locators))


def read_ahead(refs: Iterable[FileRef | None], pool: Executor) -> list[Coming | None]:
    """As `read_many`, in the background: for each reference what waits for its content. The first are fetched first."""
    return _by_artifact(refs, lambda artifact, locators: artifact.begin(locators, pool))


def _by_artifact(
    refs: Iterable[FileRef | None], read: Callable[[Artifact, Sequence[Locator]], Sequence[_T]]
) -> list[_T | None]:
    """What `read` gives for each reference; references into one artifact go together."""
    listed = [_reference(ref) for ref in refs]
    by_artifact: dict[int, tuple[Artifact, list[int]]] = {}
    for position, ref in enumerate(listed):
        if ref is not None:
            by_artifact.setdefault(id(ref.artifact), (ref.artifact, []))[1].append(position)
    out: list[_T | None] = [None] * len(listed)
    for artifact, positions in by_artifact.values():
        wanted = [ref.locator for position in positions if (ref := listed[position]) is not None]
        for position, found in zip(positions, read(artifact, wanted), strict=True):
            out[position] = found
    return out


def _reference(value: object) -> FileRef | None:
    """References come as they are or as Arrow scalars that know theirs."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if value is None or isinstance(value, FileRef):
        return value
    raise BadInputError(f"read_many takes references, not a {type(value).__name__}")
