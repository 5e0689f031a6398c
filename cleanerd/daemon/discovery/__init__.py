"""Scans log directories, with a thread per directory: partitions, changes, and the daemon's mode there."""
