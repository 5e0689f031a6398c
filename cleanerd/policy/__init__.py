"""Which records are retained, and which partitions to clean. Pure: columns in, columns out, time as ``now_ms``."""
