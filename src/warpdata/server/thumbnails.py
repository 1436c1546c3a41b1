"""Thumbnails: stored images made small, made in processes of their own and kept in memory.

An image is hostile until it is decoded, so a decoder has little memory and time, and the service ends one that takes
more. `python -m warpdata.server.thumbnails` is a decoder, with requests on stdin. Thumbnails have the hash of their
image in their name, and one is never served for an image that the store has lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, LifoQueue
from typing import IO, Any

from warpdata.errors import BadInputError, ErrorKind, LimitExceededError, RateLimitedError, WarpError
from warpdata.formats.media import thumbnail_webp
from warpdata.limits import MAX_THUMBNAIL_PIXELS, MIB
from warpdata.primitives.byte_lru import ByteLRU

__all__ = ["MEDIA_TYPE", "Thumbnails"]

MEDIA_TYPE = "image/webp"
_KEPT_BYTES = 128 * MIB
_PROCESS_BYTES = 2048 * MIB
_PROCESSES = 2
_TIMEOUT_S = 10.0
_WAIT_S = 20.0


class Thumbnails:
    """Makes thumbnails, and keeps those that were used last. Safe to share between threads."""

    def __init__(self) -> None:
        self._made: ByteLRU[tuple[str, ...], bytes] = ByteLRU(_KEPT_BYTES)
        self._slots = threading.BoundedSemaphore(_PROCESSES)
        self._idle: LifoQueue[_Decoder] = LifoQueue()

    def get(self, key: tuple[str, ...]) -> bytes | None:
        """Return a thumbnail that was made before."""
        return self._made.get(key)

    def make(self, key: tuple[str, ...], images: Sequence[tuple[str, bytes]], edge: int) -> bytes:
        """Make the thumbnail of an image, or a square of several, and keep it.

        `BadInputError` if the image is damaged or of no known format; `LimitExceededError` if it is too large.
        """
        if not self._slots.acquire(timeout=_WAIT_S):
            raise RateLimitedError("the decoders of images are busy", retry_after_s=2, hint="Try again soon.")
        try:
            decoder = self._take()
            made = decoder.ask(images, edge)
            self._idle.put(decoder)
        finally:
            self._slots.release()
        if isinstance(made, WarpError):
            raise made
        self._made.put(key, made, len(made))
        return made

    def close(self) -> None:
        """End the decoders."""
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _take(self) -> _Decoder:
        with suppress(Empty):
            return self._idle.get_nowait()
        return _Decoder()


class _Decoder:
    """A process that decodes one request after the other, until it is killed or its stdin ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "warpdata.server.thumbnails"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, images: Sequence[tuple[str, bytes]], edge: int) -> bytes | WarpError:
        """Return the thumbnail, or why there is none. Raise `LimitExceededError` if the process had to be ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        timer = threading.Timer(_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            names, sizes = [name for name, _ in images], [len(data) for _, data in images]
            _send(stdin, {"edge": edge, "names": names, "sizes": sizes}, *(data for _, data in images))
            answer = _receive(stdout)
            if "size" in answer:
                return _read(stdout, answer["size"])
        except (OSError, EOFError):
            self.close()
            raise LimitExceededError(
                f"decoding {images[0][0]!r} took more memory or time than it may", hint="Download the file instead."
            ) from None
        finally:
            timer.cancel()
        failed: type[WarpError] = LimitExceededError if answer["is_limit"] else BadInputError
        return failed(answer["message"], kind=ErrorKind(answer["kind"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()


def _send(pipe: IO[bytes], header: dict[str, Any], *parts: bytes) -> None:
    encoded = json.dumps(header).encode()
    pipe.write(len(encoded).to_bytes(4, "big") + encoded)
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read(pipe, int.from_bytes(_read(pipe, 4), "big")))
    return found


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _main() -> None:
    import resource  # not on Windows

    resource.setrlimit(resource.RLIMIT_AS, (_PROCESS_BYTES, _PROCESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError):
        while True:
            request = _receive(stdin)
            data = [_read(stdin, size) for size in request["sizes"]]
            try:
                images = list(zip(request["names"], data, strict=True))
                made = thumbnail_webp(images, request["edge"], max_pixels=MAX_THUMBNAIL_PIXELS)
                _send(stdout, {"size": len(made)}, made)
            except WarpError as error:
                is_limit = isinstance(error, LimitExceededError)
                _send(stdout, {"message": error.message, "kind": error.kind, "is_limit": is_limit})


if __name__ == "__main__":
    _main()
