"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    annotations,
    audit,
    collections,
    datasets,
    events,
    files,
    health,
    jobs,
    objects,
    partial_files,
    provider,
    purges,
    quotas,
    refs,
    removal,
    samples,
    schedules,
    search,
    session,
    sql,
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
    search.router,
    collections.router,
    annotations.router,
    training.router,
    removal.router,
    purges.router,
    files.router,
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
    audit.router,
)
"""Routers under `API_PREFIX`."""
unversioned = health.router
