"""``make soak``: the daemon beside a real broker for a quarter of an hour, and which figures grew."""
