"""The composition root: a store, its cache, a clock and a source of chance, put together once.

Everything below is handed what it needs from here; nothing below reads the environment, the time
or a random number by itself.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from warpdata.catalog import Catalog, is_sound, key_policy
from warpdata.settings import Settings, load_settings
from warpdata.store import MetadataCache, Reader, Writer, normalize_url, open_store

__all__ = ["Connection", "connect"]

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 2.0


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Connection:
    """A store opened for use. `reader` may remember small objects on disk; `writer` never does."""

    writer: Writer
    reader: Reader
    settings: Settings
    clock: Callable[[], datetime] = _now
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.SystemRandom)

    @property
    def mode(self) -> str:
        return self.settings.mode

    @property
    def media_reader(self) -> Reader:
        return self.reader

    def extract(self, content: bytes) -> Path:
        raise NotImplementedError

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.reader)

    def timestamp(self) -> str:
        return self.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def pause(self, attempt: int) -> None:
        """Exponential backoff with full jitter."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        self.sleep(self.chance.uniform(0, longest))


def connect(store: str | None = None, settings: Settings | None = None, mode: str | None = None) -> Connection:
    """Open the store named, or the one the settings name. Makes no request."""
    settings = settings or load_settings()
    url = normalize_url(store or settings.store_url)
    writer = open_store(url, settings)
    if url.startswith(("file://", "memory://")):
        return Connection(writer, writer, settings)
    return Connection(writer, MetadataCache(writer, settings.cache_dir / "metadata", key_policy, is_sound), settings)
