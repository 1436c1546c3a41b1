"""A collection behind a service: reads as over a store, and changes by the routes of the service.

The service checks roles, writes the audit log, and makes the user the author of every change. Long work runs there as
jobs, so it goes on if this program ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from warpdata.collections.changes import Changes
from warpdata.collections.collection import Collection
from warpdata.collections.impact import AffectedVersion, Impact, check_action
from warpdata.collections.integrity import IntegrityReport
from warpdata.collections.purge import ErasureReceipt, PurgeOptions, PurgeRequest
from warpdata.collections.repair import RepairReport, ignore_step
from warpdata.collections.service_upload import COMMIT_TIMEOUT_S, LocalFile, UploadRequest, send_upload
from warpdata.collections.states import read_state
from warpdata.collections.training import TrainingJob
from warpdata.collections.upload import UploadReceipt
from warpdata.collections.versions import HEAD, CollectionVersion, check_version_name
from warpdata.datasets import Dataset, Restored
from warpdata.errors import AlreadyExistsError, BadInputError, DatasetNotFoundError, StorageError
from warpdata.formats.labels import annotation_members, annotation_of
from warpdata.primitives.progress import Progress, ProgressEvent, silent
from warpdata.session import Session, open_cache
from warpdata.storage import ServiceClient, ServiceStore, problem_error

__all__ = ["ServiceCollection", "create_at_service"]

_POLL_S, _LONGEST_POLL_S = 0.1, 2.0


class ServiceCollection(Collection):
    """A collection behind a service. Its methods are those of a collection over a store."""

    def __init__(self, session: Session, dataset_id: str) -> None:
        super().__init__(session, dataset_id)
        assert isinstance(session.writer, ServiceStore), "the caller checked what the session opened"
        self._client = session.writer.client
        self._path = f"/datasets/{dataset_id}"
        self._progress: Progress = silent

    @property
    def client(self) -> ServiceClient:
        """The connection to the service."""
        return self._client

    def open_or_create(self) -> Dataset:
        """Open HEAD. A collection that does not exist is created, with a file for each image."""
        try:
            return self.dataset()
        except DatasetNotFoundError:
            with suppress(AlreadyExistsError):  # another writer was first
                create_at_service(self._client, self._id, packed=False)
            return self.dataset()

    def changes(self, message: str, *, author: str | None = None, key: str | None = None) -> Changes:
        """Collect changes for one commit, which the service makes when the block ends."""
        return _ServiceChanges(self, message, self._author(author), key, self._progress)

    def upload(
        self,
        directory: str | Path,
        *,
        replace: bool = False,
        batch_files: int | None = None,
        progress: Progress = silent,
    ) -> UploadReceipt:
        """Add all files of a directory. Progress counts the bytes that the service has acknowledged."""
        sending = ServiceCollection(self._session, self._id)
        sending._progress = progress
        return Collection.upload(sending, directory, replace=replace, batch_files=batch_files)

    def create_version(self, name: str) -> CollectionVersion:
        """Name the present HEAD. Nothing is copied, and the version never changes."""
        made = self._client.send_json("POST", f"{self._path}/versions", {"name": check_version_name(name)})
        state = read_state(self._records, made["version"])
        return CollectionVersion(made["name"], made["version"], made["time"], made["snapshot_type"], state)

    def restore(self, ref: str, *, author: str | None = None) -> Restored:
        """Make a version HEAD again, as a new commit. A version with erased files is refused."""
        self._author(author)
        done = self._client.send_json("POST", f"{self._path}/versions/{ref}/restore")
        return Restored(self._id, done["branch"], done["version"], done["commit"], done["previous"], done["changed"])

    def start_training(
        self, task_type: str, model_name: str, *, job_id: str | None = None, author: str | None = None
    ) -> TrainingJob:
        """Pin HEAD as `training-job-<id>`, record the job, and return it with the environment of its trainer."""
        self._author(author)
        named = job_id or self._session.new_id()  # a lost answer is asked for again, and finds the same job
        body = {"task_type": task_type, "model_name": model_name, "job_id": named}
        self._client.send_json("POST", f"{self._path}/training-jobs", body)
        return self.job(named)

    def end_training(self, job_id: str, status: str = "completed", *, note: str = "") -> TrainingJob:
        """Record the end of a job, once: "completed", "failed" or "cancelled"."""
        self._client.send_json("POST", f"{self._path}/training-jobs/{job_id}/end", {"status": status, "note": note})
        return self.job(job_id)

    def impact(self, path: str) -> Impact:
        """Return the versions and training jobs that have a file. The service looks them up; lists end after 1,000."""
        found = self._client.get(f"{self._path}/images/{path}/impact")
        return Impact(
            path=found["path"],
            hashes=tuple(found["hashes"]),
            paths=tuple(found["paths"]),
            in_head=found["in_head"],
            affected_versions=tuple(AffectedVersion(**one) for one in found["affected_snapshots"]),
            affected_jobs=tuple(found["affected_jobs"]),
            size_bytes=found["size_bytes"],
            is_packed=found["is_packed"],
            options=tuple(found["options"]),
            token=found["impact_token"],
        )

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
        """Erase the bytes of a file from HEAD and all versions, as a job of the service. The cache here drops them."""
        if check_action(action) == "cancel":
            return None
        request = PurgeRequest(path, action, token, reason, self._author(author))
        return self.run_purge(request, PurgeOptions(wait_s, progress))

    def run_purge(self, request: PurgeRequest, options: PurgeOptions) -> ErasureReceipt:
        """Do a purge as `purge` does. The service waits for other writers itself."""
        body = {"path": request.path, "action": request.action, "token": request.token, "reason": request.reason}
        result = self._run("/purges", body, _by_bytes(options.progress, "delete"))
        receipt = self._records.get(f"purges/{result['purge_id']}/receipt", ErasureReceipt)
        assert receipt is not None, "a purge that is done has a receipt"
        cache = self._session.cache or open_cache(self._session.settings)
        for digest in receipt.hashes:
            cache.remove(digest)
        return receipt

    def check_integrity(
        self, refs: Sequence[str] | None = None, *, deep: bool = False, progress: Progress = silent
    ) -> IntegrityReport:
        """Look for the files of versions in the store, as a job of the service."""
        names = [HEAD, *(one.name for one in self.versions())] if refs is None else list(refs)
        body = {"kind": "integrity", "refs": None if refs is None else names, "deep": deep}
        result = self._run("/jobs", body, _by_bytes(progress, "check"))
        states = {name: read_state(self._records, self.dataset(name).version) for name in names}
        return IntegrityReport(states, result["checked_blobs"], result["checked_bytes"], tuple(result["problem_list"]))

    def repair(
        self,
        refs: Sequence[str] | None = None,
        *,
        author: str | None = None,
        on_step: Callable[[int, int], None] = ignore_step,
    ) -> RepairReport:
        """Make successors of broken versions, and remove lost files from HEAD, as a job of the service."""
        self._author(author)
        result = self._run("/jobs", {"kind": "repair", "refs": None if refs is None else list(refs)}, on_step)
        return RepairReport(dict(result["successors"]), result["head"])

    def send_labels(self, images: Sequence[Mapping[str, Any]], key: str | None) -> str:
        """Annotate images of HEAD with one commit, and return the version. It takes the role of a labeler."""
        body = {"images": images, "key": key or self._session.new_id()}
        reply = self._client.send_json("POST", f"{self._path}/annotations", body, timeout_s=COMMIT_TIMEOUT_S)
        return str(reply["version"])

    def _author(self, given: str | None) -> str:
        """Return the user, who is the author of every change."""
        user = self._session.settings.author
        if given not in (None, user):
            raise BadInputError(
                f"author={given!r} is not the user {user!r} of the service",
                hint="Leave it out: the user is the author.",
            )
        return user

    def _run(self, path: str, body: Mapping[str, Any], on_step: Callable[[int, int], None]) -> Mapping[str, Any]:
        """Start a job, wait for its end, and return its result. It goes on if this program ends."""
        key = self._session.new_id()
        job = self._client.post(f"{self._path}{path}", dict(body), key=key)
        pause = _POLL_S
        while job["state"] in ("queued", "running"):
            on_step(job["done"], job["total"])
            self._session.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)
            job = self._client.get(f"/jobs/{job['id']}")
        if job["state"] == "failed":
            raise problem_error(job["error"])
        if job["state"] != "done":
            raise StorageError(
                f"job {job['id']} is {job['state']}", hint=f"POST /jobs/{job['id']}/resume continues it."
            )
        on_step(job["total"], job["total"])
        result: Mapping[str, Any] = job["result"]
        return result


class _ServiceChanges(Changes):
    """Changes that a service commits. Files wait on this machine until then."""

    def __init__(
        self, collection: ServiceCollection, message: str, author: str, key: str | None, progress: Progress
    ) -> None:
        super().__init__(collection.open_or_create, message, author, key)
        self._collection = collection
        self._progress = progress

    def _commit_pending(self) -> str:
        pending = self._pending
        labels = _labels_of(pending.annotations)
        for path in pending.cleared:
            labels.setdefault(path, [])
        files = [LocalFile(new.stored, new.content) for new in pending.files.values()]
        collection = self._collection
        if not files and not pending.removed and not pending.updated:
            images = [
                {"path": path, "annotations": listed, "replace": path in pending.cleared}
                for path, listed in labels.items()
            ]
            return collection.send_labels(images, self._key)
        plan = {"message": self._message, "images": self._said(labels), "remove": list(pending.removed)}
        return send_upload(collection.client, UploadRequest(collection.id, files, plan, self._key), self._progress)

    def _said(self, labels: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Return what the commit says about each image."""
        pending = self._pending
        said: list[dict[str, Any]] = []
        for path in dict.fromkeys([*pending.files, *labels, *pending.updated]):
            new = pending.files.get(path)
            about = new.row if new is not None else pending.updated.get(path, {})
            replaces = new.replaces if new is not None else path in pending.cleared
            one = {"path": path, "annotations": labels.get(path, []), "replace": replaces}
            one |= {name: about[name] for name in ("split", "tags") if about.get(name) is not None}
            said.append(one)
        return said


def create_at_service(client: ServiceClient, dataset_id: str, *, packed: bool) -> None:
    """Let the service create a collection without files. Raise `AlreadyExistsError` if the dataset exists."""
    client.send_json("POST", f"/datasets/{dataset_id}/collection", {"packed": packed})


def _labels_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the annotations of each image, as the service takes them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["image"], []).append(annotation_members(annotation_of(row)))
    return found


def _by_bytes(progress: Progress, stage: str) -> Callable[[int, int], None]:
    """Return a function that reports the progress of a job."""

    def report(done: int, total: int) -> None:
        progress(ProgressEvent(stage, 0, 0, done, total))

    return report
