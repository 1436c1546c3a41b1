"""Dataset names on the command line, completed from the store.

Completion is quick and silent: few requests, short timeouts, and no suggestion where anything fails.
Checking a name is left to the library, whose errors say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

import warpdata
from warpdata.cli.context import Invocation
from warpdata.cli.parameters import ParameterType

if TYPE_CHECKING:
    from warpdata.session import Session

__all__ = ["ADDRESS", "DATASET_ID", "STORE_URL", "NameType"]

_PATIENCE_S = 1.0
_MOST_WORKSPACES = 20
_MOST_SUGGESTIONS = 200


class NameType(ParameterType):
    """`WORKSPACE/NAME`, and `@REF` after it where a command takes one."""

    name = "dataset"

    def __init__(self, *, takes_ref: bool) -> None:
        self._takes_ref = takes_ref

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = list(self._suggest(_connect_impatiently(ctx.ensure_object(Invocation).store), incomplete))
        except Exception:  # noqa: BLE001 - a suggestion is never worth a message
            return []
        return [CompletionItem(text) for text in found[:_MOST_SUGGESTIONS]]

    def _suggest(self, session: Session, incomplete: str) -> Iterator[str]:
        catalog = session.catalog
        dataset_id, at, ref = incomplete.partition("@")
        if at:
            if self._takes_ref:
                names = [*catalog.branches(dataset_id), *(label.name for label in catalog.labels(dataset_id))]
                yield from (f"{dataset_id}@{name}" for name in sorted(names) if name.startswith(ref))
            return
        workspace, slash, _ = incomplete.partition("/")
        workspaces = [workspace] if slash else session.reader.list_folders("datasets")
        for found in [name for name in workspaces if name.startswith(workspace)][:_MOST_WORKSPACES]:
            yield from (name for name in catalog.datasets(found) if name.startswith(incomplete))


class StoreType(ParameterType):
    """A URL or a path; folders are completed."""

    name = "store"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="dir")]


def _connect_impatiently(store: str | None) -> Session:
    settings = replace(
        warpdata.load_settings(),
        timeout_s=_PATIENCE_S,
        connect_timeout_s=_PATIENCE_S,
        retry_timeout_s=_PATIENCE_S,
        max_retries=0,
    )
    return warpdata.connect(store, settings)


ADDRESS = NameType(takes_ref=True)
DATASET_ID = NameType(takes_ref=False)
STORE_URL = StoreType()
