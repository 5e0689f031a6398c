"""This host's settings file, which every command reads if no other is named.

Without it a command would use other rules than the daemon on the same host.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

DEFAULT_CONFIG: Final = Path("/etc/cleanerd/cleanerd.toml")
NO_CONFIG: Final = "--no-config"

ANOTHER_PLACE: Final = "_CLEANERD_DEFAULT_CONFIG"
"""An environment variable for tests: another path, or none. It must not begin with CLEANERD_, as keys do."""


def default_config() -> tuple[Path, ...]:
    """The file, if it exists. Reading an unreadable one reports the error."""
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
