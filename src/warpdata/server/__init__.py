"""The service: datasets of a store over HTTP, with users, roles and jobs. Needs the extra `server`.

The store is the truth about datasets; the database holds users, permissions and jobs, and an index of the store.
docs/guides/server.md describes it for users.
"""

from warpdata.server.app import create_app
from warpdata.server.index import Synchronized, synchronize
from warpdata.server.service import Service, ServiceOptions
from warpdata.server.serving import Running, check_options, open_service, serve

__all__ = [
    "Running",
    "Service",
    "ServiceOptions",
    "Synchronized",
    "check_options",
    "create_app",
    "open_service",
    "serve",
    "synchronize",
]
