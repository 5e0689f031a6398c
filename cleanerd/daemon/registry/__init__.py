"""The state of all partitions, and the choice of the next one to clean. Uses no files, clocks or threads."""
