"""cleanerd: an independent, strategy-aware log cleaner for Apache Kafka."""

import contextlib
from pathlib import Path

__version__ = "0.1.0"


def commit() -> str | None:
    """The commit that this was built from, as tools/wheel.py recorded it; None in a clone."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (Path(__file__).parent / "commit").read_text(encoding="ascii").strip() or None
    return None
