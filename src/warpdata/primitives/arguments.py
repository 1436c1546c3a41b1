"""Types of arguments, checked at the public interface.

`@check_arguments` decorates a function, or a class with all its public methods. An argument whose type cannot match
its annotation is a `BadInputError` before the function runs, and not a `TypeError` or `AttributeError` somewhere below.
`check_fields` checks dataclasses that callers construct. Annotations that are not loaded at run time, and protocols,
match everything.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import functools
import inspect
import numbers
import operator
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

from warpdata.errors import BadInputError

__all__ = ["check_arguments", "check_fields", "check_keywords"]

_T = TypeVar("_T", bound=Callable[..., Any])
_Matcher = Callable[[Any], bool]

_TEXTS = (str, bytes, bytearray)
_MAX_INTEGER = 2**63 - 1


def check_arguments(target: _T) -> _T:
    """Check the arguments of a function, or of the public methods that a class defines and of its own constructor.

    Constructors of dataclasses are not checked; those that callers use call `check_fields`.
    """
    if not inspect.isclass(target):
        return typing.cast("_T", _checked(target))
    for name, value in list(vars(target).items()):
        is_public = not name.startswith("_") or (name == "__init__" and not dataclasses.is_dataclass(target))
        if inspect.isfunction(value) and is_public:
            setattr(target, name, _checked(value))
    return target


def check_fields(instance: Any) -> None:
    """Check the fields of a dataclass instance, from its `__post_init__`."""
    cls: type = type(instance)
    matchers = _field_matchers(cls)
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not matchers[field.name](value):
            raise _mismatch(cls.__name__, field.name, value, field.type)


def check_keywords(called: str, keywords: Mapping[str, Any], known: type) -> None:
    """Check keyword arguments against the fields of a `TypedDict`. Other names are left to the caller."""
    matchers = _field_matchers(known)
    for name, value in keywords.items():
        if name in matchers and not matchers[name](value):
            raise _mismatch(called, name, value, known.__annotations__[name])


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        matchers = _matchers(function)
        for name, value in zip(names, arguments, strict=False):
            if name in matchers and not matchers[name](value):
                raise _mismatch(function.__qualname__, name, value, function.__annotations__[name])
        for name, value in keywords.items():
            if name in matchers and not matchers[name](value):
                raise _mismatch(function.__qualname__, name, value, function.__annotations__[name])
        return function(*arguments, **keywords)

    return call


def _mismatch(called: str, name: str, value: Any, expected: Any) -> BadInputError:
    expected = getattr(expected, "__forward_arg__", expected)
    called = called.removesuffix(".__init__")
    return BadInputError(f"{called}: {name} must be {expected}, but is {reprlib.repr(value)} ({type(value).__name__})")


@functools.cache
def _field_matchers(known: type) -> dict[str, _Matcher]:
    module = sys.modules[known.__module__]
    hints = typing.get_type_hints(known, localns=_Names(vars(module)))
    return {name: _matcher(hint) for name, hint in hints.items()}


@functools.cache
def _matchers(function: Callable[..., Any]) -> dict[str, _Matcher]:
    """Return a test for each parameter whose annotation is known."""
    hints = typing.get_type_hints(function, localns=_Names(function.__globals__))
    kinds = {name: parameter.kind for name, parameter in inspect.signature(function).parameters.items()}
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {name: _matcher(hint) for name, hint in hints.items() if name in kinds and kinds[name] not in variadic}


def _matcher(hint: Any) -> _Matcher:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        parts = [_matcher(part) for part in typing.get_args(hint)]
        return lambda value: any(part(value) for part in parts)
    if origin is Literal:
        values = typing.get_args(hint)
        return lambda value: isinstance(value, str) and value in values
    plain = origin or hint
    if plain in _PLAIN:
        return _PLAIN[plain]
    if plain is collections.abc.Sequence:
        item = next(iter(typing.get_args(hint)), None)
        is_checked = item is str or typing.get_origin(item) is collections.abc.Mapping
        return functools.partial(_is_sequence, item=_matcher(item) if is_checked else _matches_all)
    if plain is tuple:
        items = typing.get_args(hint)
        is_fixed = items and items[-1] is not Ellipsis
        return functools.partial(_is_tuple, items=[_matcher(item) for item in items] if is_fixed else None)
    if plain is collections.abc.Callable:
        return callable
    is_checkable = inspect.isclass(plain) and plain is not _Unknown and not getattr(plain, "_is_protocol", False)
    return (lambda value: isinstance(value, plain)) if is_checkable and not typing.is_typeddict(plain) else _matches_all


def _is_sequence(value: Any, *, item: _Matcher) -> bool:
    if isinstance(value, (*_TEXTS, Mapping, Iterator)) or not isinstance(value, collections.abc.Iterable):
        return False
    return item is _matches_all or all(item(each) for each in value)


def _is_tuple(value: Any, *, items: list[_Matcher] | None) -> bool:
    if not isinstance(value, tuple | list) or items is None:
        return isinstance(value, tuple | list)
    return len(value) == len(items) and all(matches(item) for matches, item in zip(items, value, strict=True))


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")


def _is_integer(value: Any) -> bool:
    try:
        return not _is_bool(value) and abs(operator.index(value)) <= _MAX_INTEGER
    except TypeError:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not _is_bool(value)


def _matches_all(_value: Any) -> bool:
    return True


_PLAIN: dict[Any, _Matcher] = {
    bool: _is_bool,
    bytes: lambda value: isinstance(value, bytes | bytearray | memoryview),
    collections.abc.Mapping: lambda value: isinstance(value, Mapping),
    dict: lambda value: isinstance(value, Mapping),
    float: _is_number,
    int: _is_integer,
    object: _matches_all,
    type(None): lambda value: value is None,
    None: lambda value: value is None,
    collections.abc.Iterable: lambda value: isinstance(value, collections.abc.Iterable),
    typing.TextIO: lambda value: hasattr(value, "write"),
    Any: _matches_all,
}


class _UnknownType(type):
    """The type of a name that is imported for type checkers only. Its attributes and parameters are unknown too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, item: object) -> Any:
        return cls

    def __or__(cls, other: object) -> Any:
        return typing.Any

    def __ror__(cls, other: object) -> Any:
        return typing.Any


class _Unknown(metaclass=_UnknownType):
    pass


class _Names(dict[str, Any]):
    """The names of a module; unknown ones are `_Unknown`."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> Any:
        if name in self._known:
            return self._known[name]
        return vars(builtins).get(name, _Unknown)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)
