"""``cleanerd config``: shows the effective settings with their origins, checks them, or generates a commented file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cli.output import Column
from cleanerd.config.check import contradictions, missing_paths
from cleanerd.config.generate import generate as generate_file
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kafka_text, kind_of
from cleanerd.config.load import Settings, read_settings
from cleanerd.config.unused import unused_note
from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from cleanerd.cli.options import Common


def show(common: Common, topic: str | None) -> None:
    """Run ``cleanerd config show``; its options are in ``setup_commands.py``."""
    settings = common.load_settings()
    if topic is not None:
        _show_topic(common, settings, topic)
        return
    if common.output.as_json:
        common.output.json({
            "files": [str(path) for path in common.config_paths],
            "settings": [
                {"key": key, "value": _json_value(DAEMON_FIELDS[key], settings.value(key)), "origin": origin}
                for key, origin in settings.origins.items()
            ],
            "topics": [
                {"topic": table.name, "key": key, "value": _json_value(TOPIC_FIELDS[key], value), "origin": origin}
                for table in settings.tables
                for key, (value, origin) in table.values.items()
            ],
        })  # fmt: skip
        return
    common.output.table([Column("KEY"), Column("VALUE"), Column("ORIGIN")], list(_rows(settings)))


def check(common: Common) -> int:
    """Run ``cleanerd config check``; its options are in ``setup_commands.py``."""
    settings, problems = read_settings(common.config_paths, common.assignments)
    warnings: list[str] = []
    if settings is not None:
        warnings += settings.stray
        problems = [*missing_paths(settings), *contradictions(settings, warnings)]
    if common.output.as_json:
        common.output.json({
            "ok": not problems,
            "problems": [{"where": p.where, "message": p.message, "hint": p.hint} for p in problems],
            "warnings": warnings,
            "unused": [{"key": each.key, "origin": each.origin} for each in settings.unused] if settings else [],
        })  # fmt: skip
    elif problems:
        for problem in problems:
            common.output.line(str(problem))
    elif settings is not None:
        explicit = sum(origin != "default" for origin in settings.origins.values())
        explicit += sum(len(table.values) for table in settings.tables)
        common.output.line(f"ok: {explicit} {'setting' if explicit == 1 else 'settings'}, the rest are defaults")
    for warning in warnings:
        common.output.warning(warning)
    if settings is not None and (note := unused_note(settings)) is not None:
        common.output.note(note)
    return ConfigError.exit_code if problems else 0


def generate(common: Common) -> None:
    """Run ``cleanerd config generate``; its options are in ``setup_commands.py``."""
    text = generate_file()
    if common.output.as_json:
        common.output.json({"toml": text})
    else:
        common.output.raw(text)


def _rows(settings: Settings) -> Iterator[tuple[str, str, str]]:
    for key, origin in settings.origins.items():
        value = settings.value(key)
        yield key, _text(DAEMON_FIELDS[key], value), origin
    for table in settings.tables:
        for key, (value, origin) in table.values.items():
            yield f'topics."{table.name}".{key}', _text(TOPIC_FIELDS[key], value), origin


def _show_topic(common: Common, settings: Settings, topic: str) -> None:
    overrides = settings.topic_overrides(topic)
    if common.output.as_json:
        rows = [
            {"key": key, "value": kafka_text(value), "origin": origin} for key, (value, origin) in overrides.items()
        ]
        common.output.json({"topic": topic, "settings": rows})
    elif overrides:
        columns = [Column("KEY"), Column("VALUE"), Column("ORIGIN")]
        common.output.table(columns, [(key, kafka_text(value), origin) for key, (value, origin) in overrides.items()])
    else:
        common.output.note(f"nothing is set for {topic}: its configuration in the cluster decides")


def _text(field: FieldInfo, value: object) -> str:
    # Of the keys without a value, only cleanerd.disk.reserve has a default text; the others show nothing.
    kind = kind_of(field)
    return "" if value is None and not kind.writes_none else str(kind.write(value))


def _json_value(field: FieldInfo, value: object) -> object:
    """Numbers and booleans as JSON values in Kafka's units; everything else as Kafka's text."""
    return value if value is None or isinstance(value, (bool, int, float)) else kind_of(field).write(value)
