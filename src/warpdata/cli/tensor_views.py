"""Arguments and options of `warp tensors` that select tensors and a view of them, and the facts that name them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from warpdata.cli.context import CliContext
from warpdata.cli.options import apply_options, split_names
from warpdata.cli.parameters import ADDRESS, ParameterType
from warpdata.errors import BadInputError
from warpdata.primitives.suggest import suggest

if TYPE_CHECKING:
    from warpdata.formats.tensors import Narrow, TensorSet, Transpose, View

__all__ = [
    "TARGET_KEYS",
    "OpenTensors",
    "build_view",
    "identity_facts",
    "name_option",
    "open_target",
    "readable_facts",
    "target_argument",
    "view_options",
]

TARGET_KEYS = {
    "dataset_id": "workspace/name; for a file or directory, path instead",
    "version": "64 hex digits; only for a dataset",
    "name": "name of the set of tensors; only for a dataset",
    "artifact_id": "id of the tensors by content; null if it is not known without reading all data",
    "index_multihash": "hash of the index",
}

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OpenTensors:
    """Open tensors, with a title for messages and facts for `--json`."""

    tensors: TensorSet
    title: str
    facts: Mapping[str, Any]


def identity_facts(art: Any, view: View | None = None) -> dict[str, Any]:
    """Return the ids. The artifact id is None if computing it would read all data."""
    named = {"artifact_id": art.known_artifact_id, "index_multihash": art.index_multihash}
    return named if view is None else {**named, "view_id": view.view_id, "size_bytes": view.size}


def readable_facts(facts: dict[str, Any]) -> dict[str, Any]:
    words = {"dataset_id": "dataset", "artifact_id": "artifact id", "index_multihash": "index", "view_id": "view id"}
    return {words.get(key, key): value for key, value in facts.items() if key != "size_bytes"}


class TensorsTargetType(ParameterType):
    """A dataset in the store, or a local file or directory."""

    name = "target"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [*ADDRESS.shell_complete(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


def target_argument() -> Callable[[_F], _F]:
    """Add the argument `ID[@REF]|PATH`."""
    return click.argument("target", type=TensorsTargetType(), metavar="ID[@REF]|PATH")


def name_option() -> Callable[[_F], _F]:
    return click.option("--name", metavar="NAME", help="Set of tensors in the dataset. Default: the only one.")


def view_options(function: _F) -> _F:
    """Add `--narrow`, `--transpose` and `--only`."""
    options = (
        click.option(
            "--narrow",
            multiple=True,
            type=NarrowType(),
            metavar="TENSOR=DIM:START:LENGTH",
            help="Keep a range of one dimension. TENSOR may be a pattern such as 'layer.*.w'. DIM:3/8 keeps the fourth "
            "of eight equal parts. Repeatable.",
        ),
        click.option(
            "--transpose",
            multiple=True,
            type=TransposeType(),
            metavar="TENSOR=DIM,DIM",
            help="Swap two dimensions, after all --narrow. Repeatable.",
        ),
        click.option(
            "--only", multiple=True, metavar="A,B", callback=split_names, help="Select only these tensors or patterns."
        ),
    )
    return apply_options(function, options)


class NarrowType(ParameterType):
    """`TENSOR=DIM:START:LENGTH` or `TENSOR=DIM:RANK/WORLD`, converted to a pattern and an operation factory."""

    name = "narrow"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        pattern, equals, operation = str(value).rpartition("=")
        parts = operation.split(":")
        try:
            dim = int(parts[0])
            if len(parts) == 2:
                rank, world = (int(part) for part in parts[1].split("/"))
                if not 0 <= rank < world:
                    raise ValueError
                return pattern, _RankNarrow(dim, rank, world)
            start, length = (int(part) for part in parts[1:])
            if not (pattern and equals):
                raise ValueError
        except ValueError:
            self.fail(f"{value!r} is not of the form TENSOR=DIM:START:LENGTH or TENSOR=DIM:RANK/WORLD", param, ctx)
        return pattern, _RangeNarrow(dim, start, length)


class TransposeType(ParameterType):
    """`TENSOR=DIM,DIM`, converted to a pattern and an operation factory."""

    name = "transpose"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        pattern, equals, operation = str(value).rpartition("=")
        try:
            first, second = (int(part) for part in operation.split(","))
        except ValueError:
            first = second = 0
            equals = ""
        if not (pattern and equals):
            self.fail(f"{value!r} is not of the form TENSOR=DIM,DIM", param, ctx)
        return pattern, _Swap(first, second)


@dataclass(frozen=True, slots=True)
class _RangeNarrow:
    dim: int
    start: int
    length: int

    def __call__(self, name: str, shape: Sequence[int]) -> Narrow:
        from warpdata.formats.tensors import narrow

        return narrow(self.dim, self.start, self.length)


@dataclass(frozen=True, slots=True)
class _RankNarrow:
    dim: int
    rank: int
    world: int

    def __call__(self, name: str, shape: Sequence[int]) -> Narrow:
        from warpdata.formats.tensors import narrow

        if not -len(shape) <= self.dim < len(shape):
            raise BadInputError(f"{name!r} has {len(shape)} dimensions, so no dimension {self.dim}")
        size = shape[self.dim]
        start = size * self.rank // self.world
        return narrow(self.dim, start, size * (self.rank + 1) // self.world - start)


@dataclass(frozen=True, slots=True)
class _Swap:
    dim0: int
    dim1: int

    def __call__(self, name: str, shape: Sequence[int]) -> Transpose:
        from warpdata.formats.tensors import transpose

        return transpose(self.dim0, self.dim1)


def open_target(cli: CliContext, target: str, name: str | None) -> OpenTensors:
    """Open a path or the tensors of a dataset. `_is_path` decides which."""
    from warpdata.formats.tensors import open_tensors

    if _is_path(target):
        if name is not None:
            raise click.UsageError(f"--name needs a dataset, and {target} is a path")
        return OpenTensors(open_tensors(Path(target).expanduser()), target, {"path": target})
    opened = cli.open(target)
    facts = {"dataset_id": opened.id, "version": opened.version, "name": name or _only_name(opened.manifest.tensors)}
    return OpenTensors(opened.tensors(name), f"{opened.id} {facts['name']}", facts)


def build_view(art: TensorSet, given: Mapping[str, Any]) -> View:
    """Return the view that the options select."""
    spec: dict[str, list[Any]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for pattern, make in given["narrow"]:
        for name in _matching(art, pattern):
            # Each narrow applies to the result of those before.
            ops = spec.setdefault(name, [])
            ops.append(make(name, shapes.get(name, art.index[name].shape)))
            shapes[name] = art.view({name: ops}, names=[name]).index[name].shape
    for pattern, make in given["transpose"]:
        for name in _matching(art, pattern):
            spec.setdefault(name, []).append(make(name, ()))
    chosen = [name for pattern in given["only"] for name in _matching(art, pattern)]
    return art.view(spec or None, names=list(dict.fromkeys(chosen)) or None)


def _matching(art: TensorSet, pattern: str) -> Iterator[str]:
    if pattern in art:
        yield pattern
        return
    found = fnmatch.filter(art.names(), pattern)
    if not found:
        raise BadInputError(f"no tensor matches {pattern!r}", hint=suggest(pattern, art.names(), label="Tensors"))
    yield from found


def _is_path(target: str) -> bool:
    if target.startswith((".", "/", "~")) or target.endswith((".safetensors", ".json")):
        return True
    cannot_be_address = target.count("/") != 1
    return (cannot_be_address and Path(target).exists()) or (target.endswith("/") and Path(target).is_dir())


def _only_name(names: Mapping[str, Any]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
