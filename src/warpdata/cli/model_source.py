"""A Python object that the command line names, such as a model: `FILE.py:NAME`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from warpdata.errors import BadInputError

__all__ = ["load_object"]


def load_object(given: str) -> Any:
    """Run a Python file of the user, and return the object with the name."""
    path, colon, name = given.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise BadInputError(f"{given!r} is not FILE.py:NAME", hint="Pass a file and a name in it: clip.py:encode.")
    if not Path(path).is_file():
        raise BadInputError(f"there is no file {path}")
    names = runpy.run_path(path)
    if name not in names:
        raise BadInputError(f"{path} defines no {name!r}", hint="Assign the function or model to this name.")
    return names[name]
