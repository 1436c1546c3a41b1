"""Requests to addresses that users name: webhooks, imports and sign-in providers. Nothing else leaves the service.

A name is resolved once. Every address it has must be public, or one that the operator allows; the connection goes to
the address that was checked. Redirects are checked the same way. Time and bytes are bounded. Settings of proxies in the
environment are not used.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import SplitResult, urljoin, urlsplit

from warpdata.errors import AccessDeniedError, BadInputError, ErrorKind, LimitExceededError, StorageError, WarpError
from warpdata.limits import KIB, MIB

__all__ = [
    "AddressRule",
    "FetchLimits",
    "SafeReply",
    "check_url",
    "parse_networks",
    "rule_with_host",
    "send_safely",
    "stream_safely",
]

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK_BYTES = 256 * KIB
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_MAX_URL = 2048


@dataclass(frozen=True, slots=True)
class AddressRule:
    """Where requests may go: to public addresses by https, and to the networks that the operator allows."""

    allowed: tuple[Network, ...] = ()

    def permits(self, address: _Address) -> bool:
        """Return whether a request may go there."""
        if self.allows(address):
            return True
        plain = _embedded(address)
        if plain is not None:
            return self.permits(plain)
        return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)

    def allows(self, address: _Address) -> bool:
        """Return whether the operator allows the address. Such a place may be reached by http too."""
        return any(address.version == network.version and address in network for network in self.allowed)


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one exchange. `total_s` is for all of it, with redirects."""

    connect_s: float = 5.0
    total_s: float = 10.0
    max_bytes: int = 1 * MIB
    max_redirects: int = 3


@dataclass(frozen=True, slots=True)
class SafeReply:
    """An answer. `url` is where it came from, after redirects."""

    url: str
    status: int
    headers: Mapping[str, str] = field(repr=False)
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Target:
    """A checked place: the name for TLS and the Host header, and the address to connect to."""

    parts: SplitResult
    host: str
    port: int
    address: str

    @property
    def path(self) -> str:
        return (self.parts.path or "/") + (f"?{self.parts.query}" if self.parts.query else "")


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Return networks of an operator, such as `10.0.0.0/8` or `192.168.1.4`."""
    try:
        return tuple(ipaddress.ip_network(text.strip()) for text in texts if text.strip())
    except ValueError as error:
        raise BadInputError(f"{error}", hint="Write 10.1.0.0/16, fd00::/8 or one address.") from error


def rule_with_host(rule: AddressRule, url: str) -> AddressRule:
    """Return a rule that also allows the host of a URL: the address of this service, which its operator chose."""
    host = urlsplit(url).hostname or ""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return rule
    addresses = {ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found}
    return AddressRule((*rule.allowed, *(ipaddress.ip_network(address) for address in addresses)))


def check_url(rule: AddressRule, url: str) -> None:
    """Raise the error of a request to this URL, without sending one. The name is resolved again when one is sent."""
    _resolve(rule, url)


def send_safely(
    rule: AddressRule,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    limits: FetchLimits | None = None,
) -> SafeReply:
    """Send a request, and return the answer of any status. Redirects are followed for GET alone.

    `AccessDeniedError` of kind `address_refused` for a place that is not public; `StorageError` if none answers.
    """
    limits = limits or FetchLimits()
    with _exchange(rule, method, url, headers or {}, body, limits) as (reply, found):
        data = reply.read(limits.max_bytes + 1)
    if len(data) > limits.max_bytes:
        raise LimitExceededError(f"{_shown(found)} answered more than {limits.max_bytes:,} bytes")
    named = {name.lower(): value for name, value in reply.getheaders()}
    return SafeReply(found, reply.status, named, data)


def stream_safely(
    rule: AddressRule, url: str, limits: FetchLimits, on_total: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """Yield the bytes at a URL. `on_total` hears of their number, if it is known."""
    with _exchange(rule, "GET", url, {}, b"", limits) as (reply, found):
        if reply.status != 200:
            raise BadInputError(f"{_shown(found)} answered {reply.status} {reply.reason}", hint="Open it in a browser.")
        on_total(int(reply.headers.get("content-length") or 0))
        received = 0
        while chunk := reply.read(_CHUNK_BYTES):
            received += len(chunk)
            if received > limits.max_bytes:
                raise LimitExceededError(f"{_shown(found)} has more than {limits.max_bytes:,} bytes")
            yield chunk


@contextmanager
def _exchange(
    rule: AddressRule, method: str, url: str, headers: Mapping[str, str], body: bytes, limits: FetchLimits
) -> Iterator[tuple[http.client.HTTPResponse, str]]:
    """Yield the answer, and where it came from. A watchdog ends connections that take too long."""
    opened: list[http.client.HTTPConnection] = []
    watchdog = threading.Timer(limits.total_s, _abort, [opened])
    watchdog.daemon = True
    watchdog.start()
    given = dict(headers)
    try:
        for _ in range(limits.max_redirects + 1):
            target = _resolve(rule, url)
            connection = _connect(target, limits)
            opened.append(connection)
            connection.request(method, target.path, body or None, {"User-Agent": "warpdata", **given})
            reply = connection.getresponse()
            where = reply.headers.get("location")
            if method != "GET" or reply.status not in _REDIRECTS or not where:
                yield reply, url
                return
            following = urljoin(url, where)
            if urlsplit(following)[:2] != urlsplit(url)[:2]:
                given = {}  # they were meant for the first host
            url = following
        raise BadInputError(f"{_shown(url)} redirects more than {limits.max_redirects} times")
    except WarpError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise StorageError(f"{_shown(url)} does not answer: {reason}", hint="Check the address.") from error
    finally:
        watchdog.cancel()
        for connection in opened:
            connection.close()


def _abort(opened: list[http.client.HTTPConnection]) -> None:
    for connection in opened:
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _resolve(rule: AddressRule, url: str) -> _Target:
    """Check a URL and every address of its name. `BadInputError` or `AccessDeniedError`."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise BadInputError("the URL cannot be read", hint="Write https://HOST/PATH.") from error
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or len(url) > _MAX_URL:
        raise BadInputError(f"{_shown(url)!r} is not an address to send to", hint="Write https://HOST/PATH.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadInputError(f"{_shown(url)!r} has characters that URLs do not have", hint="Encode them as %XX.")
    port = port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BadInputError(f"{host!r} has no address", hint="Check the name.") from error
    addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found]
    for address in addresses:
        if not rule.permits(address) or (parts.scheme == "http" and not rule.allows(address)):
            needs = "is not reached by https" if rule.permits(address) else "is not public"
            raise AccessDeniedError(
                f"{host!r} {needs}",
                hint="An operator allows networks with --allow-network.",
                kind=ErrorKind.ADDRESS_REFUSED,
            )
    return _Target(parts, host, port, str(addresses[0]))


def _connect(target: _Target, limits: FetchLimits) -> http.client.HTTPConnection:
    """Connect to the address that was checked. TLS and the Host header use the name."""
    raw = socket.create_connection((target.address, target.port), timeout=limits.connect_s)
    try:
        raw.settimeout(limits.total_s)
        connection = http.client.HTTPConnection(target.host, target.port, timeout=limits.total_s)
        if target.parts.scheme == "https":
            connection = http.client.HTTPSConnection(target.host, target.port, timeout=limits.total_s)
            raw = ssl.create_default_context().wrap_socket(raw, server_hostname=target.host)
    except BaseException:
        raw.close()
        raise
    connection.sock = raw
    return connection


def _embedded(address: _Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address inside of an IPv6 address that leads to one."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _shown(url: str) -> str:
    """Return a URL without its query, which may carry a secret."""
    return url.partition("?")[0][:200]
