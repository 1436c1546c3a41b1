"""SQL over the datasets that the caller may read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from warpdata.errors import BadInputError, ErrorKind
from warpdata.limits import MAX_NAME_LENGTH, MAX_QUERY_LENGTH
from warpdata.query import list_sources
from warpdata.repository.catalog import check_dataset_id, parse_address
from warpdata.server.access import Action, AuditEntry, Place, authorize, record
from warpdata.server.caller import Caller, Once, ServiceOf
from warpdata.server.jobs import NewJob
from warpdata.server.routes.jobs import JobView, start_job
from warpdata.server.routes.parameters import Answer, Body, Sentence, dataset_place
from warpdata.server.sql_process import MAX_SQL_ROWS, run_isolated

__all__ = ["router"]

router = APIRouter(prefix="/sql", tags=["sql"])
_MAX_PARAMETERS = 1000
_Value = str | int | float | bool | None
_Query = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_QUERY_LENGTH),
    Field(examples=['SELECT label, count(*) FROM "acme/pets" GROUP BY label']),
]
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]+$", min_length=1, max_length=MAX_NAME_LENGTH)]


class SqlBody(Body):
    """One SELECT. Table names are addresses in quotes, such as `"acme/pets@v1"`."""

    query: _Query
    parameters: list[_Value] | dict[str, _Value] | None = Field(None, max_length=_MAX_PARAMETERS)
    max_rows: Annotated[int, Field(ge=1, le=MAX_SQL_ROWS)] = 1000


class SqlColumn(Answer):
    """A column of a result."""

    name: str
    type: str


class SqlView(Answer):
    """Rows as lists of values. `is_cut` tells that there are more."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    is_cut: bool


class NewSqlVersionBody(Body):
    """A SELECT whose rows become a table of a dataset: of a new one, or of a new version of one that is there."""

    query: _Query
    workspace: _Name
    dataset: _Name
    table: _Name = "main"
    message: Sentence = ""


@router.post("/versions", summary="Make a version of a query", status_code=202, response_model=JobView)
def create_sql_version(caller: Caller, body: NewSqlVersionBody, once: Once) -> Response:
    """Publish all rows of a query as a table, as a job. The query is in the message of the commit.

    Other entries of the dataset stay; a table of this name is replaced. Paths of images become text.
    """
    place = Place(body.workspace, body.dataset)
    authorize(caller, Action.WRITE, place)
    for name in list_sources(body.query):
        authorize(caller, Action.READ, dataset_place(_dataset_of(name)))
    check_dataset_id(str(place))
    arguments = {"query": body.query, "table": body.table, "message": body.message, "author": caller.name}
    return start_job(caller, NewJob("sql-publish", caller.user_id, place, arguments), once)


@router.post("", summary="Run a query")
def run_sql(service: ServiceOf, caller: Caller, body: SqlBody) -> SqlView:
    """Run one SELECT over published tables, and nothing else, within 30 seconds and 1 GiB."""
    names = list_sources(body.query)
    for name in names:
        authorize(caller, Action.READ, dataset_place(_dataset_of(name)))
    with service.database.write() as db:
        record(
            service,
            db,
            caller,
            AuditEntry("sql", ", ".join(names).replace("\0", "")[:1000], None, {"query": body.query[:1000]}),
        )
    return SqlView.model_validate(run_isolated(service.session, body.query, body.parameters, body.max_rows))


def _dataset_of(name: str) -> str:
    """Return the dataset of a table name, `workspace/name[@ref][/table]`."""
    parts = name.split("/")
    if len(parts) > 3:
        raise BadInputError(f"{name[:200]!r} is not the name of a published table", kind=ErrorKind.INVALID_NAME)
    return check_dataset_id(parse_address("/".join(parts[:2])).dataset_id)
