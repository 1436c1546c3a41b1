"""YOLO, read: text files of labels beside images, or for images that are known already.

`data.yaml` names the classes and the directories of splits. Without it, `classes.txt` or `obj.names` names the classes,
and splits follow from directories.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpdata.errors import BadInputError, CorruptError
from warpdata.formats.labels.conservation import Conservation
from warpdata.formats.labels.files import LabelFiles, foreign_path, image_names
from warpdata.formats.labels.image_folder import SPLITS, read_image_folder
from warpdata.formats.labels.model import LabelClass, LabeledImage, LabelSet
from warpdata.formats.labels.options import LabelOptions
from warpdata.formats.labels.parts import stem_of
from warpdata.formats.labels.yolo_lines import TASKS, decode_line
from warpdata.limits import MIB
from warpdata.primitives.extras import require

__all__ = ["read_yolo"]

_MAX_TEXT_BYTES = 64 * MIB
_MAX_YAML_BYTES = 4 * MIB
_KEYS = frozenset({"path", "names", "nc", "kpt_shape", "flip_idx", "download", "channels", "roboflow"})
_NAME_FILES = ("classes.txt", "obj.names")


@dataclass(frozen=True, slots=True)
class _Config:
    """What `data.yaml` says: names by number, directories by split, and the shape of a pose."""

    names: Mapping[int, str]
    folders: tuple[tuple[str | None, str], ...] = ()
    shape: tuple[int, int] = (0, 3)


def read_yolo(files: LabelFiles, account: Conservation, options: LabelOptions) -> LabelSet:
    """Return images with their labels. Images without a file of labels are background."""
    task = None if options.task is None else options.choose(TASKS)
    if task == "classify":
        return read_image_folder(files, account)
    reader = _Reader(files, account, options, task)
    classes = tuple(LabelClass(name) for _, name in sorted(reader.config.names.items()))
    return LabelSet(classes, reader.images(), name=files.name)


class _Reader:
    def __init__(self, files: LabelFiles, account: Conservation, options: LabelOptions, task: str | None) -> None:
        self._files = files
        self._account = account
        self._options = options
        self._task = task
        self.config = _read_config(files)
        self._texts = {
            stem_of(name): name
            for name in files.names()
            if name.endswith(".txt") and not name.endswith(_NAME_FILES) and not self._is_list(name)
        }

    def images(self) -> Iterator[LabeledImage]:
        """Yield images beside the labels, or if there are none, the known images that have labels."""
        listed = image_names(self._files)
        pairs = self._found(listed) if listed else self._known()
        seen: set[str] = set()
        used: set[str] = set()
        for path, split, stem, size in pairs:
            name = path if path not in seen else f"{split}/{path}"
            if name != path:
                self._account.change("paths", "another split has an image of this name", name)
            seen.add(name)
            width, height = size or (None, None)
            image = LabeledImage(foreign_path(name, self._files.name), [], width, height, split)
            self._account.take("images")
            text = self._texts.get(stem)
            if text is not None:
                used.add(text)
                self._read_lines(text, image)
            self._account.take_details(image)
            yield image
        for text in sorted(set(self._texts.values()) - used):
            lines = sum(1 for line in self._text(text).splitlines() if line.strip())
            self._account.drop("objects", "no image has the name of the file", text, lines)

    def _read_lines(self, name: str, image: LabeledImage) -> None:
        for number, line in enumerate(self._text(name).splitlines(), 1):
            parts = line.split()
            if not parts:
                continue
            place = f"{self._files.name}/{name}:{number}"
            self._account.take("objects")
            if image.size is None:
                self._account.lose("objects", "the size of the image is not known", place)
                continue
            try:
                class_name = self.config.names[int(parts[0])] if self.config.names else str(int(parts[0]))
            except (KeyError, ValueError) as error:
                raise CorruptError(f"{place}: {parts[0][:40]!r} is not the number of a class") from error
            try:
                found = decode_line(parts[1:], class_name, image.size, self._task, self.config.shape)
            except BadInputError as error:
                raise CorruptError(f"{place}: {error.message}") from error
            image.annotations.append(found)

    def _found(self, listed: list[str]) -> Iterator[tuple[str, str | None, str, tuple[int, int] | None]]:
        for name in listed:
            split, path, folder = self._split_of(name)
            label = _label_folder(folder)
            yield path, split, stem_of(f"{label}{path}"), self._files.image_size(name)

    def _known(self) -> Iterator[tuple[str, str | None, str, tuple[int, int] | None]]:
        stems = {stem_of(path): path for path in self._options.images}
        for stem in self._texts:
            split, path, _ = self._split_of(_image_folder(stem))
            known = stems.get(path) or stems.get(stem)
            if known is not None:
                yield known, split, stem, self._options.images[known]

    def _split_of(self, name: str) -> tuple[str | None, str, str]:
        """Return split, path and directory of an image."""
        for split, folder in self.config.folders:
            if name.startswith(folder):
                return split, name.removeprefix(folder), folder
        parts = name.split("/")
        if "images" in parts[:-1]:
            at = len(parts) - 2 - parts[:-1][::-1].index("images")
            if at and parts[at - 1] in SPLITS:  # train/images/a.jpg
                return parts[at - 1], "/".join(parts[at + 1 :]), "/".join(parts[: at + 1]) + "/"
            if parts[at + 1] in SPLITS and len(parts) > at + 2:  # images/train/a.jpg
                return parts[at + 1], "/".join(parts[at + 2 :]), "/".join(parts[: at + 2]) + "/"
            return None, "/".join(parts[at + 1 :]), "/".join(parts[: at + 1]) + "/"
        return None, name, ""

    def _text(self, name: str) -> str:
        try:
            return self._files.read(name, _MAX_TEXT_BYTES).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptError(f"{self._files.name}/{name} is not text: {error}") from error

    def _is_list(self, name: str) -> bool:
        """Return whether a text file is a list of images or a note, and not labels."""
        return "/" not in name and any(each.startswith(("labels/", "images/")) for each in self._files.names())


def _label_folder(folder: str) -> str:
    """Return the directory of labels beside a directory of images: the last part `images` becomes `labels`."""
    head, found, tail = f"/{folder}".rpartition("/images/")
    return f"{head}/labels/{tail}".lstrip("/") if found else folder


def _image_folder(stem: str) -> str:
    head, found, tail = f"/{stem}".rpartition("/labels/")
    return f"{head}/images/{tail}".lstrip("/") if found else stem


def _read_config(files: LabelFiles) -> _Config:
    names = files.names()
    found = [name for name in names if name.endswith((".yaml", ".yml")) and "/" not in name]
    if found:
        chosen = "data.yaml" if "data.yaml" in found else found[0]
        return _parse_config(files, chosen)
    for name in _NAME_FILES:
        listed = [each for each in names if each == name or each.endswith(f"/{name}")]
        if listed:
            text = files.read(listed[0], _MAX_YAML_BYTES).decode("utf-8", "replace")
            return _Config({number: line.strip() for number, line in enumerate(text.splitlines()) if line.strip()})
    return _Config({})


def _parse_config(files: LabelFiles, name: str) -> _Config:
    yaml = require("yaml", purpose="reading data.yaml", extra="labels")
    where = f"{files.name}/{name}"
    try:
        body = yaml.load(files.read(name, _MAX_YAML_BYTES), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        raise CorruptError(f"{where} is not valid YAML: {str(error)[:200]}") from error
    if not isinstance(body, dict):
        raise CorruptError(f"{where} is a mapping, not {type(body).__name__}")
    shape = body.get("kpt_shape") or [0, 3]
    is_shape = isinstance(shape, list) and len(shape) == 2 and all(type(value) is int for value in shape)
    if not is_shape or shape[1] not in (2, 3) or not 0 <= shape[0] <= 10_000:
        raise CorruptError(f"{where}: kpt_shape is the number of points and 2 or 3, not {shape!r}")
    return _Config(_parse_names(body.get("names"), where), _parse_folders(body), (shape[0], shape[1]))


def _parse_names(names: Any, where: str) -> dict[int, str]:
    listed = dict(enumerate(names)) if isinstance(names, list) else names or {}
    if not isinstance(listed, dict) or not all(type(key) is int and value is not None for key, value in listed.items()):
        raise CorruptError(f"{where}: names are a list, or a mapping of numbers to names")
    found = {key: str(value) for key, value in listed.items()}
    if len(set(found.values())) != len(found) or not all(found.values()):
        raise CorruptError(f"{where}: two classes have the same name, or none")
    return found


def _parse_folders(body: Mapping[Any, Any]) -> tuple[tuple[str | None, str], ...]:
    found: dict[str, str] = {}
    for key, value in body.items():
        if key in _KEYS or not isinstance(key, str):
            continue
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, str) or path.endswith(".txt"):
                continue
            folder = posixpath.normpath(path).lstrip("/")
            while folder.startswith("../"):
                folder = folder.removeprefix("../")
            folder = "" if folder == "." else f"{folder}/"
            found.setdefault(folder, key)
    shared = {folder for folder in found if any(other.startswith(folder) for other in found if other != folder)}
    plain = {"images/", ""} - shared
    ordered = sorted(found.items(), key=lambda item: -len(item[0]))
    return tuple((None if folder in plain and len(found) == 1 else split, folder) for folder, split in ordered)
