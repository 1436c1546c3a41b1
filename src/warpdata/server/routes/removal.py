"""Removal of images: from HEAD, or a purge that erases the bytes from all versions after a confirmation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse

from warpdata.collections import Collection
from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_MESSAGE_LENGTH
from warpdata.server.caller import Caller, ServiceOf
from warpdata.server.index import record_change
from warpdata.server.problems import MEDIA_TYPE, Problem, problem
from warpdata.server.routes.collections import ImagePath, open_collection
from warpdata.server.routes.datasets import Readable
from warpdata.server.routes.parameters import Answer
from warpdata.server.routes.refs import Writable

__all__ = ["ConfirmationProblem", "router"]

router = APIRouter(prefix="/datasets/{workspace}/{name}/images", tags=["removal"])
_WAIT_S = 20.0
"""A purge waits for other writers at most this long within a request. Repeat the request to finish it."""
_LISTED = 1000


class AffectedVersionView(Answer):
    """A version that has the file."""

    label: str
    version: str
    snapshot_type: str


class ImpactView(Answer):
    """What a purge of a path would take away. Lists end after 1,000 entries; counts are complete.

    `impact_token` names this state: a purge with the token of another one is a conflict.
    """

    status: str
    path: str
    hashes: list[str]
    paths: list[str]
    in_head: bool
    affected_snapshots: list[AffectedVersionView]
    affected_snapshot_count: int
    affected_jobs: list[str]
    affected_job_count: int
    size_bytes: int
    is_packed: bool
    options: list[str]
    impact_token: str


class ErasureReceiptView(Answer):
    """The proof of a purge: who erased what, which versions and jobs lost it, and the final scan of the store.

    Lists end after 200 entries; counts are complete.
    """

    purge_id: str
    dataset_id: str
    path: str
    paths: list[str]
    hashes: list[str]
    action: str
    author: str
    reason: str
    started: str
    finished: str
    erased_keys: list[str]
    erased_bytes: int
    broken_versions: list[str]
    broken_count: int
    successors: list[str]
    successor_count: int
    jobs: list[str]
    job_count: int
    scanned_versions: int
    remaining_keys: list[str]
    is_clean: bool


class RemovalView(Answer):
    """What was done. `version` is the new HEAD of a removal; `receipt` is that of a purge."""

    status: Literal["removed_from_head", "purged", "cancelled"]
    path: str
    version: str | None = None
    receipt: ErasureReceiptView | None = None


class ConfirmationProblem(Problem):
    """A conflict. With the code `confirmation_required`, `impact` says what the purge would take away."""

    impact: ImpactView | None = None


class RemovalQuery:
    """The options of a removal."""

    def __init__(
        self,
        *,
        purge: Annotated[bool, Query(description="Erase the bytes from all versions too.")] = False,
        action: Annotated[Literal["mark_broken", "auto_repair", "cancel"] | None, Query()] = None,
        token: Annotated[
            str | None, Query(pattern=r"^[0-9a-f]{64}$", description="The `impact_token` that was confirmed.")
        ] = None,
        reason: Annotated[str, Query(max_length=MAX_MESSAGE_LENGTH, pattern=r"^[^\x00]*$")] = "",
    ) -> None:
        self.purge = purge
        self.action = action
        self.token = token
        self.reason = reason


_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {
        "description": "The purge needs a confirmation, or its impact has changed.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ConfirmationProblem"}}},
    }
}


@router.get("/{path:path}/impact", summary="Show the impact of a purge")
def get_impact(service: ServiceOf, dataset_id: Readable, path: ImagePath) -> ImpactView:
    """Show the versions and training jobs that have a file, and the token that its purge needs."""
    return _impact_view(open_collection(service, dataset_id), path)


@router.delete("/{path:path}", summary="Remove or purge an image", response_model=RemovalView, responses=_CONFLICT)
def delete_image(
    *,
    service: ServiceOf,
    caller: Caller,
    dataset_id: Writable,
    path: ImagePath,
    options: Annotated[RemovalQuery, Depends()],
) -> RemovalView | Response:
    """Remove an image from HEAD, which harms no version. With `purge=true`, erase its bytes from all versions.

    The first request for a purge is answered with its impact. Repeat it with an action and the token. `mark_broken`
    leaves versions without the image; `auto_repair` also makes successors of them; `cancel` does nothing. A request
    that was interrupted is repeated, and returns the receipt.
    """
    if not options.purge and (options.action or options.token):
        raise BadInputError("action and token are for a purge", hint="Send purge=true with them.")
    collection = open_collection(service, dataset_id, caller.name)
    if not options.purge:
        version = collection.remove(path)
        record_change(service, caller, dataset_id, "remove-image", {"path": path, "version": version})
        return RemovalView(status="removed_from_head", path=path, version=version)
    if options.action == "cancel":
        return RemovalView(status="cancelled", path=path)
    if options.token is None or options.action is None:
        return _confirmation(_impact_view(collection, path))
    receipt = collection.purge(path, options.action, token=options.token, reason=options.reason, wait_s=_WAIT_S)
    assert receipt is not None, "only the action cancel has no receipt"
    detail = {"path": path, "action": receipt.action, "purge": receipt.purge_id, "reason": receipt.reason}
    record_change(service, caller, dataset_id, "purge-image", detail)
    return RemovalView(status="purged", path=path, receipt=ErasureReceiptView.model_validate(receipt))


def _impact_view(collection: Collection, path: str) -> ImpactView:
    found = collection.impact(path)
    return ImpactView(
        status=found.status,
        path=found.path,
        hashes=list(found.hashes[:_LISTED]),
        paths=list(found.paths),
        in_head=found.in_head,
        affected_snapshots=[AffectedVersionView.model_validate(one) for one in found.affected_versions[:_LISTED]],
        affected_snapshot_count=len(found.affected_versions),
        affected_jobs=list(found.affected_jobs[:_LISTED]),
        affected_job_count=len(found.affected_jobs),
        size_bytes=found.size_bytes,
        is_packed=found.is_packed,
        options=list(found.options),
        impact_token=found.token,
    )


def _confirmation(impact: ImpactView) -> JSONResponse:
    """Return the question that a purge asks first."""
    code = ErrorKind.CONFIRMATION_REQUIRED
    detail = (
        f"a purge of {impact.path!r} takes it from {impact.affected_snapshot_count} versions "
        f"and {impact.affected_job_count} training jobs"
    )
    hint = "Choose one of `options`, and send the request again with it as `action` and `impact_token` as `token`."
    return problem(409, code, detail, hint, extra={"impact": impact.model_dump()})
