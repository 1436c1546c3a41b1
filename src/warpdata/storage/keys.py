"""Which keys a store accepts. Checked at the border, so that no key can leave the root."""

from __future__ import annotations

from warpdata.errors import InvalidNameError
from warpdata.limits import MAX_KEY_LENGTH

__all__ = ["check_key"]


def check_key(key: str) -> str:
    """Return the key if it is relative, normal and free of control characters."""
    if not key or len(key.encode(errors="replace")) > MAX_KEY_LENGTH:
        raise InvalidNameError(f"store key {key[:80]!r} is empty or longer than {MAX_KEY_LENGTH} bytes")
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in key or not key.isprintable():
        raise InvalidNameError(f"store key {key!r} is not a plain relative path")
    return key
