"""Settings: sources, their order, origins, unknown keys and bad values."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from cleanerd.config import sources
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS, kafka_text
from cleanerd.config.load import read_settings
from cleanerd.config.topic_config import resolve_topic_config
from cleanerd.config.topic_keys import TOPIC_RULES
from tests.config.loading import SEGMENT, load, refused

if TYPE_CHECKING:
    from pathlib import Path


def test_order_of_the_sources(tmp_path: Path) -> None:
    """Default < files in order < environment < --set; each value has its source."""
    first, second = tmp_path / "z.toml", tmp_path / "a.toml"
    first.write_text(f'"{SEGMENT}" = 100\n"message.max.bytes" = 100\n"log.index.interval.bytes" = 1\n')
    second.write_text(f'"{SEGMENT}" = 200\n"message.max.bytes" = 200\n')
    assert load().origins[SEGMENT] == "default"
    files = (first, second)  # the order given, not that of the names
    both = load(files=files)
    assert (both.daemon.log_segment_bytes, both.origins[SEGMENT]) == (200, f"file {second}")
    assert (both.daemon.log_index_interval_bytes, both.origins["log.index.interval.bytes"]) == (1, f"file {first}")
    third = load(files=files, environ={"CLEANERD_LOG_SEGMENT_BYTES": "300"})
    assert (third.daemon.log_segment_bytes, third.origins[SEGMENT]) == (300, "environment CLEANERD_LOG_SEGMENT_BYTES")
    assert third.daemon.message_max_bytes == 200
    fourth = load(f"{SEGMENT}=400", files=files, environ={"CLEANERD_LOG_SEGMENT_BYTES": "300"})
    assert (fourth.daemon.log_segment_bytes, fourth.origins[SEGMENT]) == (400, "--set")
    assert load(f"{SEGMENT}=400", f"{SEGMENT}=500").daemon.log_segment_bytes == 500


def test_a_directory_without_files_is_a_warning(tmp_path: Path) -> None:
    """The wrong directory would go unnoticed; a ConfigMap without keys is no reason not to start."""
    (tmp_path / "cleanerd.tml").write_text("cleanerd.mode = 'auto'\n")
    (text,) = load(files=[tmp_path]).stray
    assert text == f"{tmp_path}: the directory contains no .toml file, so it sets nothing"


def test_a_directory_is_read_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "10-a.toml").write_text(f'"{SEGMENT}" = 100')
    (tmp_path / "9-b.toml").write_text(f'"{SEGMENT}" = 200')
    (tmp_path / "zz.conf").write_text("not for us")
    (tmp_path / ".hidden.toml").write_text("not = for us")
    settings = load(files=(tmp_path,))
    assert settings.origins[SEGMENT] == f"file {tmp_path / '9-b.toml'}"


def test_nested_tables_are_flattened(toml: Path) -> None:
    toml.write_text('[log.cleaner]\n"dedupe.buffer.size" = "64MiB"\nmin.cleanable.ratio = 0.25\n')
    daemon = load(files=(toml,)).daemon
    assert (daemon.log_cleaner_dedupe_buffer_size, daemon.log_cleaner_min_cleanable_ratio) == (67_108_864, 0.25)


ENVIRONMENT = [
    ("CLEANERD_LOG_CLEANER_DEDUPE_BUFFER_SIZE", "64MiB", None, "log.cleaner.dedupe.buffer.size"),
    ("CLEANERD_CLEANERD_LEASE_PROBE", "required", None, "cleanerd.lease.probe"),
    ("CLEANERD_TOPICS_ORDERS_CLEANUP_POLICY", "compact", "orders", "cleanup.policy"),
    ("CLEANERD_TOPICS_MY__ORDERS___V1_CLEANUP_POLICY", "compact", "my_orders-v1", "cleanup.policy"),
    ("CLEANERD_TOPICS_A_B_DELETE_RETENTION_MS", "1d", "a.b", "delete.retention.ms"),
]


@pytest.mark.parametrize(("variable", "text", "topic", "key"), ENVIRONMENT)
def test_environment_rule(variable: str, text: str, topic: str | None, key: str) -> None:
    """Kafka's Docker rule: _ is '.', __ is '_', ___ is '-'."""
    settings = load(environ={variable: text, "LOG_SEGMENT_BYTES": "1", "XCLEANERD_FOO": "1"})
    origin = f"environment {variable}"
    if topic is None:
        assert settings.origins[key] == origin
    else:
        assert settings.topic_overrides(topic)[key][1] == origin


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("CLEANERD_LOG_SEGMENT_BYTE", ["environment CLEANERD_LOG_SEGMENT_BYTE", "did you mean log.segment.bytes?"]),
        ("CLEANERD_LOG__SEGMENT_BYTES", ["unknown key log_segment.bytes", "did you mean log.segment.bytes?"]),
        ("CLEANERD_TOPICS_____CONSUMER__OFFSETS_SEGMENT_BYTES", ["four or more underscores", "--set"]),
        ("CLEANERD_TOPICS_ORDERS_CLEANUP_POLICI", ["did you mean topics.orders.cleanup.policy?"]),
        ("CLEANERD_SERVICE_HOST", ["unknown key service.host"]),
        ("CLEANERD_STATE_DIR", ["unknown key state.dir", "did you mean CLEANERD_CLEANERD_STATE_DIR?"]),
        ("CLEANERD_", ["unknown key"]),
    ],
)
def test_an_unknown_variable_is_a_warning(variable: str, message: list[str]) -> None:
    """A host may set variables with our prefix for other purposes; a hint, and everything else is used."""
    settings = load(environ={variable: "100", "CLEANERD_LOG_SEGMENT_BYTES": "300"})
    assert settings.daemon.log_segment_bytes == 300
    (text,) = settings.stray
    assert all(part in text for part in ["sets nothing", *message])
    # An unknown key in cleanerd's own files is an error.
    assert "environment CLEANERD_LOG_SEGMENT_BYTES" in refused(environ={"CLEANERD_LOG_SEGMENT_BYTES": "3"})


@pytest.mark.parametrize(
    "variable",
    [
        "CLEANERD_CLEANERD_MODE",
        "CLEANERD_LOG_SEGMENT_BYTES",
        "CLEANERD_TOPICS_ORDERS_CLEANUP_POLICY",
        "CLEANERD_NO_SUCH_KEY",
    ],
)
def test_an_empty_variable_is_unset(tmp_path: Path, variable: str) -> None:
    """Docker Compose sets every variable that its file names, also without a value; the file's value is used then."""
    file = tmp_path / "cleanerd.toml"
    file.write_text('"log.segment.bytes" = 300\n"cleanerd.mode" = "live"\n')
    settings = load(files=(file,), environ={variable: ""})
    assert (settings.daemon.log_segment_bytes, settings.daemon.cleanerd_mode) == (300, "live")
    assert settings.origins[SEGMENT] == f"file {file}"
    assert settings.stray == ()


@pytest.mark.parametrize(
    ("assignment", "topic", "key", "value"),
    [
        ("topics.a.b.cleanup.policy=compact", "a.b", "cleanup.policy", frozenset({"compact"})),
        ("topics.orders.delete.retention.ms=1h", "orders", "delete.retention.ms", 3_600_000),
        ("topics.orders.segment.bytes=1MiB", "orders", "segment.bytes", 1_048_576),
        ("topics.orders.cleanup.policy=delete,compact", "orders", "cleanup.policy", frozenset({"compact", "delete"})),
        ("topics.orders.cleanup.policy=Compact", "orders", "cleanup.policy", frozenset({"compact"})),
        ("topics.orders.compaction.strategy=", "orders", "compaction.strategy", "offset"),
        ("topics.orders.compaction.strategy.header= v ", "orders", "compaction.strategy.header", "v"),
        (
            "topics.a.compaction.strategy.header.encoding=varlong",
            "a",
            "compaction.strategy.header.encoding",
            "varlong",
        ),
        ("topics.compaction.strategy.header.tombstone.header=d", "compaction.strategy.header", "tombstone.header", "d"),
        (" topics.orders.min.cleanable.dirty.ratio =0.25", "orders", "min.cleanable.dirty.ratio", 0.25),
    ],
)
def test_set_for_a_topic(assignment: str, topic: str, key: str, value: object) -> None:
    """Each value is read once, into Kafka's unit."""
    assert load(assignment).topic_overrides(topic) == {key: (value, "--set")}


def test_quoted_table_names_are_not_cut_again(toml: Path) -> None:
    """[topics."orders.delete"] "retention.ms" is not delete.retention.ms of orders; as a dotted --set it is."""
    toml.write_text('[topics."orders.delete"]\n"retention.ms" = "1h"\n[topics.payments]\ncleanup.policy = "compact"\n')
    settings = load(files=(toml,))
    assert set(settings.topic_overrides("orders.delete")) == {"retention.ms"}
    assert settings.topic_overrides("orders") == {}
    assert settings.topic_overrides("payments")["cleanup.policy"] == (frozenset({"compact"}), f"file {toml}")
    assert set(load("topics.orders.delete.retention.ms=1h").topic_overrides("orders")) == {"delete.retention.ms"}


def test_longest_literal_match_wins_key_by_key(toml: Path) -> None:
    """The longest literal match wins. Neither the order in the file nor --set for a weaker glob matters."""
    toml.write_text(
        '[topics."orders.v1"]\n"segment.bytes" = 1000\n'
        '[topics."orders*"]\n"segment.bytes" = 2000\n"min.compaction.lag.ms" = 2\n'
        '[topics."o*"]\n"segment.bytes" = 3000\n"min.compaction.lag.ms" = 3\n"index.interval.bytes" = 3\n'
    )
    settings = load("topics.*.segment.bytes=4000", "topics.*.max.message.bytes=4", files=(toml,))
    values = {key: value for key, (value, _) in settings.topic_overrides("orders.v1").items()}
    assert values == {
        "segment.bytes": 1000,
        "min.compaction.lag.ms": 2,
        "index.interval.bytes": 3,
        "max.message.bytes": 4,
    }
    assert settings.topic_overrides("orders.v2")["segment.bytes"] == (2000, f'file {toml} topics."orders*"')
    assert settings.topic_overrides("other")["segment.bytes"] == (3000, f'file {toml} topics."o*"')
    assert settings.topic_overrides("payments")["segment.bytes"] == (4000, '--set topics."*"')


def test_the_last_of_equally_long_matches_wins() -> None:
    settings = load("topics.a*.segment.bytes=100", "topics.*b.segment.bytes=200")
    assert settings.topic_overrides("ab")["segment.bytes"][0] == 200
    again = load("topics.a*.segment.bytes=100", "topics.*b.segment.bytes=200", "topics.a*.segment.bytes=300")
    assert again.topic_overrides("ab")["segment.bytes"][0] == 300


UNKNOWN = [
    ('x = 1\n"log.segment.bytes" = 100\n', 1, "unknown key x"),
    ('"log.segment.bytes" = 100\n\n# comment\n"log.segment.byte" = 5\n', 4, "did you mean log.segment.bytes?"),
    ("[log.cleaner]\nmin.cleanable.ratio = 0.5\nmin.cleanable.ratios = 0.5\n", 3, "log.cleaner.min.cleanable.ratios"),
    (
        '[topics.orders]\n"cleanup.policy" = "compact"\n"cleanup.polici" = "compact"\n',
        3,
        "did you mean cleanup.policy?",
    ),
    ('a = """\n\n"""\n"message.max.bytes" = 5', 3, "unknown key a"),
    ('[topics.orders.v1]\n"cleanup.policy" = "compact"\n', 2, 'in quotes: [topics."orders.v1"]'),
    ('[topics]\n"cleanup.policy" = "compact"\n', 2, "unknown key topics.cleanup.policy"),
    ("topics = 5\n", 1, "unknown key topics"),
    ('[topics."a b"]\n"cleanup.policy" = "compact"\n', 2, "cannot be a topic"),
    ('"log.segment.bytes" = 1979-05-27\n', 1, "must be text, a number"),
    ('\n"log.segment.bytes" = "13"\n', 2, "log.segment.bytes is '13', must be a size"),
    ('"quota.of.every.user" = "5"\n', 1, "no such key"),
    ('"compaction.strategy.header" = "v"\n', 1, "unknown key compaction.strategy.header"),
]


@pytest.mark.parametrize(("document", "line", "messages"), UNKNOWN)
def test_mistakes_in_a_file_name_the_line(toml: Path, document: str, line: int, messages: str) -> None:
    """An unknown key is an error with the nearest match."""
    toml.write_text(document)
    message = refused(files=(toml,))
    assert message.startswith(f"{toml}:{line}: ")
    assert messages in message


def test_a_file_full_of_errors(toml: Path) -> None:
    """Each was compared with every key, and its line searched by parsing: a file of 1 MiB took many minutes."""
    toml.write_text("".join(f'"a.{number}" = 1\n' for number in range(50)))
    found, problems = read_settings([toml], [], {})
    assert found is None
    assert [str(each).partition(": ")[0] for each in problems] == [
        *(f"{toml}:{line}" for line in range(1, 21)),
        str(toml),
    ]
    assert "there may be more" in str(problems[-1])


def test_a_line_that_takes_too_long_to_find(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a list of many lines each was tried, with one parse each; the message now omits the line."""
    toml.write_text("x = [\n" + "1,\n" * 400 + "]\n")
    parsed: list[int] = []
    parse = tomllib.loads
    # The limit of a file of 1 MiB, at one that is read at once; the amount of parsing shows nowhere else.
    monkeypatch.setattr(sources, "_PARSED_FOR_LINES", 10_000)
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.append(len(text)) or parse(text))  # see above
    assert refused(files=(toml,)).startswith(f"{toml}: x is ")
    assert sum(parsed) < 20_000


BAD_VALUES = [
    ("log.cleaner.threads=1_0", "must be a whole number; at least 1; at most 1024"),
    ("log.cleaner.threads=1.0", "must be a whole number; at least 1; at most 1024"),
    ("cleanerd.metrics.partitions.max=1e3", "must be a whole number; at least 0; at most 2^31-1"),
    ("log.cleaner.backoff.ms=soon", "or a number of milliseconds; at least 0"),
    ("log.cleaner.backoff.ms=9223372036854775808", "at least 0; at most 2^63-1"),
    ("log.cleaner.dedupe.buffer.size=1MiB", "at least 1048577"),
    ("log.cleaner.dedupe.buffer.size=128MB", "is '128MB', must be a size such as 128MiB"),
    ("log.cleaner.min.cleanable.ratio=1.5", "a number from 0 to 1"),
    ("log.cleaner.io.buffer.load.factor=0.99", "at most 0.95"),
    ("log.cleaner.max.compaction.lag.ms=0", "at least 1"),
    ("log.segment.bytes=2GiB", "at most 2^31-1"),
    ("log.retention.hours=90m", "not a whole number of them"),
    ("topics.orders.retention.ms=-2", "at least -1"),
    ("log.retention.ms=0s", "1 or more, or -1 (indefinitely)"),
    ("producer.id.expiration.ms=30d", "at most 2^31-1"),
    ("cleanerd.lease.probe=never", "one of: auto, required"),
    ("cleanerd.broker.version=4", "auto, or a release such as 3.9"),
    ("cleanerd.broker.version=4.0.1", "auto, or a release such as 3.9"),
    ("cleanerd.broker.version=v4.0", "auto, or a release such as 3.9"),
    ("cleanerd.state.dir= ", "must be a path"),
    ("cleanerd.disk.reserve=10%", "auto, or a size"),
    ("log.cleaner.compaction.strategy=newest", "must be one of: offset, timestamp, header"),
    (
        "topics.orders.compaction.strategy=Header",
        "of topic orders is 'Header', must be one of: offset, timestamp, header",
    ),
    ("topics.orders.compaction.strategy.header.encoding=int", "must be one of: long, varlong"),
    ("topics.orders.tombstone.mode=flags", "must be one of: null, flag, header"),
    ("topics.orders.tombstone.guard=never", "must be one of: horizon, forever"),
    ("cleanerd.strategy.exclude=a b,c", "a list of topic names or globs"),
    ("cleanerd.strategy.exclude=a,,c", "a list of topic names or globs"),
    ("topics.orders.cleanup.policy=compact;delete", "a list of compact, delete"),
    ("log.segment.bytes", "not of the form KEY=VALUE"),
]


@pytest.mark.parametrize(("assignment", "messages"), BAD_VALUES)
def test_bad_values_name_key_value_range_and_origin(assignment: str, messages: str) -> None:
    message = refused(assignment)
    assert message.startswith(f"--set {assignment.partition('=')[0]}: ")
    assert messages in message


def test_all_errors_are_found_and_the_first_one_has_their_number(toml: Path) -> None:
    """A bad value counts even if a stronger source sets the key: it would take effect if that is removed."""
    toml.write_text(f'"{SEGMENT}" = 3\nnonsense = 1\n')
    settings, problems = read_settings([toml], [f"{SEGMENT}=100", "more=1"], {})
    assert settings is None
    assert len(problems) == 3
    assert "(2 more: see 'cleanerd config check')" in refused(f"{SEGMENT}=100", "more=1", files=(toml,))


def test_lags_that_cross_name_both_origins() -> None:
    message = refused(
        "log.cleaner.min.compaction.lag.ms=10", environ={"CLEANERD_LOG_CLEANER_MAX_COMPACTION_LAG_MS": "9"}
    )
    assert "log.cleaner.min.compaction.lag.ms from --set" in message
    assert "from environment CLEANERD_LOG_CLEANER_MAX_COMPACTION_LAG_MS" in message


def test_only_explicit_broker_level_keys_replace_the_brokers() -> None:
    """U-24: our own defaults must not look like configured values."""
    assert load("cleanerd.state.dir=/x", "log.cleaner.dedupe.buffer.size=2MiB").broker_defaults() == {}
    assert load("log.retention.hours=7d", "message.max.bytes=1MiB").broker_defaults() == {
        "log.retention.hours": (168, "--set log.retention.hours"),
        "message.max.bytes": (1_048_576, "--set message.max.bytes"),
    }


def test_settings_and_topic_config_fit_together() -> None:
    settings = load(
        "topics.orders.segment.bytes=1MiB", "log.retention.hours=1d", "log.cleaner.min.cleanable.ratio=0.25"
    )
    config = resolve_topic_config(
        "orders",
        overrides=settings.topic_overrides("orders"),
        topic_configs={"segment.bytes": "5000"},
        settings_defaults=settings.broker_defaults(),
    )
    assert (config.segment_bytes, config.retention_ms, config.min_cleanable_dirty_ratio) == (1048576, 86_400_000, 0.25)
    assert config.origins["retention.ms"] == "--set log.retention.hours"


EDGES = ["", "x", "-2", "-1", "0", "1", "3", "4", "13", "14", "0.5", "1.1", "true", "compact", "offset", "header"]
EDGES += [str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63)]


@pytest.mark.parametrize("key", sorted(TOPIC_FIELDS))
def test_both_tables_agree_on_the_values_of_a_topic_key(key: str) -> None:
    """The settings accept units, and otherwise the topic configuration's values: both read one table."""
    rule = TOPIC_RULES[key]
    names = {synonym.name: synonym.value for synonym in rule.synonyms if synonym.name in DAEMON_FIELDS}
    for name, value_rule in {f"topics.orders.{key}": rule.value, **names}.items():
        for text in EDGES:
            _, problems = read_settings([], [f"{name}={text}"], {})
            wrong = [problem for problem in problems if "must be" in problem.message]
            try:
                value_rule.read(text)
            except ValueError:
                assert wrong, (name, text)
            else:
                assert not wrong, (name, text)


def test_kafka_defaults_of_the_settings_are_those_of_the_topic_config() -> None:
    daemon = load()
    for rule in TOPIC_RULES.values():
        for synonym in rule.synonyms:
            value = daemon.value(synonym.name) if synonym.name in DAEMON_FIELDS else None
            if value is not None:
                assert (
                    rule.value.read(kafka_text(value * synonym.factor if synonym.factor > 1 else value)) == rule.default
                )
