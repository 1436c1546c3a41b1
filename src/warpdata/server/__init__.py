"""The service: datasets of a store over HTTP, with users, roles and jobs. Needs the extra `server`.

The store is the truth about datasets; the database holds users, permissions and jobs, and an index of the store.
docs/guides/server.md describes it for users. Each name loads its module on first use, so that a process for one SQL
query loads no web framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "warpdata.server.access": (
        "AuditEntry",
        "IssuedS3Key",
        "IssuedToken",
        "NewS3Key",
        "NewToken",
        "Place",
        "Principal",
        "Role",
        "Roles",
        "Scope",
        "create_s3_key",
        "create_token",
        "create_user",
        "find_tampering",
        "find_user",
        "issue_sign_in_code",
        "list_tokens",
        "list_s3_keys",
        "record",
        "revoke_s3_key",
        "revoke_token",
        "set_role",
    ),
    "warpdata.server.app": ("create_app",),
    "warpdata.server.index": (
        "Synchronized",
        "synchronize",
    ),
    "warpdata.server.database": ("back_up",),
    "warpdata.server.logs": ("set_up_logs",),
    "warpdata.server.supervisor": (
        "bind",
        "run_processes",
    ),
    "warpdata.server.service": (
        "ProviderOptions",
        "Service",
        "ServiceOptions",
    ),
    "warpdata.server.serving": (
        "Running",
        "check_options",
        "first_user",
        "open_service",
        "serve",
        "sign_in_link",
        "work",
    ),
}
"""Public names by module. The imports below repeat them for type checkers."""

_HOMES = {name: home for home, names in _EXPORTS.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605

if TYPE_CHECKING:
    from warpdata.server.access import AuditEntry as AuditEntry
    from warpdata.server.access import IssuedS3Key as IssuedS3Key
    from warpdata.server.access import IssuedToken as IssuedToken
    from warpdata.server.access import NewS3Key as NewS3Key
    from warpdata.server.access import NewToken as NewToken
    from warpdata.server.access import Place as Place
    from warpdata.server.access import Principal as Principal
    from warpdata.server.access import Role as Role
    from warpdata.server.access import Roles as Roles
    from warpdata.server.access import Scope as Scope
    from warpdata.server.access import create_s3_key as create_s3_key
    from warpdata.server.access import create_token as create_token
    from warpdata.server.access import create_user as create_user
    from warpdata.server.access import find_tampering as find_tampering
    from warpdata.server.access import find_user as find_user
    from warpdata.server.access import issue_sign_in_code as issue_sign_in_code
    from warpdata.server.access import list_s3_keys as list_s3_keys
    from warpdata.server.access import list_tokens as list_tokens
    from warpdata.server.access import record as record
    from warpdata.server.access import revoke_s3_key as revoke_s3_key
    from warpdata.server.access import revoke_token as revoke_token
    from warpdata.server.access import set_role as set_role
    from warpdata.server.app import create_app as create_app
    from warpdata.server.database import back_up as back_up
    from warpdata.server.index import Synchronized as Synchronized
    from warpdata.server.index import synchronize as synchronize
    from warpdata.server.logs import set_up_logs as set_up_logs
    from warpdata.server.service import ProviderOptions as ProviderOptions
    from warpdata.server.service import Service as Service
    from warpdata.server.service import ServiceOptions as ServiceOptions
    from warpdata.server.serving import Running as Running
    from warpdata.server.serving import check_options as check_options
    from warpdata.server.serving import first_user as first_user
    from warpdata.server.serving import open_service as open_service
    from warpdata.server.serving import serve as serve
    from warpdata.server.serving import sign_in_link as sign_in_link
    from warpdata.server.serving import work as work
    from warpdata.server.supervisor import bind as bind
    from warpdata.server.supervisor import run_processes as run_processes


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warpdata.server' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value
