"""Merges all sources: default < files in their order < environment < ``--set``. Every value has its origin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from cleanerd.config.kafka_values import ConfigValue, shown
from cleanerd.config.keys import (
    DAEMON_FIELDS,
    TOPIC_FIELDS,
    DaemonSettings,
    TopicSettings,
    valid_values,
)
from cleanerd.config.names import TOPICS
from cleanerd.config.sources import (
    Assignment,
    UnsupportedKey,
    from_environment,
    from_files,
    from_options,
)
from cleanerd.config.topic_config import TopicConfig, resolve_topic_config
from cleanerd.config.topic_keys import BROKER_KEYS
from cleanerd.config.topic_patterns import is_glob, matches, strength
from cleanerd.errors import ConfigError

DEFAULT_ORIGIN: Final = "default"

_STATE_DIR: Final = "cleanerd.state.dir"
SERVICE_STATE_DIR: Final = Path("/var/lib/cleanerd")
"""The state directory of the systemd unit and the Debian package."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The settings of one topic name or glob."""

    name: str
    values: Mapping[str, ConfigValue]


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective settings.

    ``origins`` has every broker-level key; ``tables`` are in the order of their last mention.

    Settings without effect: ``unused``: Kafka's. ``stray``: a sentence per variable that does not name a key, and per
    directory without a file.
    """

    daemon: DaemonSettings
    origins: Mapping[str, str]
    tables: tuple[TopicTable, ...]
    unused: tuple[UnsupportedKey, ...] = ()
    stray: tuple[str, ...] = ()

    def value(self, key: str) -> Any:
        """The typed value of a broker-level key."""
        return getattr(self.daemon, key.replace(".", "_"))

    def topic_overrides(self, topic: str) -> dict[str, ConfigValue]:
        """The settings of ``topic``, for ``resolve_topic_config(overrides=...)``.

        For each key the table with the longest literal match decides: the topic's own name, then the glob with the most
        literal characters, then the last one. The kind of source matters only for equal tables.
        """
        overrides: dict[str, ConfigValue] = {}
        matching = [table for table in self.tables if matches(table.name, topic)]
        for table in sorted(matching, key=lambda table: strength(table.name)):
            for key, (value, origin) in table.values.items():
                source = f'{origin} {TOPICS}."{table.name}"' if is_glob(table.name) else origin
                overrides[key] = ConfigValue(value, source)
        return overrides

    def broker_defaults(self) -> dict[str, ConfigValue]:
        """Kafka's broker-level keys that were set explicitly, for ``resolve_topic_config(settings_defaults=...)``."""
        return {
            key: ConfigValue(self.value(key), f"{origin} {key}")
            for key, origin in self.origins.items()
            if key in BROKER_KEYS and origin != DEFAULT_ORIGIN
        }

    def topic_config(self, topic: str, topic_configs: Mapping[str, str] | None = None, **sources: Any) -> TopicConfig:
        """The topic's configuration by these settings, and by what else is known, as in :func:`resolve_topic_config`.

        Raises:
            ConfigError: an unknown value.
            RefusedError: the topic is never cleaned.
        """
        return resolve_topic_config(
            topic,
            overrides=self.topic_overrides(topic),
            topic_configs=topic_configs,
            settings_defaults=self.broker_defaults(),
            strategy_exclude=self.daemon.cleanerd_strategy_exclude,
            **sources,
        )


def load_settings(
    config_paths: Sequence[Path] = (),
    assignments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The effective settings of files, environment (default: the process's) and ``--set``.

    Raises:
        ConfigError: the first fault, and how many there are: an unreadable file, an unknown key (with the nearest one),
            an invalid value (with the allowed ones).
    """
    settings, problems = read_settings(config_paths, assignments, environ)
    if settings is None:
        first, others = problems[0], len(problems) - 1
        more = f"{others} more: see 'cleanerd config check'" if others else None
        hint = "; ".join(each for each in (first.hint, more) if each)
        raise ConfigError(first.message, where=first.where, hint=hint or None)
    return settings


def read_settings(
    config_paths: Sequence[Path] = (),
    assignments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings | None, list[ConfigError]]:
    """As :func:`load_settings`, but with every fault; the settings only if there is none."""
    environment = os.environ if environ is None else environ
    problems: list[ConfigError] = []
    daemon = {_STATE_DIR: ConfigValue(default_state_dir(environment), DEFAULT_ORIGIN)}
    tables: dict[str, dict[str, ConfigValue]] = {}
    unused: list[UnsupportedKey] = []
    stray: list[str] = []
    for source in (from_files(config_paths), from_environment(environment), from_options(assignments)):
        for found in source:
            if isinstance(found, Assignment):
                value = _parse(found)
                if isinstance(value, ConfigError):
                    problems.append(value)
                elif found.topic is None:
                    daemon[found.key] = value
                else:
                    # Removed and added again: the tables keep the order of their last mention.
                    tables[found.topic] = {**tables.pop(found.topic, {}), found.key: value}
            elif isinstance(found, ConfigError):
                problems.append(found)
            elif isinstance(found, UnsupportedKey):
                unused.append(found)
            else:
                stray.append(found.text)
    if problems:
        return None, problems
    model = DaemonSettings.model_construct(**{key: found.value for key, found in daemon.items()})
    if model.contradiction:
        named = (f"{key} from {found.origin}" for key, found in daemon.items() if key in model.contradiction)
        return None, [ConfigError(model.contradiction, where="; ".join(named))]
    origins = {key: daemon[key].origin if key in daemon else DEFAULT_ORIGIN for key in DAEMON_FIELDS}
    frozen = (TopicTable(name, MappingProxyType(values)) for name, values in tables.items())
    return Settings(model, MappingProxyType(origins), tuple(frozen), tuple(unused), tuple(stray)), []


def default_state_dir(environ: Mapping[str, str], service_dir: Path = SERVICE_STATE_DIR) -> Path:
    """``$STATE_DIRECTORY`` (systemd; the first of several), the service's on this host, or one in the home directory.

    A command in a terminal has to share the daemon's state: replaced segments, delegations, checkpoints.
    """
    systemd = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if systemd:
        return Path(systemd)
    if service_dir.is_dir():
        return service_dir
    xdg = environ.get("XDG_STATE_HOME", "")
    # The XDG rule: ignore a relative path.
    home = environ.get("HOME") or os.path.expanduser("~")
    base = Path(xdg) if xdg.startswith("/") else Path(home) / ".local" / "state"
    return base / "cleanerd"


def _parse(assignment: Assignment) -> ConfigValue | ConfigError:
    """The value with its origin, or an error with key, text, allowed values, and place."""
    model, fields = (DaemonSettings, DAEMON_FIELDS) if assignment.topic is None else (TopicSettings, TOPIC_FIELDS)
    try:
        settings = model.model_validate({assignment.key: assignment.text})
    except ValidationError as error:
        wrong = error.errors()[0]
        reason = wrong.get("ctx", {}).get("error")
        allowed = valid_values(fields[assignment.key], str(reason) if isinstance(reason, ValueError) else None)
        if wrong["type"] == "less_than_equal" and "at most" not in allowed:
            allowed += "; at most 2^63-1"
        about = f" of topic {assignment.topic}" if assignment.topic else ""
        return ConfigError(
            f"{assignment.key}{about} is {shown(assignment.text)}, must be {allowed}", where=assignment.where()
        )
    return ConfigValue(getattr(settings, assignment.key.replace(".", "_")), assignment.origin)
