"""Errors of the S3 protocol: a code that clients know, its HTTP status, and the document that says so."""

from __future__ import annotations

import logging

from warpdata.errors import (
    BadInputError,
    ConflictError,
    CorruptError,
    DeniedError,
    LimitExceededError,
    NotFoundError,
    StorageError,
    WarpError,
)

__all__ = ["S3Error", "s3_error_of"]

_LOG = logging.getLogger("warpdata.server.s3")
_STATUS = {
    "AccessDenied": 403,
    "AuthorizationHeaderMalformed": 400,
    "AuthorizationQueryParametersError": 400,
    "BadDigest": 400,
    "EntityTooLarge": 400,
    "IncompleteBody": 400,
    "InternalError": 500,
    "InvalidAccessKeyId": 403,
    "InvalidArgument": 400,
    "InvalidPart": 400,
    "InvalidPartOrder": 400,
    "InvalidRange": 416,
    "InvalidRequest": 400,
    "InvalidToken": 400,
    "InvalidURI": 400,
    "KeyTooLongError": 400,
    "MalformedXML": 400,
    "MethodNotAllowed": 405,
    "MissingContentLength": 411,
    "NoSuchBucket": 404,
    "NoSuchBucketPolicy": 404,
    "NoSuchCORSConfiguration": 404,
    "NoSuchKey": 404,
    "NoSuchLifecycleConfiguration": 404,
    "NoSuchTagSet": 404,
    "NoSuchUpload": 404,
    "NotImplemented": 501,
    "OperationAborted": 409,
    "PreconditionFailed": 412,
    "RequestTimeTooSkewed": 403,
    "ServerSideEncryptionConfigurationNotFoundError": 404,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "XAmzContentSHA256Mismatch": 400,
}


class S3Error(Exception):
    """A request that is refused. `code` is one that S3 has, so that clients treat it as they do there."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = _STATUS[code]


def s3_error_of(error: Exception) -> S3Error:
    """Return the fault for an error of the library. What clients may not see goes to the log."""
    if isinstance(error, S3Error):
        return error
    if isinstance(error, NotFoundError):
        return S3Error("NoSuchKey", error.message)
    if isinstance(error, LimitExceededError):
        return S3Error("EntityTooLarge", error.message)
    if isinstance(error, BadInputError):
        return S3Error("InvalidArgument", error.message)
    if isinstance(error, DeniedError):
        return S3Error("AccessDenied", error.message)
    if isinstance(error, ConflictError):
        return S3Error("OperationAborted", error.message)
    _LOG.error("a request failed: %s", error, exc_info=None if isinstance(error, WarpError) else error)
    if isinstance(error, StorageError):
        return S3Error("ServiceUnavailable", "the store cannot answer now")
    if isinstance(error, CorruptError):
        return S3Error("InternalError", "the stored bytes are not those that were published")
    return S3Error("InternalError", "the gateway failed; its log has the reason")
