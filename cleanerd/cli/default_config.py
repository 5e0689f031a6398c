"""The settings file of this host, which every verb reads when no other is named.

Without it a verb that is called by hand would go by other rules than the daemon on the same host does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEFAULT_CONFIG: Final = Path("/etc/cleanerd/cleanerd.toml")
NO_CONFIG: Final = "--no-config"

ANOTHER_PLACE: Final = "_CLEANERD_DEFAULT_CONFIG"
"""For tests: another file in its place, or nothing. What begins with CLEANERD_ is a key, or warned of."""


def default_config() -> tuple[Path, ...]:
    """The file, if it exists. An unreadable one is returned as well: reading it reports the error."""
    configured = os.environ.get(ANOTHER_PLACE)
    path = DEFAULT_CONFIG if configured is None else Path(configured)
    if configured == "":
        return ()
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        pass
    return (path,)
