"""Versions: manifests, and the catalog that gives them a history."""
