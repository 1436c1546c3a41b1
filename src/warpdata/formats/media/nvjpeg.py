"""JPEG decoding on a CUDA device, by nvJPEG through torchvision.

A worker process leaves plain JPEGs encoded, and the process that consumes a batch decodes them on its device. Pillow
stays the authority: it decodes whatever nvJPEG refuses, or raises. nvJPEG rounds and upsamples in another way than
libjpeg, so its pixels differ from those of other decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError
from warpdata.formats.media.image import Array, check_pixels, image_to_array, image_to_rgb
from warpdata.formats.media.image_header import read_jpeg_header
from warpdata.formats.media.image_size import ResizeTo, Size, target_size
from warpdata.formats.media.jpeg import is_plain
from warpdata.primitives.extras import require

__all__ = ["EncodedJpeg", "check_image_device", "decode_on_device", "keep_encoded"]

_RGB_BYTES = 3
_DECODED_BYTES = 256 << 20
"""Bytes of full-size pixels that are on the device at a time, besides the result."""
_END_OF_IMAGE = b"\xff\xd9"
_TRAILER_BYTES = 64
"""Bytes after the end of an image that cameras and editors may append."""

DecodeMany = Callable[[Sequence[bytes], int, Any], Sequence[Any]]
"""Decodes JPEGs of 1 or 3 channels to tensors of channels × height × width. `RuntimeError` if one is refused."""


@dataclass(frozen=True, slots=True)
class EncodedJpeg:
    """A JPEG that a device will decode. Its header was read, and its size accepted."""

    data: bytes
    name: str
    size: Size
    """Height and width."""
    channels: int
    resize: ResizeTo | None

    @property
    def nbytes(self) -> int:
        return len(self.data)


def keep_encoded(data: bytes | memoryview, name: str, resize: ResizeTo | None) -> EncodedJpeg | None:
    """Return an image for `decode_on_device`; None if it is not a complete plain JPEG. Checks its size."""
    header = read_jpeg_header(data)
    if header is None or not is_plain(header) or _END_OF_IMAGE not in bytes(data[-_TRAILER_BYTES:]):
        return None
    check_pixels((header.width, header.height), name)
    channels = header.components if resize is None else _RGB_BYTES
    return EncodedJpeg(bytes(data), name, (header.height, header.width), channels, resize)


def check_image_device(device: Any) -> str:
    """Return the name of a usable CUDA device. `BadInputError` for others, `MissingExtraError` without nvJPEG."""
    torch = require("torch", purpose="image_device", extra="torch")
    require("torchvision", purpose="image_device")
    try:
        parsed = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise BadInputError(f"image_device={device!r} is not a device: {error}", hint=_DEVICE_HINT) from error
    if parsed.type != "cuda":
        raise BadInputError(f"image_device={device!r} is not a CUDA device", hint=_DEVICE_HINT)
    if (parsed.index or 0) >= torch.cuda.device_count():
        raise BadInputError(f"image_device={device!r}: torch sees {torch.cuda.device_count()} CUDA devices")
    return str(parsed)


_DEVICE_HINT = 'Use "cuda" or "cuda:0", or leave image_device out to decode on the CPU.'


def decode_on_device(images: Sequence[Any], device: str, decode_many: DecodeMany | None = None) -> Any:
    """Decode a column of images, of which some may be arrays or None already.

    Return one uint8 tensor on the device if all images have one shape, else a list. Shapes are those of `ImageRef`:
    height × width for grey, × 3 for colour and for resized images. `decode_many` is nvJPEG by default.
    """
    torch = require("torch", purpose="image_device", extra="torch")
    decoded: list[Any] = list(images)
    for run in _runs(images):
        _decode_run(decoded, run, device, decode_many or _decode_with_nvjpeg)
    tensors = [None if image is None else torch.as_tensor(image).to(device) for image in decoded]
    shapes = {None if image is None else (image.shape, image.dtype) for image in tensors}
    return torch.stack(tensors) if tensors and len(shapes) == 1 and None not in shapes else tensors


def _runs(images: Sequence[Any]) -> Iterator[list[int]]:
    """Yield positions of encoded images with the same number of channels, within the bound on pixels."""
    for channels in (1, _RGB_BYTES):
        run: list[int] = []
        size_bytes = 0
        for at, image in enumerate(images):
            if not isinstance(image, EncodedJpeg) or image.channels != channels:
                continue
            decoded_bytes = image.size[0] * image.size[1] * channels
            if run and size_bytes + decoded_bytes > _DECODED_BYTES:
                yield run
                run, size_bytes = [], 0
            run.append(at)
            size_bytes += decoded_bytes
        if run:
            yield run


def _decode_run(images: list[Any], run: Sequence[int], device: str, decode_many: DecodeMany) -> None:
    """Replace encoded images by tensors. One that the device refuses is decoded by the CPU, which may raise."""
    found: list[Any] = [None] * len(run)
    try:
        found = list(decode_many([images[at].data for at in run], images[run[0]].channels, device))
    except RuntimeError:  # the library refuses all of them for one
        for number, at in enumerate(run):
            try:
                found[number] = decode_many([images[at].data], images[at].channels, device)[0]
            except RuntimeError:
                continue
    by_scale: dict[tuple[Size, Size], list[tuple[int, Any]]] = {}
    for at, pixels in zip(run, found, strict=True):
        image = images[at]
        if pixels is None or tuple(pixels.shape[1:]) != image.size:
            images[at] = _decode_on_cpu(image)
            continue
        target = image.size if image.resize is None else target_size(image.size, image.resize)
        by_scale.setdefault((image.size, target), []).append((at, pixels))
    for (size, target), group in by_scale.items():
        scaled = _scaled([pixels for _, pixels in group], size, target)
        for (at, _), pixels in zip(group, scaled, strict=True):
            images[at] = pixels if images[at].channels == _RGB_BYTES else pixels[..., 0]


def _scaled(images: Sequence[Any], size: Size, target: Size) -> Any:
    """Return images of one size as height × width × channels, scaled like those that the CPU decodes."""
    torch = require("torch", purpose="image_device", extra="torch")
    pixels = torch.stack(list(images))
    if size != target:
        # Only floating-point kernels have the antialiasing filter on a device.
        scaled = torch.nn.functional.interpolate(pixels.float(), target, mode="bilinear", antialias=True)
        pixels = scaled.round_().clamp_(0, 255).to(torch.uint8)
    return pixels.permute(0, 2, 3, 1).contiguous()


def _decode_on_cpu(image: EncodedJpeg) -> Array:
    if image.resize is None:
        return image_to_array(image.data, image.name)
    return image_to_rgb(image.data, image.name, image.resize)


def _decode_with_nvjpeg(contents: Sequence[bytes], channels: int, device: Any) -> Sequence[Any]:
    torch = require("torch", purpose="image_device", extra="torch")
    vision = require("torchvision.io", purpose="image_device")
    mode = vision.ImageReadMode.GRAY if channels == 1 else vision.ImageReadMode.RGB
    encoded = [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]
    found: Sequence[Any] = vision.decode_jpeg(encoded, mode=mode, device=device)
    return found
