"""The `Collection` façade: every method is a few lines over the module that does the work.

A collection is a dataset. HEAD is its branch `main`, versions are labels, and training snapshots are labels that begin
with `training-job-`. docs/specs/collections.md is the normative text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from warpdata.collections.changes import Changes, Content, StoredFile
from warpdata.collections.creation import ensure_collection
from warpdata.collections.distributions import LabelDistributions, describe_labels, place_objects
from warpdata.collections.impact import Impact, assess_impact, check_action
from warpdata.collections.inbox import LabelInbox
from warpdata.collections.integrity import IntegrityReport, check_versions
from warpdata.collections.label_export import LabelExport, LabelExportRequest, export_labels
from warpdata.collections.label_import import LabelImport, LabelImportRequest, import_labels
from warpdata.collections.label_quality import LabelQuality, QualityOptions, check_quality
from warpdata.collections.platform_format import annotations_document, meta_document, snapshot_document
from warpdata.collections.purge import (
    ErasureReceipt,
    PurgeOptions,
    PurgeRequest,
    check_purge,
    finish_purge,
    list_unfinished,
    start_purge,
)
from warpdata.collections.records import PurgeIntent, RecordStore
from warpdata.collections.repair import RepairReport, ignore_step, repair_versions
from warpdata.collections.reverse_index import ReverseIndex
from warpdata.collections.states import BROKEN, LABELED, REPAIRED, UNLABELED, VersionState, read_state
from warpdata.collections.statistics import (
    CollectionStatistics,
    Comparison,
    compare_versions,
    describe_version,
)
from warpdata.collections.tables import ANNOTATIONS, FILES, check_collection, quoted_lists
from warpdata.collections.training import JobRequest, TrainingJob, end_job, list_jobs, read_job, start_job
from warpdata.collections.upload import UploadReceipt, upload_directory
from warpdata.collections.versions import HEAD, CollectionVersion, check_version_name, list_versions
from warpdata.datasets import Dataset, Restored, open_dataset
from warpdata.errors import BadInputError, ConflictError, ErrorKind
from warpdata.formats.labels import Annotation, annotation_of
from warpdata.jobs import EngineChoice
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.progress import Progress, silent
from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import MAIN, Address
from warpdata.session import Session

__all__ = ["Collection"]


@check_arguments
class Collection:
    """Labelled files with a HEAD, versions and training snapshots. Opening it reads nothing."""

    def __init__(self, session: Session, dataset_id: str) -> None:
        self._session = session
        self._id = dataset_id
        self._records = RecordStore(session, dataset_id)

    def __repr__(self) -> str:
        return short_repr("Collection", self._id, store=self._session.reader.url)

    @property
    def id(self) -> str:
        return self._id

    @property
    def session(self) -> Session:
        """The session that opened this collection."""
        return self._session

    @property
    def inbox(self) -> LabelInbox:
        """Labels that came back from labelling tools."""
        return LabelInbox(self, self._records)

    @property
    def head(self) -> Dataset:
        """The newest state, as a dataset."""
        return self.dataset(HEAD)

    def dataset(self, ref: str = HEAD) -> Dataset:
        """Open HEAD or a version as a dataset, for filters, streams and exports."""
        name = MAIN if ref == HEAD else ref
        return check_collection(open_dataset(self._session, Address(self._id, name)))

    def open_or_create(self) -> Dataset:
        """Open HEAD. A collection that does not exist is created, with a file for each image."""
        return ensure_collection(self._session, self._id)

    def changes(self, message: str, *, author: str | None = None, key: str | None = None) -> Changes:
        """Collect changes for one commit: `with c.changes("batch 7") as change: change.add(…)`.

        With a `key`, they are committed at most once, also if the program is started again.
        """
        return Changes(self.open_or_create, message, author or self._session.settings.author, key)

    def add(
        self,
        path: str,
        data: Content,
        *,
        annotations: Iterable[Annotation] = (),
        split: str | None = None,
        tags: Sequence[str] = (),
        replace: bool = False,
        author: str | None = None,
    ) -> StoredFile:
        """Add one file in a commit of its own, and return the hash of the stored bytes. Creates the collection.

        `data` is bytes, the path of a file or an open file. `replace` takes the place of a file with this path, whose
        annotations go with it. Use `changes` or `upload` for many files.
        """
        with self.changes(f"add {path}", author=author) as change:
            return change.add(path, data, annotations=annotations, split=split, tags=tags, replace=replace)

    def upload(
        self,
        directory: str | Path,
        *,
        replace: bool = False,
        batch_files: int | None = None,
        progress: Progress = silent,
    ) -> UploadReceipt:
        """Add all files of a directory, with its `annotations.json` if there is one. Creates the collection.

        The receipt lists the hash of every file. Repeat the call after an interruption: files that HEAD has with the
        same bytes are not sent again.
        """
        if batch_files is not None and batch_files < 1:
            raise BadInputError(f"batch_files={batch_files} is not a positive number")
        return upload_directory(self, directory, replace=replace, batch_files=batch_files, progress=progress)

    def import_labels(
        self,
        source: str | Path,
        format: str,  # noqa: A002 - the word that users look for
        *,
        task: str | None = None,
        existing: str = "keep",
        images: str | Path | bool | None = None,
        progress: Progress = silent,
    ) -> LabelImport:
        """Add the labels of a directory or file of another tool, with its images. Creates the collection.

        `format` is "coco", "yolo", "voc", "cvat", "label-studio", "datumaro", "masks", "imagefolder", "csv", "parquet"
        or "platform". Labels of images that HEAD has go to those. If such an image has other annotations, `existing`
        says whether to "keep" them, "add" the new ones or "replace" them. `images` is the directory of image files, if
        it is another one; False adds none. The report lists all that could not be kept. Repeat the call after an
        interruption.
        """
        return import_labels(self, source, LabelImportRequest(format, task, existing, images), progress)

    def export_labels(
        self,
        directory: str | Path,
        format: str,  # noqa: A002 - as in `import_labels`
        ref: str = HEAD,
        *,
        task: str | None = None,
        filter: str | None = None,  # noqa: A002 - as in Dataset.stream
        images: bool = True,
        engine: EngineChoice = None,
        progress: Progress = silent,
    ) -> LabelExport:
        """Write the labels of HEAD or a version into a new directory, with the image files.

        `task` chooses among the kinds of files of a format: "detect", "segment", "pose", "obb" or "classify" of YOLO,
        and the version of the Platform Format. A `filter` selects images. The directory appears when it is complete,
        and the report lists all that the format does not hold. With an `engine` ("processes", "ray" or
        "ray://HOST:PORT"), workers read and write the image files; they must share the directory.
        """
        request = LabelExportRequest(format, task, filter, images, engine)
        return export_labels(self.dataset(ref), directory, request, progress)

    def quality(
        self,
        ref: str = HEAD,
        *,
        options: QualityOptions | None = None,
        filter: str | None = None,  # noqa: A002 - as in Dataset.stream
        progress: Progress = silent,
    ) -> LabelQuality:
        """Check the labels of HEAD or a version: tiny, outside, overlapping and duplicate objects, leakage, balance.

        A `filter` selects images. With `near_bits` in the options, images are read and compared by content.
        """
        return check_quality(self.dataset(ref), options or QualityOptions(), filter, progress)

    def remove(self, paths: str | Sequence[str], *, author: str | None = None) -> str:
        """Remove files from HEAD, with their annotations, and return the new version. Versions keep the files."""
        self.dataset()
        with self.changes("remove files", author=author) as change:
            change.remove(paths)
        assert change.version is not None
        return change.version

    def annotate(
        self, path: str, annotations: Iterable[Annotation], *, replace: bool = False, author: str | None = None
    ) -> str:
        """Add annotations to a file of HEAD, or with `replace` exchange all it has. Return the new version."""
        self.dataset()
        with self.changes(f"annotate {path}", author=author) as change:
            change.annotate(path, annotations, replace=replace)
        assert change.version is not None
        return change.version

    def annotations(self, path: str, ref: str = HEAD) -> list[Annotation]:
        """Return the annotations of a file, in the order in which they were added."""
        dataset = self.dataset(ref)
        dataset.artifact(FILES).member(path)
        where = next(quoted_lists("image", [path]))
        return [annotation_of(row) for row in dataset.table(ANNOTATIONS).raw().filter(where).to_arrow().to_pylist()]

    def read(self, path: str, ref: str = HEAD) -> bytes:
        """Return the bytes of a file of HEAD or of a version."""
        return self.dataset(ref).artifact(FILES).read(path)

    def create_version(self, name: str) -> CollectionVersion:
        """Name the present HEAD. Nothing is copied, and the version never changes."""
        label = self.head.snapshot(check_version_name(name))
        return CollectionVersion(
            label.name, label.version, label.time, "manual", read_state(self._records, label.version)
        )

    def versions(self) -> list[CollectionVersion]:
        """Return all versions and training snapshots, oldest first, each with its state."""
        return list_versions(self._records)

    def restore(self, ref: str, *, author: str | None = None) -> Restored:
        """Make a version HEAD again, as a new commit. A version with erased files is refused."""
        dataset = self.dataset(ref)
        state = read_state(self._records, dataset.version)
        if state.state in (BROKEN, REPAIRED):
            successor = f"Restore {state.repaired_by!r} instead." if state.repaired_by else None
            raise ConflictError(
                f"{self._id}@{ref} has lost {state.missing_count} files, so it cannot become HEAD",
                hint=successor or "Choose another version, or add the files to HEAD.",
                kind=ErrorKind.VERSION_BROKEN,
            )
        return dataset.restore(branch=MAIN, author=author)

    def compare(self, older: str, newer: str = HEAD) -> Comparison:
        """Compare two versions: files by path and hash, annotations by id, and counts by class."""
        return compare_versions(self.dataset(older), self.dataset(newer))

    def statistics(self, ref: str = HEAD) -> CollectionStatistics:
        """Count images, annotations, classes and splits."""
        return describe_version(self.dataset(ref))

    def distributions(self, ref: str = HEAD) -> LabelDistributions:
        """Count objects and images by class, split, size and place, and classes that occur together."""
        dataset = self.dataset(ref)
        return describe_labels(place_objects(dataset), dataset.version)

    def start_training(
        self, task_type: str, model_name: str, *, job_id: str | None = None, author: str | None = None
    ) -> TrainingJob:
        """Pin HEAD as `training-job-<id>`, record the job, and return it with the environment of its trainer."""
        request = JobRequest(task_type, model_name, job_id)
        return start_job(self._records, self.head, request, author or self._session.settings.author)

    def jobs(self) -> list[TrainingJob]:
        """Return all training jobs, oldest first."""
        return list_jobs(self._records)

    def job(self, job_id: str) -> TrainingJob:
        """Return a training job by its id."""
        return read_job(self._records, job_id)

    def end_training(self, job_id: str, status: str = "completed", *, note: str = "") -> TrainingJob:
        """Record the end of a job, once: "completed", "failed" or "cancelled"."""
        return end_job(self._records, job_id, status, note)

    def impact(self, path: str) -> Impact:
        """Return the versions and training jobs that have a file, and the token that a purge of it needs."""
        return assess_impact(self.head, ReverseIndex(self._session, self._id), path)

    def purge(
        self,
        path: str,
        action: str,
        *,
        token: str,
        reason: str = "",
        author: str | None = None,
        wait_s: float | None = None,
        progress: Progress = silent,
    ) -> ErasureReceipt | None:
        """Erase the bytes of a file from HEAD and all versions. Return the receipt; None for the action "cancel".

        "mark_broken" leaves versions without the file; "auto_repair" also makes successors of them. Both mark the
        versions, which never change. `token` is that of `impact`: if the impact has changed since, it is a
        `ConflictError`. Repeat the call after an interruption. It waits for writers at work, at most `wait_s` seconds.
        """
        if check_action(action) == "cancel":
            return None
        request = PurgeRequest(path, action, token, reason, author or self._session.settings.author)
        return self.run_purge(request, PurgeOptions(wait_s, progress))

    def check_purge(self, request: PurgeRequest) -> str:
        """Return the id of a purge that may begin, or was begun. Writes nothing.

        If the impact has changed since its token was made, it is a `ConflictError`.
        """
        return check_purge(self._records, self.head, request)

    def run_purge(self, request: PurgeRequest, options: PurgeOptions) -> ErasureReceipt:
        """Do a purge as `purge` does. `options.on_step` hears of each step, and may stop it by an exception."""
        started = start_purge(self._records, self.head, request)
        return finish_purge(self._records, started, options) if isinstance(started, PurgeIntent) else started

    def unfinished_purges(self) -> list[PurgeIntent]:
        """Return the purges that were begun and have no receipt, oldest first."""
        return list_unfinished(self._records)

    def resume_purges(self, *, wait_s: float | None = None, progress: Progress = silent) -> list[ErasureReceipt]:
        """Finish all purges that were interrupted, and return their receipts."""
        options = PurgeOptions(wait_s, progress)
        return [finish_purge(self._records, intent, options) for intent in list_unfinished(self._records)]

    def receipts(self) -> list[ErasureReceipt]:
        """Return the receipts of all purges, oldest first."""
        names = [name for name in self._records.names("purges") if name.endswith("/receipt")]
        found = [receipt for name in names if (receipt := self._records.get(name, ErasureReceipt)) is not None]
        return sorted(found, key=lambda receipt: (receipt.started, receipt.purge_id))

    def state(self, ref: str = HEAD) -> VersionState:
        """Return the state of HEAD (unlabeled or labeled) or of a version (valid, broken or repaired_by)."""
        dataset = self.dataset(ref)
        if ref == HEAD:
            return VersionState(LABELED if dataset.table(ANNOTATIONS).count() else UNLABELED, dataset.version)
        return read_state(self._records, dataset.version)

    def check_integrity(
        self, refs: Sequence[str] | None = None, *, deep: bool = False, progress: Progress = silent
    ) -> IntegrityReport:
        """Look for the files of versions in the store; with `deep`, read and hash them. Without names, check all.

        A version with missing files is recorded as broken.
        """
        names = [HEAD, *(one.name for one in self.versions())] if refs is None else list(refs)
        versions = {name: self.dataset(name).version for name in names}
        return check_versions(self._records, versions, deep=deep, progress=progress)

    def repair(
        self,
        refs: Sequence[str] | None = None,
        *,
        author: str | None = None,
        on_step: Callable[[int, int], None] = ignore_step,
    ) -> RepairReport:
        """Make successors of broken versions, without the files that they lost, and remove those files from HEAD.

        Versions do not change. Without names, all are repaired. First restore what can be restored:
        `wd.verify(…, repair=True)`. Repeat the call after an interruption.
        """
        names = [one.name for one in self.versions()] if refs is None else list(refs)
        versions = {name: self.dataset(name).version for name in names}
        return repair_versions(self._records, versions, author or self._session.settings.author, on_step)

    def annotations_document(self, ref: str = HEAD) -> dict[str, Any]:
        """Return `annotations.json` of HEAD or a version, in Platform Format."""
        return annotations_document(self.dataset(ref))

    def meta_document(self, ref: str = HEAD) -> dict[str, Any]:
        """Return `meta.json` of HEAD or a version."""
        dataset = self.dataset(ref)
        oldest = list(self._session.catalog.history(dataset.version_ref))[-1]
        return meta_document(dataset, oldest.commit.time)

    def snapshot_document(self, name: str) -> dict[str, Any]:
        """Return the document of a version, as `snapshots/<name>.json` of the platform has it."""
        dataset = self.dataset(name)
        entry = next(iter(self._session.catalog.history(dataset.version_ref, limit=1)))
        known = {one.name: one for one in self.versions()}.get(name)
        created = {
            "created_at": known.time if known else entry.commit.time,
            "created_by": entry.commit.author,
            "snapshot_type": known.snapshot_type if known else "manual",
        }
        return snapshot_document(dataset, name, created)
