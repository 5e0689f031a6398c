"""The log directories that the daemon manages."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError, CorruptionError
from cleanerd.format.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cleanerd.config.load import Settings

_HINT: Final = "see cleanerd.broker.properties"
_ANSWER_SECONDS: Final = 2.0
"""Limit for resolving all directories together, because the daemon's event loop may wait for it."""


def log_dirs_of(settings: Settings, known: Collection[Path] = ()) -> tuple[Path, ...]:
    """``cleanerd.log.dirs``, else ``log.dirs`` or ``log.dir`` of the broker's ``server.properties``.

    Each directory once, by its first name: a link to it would be a second entry. ``known`` ones are not resolved,
    because their disk may hang by now.

    Raises:
        ConfigError: neither names one, the broker's file names relative paths, or the state directory is in one of
            them.
    """
    daemon = settings.daemon
    found = daemon.cleanerd_log_dirs or _of_broker(daemon.cleanerd_broker_properties)
    if not found:
        raise ConfigError(
            "no log directory is named",
            where="cleanerd.log.dirs",
            hint="set it, or set cleanerd.broker.properties to the broker's server.properties",
        )
    real = _resolved([path for path in found if path not in known])
    _require_outside(daemon.cleanerd_state_dir, real)
    real |= {path: os.path.abspath(path) for path in known}
    first: dict[str, Path] = {}
    for path in found:
        first.setdefault(real[path], path)
    return tuple(first.values())


def configured_log_dirs(settings: Settings) -> tuple[Path, ...]:
    """As :func:`log_dirs_of`; empty if the settings name none, or invalid ones."""
    try:
        return log_dirs_of(settings)
    except ConfigError:
        return ()


def require_outside(state_dir: Path, log_dirs: Sequence[Path]) -> None:
    """Refuse a state directory inside a log directory, in which a broker would not start.

    If a directory does not answer (a disk that hangs), only its name is compared.

    Raises:
        ConfigError: the state directory is in one of ``log_dirs``.
    """
    _require_outside(state_dir, _resolved(log_dirs))


def _require_outside(state_dir: Path, log_dirs: Mapping[Path, str]) -> None:
    place = Path(os.path.realpath(state_dir))
    for path, real in log_dirs.items():
        if place.is_relative_to(real) or place.is_relative_to(Path(os.path.abspath(path))):
            raise ConfigError(
                f"is in the log directory {path}, where only the broker creates directories",
                where=f"cleanerd.state.dir={state_dir}",
                hint="name a directory of cleanerd's own",
            )


def _resolved(paths: Sequence[Path]) -> dict[Path, str]:
    """The target of each path; its own name if it did not answer in time.

    One thread each, because links are on the disk too.
    """
    found = {path: os.path.abspath(path) for path in paths}

    def resolve(path: Path) -> None:
        found[path] = os.path.realpath(path)

    threads = [threading.Thread(target=resolve, args=(path,), daemon=True) for path in found]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + _ANSWER_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(found)


def _of_broker(file: Path | None) -> tuple[Path, ...]:
    if file is None:
        return ()
    properties = server_properties(file)
    if unclear := relative_log_dirs_in(properties):
        raise ConfigError(
            f"log.dirs names {unclear[0]}, which is relative to the broker's working directory, and "
            "that directory is unknown here",
            where=str(file),
            hint="write absolute paths there, or name the log directories in cleanerd.log.dirs",
        )
    return log_dirs_in(properties)


def server_properties(file: Path) -> Mapping[str, str]:
    """The settings of a broker's ``server.properties``.

    Raises:
        ConfigError: it cannot be read, is not a properties file, or contains a NUL character.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file), hint=_HINT) from error
    try:
        properties = read_properties(data, str(file))
    except CorruptionError as error:
        # The log is not damaged: a broker does not start with such a file.
        raise ConfigError(error.message, where=str(file), hint="Kafka would not read it either: correct it") from error
    if any("\0" in text for text in properties.values()):
        raise ConfigError("contains a NUL: it is not a properties file", where=str(file), hint=_HINT)
    return properties


def log_dirs_in(properties: Mapping[str, str]) -> tuple[Path, ...]:
    """The absolute log directories in a broker's ``server.properties``; see :func:`relative_log_dirs_in`."""
    return tuple(path for path in _named(properties) if path.is_absolute())


def relative_log_dirs_in(properties: Mapping[str, str]) -> tuple[Path, ...]:
    """The relative ones, which depend on where the broker was started, so other processes cannot use them."""
    return tuple(path for path in _named(properties) if not path.is_absolute())


def _named(properties: Mapping[str, str]) -> Iterator[Path]:
    text = properties.get("log.dirs", "").strip() or properties.get("log.dir", "").strip()
    return (Path(word.strip()) for word in text.split(",") if word.strip())
