"""Which member paths are allowed. Pure.

A member path is kept exactly as given, also its Unicode form. It can never lead out of a folder that
somebody unpacks an artifact into.
"""

from __future__ import annotations

from warpdata.errors import InvalidNameError
from warpdata.limits import MAX_MEMBER_NAME_BYTES

__all__ = ["check_member_path"]


def check_member_path(path: str, where: str) -> str:
    """The path, or `InvalidNameError` naming it and `where` it was found."""
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        printable = where.encode("utf-8", "backslashreplace").decode()
        raise InvalidNameError(f"{printable}: the member name {path!r} is not valid UTF-8", hint="Rename it.") from None
    if size > MAX_MEMBER_NAME_BYTES:
        raise InvalidNameError(
            f"{where}: the member name {path[:80]!r}… has {size} bytes; the limit is {MAX_MEMBER_NAME_BYTES}"
        )
    if "\0" in path:
        raise InvalidNameError(f"{where}: the member name {path!r} holds a zero byte")
    if path.startswith("/"):
        raise InvalidNameError(f"{where}: the member name {path!r} is an absolute path", hint=_RELATIVE)
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise InvalidNameError(f"{where}: the member name {path!r} has a part {part!r}", hint=_RELATIVE)
    return path


_RELATIVE = "Members are named by plain relative paths, such as images/0001.jpg."
