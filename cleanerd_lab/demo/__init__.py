"""``cleanerd demo``: a real broker, real data, and a cleaning to watch."""
