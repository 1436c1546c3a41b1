"""Scenarios on tables: open, scan, filter, publish, and process start-up."""
