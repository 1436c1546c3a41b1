"""File formats: bytes to values and back. A format knows nothing of versions."""
