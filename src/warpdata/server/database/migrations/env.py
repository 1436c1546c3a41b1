"""The environment of Alembic: runs migrations over the connection that `open_database` passes."""

from __future__ import annotations

from alembic import context

from warpdata.server.database.tables import ServiceTable

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=ServiceTable.metadata,
    render_as_batch=True,  # SQLite alters a table by making it again
)
with context.begin_transaction():
    context.run_migrations()
