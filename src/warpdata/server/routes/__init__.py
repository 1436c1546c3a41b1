"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    audit,
    collections,
    datasets,
    events,
    files,
    health,
    jobs,
    object_diff,
    objects,
    page,
    purges,
    refs,
    removal,
    s3_keys,
    samples,
    session,
    sql,
    thumbnails,
    tokens,
    training,
    uploads,
    workspaces,
)

__all__ = ["API_PREFIX", "ROUTERS", "unversioned"]

API_PREFIX = "/api/v1"
ROUTERS: tuple[APIRouter, ...] = (
    session.router,
    workspaces.router,
    datasets.router,
    refs.router,
    samples.router,
    collections.router,
    object_diff.router,
    training.router,
    removal.router,
    purges.router,
    files.router,
    thumbnails.router,
    uploads.router,
    objects.router,
    sql.router,
    jobs.router,
    events.router,
    tokens.router,
    s3_keys.router,
    audit.router,
)
"""Routers under `API_PREFIX`."""
unversioned = (health.router, page.router)
