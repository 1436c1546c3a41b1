"""What the commands of `warp tensors` share: which tensors are meant, and which view of them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from warpdata.cli.context import Invocation
from warpdata.cli.names import ADDRESS
from warpdata.cli.options import split_names
from warpdata.cli.parameters import ParameterType
from warpdata.errors import InvalidViewError

if TYPE_CHECKING:
    from warpdata.formats.tensors import Narrow, TensorSet, Transpose, View

__all__ = ["Opened", "name_option", "open_place", "place_argument", "view_of", "view_options"]

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Opened:
    """Tensors, and what to call them."""

    tensors: TensorSet
    place: str
    facts: Mapping[str, Any]


class PlaceType(ParameterType):
    """A dataset in the store, or a file or folder here."""

    name = "place"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [*ADDRESS.shell_complete(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


def place_argument() -> Callable[[_F], _F]:
    """`ID[@REF]`, or a path."""
    return click.argument("place", type=PlaceType(), metavar="ID[@REF]|PATH")


def name_option() -> Callable[[_F], _F]:
    return click.option("--name", metavar="NAME", help="Which tensors of the dataset; the only set by default.")


def view_options(function: _F) -> _F:
    """`narrow`, `transpose` and `only`."""
    options = (
        click.option(
            "--narrow",
            multiple=True,
            type=NarrowType(),
            metavar="TENSOR=DIM:START:LENGTH",
            help="Keep part of one dimension. TENSOR may be a pattern such as 'layer.*.w'; DIM:3/8 keeps the fourth "
            "of eight equal parts. Repeat it for more.",
        ),
        click.option(
            "--transpose",
            multiple=True,
            type=TransposeType(),
            metavar="TENSOR=DIM,DIM",
            help="Let two dimensions change places. Repeat it for more.",
        ),
        click.option(
            "--only", multiple=True, metavar="A,B", callback=split_names, help="Only these tensors, or patterns."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


class NarrowType(ParameterType):
    """`TENSOR=DIM:START:LENGTH` or `TENSOR=DIM:RANK/WORLD`, as a pattern and what makes the operation of a shape."""

    name = "narrow"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        pattern, equals, told = str(value).rpartition("=")
        parts = told.split(":")
        try:
            dim = int(parts[0])
            if len(parts) == 2:
                rank, world = (int(part) for part in parts[1].split("/"))
                if not 0 <= rank < world:
                    raise ValueError
                return pattern, _Part(dim, rank, world)
            start, length = (int(part) for part in parts[1:])
            if not (pattern and equals):
                raise ValueError
        except ValueError:
            self.fail(f"{value!r} is not of the form TENSOR=DIM:START:LENGTH or TENSOR=DIM:RANK/WORLD", param, ctx)
        return pattern, _Range(dim, start, length)


class TransposeType(ParameterType):
    """`TENSOR=DIM,DIM`."""

    name = "transpose"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        pattern, equals, told = str(value).rpartition("=")
        try:
            first, second = (int(part) for part in told.split(","))
        except ValueError:
            first = second = 0
            equals = ""
        if not (pattern and equals):
            self.fail(f"{value!r} is not of the form TENSOR=DIM,DIM", param, ctx)
        return pattern, _Swap(first, second)


@dataclass(frozen=True, slots=True)
class _Range:
    dim: int
    start: int
    length: int

    def __call__(self, name: str, shape: Sequence[int]) -> Narrow:
        from warpdata.formats.tensors import narrow

        return narrow(self.dim, self.start, self.length)


@dataclass(frozen=True, slots=True)
class _Part:
    dim: int
    rank: int
    world: int

    def __call__(self, name: str, shape: Sequence[int]) -> Narrow:
        from warpdata.formats.tensors import narrow

        if not -len(shape) <= self.dim < len(shape):
            raise InvalidViewError(f"{name!r} has {len(shape)} dimensions, and no dimension {self.dim}")
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


def open_place(invocation: Invocation, place: str, name: str | None) -> Opened:
    """A path begins with ".", "/" or "~", ends in ".safetensors" or ".json", or can not be the name of a dataset."""
    from warpdata.formats.tensors import open_tensors

    if _is_path(place):
        if name is not None:
            raise click.UsageError("--name is for tensors of a dataset, and this is a path")
        return Opened(open_tensors(Path(place).expanduser()), place, {"path": place})
    opened = invocation.open(place)
    facts = {"dataset_id": opened.id, "version": opened.version, "name": name or _only_name(opened.manifest.tensors)}
    return Opened(opened.tensors(name), f"{opened.id} {facts['name']}", facts)


def view_of(art: TensorSet, given: Mapping[str, Any]) -> View:
    """The view that the options ask for."""
    spec: dict[str, list[Any]] = {}
    for pattern, make in (*given["narrow"], *given["transpose"]):
        for name in _matching(art, pattern):
            spec.setdefault(name, []).append(make(name, art.index[name].shape))
    chosen = [name for pattern in given["only"] for name in _matching(art, pattern)]
    return art.view(spec or None, names=list(dict.fromkeys(chosen)) or None)


def _matching(art: TensorSet, pattern: str) -> Iterator[str]:
    if pattern in art:
        yield pattern
        return
    found = fnmatch.filter(art.names(), pattern)
    if not found:
        raise InvalidViewError(f"there is no tensor {pattern!r}", hint="`warp tensors show` lists those there are.")
    yield from found


def _is_path(place: str) -> bool:
    looks = place.startswith((".", "/", "~")) or place.endswith((".safetensors", ".json"))
    return looks or (place.count("/") != 1 and Path(place).exists()) or (place.endswith("/") and Path(place).is_dir())


def _only_name(names: Mapping[str, Any]) -> str | None:
    return next(iter(names)) if len(names) == 1 else None
