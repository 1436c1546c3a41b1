"""Migrations of the database: one chain for SQLite and PostgreSQL, run by `open_database`."""
