"""Tables of the service, in types that SQLite and PostgreSQL share.

Times are texts in UTC of a fixed width, as in commits, so that they sort. Secrets are stored as SHA-256. The index of
the store is `DatasetRow`; all other tables belong to the service alone.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, Integer, String, Text, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = [
    "AuditRow",
    "AuditTipRow",
    "DatasetRow",
    "EventRow",
    "IdempotencyRow",
    "IdentityRow",
    "JobLogRow",
    "JobRow",
    "LabelBatchRow",
    "LabelConnectionRow",
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
]

_ID = String(32)
_HASH = String(64)
_TIME = String(24)
_NAME = String(256)
_BIG = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows only of an INTEGER key."""


class ServiceTable(DeclarativeBase):
    """Base of all tables."""


class UserRow(ServiceTable):
    """A person. An administrator is owner of every workspace."""

    __tablename__ = "users"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    name: Mapped[str] = mapped_column(_NAME, unique=True)
    is_admin: Mapped[bool] = mapped_column(Boolean)
    is_active: Mapped[bool] = mapped_column(Boolean)
    created: Mapped[str] = mapped_column(_TIME)


class MemberRow(ServiceTable):
    """A role of a user in a workspace. With a dataset, it replaces the role of the workspace there."""

    __tablename__ = "members"
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME, primary_key=True)
    dataset: Mapped[str] = mapped_column(_NAME, primary_key=True, default="")
    """The name without its workspace; empty for the whole workspace."""
    role: Mapped[str] = mapped_column(String(16))


class SignInCodeRow(ServiceTable):
    """A one-time sign-in link, by the hash of its code."""

    __tablename__ = "sign_in_codes"
    hash: Mapped[str] = mapped_column(_HASH, primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    expires: Mapped[str] = mapped_column(_TIME)


class SignInRow(ServiceTable):
    """A signed-in browser, by the hash of its cookie."""

    __tablename__ = "sign_ins"
    hash: Mapped[str] = mapped_column(_HASH, primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    created: Mapped[str] = mapped_column(_TIME)
    expires: Mapped[str] = mapped_column(_TIME)


class TokenRow(ServiceTable):
    """A personal token, by its hash. `workspace` and `dataset` narrow what it reaches; empty means everything."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    hash: Mapped[str] = mapped_column(_HASH, unique=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(_NAME)
    scope: Mapped[str] = mapped_column(String(16))
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    created: Mapped[str] = mapped_column(_TIME)
    expires: Mapped[str] = mapped_column(_TIME)
    revoked: Mapped[str | None] = mapped_column(_TIME)


class S3KeyRow(ServiceTable):
    """An S3 key. Its secret follows from a master key that is not in the database, of which `master` is a name.

    `workspace`, `dataset` and `ref` narrow what it reaches; empty means everything.
    """

    __tablename__ = "s3_keys"
    access_key: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(_NAME)
    right: Mapped[str] = mapped_column(String(16))
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    ref: Mapped[str] = mapped_column(_NAME)
    master: Mapped[str] = mapped_column(String(16))
    created: Mapped[str] = mapped_column(_TIME)
    expires: Mapped[str | None] = mapped_column(_TIME)
    revoked: Mapped[str | None] = mapped_column(_TIME)


class SigningKeyRow(ServiceTable):
    """A key of signed URLs. The newest signs; all that are not retired are accepted."""

    __tablename__ = "signing_keys"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    secret: Mapped[str] = mapped_column(_HASH)
    created: Mapped[str] = mapped_column(_TIME)
    retired: Mapped[str | None] = mapped_column(_TIME)


class AuditRow(ServiceTable):
    """One entry of the audit log. `hash` covers the entry and the hash of the entry before it."""

    __tablename__ = "audit"
    sequence: Mapped[int] = mapped_column(_BIG, primary_key=True, autoincrement=False)
    time: Mapped[str] = mapped_column(_TIME)
    actor: Mapped[str] = mapped_column(_NAME)
    token_id: Mapped[str] = mapped_column(_ID)
    ip: Mapped[str] = mapped_column(String(64))
    action: Mapped[str] = mapped_column(String(64))
    workspace: Mapped[str] = mapped_column(_NAME, index=True)
    resource: Mapped[str] = mapped_column(Text)
    detail: Mapped[str] = mapped_column(Text)
    previous: Mapped[str] = mapped_column(_HASH)
    hash: Mapped[str] = mapped_column(_HASH)


class AuditTipRow(ServiceTable):
    """The last entry of the audit log. Locked while an entry is appended."""

    __tablename__ = "audit_tip"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    sequence: Mapped[int] = mapped_column(_BIG)
    hash: Mapped[str] = mapped_column(_HASH)


class DatasetRow(ServiceTable):
    """The index of a dataset: the head of `main`, and what its manifest says."""

    __tablename__ = "datasets"
    id: Mapped[str] = mapped_column(String(260), primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME, index=True)
    name: Mapped[str] = mapped_column(_NAME)
    version: Mapped[str] = mapped_column(_HASH)
    commit: Mapped[str] = mapped_column(_HASH)
    updated: Mapped[str] = mapped_column(String(40))
    """Time of the head commit, as the commit states it."""
    row_count: Mapped[int] = mapped_column(_BIG)
    size_bytes: Mapped[int] = mapped_column(_BIG)
    file_count: Mapped[int] = mapped_column(_BIG)
    sections: Mapped[dict[str, Any]] = mapped_column(JSON)


class JobRow(ServiceTable):
    """Work in the background. A worker that stops writing `heartbeat` loses its job to another."""

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    owner_id: Mapped[str] = mapped_column(_ID)
    state: Mapped[str] = mapped_column(String(16))
    arguments: Mapped[dict[str, Any]] = mapped_column(JSON)
    checkpoint: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    """What is done so far, as the kind of the job writes it. Work continues there after a restart."""
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    error: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    done: Mapped[int] = mapped_column(_BIG)
    total: Mapped[int] = mapped_column(_BIG)
    attempts: Mapped[int] = mapped_column(Integer)
    worker: Mapped[str | None] = mapped_column(_ID)
    is_cancelled: Mapped[bool] = mapped_column(Boolean)
    created: Mapped[str] = mapped_column(_TIME)
    started: Mapped[str | None] = mapped_column(_TIME)
    heartbeat: Mapped[str | None] = mapped_column(_TIME)
    finished: Mapped[str | None] = mapped_column(_TIME)
    __table_args__ = (Index("jobs_by_state", "state", "created"),)


class JobLogRow(ServiceTable):
    """One line of the log of a job."""

    __tablename__ = "job_log"
    sequence: Mapped[int] = mapped_column(_BIG, primary_key=True, autoincrement=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    time: Mapped[str] = mapped_column(_TIME)
    text: Mapped[str] = mapped_column(Text)


class EventRow(ServiceTable):
    """Something that happened, for live updates. Old rows are removed."""

    __tablename__ = "events"
    sequence: Mapped[int] = mapped_column(_BIG, primary_key=True, autoincrement=True)
    time: Mapped[str] = mapped_column(_TIME)
    kind: Mapped[str] = mapped_column(String(32))
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class IdempotencyRow(ServiceTable):
    """The answer to a request with an `Idempotency-Key`. Without an answer, the request is at work or was killed."""

    __tablename__ = "idempotency"
    user_id: Mapped[str] = mapped_column(_ID, primary_key=True)
    key: Mapped[str] = mapped_column(String(128), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(_HASH)
    created: Mapped[str] = mapped_column(_TIME)
    status: Mapped[int | None] = mapped_column(Integer)
    body: Mapped[str | None] = mapped_column(Text)


class UploadRow(ServiceTable):
    """Files that are being collected for one commit."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    user_id: Mapped[str] = mapped_column(_ID)
    artifact: Mapped[str] = mapped_column(_NAME)
    created: Mapped[str] = mapped_column(_TIME)
    version: Mapped[str | None] = mapped_column(_HASH)
    """The version that the commit made; None while files are collected."""
    only_images: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    """Files that are no images are refused when they arrive."""


class UploadFileRow(ServiceTable):
    """A file of an upload, whose bytes are in the store."""

    __tablename__ = "upload_files"
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True)
    path: Mapped[str] = mapped_column(Text, primary_key=True)
    sha256: Mapped[str] = mapped_column(_HASH)
    size_bytes: Mapped[int] = mapped_column(_BIG)
    pieces: Mapped[list[tuple[str, int, int]]] = mapped_column(JSON)
    """Where the bytes are, in order: name of an object of the upload, first byte, number of bytes."""


class PartialFileRow(ServiceTable):
    """A file that arrives in parts. It becomes a file of its upload with the last byte."""

    __tablename__ = "partial_files"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    upload_id: Mapped[str] = mapped_column(ForeignKey("uploads.id", ondelete="CASCADE"), index=True)
    path: Mapped[str] = mapped_column(Text)
    length: Mapped[int] = mapped_column(_BIG)
    offset: Mapped[int] = mapped_column(_BIG)
    sha256: Mapped[str | None] = mapped_column(_HASH)
    """The hash that the client announced for the whole file; None if it announced none."""
    pieces: Mapped[list[tuple[str, int, int]]] = mapped_column(JSON)


class QuotaRow(ServiceTable):
    """The most that the datasets of a workspace may hold. None is no limit."""

    __tablename__ = "quotas"
    workspace: Mapped[str] = mapped_column(_NAME, primary_key=True)
    max_bytes: Mapped[int | None] = mapped_column(_BIG)
    max_files: Mapped[int | None] = mapped_column(_BIG)


class ScheduleRow(ServiceTable):
    """A job that is started again and again. Without a workspace, it is for the whole service."""

    __tablename__ = "schedules"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    workspace: Mapped[str] = mapped_column(_NAME)
    dataset: Mapped[str] = mapped_column(_NAME)
    owner_id: Mapped[str] = mapped_column(_ID)
    arguments: Mapped[dict[str, Any]] = mapped_column(JSON)
    every_s: Mapped[int] = mapped_column(_BIG)
    next_run: Mapped[str] = mapped_column(_TIME, index=True)
    last_job_id: Mapped[str | None] = mapped_column(_ID)
    is_active: Mapped[bool] = mapped_column(Boolean)
    created: Mapped[str] = mapped_column(_TIME)


class WebhookRow(ServiceTable):
    """An address that hears of events of a workspace, or of one dataset of it."""

    __tablename__ = "webhooks"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME, index=True)
    dataset: Mapped[str] = mapped_column(_NAME)
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(_HASH)
    """Signs deliveries, so it is stored as it is."""
    events: Mapped[list[str]] = mapped_column(JSON)
    is_active: Mapped[bool] = mapped_column(Boolean)
    owner_id: Mapped[str] = mapped_column(_ID)
    created: Mapped[str] = mapped_column(_TIME)


class WebhookDeliveryRow(ServiceTable):
    """One message to a webhook. It is written with the event, and sent by a worker until it arrives."""

    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    event: Mapped[str] = mapped_column(String(32))
    body: Mapped[str] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer)
    next_attempt: Mapped[str] = mapped_column(_TIME)
    status: Mapped[int | None] = mapped_column(Integer)
    error: Mapped[str | None] = mapped_column(Text)
    created: Mapped[str] = mapped_column(_TIME)
    finished: Mapped[str | None] = mapped_column(_TIME)
    __table_args__ = (Index("webhook_deliveries_by_state", "state", "next_attempt"),)


class IdentityRow(ServiceTable):
    """A user as a sign-in provider knows it."""

    __tablename__ = "identities"
    issuer: Mapped[str] = mapped_column(String(512), primary_key=True)
    subject: Mapped[str] = mapped_column(String(256), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))


class ProviderSignInRow(ServiceTable):
    """A sign-in that is under way at a provider. `state` is stored as its hash."""

    __tablename__ = "provider_sign_ins"
    state: Mapped[str] = mapped_column(_HASH, primary_key=True)
    verifier: Mapped[str] = mapped_column(String(128))
    nonce: Mapped[str] = mapped_column(_HASH)
    expires: Mapped[str] = mapped_column(_TIME)


class LabelConnectionRow(ServiceTable):
    """A labelling tool that works on a dataset: its address, the token of its API, and the S3 key that it uses."""

    __tablename__ = "label_connections"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME, index=True)
    dataset: Mapped[str] = mapped_column(_NAME)
    tool: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(_NAME)
    url: Mapped[str] = mapped_column(Text)
    token: Mapped[str] = mapped_column(Text)
    """Sent to the tool, so it is stored as it is."""
    access_key: Mapped[str] = mapped_column(String(20))
    secret: Mapped[str] = mapped_column(_HASH)
    """What the tool sends with its calls to the service."""
    owner_id: Mapped[str] = mapped_column(_ID)
    echo: Mapped[str | None] = mapped_column(_ID)
    """The number of the last webhook that was sent to see whether it arrives."""
    last_event: Mapped[str | None] = mapped_column(_TIME)
    created: Mapped[str] = mapped_column(_TIME)


class LabelBatchRow(ServiceTable):
    """Images of one version that were sent to a labelling tool as a project."""

    __tablename__ = "label_batches"
    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    connection_id: Mapped[str] = mapped_column(ForeignKey("label_connections.id", ondelete="CASCADE"), index=True)
    title: Mapped[str] = mapped_column(_NAME)
    version: Mapped[str] = mapped_column(_HASH)
    ref: Mapped[str] = mapped_column(_NAME)
    """The name of the version when it was sent, for people."""
    project: Mapped[str | None] = mapped_column(_ID)
    tasks: Mapped[int] = mapped_column(_BIG)
    labelled: Mapped[int] = mapped_column(_BIG)
    received: Mapped[int] = mapped_column(_BIG)
    """Items of the inbox that the tool's project has made so far, counted when it was last asked."""
    author: Mapped[str] = mapped_column(_NAME)
    job_id: Mapped[str] = mapped_column(_ID)
    error: Mapped[str | None] = mapped_column(Text)
    polled: Mapped[str | None] = mapped_column(_TIME)
    created: Mapped[str] = mapped_column(_TIME)
