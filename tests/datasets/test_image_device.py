"""If this fails, `image_device=` trains on other images than the CPU decodes, loses damaged ones, or fills the device.

The decoder is torchvision's nvJPEG where there is a CUDA device (`make test-gpu`). Elsewhere simplejpeg stands in for
it, with the same interface: one list of files in, an error for all of them if one is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import warpdata as wd
from warpdata.errors import BadInputError, LimitExceededError, MediaDecodeError, MissingExtraError, UnsupportedError
from warpdata.formats.media import (
    EncodedJpeg,
    check_image_device,
    decode_on_device,
    image_to_array,
    image_to_rgb,
    keep_encoded,
    nvjpeg,
)

images = pytest.importorskip("PIL.Image", reason="the extra image is not installed")
torch = pytest.importorskip("torch", reason="the extra torch is not installed")
simplejpeg = pytest.importorskip("simplejpeg", reason="the extra image-fast is not installed")

HAS_CUDA = torch.cuda.is_available()
DEVICE = "cuda:0" if HAS_CUDA else "cpu"
MEAN_LEVELS = 3.0 if HAS_CUDA else 1.0
"""Mean difference to the CPU in noise, which is the worst case; smooth images differ by less than one level."""


def encode(number: int, height: int, width: int, mode: str = "RGB", kind: str = "JPEG") -> bytes:
    """Return an image of a smooth pattern, so that decoders differ by rounding only."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    planes = [(across * (number + 2) + down * (plane + 1)) // 3 % 256 for plane in range(3)]
    image, out = images.fromarray(np.stack(planes, -1).astype(np.uint8)), io.BytesIO()
    image.convert(mode).save(out, kind)
    return out.getvalue()


FILES = {
    "0.jpg": encode(0, 40, 60),
    "1.jpg": encode(1, 40, 60),
    "2.png": encode(2, 31, 23, "RGBA", "PNG"),
    "3.jpg": encode(3, 50, 44, "L"),
    "4.jpg": encode(4, 300, 280),
    "5.jpg": encode(5, 40, 60),
}


def stand_in(contents: Sequence[bytes], channels: int, device: Any) -> list[Any]:
    """Decode like torchvision: all files or a RuntimeError."""
    assert device == "cpu"
    try:
        found = [simplejpeg.decode_jpeg(content, "RGB" if channels == 3 else "GRAY") for content in contents]
    except ValueError as error:
        raise RuntimeError(str(error)) from error
    return [torch.from_numpy(pixels).permute(2, 0, 1) for pixels in found]


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    if not HAS_CUDA:
        monkeypatch.setattr(nvjpeg, "_decode_with_nvjpeg", stand_in)
        monkeypatch.setattr("warpdata.datasets.streaming.check_image_device", str)
    return DEVICE


def kept(name: str, data: bytes, resize: Any = None) -> EncodedJpeg:
    found = keep_encoded(data, name, resize)
    assert found is not None
    return found


def assert_close(found: Any, wanted: np.ndarray[Any, Any]) -> None:
    pixels = found.cpu().numpy()
    assert pixels.shape == wanted.shape
    assert pixels.dtype == np.uint8
    assert np.abs(pixels.astype(int) - wanted).mean() <= MEAN_LEVELS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("device").as_uri()
    rows = pa.table({"id": range(len(FILES)), "image": list(FILES), "other": [None, *list(FILES)[:-1]]})
    builder = wd.DatasetBuilder("a/d", root).add_table("main", rows).add_artifact("raw", FILES)
    builder.bind("main", "image", "raw", "image").bind("main", "other", "raw", "image").publish()
    return root


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_have_the_images_of_the_cpu_in_the_same_order(store: str, workers: int) -> None:
    dataset = wd.dataset("a/d", store=store)
    keywords: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 3, "resize": (20, 24)}
    loader = dataset.to_torch(num_workers=workers, image_device=DEVICE, **keywords)
    plain = dataset.to_torch(**keywords)
    count = 0
    for found, wanted in zip(loader.epoch(0), plain.epoch(0), strict=True):
        assert found["id"].tolist() == wanted["id"].tolist()
        assert found["image"].device == torch.device(DEVICE)
        assert_close(found["image"], wanted["image"].numpy())
        for one, other in zip(found["other"], wanted["other"], strict=True):
            assert (one is None) == (other is None)
        count += len(found["id"])
    assert count == len(FILES)
    assert loader.telemetry.stats.bytes > 0


def test_without_resize_each_image_keeps_its_shape(store: str) -> None:
    (batch,) = wd.dataset("a/d", store=store).to_torch(6, columns=["image"], image_device=DEVICE).epoch(0)
    assert isinstance(batch["image"], list)
    for (name, data), pixels in zip(FILES.items(), batch["image"], strict=True):
        assert_close(pixels, image_to_array(data, name))


def test_what_the_device_refuses_is_decoded_by_the_cpu() -> None:
    whole = FILES["0.jpg"]
    refused = EncodedJpeg(encode(9, 40, 60, kind="PNG"), "refused", (40, 60), 3, (8, 9))
    tensors = decode_on_device([kept("0", whole, (8, 9)), refused, None], DEVICE)
    assert_close(tensors[0], image_to_rgb(whole, "x", (8, 9)))
    assert_close(tensors[1], image_to_rgb(refused.data, "x", (8, 9)))
    assert tensors[2] is None


def test_a_damaged_image_is_the_error_of_the_cpu() -> None:
    with pytest.raises(MediaDecodeError, match=r"cats/7\.jpg"):
        decode_on_device([kept("0", FILES["0.jpg"]), EncodedJpeg(b"\xff\xd8", "cats/7.jpg", (4, 4), 3, None)], DEVICE)


def test_a_header_that_lies_about_the_size_gets_the_real_image() -> None:
    lying = EncodedJpeg(FILES["0.jpg"], "lying", (41, 60), 3, None)
    assert_close(decode_on_device([lying], DEVICE)[0], image_to_array(FILES["0.jpg"], "x"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        FILES["2.png"],
        FILES["0.jpg"][:-100],
        encode(1, 20, 20, "CMYK"),
        FILES["0.jpg"].replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc0\x00\x11\x0c"),
    ],
    ids=["empty", "start", "png", "truncated", "cmyk", "12 bits"],
)
def test_only_complete_plain_jpegs_stay_encoded(data: bytes) -> None:
    assert keep_encoded(data, "x", None) is None


def test_a_size_beyond_the_limit_is_refused_before_the_device() -> None:
    data = bytearray(FILES["0.jpg"])
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(LimitExceededError, match="65535 × 65535"):
        keep_encoded(bytes(data), "x", (4, 4))


def test_pixels_on_the_device_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvjpeg, "_DECODED_BYTES", 2 * 40 * 60 * 3)
    sizes: list[int] = []
    decode = nvjpeg._decode_with_nvjpeg

    def count(contents: Sequence[bytes], channels: int, device: Any) -> Sequence[Any]:
        sizes.append(len(contents))
        return decode(contents, channels, device)

    column = [kept(str(at), FILES["0.jpg"], 10) for at in range(5)]
    assert decode_on_device(column, DEVICE, count).shape[0] == 5
    assert sizes == [2, 2, 1]


def test_images_travel_between_processes() -> None:
    image = kept("0", FILES["0.jpg"], (4, 4))
    assert pickle.loads(pickle.dumps(image)) == image  # noqa: S301 - our own bytes
    assert image.nbytes == len(FILES["0.jpg"])


@pytest.mark.parametrize(
    "keywords", [{"transform": dict}, {"decode": False}, {"on_error": "substitute"}], ids=lambda each: next(iter(each))
)
def test_options_that_need_pixels_are_refused(store: str, keywords: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=next(iter(keywords))):
        wd.dataset("a/d", store=store).to_torch(image_device=DEVICE, **keywords)


def test_the_dataset_of_the_loader_is_refused(store: str) -> None:
    loader = wd.dataset("a/d", store=store).to_torch(image_device=DEVICE, num_workers="auto")
    assert loader.num_workers == 0
    assert DEVICE in loader.num_workers_reason
    with pytest.raises(UnsupportedError, match="before the device has decoded"):
        _ = loader.dataset


@pytest.mark.parametrize("wrong", ["gpu", "cpu", 7.5, "cuda:99"])
def test_other_devices_are_refused(wrong: Any) -> None:
    with pytest.raises((BadInputError, MissingExtraError), match=r"image_device"):
        check_image_device(wrong)
