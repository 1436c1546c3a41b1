"""Typed errors for failures of the object-store library.

The library reports most failures as one class whose text carries the detail. Only this module reads that text. An
unknown text becomes a plain `StorageError`, never a guess.
"""

from __future__ import annotations

from warpdata.errors import (
    AccessDeniedError,
    AuthenticationError,
    CorruptError,
    DeniedError,
    NotFoundError,
    ObjectNotFoundError,
    StorageError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnsupportedError,
    WarpError,
)
from warpdata.primitives.redaction import redact

__all__ = ["explain", "is_surely_unsent", "is_transient", "is_unreachable", "was_retried"]

_BAD_IDENTITY = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "401 Unauthorized")
_METADATA_SERVICES = ("/latest/api/token", "/latest/meta-data", "169.254.170.", "metadata.google.internal")
_SLOW_DOWN = ("non-2xx status code: 429", "non-2xx status code: 503")
_NO_CONNECTION = ("kind: Connect", "ConnectError", "dns error")
_UNREACHABLE = (*_NO_CONNECTION, "IncompleteMessage", "non-2xx status code: 5")
_NOT_IMPLEMENTED = "non-2xx status code: 501"
_TRANSIENT = ("non-2xx status code: 5", "non-2xx status code: 429", "HTTP error:")
_CUT_LISTING = ("Error getting list response body", "Got invalid list response")
_PAST_THE_END = ("416 Range Not Satisfiable", "Wanted range starting at")


def explain(error: Exception, key: str, url: str) -> WarpError:
    """Return the typed error for a failure on `key` of the store at `url`."""
    text = redact(str(error))
    fact = f"{url}: {text.splitlines()[0] if text else type(error).__name__}"
    return (
        _denied(type(error).__name__, text, key, url)
        or _missing_bucket(text, url)
        or _too_short(text, key, url)
        or _unsupported(type(error).__name__, text, key, url)
        or _unreachable(text, fact)
        or StorageError(fact)
    )


def is_surely_unsent(error: BaseException | None) -> bool:
    """Return whether the request never reached a server, so that it cannot take effect later.

    After a retry that is unknown: an earlier attempt may have arrived. It is unknown after a `ConnectionReset` too,
    because the server may have accepted the request first.
    """
    text = str(error)
    return "kind: Connect," in text and "retries: 0," in text


def is_transient(error: BaseException) -> bool:
    """Return whether another try of a read may succeed: the server or the network failed, or a reply was cut."""
    text = str(error)
    return _NOT_IMPLEMENTED not in text and any(mark in text for mark in (*_TRANSIENT, *_CUT_LISTING))


def is_unreachable(error: BaseException) -> bool:
    """Return whether no connection could be made."""
    text = str(error)
    return any(mark in text for mark in _NO_CONNECTION)


def was_retried(error: BaseException | None) -> bool:
    """Return whether the library sent the request more than once before this error."""
    return " retries, max_retries: " in str(error)


def _denied(name: str, text: str, key: str, url: str) -> DeniedError | None:
    if any(mark in text for mark in _METADATA_SERVICES):
        return AuthenticationError(
            f"no credentials found for {url}",
            hint="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; `warp doctor` checks them.",
        )
    if any(mark in text for mark in _BAD_IDENTITY) or name == "UnauthenticatedError":
        return AuthenticationError(
            f"{url} does not accept these credentials",
            hint="Check the access key, the secret and the session token; `warp doctor` checks them.",
        )
    if name == "PermissionDeniedError" or "403 Forbidden" in text or "(code: AccessDenied)" in text:
        return AccessDeniedError(
            f"{url} forbids access to {key!r}",
            hint="Ask the owner of the bucket for permission to read or write it.",
        )
    return None


def _missing_bucket(text: str, url: str) -> NotFoundError | None:
    if "NoSuchBucket" not in text:
        return None
    return ObjectNotFoundError(f"there is no bucket at {url}", hint="Check the spelling, or create the bucket.")


def _too_short(text: str, key: str, url: str) -> CorruptError | None:
    if not any(mark in text for mark in _PAST_THE_END):
        return None
    return CorruptError(f"{key!r} in {url} ends before the requested bytes")


def _unsupported(name: str, text: str, key: str, url: str) -> UnsupportedError | None:
    """Return an error for operations of plain web servers: listings, and ranges on some of them."""
    if "performing PROPFIND" in text and ("501 Not Implemented" in text or "405 Method Not Allowed" in text):
        return UnsupportedError(
            f"{url} cannot be listed: a web server has no list of its files",
            hint="Open a dataset by its name with a label, a branch or a whole version hash; history needs a limit.",
        )
    if name == "NotSupportedError" and "Range request" in text:
        return UnsupportedError(
            f"{url} does not answer range requests; {key!r} was not read",
            hint="Serve the files with a server that does, such as nginx or Caddy; `python -m http.server` does not.",
        )
    if name == "NotSupportedError":
        return UnsupportedError(f"{url}: {text.splitlines()[0]}")
    return None


def _unreachable(text: str, fact: str) -> StorageError | None:
    if any(mark in text for mark in _SLOW_DOWN):
        return StoreUnavailableError(fact, hint="The store asks for fewer requests; set WARP_IO_CONCURRENCY lower.")
    if any(mark in text for mark in _UNREACHABLE):
        return StoreUnavailableError(fact, hint="Check the endpoint and the network; `warp doctor` tests both.")
    if "TimedOut" in text or "operation timed out" in text or "kind: Timeout" in text:
        return StoreTimeoutError(fact, hint="The endpoint is slow or hangs; WARP_TIMEOUT_S sets the time-out.")
    return None
