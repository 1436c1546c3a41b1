"""The one error tree, grouped by what a handler would do.

    WarpError
    ├── NotFoundError            look elsewhere, or check the spelling
    │   ├── DatasetNotFoundError
    │   ├── RefNotFoundError         a version, label or branch
    │   ├── TableNotFoundError
    │   ├── ColumnNotFoundError
    │   ├── ArtifactNotFoundError
    │   ├── MemberNotFoundError      a file inside an artifact
    │   ├── EpisodeNotFoundError     an episode, or a set of them
    │   └── ObjectNotFoundError      a key in a store
    │       └── NotCachedError           bytes that are not on this machine, and nothing may be fetched
    ├── ConflictError            somebody else was first; look, then try again
    │   ├── AlreadyExistsError
    │   └── CommitUnknownError       nobody can say yet; ask resolve(txn_id)
    ├── BadInputError            the caller's value cannot work
    │   ├── InvalidNameError
    │   ├── InvalidFilterError
    │   ├── InvalidSourceError       a file or frame that cannot become a table
    │   ├── InvalidViewError         a tensor, dimension or range that is not there
    │   ├── SchemaMismatchError
    │   ├── TokenMismatchError       the position of another stream
    │   ├── LargeExportError
    │   └── LimitExceededError
    ├── DeniedError              ask for access, or change who you are
    │   ├── AuthenticationError
    │   ├── AccessDeniedError
    │   └── ReadOnlyStoreError
    ├── StorageError             the store failed; trying later may help
    │   ├── StoreUnavailableError
    │   ├── StoreTimeoutError
    │   ├── StoreFullError
    │   ├── WriteUnknownError        a write was sent, its reply never came
    │   └── PartialCoverageError     bytes a view needs are not here; its `detail` says which
    ├── CorruptError             bytes are not what was promised
    │   ├── ManifestCorruptedError
    │   ├── BlobCorruptedError
    │   ├── PointerCorruptedError
    │   ├── EpisodeCorruptedError    an episode file, a journal or a set of chunks
    │   ├── TensorsCorruptedError
    │   └── MediaDecodeError         as published, but not a picture, sound or film that can be decoded
    └── UnsupportedError         this build or store cannot do that
        ├── MissingExtraError
        ├── UnsupportedFormatError
        └── ViewPreconditionError    a target or transform that is not possible here

Every error also inherits the builtin a caller may already catch, has a stable `kind`, a message
that is a fact, and where possible a `hint`: one next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "AccessDeniedError",
    "AlreadyExistsError",
    "ArtifactNotFoundError",
    "AuthenticationError",
    "BadInputError",
    "BlobCorruptedError",
    "ColumnNotFoundError",
    "CommitUnknownError",
    "ConflictError",
    "CorruptError",
    "DatasetNotFoundError",
    "DeniedError",
    "EpisodeCorruptedError",
    "EpisodeNotFoundError",
    "InvalidFilterError",
    "InvalidNameError",
    "InvalidSourceError",
    "InvalidViewError",
    "LargeExportError",
    "LimitExceededError",
    "ManifestCorruptedError",
    "MediaDecodeError",
    "MemberNotFoundError",
    "MissingExtraError",
    "NotCachedError",
    "NotFoundError",
    "ObjectNotFoundError",
    "PartialCoverageError",
    "PointerCorruptedError",
    "ReadOnlyStoreError",
    "RefNotFoundError",
    "SchemaMismatchError",
    "StorageError",
    "StoreFullError",
    "StoreTimeoutError",
    "StoreUnavailableError",
    "TableNotFoundError",
    "TensorsCorruptedError",
    "TokenMismatchError",
    "UnsupportedError",
    "UnsupportedFormatError",
    "ViewPreconditionError",
    "WarpError",
    "WriteUnknownError",
]


class WarpError(Exception):
    """Root of the tree. Survives pickling, so that it can cross process borders."""

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

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
    kind = "not_found"


class DatasetNotFoundError(NotFoundError):
    kind = "dataset_not_found"


class RefNotFoundError(NotFoundError):
    kind = "ref_not_found"


class TableNotFoundError(NotFoundError):
    kind = "table_not_found"


class ColumnNotFoundError(NotFoundError, KeyError):
    kind = "column_not_found"


class ArtifactNotFoundError(NotFoundError):
    kind = "artifact_not_found"


class MemberNotFoundError(NotFoundError, FileNotFoundError):
    kind = "member_not_found"


class EpisodeNotFoundError(NotFoundError, IndexError):
    kind = "episode_not_found"


class ObjectNotFoundError(NotFoundError, FileNotFoundError):
    kind = "object_not_found"


class NotCachedError(ObjectNotFoundError):
    """Working offline, and these bytes are not on this machine. Whether the store has them is not known."""

    kind = "not_cached"


class ConflictError(WarpError, RuntimeError):
    kind = "conflict"


class AlreadyExistsError(ConflictError, FileExistsError):
    kind = "already_exists"


class CommitUnknownError(ConflictError):
    """The commit was sent and its fate could not be learned.

    `txn_id` names it: `warpdata.find_commit(dataset, txn_id)` says later whether it landed.
    """

    kind = "commit_unknown"

    def __init__(self, message: str, *, txn_id: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.txn_id = txn_id


class BadInputError(WarpError, ValueError):
    kind = "bad_input"


class InvalidNameError(BadInputError):
    kind = "invalid_name"


class InvalidFilterError(BadInputError):
    kind = "invalid_filter"


class InvalidSourceError(BadInputError):
    kind = "invalid_source"


class InvalidViewError(BadInputError):
    """A view that names what is not there, or mixes what does not mix."""

    kind = "invalid_view"
    status: ClassVar[str] = "INVALID_ARGUMENT"


class SchemaMismatchError(BadInputError, TypeError):
    kind = "schema_mismatch"


class TokenMismatchError(BadInputError):
    """A token that was made by a stream over another version, filter or seed."""

    kind = "token_mismatch"


class LargeExportError(BadInputError):
    kind = "large_export"


class LimitExceededError(BadInputError):
    kind = "limit_exceeded"


class DeniedError(WarpError, PermissionError):
    kind = "denied"


class AuthenticationError(DeniedError):
    kind = "authentication"


class AccessDeniedError(DeniedError):
    kind = "access_denied"


class ReadOnlyStoreError(DeniedError):
    kind = "read_only_store"


class StorageError(WarpError, OSError):
    kind = "storage"


class StoreUnavailableError(StorageError, ConnectionError):
    kind = "store_unavailable"


class StoreTimeoutError(StorageError, TimeoutError):
    kind = "store_timeout"


class StoreFullError(StorageError):
    kind = "store_full"


class WriteUnknownError(StorageError):
    """A write may or may not have landed: the request went out and no answer came back."""

    kind = "write_unknown"


@dataclass(frozen=True, slots=True)
class PartialCoverageDetail:
    """Which bytes are missing: `(offset, length)` pairs in the ByteSpace of that kind and id."""

    space_kind: str
    space_id: str
    missing_ranges: tuple[tuple[int, int], ...]


class PartialCoverageError(StorageError):
    """Source bytes that a view needs are not here. Raised before the target is touched.

    A storage error and not a "not found": the name exists, and another source, or this one later,
    may have the bytes.
    """

    kind = "partial_coverage"
    status: ClassVar[str] = "UNAVAILABLE"

    def __init__(self, message: str, *, detail: PartialCoverageDetail, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.detail = detail


class CorruptError(WarpError, ValueError):
    kind = "corrupt"


class ManifestCorruptedError(CorruptError):
    """`problems` lists everything found wrong, each with its path inside the manifest."""

    kind = "manifest_corrupted"

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class BlobCorruptedError(CorruptError):
    kind = "blob_corrupted"


class PointerCorruptedError(CorruptError):
    kind = "pointer_corrupted"


class EpisodeCorruptedError(CorruptError):
    kind = "episode_corrupted"


class TensorsCorruptedError(CorruptError):
    """`problems` lists everything found wrong with an index or a header, each with its place."""

    kind = "tensors_corrupted"

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems


class MediaDecodeError(CorruptError):
    """The bytes are those that were published, but not a picture, sound or film that can be decoded."""

    kind = "media_decode"


class UnsupportedError(WarpError, NotImplementedError):
    kind = "unsupported"


class MissingExtraError(UnsupportedError, ImportError):
    kind = "missing_extra"


class UnsupportedFormatError(UnsupportedError):
    kind = "unsupported_format"


class ViewPreconditionError(UnsupportedError):
    """A view that is well formed, but whose target or transform is not possible here."""

    kind = "view_precondition"
    status: ClassVar[str] = "FAILED_PRECONDITION"
