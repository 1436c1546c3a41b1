"""Options of commands whose work other processes or a Ray cluster can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from warpdata.cli.options import apply_options
from warpdata.cli.parameters import ParameterType

if TYPE_CHECKING:
    from warpdata.jobs import EngineChoice

__all__ = ["engine_options", "take_engine"]

_F = TypeVar("_F", bound=Callable[..., Any])
_ENGINES = ("processes", "ray", "threads")
_ADDRESS = "ray://"


class EngineType(ParameterType):
    """The name of an engine, or the address of a Ray cluster."""

    name = "engine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text not in _ENGINES and not text.startswith(_ADDRESS):
            self.fail(f"{text!r} is not {', '.join(_ENGINES)} or {_ADDRESS}HOST:PORT", param, ctx)
        return text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in (*_ENGINES, _ADDRESS) if name.startswith(incomplete)]


def engine_options(function: _F, *, has_job: bool = True) -> _F:
    """Add `--engine` and `--workers`, and for work that can be continued `--job`."""
    options: tuple[Any, ...] = (
        click.option(
            "--engine",
            type=EngineType(),
            metavar="ENGINE",
            help="Divide the work: processes of this machine, ray, or ray://HOST:PORT. The result is the same.",
        ),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Most tasks at a time, with --engine."),
        click.option(
            "--job",
            metavar="NAME",
            help="Name of the work, with --engine. The same name continues it.",
        ),
    )
    return apply_options(function, options if has_job else options[:2])


def take_engine(given: dict[str, Any]) -> dict[str, Any]:
    """Remove these options from `given`, and return them as keywords of the library."""
    name, workers, job = given.pop("engine"), given.pop("workers"), given.pop("job", None)
    if name is None and (workers is not None or job is not None):
        raise click.UsageError(f"--{'job' if workers is None else 'workers'} needs --engine")
    return {"engine": _engine(name, workers), "job": job}


def _engine(name: str | None, workers: int | None) -> EngineChoice:
    if name is None:
        return None
    from warpdata.jobs import ProcessEngine, RayEngine, ThreadEngine

    if name == "threads":
        return ThreadEngine(workers)
    if name == "processes":
        return ProcessEngine(workers)
    return RayEngine(name if name.startswith(_ADDRESS) else None, workers)
