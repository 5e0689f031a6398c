"""Which log directories the daemon looks after."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.errors import ConfigError
from cleanerd.format.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cleanerd.settings import Settings


def log_dirs_of(settings: Settings, known: Collection[Path] = ()) -> tuple[Path, ...]:
    """``cleanerd.log.dirs``, else ``log.dirs`` or ``log.dir`` of the broker's ``server.properties``.

    ``known``: are not looked at, because they may lie on a disk that hangs by now.

    Raises:
        ConfigError: neither says anything, or the state directory lies in one of them.
    """
    daemon = settings.daemon
    found = daemon.cleanerd_log_dirs or _of_broker(daemon.cleanerd_broker_properties)
    if not found:
        raise ConfigError(
            "no log directory is named",
            where="cleanerd.log.dirs",
            hint="set it, or set cleanerd.broker.properties to the broker's server.properties",
        )
    require_outside(daemon.cleanerd_state_dir, [path for path in found if path not in known])
    return tuple(dict.fromkeys(found))


def require_outside(state_dir: Path, log_dirs: Sequence[Path]) -> None:
    """A broker does not start on a log directory that holds a directory which is no partition's.

    Raises:
        ConfigError: the state directory lies in one of ``log_dirs``.
    """
    place = Path(os.path.realpath(state_dir))
    for path in log_dirs:
        if place.is_relative_to(os.path.realpath(path)):
            raise ConfigError(
                f"lies in the log directory {path}, where only the broker makes directories",
                where=f"cleanerd.state.dir={state_dir}",
                hint="name a directory of cleanerd's own",
            )


def _of_broker(file: Path | None) -> tuple[Path, ...]:
    if file is None:
        return ()
    try:
        properties = read_properties(file.read_bytes(), str(file))
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}", where=str(file), hint="see cleanerd.broker.properties"
        ) from error
    return log_dirs_in(properties)


def log_dirs_in(properties: Mapping[str, str]) -> tuple[Path, ...]:
    """What a broker's ``server.properties`` names as its log directories."""
    text = properties.get("log.dirs", "").strip() or properties.get("log.dir", "").strip()
    return tuple(Path(word.strip()) for word in text.split(",") if word.strip())
