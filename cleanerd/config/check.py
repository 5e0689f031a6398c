"""Checks of settings whose single values are all valid: paths that do not exist, keys that contradict each other."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from cleanerd.config.topic_config import DEFAULT_ORIGIN
from cleanerd.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.config.load import Settings

_PATHS: Final = (
    "cleanerd.broker.properties",
    "cleanerd.metadata.log.dir",
    "cleanerd.log.dirs",
    "cleanerd.command.config",
    "cleanerd.map.dir",
)


def missing_paths(settings: Settings) -> Iterator[ConfigError]:
    """Files and directories in settings that do not exist or are of the wrong kind."""
    wrong = wrong_state_dir(settings)
    if wrong is not None:
        yield wrong
    for key in _PATHS:
        value = settings.value(key)
        for path in value if isinstance(value, tuple) else [value]:
            if path is not None and is_missing(path):
                yield ConfigError(f"{key}: {path} does not exist", where=settings.origins[key])


def is_missing(path: Path | str) -> bool:
    """Whether ``path`` does not exist. False after a disk error: opening the path reports that."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def wrong_state_dir(settings: Settings) -> ConfigError | None:
    """Why the state directory cannot be used, in words; it has to be a readable directory."""
    path = settings.daemon.cleanerd_state_dir
    nearest = nearest_existing(path)
    try:
        if stat.S_ISDIR(os.stat(nearest).st_mode):
            return None
    except OSError:  # it exists, and a failing disk is not a wrong setting
        return None
    return ConfigError(
        f"cleanerd.state.dir: {nearest} is not a directory",
        where=settings.origins["cleanerd.state.dir"],
        hint="name a directory that cleanerd's user may write, or one that it can make",
    )


def nearest_existing(path: Path) -> Path:
    """The path, or its nearest existing parent directory."""
    places = (path, *path.parents)
    return next((place for place in places if os.path.exists(place)), places[-1])


UNKNOWN_HERE: Final = "; what the topic sets in the cluster is not known here: cleanerd doctor and explain use it"


def contradictions(settings: Settings, warnings: list[str], *, by_topic: bool = True) -> Iterator[ConfigError]:
    """Contradictory settings of one topic; ``warnings`` gets settings that may surprise (R280-7, R280-13, U-25).

    For a glob the result stands for every topic that matches it, with the glob as the topic's name. ``by_topic`` False:
    no warnings about topics, because the caller knows their settings in the cluster.
    """
    for topic in dict.fromkeys(table.name for table in settings.tables):
        try:
            found = settings.topic_config(topic)
        except ConfigError as error:
            yield error
        except RefusedError as error:
            warnings.append(f"{error}: its settings have no effect")
        else:
            if by_topic:
                warnings += [f"{each}{UNKNOWN_HERE if DEFAULT_ORIGIN in each else ''}" for each in found.warnings]
    daemon = settings.daemon
    if daemon.log_cleaner_compaction_strategy == "header" and not daemon.log_cleaner_compaction_strategy_header:
        warnings.append(
            "log.cleaner.compaction.strategy is header, but log.cleaner.compaction.strategy.header is blank: topics "
            "that do not name a header themselves are cleaned by offset"
        )
