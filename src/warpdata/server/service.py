"""What every request and job works with: the store, the database, opened versions and limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from warpdata.datasets import Dataset
from warpdata.errors import DatasetNotFoundError, NotFoundError
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import is_digest
from warpdata.repository.catalog import Address, VersionRef
from warpdata.repository.rows import RowSelection
from warpdata.server.blob_index import BlobIndex
from warpdata.server.database import Database
from warpdata.server.identities import RecentAnswers
from warpdata.server.safe_http import AddressRule, parse_networks
from warpdata.server.thumbnails import Thumbnails
from warpdata.session import Session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from warpdata.kinds.tensors import StoredTensors, TensorDiff

__all__ = ["ProviderOptions", "Service", "ServiceOptions", "is_pinned", "no_dataset", "stamp"]

_OPENED_VERSIONS = 64
_SELECTION_BYTES = 64 * 1024 * 1024
_STATISTICS_ENTRIES = 512
_ANALYSIS_BYTES = 128 * 1024 * 1024
_TENSOR_SET_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """An OpenID Connect provider, and what the service is called there."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    creates_users: bool = False
    """Create a user for each verified e-mail address. The user has no role yet."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How the service is reached, and its limits. `public_url` is the address that users open, behind a proxy."""

    host: str = "127.0.0.1"
    port: int = 0
    public_url: str | None = None
    version: str = "0"
    """The release, for the document that describes the API."""
    requires_sign_in: bool = True
    runs_jobs: bool = True
    job_threads: int = 2
    """Jobs that run at a time in this process."""
    threads: int = 16
    """Threads for calls of the library. Further requests wait."""
    sign_in_attempts: int = 20
    """Failed attempts of one address within a minute."""
    allowed_networks: tuple[str, ...] = ()
    """Networks that are not public, and may be reached by webhooks, imports and sign-in providers."""
    provider: ProviderOptions | None = None
    """Who signs users in, beside sign-in links."""
    mirrors: tuple[str, ...] = ()
    """Stores with copies of datasets, from which a scrub restores lost bytes."""


@dataclass(frozen=True)
class Service:
    """The store and the database, shared by all requests of a process."""

    session: Session
    database: Database
    options: ServiceOptions = ServiceOptions()
    selections: ByteLRU[tuple[str, ...], RowSelection] = field(default_factory=lambda: ByteLRU(_SELECTION_BYTES))
    """Rows that filters keep, by dataset, version, table and filter."""
    statistics: ByteLRU[tuple[str, ...], object] = field(
        default_factory=lambda: ByteLRU(max_entries=_STATISTICS_ENTRIES)
    )
    analyses: ByteLRU[tuple[str, ...], Any] = field(default_factory=lambda: ByteLRU(_ANALYSIS_BYTES))
    """Maps, places of objects and checks of labels, by version."""
    episode_orders: ByteLRU[tuple[str, ...], NDArray[np.int64]] = field(
        default_factory=lambda: ByteLRU(_SELECTION_BYTES)
    )
    """Numbers of episodes that filters keep, sorted, by dataset, version, set, filter and order."""
    tensor_sets: ByteLRU[tuple[str, ...], StoredTensors] = field(default_factory=lambda: ByteLRU(_TENSOR_SET_BYTES))
    """Opened sets of tensors, by dataset, version and name."""
    tensor_diffs: ByteLRU[tuple[str, ...], TensorDiff] = field(default_factory=lambda: ByteLRU(_TENSOR_SET_BYTES))
    """Comparisons of two sets of tensors, which keep both open."""
    blobs: BlobIndex = field(default_factory=BlobIndex)
    """The blobs of each dataset, which decide who may read them by key."""
    thumbnails: Thumbnails = field(default_factory=Thumbnails)
    _opened: ByteLRU[tuple[str, str], Dataset] = field(default_factory=lambda: ByteLRU(max_entries=_OPENED_VERSIONS))

    @cached_property
    def addresses(self) -> AddressRule:
        """Where requests of the service may go."""
        return AddressRule(parse_networks(self.options.allowed_networks))

    @cached_property
    def identities(self) -> RecentAnswers[Any]:
        """The users of tokens, cookies and signed URLs that reads have presented."""
        return RecentAnswers(self.database, self.session.timer)

    def now(self) -> str:
        return self.session.timestamp()

    def later(self, seconds: float) -> str:
        """Return the time after this number of seconds, written like `now`."""
        return stamp(self.session.clock() + timedelta(seconds=seconds))

    def new_id(self) -> str:
        """Return 128 random bits."""
        return f"{self.session.rng.getrandbits(128):032x}"

    def new_secret(self, prefix: str = "") -> str:
        """Return 160 random bits of the operating system, after a prefix that tells what it is."""
        return f"{prefix}{self.session.rng.getrandbits(160):040x}"

    def session_of(self, author: str) -> Session:
        """Return the session for changes by a user, who becomes their author."""
        return replace(self.session, settings=replace(self.session.settings, author=author))

    def open(self, dataset_id: str, ref: str | None) -> tuple[VersionRef, Dataset]:
        """Open a version, with the name that led to it. Callers have checked that the user may read the dataset."""
        try:
            found = self.session.catalog.resolve(Address(dataset_id, ref))
            opened = self.opened(dataset_id, found.version)
            if opened is None:
                opened = Dataset(self.session, found, self.session.catalog.manifest(found))
                self._opened.put((dataset_id, found.version), opened)
        except DatasetNotFoundError as error:
            raise no_dataset(dataset_id) from error
        return found, opened

    def opened(self, dataset_id: str, version: str) -> Dataset | None:
        """Return a version that was opened before. Reads nothing."""
        return self._opened.get((dataset_id, version))


def stamp(time: datetime) -> str:
    """Return a time as text of a fixed width, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def no_dataset(dataset_id: str) -> NotFoundError:
    """Return the one error for a dataset that does not exist and one that the user may not see."""
    return DatasetNotFoundError(f"there is no dataset {dataset_id!r}", hint="GET /api/v1/datasets lists those you see.")


def is_pinned(ref: str | None) -> bool:
    """Return whether a ref names one version for ever, so that answers may be cached."""
    return ref is not None and is_digest(ref)
