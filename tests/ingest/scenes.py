"""Fixtures of the ingest tests: small media files, tars, and readers of published datasets."""

from __future__ import annotations

import io
import struct
import tarfile
import wave
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import warpdata as wd


def png(shade: int = 0) -> bytes:
    """Return a grey image of 2 × 2 pixels of one shade."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = bytes([0, shade, shade])
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)),
            chunk(b"IDAT", zlib.compress(row + row)),
            chunk(b"IEND", b""),
        )
    )


def wav(samples: Iterable[int] = (0, 1000, -1000)) -> bytes:
    """A sound of one channel at 8 kHz."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue()


def plant(folder: Path, files: dict[str, bytes | str]) -> Path:
    """Write the files under the directory."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def rows(dataset_id: str) -> list[dict[str, Any]]:
    """The table as it is stored."""
    found: list[dict[str, Any]] = wd.dataset(dataset_id).table().raw().to_arrow().to_pylist()
    return found


def bound(dataset_id: str) -> dict[str, tuple[str, str]]:
    """Return the bound columns and their artifacts."""
    return {each.column: (each.artifact, each.ref_type) for each in wd.dataset(dataset_id).info().bindings}
