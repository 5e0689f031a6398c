"""A partition as found on disk: its segments, indexes, producers and cleanable range."""
