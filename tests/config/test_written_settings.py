"""Effective settings, written for another process, have the same meaning there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.config.keys import DAEMON_FIELDS
from cleanerd.config.load import load_settings
from cleanerd.config.written import as_toml, without_settings

if TYPE_CHECKING:
    from pathlib import Path

SET = (
    "topics.orders.cleanup.policy=compact,delete",
    "topics.orders.delete.retention.ms=7",
    'topics.a*.compaction.strategy.header=v"1\\é',
    "topics.a*.tombstone.mode=flag",
    "topics.ab*.min.cleanable.dirty.ratio=0.1",
    "cleanerd.log.dirs=/a b,/c",
    "cleanerd.windows=Mon-Fri 22:00-06:00; Sat,Sun",
    "cleanerd.disk.reserve=auto",
    "cleanerd.http.listen=off",
    "cleanerd.io.read.max.bytes.per.second=unlimited",
    "cleanerd.spark.threshold.keys=never",
    "log.retention.hours=-1",
)


def test_all_sources_become_one_file(tmp_path: Path) -> None:
    """A table's name ends where it ended: ``orders.delete`` with ``retention.ms`` is not ``delete.retention.ms``."""
    file, written = tmp_path / "of the daemon.toml", tmp_path / "written.toml"
    file.write_text('[topics."orders.delete"]\n"retention.ms" = 5\n')
    environ = {"CLEANERD_LOG_CLEANER_THREADS": "3", "CLEANERD_CLEANERD_MODE": "observe", "HOME": str(tmp_path)}
    settings = load_settings([file], [*SET, "cleanerd.mode=on-start"], environ)
    written.write_text(as_toml(settings, {}), encoding="utf-8")
    again = load_settings([written], [], without_settings({**environ, "HOME": "/elsewhere"}))
    for key in DAEMON_FIELDS:
        assert again.value(key) == settings.value(key), key
    for topic in ("orders", "orders.delete", "abc", "axe", "other"):
        reported, expected = again.topic_overrides(topic), settings.topic_overrides(topic)
        assert {key: text for key, (text, _) in reported.items()} == {key: text for key, (text, _) in expected.items()}
    assert [table.name for table in again.tables] == [table.name for table in settings.tables]
    assert again.broker_defaults().keys() == settings.broker_defaults().keys()


def test_more_is_stronger(tmp_path: Path) -> None:
    written = tmp_path / "written.toml"
    settings = load_settings([], ["cleanerd.metadata.log.dir=/a"], {})
    written.write_text(as_toml(settings, {"cleanerd.metadata.log.dir": "/b"}))
    assert str(load_settings([written], [], {}).daemon.cleanerd_metadata_log_dir) == "/b"
