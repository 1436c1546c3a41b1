"""Pascal VOC: one XML file with upright boxes for each image, and lists of images for each split.

Corners are continuous coordinates: a box that covers the whole image has xmin 0 and xmax equal to the width. The
members pose, truncated, difficult and occluded are attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from xml.etree.ElementTree import Element

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.annotations import Annotation, Box
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import ImagePlace, LabelFile, LabelFiles, OutputFile, foreign_path, image_names
from warpdata.formats.labels.geometry import EXACT, decimals, is_coordinate, shorten
from warpdata.formats.labels.model import LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions, StemNames, safe_name
from warpdata.formats.labels.parts import box_around, stem_of
from warpdata.formats.labels.xml_input import parse_xml
from warpdata.formats.labels.xml_output import attribute_text, attribute_value, quote, writable_name
from warpdata.limits import MIB

__all__ = ["corner_texts", "decode_corner_texts", "read_voc", "write_voc"]

_FLAGS = ("truncated", "difficult", "occluded")
_MAX_FILE_BYTES = 64 * MIB
_KNOWN = frozenset({"name", "bndbox", "pose", "attributes", *_FLAGS})
_JOINED = "trainval"


def write_voc(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield an XML file and the place of each image, and then the lists of splits."""
    names = StemNames(account)
    splits: dict[str, list[str]] = {}
    folded: dict[str, str] = {}
    for image in labels.images:
        name = names.unique(image.path)
        held = LabeledImage(name, [], image.width, image.height, image.split)
        objects = [_object(one, image, held, account) for one in image.annotations]
        account.take_image(image)
        account.lose("tags", "VOC has no tags of images", image.path, len(image.tags))
        if image.split is not None:
            listed = safe_name(image.split)
            if folded.setdefault(listed.casefold(), image.split) != image.split or listed == _JOINED:
                listed = f"{listed}_{len(folded)}"
            if listed != image.split:
                account.change("splits", "a file has the name of the split", image.path)
            splits.setdefault(listed, []).append(stem_of(name))
        account.give_image(held)
        yield LabelFile(f"Annotations/{stem_of(name)}.xml", [_document(name, image, objects).encode()])
        yield ImagePlace(f"JPEGImages/{name}", image.path)
    for split, stems in splits.items():
        yield LabelFile(f"ImageSets/Main/{split}.txt", ["".join(f"{stem}\n" for stem in stems).encode()])


def read_voc(files: LabelFiles, account: Conservation, options: LabelOptions) -> LabelSet:
    """Return the images of all XML files."""
    names = [name for name in files.names() if name.endswith(".xml")]
    if not names:
        raise BadInputError(f"{files.name} has no XML files", hint="VOC keeps them in the directory Annotations.")
    splits = _read_splits(files)
    images = {_image_key(name): name for name in image_names(files)}

    def read() -> Iterator[LabeledImage]:
        for name in names:
            where = f"{files.name}/{name}"
            stem = stem_of(name.partition("Annotations/")[2] or name)
            root = parse_xml(files.read(name, _MAX_FILE_BYTES), where, "annotation")
            image = _image(root, stem, where)
            found = images.get(image.path)
            if image.size is None:
                size = (None if found is None else files.image_size(found)) or options.images.get(image.path)
                image.width, image.height = size or (None, None)
            image.split = splits.get(stem)
            account.take("images")
            for number, one in enumerate(root.findall("object")):
                account.take("objects")
                image.annotations.append(_annotation(one, f"{where}: object[{number}]", account))
            account.take_details(image)
            yield image

    return LabelSet((), read(), name=files.name)


def corner_texts(one: Box) -> tuple[list[str], Box]:
    """Return left, top, right and bottom as decimals, and the box that they read back as."""
    x, y, width, height = decimals((one.x, one.y, one.width, one.height))
    exact = [x, y, EXACT.add(x, width), EXACT.add(y, height)]
    bare = Box(one.class_name, one.x, one.y, one.width, one.height)
    short, found = shorten(exact, lambda values: decode_corner_texts(values, one.class_name), bare)
    return [f"{value:f}" for value in short], found


def decode_corner_texts(values: Sequence[Decimal], name: str) -> Box:
    """Return the box of left, top, right and bottom."""
    left, top, right, bottom = values
    width, height = EXACT.subtract(right, left), EXACT.subtract(bottom, top)
    return Box(name, float(left), float(top), float(width), float(height))


def _object(one: Annotation, image: LabeledImage, held: LabeledImage, account: Conservation) -> str:
    bounds = box_around(one)
    if bounds is None:
        account.hold(one, None, f"VOC has boxes, and a {one.kind} has none", image.path)
        return ""
    name = writable_name(one.class_name)
    texts, drawn = corner_texts(Box(name, *bounds))
    kept = Box(name, drawn.x, drawn.y, drawn.width, drawn.height, attributes=one.attributes)
    account.hold(one, kept, "VOC has upright boxes, and names that XML allows", image.path)
    held.annotations.append(kept)
    attributes = dict(one.attributes)
    pose = attributes.get("pose")
    is_pose = isinstance(pose, str) and writable_name(pose) == pose and pose != "Unspecified"
    parts = [
        f"<name>{quote(name)}</name>",
        f"<pose>{quote(attributes.pop('pose') if is_pose else 'Unspecified')}</pose>",
    ]
    for flag in _FLAGS:
        is_set = type(attributes.get(flag)) is int and attributes[flag] == 1
        if is_set:
            del attributes[flag]
        parts.append(f"<{flag}>{int(is_set)}</{flag}>")
    corners = zip(("xmin", "ymin", "xmax", "ymax"), texts, strict=True)
    parts.append(f"<bndbox>{''.join(f'<{side}>{text}</{side}>' for side, text in corners)}</bndbox>")
    if attributes:
        listed = (
            f"<attribute><name>{quote(json_name(key))}</name><value>{quote(attribute_text(value))}</value></attribute>"
            for key, value in attributes.items()
        )
        parts.append(f"<attributes>{''.join(listed)}</attributes>")
    return f"  <object>{''.join(parts)}</object>\n"


def json_name(name: str) -> str:
    """Return the name of an attribute as text of XML: as it is, or as JSON."""
    return attribute_text(name)


def _document(name: str, image: LabeledImage, objects: Sequence[str]) -> str:
    width, height = image.size or ("", "")
    size = f"  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>\n"
    head = f"  <folder>JPEGImages</folder>\n  <filename>{quote(name)}</filename>\n"
    segmented = "  <segmented>0</segmented>\n"
    return f"<annotation>\n{head}{size if image.size else ''}{segmented}{''.join(objects)}</annotation>\n"


def _image(root: Element, stem: str, where: str) -> LabeledImage:
    filename = (root.findtext("filename") or "").strip()
    folder = stem.rpartition("/")[0]
    path = filename if "/" in filename or not folder else f"{folder}/{filename}"
    if not filename:
        raise CorruptError(f"{where} has no filename")
    sides = [_side(root, name, where) for name in ("width", "height")]
    width, height = sides if all(sides) else (None, None)
    return LabeledImage(foreign_path(path, where), [], width, height)


def _side(root: Element, name: str, where: str) -> int | None:
    text = (root.findtext(f"size/{name}") or "").strip()
    try:
        found = int(float(text)) if text else None
    except (ValueError, OverflowError) as error:
        raise CorruptError(f"{where}: the {name} {text[:40]!r} is not a number") from error
    return found if found and found > 0 else None


def _annotation(one: Element, where: str, account: Conservation) -> Annotation:
    name = (one.findtext("name") or "").strip()
    corners = [_decimal(one.findtext(f"bndbox/{side}"), where) for side in ("xmin", "ymin", "xmax", "ymax")]
    attributes: dict[str, Any] = {}
    pose = (one.findtext("pose") or "").strip()
    if pose and pose != "Unspecified":
        attributes["pose"] = pose
    for flag in _FLAGS:
        text = (one.findtext(flag) or "0").strip()
        if text not in ("0", ""):
            attributes[flag] = attribute_value(text)
    for each in one.findall("attributes/attribute"):
        key = attribute_value((each.findtext("name") or "").strip())
        attributes[str(key)] = attribute_value((each.findtext("value") or "").strip())
    for child in one:
        if child.tag not in _KNOWN:
            account.drop(f"member {child.tag[:64]}", "an object of VOC is a box here", where)
    try:
        box = decode_corner_texts(corners, name)
        return Box(name, box.x, box.y, box.width, box.height, attributes=attributes)
    except BadInputError as error:
        raise CorruptError(f"{where}: {error.message}") from error


def _decimal(text: str | None, where: str) -> Decimal:
    try:
        value = Decimal((text or "").strip())
    except ArithmeticError as error:
        raise CorruptError(f"{where}: a corner is a number, not {(text or '')[:40]!r}") from error
    if not is_coordinate(value):
        raise CorruptError(f"{where}: no coordinate can be {value}")
    return value


def _read_splits(files: LabelFiles) -> Mapping[str, str]:
    """Return the split of each stem, from the lists that have one name on each line."""
    found: dict[str, str] = {}
    for name in files.names():
        folder, _, file = name.rpartition("/")
        split = file.removesuffix(".txt")
        if not folder.endswith("ImageSets/Main") or split in (file, _JOINED):
            continue
        lines = files.read(name, _MAX_FILE_BYTES).decode("utf-8", "replace").splitlines()
        if not any(line.split()[-1:] in (["-1"], ["1"]) and len(line.split()) > 1 for line in lines):
            found |= {line.strip(): split for line in lines if line.strip()}
    return found


def _image_key(name: str) -> str:
    return name.partition("JPEGImages/")[2] or name
