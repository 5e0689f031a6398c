"""Speed, measured: only in make bench."""
