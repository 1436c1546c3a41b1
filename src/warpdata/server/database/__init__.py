"""The database of the service: users, permissions, jobs, audit and an index of the store.

The store is the truth about datasets. Everything that `Index` tables hold can be built again by `warp server reindex`.
"""

from warpdata.server.database.backup import back_up
from warpdata.server.database.engine import Database, open_database
from warpdata.server.database.tables import (
    AuditRow,
    AuditTipRow,
    DatasetRow,
    EventRow,
    IdempotencyRow,
    IdentityRow,
    JobLogRow,
    JobRow,
    MemberRow,
    PartialFileRow,
    ProviderSignInRow,
    QuotaRow,
    S3KeyRow,
    ScheduleRow,
    ServiceTable,
    SignInCodeRow,
    SigningKeyRow,
    SignInRow,
    TokenRow,
    UploadFileRow,
    UploadRow,
    UserRow,
    WebhookDeliveryRow,
    WebhookRow,
)

__all__ = [
    "AuditRow",
    "AuditTipRow",
    "Database",
    "DatasetRow",
    "EventRow",
    "IdempotencyRow",
    "IdentityRow",
    "JobLogRow",
    "JobRow",
    "MemberRow",
    "PartialFileRow",
    "ProviderSignInRow",
    "QuotaRow",
    "S3KeyRow",
    "ScheduleRow",
    "ServiceTable",
    "SignInCodeRow",
    "SignInRow",
    "SigningKeyRow",
    "TokenRow",
    "UploadFileRow",
    "UploadRow",
    "UserRow",
    "WebhookDeliveryRow",
    "WebhookRow",
    "back_up",
    "open_database",
]
