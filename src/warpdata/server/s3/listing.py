"""Pages of keys: prefixes, delimiters, and where the next page begins.

A key tree yields keys in the order of their bytes from any position, so the cost of a page
does not depend on where it begins. Strings are compared by code points, which is the order of UTF-8 bytes.
Implements "Listing" of
docs/specs/gateway.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["CommonPrefix", "KeyDirectory", "KeyPage", "KeyTree", "KeyWindow", "ListedKey", "list_page", "successor"]

_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ListedKey:
    """An object as a listing shows it."""

    key: str
    size_bytes: int
    etag: str
    modified: str


@dataclass(frozen=True, slots=True)
class CommonPrefix:
    """Keys that a listing shows as one."""

    prefix: str


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The keys that are wanted: with a prefix, from `start` on. `collapses` if directories are shown as one."""

    prefix: str
    start: str
    collapses: bool

    def meets(self, directory: str) -> bool:
        """Return whether keys that begin with `directory` may be wanted."""
        on_path = directory.startswith(self.prefix) or self.prefix.startswith(directory)
        return on_path and (self.start <= directory or self.start.startswith(directory))


class KeyTree(Protocol):
    """Keys below a directory."""

    def walk(self, base: str, window: KeyWindow) -> Iterator[ListedKey | CommonPrefix]:
        """Yield the wanted keys in order; all begin with `base`. Keys outside of the window may not be yielded."""


@dataclass(frozen=True)
class KeyDirectory:
    """A directory whose entries are known: files by name, and directories that are opened when keys are wanted."""

    files: Callable[[], dict[str, Callable[[str], ListedKey | None]]] = field(default=dict)
    """Each file is looked at when its key is listed; None if it is gone by then."""
    directories: Callable[[], dict[str, Callable[[], KeyTree]]] = field(default=dict)

    def walk(self, base: str, window: KeyWindow) -> Iterator[ListedKey | CommonPrefix]:
        files, directories = self.files(), self.directories()
        for name in sorted([*files, *(f"{one}/" for one in directories)]):
            key = base + name
            if not name.endswith("/"):
                listed = files[name](key) if key >= window.start and key.startswith(window.prefix) else None
                if listed is not None:
                    yield listed
            elif window.meets(key):
                yield from _walk_directory(key, directories[name[:-1]], window)


def _walk_directory(
    key: str, open_directory: Callable[[], KeyTree], window: KeyWindow
) -> Iterator[ListedKey | CommonPrefix]:
    is_below = window.collapses and key.startswith(window.prefix) and len(key) > len(window.prefix)
    if not is_below:
        yield from open_directory().walk(key, window)
    elif window.start <= key or next(open_directory().walk(key, KeyWindow(key, window.start, False)), None) is not None:
        yield CommonPrefix(key)


@dataclass
class KeyPage:
    """A page of a listing, in order. `following` is where the next page begins; None after the last."""

    keys: list[ListedKey] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    """The last key or common prefix of the page."""
    following: str | None = None

    def __len__(self) -> int:
        return len(self.keys) + len(self.prefixes)


def list_page(tree: KeyTree, prefix: str, delimiter: str, start: str, limit: int) -> KeyPage:
    """Return up to `limit` keys and common prefixes from `start` on."""
    page = KeyPage()
    position: str | None = max(start, prefix)
    while position is not None and limit > 0:
        window, position = KeyWindow(prefix, position, delimiter == "/"), None
        for found in tree.walk("", window):
            shown = _common_prefix(found, prefix, delimiter)
            if len(page) >= limit:
                page.following = successor(page.last) if page.last in page.prefixes[-1:] else page.last + "\0"
                return page
            if shown is None:
                assert isinstance(found, ListedKey)
                page.keys.append(found)
                page.last = found.key
            else:
                page.prefixes.append(shown)
                page.last = shown
                if isinstance(found, ListedKey):  # continue behind all keys below it
                    position = successor(shown)
                    break
    return page


def _common_prefix(found: ListedKey | CommonPrefix, prefix: str, delimiter: str) -> str | None:
    if isinstance(found, CommonPrefix):
        return found.prefix
    at = found.key.find(delimiter, len(prefix)) if delimiter else -1
    return None if at < 0 else found.key[: at + len(delimiter)]


def successor(prefix: str) -> str | None:
    """Return the first text behind all that begin with a prefix; None if there is none."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST:
            return prefix[:-1] + chr(following)
        prefix = prefix[:-1]
    return None
