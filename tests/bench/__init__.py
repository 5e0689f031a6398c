"""Speed measurements: only in make bench."""
