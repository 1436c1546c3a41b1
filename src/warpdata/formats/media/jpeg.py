"""JPEG decoding by the fastest library that is installed, as a short cut in front of Pillow.

All decoders use libjpeg-turbo with its exact IDCT and smooth upsampling, so their pixels equal those of Pillow. A fast
decoder returns None for anything unusual: other colour spaces, 12 bits, damaged bytes. Pillow decodes that, or raises.
Errors are therefore those of Pillow, whatever is installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from warpdata.formats.media.image_header import JpegHeader, read_jpeg_header

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FAST_DECODERS", "JpegDecoder", "choose_jpeg_decoder", "decode_jpeg", "is_plain", "plain_jpeg_header"]

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_BASELINE, _EXTENDED, _PROGRESSIVE = 0xC0, 0xC1, 0xC2


@dataclass(frozen=True, slots=True)
class JpegDecoder:
    """A library that decodes JPEG, and the reason why it was chosen."""

    name: str
    version: str
    """Empty if it is not installed, which is possible for Pillow only."""
    reason: str
    scales: bool
    """It decodes at 1/2, 1/4 and 1/8 of the size."""
    decode: Callable[[bytes | memoryview, JpegHeader, int, int], Array | None] | None
    """Takes data, header, channels (1 or 3) and the scale divisor. None: Pillow decodes."""


def choose_jpeg_decoder() -> JpegDecoder:
    """Return the best decoder that is installed: simplejpeg, then torchvision, then Pillow.

    torchvision is chosen only where the process has imported torch, because importing it takes seconds. Pixels do not
    depend on the choice.
    """
    return _choose("torch" in sys.modules)


def decode_jpeg(data: bytes | memoryview, header: JpegHeader, channels: int, divisor: int = 1) -> Array | None:
    """Decode a plain JPEG to height × width for one channel, × 3 for three; None if Pillow has to.

    The caller has checked the size in the header.
    """
    decoder = choose_jpeg_decoder()
    if decoder.decode is None or (divisor > 1 and not decoder.scales):
        return None
    pixels = decoder.decode(data, header, channels, divisor)
    return pixels[..., 0] if pixels is not None and channels == 1 else pixels


def plain_jpeg_header(data: bytes | memoryview) -> JpegHeader | None:
    """Return the header of a JPEG that every decoder reads alike: Huffman coded, 8 bits, grey or colour; else None.

    None too if there is no decoder besides Pillow.
    """
    if choose_jpeg_decoder().decode is None:
        return None
    header = read_jpeg_header(data)
    return header if header is not None and is_plain(header) else None


def is_plain(header: JpegHeader) -> bool:
    """Return whether every decoder reads a JPEG with this header alike."""
    is_usual = header.process in (_BASELINE, _EXTENDED, _PROGRESSIVE) and header.precision_bits == 8
    return is_usual and header.components in (1, 3) and header.height > 0 and header.width > 0


@functools.cache
def _choose(uses_torch: bool) -> JpegDecoder:
    missing = []
    for name in FAST_DECODERS:
        if name == "torchvision" and not uses_torch:
            missing.append(f"{name} is used only beside torch")
            continue
        found = _load(name)
        if isinstance(found, JpegDecoder):
            return found
        missing.append(found)
    return JpegDecoder("Pillow", _version("pillow"), "; ".join(missing), True, None)


def _load(name: str) -> JpegDecoder | str:
    """Return a decoder, or the reason why it cannot be used."""
    try:
        decode, scales = FAST_DECODERS[name]()
    except ModuleNotFoundError as error:
        return f"{name} is not installed" if error.name == name else f"{name} cannot be imported: {error}"
    except Exception as error:  # noqa: BLE001 - a library built for another version of torch raises anything
        return f"{name} cannot be imported: {error}"
    return JpegDecoder(name, _version(name), "the fastest decoder installed", scales, decode)


def _load_simplejpeg() -> tuple[Callable[..., Array | None], bool]:
    import numpy as np
    import simplejpeg

    def decode(data: bytes | memoryview, header: JpegHeader, channels: int, divisor: int) -> Array | None:
        height, width = math.ceil(header.height / divisor), math.ceil(header.width / divisor)
        # The library writes into memory of the checked size, and cannot allocate more for another header.
        pixels: Array = np.empty((height, width, channels), np.uint8)
        try:
            found = simplejpeg.decode_jpeg(
                data,
                "RGB" if channels == 3 else "GRAY",
                min_height=height if divisor > 1 else 0,
                min_width=width if divisor > 1 else 0,
                buffer=pixels,
            )
        except ValueError:  # damaged: Pillow says how, or decodes it
            return None
        return pixels if found.shape == pixels.shape else None

    return decode, True


def _load_torchvision() -> tuple[Callable[..., Array | None], bool]:
    import numpy as np
    import torch
    from torchvision import io as vision

    _ = torch.ops.image.decode_jpeg  # AttributeError if the compiled part does not fit this torch
    modes = {1: vision.ImageReadMode.GRAY, 3: vision.ImageReadMode.RGB}

    def decode(data: bytes | memoryview, header: JpegHeader, channels: int, divisor: int) -> Array | None:
        assert divisor == 1, "it does not scale"
        try:
            # A copy, because torch refuses memory that is not writable.
            found = vision.decode_jpeg(torch.from_numpy(np.frombuffer(data, np.uint8).copy()), mode=modes[channels])
        except RuntimeError:
            return None
        pixels: Array = found.permute(1, 2, 0).numpy()
        return pixels if pixels.shape == (header.height, header.width, channels) else None

    return decode, False


FAST_DECODERS: dict[str, Callable[[], tuple[Callable[..., Array | None], bool]]] = {
    "simplejpeg": _load_simplejpeg,
    "torchvision": _load_torchvision,
}
"""Loaders of the decoders in front of Pillow, best first. Each returns a function, and whether it can scale."""


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
