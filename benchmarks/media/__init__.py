"""Scenarios on raw media files: references, batches, look-ups, and packing."""
