"""The S3 gateway: every version of every dataset as a bucket, and an inbox for labels.

It needs no database; the service gives it keys of users. docs/specs/gateway.md is the normative text.
"""

from warpdata.server.s3.app import OnAnswer, S3Gateway
from warpdata.server.s3.files import BucketFiles
from warpdata.server.s3.grants import (
    KeyRight,
    KeyRing,
    KnownKey,
    S3Grant,
    SingleKey,
    derive_secret,
    is_access_key,
    new_access_key,
    parse_grant,
)
from warpdata.server.s3.parts import remove_old_parts
from warpdata.server.s3.serving import GatewayOptions, serve_gateway
from warpdata.server.s3.sigv4 import presign
from warpdata.server.s3.writes import OnWrite

__all__ = [
    "BucketFiles",
    "GatewayOptions",
    "KeyRight",
    "KeyRing",
    "KnownKey",
    "OnAnswer",
    "OnWrite",
    "S3Gateway",
    "S3Grant",
    "SingleKey",
    "derive_secret",
    "is_access_key",
    "new_access_key",
    "parse_grant",
    "presign",
    "remove_old_parts",
    "serve_gateway",
]
