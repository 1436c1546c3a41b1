"""The command tree: names and summaries of all commands.

A command's module is imported only when the command runs, so `warp --help` and the completion of command
names load nothing but click.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

import warpdata
from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import EXIT_CODES, report_error
from warpdata.cli.options import fail_unknown_command
from warpdata.cli.terminal import show_warnings, write_text

__all__ = ["ALIASES", "NEXT_STEPS", "SECTIONS", "LazyGroup", "warp"]

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "demo": "Publish a small dataset, open it, and train on it.",
        "init": "Write a Python module that loads a dataset.",
        "doctor": "Check settings, credentials, libraries, store, cache and clock.",
        "completion": "Set up shell completion.",
    },
    "Read": {
        "info": "Show the contents of a version.",
        "schema": "Show the columns of each table and their types.",
        "head": "Show the first rows of a table.",
        "inspect": "Show tables, artifacts, bindings and shards.",
        "stream": "Write the rows of a table to stdout.",
        "search": "Find rows near to a vector, like an example image, or with words of a text.",
        "sql": "Run an SQL query over published tables.",
        "members": "List the files in an artifact.",
        "cat": "Write files of an artifact to stdout.",
        "export": "Write a table or labels, and their files, into a directory.",
        "simulate": "Simulate an epoch of a stream on many machines.",
        "episodes": "List, show, verify, recover and convert recorded episodes.",
        "tensors": "Show, verify, import, export and serve tensors.",
        "list-remote": "List the datasets in a store or in one workspace.",
    },
    "Publish": {
        "publish": "Publish tables, files, episodes and tensors.",
        "ingest": "Publish media, CSV files and datasets of other libraries.",
        "import": "Add labels of another tool to a collection, with their images.",
        "label": "Give a version a permanent name, or list labels.",
        "branch": "Create a branch at a version, or list branches.",
        "restore": "Make an earlier version the head of a branch again.",
        "copy": "Copy a version or a history to another store or name.",
        "rename": "Give a dataset another name.",
        "rm": "Remove a label, a branch or a dataset.",
        "pin": "Keep versions from garbage collection.",
    },
    "Edit": {
        "append": "Append rows to tables.",
        "delete": "Delete rows of a table.",
        "update": "Set columns of rows of a table.",
        "upsert": "Replace rows by key, and append the others.",
        "add-column": "Add a column that an SQL expression computes.",
        "embed": "Add a column that a Python function computes.",
        "drop-column": "Drop a column of a table.",
        "rename-column": "Rename a column of a table.",
        "cast": "Change the type of a column.",
        "add-files": "Add files to an artifact.",
        "merge": "Merge the changes of another branch into a branch.",
        "compact": "Join small stored files, and leave out deleted rows.",
        "index": "List, create, update and drop indexes.",
    },
    "Collections": {
        "collection": "Keep labelled files with a HEAD, versions and training snapshots.",
        "labels": "Connect labelling tools, review labels that came back, and check their quality.",
    },
    "Cache": {
        "warm": "Download a version to the cache of this machine.",
        "cache": "Show, shrink, verify or clear the cache of this machine.",
    },
    "Service": {
        "serve": "Serve the datasets of a store over HTTP.",
        "worker": "Run the jobs of a service.",
        "gateway": "Serve versions as S3 buckets, read-only, to tools that speak S3.",
        "login": "Keep the token of a service on this machine.",
        "logout": "Forget the token of a service on this machine.",
        "server": "Users, tokens, the index and the audit log of a service.",
    },
    "History": {
        "log": "Show the history of a version, newest commit first.",
        "diff": "Show the changes between two versions.",
        "verify": "Read and hash every stored file of a version.",
        "find-commit": "Look up the outcome of an interrupted publish.",
        "gc": "Delete objects of a store that no version needs.",
    },
}
_MODULES: Mapping[str, str] = {"import": "import_labels"}
"""Modules of commands whose names Python reserves."""
ALIASES: Mapping[str, str] = {"ls": "list-remote", "list": "list-remote"}
"""Other names of commands, shown beside the command in the help."""

_NOT_DELETED = "`warp gc --keep RULE` deletes old versions of a store; `warp cache clear` empties the cache."
_MEANINGS: Mapping[str, str] = {
    "remove del drop unpublish": (
        "`warp rm` removes a label, a branch or a dataset; `warp delete` deletes rows, `warp drop-column` a column."
    ),
    "pull download fetch get clone sync": (
        "Nothing has to be downloaded before it is read: try `warp head`. `warp warm` downloads a version to the cache."
    ),
    "push upload put commit save": "`warp publish` makes a new version of files.",
    "add insert": "`warp append` adds rows, `warp add-files` files, `warp add-column` a column.",
    "edit set modify relabel": "`warp update` sets columns of rows; `warp upsert` replaces rows by key.",
    "new create load": (
        "`warp publish` takes Parquet files and directories; `warp ingest` takes media and datasets of other libraries."
    ),
    "dump": "`warp stream` writes rows to stdout, with --filter and --columns.",
    "query select": "`warp sql` runs a query over published tables.",
    "show describe stat details": "`warp info` shows the contents of a version.",
    "preview sample peek tail rows": "`warp head` shows the first rows.",
    "columns types fields": "`warp schema` shows columns and types.",
    "files tree dir": "`warp members` lists the files in an artifact; `warp ls` lists datasets.",
    "datasets find": "`warp ls` lists the datasets in a store.",
    "history versions commits": "`warp log` shows the history of a version.",
    "tag tags": "`warp label` gives a version a permanent name.",
    "branches checkout switch": "`warp branch` creates and lists branches. Read one as ID@BRANCH.",
    "revert rollback undo reset": "`warp restore` makes an earlier version the head again; `warp log` lists them.",
    "rebase cherry-pick": "`warp merge` adds the changes of another branch.",
    "optimize defragment": "`warp compact` joins small stored files.",
    "mv move": "`warp rename` gives a dataset another name.",
    "cp mirror backup": "`warp copy` copies versions to another store or name.",
    "compare changes status": "`warp diff` shows the changes between two versions.",
    "check fsck validate": "`warp verify` hashes every stored file; `warp doctor` checks this machine.",
    "repair fix": "Publish the same files again with `warp publish --repair`.",
    "collect vacuum expire prune clean": "`warp gc` deletes garbage of a store; `warp cache gc` shrinks the cache.",
    "du usage": "`warp cache stats` shows the size of the cache; `warp gc --dry-run` that of a store.",
    "lock keep hold": "`warp pin` keeps versions from garbage collection.",
    "auth config configure setup": "`warp doctor` checks settings and credentials; `warp login` keeps a token.",
    "train loader": "`warp init` writes a Python module that loads a dataset.",
    "convert record recover": "`warp episodes convert` and `warp episodes recover` work on recorded episodes.",
    "weights checkpoint model": "`warp tensors` shows, imports and exports tensors.",
    "version": "Try `warp --version`.",
    "help": "Try `warp --help`.",
}
"""Next steps for words that people type and that name no command."""

NEXT_STEPS = {word: hint for words, hint in _MEANINGS.items() for word in words.split()}
_SUMMARIES = {name: summary for section in SECTIONS.values() for name, summary in section.items()}


class LazyGroup(click.Group):
    """A group whose commands are in `warpdata.cli.commands`, one module each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _SUMMARIES:
            return None
        name = _MODULES.get(cmd_name, cmd_name.replace("-", "_"))
        loaded: click.Command = getattr(importlib.import_module(f"warpdata.cli.commands.{name}"), name)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = {**_SUMMARIES, **ALIASES}
        if args and args[0] not in known and not args[0].startswith("-"):
            fail_unknown_command(ctx, args[0], known, meanings=NEXT_STEPS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, map(_with_aliases, _SUMMARIES)))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(_with_aliases(name).ljust(width), summary) for name, summary in section.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        summaries = {**_SUMMARIES, **{alias: _SUMMARIES[name] for alias, name in ALIASES.items()}}
        found = [
            CompletionItem(name, help=summary) for name, summary in summaries.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line, then exit with one of `EXIT_CODES`."""
        _replace_unencodable_characters()
        given = args[0] if args else kwargs.get("args")
        cli = CliContext(json_errors="--json" in (sys.argv[1:] if given is None else given))
        kwargs.update(standalone_mode=False, obj=cli)
        try:
            status = super().main(*args, **kwargs)
        except (click.ClickException, click.Abort) as error:
            status = report_error(error, as_json=cli.json_errors)
        sys.exit(status if isinstance(status, int) else 0)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the command line. The parser prints the help, so a closed pipe shows up here."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            raise click.exceptions.Exit(report_error(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors are handled here because click has its own handling of interrupts and pipes."""
        show_warnings()
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except (click.exceptions.Exit, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the last handler of the program
            cli = ctx.ensure_object(CliContext)
            raise click.exceptions.Exit(report_error(error, debug=cli.debug, as_json=cli.json_errors)) from None


def _with_aliases(name: str) -> str:
    return ", ".join([name, *(alias for alias, target in ALIASES.items() if target == name)])


def _replace_unencodable_characters() -> None:
    """Print a question mark for a character that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(warpdata.__version__, prog_name="warp", message="%(prog)s %(version)s")
@click.pass_context
def warp(ctx: click.Context) -> None:
    """Publish a dataset once; open, query and stream it anywhere.

    A dataset is named WORKSPACE/NAME. Add @REF to select a version, a label or a branch, @REF~2 for an
    earlier commit, or @2026-11-01T12:00Z for a time. The default is the newest version on the branch "main".
    """
    if ctx.invoked_subcommand is None:
        write_text(ctx.get_help())
