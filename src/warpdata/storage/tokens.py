"""Tokens of services, kept by `warp login` in a file that only its user can read: one for each address."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from warpdata.errors import BadInputError, InvalidSourceError
from warpdata.primitives.atomic_file import make_directories, replacing
from warpdata.storage.service_client import check_token

__all__ = ["forget_token", "read_token", "save_token"]

_MAX_BYTES = 1_000_000


def read_token(path: Path | None, url: str) -> str | None:
    """Return the token for the service at an address, or None. Only its scheme, host and port matter.

    A file that this user may not read belongs to another one, so it holds no token of this user.
    """
    if path is None or not os.access(path, os.R_OK):
        return None
    return check_token(_read(path).get(_origin(url)))


def save_token(path: Path, url: str, token: str) -> None:
    """Keep the token of a service in place of an earlier one."""
    checked = check_token(token)
    assert checked is not None
    _write(path, {**_read(path), _origin(url): checked})


def forget_token(path: Path, url: str) -> bool:
    """Remove the token of a service. Return whether there was one."""
    known = dict(_read(path))
    found = known.pop(_origin(url), None)
    if found is not None:
        _write(path, known)
    return found is not None


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url.removeprefix("warp+"))
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInputError("the address is not a URL", hint="Write https://HOST.") from error
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}"


def _read(path: Path) -> Mapping[str, str]:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077 and os.name == "posix":
                raise InvalidSourceError(f"other users can read {path}", hint=f"Run `chmod 600 {path}`.")
            data = file.read(_MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidSourceError(f"{path} cannot be read: {error.strerror}") from error
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(token, str) for token in found.values()):
        raise InvalidSourceError(f"{path} does not hold tokens", hint="Remove it, then run `warp login`.")
    return found


def _write(path: Path, tokens: Mapping[str, str]) -> None:
    make_directories(path.parent)
    with replacing(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(json.dumps(dict(sorted(tokens.items())), indent=1).encode())
