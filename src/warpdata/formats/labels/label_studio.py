"""Label Studio: tasks with annotations and predictions, as its JSON export and its storages have them.

A task that warpdata makes names path, hash and version of its image in `data`, so that a returned label says what it
was drawn on. Attributes are in `meta.attributes` of a region.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, LabelFiles, OutputFile, foreign_path
from warpdata.formats.labels.json_input import object_of
from warpdata.formats.labels.label_studio_results import RESULT_TYPES, decode_result, encode_result
from warpdata.formats.labels.model import FACTS, LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions
from warpdata.formats.labels.xml_output import quote

__all__ = [
    "StudioTask",
    "label_config",
    "label_studio_result",
    "label_studio_task",
    "parse_task",
    "read_label_studio",
    "write_label_studio",
]

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = msgspec.json.Decoder(float_hook=Decimal)
_DATA_KEYS = frozenset({"image", "path", "hash", "version", "split", "tags", "width", "height"})
_CONTROLS = {
    "box": ("box", "RectangleLabels"),
    "polygon": ("polygon", "PolygonLabels"),
    "polyline": ("polyline", "VectorLabels"),
    "mask": ("mask", "BrushLabels"),
    "keypoints": ("keypoint", "KeyPointLabels"),
    "label": ("label", "Choices"),
}


@dataclass(frozen=True, slots=True)
class StudioTask:
    """A task that was read: its image, and what its `data` says about it."""

    image: LabeledImage
    data: Mapping[str, Any]
    version: str | None


def label_config(labels: LabelSet, kinds: tuple[str, ...] = ("box", "polygon", "label")) -> str:
    """Return the labelling interface for a project with these classes."""
    lines = ["<View>", '  <Image name="image" value="$image"/>']
    for kind in kinds:
        name, tag = _CONTROLS[kind]
        choice = "Choice" if kind == "label" else "Label"
        several = ' choice="multiple"' if kind == "label" else ""
        lines.append(f'  <{tag} name="{name}" toName="image"{several}>')
        lines += [f'    <{choice} value="{quote(one)}"/>' for one in labels.class_names]
        lines.append(f"  </{tag}>")
    return "\n".join([*lines, "</View>\n"])


def label_studio_task(
    image: LabeledImage,
    url: str,
    *,
    version: str | None = None,
    is_prediction: bool = False,
    number: int | None = None,
    account: Conservation | None = None,
) -> bytes:
    """Return one task as JSON: the URL of the image, and its annotations, as such or as a prediction to start from.

    An export numbers its tasks and annotations; a task for a storage has no number.
    """
    result = label_studio_result(image, account or Conservation("label-studio", "export"))
    data: dict[str, Any] = {"image": url, "path": image.path}
    given = {"hash": image.hash, "version": version, "split": image.split, "tags": list(image.tags) or None}
    data |= {name: value for name, value in given.items() if value is not None}
    if image.size is not None:
        data |= {"width": image.width, "height": image.height}
    made = {"result": result} | ({"model_version": version or "labels"} if is_prediction else {})
    ids = {} if number is None else {"id": number}
    listed = [ids | made] if result else []
    return _encoder.encode({**ids, "data": data, ("predictions" if is_prediction else "annotations"): listed})


def label_studio_result(image: LabeledImage, account: Conservation) -> list[dict[str, Any]]:
    """Return the regions of an image."""
    held = LabeledImage(image.path, [], image.width, image.height, image.split, image.tags, image.hash)
    regions: list[dict[str, Any]] = []
    account.take_image(image)
    for number, one in enumerate(image.annotations):
        if image.size is None and one.kind != "label":
            account.hold(one, None, "the size of the image is not known", image.path)
            continue
        written = encode_result(one, image.size or (1, 1))
        if written is None:
            account.hold(one, None, _why_lost(one), image.path)
            continue
        kind, value, kept = written
        account.hold(one, kept, "a region has a rotation other than 0 or none, and visible points", image.path)
        held.annotations.append(kept)
        region: dict[str, Any] = {"id": f"r{number}", "from_name": _CONTROLS[one.kind][0], "to_name": "image"}
        if image.size is not None:
            region |= {"original_width": image.width, "original_height": image.height, "image_rotation": 0}
        region |= {"type": kind, "value": value}
        regions.append(region | ({"meta": {"attributes": dict(one.attributes)}} if one.attributes else {}))
    account.give_image(held)
    return regions


def write_label_studio(
    labels: LabelSet, account: Conservation, url_of: Callable[[LabeledImage], str] | None = None
) -> Iterator[OutputFile]:
    """Yield `tasks.json` with all tasks, the labelling interface, and the places of images below `images/`."""
    paths: list[str] = []

    def pieces() -> Iterator[bytes]:
        before = b"["
        for number, image in enumerate(labels.images, 1):
            paths.append(image.path)
            url = url_of(image) if url_of else f"/data/local-files/?d=images/{image.path}"
            yield before + label_studio_task(image, url, number=number, account=account)
            before = b",\n"
        yield b"]\n" if paths else b"[]\n"

    yield LabelFile("tasks.json", pieces())
    yield LabelFile("config.xml", [label_config(labels, tuple(_CONTROLS)).encode()])
    yield from (ImagePlace(f"images/{path}", path) for path in paths)


def read_label_studio(files: LabelFiles, account: Conservation, options: LabelOptions) -> LabelSet:
    """Return the images of all tasks: of an export, or of JSON files with one task each."""
    names = [name for name in files.names() if name.endswith(".json") and not name.startswith("images/")]
    if not names:
        raise BadInputError(f"{files.name} has no JSON file of tasks", hint="Export the project as JSON.")

    def images() -> Iterator[LabeledImage]:
        seen: set[str] = set()
        for name in names:
            where = f"{files.name}/{name}" if name not in files.name else files.name
            body = decode_decimals(files.read(name), where)
            for number, task in enumerate(body if isinstance(body, list) else [body]):
                found = parse_task(task, f"{where}[{number}]", account, options).image
                if found.path in seen:
                    raise CorruptError(f"{where}[{number}] names the image {found.path!r} again")
                seen.add(found.path)
                yield found

    return LabelSet((), images(), name=files.name)


def decode_decimals(data: bytes, where: str) -> Any:
    """Return JSON whose fractions are decimals, so that percents keep all their digits."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ArithmeticError) as error:
        raise CorruptError(f"{where} is not valid JSON: {error}") from error


def parse_task(task: Any, where: str, account: Conservation, options: LabelOptions) -> StudioTask:
    """Return the image of a task with the annotation that counts: the ground truth, or else the newest."""
    body = object_of(task, where)
    data = object_of(body.get("data"), f"{where}.data")
    width, height = (data.get(side) if type(data.get(side)) is int else None for side in ("width", "height"))
    split, tags = data.get("split"), data.get("tags") or ()
    is_text = isinstance(tags, list | tuple) and all(isinstance(tag, str) for tag in tags)
    if not is_text or not isinstance(split, str | None):
        raise CorruptError(f"{where}.data: a split is text, and tags are a list of texts")
    path = image_path(data, where, options)
    image = LabeledImage(path, [], width, height, split, tuple(tags))
    image.hash = data["hash"] if isinstance(data.get("hash"), str) else None
    account.take("images")
    for name in data.keys() - _DATA_KEYS:
        account.drop(f"data {name[:64]}", "images have no members beside size, split and tags", where)
    chosen = _choose_result(body, where, account)
    size_known = image.size or options.images.get(path)
    for number, region in enumerate(chosen):
        place = f"{where}.result[{number}]"
        one = object_of(region, place)
        account.take("objects")
        found = parse_region(one, place, size_known, account)
        if found is not None:
            if image.size is None and one.get("type") != "choices":
                image.width, image.height = region_size(one) or size_known or (None, None)
            image.annotations.append(found)
    account.take_details(image)
    version = data.get("version")
    return StudioTask(image, plain(data), version if isinstance(version, str) else None)


def parse_region(
    one: Mapping[str, Any], place: str, size: tuple[int, int] | None, account: Conservation
) -> Annotation | None:
    """Return the annotation of a region. One that the model has no kind for is listed as lost."""
    kind = one.get("type")
    if kind not in RESULT_TYPES:
        account.lose("objects", f"there is no annotation for a region of type {str(kind)[:40]!r}", place)
        return None
    value = object_of(one.get("value"), f"{place}.value")
    if not value.get(kind):
        account.lose("objects", "a region without a label has no class", place)
        return None
    meta = object_of(one.get("meta") or {}, f"{place}.meta")
    attributes = dict(object_of(meta.get("attributes") or {}, f"{place}.meta.attributes"))
    attributes |= {name: item for name, item in meta.items() if name != "attributes"}
    attributes |= {"score": one["score"]} if one.get("score") is not None else {}
    try:
        return decode_result(kind, value, region_size(one) or size, plain(attributes))
    except (BadInputError, TypeError, ValueError, ArithmeticError) as error:
        raise CorruptError(f"{place}: {getattr(error, 'message', error)}") from error


def region_size(one: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return width and height of the image that a region was drawn on."""
    width, height = one.get("original_width"), one.get("original_height")
    if isinstance(width, int) and isinstance(height, int) and 0 < width < 2**20 and 0 < height < 2**20:
        return width, height
    return None


def image_path(data: Mapping[str, Any], where: str, options: LabelOptions) -> str:
    """Return the path of the image of a task: as we wrote it, or the longest end of its URL that is a known image."""
    own = data.get("path")
    if isinstance(own, str):
        return foreign_path(own, where)
    urls = [data["image"]] if isinstance(data.get("image"), str) else [v for v in data.values() if isinstance(v, str)]
    if not urls:
        raise CorruptError(f"{where}.data names no image")
    parts = urlsplit(urls[0])
    local = parse_qs(parts.query).get("d")
    path = unquote(local[0] if local else parts.path).lstrip("/")
    pieces = path.split("/")
    for start in range(len(pieces)):
        candidate = "/".join(pieces[start:])
        if candidate in options.images:
            return candidate
    path = path.partition("images/")[2] or path
    return foreign_path(posixpath.normpath(path), where)


def plain(value: Any) -> Any:
    """Return a value of JSON with floats in place of decimals."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def _choose_result(body: Mapping[str, Any], where: str, account: Conservation) -> list[Any]:
    """Return the regions of the annotation that counts. Other annotations and predictions are listed as lost."""
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for name in ("annotations", "completions", "predictions"):
        found = body.get(name) or []
        if not isinstance(found, list):
            raise CorruptError(f"{where}.{name} is a list")
        lists[name] = [object_of(one, f"{where}.{name}") for one in found]
    drawn = [one for one in lists["annotations"] or lists["completions"] if not one.get("was_cancelled")]
    pool = drawn or lists["predictions"]
    pool = sorted(pool, key=lambda one: (bool(one.get("ground_truth")), str(one.get("updated_at") or "")))
    for one in pool[:-1]:
        account.drop("annotations of a task", "another one is the ground truth, or newer", where)
        _count_regions(one, where)
    if drawn:
        account.drop("predictions", "a task with annotations needs none", where, len(lists["predictions"]))
    return _count_regions(pool[-1], where) if pool else []


def _count_regions(one: Mapping[str, Any], where: str) -> list[Any]:
    result = [] if one.get("result") is None else one["result"]
    if not isinstance(result, list):
        raise CorruptError(f"{where}: the result of an annotation is a list")
    return result


def _why_lost(one: Annotation) -> str:
    return f"a region of Label Studio has one outline, one line or one point, and not these {FACTS[one.kind]}"
