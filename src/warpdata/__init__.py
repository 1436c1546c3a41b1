"""warpdata: one versioned, content-addressed home for everything a model trains on."""
