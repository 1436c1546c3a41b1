"""Upload of a directory: files and their `annotations.json` become part of HEAD, in batches.

A file that HEAD has already with the same bytes is not uploaded again, so a call that was interrupted goes on where
it ended. Implements "Upload" of docs/specs/collections.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpdata.collections.changes import Changes, StoredFile
from warpdata.collections.tables import ANNOTATIONS, IMAGES, quoted_lists, read_columns
from warpdata.errors import InvalidSourceError
from warpdata.formats.labels import LabeledImage, PlatformDocument, check_image_path, parse_annotations
from warpdata.kinds.artifacts import list_sources
from warpdata.limits import GIB
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.paths import check_path
from warpdata.primitives.progress import Progress, ProgressCounter

if TYPE_CHECKING:
    from warpdata.collections.collection import Collection

__all__ = ["UploadReceipt", "upload_directory"]

_BATCH_FILES, _BATCH_BYTES = 5_000, 1 * GIB
_SIDECARS = ("annotations.json", "meta.json")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class UploadReceipt:
    """The files that are in HEAD after an upload, each with the hash under which its bytes are stored."""

    dataset_id: str
    version: str
    files: tuple[StoredFile, ...]
    annotations: int
    """The annotations that were added."""

    @property
    def added_files(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def added_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files if file.added)


def upload_directory(
    collection: Collection, directory: str | Path, *, replace: bool, batch_files: int | None, progress: Progress
) -> UploadReceipt:
    """Add all files of a directory. With a directory `images` beside `annotations.json`, paths are relative to it."""
    top = check_path(directory).expanduser()
    if not top.is_dir():
        raise InvalidSourceError(f"{top} is not a directory")
    document = _read_document(top)
    root = top / "images" if (top / "images").is_dir() and document is not None else top
    found = {source.path: source.content for source in list_sources(root)}
    sources = {path: content for path, content in found.items() if isinstance(content, Path)}
    if root == top:
        sources = {path: content for path, content in sources.items() if path not in _SIDECARS}
    for path in sources:
        check_image_path(path)
    _check_listed(document, sources, top)
    total = sum(content.stat().st_size for content in sources.values())
    counter = ProgressCounter(progress, "add", total, len(sources))
    receipt: list[StoredFile] = []
    added = 0
    for batch in _batches(sources, batch_files or _BATCH_FILES):
        files, count = _upload_batch(collection, batch, document, counter, replace=replace)
        receipt += files
        added += count
    return UploadReceipt(collection.id, collection.head.version, tuple(receipt), added)


def _read_document(top: Path) -> PlatformDocument | None:
    path = top / "annotations.json"
    return parse_annotations(path.read_bytes(), str(path)) if path.is_file() else None


def _check_listed(document: PlatformDocument | None, sources: Mapping[str, Path], top: Path) -> None:
    absent = [] if document is None else [path for path in document.images if path not in sources]
    if absent:
        shown = ", ".join(absent[:_SHOWN])
        raise InvalidSourceError(
            f"{top / 'annotations.json'} lists {len(absent)} images that are not in {top}: {shown}",
            hint="Add the files, or remove them from the document.",
        )


def _batches(sources: Mapping[str, Path], batch_files: int) -> Iterator[list[tuple[str, Path]]]:
    batch: list[tuple[str, Path]] = []
    size = 0
    for path, content in sources.items():
        batch.append((path, content))
        size += content.stat().st_size
        if len(batch) >= batch_files or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _upload_batch(
    collection: Collection,
    batch: Sequence[tuple[str, Path]],
    document: PlatformDocument | None,
    counter: ProgressCounter,
    *,
    replace: bool,
) -> tuple[list[StoredFile], int]:
    """Commit a batch. Files that HEAD has stay as they are, with the annotations that they have."""
    known = _known_hashes(collection, [path for path, _ in batch])
    annotated = _annotated(collection, list(known))
    done: list[StoredFile] = []
    count = 0
    changes: Changes = collection.changes(f"upload {len(batch):,} files")
    with changes:
        for path, content in batch:
            entry = _entry(document, path)
            blob = fingerprint_file(content).blob if path in known else None
            if blob is not None and known[path] == blob.hash:
                done.append(StoredFile(path, blob.hash, blob.byte_size, added=False))
                if entry.annotations and path not in annotated:
                    changes.annotate(path, entry.annotations)
                    count += len(entry.annotations)
            else:
                done.append(
                    changes.add(
                        path,
                        content,
                        annotations=entry.annotations,
                        split=entry.split,
                        tags=entry.tags,
                        replace=replace,
                    )
                )
                count += len(entry.annotations)
            counter.add_bytes(done[-1].size_bytes)
            counter.finish_file()
    return done, count


def _entry(document: PlatformDocument | None, path: str) -> LabeledImage:
    return LabeledImage(path) if document is None else document.images.get(path, LabeledImage(path))


def _known_hashes(collection: Collection, paths: Sequence[str]) -> dict[str, str]:
    """Return the hashes of those of the files that HEAD has."""
    found: dict[str, str] = {}
    head = collection.open_or_create()
    if head.table(IMAGES).count():
        for where in quoted_lists("path", paths):
            rows = read_columns(head, IMAGES, ["path", "hash"], where)
            found |= dict(zip(rows["path"].to_pylist(), rows["hash"].to_pylist(), strict=True))
    return found


def _annotated(collection: Collection, paths: Sequence[str]) -> set[str]:
    """Return those of the files that have annotations in HEAD."""
    found: set[str] = set()
    for where in quoted_lists("image", paths):
        found |= set(read_columns(collection.head, ANNOTATIONS, ["image"], where)["image"].to_pylist())
    return found
