"""Shared machinery: timing, generated data, worker processes, and an S3 proxy."""
