"""Scenarios of the service."""
