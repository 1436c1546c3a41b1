"""Functions for worker processes that are not forked: by reference where the worker can import them, else by value.

A worker imports the script of its parent again, so functions of a script travel by reference, and classes stay the
same on both sides. A notebook cell has no file to import: its functions, lambdas and closures travel by value, with
cloudpickle.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from warpdata.errors import BadInputError
from warpdata.primitives.extras import require

__all__ = ["PortableFunction", "check_sendable", "decode_function", "encode_function", "without_missing_script"]

_HINT = "Use functions of a module that the workers can import, or none: num_workers=0, or no engine."
_PLAIN = (str, bytes, int, float, bool, type(None))


class PortableFunction:
    """A function that can be pickled wherever it is defined. Unpickling returns the function itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._function(*args, **keywords)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (encode_function(self._function),)


def check_sendable(batch: Mapping[str, Any]) -> None:
    """Raise `BadInputError` if a list of the batch cannot be sent to the parent, which would wait for ever."""
    for name, values in batch.items():
        if not isinstance(values, list) or all(isinstance(value, _PLAIN) for value in values):
            continue
        try:
            pickle.dumps(values)
        except Exception as error:
            raise BadInputError(
                f"the values of {name!r} cannot be sent from worker processes: {error}",
                hint="Return arrays, numbers or text from the transform, or use num_workers=0.",
            ) from error


@contextmanager
def without_missing_script() -> Iterator[None]:
    """Hide the name of a main file that does not exist, such as `<stdin>`. Workers would fail to import it."""
    main = sys.modules["__main__"]
    name = getattr(main, "__file__", None)
    if name is None or Path(name).is_file():
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = name


def encode_function(function: Any) -> bytes:
    """Return a function, or an object that holds functions, as bytes for another process of this program."""
    out = io.BytesIO()
    try:
        _ByReference(out).dump(function)
        return out.getvalue()
    except Exception:  # noqa: BLE001 - objects raise anything when they cannot be pickled
        by_value = require("cloudpickle", purpose="a function that workers cannot import", extra="torch")
    try:
        encoded: bytes = by_value.dumps(function)
        return encoded
    except Exception as error:
        raise BadInputError(f"the function cannot be sent to worker processes: {error}", hint=_HINT) from error


def decode_function(data: bytes) -> Any:
    """Return what `encode_function` was given. The bytes come from a process of this program, never from a store."""
    return pickle.loads(data)  # noqa: S301 - from this program


class _ByReference(pickle.Pickler):
    """Refuses functions and classes of `__main__` that are not in its file, because workers cannot import them."""

    def reducer_override(self, value: Any) -> Any:
        if getattr(value, "__module__", None) == "__main__" and isinstance(value, FunctionType | type):
            functions = [value] if isinstance(value, FunctionType) else vars(value).values()
            files = {found.__code__.co_filename for found in functions if isinstance(found, FunctionType)}
            script = getattr(sys.modules["__main__"], "__file__", None)
            if script is None or any(not _is_same_file(file, script) for file in files):
                raise pickle.PicklingError(f"{value!r} is not in a file that workers can import")
        return NotImplemented


def _is_same_file(first: str, second: str) -> bool:
    return Path(first).is_file() and Path(first).resolve() == Path(second).resolve()
