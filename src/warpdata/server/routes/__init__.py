"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    annotations,
    audit,
    collections,
    datasets,
    episodes,
    events,
    files,
    health,
    jobs,
    object_diff,
    objects,
    page,
    partial_files,
    provider,
    purges,
    quotas,
    refs,
    removal,
    s3_keys,
    samples,
    schedules,
    search,
    session,
    sql,
    tensors,
    thumbnails,
    tokens,
    training,
    transfers,
    uploads,
    webhooks,
    workspaces,
)

__all__ = ["API_PREFIX", "ROUTERS", "provider", "unversioned"]

API_PREFIX = "/api/v1"
ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    workspaces.router,
    quotas.router,
    datasets.router,
    refs.router,
    samples.router,
    episodes.router,
    tensors.router,
    search.router,
    collections.router,
    annotations.router,
    object_diff.router,
    training.router,
    removal.router,
    purges.router,
    files.router,
    thumbnails.router,
    uploads.router,
    partial_files.router,
    objects.router,
    sql.router,
    jobs.router,
    transfers.router,
    schedules.router,
    webhooks.router,
    events.router,
    tokens.router,
    s3_keys.router,
    audit.router,
)
"""Routers under `API_PREFIX`."""
unversioned = (health.router, page.router)
