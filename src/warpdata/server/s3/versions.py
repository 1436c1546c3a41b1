"""Versions that requests read: refs resolved at most once a second, versions opened once.

Names of branches and labels may come to mean other versions, so they are looked up again after a second. A version
never changes. Lists of datasets and refs are as fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar, cast

from warpdata.collections import FILES, HEAD, is_collection
from warpdata.datasets import Dataset
from warpdata.errors import DatasetNotFoundError, NotFoundError
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import is_digest
from warpdata.repository.catalog import MAIN, Address, VersionRef
from warpdata.session import Session

__all__ = ["GatewayVersion", "VersionCache"]

_T = TypeVar("_T")
_FRESH_S = 1.0
_OPENED = 64
_NAMES = 4096
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class GatewayVersion:
    """An opened version, under the ref that a request names."""

    dataset: Dataset
    ref: str
    time: datetime
    """When it was committed."""
    found: VersionRef
    """The resolved ref, with its commit."""

    @property
    def id(self) -> str:
        return self.dataset.id

    @property
    def version(self) -> str:
        return self.dataset.version

    @property
    def is_pinned(self) -> bool:
        """The ref names this version for ever."""
        return is_digest(self.ref)

    @property
    def label(self) -> str | None:
        """The ref, if it is a label."""
        return self.found.label

    @property
    def is_collection(self) -> bool:
        return is_collection(self.dataset)

    @property
    def artifacts(self) -> tuple[str, ...]:
        return self.dataset.artifacts

    @property
    def images(self) -> str | None:
        """The artifact with the images: the one of this name, or the only one."""
        if FILES in self.artifacts:
            return FILES
        return self.artifacts[0] if len(self.artifacts) == 1 else None


@dataclass(frozen=True)
class VersionCache:
    """Opens versions by name. Safe to share between threads."""

    session: Session
    _fresh: ByteLRU[Hashable, tuple[float, object]] = field(default_factory=lambda: ByteLRU(max_entries=_NAMES))
    _opened: ByteLRU[tuple[str, str], tuple[Dataset, datetime]] = field(
        default_factory=lambda: ByteLRU(max_entries=_OPENED)
    )

    def open(self, dataset_id: str, ref: str, pinned: str | None = None) -> GatewayVersion:
        """Open a version. Raise `NotFoundError` if there is no dataset or ref of this name.

        With `pinned`, open that version, which the ref named before.
        """
        found = self._recent(("ref", dataset_id, ref), lambda: self._resolve(dataset_id, ref))
        if pinned not in (None, found.version):
            found = replace(found, version=pinned, commit=None)
        key = (dataset_id, found.version)
        opened = self._opened.get(key)
        if opened is None:
            dataset = Dataset(self.session, found, self.session.catalog.manifest(found))
            opened = (dataset, self._time_of(found))
            self._opened.put(key, opened)
        return GatewayVersion(opened[0], ref, opened[1], found)

    def recall(self, dataset_id: str, ref: str) -> GatewayVersion | None:
        """Return a version that was opened, if its ref was resolved within the last second. Reads nothing."""
        known = self._fresh.get(("ref", dataset_id, ref))
        if known is None or self.session.timer() - known[0] >= _FRESH_S:
            return None
        found = cast(VersionRef, known[1])
        opened = self._opened.get((dataset_id, found.version))
        return None if opened is None else GatewayVersion(opened[0], ref, opened[1], found)

    def forget(self, dataset_id: str) -> None:
        """Look up the refs of a dataset again, because it was changed here."""
        for ref in (HEAD, MAIN):
            self._fresh.pop(("ref", dataset_id, ref))

    def datasets(self, workspace: str) -> tuple[str, ...]:
        """Return the names of the datasets of a workspace."""
        listed = self._recent(
            ("datasets", workspace), lambda: self.session.catalog.list_datasets(workspace).dataset_ids
        )
        return tuple(dataset_id.partition("/")[2] for dataset_id in listed)

    def workspaces(self) -> tuple[str, ...]:
        """Return the names of the workspaces that have a dataset."""
        listed = self._recent(("datasets",), lambda: self.session.catalog.list_datasets().dataset_ids)
        return tuple(sorted({dataset_id.partition("/")[0] for dataset_id in listed}))

    def labels(self, dataset_id: str) -> tuple[str, ...]:
        """Return the names of the labels of a dataset."""
        catalog = self.session.catalog
        return self._recent(("labels", dataset_id), lambda: tuple(label.name for label in catalog.labels(dataset_id)))

    def refs(self, dataset_id: str) -> tuple[str, ...]:
        """Return HEAD, the branches and the labels of a dataset."""
        branches = self._recent(("branches", dataset_id), lambda: tuple(self.session.catalog.branches(dataset_id)))
        return (HEAD, *sorted({*branches, *self.labels(dataset_id)} - {HEAD}))

    def _resolve(self, dataset_id: str, ref: str) -> VersionRef:
        try:
            return self.session.catalog.resolve(Address(dataset_id, MAIN if ref == HEAD else ref))
        except DatasetNotFoundError as error:
            raise NotFoundError(f"there is no dataset {dataset_id!r}") from error

    def _time_of(self, found: VersionRef) -> datetime:
        entry = next(iter(self.session.catalog.history(found, limit=1)), None)
        return _BEGINNING if entry is None else datetime.fromisoformat(entry.commit.time).astimezone(UTC)

    def _recent(self, key: Hashable, load: Callable[[], _T]) -> _T:
        now = self.session.timer()
        known = self._fresh.get(key)
        if known is None or now - known[0] >= _FRESH_S:
            known = (now, load())
            self._fresh.put(key, known)
        return cast(_T, known[1])
