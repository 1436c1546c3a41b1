"""Stores by their root URL. Only this module maps URL schemes to backends."""

from __future__ import annotations

import configparser
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from warpdata.errors import AuthenticationError, BadInputError
from warpdata.primitives.byte_lru import ByteLRU
from warpdata.primitives.redaction import redact
from warpdata.settings import S3Settings, Settings, provider_variables
from warpdata.storage.local import LocalStore
from warpdata.storage.object_store import ObjectStore
from warpdata.storage.retries import RetryPolicy
from warpdata.storage.service_client import API_PATH, ClientOptions, ServiceClient
from warpdata.storage.service_store import ServiceStore
from warpdata.storage.types import Writer

if TYPE_CHECKING:
    from obstore.store import MemoryStore
    from obstore.store import ObjectStore as Backend

__all__ = ["normalize_url", "open_store", "resolve_s3", "service_url"]

_SERVICE = "warp+"
SCHEMES = ("file", "memory", "s3", "gs", "az", "http", "https", "warp+https", "warp+http")
_MAX_CLIENTS = 128
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_clients: ByteLRU[Hashable, Backend] = ByteLRU(max_entries=_MAX_CLIENTS, clear_after_fork=True)
_memory_stores: dict[str, MemoryStore] = {}
"""Memory stores live as long as the process. Their name identifies them, as a path identifies a file."""


def normalize_url(url: str) -> str:
    """Return the canonical URL of a root: paths become `file://` URLs, without trailing slashes."""
    if not url or "\0" in url or any("\ud800" <= letter <= "\udfff" for letter in url):
        raise BadInputError(f"store {redact(url)!r} is neither a URL nor a path")
    if "://" not in url:
        return Path(url).expanduser().absolute().as_uri()
    try:
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise BadInputError(f"store {redact(url)!r} is not a URL: {error}") from error
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise BadInputError(f"store {redact(url)!r} has an unknown scheme", hint=f"Known: {known}, or a plain path.")
    if scheme == "file":
        return _normalize_file_url(url)
    if "@" in urlsplit(url).netloc:
        raise BadInputError("a store URL must not carry a user or a password", hint="Use the provider's settings.")
    return url.rstrip("/") if scheme != "memory" else url


def _normalize_file_url(url: str) -> str:
    """Refuse URLs that would silently mean another directory: `file://data` names a host."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise BadInputError(
            f"store {redact(url)!r} does not name a local directory",
            hint="Write file:///absolute/path, or a plain path.",
        )
    return Path(unquote(parts.path)).as_uri()


def open_store(url: str, settings: Settings) -> Writer:
    """Open the store at `url`. Sends no request and creates nothing."""
    url = normalize_url(url)
    parts = urlsplit(url)
    if parts.scheme == "file":
        return LocalStore(Path(unquote(parts.path)), sync_writes=settings.sync_writes)
    if parts.scheme == "memory":
        return _open_memory(url)
    client = _Client.of(settings)
    if parts.scheme.startswith(_SERVICE):
        return _open_service(url, settings, client)
    if parts.scheme == "s3":
        return _open_s3(url, parts.netloc, parts.path.strip("/"), settings, client)
    return _open_other(url, parts.scheme, client)


@dataclass(frozen=True, slots=True)
class _Client:
    """Time-outs and retries, as options of the library."""

    options: dict[str, Any]
    retry: dict[str, Any]

    policy: RetryPolicy

    @property
    def key(self) -> str:
        return repr((self.options, self.retry))

    @staticmethod
    def of(settings: Settings) -> _Client:
        return _Client(
            options={
                "timeout": timedelta(seconds=settings.timeout_s),
                "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
            },
            retry={
                "max_retries": settings.max_retries,
                "retry_timeout": timedelta(seconds=settings.retry_timeout_s),
                "backoff": {
                    "init_backoff": timedelta(seconds=0.1),
                    "max_backoff": timedelta(seconds=5),
                    "base": 2,
                },
            },
            policy=RetryPolicy(settings.max_retries, settings.retry_timeout_s),
        )


def service_url(url: str, *, has_token: bool) -> str:
    """Return the store URL of a service. An address with a token is one; others name a static copy of a store."""
    is_web = url.startswith(("https://", "http://"))
    return f"{_SERVICE}{url}" if is_web and has_token else url


def _open_service(url: str, settings: Settings, client: _Client) -> ServiceStore:
    """Open a service. Its token is sent over https, and over http only to this machine."""
    from obstore.store import HTTPStore

    parts = urlsplit(url.removeprefix(_SERVICE))
    if not parts.hostname or parts.query or parts.fragment:
        raise BadInputError(f"store {redact(url)!r} does not name a service", hint="Write warp+https://HOST.")
    is_plain = parts.scheme == "http"
    if is_plain and parts.hostname not in _LOOPBACK:
        raise BadInputError(
            f"{redact(url)!r} would send the token unprotected", hint=f"Write warp+https://{parts.hostname}."
        )
    options = ClientOptions(
        settings.timeout_s, settings.connect_timeout_s, settings.max_retries, settings.retry_timeout_s
    )
    service = ServiceClient(parts.geturl(), settings.token, options)
    root = f"{service.url}{API_PATH}/objects"
    http = {**client.options, "allow_http": is_plain, "default_headers": service.headers()}

    def make(retry: dict[str, Any]) -> Backend:
        return HTTPStore.from_url(root, client_options=http, retry_config=retry)  # type: ignore[arg-type]

    backend, reads = _shared_clients((root, settings.token, client.key), client, make)
    objects = ObjectStore(url, backend, read_only=True, reads=reads, retries=client.policy)
    return ServiceStore(url, service, objects)


def _open_memory(url: str) -> ObjectStore:
    from obstore.store import MemoryStore

    return ObjectStore(url, _memory_stores.setdefault(url, MemoryStore()))


def _open_s3(url: str, bucket: str, prefix: str, settings: Settings, client: _Client) -> ObjectStore:
    from obstore.store import S3Store

    if not bucket:
        raise BadInputError(f"store {redact(url)!r} names no bucket")
    s3 = resolve_s3(settings.s3)
    options = dict(client.options)
    if s3.endpoint_url and s3.endpoint_url.startswith("http://"):
        if not s3.allow_http:
            raise BadInputError(
                f"the S3 endpoint {redact(s3.endpoint_url)} is plain http, which sends data unprotected",
                hint="Set AWS_ALLOW_HTTP=true to allow it.",
            )
        options["allow_http"] = True
    config: dict[str, Any] = {
        "region": s3.region or "us-east-1",
        "virtual_hosted_style_request": s3.virtual_hosted,
        "skip_signature": s3.skip_signature,
    }
    given = {
        "endpoint": s3.endpoint_url,
        "access_key_id": s3.access_key_id,
        "secret_access_key": s3.secret_access_key,
        "session_token": s3.session_token,
    }
    config.update({name: value for name, value in given.items() if value is not None})

    def make(retry: dict[str, Any]) -> Backend:
        return S3Store(
            bucket,
            prefix=prefix or None,
            config=config,  # type: ignore[arg-type]
            client_options=options,  # type: ignore[arg-type]
            retry_config=retry,  # type: ignore[arg-type]
        )

    backend, reads = _shared_clients((url, s3, client.key), client, make)
    return ObjectStore(url, backend, can_sign=True, reads=reads, retries=client.policy)


def _shared_clients(
    key: Hashable, client: _Client, make: Callable[[dict[str, Any]], Backend]
) -> tuple[Backend, Backend]:
    """Return a client that retries, for writes, and one that does not, for reads.

    All stores with equal options share both, because each client has connections of its own.
    """
    writes = _clients.get_or_create((key, True), lambda: make(client.retry))
    return writes, _clients.get_or_create((key, False), lambda: make({**client.retry, "max_retries": 0}))


def _open_other(url: str, scheme: str, client: _Client) -> ObjectStore:
    """Open GCS, Azure or HTTP, with credentials found by the library."""
    from obstore.exceptions import BaseError
    from obstore.store import HTTPStore, from_url

    if scheme in ("http", "https"):
        options = {**client.options, "allow_http": scheme == "http"}

        def make_http(retry: dict[str, Any]) -> Backend:
            return HTTPStore.from_url(url, client_options=options, retry_config=retry)  # type: ignore[arg-type]

        http, reads = _shared_clients((url, client.key), client, make_http)
        return ObjectStore(url, http, read_only=True, reads=reads, retries=client.policy)

    def make(retry: dict[str, Any]) -> Backend:
        return from_url(url, client_options=client.options, retry_config=retry)  # type: ignore[call-overload,no-any-return]

    try:
        backend, reads = _shared_clients((url, client.key, provider_variables()), client, make)
    except (BaseError, ValueError) as error:
        raise AuthenticationError(
            f"{redact(url)} cannot be opened: {redact(str(error).splitlines()[0])}",
            hint="Set the usual variables: GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, …",
        ) from error
    return ObjectStore(url, backend, can_sign=True, reads=reads, retries=client.policy)


def resolve_s3(s3: S3Settings) -> S3Settings:
    """Fill in keys and region from the profile; `AuthenticationError` if there are no credentials.

    Keys in the environment take precedence over a profile, as in the AWS CLI.
    """
    profile = _read_profile(s3)
    s3 = replace(
        s3,
        region=s3.region or profile.get("region"),
        endpoint_url=s3.endpoint_url or profile.get("endpoint_url"),
    )
    if s3.skip_signature or (s3.access_key_id and s3.secret_access_key):
        return s3
    filled = replace(
        s3,
        access_key_id=profile.get("aws_access_key_id"),
        secret_access_key=profile.get("aws_secret_access_key"),
        session_token=profile.get("aws_session_token"),
    )
    if filled.access_key_id and filled.secret_access_key:
        return filled
    if s3.profile:
        raise AuthenticationError(
            f"the AWS profile {s3.profile!r} has no keys in {s3.credentials_file} or {s3.config_file}",
            hint="Run `aws configure --profile NAME`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    if not s3.ambient_credentials:
        raise AuthenticationError(
            "AWS credentials not found",
            hint="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    return filled


def _read_profile(s3: S3Settings) -> dict[str, str]:
    """Return the settings of the profile. The credentials file takes precedence over the config file."""
    name = s3.profile or "default"
    merged: dict[str, str] = {}
    sources = ((s3.config_file, name if name == "default" else f"profile {name}"), (s3.credentials_file, name))
    for path, section in sources:
        if path is None or not path.is_file():
            continue
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise BadInputError(f"{path} is not a valid AWS configuration file: {error}") from error
        if parser.has_section(section):
            merged.update(parser.items(section))
    return merged
