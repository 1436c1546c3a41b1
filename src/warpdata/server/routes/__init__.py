"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    analyses,
    annotations,
    audit,
    collections,
    connections,
    datasets,
    events,
    files,
    health,
    image_changes,
    inbox,
    jobs,
    maps,
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
    sample_history,
    samples,
    schedules,
    search,
    session,
    sql,
    thumbnails,
    tokens,
    tool_calls,
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
    sample_history.router,
    search.router,
    collections.router,
    annotations.router,
    object_diff.router,
    image_changes.router,
    analyses.router,
    maps.router,
    training.router,
    inbox.router,
    connections.router,
    tool_calls.router,
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
