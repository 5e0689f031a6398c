"""Finds partitions, resolves an operator's names, and determines each partition's configuration."""
