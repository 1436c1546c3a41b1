"""The short way for reads of bytes: files of versions, files by signed URL, and blobs.

A page of images and an epoch of training are thousands of such requests. They need no validation of bodies and no
dependencies, so they are answered before the framework sees them: at once, if the user is known from within the last
second, the version is open and the bytes are in memory; otherwise by one call in a thread. Whatever is unusual or
fails goes on to the routes, which define every answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from warpdata.errors import WarpError
from warpdata.limits import MEMBER_CHUNK_BYTES
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.hashing import is_digest
from warpdata.server.access import Action, AttemptLimit, Place, Principal, authorize, recall_file, verify_file
from warpdata.server.caller import find_principal, recall_principal
from warpdata.server.objects import authorize_read, digest_of, recall_read
from warpdata.server.resident_files import LocalSpan, local_span, read_resident
from warpdata.server.service import Service
from warpdata.server.stored_files import (
    FOREVER,
    REVALIDATED,
    SIGNED,
    FileHead,
    FileRequest,
    StoredFile,
    file_head,
    find_file,
)
from warpdata.server.stored_objects import ObjectRequest, describe_object, object_head, send_object

__all__ = ["FastReads"]

_FILE = re.compile(
    r"/api/v1/datasets/([a-z0-9_-]{1,128})/([a-z0-9_-]{1,128})/images/(.{1,4000}\.[^/.]{1,90})", re.DOTALL
)
"""Names without an extension are left to the routes, because `…/url` and `…/impact` are routes of their own."""
_SIGNED = re.compile(r"/api/v1/files/([^/]{1,8000})/[^/]{1,256}", re.DOTALL)
_OBJECT = re.compile(r"/api/v1/objects/(blobs/[0-9a-f/.]{1,200})")
_PREFIXES = ("/api/v1/datasets/", "/api/v1/files/", "/api/v1/objects/blobs/")
_METHODS = ("GET", "HEAD")
_FOUND_FILES = 16_384
_MAX_OBJECT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Found:
    """A file of a version, and where its bytes are on this machine."""

    file: StoredFile
    span: LocalSpan | None


@dataclass(frozen=True, slots=True)
class _Ready:
    """An answer that can be sent: its head, and its bytes."""

    head: FileHead
    body: bytes | bytearray | memoryview


class _Read(Protocol):
    """A read that was recognized. Both ways give None for what the routes shall answer."""

    route: SimpleNamespace

    def at_once(self) -> _Ready | None:
        """Answer without waiting for a disk, a network or a lock."""

    def in_thread(self) -> _Ready | Response | None:
        """Answer with whatever reads it takes."""


class FastReads:
    """A layer of the application that answers reads of bytes, and hands all else on."""

    def __init__(self, app: ASGIApp, *, service: Service, attempts: AttemptLimit) -> None:
        self._app = app
        self.service = service
        self.attempts = attempts
        self.found: ByteLRU[tuple[str, str, str | None, str], _Found] = ByteLRU(max_entries=_FOUND_FILES)
        self.is_local = service.session.writer.url.startswith("file://")
        """The store is a directory, so looking a file up in an index reads at most a page of a local file."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = self._recognize(scope) if scope["type"] == "http" else None
        if read is not None:
            try:
                answer: _Ready | Response | None = read.at_once()
                if answer is None:
                    answer = await run_in_threadpool(read.in_thread)
            except WarpError:  # the route says the same, as a problem document
                answer = None
            if answer is not None:
                scope["route"] = read.route
                await (_send(answer, send) if isinstance(answer, _Ready) else answer(scope, receive, send))
                return
        await self._app(scope, receive, send)

    def _recognize(self, scope: Scope) -> _Read | None:
        path, query = scope["path"], scope["query_string"]
        if scope["method"] not in _METHODS or not path.startswith(_PREFIXES):
            return None
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            return None
        ip = scope["client"][0] if scope.get("client") else ""
        client = _Client(self, scope["method"], headers, ip)
        file = _FILE.fullmatch(path)
        if file is not None:
            ref = query.decode("latin-1").removeprefix("ref=") if query.startswith(b"ref=") else None
            if query and not (ref is not None and is_digest(ref)):
                return None
            scope["path_params"] = {"workspace": file[1], "name": file[2]}
            return _FileRead(client, Place(file[1], file[2]), ref, file[3])
        signed = None if query else _SIGNED.fullmatch(path)
        if signed is not None:
            return _SignedRead(client, signed[1])
        blob = None if query else _OBJECT.fullmatch(path)
        return None if blob is None else _ObjectRead(client, blob[1])


@dataclass(frozen=True, slots=True)
class _Client:
    """Who asks, and how."""

    reads: FastReads
    method: str
    headers: Headers
    ip: str

    def principal(self, find: Callable[[Service, AttemptLimit, Headers, str], Principal | None]) -> Principal | None:
        return find(self.reads.service, self.reads.attempts, self.headers, self.ip)

    def request(self, caching: str, *, is_cross_origin: bool = False) -> FileRequest:
        wanted, known = self.headers.get("range"), self.headers.get("if-none-match")
        return FileRequest(self.method, wanted, known, caching, is_cross_origin)

    def ready(self, place: Place, version: str, name: tuple[str | None, str], request: FileRequest) -> _Ready | None:
        """Answer with a file whose bytes are in memory."""
        reads, key = self.reads, (str(place), version, *name)
        found = reads.found.get(key)
        if found is None and reads.is_local:
            dataset = reads.service.opened(str(place), version)
            if dataset is None:
                return None
            file = find_file(dataset, *name)
            found = _Found(file, local_span(file.artifact, file.member))
            reads.found.put(key, found)
        if found is None or found.span is None:
            return None
        head = file_head(found.file, request)
        if head.span is None:
            return None
        data = read_resident(found.span)
        if data is None:
            return None
        return _Ready(head, data if len(head.span) == len(data) else memoryview(data)[head.span.start : head.span.stop])

    def whole(self, file: StoredFile, request: FileRequest) -> _Ready | None:
        """Answer with a file that one read of the store gives; None for a large one, which is sent in parts."""
        head = file_head(file, request)
        if head.span is None or file.size_bytes > MEMBER_CHUNK_BYTES:
            return None
        return _Ready(head, file.artifact.read(file.path)[head.span.start : head.span.stop])


@dataclass(frozen=True, slots=True)
class _FileRead:
    """A file of a version, or of the head of `main`."""

    client: _Client
    place: Place
    version: str | None
    path: str
    route = SimpleNamespace(path="/datasets/{workspace}/{name}/images/{path:path}")

    def at_once(self) -> _Ready | None:
        principal = None if self.version is None else self.client.principal(recall_principal)
        if principal is None or self.version is None:
            return None
        authorize(principal, Action.READ, self.place)
        return self.client.ready(self.place, self.version, (None, self.path), self.client.request(FOREVER))

    def in_thread(self) -> _Ready | None:
        client = self.client
        principal = client.principal(recall_principal) or client.principal(find_principal)
        if principal is None:
            return None
        authorize(principal, Action.READ, self.place)
        _, dataset = client.reads.service.open(str(self.place), self.version)
        request = client.request(REVALIDATED if self.version is None else FOREVER)
        return client.whole(find_file(dataset, None, self.path), request)


@dataclass(frozen=True, slots=True)
class _SignedRead:
    """A file that a signed URL grants."""

    client: _Client
    signed: str
    route = SimpleNamespace(path="/files/{signed}/{filename}")

    def at_once(self) -> _Ready | None:
        found = recall_file(self.client.reads.service, self.signed)
        if found is None:
            return None
        grant, principal = found
        place = _place(grant.dataset_id)
        authorize(principal, Action.READ, place)
        request = self.client.request(SIGNED, is_cross_origin=True)
        return self.client.ready(place, grant.version, (grant.artifact, grant.path), request)

    def in_thread(self) -> _Ready | None:
        service = self.client.reads.service
        grant, principal = verify_file(service, self.signed)
        authorize(principal, Action.READ, _place(grant.dataset_id))
        _, dataset = service.open(grant.dataset_id, grant.version)
        file = find_file(dataset, grant.artifact, grant.path)
        return self.client.whole(file, self.client.request(SIGNED, is_cross_origin=True))


@dataclass(frozen=True, slots=True)
class _ObjectRead:
    """A blob, for a client that reads datasets through the service."""

    client: _Client
    key: str
    route = SimpleNamespace(path="/objects/{key:path}")

    def at_once(self) -> _Ready | None:
        client, service = self.client, self.client.reads.service
        principal = client.principal(recall_principal) if client.reads.is_local else None
        digest = digest_of(self.key)
        if principal is None or digest is None or not recall_read(service, principal, digest):
            return None
        reader = service.session.writer
        path, info = reader.local_path(self.key), reader.stat(self.key)
        head = object_head(self._request, info.size_bytes, describe_object(info))
        if path is None or head.span is None or len(head.span) > _MAX_OBJECT_BYTES:
            return None
        data = read_resident(LocalSpan(str(path), head.span.start, len(head.span), None))
        return None if data is None else _Ready(head, data)

    def in_thread(self) -> Response | None:
        client, service = self.client, self.client.reads.service
        principal = client.principal(recall_principal) or client.principal(find_principal)
        if principal is None:
            return None
        authorize_read(service, principal, self.key)
        info = service.session.writer.stat(self.key)
        return send_object(service.session.writer, self._request, info.size_bytes, describe_object(info))

    @property
    def _request(self) -> ObjectRequest:
        headers = self.client.headers
        return ObjectRequest(self.client.method, self.key, headers.get("range"), headers.get("if-none-match"))


def _place(dataset_id: str) -> Place:
    workspace, _, name = dataset_id.partition("/")
    return Place(workspace, name)


async def _send(answer: _Ready, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.head.headers.items()]
    await send({"type": "http.response.start", "status": answer.head.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
