"""Import of labels: a directory in a format of another tool becomes images and annotations of HEAD.

An image is added with its file, or its annotations go to the image that HEAD has under its path. Batches are commits.
An import that was interrupted is repeated: what HEAD has already is not added again. Implements "Labels of other tools"
of docs/specs/collections.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpdata.collections.changes import Changes
from warpdata.collections.stored_labels import annotations_of
from warpdata.collections.tables import ANNOTATIONS, IMAGES, read_columns
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.formats.labels import (
    Annotation,
    Conservation,
    ConservationReport,
    DirectoryFiles,
    LabelBlock,
    LabelClass,
    LabeledImage,
    LabelOptions,
    blocks_of,
    geometry_columns,
    image_names,
    label_format,
    measure,
)
from warpdata.primitives.gc_pause import gc_paused
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.paths import check_path
from warpdata.primitives.progress import Progress, ProgressCounter

if TYPE_CHECKING:
    from warpdata.collections.collection import Collection

__all__ = ["LabelImport", "LabelImportRequest", "import_labels"]

_BATCH_FILES, _BATCH_IMAGES = 5000, 50_000
"""The images of a commit, with files to add and without."""
_OF_IMAGES = ("images", "splits", "tags")
EXISTING = ("keep", "add", "replace")


@dataclass(frozen=True, slots=True)
class LabelImportRequest:
    """The choices of an import.

    `existing` decides about images of HEAD that have other annotations: keep those, add the new ones, or replace them.
    `images` is the directory of image files; None means that of the labels, and False that none are added.
    """

    format: str
    task: str | None = None
    existing: str = "keep"
    images: str | Path | bool | None = None


@dataclass(frozen=True, slots=True)
class LabelImport:
    """The result of an import of labels. `report` lists what could not be kept."""

    dataset_id: str
    version: str
    added_images: int
    added_annotations: int
    report: ConservationReport

    def document(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        counts = {"added_images": self.added_images, "added_annotations": self.added_annotations}
        return {"dataset_id": self.dataset_id, "version": self.version, **counts, **self.report.document()}


def import_labels(
    collection: Collection, source: str | Path, request: LabelImportRequest, progress: Progress
) -> LabelImport:
    """Read labels and commit them to HEAD."""
    if request.existing not in EXISTING:
        raise BadInputError(f"existing={request.existing!r} is not known", hint=f"Use {', '.join(EXISTING)}.")
    found = label_format(request.format)
    top = check_path(source).expanduser()
    files = DirectoryFiles(top)
    head = collection.open_or_create()
    known = _known_images(head)
    sizes = {path: one.size for path, one in known.items()}
    account = Conservation(request.format, "import")
    labels = found.read(files, account, LabelOptions(task=request.task, images=sizes))
    image_files = _ImageFiles.of(files, request.images)
    work = _Import(collection, request, account, known, image_files)
    counter = ProgressCounter(progress, "add", 0, 0)
    for block in blocks_of(labels.images, _BATCH_FILES if image_files else _BATCH_IMAGES):
        work.commit(block)
        counter.finish_files(len(block))
    if not work.matched and work.unmatched:
        raise InvalidSourceError(
            f"none of the {work.unmatched:,} images in {files.name} has a file there, or is in {collection.id}",
            hint="Pass the directory of the image files with --images (images=…).",
        )
    _list_classes(labels.classes, work.class_names, account)
    version = collection.head.version
    return LabelImport(collection.id, version, work.added_images, work.added_annotations, account.report())


class _Import:
    """Adds batches of images to HEAD, and counts."""

    def __init__(
        self,
        collection: Collection,
        request: LabelImportRequest,
        account: Conservation,
        known: dict[str, _KnownImage],
        files: _ImageFiles,
    ) -> None:
        self._collection = collection
        self._request = request
        self._account = account
        self._known = known
        self._files = files
        self._annotated = _annotated_paths(collection.head) & known.keys()
        self._seen: set[str] = set()
        self.class_names: set[str] = set()
        self.matched = self.unmatched = 0
        self.added_images = self.added_annotations = 0

    def commit(self, block: LabelBlock) -> None:
        """Commit a batch. Images that several documents have are committed with the first of them."""
        self.class_names.update(block.rows["class_name"].unique().to_pylist())
        block = self._merge(block)
        listed = [image.path for image in block.images if image.path in self._annotated]
        present = annotations_of(self._collection.head, listed)
        changes: Changes = self._collection.changes(f"import {len(block):,} images from {self._request.format}")
        outcomes = _Outcomes()
        with changes:
            with gc_paused():
                for number, image in enumerate(block.images):
                    self._add(changes, outcomes, block, number, present.get(image.path))
            drawn = block.take(outcomes.drawn)
            changes.annotate_block(drawn)
            changes.set_rows(outcomes.changed)
        self.added_annotations += drawn.rows.num_rows
        self._annotated.update(image.path for image in drawn.images)
        self._account.give_block(block.take(outcomes.given))
        self._seen.update(image.path for image in block.images)

    def _merge(self, block: LabelBlock) -> LabelBlock:
        if len({image.path for image in block.images}) == len(block):
            return block
        merged: dict[str, LabeledImage] = {}
        for image in block:
            if image.path in merged:
                self._account.lose("images", "several documents have the image", image.path)
                for fact in ("splits", "tags"):
                    self._account.lose(fact, "several documents have the image", image.path, measure(image)[fact])
                merged[image.path].annotations += image.annotations
            else:
                merged[image.path] = image
        return LabelBlock.of(list(merged.values()))

    def _add(
        self, changes: Changes, outcomes: _Outcomes, block: LabelBlock, number: int, present: list[Annotation] | None
    ) -> None:
        image = block.images[number]
        file = self._files.find(image) if self._files else None
        known = self._known.get(image.path)
        if file is None and known is None:
            self.unmatched += 1
            self._lose(block.image(number), "neither a file nor an image of the collection has the path")
            return
        self.matched += 1
        if known is not None and (file is None or fingerprint_file(file).blob.hash == known.hash):
            self._annotate(changes, outcomes, block, number, present)
            return
        if known is not None:
            self._lose(block.image(number), "the collection has another file under the path")
            return
        assert file is not None
        stored = changes.add(image.path, file, split=image.split, tags=image.tags)
        self._known[image.path] = _KnownImage(stored.hash, image.width, image.height, image.split, list(image.tags))
        self.added_images += 1
        outcomes.give(number, block.counts[number] > 0)

    def _annotate(
        self, changes: Changes, outcomes: _Outcomes, block: LabelBlock, number: int, present: list[Annotation] | None
    ) -> None:
        image, path = block.images[number], block.images[number].path
        known = self._known[path]
        is_other = image.width != known.width or image.height != known.height
        if is_other and image.size is not None and known.size is not None:
            self._account.change("image sizes", "the file has another size than the labels say", path)
        is_first = path not in self._seen
        is_new = block.counts[number] > 0
        is_kept = False
        if present and is_new:
            whole = block.image(number)
            is_new = bool(_keys(whole.annotations) - _keys(present))
            is_kept = is_new and is_first and self._request.existing == "keep"
            if is_new and is_first and self._request.existing == "replace":
                changes.annotate(path, [], replace=True)
            if is_kept:
                self._lose(whole, "the image has other annotations; choose --existing add or replace", _OF_IMAGES)
                self._account.give_image(image)
        changed: dict[str, Any] = {}
        if image.split is not None and image.split != known.split:
            changed["split"] = image.split
        if image.tags and list(image.tags) != known.tags:
            changed["tags"] = list(dict.fromkeys(image.tags))
        if changed:
            outcomes.changed[path] = changed
            known.split, known.tags = image.split, list(image.tags)
        if not is_kept:
            outcomes.give(number, is_new)

    def _lose(self, image: LabeledImage, why: str, but: Sequence[str] = ()) -> None:
        for fact, count in measure(image).items():
            if fact not in but:
                self._account.lose(fact, why, image.path, count)


@dataclass(slots=True)
class _KnownImage:
    """What HEAD has of an image, and what this import makes of it."""

    hash: str
    width: int | None
    height: int | None
    split: str | None
    tags: list[str] | None

    @property
    def size(self) -> tuple[int, int] | None:
        return None if self.width is None or self.height is None else (self.width, self.height)


def _known_images(head: Dataset) -> dict[str, _KnownImage]:
    names = ("hash", "width", "height", "split", "tags")
    rows = read_columns(head, IMAGES, ["path", *names])
    with gc_paused():
        made = map(_KnownImage, *(rows[name].to_pylist() for name in names))
        return dict(zip(rows["path"].to_pylist(), made, strict=True))


@dataclass(slots=True)
class _Outcomes:
    """The numbers of images in a block that HEAD has after the commit, and of those whose annotations are appended."""

    given: list[int] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """New splits and tags of images, by path."""

    def give(self, number: int, is_drawn: bool) -> None:
        self.given.append(number)
        if is_drawn:
            self.drawn.append(number)


def _annotated_paths(head: Dataset) -> set[str]:
    return set(read_columns(head, ANNOTATIONS, ["image"])["image"].unique().to_pylist())


class _ImageFiles:
    """Image files by the ends of their paths."""

    def __init__(self, files: DirectoryFiles, names: Sequence[str]) -> None:
        self._files = files
        self._by_name: dict[str, list[str]] = {}
        for name in names:
            self._by_name.setdefault(name.rpartition("/")[2], []).append(name)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @classmethod
    def of(cls, files: DirectoryFiles, images: str | Path | bool | None) -> _ImageFiles:
        if images is False:
            return cls(files, [])
        if isinstance(images, str | Path):
            files = DirectoryFiles(check_path(images).expanduser())
        return cls(files, image_names(files))

    def find(self, image: LabeledImage) -> Path | None:
        """Return the file of an image: the only one whose path ends with that of the image, or that of its split."""
        if not self._by_name:
            return None
        listed = self._by_name.get(image.path.rpartition("/")[2], [])
        found = [name for name in listed if name == image.path or name.endswith(f"/{image.path}")]
        if len(found) > 1 and image.split is not None:
            found = [name for name in found if image.split in name.split("/")] or found
        if len(found) > 1:
            shortest = min(found, key=len)
            exact = [name for name in found if len(name) == len(shortest)]
            if len(exact) > 1:
                raise InvalidSourceError(f"several files could be the image {image.path!r}: {', '.join(found[:4])}")
            found = exact
        return self._files.path(found[0]) if found else None


def _list_classes(classes: Sequence[LabelClass], used: set[str], account: Conservation) -> None:
    """List what a collection does not keep of classes: it has the names of those that have objects."""
    for one in classes:
        if one.name not in used:
            account.drop("classes without objects", "a class exists if an object has it", one.name)
        if one.supercategory is not None:
            account.drop("supercategories", "classes have names only", one.name)
        if one.keypoints:
            account.drop("names of keypoints", "keypoints are numbered", one.name, len(one.keypoints))


def _keys(annotations: Sequence[Annotation]) -> Counter[str]:
    return Counter(repr(geometry_columns(one)) for one in annotations)
