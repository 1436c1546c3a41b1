"""ImageFolder: images in directories of the split and the class. One label for each image."""

from __future__ import annotations

from collections.abc import Iterator

from warpdata.formats.labels.annotations import Annotation, Label
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import (
    ImagePlace,
    LabelFiles,
    OutputFile,
    foreign_path,
    has_image_suffix,
    image_names,
)
from warpdata.formats.labels.model import FACTS, LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.options import safe_name

__all__ = ["SPLITS", "read_image_folder", "write_image_folder"]

SPLITS = ("train", "val", "valid", "validation", "dev", "test")
_UNLABELED = "unlabeled"


def write_image_folder(labels: LabelSet, account: Conservation) -> Iterator[OutputFile]:
    """Yield the place of each image below its split and its class. Other annotations are listed as lost."""
    taken: set[str] = set()
    for image in labels.images:
        if not has_image_suffix(image.path):
            account.lose_image(image, "the name has no suffix of an image")
            continue
        label = next((one for one in image.annotations if isinstance(one, Label)), None)
        for one in image.annotations:
            if one is not label:
                account.hold(one, None, _why_lost(one), image.path)
        kept = None if label is None else Label(_class_folder(label.class_name))
        if label is not None:
            account.hold(label, kept, "a directory is the name of the class", image.path)
        kept_split = image.split if image.split in SPLITS else None
        parts = [] if kept_split is None else [kept_split]
        name = "/".join([*parts, _UNLABELED if kept is None else kept.class_name, image.path.replace("/", "__")])
        while name.casefold() in taken:
            name = f"{name}_.{name.rpartition('.')[2]}"
        taken.add(name.casefold())
        if name.rpartition("/")[2] != image.path:
            account.change("paths", "directories of an ImageFolder are splits and classes", image.path)
        _list_image(image, account)
        account.take_image(image)
        account.give_image(LabeledImage(image.path, [] if kept is None else [kept], split=kept_split))
        yield ImagePlace(name, image.path)


def read_image_folder(files: LabelFiles, account: Conservation) -> LabelSet:
    """Return one label for each image: the name of its directory."""
    listed = [(name, *_parts_of(name)) for name in image_names(files)]
    names = sorted({label for _, _, label in listed if label is not None})
    others = len(files.names()) - len(listed)
    if others:
        account.drop("files", "they are not images", files.name, others)

    def images() -> Iterator[LabeledImage]:
        for name, split, label in listed:
            annotations: list[Annotation] = [] if label is None else [Label(label)]
            width, height = files.image_size(name) or (None, None)
            image = LabeledImage(foreign_path(name, files.name), annotations, width, height, split)
            account.take_image(image)
            yield image

    return LabelSet(tuple(LabelClass(name) for name in names), images(), name=files.name)


def _class_folder(name: str) -> str:
    """Return the directory of a class, which readers do not take for a split."""
    folder = safe_name(name)
    return f"{folder}_" if folder in (*SPLITS, _UNLABELED) else folder


def _parts_of(name: str) -> tuple[str | None, str | None]:
    """Return the split and the class of a file."""
    parts = name.split("/")[:-1]
    split = parts.pop(0) if parts and parts[0] in SPLITS else None
    label = parts[0] if parts and parts[0] != _UNLABELED else None
    return split, label


def _why_lost(one: Annotation) -> str:
    return "an image has one class" if isinstance(one, Label) else f"an ImageFolder has no {FACTS[one.kind]}"


def _list_image(image: LabeledImage, account: Conservation) -> None:
    account.lose("tags", "an ImageFolder has no tags", image.path, len(image.tags))
    if image.split is not None and image.split not in SPLITS:
        account.lose("splits", f"readers know the splits {', '.join(SPLITS)}", image.path)
