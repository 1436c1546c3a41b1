"""Parameters and answers that several resources share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeVar

from fastapi import Header, Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints

from warpdata.errors import BadInputError, ConflictError, ErrorKind
from warpdata.limits import MAX_FILTER_LENGTH, MAX_MESSAGE_LENGTH, MAX_NAME_LENGTH, MAX_REF_LENGTH
from warpdata.server.access import Action, Place, authorize
from warpdata.server.caller import Caller
from warpdata.server.samples import MAX_PAGE_ROWS

__all__ = [
    "Answer",
    "Authorized",
    "Body",
    "DatasetName",
    "EntryName",
    "FilterText",
    "IfMatch",
    "PageCursor",
    "PageLimit",
    "RefName",
    "RefQuery",
    "RefText",
    "Sentence",
    "WorkspaceName",
    "check_match",
    "dataset_place",
    "page_behind",
]

T = TypeVar("T")
_NAME = r"^[a-z0-9_-]+$"
_REF = r"^[A-Za-z0-9][A-Za-z0-9._~@:+-]*$"


class Answer(BaseModel):
    """An answer. Keys may be added later; none is renamed or removed."""

    model_config = ConfigDict(from_attributes=True)


class Body(BaseModel):
    """The body of a request. Unknown keys are refused, so that a misspelled option is not ignored."""

    model_config: ClassVar[ConfigDict] = {"extra": "forbid", "strict": True}


WorkspaceName = Annotated[str, Path(pattern=_NAME, max_length=MAX_NAME_LENGTH, examples=["acme"])]
DatasetName = Annotated[str, Path(pattern=_NAME, max_length=MAX_NAME_LENGTH, examples=["pets"])]
RefQuery = Annotated[
    str | None,
    Query(
        pattern=_REF,
        max_length=MAX_REF_LENGTH,
        description="A version, label or branch, perhaps with `~2` or a time. Default: the head of `main`.",
        examples=["main"],
    ),
]
RefName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=MAX_REF_LENGTH)]
RefText = Annotated[str, StringConstraints(pattern=_REF, max_length=MAX_REF_LENGTH)]
Sentence = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=MAX_MESSAGE_LENGTH)]
EntryName = Annotated[
    str | None, Query(pattern=r"^[^\x00-\x1f/]+$", max_length=MAX_NAME_LENGTH, description="Default: the only one.")
]
FilterText = Annotated[
    str | None,
    Query(
        max_length=MAX_FILTER_LENGTH,
        description="An SQL expression over the columns of the table.",
        examples=["label = 'cat' AND width > 100"],
    ),
]
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE_ROWS)]
PageCursor = Annotated[
    str | None, Query(max_length=1024, description="The `next_cursor` of the page before.", pattern=r"^[A-Za-z0-9_-]+$")
]

IfMatch = Annotated[
    str | None,
    Header(pattern=r'^"[0-9a-f]{64}"$', description="The ETag that was seen. Another state is a conflict."),
]


def check_match(if_match: str | None, etag: str, what: str) -> None:
    """Raise `ConflictError` unless the state is still that of `If-Match`."""
    if if_match not in (None, etag):
        raise ConflictError(
            f"{what} changed: the ETag is {etag}, not {if_match}", hint="Read it again, and decide about what is there."
        )


class Authorized:
    """A dependency that returns the id of a dataset, if the caller may do this action there."""

    def __init__(self, action: Action) -> None:
        self._action = action

    async def __call__(self, caller: Caller, workspace: WorkspaceName, name: DatasetName) -> str:
        authorize(caller, self._action, Place(workspace, name))
        return f"{workspace}/{name}"


def dataset_place(dataset_id: str) -> Place:
    workspace, _, name = dataset_id.partition("/")
    return Place(workspace, name)


def page_behind(items: Sequence[tuple[str, T]], cursor: str | None, limit: int) -> tuple[list[T], str | None]:
    """Return the items behind the one that the cursor names, and the next cursor. Names are unique."""
    start = 0
    if cursor is not None:
        names = [name for name, _ in items]
        if cursor not in names:
            raise BadInputError(f"the cursor {cursor!r} is not in this list", kind=ErrorKind.TOKEN_MISMATCH)
        start = names.index(cursor) + 1
    page = items[start : start + limit]
    following = page[-1][0] if start + limit < len(items) else None
    return [item for _, item in page], following
