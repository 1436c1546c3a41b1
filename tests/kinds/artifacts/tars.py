"""Tar archives put together block by block, as no library would write them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping

__all__ = [
    "BLOCK",
    "END",
    "GNU",
    "USTAR",
    "V7",
    "archive",
    "entry",
    "extended",
    "header",
    "long_name",
    "padded",
    "sealed",
]

BLOCK = 512
END = bytes(2 * BLOCK)
USTAR, GNU, V7 = b"ustar\x0000", b"ustar  \0", bytes(8)


def header(
    name: bytes | str,
    size: int = 0,
    kind: bytes = b"0",
    *,
    magic: bytes = USTAR,
    prefix: bytes = b"",
    size_field: bytes | None = None,
) -> bytes:
    """One block with a right checksum; `size_field` is written as it is."""
    raw = name.encode() if isinstance(name, str) else name
    block = bytearray(BLOCK)
    block[0:100] = raw[:100].ljust(100, b"\0")
    block[100:124] = b"0000644\0" + b"0000000\0" * 2
    block[124:136] = (size_field if size_field is not None else f"{size:011o}\0".encode()).ljust(12, b"\0")
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[257:265] = magic
    block[345:500] = prefix.ljust(155, b"\0")
    return sealed(bytes(block))


def sealed(block: bytes) -> bytes:
    """The block with the checksum that belongs to it."""
    total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    return block[:148] + f"{total:06o}\0 ".encode() + block[156:]


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def entry(name: bytes | str, content: bytes = b"", kind: bytes = b"0", *, magic: bytes = USTAR) -> bytes:
    return header(name, len(content), kind, magic=magic) + padded(content)


def extended(records: Mapping[str, str | bytes] | bytes, kind: bytes = b"x") -> bytes:
    """A pax header; given bytes, those are its content, right or wrong."""
    content = records if isinstance(records, bytes) else b"".join(_record(*record) for record in records.items())
    return entry("PaxHeaders/0", content, kind)


def _record(key: str, value: str | bytes) -> bytes:
    rest = b" " + key.encode() + b"=" + (value.encode() if isinstance(value, str) else value) + b"\n"
    size = len(rest)
    while size != len(rest) + len(str(size)):
        size = len(rest) + len(str(size))
    return str(size).encode() + rest


def long_name(name: bytes | str, kind: bytes = b"L") -> bytes:
    raw = name.encode() if isinstance(name, str) else name
    return entry("././@LongLink", raw + b"\0", kind, magic=GNU)


def archive(
    members: Iterable[tuple[str, bytes | None]], layout: int, pax_headers: Mapping[str, str] | None = None
) -> bytes:
    """Return an entry as `tarfile` writes it; None is a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=layout, encoding="utf-8", pax_headers=pax_headers) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content or b""))
    return out.getvalue()
