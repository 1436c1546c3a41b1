"""A store behind a service: the same keys and bytes, for users who have an address and a token, and no credentials.

Reads use the object-store library over the bytes routes, so ranges are coalesced and retried as with any store. Writes
go through the service, which checks each before it does it. See docs/decisions/0071.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from warpdata.errors import AccessDeniedError, DeniedError, ErrorKind, UnsupportedError
from warpdata.primitives.hashing import Fingerprint, OnBytes, ignore_bytes
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.service_client import ServiceClient
from warpdata.storage.types import ObjectInfo, check_key
from warpdata.storage.wrapper import ReaderWrapper

__all__ = ["ServiceStore"]

_OBJECTS = "/objects"


class ServiceStore(ReaderWrapper):
    """Implements `Writer` over a service. What the user may not read does not exist."""

    def __init__(self, url: str, client: ServiceClient, objects: ObjectStore) -> None:
        super().__init__(objects)
        self._url = url
        self.client = client

    @property
    def url(self) -> str:
        return self._url

    def list_objects(self, prefix: str, *, max_count: int | None = None) -> Iterator[ObjectInfo]:
        cursor: str | None = ""
        left = max_count
        while cursor is not None and left != 0:
            limit = None if left is None else min(left, 10_000)
            page = self.client.get(_OBJECTS, {"prefix": _checked(prefix), "after": cursor, "limit": limit})
            for one in page["objects"]:
                modified = None if one["modified"] is None else datetime.fromisoformat(one["modified"])
                yield ObjectInfo(one["key"], one["size_bytes"], one["etag"], modified)
            left = None if left is None else left - len(page["objects"])
            cursor = page["next_cursor"]

    def list_folders(self, prefix: str) -> list[str]:
        found: list[str] = self.client.get(_OBJECTS, {"prefix": _checked(prefix), "folders": True})["folders"]
        return found

    def signed_url(self, key: str, expires_s: int) -> str:
        raise UnsupportedError(
            f"{self._url} signs no URLs of stored objects", hint="Ask the service: GET …/images/PATH/url."
        )

    def create(self, key: str, data: bytes) -> bool:
        self._refuse(key)

    def create_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> bool:
        self._refuse(key)

    def replace(self, key: str, data: bytes) -> None:
        self._refuse(key)

    def replace_file(self, key: str, path: Path, fingerprint: Fingerprint, on_bytes: OnBytes = ignore_bytes) -> None:
        self._refuse(key)

    def delete(self, key: str) -> None:
        self._refuse(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def remove_abandoned(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        raise AccessDeniedError(f"{self._url} removes unfinished writes itself")

    def _refuse(self, key: str) -> NoReturn:
        raise DeniedError(f"{self._url} is read-only; {key!r} was not written", kind=ErrorKind.READ_ONLY_STORE)


def _checked(prefix: str) -> str:
    return check_key(prefix) if prefix else ""
