"""Options, execution and output of an edit, shared by the commands that change rows, columns and files.

A command runs its steps on a draft first, so the numbers it shows and asks about are those of the commit. A dry run,
a "no" and an error discard the draft: the branch stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warpdata.cli.context import CliContext
from warpdata.cli.format import short
from warpdata.cli.options import apply_options
from warpdata.cli.output import note, print_facts, print_json
from warpdata.cli.parameters import EntryType
from warpdata.cli.progress import ProgressLine
from warpdata.errors import ErrorKind, NotFoundError
from warpdata.primitives.progress import ProgressEvent
from warpdata.repository.catalog import MAIN

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import Edit

__all__ = [
    "EDIT_KEYS",
    "EditRequest",
    "edit_options",
    "edit_table_option",
    "pick_table",
    "run_edit",
    "text_message",
    "where_option",
    "yes_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_MAX_MESSAGE_LENGTH = 200

EDIT_KEYS = {
    "dataset_id": "workspace/name",
    "branch": "the branch that changes",
    "base": "the version that the edit began at",
    "version": "version of the branch after the edit; null if nothing was committed",
    "commit": "id of the commit; null if nothing was committed",
    "committed": "false with --dry-run, if nothing changes, or if the question was answered with no",
    "appended": "number of new rows by table",
    "updated": "number of changed rows by table",
    "deleted": "number of deleted rows by table",
    "columns": "list of changes of columns, as text",
    "files_added": "number of new files by artifact",
}


@dataclass(frozen=True, slots=True)
class EditRequest:
    """Options of an edit, independent of its steps."""

    dataset_id: str
    branch: str
    message: str | None
    author: str | None
    dry_run: bool
    yes: bool = True


def edit_options(function: _F) -> _F:
    """Add one option for each field of `EditRequest`, except `dataset_id` and `yes`."""
    options = (
        click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to change."),
        click.option("-m", "--message", metavar="TEXT", help="Message of the commit. Default: the change in words."),
        click.option("--author", metavar="NAME", help="Author of the commit. Default: WARP_AUTHOR, or the user."),
        click.option("--dry-run", is_flag=True, help="Show the change, and commit nothing."),
    )
    return apply_options(function, options)


def yes_option(function: _F) -> _F:
    """Add `--yes`, for changes that take something away."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def edit_table_option(function: _F) -> _F:
    """Add `--table`."""
    text = 'Table to change. Default: the only table, or "main".'
    return click.option("--table", type=EntryType("tables"), metavar="NAME", help=text)(function)


def where_option(function: _F) -> _F:
    """Add `--where`."""
    text = 'SQL expression that is true for the rows to change, such as "fare > 20".'
    return click.option("--where", metavar="SQL", help=text)(function)


def text_message(given: str | None, default: str) -> str:
    """Return the message of a commit: the given one, or the change in words, on one line."""
    if given is not None:
        return given
    line = " ".join(default.split())
    return line if len(line) <= _MAX_MESSAGE_LENGTH else f"{line[: _MAX_MESSAGE_LENGTH - 1]}…"


def pick_table(dataset: Dataset, table: str | None) -> str:
    """Return the name of the table to change. Raise `NotFoundError` with similar names."""
    return dataset.table(table).name


def run_edit(
    cli: CliContext,
    request: EditRequest,
    default_message: str,
    change: Callable[[Dataset, Edit], str | None],
) -> None:
    """Change a draft, ask, and commit.

    `change` runs the steps. If it returns a question, the question must be answered with yes, or `--yes` given.
    """
    request = _with_branch(request)
    lines: list[ProgressLine] = []

    def progress(event: ProgressEvent) -> None:
        lines[-1](event)

    def begin(title: str) -> ProgressLine:
        lines.append(cli.progress(title))
        return lines[-1]

    with begin(f"Editing {request.dataset_id}"):
        dataset = cli.open(f"{request.dataset_id}@{request.branch}")
        if dataset.version_ref.branch is None:
            raise NotFoundError(
                f"{request.dataset_id} has no branch {request.branch!r}",
                hint=f"Create it: `warp branch {request.dataset_id}@{request.branch} NAME`.",
                kind=ErrorKind.REF_NOT_FOUND,
            )
        message = text_message(request.message, default_message)
        edit = dataset.edit(message, branch=request.branch, author=request.author, progress=progress)
    try:
        with begin(f"Editing {request.dataset_id}"):
            question = change(dataset, edit)
        is_changed = str(edit.summary) != "no changes"
        is_agreed = not request.dry_run and is_changed
        if is_agreed and question is not None:
            is_agreed = cli.confirm(question, yes=request.yes)
        if is_agreed:
            with begin(f"Committing to {request.dataset_id}"):
                edit.save()
    finally:
        edit.discard()
    _print_edit(cli, request, dataset, edit, is_committed=is_agreed and edit.commit != dataset.version_ref.commit)


def _with_branch(request: EditRequest) -> EditRequest:
    """Take the branch from an address such as `acme/trips@experiment`."""
    dataset_id, at, branch = request.dataset_id.partition("@")
    if not at:
        return request
    if request.branch not in (MAIN, branch):
        raise click.UsageError(f"{request.dataset_id} and --branch {request.branch} name different branches")
    return replace(request, dataset_id=dataset_id, branch=branch)


def _print_edit(cli: CliContext, request: EditRequest, dataset: Dataset, edit: Edit, *, is_committed: bool) -> None:
    if cli.as_json:
        counts = asdict(edit.summary)
        print_json(
            {
                "dataset_id": request.dataset_id,
                "branch": request.branch,
                "base": dataset.version,
                "version": edit.version if is_committed else None,
                "commit": edit.commit if is_committed else None,
                "committed": is_committed,
                **{name: counts[name] for name in ("appended", "updated", "deleted", "columns", "files_added")},
            }
        )
        return
    name = f"{request.dataset_id}@{request.branch}"
    if is_committed:
        print_facts({"edited": name, "change": edit.summary, "version": edit.version})
    elif request.dry_run:
        print_facts({"would edit": name, "change": edit.summary})
    else:
        note(f"nothing was committed; {name} is version {short(dataset.version)}")
