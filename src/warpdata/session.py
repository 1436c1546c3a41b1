"""The composition root: a store with its cache, a clock and a random generator.

A session passes them to the layers below, which never read the environment, the time or random numbers themselves.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from warpdata.errors import BadInputError
from warpdata.primitives.arguments import check_arguments
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.redaction import redact
from warpdata.primitives.reprs import short_repr
from warpdata.repository.catalog import Address, Catalog, VersionRef, is_valid, key_policy
from warpdata.repository.gc import Lease, LeaseClock, LeaseTerms, acquire_lease
from warpdata.settings import Settings, apply_budgets, load_settings
from warpdata.storage import (
    GenerationReader,
    IOMetrics,
    MetadataCache,
    MetadataCacheFiles,
    MeteredReader,
    Reader,
    ServiceStore,
    Writer,
    normalize_url,
    open_store,
    read_token,
    service_url,
)
from warpdata.storage.cache import (
    BlobCache,
    CachedReader,
    FetchPolicy,
    Mode,
    OfflineReader,
    OfflineStore,
    parse_mode,
    shared_entries,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Session", "StoreAddress", "VersionAddress", "connect", "keyed_id", "open_cache", "open_metadata_files"]

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 2.0
_WITHOUT_CACHE = ("file://", "memory://")
_SERVICE = ("warp+https://", "warp+http://")
_WEB = (*_SERVICE, "https://", "http://")
_MAX_SECRET_URLS = 64
_UUID_BYTES = 16
_OFFLINE = "Run `warp warm DATASET` while online, or open it in another mode."


_KEYS = uuid.UUID("6a1d3f0e-8a52-4f5e-9c57-5a6b7e880d1c")
"""The namespace of ids that are made from keys, see docs/specs/publish.md."""


def keyed_id(key: str) -> str:
    """Return the id that follows from a key, so that work with the same key is recognized."""
    return str(uuid.uuid5(_KEYS, key))


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Session:
    """An open store. `reader` and `media` may serve reads from the cache. `writer` never does, except in mode `local`.

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
    wrap: Callable[[Reader], tuple[Reader, Reader | None]] = lambda reader: (reader, None)
    """Puts the caches of this session in front of a reader of the store. Returns `reader` and `media`."""

    def __repr__(self) -> str:
        return short_repr("Session", self.reader.url, mode=self.mode.value)

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.reader)

    @property
    def media_reader(self) -> Reader:
        return self.media or self.reader

    @property
    def reads_directly(self) -> bool:
        """No cache is between the session and its store."""
        return self.reader is self.writer or isinstance(self.reader, GenerationReader)

    @property
    def is_local(self) -> bool:
        """The store is a local directory."""
        return self.reader.url.startswith("file://")

    def timestamp(self) -> str:
        return self.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def new_ids(self, count: int) -> pa.Array:
        """Return as many ids as a column of text, as `new_id` makes them."""
        import numpy as np
        import pyarrow as pa

        data = np.frombuffer(self.rng.randbytes(_UUID_BYTES * count), np.uint8).reshape(count, _UUID_BYTES).copy()
        data[:, 6] = data[:, 6] & 0x0F | 0x40  # version 4
        data[:, 8] = data[:, 8] & 0x3F | 0x80
        digits = np.frombuffer(data.tobytes().hex().encode(), np.uint8).reshape(count, 2 * _UUID_BYTES)
        text = np.insert(digits, [8, 12, 16, 20], ord("-"), axis=1)
        offsets = np.arange(count + 1, dtype=np.int32) * text.shape[1]
        return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))

    def new_generation(self) -> str:
        return f"{self.rng.getrandbits(32):08x}"

    def lease(self, purpose: str, txn_id: str | None = None) -> AbstractContextManager[Lease]:
        """Hold a lease while something is made reachable, so that no collection deletes what it needs."""
        terms = LeaseTerms(txn_id or self.new_id(), self.settings.author, purpose)
        return acquire_lease(self.writer, terms, LeaseClock(self.clock, self.timer), self.pause)

    def at_generations(self, generations: Mapping[str, str]) -> Session:
        """Return a session that reads these blobs at the keys of their generations. Caches stay keyed by content."""
        if not generations:
            return self
        reader, media = self.wrap(GenerationReader(self.writer, generations))
        return replace(self, reader=reader, media=media)

    def pause(self, attempt: int) -> None:
        """Sleep before a retry: exponential back-off with full jitter."""
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempt, 16))
        self.sleep(self.rng.uniform(0, longest))


@check_arguments
def connect(
    store: str | None = None, settings: Settings | None = None, *, mode: str | None = None, token: str | None = None
) -> Session:
    """Open a store, by default that of the settings. Makes no request, except one to a service.

    The address of a service is `warp+https://HOST`, or `https://HOST` with a `token`. Without one, the token is that of
    WARP_TOKEN, or of `warp login`. The service says who the user is, and that is the author of changes.
    Budgets of the settings (`io_concurrency`, `threads`, `read_memory_bytes`) become those of the process.
    """
    settings = settings or load_settings()
    apply_budgets(settings)
    given, settings = _with_token(store or settings.store_url, settings, token)
    url, cache_mode = _complete_url(normalize_url(given)), parse_mode(mode or settings.mode)
    counters = IOMetrics()
    cache = open_cache(settings, counters)
    is_remote = not url.startswith(_WITHOUT_CACHE)
    if is_remote and cache_mode is Mode.LOCAL:
        small = open_metadata_files(settings, url)
        reader = OfflineReader(small.url, cache, small, _OFFLINE)
        offline = OfflineStore(small.url, cache, small, _OFFLINE)
        return Session(
            offline, reader, settings, mode=cache_mode, counters=counters, cache=cache, wrap=lambda _: (reader, None)
        )
    writer = open_store(url, settings)
    if isinstance(writer, ServiceStore):
        settings = replace(settings, author=str(writer.client.get("/session")["name"]))
    session = Session(writer, writer, settings, mode=cache_mode, counters=counters, cache=cache)
    if not is_remote:
        return session

    def wrap(store: Reader) -> tuple[Reader, Reader | None]:
        metered = MeteredReader(store, counters)
        if cache_mode is Mode.REMOTE:
            return metered, None
        is_hybrid = cache_mode is Mode.HYBRID
        tables, media = (FetchPolicy.EAGER,) * 2 if is_hybrid else (FetchPolicy.TABLES, FetchPolicy.MEDIA)
        small = MetadataCache(metered, settings.cache_dir / "metadata", key_policy, is_valid)
        cached = CachedReader(small, cache, tables)
        return cached, cached.with_policy(media)

    remote, media = wrap(writer)
    used = None if cache_mode is Mode.REMOTE else cache
    return replace(session, reader=remote, media=media, cache=used, wrap=wrap)


def _with_token(store: str, settings: Settings, token: str | None) -> tuple[str, Settings]:
    """Return the address and settings of a store. A web address with a token is that of a service."""
    if token is None and store.startswith(_WEB):
        known = read_token(settings.tokens_file, store)
        is_service = store.startswith(_SERVICE) or known is not None
        token = (settings.token or known) if is_service else None
    if token is None:
        return store, settings
    if not store.startswith(_WEB):
        raise BadInputError(f"store {redact(store)!r} takes no token", hint="A token is for https://HOST.")
    return service_url(store, has_token=True), replace(settings, token=token)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A store that another process can open. It holds the settings, with secrets, so it is never stored."""

    url: str = field(repr=False)
    mode: str
    settings: Settings

    @staticmethod
    def of(session: Session) -> StoreAddress:
        return StoreAddress(_complete_url(session.writer.url), session.mode.value, session.settings)

    def open(self) -> Session:
        """Open the store in this process."""
        return connect(self.url, self.settings, mode=self.mode)


@dataclass(frozen=True, slots=True)
class VersionAddress:
    """A version that another process can open. It holds the settings, with secrets, so it is never stored."""

    store: str = field(repr=False)
    dataset_id: str
    version: str
    mode: str
    settings: Settings

    @staticmethod
    def of(session: Session, ref: VersionRef) -> VersionAddress:
        store = _complete_url(session.reader.url)
        return VersionAddress(store, ref.dataset_id, ref.version, session.mode.value, session.settings)

    def open(self, version: str | None = None) -> tuple[Session, VersionRef]:
        """Open a session, and return it with this version or another."""
        session = connect(self.store, self.settings, mode=self.mode)
        return session, session.catalog.resolve(Address(self.dataset_id, version or self.version))


_secret_urls: ByteLRU[str, str] = ByteLRU(max_entries=_MAX_SECRET_URLS)
"""URLs that carry a password or a signature, by the form in which stores show them."""


def _complete_url(url: str) -> str:
    """Return the URL with the secrets that it was first opened with in this process."""
    if url.startswith(_WITHOUT_CACHE):
        return url
    shown = redact(url)
    if shown != url:
        _secret_urls.put(shown, url)
        return url
    return _secret_urls.get(url) or url


def open_metadata_files(settings: Settings, url: str) -> MetadataCacheFiles:
    """Open the small objects of a store that this machine has cached. Touches no file."""
    return MetadataCacheFiles(redact(url), settings.cache_dir / "metadata")


def open_cache(settings: Settings | None = None, counters: IOMetrics | None = None) -> BlobCache:
    """Open the cache of this machine, which all stores and processes share. Touches no file."""
    settings = settings or load_settings()
    opened = shared_entries(settings.cache_dir, time.time)
    return BlobCache(settings.cache_dir, settings.cache_limit_bytes, time.time, counters, opened)
