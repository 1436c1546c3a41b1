"""Export of labels: a version of a collection becomes a directory in a format of other tools.

The directory appears when it is complete. Bytes of images are verified as they are read. Implements "Labels of other
tools" of docs/specs/collections.md.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpdata.collections.stored_labels import label_set
from warpdata.collections.tables import FILES, IMAGES
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, StorageError
from warpdata.exporters import ExportDirectory, FileCopies, check_target, new_directory
from warpdata.formats.labels import (
    Conservation,
    ConservationReport,
    ImagePlace,
    LabelFile,
    LabelOptions,
    label_format,
)
from warpdata.jobs import EngineChoice
from warpdata.kinds.artifacts import Artifact, FileRef, read_many
from warpdata.limits import MIB
from warpdata.primitives.progress import Progress, ProgressCounter

__all__ = ["LabelExport", "LabelExportRequest", "export_labels"]

_BATCH_FILES, _LARGE_BYTES = 64, 4 * MIB


@dataclass(frozen=True, slots=True)
class LabelExport:
    """The result of an export of labels. `report` lists what the format does not hold."""

    dataset_id: str
    version: str
    target: Path
    files: int
    """The files of labels and of images that were written."""
    report: ConservationReport

    def document(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        about = {"dataset_id": self.dataset_id, "version": self.version, "target": str(self.target)}
        return {**about, "files": self.files, **self.report.document()}


@dataclass(frozen=True, slots=True)
class LabelExportRequest:
    """The choices of an export: the format and its task, a filter of images, and whether to write image files.

    With an engine, workers write the image files.
    """

    format: str
    task: str | None = None
    where: str | None = None
    images: bool = True
    engine: EngineChoice = None


def export_labels(
    dataset: Dataset, directory: str | Path, request: LabelExportRequest, progress: Progress
) -> LabelExport:
    """Write the labels of a version into a new directory."""
    target = check_target(directory)
    labels = label_set(dataset, request.where)
    account = Conservation(request.format, "export")
    outputs = label_format(request.format).write(labels, account, LabelOptions(task=request.task))
    counter = ProgressCounter(progress, "export", 0, dataset.table(IMAGES).count() if request.images else 0)
    with ExitStack() as stack:
        copies = None if request.engine is None else FileCopies(dataset, request.engine, stack)
        out = stack.enter_context(new_directory(target, counter, copies))
        writer = _Writer(out, dataset.artifact(FILES), leaves_files=copies is not None)
        for output in outputs:
            if isinstance(output, LabelFile):
                writer.write_labels(output)
            elif request.images:
                writer.place(output)
        writer.flush()
        report = account.report()
    return LabelExport(dataset.id, dataset.version, target, writer.files, report)


class _Writer:
    """Writes files of labels at once, and small images in batches that are read together."""

    def __init__(self, out: ExportDirectory, artifact: Artifact, *, leaves_files: bool) -> None:
        """`leaves_files`: the directory lets workers read the images."""
        self._leaves_files = leaves_files
        self._out = out
        self._artifact = artifact
        self._pending: list[tuple[str, FileRef]] = []
        self.files = 0

    def write_labels(self, output: LabelFile) -> None:
        path = self._out.new_file(output.name)
        try:
            with path.open("xb") as file:
                for piece in output.data:
                    file.write(piece)
        except FileExistsError as error:
            raise BadInputError(f"the export has two files with the name {output.name!r}") from error
        except OSError as error:
            raise StorageError(f"the export: {output.name!r} cannot be written: {error.strerror or error}") from error
        self.files += 1

    def place(self, output: ImagePlace) -> None:
        self._pending.append((output.name, FileRef(self._artifact, output.path)))
        if len(self._pending) >= _BATCH_FILES:
            self.flush()

    def flush(self) -> None:
        self._artifact.prepare([str(ref.locator) for _, ref in self._pending])
        small = [ref if ref.size <= _LARGE_BYTES and not self._leaves_files else None for _, ref in self._pending]
        for (name, ref), data in zip(self._pending, read_many(small), strict=True):
            self._out.write(name, ref if data is None else data)
        self.files += len(self._pending)
        self._pending = []
