"""The job that makes a version of the rows of a query. The query is in the message of the commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from warpdata.collections import is_collection
from warpdata.datasets import open_dataset
from warpdata.errors import BadInputError
from warpdata.limits import MAX_MESSAGE_LENGTH
from warpdata.publish import DatasetBuilder
from warpdata.repository.catalog import MAIN, Address, find_head
from warpdata.server.index import record_change
from warpdata.server.jobs.run import JobRun
from warpdata.server.quotas import check_quota
from warpdata.server.sql_process import write_isolated

__all__ = ["publish_query"]


def publish_query(run: JobRun) -> Mapping[str, Any]:
    """Run a query into a file, and publish it as a table. Other entries of the dataset stay."""
    given, session = run.arguments, run.service.session_of(run.principal.name)
    head = find_head(session.writer, run.dataset_id, MAIN)
    if head is not None and is_collection(open_dataset(session, Address(run.dataset_id, head.version))):
        raise BadInputError(f"{run.dataset_id} is a collection", hint="Choose another name.")
    with TemporaryDirectory(prefix="warp-sql-") as directory:
        target = Path(directory, "rows.parquet")
        rows = write_isolated(run.service.session, given["query"], target)
        run.log(f"the query has {rows:,} rows")
        run.check()
        check_quota(run.service, run.row.workspace, 1, target.stat().st_size)
        message = "\n\n".join(part for part in (given["message"], given["query"]) if part)
        builder = DatasetBuilder(run.dataset_id, session).add_table(given["table"], str(target))
        version = builder.publish(message[:MAX_MESSAGE_LENGTH], keep=head is not None).version
    detail = {"version": version, "rows": rows, "query": given["query"][:1000]}
    record_change(run.service, run.principal, run.dataset_id, "sql-publish", detail)
    return {"version": version, "rows": rows, "table": given["table"]}
