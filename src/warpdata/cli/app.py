"""The command tree. Knows every command's name and summary, and imports one only when it runs.

So `warp --help` and the completion of a command's name load nothing but click.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from warpdata.cli.context import CliContext
from warpdata.cli.exit_codes import EXIT_CODES, report_error
from warpdata.cli.options import unknown_command

__all__ = ["SECTIONS", "LazyGroup", "warp"]

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "demo": "Publish, open, stream and train on a small dataset.",
        "init": "Write a loader for a dataset that runs as it is.",
        "doctor": "Check settings, credentials, store, cache and clock.",
        "completion": "Complete commands, options and dataset names in your shell.",
    },
    "Read": {
        "info": "Show what a version holds.",
        "schema": "Show the columns of each table and their types.",
        "head": "Show the first rows of a table.",
        "inspect": "Show tables, artifacts, bindings and shards.",
        "stream": "Write the rows of a table to stdout.",
        "members": "List the files in an artifact.",
        "cat": "Write files of an artifact to stdout.",
        "episodes": "List, show, check, recover and convert recorded episodes.",
        "tensors": "Look at tensors and views, and move them in and out of safetensors.",
        "list-remote": "List the datasets in a store, or in one workspace of it.",
    },
    "Publish": {
        "publish": "Publish tables, raw files, episodes and tensors as a new version.",
        "ingest": "Publish pictures, sounds, WebDataset tars or a CSV in one step.",
        "label": "Name a version for good, or list such names.",
        "branch": "Start a branch at a version, or list branches.",
    },
    "Cache": {
        "warm": "Bring a version to this machine, before it is needed.",
        "cache": "Look at, shrink, check or empty what is kept on this machine.",
    },
    "History": {
        "log": "Show the commits that led to a version, newest first.",
        "diff": "Show what changed from one version to another.",
        "verify": "Re-read and re-hash all that a version refers to.",
        "find-commit": "Say what became of a publish whose outcome was unknown.",
    },
}

_SUMMARIES = {name: summary for section in SECTIONS.values() for name, summary in section.items()}


class LazyGroup(click.Group):
    """A group whose commands live in `warpdata.cli.commands`, one module each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _SUMMARIES:
            return None
        name = cmd_name.replace("-", "_")
        loaded: click.Command = getattr(importlib.import_module(f"warpdata.cli.commands.{name}"), name)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _SUMMARIES and not args[0].startswith("-"):
            unknown_command(ctx, args[0], _SUMMARIES)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _SUMMARIES))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in section.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=summary) for name, summary in _SUMMARIES.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """As click's, except that every failure ends in a code of `EXIT_CODES`."""
        _allow_any_text()
        kwargs.update(standalone_mode=False, obj=CliContext())
        try:
            status = super().main(*args, **kwargs)
        except (click.ClickException, click.Abort) as error:
            status = report_error(error)
        sys.exit(status if isinstance(status, int) else 0)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Help is printed while the line is parsed, and may meet a pipe that nobody reads."""
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError as error:
            raise click.exceptions.Exit(report_error(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Failures are caught here, before click has its own say about interrupts and broken pipes."""
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except (click.exceptions.Exit, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the last handler of the program
            raise click.exceptions.Exit(report_error(error, debug=ctx.ensure_object(CliContext).debug)) from None


def _allow_any_text() -> None:
    """A terminal that cannot show a character gets a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="warpdata", prog_name="warp", message="%(prog)s %(version)s")
@click.pass_context
def warp(ctx: click.Context) -> None:
    """Publish a dataset once; open, query and stream it anywhere.

    A dataset is named WORKSPACE/NAME. Add @REF to mean a version, a label or a branch; without it
    the newest version on the branch "main" is meant.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
