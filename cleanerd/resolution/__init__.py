"""Which partitions exist, which an operator means, and which configuration each has."""
