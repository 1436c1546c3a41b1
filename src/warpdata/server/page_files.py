"""The files of the web page, which `make web` builds into `server/page/`.

All files are read once into memory, so a request names one of them or nothing. A checkout without the build answers
with a page that says how to make it.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

from warpdata.primitives.cached_property import cached_property
from warpdata.primitives.hashing import sha256_hex

__all__ = ["PageFile", "PageFiles"]

_DIRECTORY = Path(__file__).with_name("page")
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
_COMPRESSED = (".css", ".html", ".js", ".svg")
_NOT_BUILT = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>warpdata</title><meta name="viewport" content="width=device-width"></head>
<body>
<h1>warpdata</h1>
<p>The web page is not built in this checkout. <code>make web</code> builds it, with node 20 or newer; then start
<code>warp serve</code> again.</p>
<p>The API works without it:</p>
<ul>
<li><a href="/api/v1/session">Who you are</a></li>
<li><a href="/api/v1/datasets">Datasets</a></li>
<li><a href="/api/v1/openapi.json">The contract of the API (OpenAPI)</a></li>
</ul>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, as it is and compressed."""

    data: bytes
    compressed: bytes | None
    media_type: str
    etag: str


class PageFiles:
    """The first page, and its scripts and styles by name."""

    def __init__(self, directory: Path = _DIRECTORY) -> None:
        self._directory = directory

    @cached_property
    def index(self) -> PageFile:
        """The page that every address of the page gets."""
        path = self._directory / "index.html"
        return _file(path.read_bytes() if path.is_file() else _NOT_BUILT, ".html")

    @cached_property
    def assets(self) -> dict[str, PageFile]:
        """Scripts and styles. Their names have a hash of their content, so they never change."""
        directory = self._directory / "assets"
        found = sorted(directory.iterdir()) if directory.is_dir() else []
        return {path.name: _file(path.read_bytes(), path.suffix) for path in found if path.suffix in _TYPES}


def _file(data: bytes, suffix: str) -> PageFile:
    compressed = gzip.compress(data, mtime=0) if suffix in _COMPRESSED else None
    return PageFile(data, compressed, _TYPES[suffix], f'"{sha256_hex(data)[:32]}"')
