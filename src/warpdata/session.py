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

from warpdata.repository.catalog import Address, Catalog, VersionRef, is_valid, key_policy
from warpdata.settings import Settings, load_settings
from warpdata.storage import MetadataCache, MetadataCacheFiles, Reader, Writer, normalize_url, open_store
from warpdata.storage.cache import (
    FILL_EAGERLY,
    FILL_FOR_MEDIA,
    FILL_FOR_TABLES,
    BlobCache,
    CachedReader,
    IOMetrics,
    MeteredReader,
    Mode,
    OfflineReader,
    parse_mode,
)

__all__ = ["Session", "VersionAddress", "connect", "open_cache"]

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 2.0
_OFFLINE = "Run `warp warm DATASET` while online, or open it in another mode."


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Session:
    """A store opened for use. `reader` and `media` may be served from this machine; `writer` never is.

    They differ in when they fetch more than was asked for: tables are read in large parts and rarely
    whole, media in small ones and often all of it.
    """

    writer: Writer
    reader: Reader
    settings: Settings
    clock: Callable[[], datetime] = _now
    sleep: Callable[[float], None] = time.sleep
    chance: random.Random = field(default_factory=random.SystemRandom)
    timer: Callable[[], float] = time.perf_counter
    mode: Mode = Mode.AUTO
    media: Reader | None = None
    counters: IOMetrics = field(default_factory=IOMetrics)
    cache: BlobCache | None = None

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.reader)

    @property
    def media_reader(self) -> Reader:
        return self.media or self.reader

    @property
    def is_local(self) -> bool:
        """Whether its store is a folder of this machine."""
        return self.reader.url.startswith("file://")

    def timestamp(self) -> str:
        return self.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def pause(self, attempt: int) -> None:
        """Exponential backoff with full jitter."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        self.sleep(self.chance.uniform(0, longest))


def connect(store: str | None = None, settings: Settings | None = None, *, mode: str | None = None) -> Session:
    """Open the store named, or the one the settings name. Makes no request."""
    settings = settings or load_settings()
    url, chosen = normalize_url(store or settings.store_url), parse_mode(mode or settings.mode)
    writer = open_store(url, settings)
    counters = IOMetrics()
    cache = open_cache(settings, counters)
    if url.startswith(("file://", "memory://")):
        return Session(writer, writer, settings, mode=chosen, counters=counters, cache=cache)
    asked = MeteredReader(writer, counters)
    if chosen is Mode.REMOTE:
        return Session(writer, asked, settings, mode=chosen, counters=counters)
    remembered = settings.cache_dir / "metadata"
    if chosen is Mode.LOCAL:
        offline = OfflineReader(url, cache, MetadataCacheFiles(url, remembered), _OFFLINE)
        return Session(writer, offline, settings, mode=chosen, counters=counters, cache=cache)
    tables, media = (FILL_EAGERLY, FILL_EAGERLY) if chosen is Mode.HYBRID else (FILL_FOR_TABLES, FILL_FOR_MEDIA)
    cached = CachedReader(MetadataCache(asked, remembered, key_policy, is_valid), cache, tables)
    return Session(writer, cached, settings, mode=chosen, media=cached.under(media), counters=counters, cache=cache)


@dataclass(frozen=True, slots=True)
class VersionAddress:
    """A version in words that another process understands. Holds the settings, so it is never stored."""

    store: str
    dataset_id: str
    version: str
    mode: str
    settings: Settings

    @staticmethod
    def of(session: Session, resolved: VersionRef) -> VersionAddress:
        return VersionAddress(
            session.reader.url, resolved.dataset_id, resolved.version, session.mode.value, session.settings
        )

    def open(self, version: str | None = None) -> tuple[Session, VersionRef]:
        """A connection of its own, and this version or another."""
        session = connect(self.store, self.settings, mode=self.mode)
        return session, session.catalog.resolve(Address(self.dataset_id, version or self.version))


def open_cache(settings: Settings | None = None, counters: IOMetrics | None = None) -> BlobCache:
    """The cache on this machine, shared by all stores and processes. Touches no file."""
    settings = settings or load_settings()
    return BlobCache(settings.cache_dir, settings.cache_limit_bytes, time.time, counters)
