"""The service: what a request costs beside the same work over the store."""
