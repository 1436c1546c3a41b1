"""Datasets that change: appends, edits, deletes, diffs and samples."""
