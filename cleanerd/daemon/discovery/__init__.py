"""Scans log directories, a thread for each: partitions, changes, and how the daemon may work there."""
