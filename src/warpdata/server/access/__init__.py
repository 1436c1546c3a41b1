"""Who may do what: users, roles, tokens, sign-ins, signed URLs, and the audit log.

`authorize` is the only place that decides.
"""

from warpdata.server.access.audit import AuditEntry, find_tampering, record
from warpdata.server.access.credentials import (
    SIGN_IN_S,
    IssuedToken,
    NewToken,
    begin_sign_in,
    create_token,
    create_user,
    end_sign_in,
    find_sign_in,
    find_token,
    find_user,
    issue_sign_in_code,
    list_tokens,
    recall_sign_in,
    recall_token,
    redeem_sign_in_code,
    revoke_token,
    set_role,
)
from warpdata.server.access.provider import SignInProvider, StartedSignIn
from warpdata.server.access.rate_limit import AttemptLimit
from warpdata.server.access.roles import (
    Action,
    Place,
    Principal,
    Role,
    Roles,
    Scope,
    authorize,
    authorize_admin,
    authorize_credentials,
    load_roles,
)
from warpdata.server.access.s3_keys import (
    IssuedS3Key,
    NewS3Key,
    S3KeyRing,
    create_s3_key,
    list_s3_keys,
    revoke_s3_key,
)
from warpdata.server.access.signed_urls import FileGrant, recall_file, sign_file, verify_file

__all__ = [
    "SIGN_IN_S",
    "Action",
    "AttemptLimit",
    "AuditEntry",
    "FileGrant",
    "IssuedS3Key",
    "IssuedToken",
    "NewS3Key",
    "NewToken",
    "Place",
    "Principal",
    "Role",
    "Roles",
    "S3KeyRing",
    "Scope",
    "SignInProvider",
    "StartedSignIn",
    "authorize",
    "authorize_admin",
    "authorize_credentials",
    "begin_sign_in",
    "create_s3_key",
    "create_token",
    "create_user",
    "end_sign_in",
    "find_sign_in",
    "find_tampering",
    "find_token",
    "find_user",
    "issue_sign_in_code",
    "list_s3_keys",
    "list_tokens",
    "load_roles",
    "recall_file",
    "recall_sign_in",
    "recall_token",
    "record",
    "redeem_sign_in_code",
    "revoke_s3_key",
    "revoke_token",
    "set_role",
    "sign_file",
    "verify_file",
]
