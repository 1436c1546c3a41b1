"""Scenarios on training streams, side by side with other data loaders."""
