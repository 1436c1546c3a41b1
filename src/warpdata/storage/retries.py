"""Reads that are sent again after a failure which may pass. A failing server lowers the number of requests.

The object-store library could retry by itself, but would not report that a server asked for fewer requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from warpdata.primitives.backoff import Backoff
from warpdata.primitives.parallel import REQUEST_LIMIT
from warpdata.storage.error_mapping import is_transient, is_unreachable

__all__ = ["RetryPolicy"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The most retries of a request, and the time after which it is not sent again."""

    max_retries: int = 5
    timeout_s: float = 60.0

    def call(self, send: Callable[[], _T]) -> _T:
        """Return `send()`. After a failure that may pass, pause and send again."""
        try:
            return send()
        except Exception as error:
            if not _may_pass(error):
                raise
            failure = error
        backoff = Backoff(self.max_retries, self.timeout_s)
        while backoff.wait():
            try:
                return send()
            except Exception as error:
                if not _may_pass(error):
                    raise
                failure = error
        try:
            raise failure
        finally:
            del failure  # else the error and its traceback would refer to each other


def _may_pass(error: Exception) -> bool:
    """Return whether a second request may succeed, and send fewer requests if the server is failing."""
    from obstore.exceptions import BaseError

    if not isinstance(error, BaseError) or not is_transient(error):
        return False
    if not is_unreachable(error):  # fewer requests do not help a server that is not there
        REQUEST_LIMIT.back_off()
    return True
