"""Which records stay, and which partitions are worth a cleaning. Pure: columns in, columns out, time as ``now_ms``."""
