"""Kafka's settings that cleanerd does not use: their treatment, and the table compared with real releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.config import kafka_names
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS
from cleanerd.config.unused import unused_note
from tests.config.loading import load, refused
from tests.kafka.judge import fetch
from tools.kafka_names import names_of, table

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_is_sorted_and_complete() -> None:
    """Each list is sorted and has a name once.

    A key of ours with a Kafka-like name that Kafka lacks would be a typo.
    """
    broker, topic = kafka_names.broker_names(), kafka_names.topic_names()
    found = {("broker", name) for name in broker} | {("topic", name) for name in topic}
    written = kafka_names.TABLE.read_text()
    releases = tuple(written.split("releases ")[1].split(".\n")[0].split(", "))
    assert releases[0].startswith("2.8.")
    assert releases[-1].startswith("4.4.")
    assert table(found, releases) == written
    ours = {key for key in DAEMON_FIELDS if "strategy" not in key and "tombstone" not in key}
    assert {key for key in ours - broker if not key.startswith("cleanerd.")} == {"bootstrap.servers"}
    ours = {key for key in TOPIC_FIELDS if not any(word in key for word in ("strategy", "tombstone", "winner"))}
    assert ours <= topic
    assert set(kafka_names.INSTEAD) <= broker
    assert set(kafka_names.INSTEAD.values()) <= set(DAEMON_FIELDS)


@pytest.mark.long
@pytest.mark.parametrize("profile", ["3.9", "4.3"])
def test_documented_names_of_a_release_are_in_the_table(profile: str) -> None:
    """Read from the release itself, as the tool does. An internal name is not a setting that operators write."""
    found = names_of(fetch(profile).libs)
    assert {name for kind, name in found if kind == "broker"} <= kafka_names.broker_names()
    assert {name for kind, name in found if kind == "topic"} <= kafka_names.topic_names()
    assert ("broker", "log.cleaner.enable") in found
    assert not [name for _, name in found if name.startswith("internal.")]


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    return tmp_path / "c.toml"


PASTED = """\
"broker.id" = 1
"broker.id.generation.enable" = true
listeners = "PLAINTEXT://:9092"
num.io.threads = 8
log.dirs = "/var/lib/kafka/a,/var/lib/kafka/b"
log.cleaner.enable = false
log.cleaner.io.buffer.size = 524288
log.preallocate = true
log.segment.bytes = 300
zookeeper.connect = "zoo:2181"
listener.name.internal.ssl.keystore.location = "/etc/kafka/ssl/store"
super.users = "User:admin"
[topics.orders]
"cleanup.policy" = "compact"
"compression.type" = "zstd"
"local.retention.ms" = 5
"""


def test_a_block_of_server_properties_can_be_pasted(toml: Path) -> None:
    """Names that Kafka documents are never unknown: unused ones are reported in one note.

    Of every release: zookeeper.connect was removed in 4.0. log.preallocate would change nothing: outputs are truncated
    to their size (C-65).
    """
    toml.write_text(PASTED)
    settings = load(files=(toml,))
    assert settings.daemon.log_segment_bytes == 300
    assert set(settings.topic_overrides("orders")) == {"cleanup.policy"}
    assert [each.key for each in settings.unused][-2:] == [
        "topics.orders.compression.type",
        "topics.orders.local.retention.ms",
    ]
    assert {each.origin for each in settings.unused} == {f"file {toml}"}
    note = unused_note(settings)
    assert note is not None
    assert "log.segment.bytes" not in note
    assert f"listeners, num.io.threads, log.dirs and 8 more (file {toml})" in note
    assert "for log.dirs there is cleanerd.log.dirs here" in note
    assert unused_note(load("log.segment.bytes=300")) is None


def test_names_of_kafka_in_other_sources(toml: Path) -> None:
    """The environment and --set accept them too; a topic's key is cut where Kafka's own name begins."""
    settings = load("topics.a.b.local.retention.ms=5", environ={"CLEANERD_LOG_CLEANER_ENABLE": "true"})
    assert [each.key for each in settings.unused] == ["log.cleaner.enable", "topics.a.b.local.retention.ms"]
    assert settings.topic_overrides("a.b.local") == {}
    # A key without effect in this place that has one elsewhere: an error, with the solution.
    assert "max.message.bytes is a topic's key" in refused("max.message.bytes=5")
    toml.write_text("[topics.a]\nnum.io.threads = 5\n")
    assert "num.io.threads is a broker's key, not a topic's" in refused(files=(toml,))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("num.io.thread=5", "did you mean num.io.threads?"),
        ("log.cleaner.enabled=5", "did you mean log.cleaner.enable?"),
        ("log.segment.byte=5", "did you mean log.segment.bytes?"),
        ("listener.name.=5", "unknown key listener.name."),
    ],
)
def test_misspelt_names_of_kafka(assignment: str, message: str) -> None:
    """A typo is a typo, in any name."""
    assert message in refused(assignment)


def test_a_properties_file_shows_the_toml_form(toml: Path) -> None:
    toml.write_text("log.dirs=/var/lib/kafka\n")
    assert "keys and text are written in quotes" in refused(files=(toml,))
