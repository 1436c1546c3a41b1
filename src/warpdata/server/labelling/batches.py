"""Batches: images of one version that go to a labelling tool, and what comes back by polling.

A batch is a project of Label Studio with a task for each image, bound to the hash and the version of its bytes. Labels
come back by three ways: the target storage, a webhook, and polling. An item of the inbox is the same by each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from warpdata.collections import Collection, label_set
from warpdata.datasets import Dataset
from warpdata.errors import BadInputError, ErrorKind, LimitExceededError, NotFoundError, WarpError
from warpdata.formats.labels import LabelClass, LabeledImage, LabelSet, label_config, label_studio_task
from warpdata.limits import MAX_BATCH_TASKS
from warpdata.server.access import Place
from warpdata.server.database import LabelBatchRow, LabelConnectionRow
from warpdata.server.labelling.checks import storage_of
from warpdata.server.labelling.connections import connection_link, events_url, find_connection, studio_of
from warpdata.server.labelling.inbox_sync import announce_items, sync_inbox
from warpdata.server.labelling.studio_api import StudioApi
from warpdata.server.service import Service

if TYPE_CHECKING:
    from warpdata.server.jobs.run import JobRun

__all__ = ["find_batch", "list_batches", "poll_connection", "send_batch", "sync_labels"]

_CHUNK = 250
_ACTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
_KINDS = ("box", "polygon", "polyline", "mask", "keypoints", "label")
"""All that a region can be, so that none of a prediction is left out and comes back as removed."""


@dataclass(frozen=True)
class _Sending:
    """One attempt to send a batch."""

    run: JobRun
    studio: StudioApi
    row: LabelConnectionRow
    dataset: Dataset
    images: Sequence[LabeledImage]


def list_batches(service: Service, connection_id: str) -> list[LabelBatchRow]:
    """Return the batches of a connection, newest first."""
    query = select(LabelBatchRow).where(LabelBatchRow.connection_id == connection_id)
    with service.database.read() as db:
        return list(db.scalars(query.order_by(LabelBatchRow.created.desc(), LabelBatchRow.id.desc())))


def find_batch(service: Service, connection_id: str, batch_id: str) -> LabelBatchRow:
    """Return a batch of a connection."""
    with service.database.read() as db:
        row = db.get(LabelBatchRow, batch_id)
    if row is None or row.connection_id != connection_id:
        raise NotFoundError(f"there is no batch {batch_id!r}")
    return row


def send_batch(run: JobRun) -> Mapping[str, Any]:
    """Make a project with a task for each image. Continues behind the last tasks that were imported."""
    service, given = run.service, run.arguments
    try:
        return _send(run)
    except WarpError as error:
        _update(service, given["batch_id"], error=error.message)
        raise


def _send(run: JobRun) -> Mapping[str, Any]:
    service, given = run.service, run.arguments
    place = Place(run.row.workspace, run.row.dataset)
    row = find_connection(service, place, given["connection_id"])
    _, dataset = service.open(run.dataset_id, given["version"])
    images = list(_chosen_images(dataset, given["paths"], given["filter"], given["class_name"]))
    if not images:
        raise BadInputError("no image matches", hint="Choose images of this version.")
    if len(images) > MAX_BATCH_TASKS:
        raise LimitExceededError(f"a batch has at most {MAX_BATCH_TASKS:,} images, and {len(images):,} were chosen")
    sending = _Sending(run, studio_of(service, row), row, dataset, images)
    saved = dict(run.checkpoint)
    if "project" not in saved:
        saved = {"project": _make_project(sending), "done": 0}
        run.save(saved)
        _update(service, given["batch_id"], project=str(saved["project"]), tasks=len(images))
        run.log(f"made project {saved['project']}")
    _import(sending, saved)
    _update(service, given["batch_id"], tasks=len(images), error=None)
    run.count(len(images), len(images))
    return {"project": saved["project"], "tasks": len(images), "version": dataset.version}


def _chosen_images(
    dataset: Dataset, paths: Sequence[str] | None, where: str | None, class_name: str | None
) -> Iterator[LabeledImage]:
    wanted = None if paths is None else set(paths)
    for image in label_set(dataset, where).images:
        has_class = class_name is None or any(one.class_name == class_name for one in image.annotations)
        if has_class and (wanted is None or image.path in wanted):
            yield image


def _make_project(sending: _Sending) -> int:
    """Make the project, with storages that read the version and send labels to the inbox, and a webhook."""
    run, studio, dataset = sending.run, sending.studio, sending.dataset
    given, row, base = run.arguments, sending.row, run.arguments["base"]
    classes = given["classes"] or label_set(dataset).class_names
    if not classes:
        raise BadInputError("the version has no classes", hint="Name the classes to label.")
    config = label_config(LabelSet.of([], [LabelClass(one) for one in classes]), _KINDS)
    description = f"{dataset.id}@{dataset.version[:12]}, batch {given['batch_id']}"
    project = studio.create_project(given["title"], config, description)
    link = connection_link(run.service, row, base, "HEAD")  # hashes are read and not listed; any prefix resolves tasks
    source = storage_of(link, project) | {"presign": True, "presign_ttl": 240, "title": "images"}
    studio.expect("add the images as a storage", "POST", "/api/storages/s3", source)
    target = storage_of(link, project, f"{row.dataset}/{dataset.version}/inbox/project-{project}")
    studio.expect("add the inbox as a storage", "POST", "/api/storages/export/s3", target | {"title": "inbox"})
    hook = {"url": events_url(base, row), "project": project, "send_payload": True, "send_for_all_actions": False}
    hook |= {"actions": list(_ACTIONS), "headers": {"X-Warp-Secret": row.secret}}
    answer = studio.call("POST", "/api/webhooks/", hook)
    if answer.status != 201:
        run.log(f"without a webhook, labels come by the storage and by polling: {answer.text[:200]}")
    return project


def _import(sending: _Sending, saved: dict[str, Any]) -> None:
    run, dataset, images = sending.run, sending.dataset, sending.images
    workspace, _, name = dataset.id.partition("/")
    for start in range(int(saved["done"]), len(images), _CHUNK):
        part = images[start : start + _CHUNK]
        tasks = []
        for image in part:
            shown = image if run.arguments["pre_labels"] else _without_labels(image)
            url = f"s3://{workspace}/{name}/{dataset.version}/images/{image.path}"
            tasks.append(label_studio_task(shown, url, version=dataset.version, is_prediction=True))
        sending.studio.import_tasks(int(saved["project"]), tasks)
        saved = {**saved, "done": start + len(part)}
        run.progress(start + len(part), len(images))
        run.save(saved)


def _without_labels(image: LabeledImage) -> LabeledImage:
    return LabeledImage(image.path, [], image.width, image.height, image.split, image.tags, image.hash)


def sync_labels(run: JobRun) -> Mapping[str, Any]:
    """Bring the inbox of a dataset up to date: files of the gateway, and the projects of its connections."""
    count, unread = sync_inbox(run.service, run.dataset_id)
    for name, reason in unread[:100]:
        run.log(f"{name} is no label: {reason}")
    received = failed = 0
    with run.service.database.read() as db:
        query = select(LabelConnectionRow).where(
            LabelConnectionRow.workspace == run.row.workspace, LabelConnectionRow.dataset == run.row.dataset
        )
        rows = list(db.scalars(query))
    for row in rows:
        run.check()
        try:
            received += poll_connection(run.service, row)
        except WarpError as error:
            failed += 1
            run.log(f"{row.name}: {error.message}")
    return {"files": count, "unread": len(unread), "received": received, "failed": failed}


def poll_connection(service: Service, row: LabelConnectionRow) -> int:
    """Ask a tool for the labels of its batches, and return how many items the inbox has of them."""
    if row.tool != "label-studio":
        return 0
    studio, total = studio_of(service, row), 0
    for batch in list_batches(service, row.id):
        if batch.project is not None:
            total += _poll_batch(service, studio, row, batch)
    return total


def _poll_batch(service: Service, studio: StudioApi, row: LabelConnectionRow, batch: LabelBatchRow) -> int:
    dataset_id = f"{row.workspace}/{row.dataset}"
    inbox = Collection(service.session, dataset_id).inbox
    tasks = studio.annotated_tasks(int(batch.project or 0))
    items: list[str] = []
    problem = None
    for task in tasks:
        for annotation in task.get("annotations") or []:
            sent = {**annotation, "task": {"id": task.get("id"), "data": task.get("data")}}
            try:
                items += inbox.receive(json.dumps(sent).encode(), "label-studio", version=batch.version)
            except WarpError as error:
                if error.kind == ErrorKind.STORE_UNAVAILABLE:
                    raise
                problem = f"a label of task {task.get('id')} is not read: {error.message}"
    if len(items) > batch.received:
        announce_items(service, dataset_id, items)
    _update(service, batch.id, labelled=len(tasks), received=len(set(items)), error=problem, polled=service.now())
    return len(items)


def _update(service: Service, batch_id: str, **values: Any) -> None:
    with service.database.write() as db:
        row = db.get(LabelBatchRow, batch_id)
        if row is not None:
            for name, value in values.items():
                setattr(row, name, value)
