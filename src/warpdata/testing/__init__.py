"""Test tools for stores: a conformance suite, a store that fails on purpose, a real S3 server.

Needs the `dev` extra. Register `warpdata.testing.store_suite` with `pytest.register_assert_rewrite`
in a `conftest.py` for detailed assertion messages.
"""

from warpdata.testing.fault_store import (
    DropReplies,
    DropReply,
    FailReads,
    Fault,
    FaultyStore,
    KillAt,
    Killed,
    Operation,
)
from warpdata.testing.s3_server import S3Endpoint, S3Server
from warpdata.testing.store_suite import StoreSuite

__all__ = [
    "DropReplies",
    "DropReply",
    "FailReads",
    "Fault",
    "FaultyStore",
    "KillAt",
    "Killed",
    "Operation",
    "S3Endpoint",
    "S3Server",
    "StoreSuite",
]
