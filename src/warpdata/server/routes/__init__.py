"""The routes of the API: one router for each resource.

A new resource is a module with a `router`, and a line in `ROUTERS`.
"""

from fastapi import APIRouter

from warpdata.server.routes import (
    audit,
    datasets,
    events,
    files,
    health,
    jobs,
    refs,
    samples,
    session,
    sql,
    tokens,
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
    files.router,
    uploads.router,
    sql.router,
    jobs.router,
    events.router,
    tokens.router,
    audit.router,
)
"""Routers under `API_PREFIX`."""
unversioned = health.router
