"""`warp merge`: merge the changes of another branch into a branch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from warpdata.cli.context import CliContext
from warpdata.cli.edit_report import yes_option
from warpdata.cli.exit_codes import conflict_lines
from warpdata.cli.format import count_text, section_noun, short
from warpdata.cli.options import command, dataset_argument
from warpdata.cli.output import note, print_json, print_line, print_table
from warpdata.cli.parameters import RefType
from warpdata.errors import ConflictError, MergeConflictError
from warpdata.repository.catalog import parse_address

if TYPE_CHECKING:
    from warpdata.datasets import Dataset
    from warpdata.edit import MergePlan

__all__ = ["merge"]

_KEYS = {
    "dataset_id": "workspace/name",
    "branch": "the branch that gets the changes",
    "source": "the branch, label or version that has them",
    "base": "version of the newest common ancestor",
    "version": "version of the branch after the merge; null if nothing was committed",
    "commit": "id of the commit; null if nothing was committed",
    "merged": "false with --dry-run, if the branch had all changes, or if the question was answered with no",
    "changes": "list of {section, name, change, rows_added, rows_removed} of the branch",
    "conflicts": "list of {table, sample_id, columns, base, ours, theirs} that the policy resolves",
}
_CHANGE_KEYS = ("section", "name", "change", "rows_added", "rows_removed")
_SHOWN_CONFLICTS = 20
_HINT = "Choose a side with --policy ours or --policy theirs, or change one of the branches first."


@dataclass(frozen=True, slots=True)
class _Options:
    source: str
    policy: Literal["fail", "ours", "theirs"]
    branch: str
    message: str | None
    author: str | None
    dry_run: bool
    yes: bool


@command("merge", json_keys=_KEYS)
@dataset_argument()
@click.argument("source", type=RefType())
@click.option(
    "--policy",
    type=click.Choice(["fail", "ours", "theirs"]),
    default="fail",
    show_default=True,
    help="Result for values that both sides changed: an error that lists them, the value of the branch, or the value "
    "of SOURCE.",
)
@click.option("--branch", default="main", show_default=True, metavar="NAME", help="Branch to change.")
@click.option("-m", "--message", metavar="TEXT", help='Message of the commit. Default: "merge SOURCE".')
@click.option("--author", metavar="NAME", help="Author of the commit. Default: WARP_AUTHOR, or the user.")
@click.option("--dry-run", is_flag=True, help="Show the changes and conflicts, and commit nothing.")
@yes_option
@click.pass_obj
def merge(cli: CliContext, /, dataset_id: str, **given: Any) -> None:
    """Merge the changes of another branch into a branch.

    SOURCE is a branch, label or version. Samples are merged column by column. If both sides changed a value in
    different ways, nothing is committed, and the values of both sides are listed. With --policy theirs, shows the
    values of the branch that would go, and asks; without a terminal, --yes is required.

    \b
      warp merge acme/pets relabel
      warp merge acme/pets relabel --policy theirs --dry-run
      warp merge acme/pets main --branch relabel
    """
    options = _Options(**given)
    with cli.progress(f"Comparing {options.source} with {options.branch}"):
        dataset, plan = _plan(cli, dataset_id, options)
    if plan.conflict is not None and options.policy == "fail":
        raise _with_hint(plan.conflict)
    conflicts = getattr(plan.conflict, "conflicts", ())
    is_agreed = not options.dry_run and not plan.is_merged
    if not cli.as_json and (options.dry_run or (is_agreed and options.policy == "theirs" and not options.yes)):
        _show(plan, conflicts)
    if is_agreed and plan.conflict is not None and options.policy == "theirs":
        is_agreed = cli.confirm(
            f"Replace values of {dataset_id}@{options.branch} by those of {options.source}?", yes=options.yes
        )
    merged = None
    if is_agreed:
        with cli.progress(f"Merging {options.source} into {options.branch}") as progress:
            merged = dataset.merge(
                options.source,
                policy=options.policy,
                branch=options.branch,
                message=options.message or f"merge {options.source}",
                author=options.author,
                progress=progress,
            )
    if cli.as_json:
        print_json(
            {
                "dataset_id": dataset_id,
                "branch": options.branch,
                "source": options.source,
                "base": plan.base,
                "version": merged and merged.version,
                "commit": merged and merged.version_ref.commit,
                "merged": merged is not None,
                "changes": [{key: getattr(change, key) for key in _CHANGE_KEYS} for change in plan.changes],
                "conflicts": [asdict(conflict) for conflict in conflicts],
            }
        )
    else:
        _print_result(dataset_id, options, plan, merged)


def _plan(cli: CliContext, dataset_id: str, options: _Options) -> tuple[Dataset, MergePlan]:
    from warpdata.datasets import open_dataset
    from warpdata.edit import MergeRequest, plan_merge

    session = cli.connect()
    dataset = open_dataset(session, parse_address(f"{dataset_id}@{options.branch}"))
    source = open_dataset(session, parse_address(f"{dataset_id}@{options.source}")).version_ref
    request = MergeRequest(source, options.branch, "", options.author or "", options.policy)
    return dataset, plan_merge(session, request)


def _with_hint(error: ConflictError) -> ConflictError:
    """Return the error with the options of this command as the next step."""
    if isinstance(error, MergeConflictError):
        return MergeConflictError(error.message, conflicts=error.conflicts, hint=_HINT)
    return error


def _show(plan: MergePlan, conflicts: tuple[Any, ...]) -> None:
    if plan.changes:
        rows = (
            (f"{section_noun(one.section)} {one.name}", one.change, f"+{one.rows_added:,} −{one.rows_removed:,}")
            for one in plan.changes
        )
        print_table(("", "change", ">rows"), rows)
    for conflict in conflicts[:_SHOWN_CONFLICTS]:
        for line in conflict_lines(conflict):
            print_line(line)
    if len(conflicts) > _SHOWN_CONFLICTS:
        print_line(f"… and {len(conflicts) - _SHOWN_CONFLICTS:,} more", style="dim")
    if plan.conflict is not None and not conflicts:
        print_line(plan.conflict.message)


def _print_result(dataset_id: str, options: _Options, plan: MergePlan, merged: Dataset | None) -> None:
    name = f"{dataset_id}@{options.branch}"
    count = count_text(len(getattr(plan.conflict, "conflicts", ())), "conflict")
    resolved = f", {count} resolved by {options.policy}" if plan.conflict is not None else ""
    if plan.is_merged:
        print_line(f"{name} already has all changes of {options.source}")
    elif merged is not None:
        print_line(f"merged {options.source} into {name}, version {short(merged.version)}{resolved}")
    elif options.dry_run:
        print_line(f"would merge {options.source} into {name}{resolved}")
    else:
        note("nothing was merged")
