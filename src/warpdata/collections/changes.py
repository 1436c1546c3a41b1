"""Changes of HEAD: files and annotations that are added, replaced or removed, in one commit.

Bytes wait in a staging directory until the commit, so memory holds none of them. Implements "Changes" of
docs/specs/collections.md.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from warpdata.collections.tables import (
    ANNOTATIONS,
    FILES,
    IMAGES,
    annotation_schema,
    image_schema,
    quoted_lists,
)
from warpdata.datasets import Dataset
from warpdata.errors import AlreadyExistsError, BadInputError, InvalidSourceError, ObjectNotFoundError
from warpdata.formats.labels import KINDS, Annotation, LabelBlock, check_image_path, geometry_columns
from warpdata.formats.media import read_image_size
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.arrow_buffers import as_arrow
from warpdata.primitives.hashing import fingerprint_file
from warpdata.primitives.paths import check_path
from warpdata.primitives.reprs import short_repr
from warpdata.session import Session
from warpdata.storage import SNIFFED_BYTES, content_type
from warpdata.storage.cache import StagingDirectory

if TYPE_CHECKING:
    import pyarrow as pa

    from warpdata.edit import Edit

__all__ = ["Changes", "Content", "StoredFile", "delete_rows"]


class OpenFile(Protocol):
    """An open file, or anything else that returns bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


Content: TypeAlias = bytes | str | Path | OpenFile
"""Bytes, the path of a file, or an open file."""

_MANY_ROWS = 1000
"""More changed rows are written whole, because filters that list them would take longer."""
_HEADER_BYTES = 256 * 1024
"""The size of an image is read from this much of the file."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a collection: its path, the SHA-256 of its bytes, and their number."""

    path: str
    hash: str
    size_bytes: int
    added: bool = True
    """False for a file that HEAD had already."""


@dataclass(slots=True)
class _NewFile:
    stored: StoredFile
    content: Path
    row: dict[str, Any]
    replaces: bool


@dataclass(slots=True)
class _Pending:
    files: dict[str, _NewFile] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    cleared: dict[str, None] = field(default_factory=dict)
    """Paths whose annotations go."""
    annotations: list[dict[str, Any]] = field(default_factory=list)
    annotation_tables: list[pa.Table] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    """Ids of annotations that go."""
    updated: dict[str, dict[str, Any]] = field(default_factory=dict)

    def forget_annotations(self, path: str) -> None:
        """Drop the annotations that were added to a file."""
        import pyarrow.compute as pc

        self.annotations = [row for row in self.annotations if row["image"] != path]
        self.annotation_tables = [rows.filter(pc.not_equal(rows["image"], path)) for rows in self.annotation_tables]


@check_arguments
class Changes:
    """Changes of HEAD that are committed together: `with collection.changes("…") as c: c.add(…)`.

    An exception inside of the block commits nothing. After the block, `version` is that of HEAD.
    """

    def __init__(self, open_head: Callable[[], Dataset], message: str, author: str, key: str | None = None) -> None:
        self._open_head = open_head
        self._message = message
        self._author = author
        self._key = key
        self._dataset: Dataset | None = None
        self._staging: StagingDirectory | None = None
        self._pending = _Pending()
        self.version: str | None = None

    def __repr__(self) -> str:
        return short_repr("Changes", files=len(self._pending.files), removed=len(self._pending.removed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            self.discard()

    @property
    def size_bytes(self) -> int:
        """The bytes of all files that were added so far."""
        return sum(new.stored.size_bytes for new in self._pending.files.values())

    def __len__(self) -> int:
        pending = self._pending
        annotations: int = len(pending.annotations) + sum(rows.num_rows for rows in pending.annotation_tables)
        return len(pending.files) + len(pending.removed) + annotations + len(pending.updated)

    def add(
        self,
        path: str,
        data: Content,
        *,
        annotations: Iterable[Annotation] = (),
        split: str | None = None,
        tags: Sequence[str] = (),
        replace: bool = False,
    ) -> StoredFile:
        """Add a file. `replace` takes the place of a file with this path, whose annotations go with it."""
        check_image_path(path)
        if path in self._pending.files:
            raise AlreadyExistsError(f"{path!r} was added twice in the same change")
        exists = path in self._head.artifact(FILES) and path not in self._pending.removed
        if exists and not replace:
            raise AlreadyExistsError(
                f"{self._head.id} already has a file {path!r}", hint="Pass replace=True, or choose another path."
            )
        content = self._spool(data)
        stored, row = _describe(path, content)
        row |= {"split": split, "tags": _check_tags(tags), "author": self._author, "time": self._session.timestamp()}
        self._pending.files[path] = _NewFile(stored, content, row, replaces=exists)
        if exists:
            self._pending.cleared[path] = None
        self._annotate(path, annotations)
        return stored

    def annotate(
        self, path: str, annotations: Iterable[Annotation], *, replace: bool = False, author: str | None = None
    ) -> None:
        """Add annotations to a file of HEAD, or with `replace` give it these instead of all it has.

        `author` drew them; by default it is the author of the change.
        """
        self._check_exists([path])
        if replace:
            self._pending.cleared[path] = None
            self._pending.forget_annotations(path)
        self._annotate(path, annotations, author)

    def annotate_block(self, block: LabelBlock) -> None:
        """Add the annotations of many files of HEAD. The caller has found the files there, or has added them."""
        import numpy as np
        import pyarrow as pa

        count = block.rows.num_rows
        paths = pa.array([image.path for image in block.images], pa.string())
        made = {
            "image": paths.take(as_arrow(np.repeat(np.arange(len(block)), np.diff(block.starts)))),
            "id": self._session.new_ids(count),
            "author": pa.repeat(pa.scalar(self._author), count),
            "time": pa.repeat(pa.scalar(self._session.timestamp()), count),
        }
        schema = annotation_schema()
        columns = [made[name] if name in made else block.rows[name] for name in schema.names]
        self._pending.annotation_tables.append(pa.Table.from_arrays(columns, schema=schema))

    def remove_annotations(self, ids: Sequence[str]) -> None:
        """Remove annotations of HEAD by their ids. Others keep theirs."""
        self._pending.dropped += ids

    def set(self, path: str, *, split: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Change the split or the tags of a file of HEAD."""
        self._check_exists([path])
        values: dict[str, Any] = {} if split is None else {"split": split}
        values |= {} if tags is None else {"tags": _check_tags(tags)}
        new = self._pending.files.get(path)
        if new is not None:
            new.row.update(values)
        elif values:
            self._pending.updated.setdefault(path, {}).update(values)

    def set_rows(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Change columns of many files of HEAD, by path. The caller has found the files and checked the values."""
        for path, changed in values.items():
            self._pending.updated.setdefault(path, {}).update(changed)

    def remove(self, paths: str | Sequence[str]) -> None:
        """Remove files and their annotations from HEAD. Versions keep them."""
        listed = [paths] if isinstance(paths, str) else list(dict.fromkeys(paths))
        self._check_exists(listed)
        for path in listed:
            added = self._pending.files.pop(path, None)
            self._pending.forget_annotations(path)
            if added is None or added.replaces:
                self._pending.removed[path] = None

    def commit(self) -> None:
        """Commit the changes now. Without changes, nothing is committed."""
        pending, head = self._pending, self._head
        self.version = head.version
        if len(self) or pending.cleared or pending.dropped:
            self.version = self._commit_pending()
        self._pending = _Pending()

    def discard(self) -> None:
        """Forget the changes, and remove the staged bytes."""
        self._pending = _Pending()
        if self._staging is not None:
            self._staging.remove()
            self._staging = None

    def _commit_pending(self) -> str:
        """Make one commit of all changes, and return its version."""
        with self._head.edit(self._message, author=self._author, key=self._key) as edit:
            self._apply(edit)
        assert edit.version is not None, "an edit that ended has a version"
        return edit.version

    def _apply(self, edit: Edit) -> None:
        import pyarrow as pa

        pending = self._pending
        gone = [*pending.removed, *(path for path, new in pending.files.items() if new.replaces)]
        if gone:
            edit.remove_files(FILES, gone)
            delete_rows(edit, gone)
        for where in quoted_lists("image", [path for path in pending.cleared if path not in gone]):
            edit.delete(ANNOTATIONS, where)
        for where in quoted_lists("id", pending.dropped):
            edit.delete(ANNOTATIONS, where)
        if pending.files:
            edit.add_files(FILES, {path: new.content for path, new in pending.files.items()})
            _check_hashes(edit, pending.files)
            edit.append(IMAGES, pa.Table.from_pylist([new.row for new in pending.files.values()], image_schema()))
        if len(pending.updated) > _MANY_ROWS:
            edit.upsert(IMAGES, _updated_rows(self._head, pending.updated), "path")
        else:
            for values, paths in _grouped(pending.updated):
                for where in quoted_lists("path", paths):
                    edit.update(IMAGES, where, values)
        rows = [pa.Table.from_pylist(pending.annotations, annotation_schema()), *pending.annotation_tables]
        if any(one.num_rows for one in rows):
            edit.append(ANNOTATIONS, pa.concat_tables(rows))

    def _annotate(self, path: str, annotations: Iterable[Annotation], author: str | None = None) -> None:
        by = {"author": author or self._author, "time": self._session.timestamp()}
        for annotation in annotations:
            if getattr(annotation, "kind", None) not in KINDS:
                raise BadInputError(
                    f"{annotation!r} is not an annotation", hint="Use wd.Box, Polygon, Mask, Keypoints or Label."
                )
            about = {"image": path, "id": self._session.new_id()}
            self._pending.annotations.append({**about, **geometry_columns(annotation), **by})

    def _check_exists(self, paths: Sequence[str]) -> None:
        artifact = self._head.artifact(FILES)
        artifact.prepare(list(paths))
        for path in paths:
            if path in self._pending.files:
                continue
            if path in self._pending.removed:
                raise ObjectNotFoundError(f"{path!r} is removed in the same change")
            artifact.member(path)  # raises with similar paths

    def _spool(self, data: Content) -> Path:
        if isinstance(data, str | Path):
            path = check_path(data).expanduser()
            if not path.is_file():
                raise InvalidSourceError(f"{path} is not a file")
            return path
        source = io.BytesIO(data) if isinstance(data, bytes | bytearray | memoryview) else data
        if not hasattr(source, "read"):
            raise BadInputError(f"a file is bytes, a path or an open file, not {type(data).__name__}")
        if self._staging is None:
            self._staging = StagingDirectory(self._session.settings.cache_dir)
        target = self._staging.path / f"{len(self._pending.files):06d}-{self._session.new_id()}"
        with target.open("wb") as file:
            shutil.copyfileobj(source, file)
        return target

    @property
    def _head(self) -> Dataset:
        if self._dataset is None:
            self._dataset = self._open_head()
        return self._dataset

    @property
    def _session(self) -> Session:
        return self._head.session


def _grouped(updated: Mapping[str, dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the files that get the same values."""
    groups: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for path, values in updated.items():
        groups.setdefault(repr(sorted(values.items())), (values, []))[1].append(path)
    yield from groups.values()


def _updated_rows(head: Dataset, updated: Mapping[str, Mapping[str, Any]]) -> pa.Table:
    """Return the rows of files with their new values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stored = head.table(IMAGES).raw().to_arrow(allow_large=True)
    rows = stored.filter(pc.is_in(stored["path"], pa.array(list(updated), pa.string())))
    values = [updated[path] for path in rows["path"].to_pylist()]
    for name in {name: None for changed in updated.values() for name in changed}:
        column = [changed.get(name, old) for changed, old in zip(values, rows[name].to_pylist(), strict=True)]
        position = rows.schema.get_field_index(name)
        rows = rows.set_column(position, rows.schema.field(name), pa.array(column, rows.schema.field(name).type))
    return rows


def delete_rows(edit: Edit, paths: Sequence[str]) -> None:
    """Delete the rows of files, with their annotations."""
    for where in quoted_lists("image", paths):
        edit.delete(ANNOTATIONS, where)
    for where in quoted_lists("path", paths):
        edit.delete(IMAGES, where)


def _describe(path: str, content: Path) -> tuple[StoredFile, dict[str, Any]]:
    try:
        blob = fingerprint_file(content).blob
        with content.open("rb") as file:
            head = file.read(_HEADER_BYTES)
    except OSError as error:
        raise InvalidSourceError(f"{content} cannot be read: {error.strerror or error}") from error
    media_type = content_type("", head[:SNIFFED_BYTES])
    size = read_image_size(head)
    stored = StoredFile(path, blob.hash, blob.byte_size)
    row = {"path": path, "hash": blob.hash, "size_bytes": blob.byte_size, "media_type": media_type}
    return stored, {**row, "height": size[0] if size else None, "width": size[1] if size else None}


def _check_hashes(edit: Edit, files: dict[str, _NewFile]) -> None:
    """Refuse a file that changed between its hash and its staging. Packed files are compared by size."""
    artifact = edit.artifact(FILES)
    artifact.prepare(list(files))
    for path, new in files.items():
        is_same = artifact.size_of(path) == new.stored.size_bytes
        if artifact.entry.kind == "files":
            is_same = artifact.shard_of(path).hash == new.stored.hash
        if not is_same:
            raise InvalidSourceError(f"{new.content} changed while it was added as {path!r}")


def _check_tags(tags: Sequence[str]) -> list[str]:
    if isinstance(tags, str) or not all(isinstance(tag, str) for tag in tags):
        raise BadInputError(f"tags are a list of texts, not {tags!r}")
    return list(dict.fromkeys(tags))
