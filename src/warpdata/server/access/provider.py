"""Sign-in with an OpenID Connect provider: authorization code with PKCE, and an ID token that is checked here.

The provider identifies people; users and roles are those of the service. A user is found by the subject of the
provider, and the first time by a verified e-mail address that is the name of the user.
"""

from __future__ import annotations

import base64
import hmac
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

import jwt
from sqlalchemy import select
from sqlalchemy.orm import Session as OrmSession

from warpdata.errors import AuthenticationError, BadInputError, StorageError, WarpError
from warpdata.primitives.hashing import sha256_hex
from warpdata.server.access.credentials import is_user_name
from warpdata.server.database import IdentityRow, ProviderSignInRow, UserRow
from warpdata.server.safe_http import FetchLimits, send_safely
from warpdata.server.service import ProviderOptions, Service

__all__ = ["SignInProvider", "StartedSignIn"]

_STARTED_S = 600
_DISCOVERY_S = 3600.0
_LEEWAY_S = 60
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_LIMITS = FetchLimits(max_bytes=1024 * 1024)


@dataclass(frozen=True, slots=True)
class StartedSignIn:
    """Where the browser goes, and the secret that it brings back."""

    url: str
    state: str = field(repr=False)


class SignInProvider:
    """One provider. Its endpoints and keys are read when they are needed, and kept for an hour."""

    def __init__(self, service: Service, options: ProviderOptions) -> None:
        self._service = service
        self._options = options
        self._known: tuple[float, Mapping[str, Any]] | None = None
        self._lock = threading.Lock()

    def start(self, redirect_uri: str) -> StartedSignIn:
        """Begin a sign-in. It ends within ten minutes, in the browser that began it."""
        service = self._service
        state, nonce, verifier = service.new_secret(), service.new_secret(), service.new_secret() + service.new_secret()
        endpoint = self._discover()["authorization_endpoint"]
        row = ProviderSignInRow(
            state=sha256_hex(state.encode()), verifier=verifier, nonce=nonce, expires=service.later(_STARTED_S)
        )
        with service.database.write() as db:
            db.add(row)
        query = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": redirect_uri,
            "scope": "openid email profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": _encode(sha256(verifier.encode()).digest()),
            "code_challenge_method": "S256",
        }
        return StartedSignIn(f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", state)

    def finish(self, state: str, cookie: str, code: str, redirect_uri: str) -> UserRow:
        """Return the user whom the provider names. `AuthenticationError` if anything does not fit."""
        if not hmac.compare_digest(state.encode(), cookie.encode()):
            raise _refused("the sign-in was begun by another browser")
        with self._service.database.write() as db:
            row = db.get(ProviderSignInRow, sha256_hex(state.encode()))
            if row is not None:
                db.delete(row)
        if row is None or row.expires <= self._service.now():
            raise _refused("the sign-in took too long, or was finished before")
        claims = self._verify(self._exchange(code, row.verifier, redirect_uri), row.nonce)
        with self._service.database.write() as db:
            return self._find_user(db, claims)

    def _exchange(self, code: str, verifier: str, redirect_uri: str) -> str:
        """Return the ID token for a code."""
        options = self._options
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
            "client_id": options.client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if options.client_secret:
            pair = f"{quote(options.client_id, safe='')}:{quote(options.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        reply = send_safely(
            self._service.addresses,
            "POST",
            self._discover()["token_endpoint"],
            headers=headers,
            body=urlencode(body).encode(),
            limits=_LIMITS,
        )
        token = _parse(reply.data).get("id_token") if reply.status == 200 else None
        if not isinstance(token, str):
            raise _refused(f"the provider answered {reply.status} without an ID token")
        return token

    def _verify(self, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token, after every check that the specification asks for."""
        options = self._options
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            keys = jwt.PyJWKSet.from_dict(dict(self._get(self._discover()["jwks_uri"]))).keys
            chosen = [key for key in keys if key_id is None or key.key_id == key_id]
            if len(chosen) != 1:
                raise _refused("the ID token is signed with a key that the provider does not have")
            claims: dict[str, Any] = jwt.decode(
                token,
                chosen[0],
                algorithms=list(_ALGORITHMS),
                audience=options.client_id,
                issuer=options.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise _refused(f"the ID token is not valid: {error}") from error
        is_own = claims.get("azp", options.client_id) == options.client_id
        if not is_own or not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _refused("the ID token was made for another sign-in")
        return claims

    def _find_user(self, db: OrmSession, claims: Mapping[str, Any]) -> UserRow:
        subject, issuer = str(claims["sub"])[:256], self._options.issuer
        known = db.get(IdentityRow, (issuer, subject))
        if known is not None:
            user = db.get(UserRow, known.user_id)
        else:
            name = str(claims.get("email", "")) if claims.get("email_verified") is True else ""
            user = db.scalar(select(UserRow).where(UserRow.name == name)) if name else None
            if user is None and self._options.creates_users and is_user_name(name):
                user = UserRow(
                    id=self._service.new_id(), name=name, is_admin=False, is_active=True, created=self._service.now()
                )
                db.add(user)
                db.flush()
            if user is not None:
                db.add(IdentityRow(issuer=issuer, subject=subject, user_id=user.id))
        if user is None or not user.is_active:
            raise _refused(
                "the service does not know this user", hint="An operator creates the user by its e-mail address."
            )
        return user

    def _discover(self) -> Mapping[str, Any]:
        """Return the endpoints of the provider."""
        with self._lock:
            now = self._service.session.timer()
            if self._known is None or now - self._known[0] > _DISCOVERY_S:
                found = self._get(f"{self._options.issuer.rstrip('/')}/.well-known/openid-configuration")
                if found.get("issuer") != self._options.issuer:
                    raise BadInputError("the provider calls itself by another name", hint="Check --oidc-issuer.")
                if not all(isinstance(found.get(name), str) for name in _ENDPOINTS):
                    raise BadInputError("the provider does not name its endpoints", hint="Check --oidc-issuer.")
                self._known = now, found
            return self._known[1]

    def _get(self, url: str) -> Mapping[str, Any]:
        reply = send_safely(self._service.addresses, "GET", url, limits=_LIMITS)
        if reply.status != 200:
            raise StorageError(f"the sign-in provider answered {reply.status}")
        return _parse(reply.data)


def _parse(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError("the sign-in provider did not answer with JSON") from error
    if not isinstance(found, dict):
        raise StorageError("the sign-in provider did not answer with a JSON object")
    return found


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _refused(why: str, hint: str = "Sign in again.") -> WarpError:
    return AuthenticationError(why, hint=hint)
