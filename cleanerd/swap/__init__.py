"""Putting staged segments in: the only room that changes files which a broker may read."""
