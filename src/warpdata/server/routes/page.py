"""The web page: one document for all its addresses, and its scripts and styles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from warpdata.errors import NotFoundError
from warpdata.server.page_files import PageFile, PageFiles

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""No inline script or style, no evaluation, and nothing from another origin."""
_WORKER_POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' data:"
"""Of scripts, where it binds workers only. They read episodes, whose checksums and codecs are WebAssembly."""
Accepted = Annotated[str, Header(alias="Accept-Encoding", max_length=1024)]
Known = Annotated[str, Header(alias="If-None-Match", max_length=1024)]


@router.get("/")
@router.get("/d/{path:path}")
@router.get("/sql")
@router.get("/jobs")
@router.get("/admin")
@router.get("/admin/{path:path}")
def get_page(request: Request, accepted: Accepted = "", known: Known = "") -> Response:
    """Every address of the page is the same document, which asks the API for what its address names."""
    files: PageFiles = request.app.state.page
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    return _answer(files.index, headers, accepted, known)


@router.get("/assets/{name}")
def get_asset(request: Request, name: str, accepted: Accepted = "", known: Known = "") -> Response:
    files: PageFiles = request.app.state.page
    found = files.assets.get(name)
    if found is None:
        raise NotFoundError(f"the page has no file {name[:200]!r}", hint="Load the page again.")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Content-Security-Policy": _WORKER_POLICY}
    return _answer(found, headers, accepted, known)


def _answer(file: PageFile, headers: dict[str, str], accepted: str, known: str) -> Response:
    headers |= {"ETag": file.etag, "Vary": "Accept-Encoding"}
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    if file.compressed is not None and "gzip" in accepted:
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.media_type)
    return Response(file.data, headers=headers, media_type=file.media_type)
