"""A `pip` for the guides that installs nothing: it checks that an install line would work from a checkout."""

from __future__ import annotations

import re
import sys

from tests.packaging.oldest import PROJECT

__all__ = ["check_arguments"]


def check_arguments(arguments: list[str]) -> str | None:
    """Return what is wrong with the arguments of `pip`, or None."""
    if arguments[:1] != ["install"]:
        return f"unexpected arguments {arguments}"
    for argument in arguments[1:]:
        found = re.fullmatch(r"\.(\[([a-z0-9,]+)\])?", argument)
        if found is None and argument not in ("-e", "--editable"):
            return f"{argument} is not this project in the current directory"
        unknown = set((found[2] or "").split(",")) - {"", *PROJECT["optional-dependencies"]} if found else set()
        if unknown:
            return f"unknown extras {sorted(unknown)}"
    return None


if __name__ == "__main__":
    sys.exit(check_arguments(sys.argv[1:]))
