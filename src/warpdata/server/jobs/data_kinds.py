"""Jobs that move data: exports as files to download, and imports of uploaded files or of an archive at a URL.

An export that was interrupted begins again. An import publishes the same version again, which changes nothing.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from warpdata.collections import (
    FILES,
    Collection,
    LabelExportRequest,
    export_labels,
    is_collection,
    quoted_lists,
)
from warpdata.datasets import Dataset, open_dataset
from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.exporters import EXPORT_FORMATS, ExportOptions, export_dataset
from warpdata.ingest import IngestReport, audiofolder, csv, imagefolder, webdataset
from warpdata.limits import MAX_FETCHED_BYTES
from warpdata.primitives.progress import Progress, ProgressEvent
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, find_head
from warpdata.server.access import Place
from warpdata.server.index import record_change
from warpdata.server.jobs.results import keep_result
from warpdata.server.jobs.run import JobRun
from warpdata.server.jobs.selections import selected_paths
from warpdata.server.quotas import check_quota
from warpdata.server.safe_http import FetchLimits, stream_safely
from warpdata.server.unpacking import ARCHIVE_SUFFIXES, place_file, unpack_archive
from warpdata.server.uploads import copy_files, discard_upload, find_upload

__all__ = ["IMPORT_FORMATS", "LABEL_EXPORTS", "SERVICE_EXPORTS", "export_version", "import_dataset"]

SERVICE_EXPORTS = ("platform", "files")
"""Formats beside those of the library: a collection in Platform Format, and the plain files of an artifact."""
LABEL_EXPORTS = ("coco", "yolo", "voc", "cvat", "label-studio", "datumaro")
"""Formats of labels, for collections."""
IMPORT_FORMATS = ("imagefolder", "audiofolder", "tables", "webdataset", "platform", "files")
_FETCH = FetchLimits(connect_s=10, total_s=24 * 3600, max_bytes=MAX_FETCHED_BYTES, max_redirects=5)
_CHUNK_BYTES = 4 * 1024 * 1024


def export_version(run: JobRun) -> Mapping[str, Any]:
    """Write a version in a format, as one ZIP archive, and keep it for a week."""
    given = run.arguments
    _, dataset = run.service.open(run.dataset_id, given["version"])
    name = f"{dataset.id.replace('/', '-')}-{dataset.version[:12]}-{given['format']}"
    with TemporaryDirectory(prefix="warp-export-") as directory:
        folder, archive = Path(directory, "export"), Path(directory, "export.zip")
        report = _write(run, dataset, folder)
        run.log(f"packing {given['format']}")
        _pack(folder, archive, run.check)
        file = keep_result(run.service, run.row.id, archive, f"{name}.zip")
    return {"version": dataset.version, "format": given["format"], "file": file, "report": report}


def import_dataset(run: JobRun) -> Mapping[str, Any]:
    """Read files in a format, and publish them as a version of the dataset. An upload is used up."""
    given = run.arguments
    with TemporaryDirectory(prefix="warp-import-") as directory:
        folder = Path(directory, "files")
        folder.mkdir()
        with _stage_errors(directory):
            files = _fetch(run, Path(directory), folder)
            _unpack_single(folder, Path(directory))
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            check_quota(run.service, run.row.workspace, files, size)
            run.log(f"read {size:,} bytes")
            version, rows = _publish(run, folder)
    detail = {"version": version, "format": given["format"]}
    record_change(run.service, run.principal, run.dataset_id, "import", detail)
    if given.get("upload"):
        discard_upload(run.service, _upload_of(run))
    return {"version": version, "format": given["format"], "rows": rows}


def _write(run: JobRun, dataset: Dataset, folder: Path) -> Mapping[str, Any]:
    """Write the files of an export, and return what its report says."""
    given = run.arguments

    def on_progress(event: ProgressEvent) -> None:
        run.progress(event.done_bytes, event.total_bytes)

    if given["format"] in LABEL_EXPORTS:
        return _write_labels(run, dataset, folder, on_progress)
    if given["format"] in EXPORT_FORMATS:
        options = ExportOptions(
            given.get("table"), given.get("columns"), given.get("filter"), given.get("label"), given.get("split")
        )
        report = export_dataset(dataset, folder, given["format"], options, on_progress).document()
        return {name: value for name, value in report.items() if name != "target"}
    artifact = dataset.artifact(given.get("artifact") or (FILES if FILES in dataset.artifacts else None))
    top = folder / "images" if given["format"] == "platform" else folder
    total = artifact.entry.member_count
    for done, member in enumerate(artifact.members()):
        run.progress(done, total)
        with place_file(top, member.path).open("xb") as out, artifact.open(member.path) as content:
            while chunk := content.read(_CHUNK_BYTES):
                out.write(chunk)
    if given["format"] == "platform":
        collection = Collection(run.service.session, dataset.id)
        for document, make in (
            ("annotations.json", collection.annotations_document),
            ("meta.json", collection.meta_document),
        ):
            place_file(folder, document).write_text(json.dumps(make(dataset.version), indent=1), encoding="utf-8")
    return {"files": total}


def _write_labels(run: JobRun, dataset: Dataset, folder: Path, on_progress: Progress) -> Mapping[str, Any]:
    """Write the labels and images of a selection. The report lists what the format does not hold."""
    given = run.arguments
    where = given.get("filter")
    if given.get("paths") or given.get("class_name"):
        wanted = selected_paths(run)
        where = " OR ".join(f"({one})" for one in quoted_lists("path", wanted)) or "path = ''"
    report = export_labels(dataset, folder, LabelExportRequest(given["format"], where=where), on_progress).document()
    return {name: value for name, value in report.items() if name != "target"}


def _pack(folder: Path, archive: Path, check: Callable[[], None]) -> None:
    """Write a directory as a ZIP archive without compression: most files are compressed already."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED, strict_timestamps=False) as out:
        for path in sorted(folder.rglob("*")):
            check()
            if path.is_file():
                out.write(path, path.relative_to(folder).as_posix())


def _fetch(run: JobRun, directory: Path, folder: Path) -> int:
    """Bring the files of an import to this machine, and return their number."""
    given = run.arguments
    if given.get("upload"):
        return copy_files(run.service, _upload_of(run), lambda path: place_file(folder, path), run.check)
    name = urlsplit(given["url"]).path.rpartition("/")[2] or "download"
    partial, digest, total = directory / "download", sha256(), 0

    def on_total(size_bytes: int) -> None:
        nonlocal total
        total = size_bytes
        check_quota(run.service, run.row.workspace, 1, size_bytes)

    with partial.open("wb") as out:
        for chunk in stream_safely(run.service.addresses, given["url"], _FETCH, on_total):
            out.write(chunk)
            digest.update(chunk)
            run.progress(out.tell(), max(total, out.tell()))
    if given.get("sha256") not in (None, digest.hexdigest()):
        raise InvalidSourceError(f"{name!r} has SHA-256 {digest.hexdigest()}, expected {given['sha256']}")
    partial.rename(place_file(folder, name))
    return 1


def _unpack_single(folder: Path, directory: Path) -> None:
    """Replace a single archive by its files."""
    found = list(folder.iterdir())
    if len(found) == 1 and found[0].is_file() and found[0].name.lower().endswith(ARCHIVE_SUFFIXES):
        archive = found[0].rename(directory / "archive")
        unpack_archive(archive, found[0].name, folder)


def _publish(run: JobRun, folder: Path) -> tuple[str, int | None]:
    """Publish the files, and return the version and the number of rows, if the format has rows."""
    given, session = run.arguments, run.service.session_of(run.principal.name)
    dataset_id, message = run.dataset_id, given.get("message") or f"import {given['format']}"
    top = _single_directory(folder)
    if given["format"] == "platform":
        receipt = Collection(session, dataset_id).upload(top, replace=given["replace"], progress=lambda _: run.check())
        return receipt.version, len(receipt.files)
    if given["format"] == "files":
        builder = DatasetBuilder(dataset_id, session).add_artifact(given.get("artifact") or "files", top)
    else:
        builder = _ingest(run, top)
    head = find_head(session.writer, dataset_id, MAIN)
    if head is not None and is_collection(open_dataset(session, Address(dataset_id, head.version))):
        raise BadInputError(f"{dataset_id} is a collection", hint="Import Platform Format, or choose another name.")
    published = builder.publish(message, replace=given["replace"], progress=lambda _: run.check())
    _, manifest = session.catalog.open(Address(dataset_id, published.version))
    return published.version, manifest.row_count


def _ingest(run: JobRun, top: Path) -> DatasetBuilder:
    given, session = run.arguments, run.service.session_of(run.principal.name)
    table = given.get("table") or "main"

    def report(found: IngestReport) -> None:
        run.log(f"{found.rows:,} rows, {found.members:,} files, skipped {sum(found.ignored.values()):,}")

    match given["format"]:
        case "imagefolder":
            return imagefolder(run.dataset_id, top, store=session, table=table, report=report)
        case "audiofolder":
            return audiofolder(run.dataset_id, top, store=session, table=table, report=report)
        case "webdataset":
            return webdataset(run.dataset_id, top, store=session, report=report)
        case _:
            return csv(run.dataset_id, top, store=session, table=table, report=report)


def _single_directory(folder: Path) -> Path:
    """Return the directory that an archive has at its top, if there is nothing beside it."""
    found = list(folder.iterdir())
    return found[0] if len(found) == 1 and found[0].is_dir() and found[0].name != "images" else folder


@contextmanager
def _stage_errors(directory: str) -> Iterator[None]:
    """Name files as the user knows them: paths of this machine stay out of messages."""
    try:
        yield
    except InvalidSourceError as error:
        shown = error.message.replace(f"{directory}/files/", "").replace(f"{directory}/files", "the import")
        raise InvalidSourceError(shown, hint=error.hint, kind=error.kind) from error


def _upload_of(run: JobRun) -> Any:
    return find_upload(run.service, Place(run.row.workspace, run.row.dataset), run.arguments["upload"])
