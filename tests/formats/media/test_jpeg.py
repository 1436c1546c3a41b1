"""If this fails, a photograph has other pixels on a machine with another decoder, or a damaged one harms its reader.

Pillow's own decoding is the expectation. Every decoder in front of it must return the same pixels, or leave the image
to Pillow. All of them are libjpeg-turbo; versions may differ in the last bit.
"""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import PIL
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError, WarpError
from warpdata.formats.media import (
    check_resize_to,
    decode_rgb,
    image_to_array,
    image_to_rgb,
    jpeg,
    parse_size,
    resize_rgb,
)
from warpdata.formats.media.image_size import scale_divisor, target_size

DECODERS = ["Pillow", *jpeg.FAST_DECODERS]
ROUNDING = 1
"""Levels by which versions of libjpeg-turbo may differ. Measured: 0."""
REDUCED_MEAN, REDUCED_MOST = 4, 32
"""Levels by which an image decoded at reduced scale may differ. Measured: 3 and 15."""
STRIPES_MEAN, STRIPES_MOST = 6, 20
"""The same for stripes of any size. Measured over all sizes up to 500: 5.5 and 16."""


def draw_waves(height: int, width: int) -> Any:
    y, x = np.mgrid[:height, :width]
    waves = np.stack([128 + 100 * np.sin(x / 7 + y / 19), 128 + 90 * np.cos(y / 5), (x * 3 + y * 2) % 200], -1)
    return (waves + np.random.default_rng(height * width).normal(0, 12, waves.shape)).clip(0, 255).astype(np.uint8)


def encode(pixels: Any, mode: str | None = None, kind: str = "JPEG", **options: Any) -> bytes:
    out = io.BytesIO()
    image = Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(out, kind, **options)
    return out.getvalue()


def variants() -> Iterator[tuple[str, bytes]]:
    wide = draw_waves(67, 101)
    for subsampling in (0, 1, 2):
        for quality in (30, 95):
            yield f"4:{subsampling} q{quality}", encode(wide, quality=quality, subsampling=subsampling)
        yield f"4:{subsampling} progressive", encode(wide, subsampling=subsampling, progressive=True)
    for height, width in ((1, 1), (8, 8), (17, 16), (16, 17), (1, 300)):
        yield f"{height}×{width}", encode(draw_waves(height, width))
    plain = encode(wide)
    yield "grey", encode(wide, "L")
    yield "grey progressive", encode(wide, "L", progressive=True)
    yield "CMYK", encode(wide, "CMYK")
    yield "RGB without a transform", encode(wide, keep_rgb=True)
    yield "restart markers", encode(wide, restart_marker_blocks=3)
    yield "comment and profile", encode(wide, comment=b"x" * 3000, icc_profile=bytes(range(256)) * 20)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "orientation", encode(wide, exif=exif)
    yield "several images", encode(wide, kind="MPO", save_all=True, append_images=[Image.fromarray(draw_waves(30, 30))])
    yield "bytes after the end", plain + b"rubbish" * 100
    yield "padding before a marker", plain[:2] + b"\xff" * 5 + plain[2:]


VARIANTS = dict(variants())


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> jpeg.JpegDecoder:
    return use(request.param, monkeypatch.setattr)


def use(name: str, patch: Callable[[Any, str, Any], None]) -> jpeg.JpegDecoder:
    """Decode with one library, whatever is installed besides."""
    found = jpeg.JpegDecoder(name, "", "", True, None) if name == "Pillow" else jpeg._load(name)
    if isinstance(found, str):
        pytest.skip(found)
    patch(jpeg, "choose_jpeg_decoder", lambda: found)
    return found


def expected(data: bytes, mode: str | None = None) -> Any:
    image = Image.open(io.BytesIO(data))
    wanted = mode or ("L" if image.mode == "L" else "RGB")
    return np.array(image.convert(wanted)).astype(int)


@pytest.mark.parametrize("name", VARIANTS)
def test_decoders_return_the_pixels_of_pillow(decoder: jpeg.JpegDecoder, name: str) -> None:
    data = VARIANTS[name]
    for form in (data, memoryview(data)):
        pixels = image_to_array(form, name)
        assert pixels.dtype == np.uint8
        assert pixels.shape == expected(data).shape
        assert np.abs(pixels - expected(data)).max() <= ROUNDING
        assert np.abs(decode_rgb(form, name, ("JPEG",)) - expected(data, "RGB")).max() <= ROUNDING
    assert pixels.flags.writeable


def test_plain_images_take_the_fast_path(decoder: jpeg.JpegDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise this file compares Pillow with itself."""
    if decoder.decode is None:
        pytest.skip("Pillow has no other path")
    monkeypatch.setattr("PIL.Image.OPEN", {})
    for name, data in VARIANTS.items():
        if name == "CMYK":
            continue
        assert image_to_array(data, name).size
        if decoder.scales:
            assert image_to_rgb(data, name, (1, 1)).shape == (1, 1, 3)
    with pytest.raises(MediaDecodeError):
        image_to_array(VARIANTS["CMYK"], "CMYK")


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("size", [(5, 7), (30, 20), (64, 120), 24])
def test_resized_images_equal_a_full_decode_and_resize(
    decoder: jpeg.JpegDecoder, name: str, size: tuple[int, int] | int
) -> None:
    data = VARIANTS[name]
    full = expected(data, "RGB").astype(np.uint8)
    target = target_size(full.shape[:2], size)
    found = image_to_rgb(data, name, size)
    assert found.shape == (*target, 3)
    assert found.flags.writeable
    wanted = resize_rgb(full, target).astype(int)
    if scale_divisor(full.shape[:2], target) == 1:
        assert np.abs(found - wanted).max() <= ROUNDING
    else:
        assert np.abs(found - wanted).mean() <= REDUCED_MEAN
        assert np.abs(found - wanted).max() <= REDUCED_MOST
    if isinstance(size, tuple):
        assert np.array_equal(decode_rgb(data, name, ("JPEG",), resize=size), found)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_reduced_scale_keeps_the_geometry(decoder: jpeg.JpegDecoder, data: st.DataObject) -> None:
    """Sides that the scale does not divide shift nothing: stripes stay where they are."""
    height, width = data.draw(st.tuples(st.integers(64, 500), st.integers(64, 500)))
    target = data.draw(st.tuples(st.integers(1, height // 6), st.integers(1, width // 6)))
    y, x = np.mgrid[:height, :width]
    shape = data.draw(st.sampled_from(["columns", "rows", "corner"]))
    values = {"columns": x // 3 % 2, "rows": y // 5 % 2, "corner": (x > 0.9 * width) & (y > 0.85 * height)}[shape]
    encoded = encode((values * 200 + 20).astype(np.uint8), quality=95)
    assert scale_divisor((height, width), target) > 1
    full = resize_rgb(expected(encoded, "RGB").astype(np.uint8), target)
    difference = np.abs(image_to_rgb(encoded, "stripes", target).astype(int) - full)
    assert difference.mean() <= STRIPES_MEAN
    assert difference.max() <= STRIPES_MOST


@given(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), st.tuples(st.integers(1, 900), st.integers(1, 900)))
def test_a_reduced_image_is_never_enlarged(size: tuple[int, int], target: tuple[int, int]) -> None:
    divisor = scale_divisor(size, target)
    assert divisor in (1, 2, 4, 8)
    if divisor > 1:
        assert all(side / divisor >= 3 * wanted for side, wanted in zip(size, target, strict=True))


@given(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), st.integers(1, 1000))
def test_a_number_is_the_shorter_side_and_keeps_the_shape(size: tuple[int, int], shorter: int) -> None:
    found = target_size(size, shorter)
    if min(size) <= shorter:
        assert found == size
        return
    assert min(found) == shorter
    assert (found[0] <= found[1]) == (size[0] <= size[1]) or found[0] == found[1]
    scale = shorter / min(size)
    assert all(abs(new - old * scale) < 1 for new, old in zip(found, size, strict=True))


@pytest.mark.parametrize("bad", [0, -3, True, 1.5, "224", (224,), (1, 2, 3), (0, 4), (4, -1), (4.0, 4), (True, 4), {}])
def test_other_sizes_are_refused(bad: Any) -> None:
    with pytest.raises(BadInputError, match="not a size"):
        check_resize_to(bad)
    if not isinstance(bad, int):
        with pytest.raises(BadInputError, match="not a size"):
            parse_size(bad)
    with pytest.raises(LimitExceededError):
        check_resize_to((100_000, 100_000))


MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I", "F")


@pytest.mark.parametrize("mode", MODES)
def test_every_colour_mode_resizes_to_rgb_or_keeps_its_depth(mode: str) -> None:
    if mode == "YCbCr" and int(PIL.__version__.partition(".")[0]) < 13:
        pytest.skip("older versions of Pillow write it, but cannot read it")
    grey = draw_waves(40, 60)[..., 0]
    deep = {"I;16": np.uint16, "I": np.int32, "F": np.float32}.get(mode)
    image = Image.fromarray(draw_waves(40, 60)) if deep is None else Image.fromarray(grey.astype(deep) * 200)
    out = io.BytesIO()
    (image.convert(mode) if deep is None else image).save(out, "TIFF" if mode in ("CMYK", "YCbCr", "I", "F") else "PNG")
    found = image_to_rgb(out.getvalue(), mode, (20, 30))
    whole = image_to_array(out.getvalue(), mode)
    if deep is None:
        assert found.shape == (20, 30, 3)
        assert found.dtype == np.uint8
        wide = whole[..., :3] if whole.ndim == 3 else np.repeat(whole[..., None], 3, -1)
        assert np.abs(found.astype(int) - resize_rgb(np.ascontiguousarray(wide), (20, 30))).max() <= ROUNDING
    else:
        assert (found.shape, found.dtype) == ((20, 30), whole.dtype)
        assert abs(float(found.mean()) - float(whole.mean())) < 0.02 * float(whole.mean())


def test_a_shorter_side_holds_for_images_that_pillow_rotates() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(draw_waves(30, 60), kind="TIFF", exif=exif)
    whole = image_to_array(data, "rotated")
    assert whole.shape == (60, 30, 3)
    assert np.array_equal(image_to_rgb(data, "rotated", 15), resize_rgb(whole, (30, 15)))


def test_sizes_are_refused_by_the_header(decoder: jpeg.JpegDecoder) -> None:
    data = bytearray(VARIANTS["4:2 q95"])
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    for act in (image_to_array, lambda data, name: image_to_rgb(data, name, 16)):
        with pytest.raises(LimitExceededError, match="65535 × 65535"):
            act(bytes(data), "large")


def test_memory_is_reserved_before_it_is_used(decoder: jpeg.JpegDecoder) -> None:
    class RefusedError(Exception): ...

    def refuse(size_bytes: int) -> None:
        assert size_bytes >= 67 * 101 // 64
        raise RefusedError

    for data in VARIANTS["4:2 q95"], VARIANTS["grey"], VARIANTS["CMYK"]:
        with pytest.raises(RefusedError):
            image_to_array(data, "x", refuse)
        with pytest.raises(RefusedError):
            image_to_rgb(data, "x", (8, 8), refuse)


def outcome(data: bytes, act: Callable[[bytes, str], Any]) -> Any:
    try:
        return act(data, "damaged")
    except WarpError as error:
        return type(error)


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    mutant = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at, how = int(rng.integers(len(mutant) or 1)), rng.integers(5)
        mutant = mutant or bytearray(1)
        if how == 0:
            mutant[at] = int(rng.integers(256))
        elif how == 1:
            mutant[at] ^= 1 << int(rng.integers(8))
        elif how == 2:
            del mutant[at : at + int(rng.integers(1, 40))]
        elif how == 3:
            mutant[at:at] = mutant[: int(rng.integers(1, 60))]
        else:
            del mutant[max(at, 20) :]
    return bytes(mutant)


def compare_damaged(decoder: jpeg.JpegDecoder, count: int, patch: Callable[[Any, str, Any], None]) -> None:
    """The outcome is that of Pillow: the same pixels, or an error of the same type."""
    pillow = jpeg.JpegDecoder("Pillow", "", "", True, None)
    rng = np.random.default_rng(count)
    for number in range(count):
        data = damage(list(VARIANTS.values())[number % len(VARIANTS)], rng)
        for act in (image_to_array, lambda data, name: image_to_rgb(data, name, (9, 9))):
            patch(jpeg, "choose_jpeg_decoder", lambda: decoder)
            found = outcome(data, act)
            patch(jpeg, "choose_jpeg_decoder", lambda: pillow)
            wanted = outcome(data, act)
            if isinstance(wanted, type):
                assert found is wanted, number
            else:
                assert not isinstance(found, type), (number, found)
                assert found.shape == wanted.shape, number
                assert np.abs(found.astype(int) - wanted).max() <= ROUNDING, number


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow warns about damaged metadata
def test_damaged_images_end_as_with_pillow(decoder: jpeg.JpegDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    compare_damaged(decoder, 150, monkeypatch.setattr)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_many_damaged_images_end_as_with_pillow(decoder: jpeg.JpegDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    compare_damaged(decoder, 10_000, monkeypatch.setattr)


def test_the_choice_follows_what_is_installed() -> None:
    script = textwrap.dedent(
        """
        import sys
        sys.modules["simplejpeg"] = None
        sys.modules["torchvision"] = None
        from warpdata.formats.media import choose_jpeg_decoder, image_to_array
        chosen = choose_jpeg_decoder()
        assert chosen.name == "Pillow" and "simplejpeg is not installed" in chosen.reason, chosen
        assert "torch" not in sys.modules
        print(image_to_array(sys.stdin.buffer.read(), "x").shape)
        """
    )
    ran = subprocess.run([sys.executable, "-c", script], input=VARIANTS["8×8"], capture_output=True, check=False)
    assert ran.stdout.decode().strip() == "(8, 8, 3)", ran.stderr.decode()
    assert jpeg.choose_jpeg_decoder().reason
