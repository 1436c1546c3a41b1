"""The composition root: a store with its cache, a clock and a random generator.

A session passes them to the layers below, which never read the environment, the time or random numbers themselves.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import Address, Catalog, VersionRef, is_valid, key_policy
from warpdata.settings import Settings, load_settings
from warpdata.storage import (
    IOMetrics,
    MetadataCache,
    MetadataCacheFiles,
    MeteredReader,
    Reader,
    Writer,
    normalize_url,
    open_store,
)
from warpdata.storage.cache import BlobCache, CachedReader, FetchPolicy, Mode, OfflineReader, parse_mode

__all__ = ["Session", "VersionAddress", "connect", "open_cache"]

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 2.0
_OFFLINE = "Run `warp warm DATASET` while online, or open it in another mode."


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Session:
    """An open store. `reader` and `media` may serve reads from the cache; `writer` never does.

    They differ in when they fetch whole blobs. Tables are read in large parts and rarely whole; media are read in
    small parts and often completely.
    """

    writer: Writer
    reader: Reader
    settings: Settings
    clock: Callable[[], datetime] = _now
    sleep: Callable[[float], None] = time.sleep
    rng: random.Random = field(default_factory=random.SystemRandom)
    timer: Callable[[], float] = time.perf_counter
    mode: Mode = Mode.AUTO
    media: Reader | None = None
    counters: IOMetrics = field(default_factory=IOMetrics)
    cache: BlobCache | None = None

    def __repr__(self) -> str:
        return short_repr("Session", self.reader.url, mode=self.mode.value)

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.reader)

    @property
    def media_reader(self) -> Reader:
        return self.media or self.reader

    @property
    def is_local(self) -> bool:
        """The store is a local directory."""
        return self.reader.url.startswith("file://")

    def timestamp(self) -> str:
        return self.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def pause(self, attempt: int) -> None:
        """Sleep before a retry: exponential back-off with full jitter."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        self.sleep(self.rng.uniform(0, longest))


def connect(store: str | None = None, settings: Settings | None = None, *, mode: str | None = None) -> Session:
    """Open a store, by default that of the settings. Makes no request."""
    settings = settings or load_settings()
    url, cache_mode = normalize_url(store or settings.store_url), parse_mode(mode or settings.mode)
    writer = open_store(url, settings)
    counters = IOMetrics()
    cache = open_cache(settings, counters)
    session = Session(writer, writer, settings, mode=cache_mode, counters=counters, cache=cache)
    if url.startswith(("file://", "memory://")):
        return session
    metered = MeteredReader(writer, counters)
    if cache_mode is Mode.REMOTE:
        return replace(session, reader=metered, cache=None)
    metadata_dir = settings.cache_dir / "metadata"
    if cache_mode is Mode.LOCAL:
        return replace(session, reader=OfflineReader(url, cache, MetadataCacheFiles(url, metadata_dir), _OFFLINE))
    is_hybrid = cache_mode is Mode.HYBRID
    tables, media = (FetchPolicy.EAGER,) * 2 if is_hybrid else (FetchPolicy.TABLES, FetchPolicy.MEDIA)
    cached = CachedReader(MetadataCache(metered, metadata_dir, key_policy, is_valid), cache, tables)
    return replace(session, reader=cached, media=cached.with_policy(media))


@dataclass(frozen=True, slots=True)
class VersionAddress:
    """A version that another process can open. It holds the settings, with secrets, so it is never stored."""

    store: str
    dataset_id: str
    version: str
    mode: str
    settings: Settings

    @staticmethod
    def of(session: Session, ref: VersionRef) -> VersionAddress:
        return VersionAddress(session.reader.url, ref.dataset_id, ref.version, session.mode.value, session.settings)

    def open(self, version: str | None = None) -> tuple[Session, VersionRef]:
        """Open a session, and return it with this version or another."""
        session = connect(self.store, self.settings, mode=self.mode)
        return session, session.catalog.resolve(Address(self.dataset_id, version or self.version))


def open_cache(settings: Settings | None = None, counters: IOMetrics | None = None) -> BlobCache:
    """Open the cache of this machine, which all stores and processes share. Touches no file."""
    settings = settings or load_settings()
    return BlobCache(settings.cache_dir, settings.cache_limit_bytes, time.time, counters)
