"""The commented settings file: complete, loadable, and the same as the one in ``config/``."""

from __future__ import annotations

import re
from pathlib import Path

from cleanerd.config.generate import generate
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS
from cleanerd.config.load import load_settings

SHIPPED = Path(__file__).parents[2] / "config" / "cleanerd.toml"


def in_use() -> str:
    """The file without the comment marks of the settings, as its head describes."""
    return re.sub(r'^#(["\[])', r"\1", generate(), flags=re.MULTILINE)


def test_the_shipped_file_is_the_generated_one() -> None:
    """`cleanerd config generate > config/cleanerd.toml` after every change of a key."""
    assert SHIPPED.read_text() == generate()


def test_as_generated_it_sets_observe_mode_and_nothing_else(tmp_path: Path) -> None:
    """Observe is the default of the example file."""
    file = tmp_path / "cleanerd.toml"
    file.write_text(generate())
    settings = load_settings([file], environ={})
    assert {key for key, origin in settings.origins.items() if origin != "default"} == {"cleanerd.mode"}
    assert settings.daemon.cleanerd_mode == "observe"
    assert settings.tables == ()
    assert [line for line in generate().splitlines() if line and not line.startswith("#")] == [
        '"cleanerd.mode" = "observe"'
    ]


def test_uncommented_it_has_every_key_with_its_default(tmp_path: Path) -> None:
    file = tmp_path / "cleanerd.toml"
    file.write_text(in_use())
    settings = load_settings([file], environ={})
    assert set(settings.origins.values()) == {f"file {file}"}
    assert set(settings.topic_overrides("orders.v1")) == set(TOPIC_FIELDS)
    for key, field in DAEMON_FIELDS.items():
        if not field.examples:
            assert settings.value(key) == field.default, key


def test_every_key_is_explained() -> None:
    for key, field in {**DAEMON_FIELDS, **TOPIC_FIELDS}.items():
        assert field.description, key


def test_lines_fit_a_terminal() -> None:
    assert max(map(len, generate().splitlines())) <= 120
