"""The error tree, grouped by what a handler would do.

    WarpError
    ├── NotFoundError            look in another place, or check the spelling
    │   ├── DatasetNotFoundError
    │   ├── ColumnNotFoundError
    │   ├── EpisodeNotFoundError
    │   └── ObjectNotFoundError      a key in a store, or a file inside an artifact
    │       └── NotCachedError           not on this machine, and mode "local" forbids fetching
    ├── ConflictError            another writer was first: look, then try again
    │   ├── AlreadyExistsError
    │   ├── MergeConflictError       both sides changed a sample; `conflicts` lists them
    │   └── CommitUnknownError       the outcome is unknown: ask find_commit(txn_id)
    ├── BadInputError            the caller's value cannot work
    │   ├── InvalidSourceError       a file or frame that cannot be published
    │   ├── SchemaMismatchError
    │   └── LimitExceededError
    ├── DeniedError              ask for access, or change the credentials
    │   ├── AuthenticationError
    │   ├── AccessDeniedError
    │   └── RateLimitedError         too many attempts: wait `retry_after_s`
    ├── StorageError             the store failed: a later try may succeed
    │   ├── StoreUnavailableError
    │   ├── StoreTimeoutError
    │   ├── WriteUnknownError        a write was sent, and its reply never came
    │   └── PartialCoverageError     bytes that a view needs are missing; `detail` lists them
    ├── CorruptError             bytes differ from what was published; `problems` lists every finding
    │   ├── ManifestCorruptedError
    │   └── MediaDecodeError         as published, but not an image, audio or video that can be decoded
    └── UnsupportedError         this build, device or store cannot do that
        └── MissingExtraError

Every error also inherits the builtin that fits. It has a stable `kind`, a message that states a fact, and
where possible a `hint`: one next step. A class exists where handlers differ; `kind` names the exact reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "AuthenticationError",
    "BadInputError",
    "ColumnNotFoundError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "DatasetNotFoundError",
    "DeniedError",
    "EpisodeNotFoundError",
    "ErrorKind",
    "IndexWarning",
    "InvalidSourceError",
    "LimitExceededError",
    "ManifestCorruptedError",
    "MediaDecodeError",
    "MergeConflictError",
    "MissingExtraError",
    "NotCachedError",
    "NotFoundError",
    "ObjectNotFoundError",
    "PartialCoverageDetail",
    "PartialCoverageError",
    "RateLimitedError",
    "SchemaMismatchError",
    "StorageError",
    "StoreTimeoutError",
    "StoreUnavailableError",
    "UnsupportedError",
    "WarpError",
    "WriteUnknownError",
]


class ErrorKind(StrEnum):
    """The exact reason of an error, for logs and programs. Append-only: a kind is never renamed or removed."""

    ERROR = "error"
    NOT_FOUND = "not_found"
    DATASET_NOT_FOUND = "dataset_not_found"
    REF_NOT_FOUND = "ref_not_found"
    VERSION_COLLECTED = "version_collected"
    TABLE_NOT_FOUND = "table_not_found"
    COLUMN_NOT_FOUND = "column_not_found"
    ARTIFACT_NOT_FOUND = "artifact_not_found"
    MEMBER_NOT_FOUND = "member_not_found"
    EPISODE_NOT_FOUND = "episode_not_found"
    OBJECT_NOT_FOUND = "object_not_found"
    NOT_CACHED = "not_cached"
    CONFLICT = "conflict"
    ALREADY_EXISTS = "already_exists"
    COMMIT_UNKNOWN = "commit_unknown"
    BAD_INPUT = "bad_input"
    INVALID_NAME = "invalid_name"
    INVALID_FILTER = "invalid_filter"
    INVALID_SOURCE = "invalid_source"
    SCHEMA_MISMATCH = "schema_mismatch"
    TOKEN_MISMATCH = "token_mismatch"  # noqa: S105 - not a password
    LARGE_EXPORT = "large_export"
    LIMIT_EXCEEDED = "limit_exceeded"
    WOULD_REMOVE = "would_remove"
    INVALID_QUERY = "invalid_query"
    DENIED = "denied"
    AUTHENTICATION = "authentication"
    ACCESS_DENIED = "access_denied"
    READ_ONLY_STORE = "read_only_store"
    STORAGE = "storage"
    STORE_UNAVAILABLE = "store_unavailable"
    STORE_TIMEOUT = "store_timeout"
    STORE_FULL = "store_full"
    WRITE_UNKNOWN = "write_unknown"
    PARTIAL_COVERAGE = "partial_coverage"
    CORRUPT = "corrupt"
    MANIFEST_CORRUPTED = "manifest_corrupted"
    MEDIA_DECODE = "media_decode"
    UNSUPPORTED = "unsupported"
    MISSING_EXTRA = "missing_extra"
    MERGE_CONFLICT = "merge_conflict"
    RATE_LIMITED = "rate_limited"
    CONFIRMATION_REQUIRED = "confirmation_required"
    IMPACT_CHANGED = "impact_changed"
    VERSION_BROKEN = "version_broken"
    INDEX_NOT_FOUND = "index_not_found"
    NEW_COLUMN = "new_column"
    SHARED_BYTES = "shared_bytes"
    QUOTA_EXCEEDED = "quota_exceeded"
    ADDRESS_REFUSED = "address_refused"
    UNLISTED_LOSS = "unlisted_loss"
    STALE_LABEL = "stale_label"


class IndexWarning(UserWarning):
    """An index is damaged. The rows are right, and reading them takes longer."""


class WarpError(Exception):
    """Root of the tree. Errors can be pickled, so they cross process boundaries."""

    kind: ErrorKind = ErrorKind.ERROR

    def __init__(self, message: str, *, kind: ErrorKind | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if kind is not None:
            self.kind = kind

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)


def _rebuild(cls: type[WarpError], state: dict[str, Any]) -> WarpError:
    error = cls.__new__(cls, state["message"])
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


class NotFoundError(WarpError, LookupError):
    kind = ErrorKind.NOT_FOUND


class DatasetNotFoundError(NotFoundError):
    kind = ErrorKind.DATASET_NOT_FOUND


class ColumnNotFoundError(NotFoundError, KeyError):
    kind = ErrorKind.COLUMN_NOT_FOUND


class EpisodeNotFoundError(NotFoundError, IndexError):
    kind = ErrorKind.EPISODE_NOT_FOUND


class ObjectNotFoundError(NotFoundError, FileNotFoundError):
    kind = ErrorKind.OBJECT_NOT_FOUND


class NotCachedError(ObjectNotFoundError):
    """Mode "local" is in use, and these bytes are not on this machine. The store may have them."""

    kind = ErrorKind.NOT_CACHED


class ConflictError(WarpError, RuntimeError):
    kind = ErrorKind.CONFLICT


class AlreadyExistsError(ConflictError, FileExistsError):
    kind = ErrorKind.ALREADY_EXISTS


class MergeConflictError(ConflictError):
    """Both sides of a merge changed the same samples. `conflicts` lists them with the values of each side."""

    kind = ErrorKind.MERGE_CONFLICT

    def __init__(self, message: str, *, conflicts: tuple[Any, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = conflicts


class CommitUnknownError(ConflictError):
    """The commit was sent, and its outcome could not be learned.

    `warpdata.find_commit(dataset, txn_id)` finds it later, if it landed.
    """

    kind = ErrorKind.COMMIT_UNKNOWN

    def __init__(self, message: str, *, txn_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.txn_id = txn_id


class BadInputError(WarpError, ValueError):
    kind = ErrorKind.BAD_INPUT
    status: ClassVar[str] = "INVALID_ARGUMENT"


class InvalidSourceError(BadInputError):
    kind = ErrorKind.INVALID_SOURCE


class SchemaMismatchError(BadInputError, TypeError):
    kind = ErrorKind.SCHEMA_MISMATCH


class LimitExceededError(BadInputError):
    kind = ErrorKind.LIMIT_EXCEEDED


class DeniedError(WarpError, PermissionError):
    kind = ErrorKind.DENIED


class AuthenticationError(DeniedError):
    kind = ErrorKind.AUTHENTICATION


class AccessDeniedError(DeniedError):
    kind = ErrorKind.ACCESS_DENIED


class RateLimitedError(DeniedError):
    """Too many attempts. Another one is accepted after `retry_after_s` seconds."""

    kind = ErrorKind.RATE_LIMITED

    def __init__(self, message: str, *, retry_after_s: int = 1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class StorageError(WarpError, OSError):
    kind = ErrorKind.STORAGE
    status: ClassVar[str] = "UNAVAILABLE"


class StoreUnavailableError(StorageError, ConnectionError):
    kind = ErrorKind.STORE_UNAVAILABLE


class StoreTimeoutError(StorageError, TimeoutError):
    kind = ErrorKind.STORE_TIMEOUT


class WriteUnknownError(StorageError):
    """A write may or may not have landed: the request went out, and no reply came back."""

    kind = ErrorKind.WRITE_UNKNOWN


@dataclass(frozen=True, slots=True)
class PartialCoverageDetail:
    """The missing bytes: `(offset, length)` pairs in the ByteSpace of that kind and id."""

    space_kind: str
    space_id: str
    missing_ranges: tuple[tuple[int, int], ...]


class PartialCoverageError(StorageError):
    """Source bytes that a view needs are missing. Raised before the target is written.

    A storage error rather than a "not found": the name exists, and another source may have the bytes.
    """

    kind = ErrorKind.PARTIAL_COVERAGE

    def __init__(self, message: str, *, detail: PartialCoverageDetail, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class CorruptError(WarpError, ValueError):
    """`problems` lists every finding of a parser, each with its path inside the document."""

    kind = ErrorKind.CORRUPT

    def __init__(
        self, message: str, *, problems: tuple[str, ...] = (), kind: ErrorKind | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, kind=kind, hint=hint)
        self.problems = problems


class ManifestCorruptedError(CorruptError):
    kind = ErrorKind.MANIFEST_CORRUPTED


class MediaDecodeError(CorruptError):
    """The bytes are those that were published, but they are not an image, audio or video that can be decoded."""

    kind = ErrorKind.MEDIA_DECODE


class UnsupportedError(WarpError, NotImplementedError):
    kind = ErrorKind.UNSUPPORTED
    status: ClassVar[str] = "FAILED_PRECONDITION"


class MissingExtraError(UnsupportedError, ImportError):
    kind = ErrorKind.MISSING_EXTRA
