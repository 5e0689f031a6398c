"""What may go, and what is worth cleaning. Pure: columns in, columns out, time comes in as ``now_ms``."""
