"""Kafka's client properties as options of kafka-python and confluent-kafka: which are passed on, and which are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka.admin import KafkaAdminClient

from cleanerd.admin.client_config import read_client_config
from cleanerd.admin.delegate import kafka_configs_command
from cleanerd.client.command_config import confluent_options, kafka_python_options
from cleanerd.errors import ConfigError

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" \\
    password="hunter2";
"""


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "client.properties"
        path.write_text(text, encoding="latin-1")
        path.chmod(mode)
        return path

    return write


def test_no_file_and_an_empty_one(file: Any) -> None:
    """Plain text, without a login."""
    for path in (None, file("# nothing\n")):
        found = read_client_config(path)
        assert found.kafka_python() == {"client_id": "cleanerd", "security_protocol": "PLAINTEXT"}
        assert found.confluent() == {"client.id": "cleanerd", "security.protocol": "PLAINTEXT"}
        assert found.warnings == ()


def test_a_login_for_both_libraries(file: Any) -> None:
    """Each name is the library's own, and each library accepts it; nothing that is shown has the password."""
    path = file(LOGIN + "client.id=ops\nrequest.timeout.ms=7000\nssl.endpoint.identification.algorithm=\n")
    found = read_client_config(path)
    python, librdkafka = found.kafka_python(), found.confluent()
    assert python["ssl_context"].check_hostname is False
    del python["ssl_context"]
    assert python == {
        "client_id": "ops", "security_protocol": "SASL_SSL", "request_timeout_ms": 7000, "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "alice", "sasl_plain_password": "hunter2",
    }  # fmt: skip
    assert librdkafka == {
        "client.id": "ops", "security.protocol": "SASL_SSL", "socket.timeout.ms": 7000,
        "ssl.endpoint.identification.algorithm": "none", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice", "sasl.password": "hunter2",
    }  # fmt: skip
    assert set(python) <= set(KafkaAdminClient.DEFAULT_CONFIG)
    Consumer({**librdkafka, "group.id": "g"}).close()
    assert "hunter2" not in repr(found)


def test_names_of_hosts_are_checked_unless_configured_otherwise(file: Any) -> None:
    """Kafka's default is https: a certificate of another host is refused."""
    found = read_client_config(file("security.protocol=ssl\n"))
    assert found.kafka_python()["ssl_context"].check_hostname is True
    assert found.confluent()["ssl.endpoint.identification.algorithm"] == "https"


def test_everything_that_can_be_tuned(file: Any) -> None:
    """Both libraries accept every option under its name."""
    names = ("request.timeout.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms",
             "connections.max.idle.ms", "metadata.max.age.ms")  # fmt: skip
    found = read_client_config(
        file("".join(f"{name}=60000\n" for name in names) + "client.dns.lookup=use_all_dns_ips\n")
    )
    python = found.kafka_python()
    assert set(python) <= set(KafkaAdminClient.DEFAULT_CONFIG)
    assert sum(value == 60000 for value in python.values()) == len(names)
    Consumer({**found.confluent(), "group.id": "g"}).close()


def test_servers_of_the_file_and_given_ones(file: Any) -> None:
    path = file("bootstrap.servers=a:1,b:2\n")
    assert confluent_options(path)["bootstrap.servers"] == "a:1,b:2"
    assert kafka_python_options(str(path))["bootstrap_servers"] == ["a:1", "b:2"]
    assert confluent_options(path, "c:3")["bootstrap.servers"] == "c:3"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# x\n\nretries=5\n", 3, "retries: cleanerd cannot pass"),
        ("sasl.login.callback.handler.class=x.Y\n", 1, "remove the line"),
        ("security.protocol=TLS\n", 1, "must be one of PLAINTEXT, SSL"),
        ("security.protocol=SASL_SSL\n", None, "not set, which means GSSAPI"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n", 2, "cleanerd knows PLAIN, SCRAM-SHA-256"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n", None, "sasl.jaas.config: it is not set"),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={SCRAM} required;\n", 3, "login module"),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required;\n", 3, "is missing"),
        (
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required tokenauth=true;\n",
            3,
            "option tokenauth",
        ),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required a=12;\n", 3, "quotes"),
        ("security.protocol=SSL\nssl.truststore.type=BCFKS\n", 2, "reads JKS, PKCS12 and PEM"),
        ("ssl.enabled.protocols=TLSv1.2\n", 1, "cannot narrow down"),
        ("ssl.protocol=SSLv3\n", 1, "1.2 and newer"),
        ("ssl.endpoint.identification.algorithm=ldaps\n", 1, "https, or empty"),
        ("request.timeout.ms=5s\n", 1, "whole number"),
        ("security.protocol=SSL\nssl.truststore.location=/nowhere/trust.jks\n", None, "cannot be read"),
        ("security.protocol=SSL\nssl.truststore.certificates=hunter2\n", 2, "no certificate"),
    ],
)  # fmt: skip
def test_an_unsupported_property_is_an_error(file: Any, text: str, line: int | None, message: str) -> None:
    """Never left out silently: file, line, name, what to do - and no password."""
    path = file(text)
    with pytest.raises(ConfigError) as raised:
        read_client_config(path)
    assert message in str(raised.value)
    if line is not None:
        assert raised.value.where == f"{path}:{line}"
    assert "hunter2" not in str(raised.value)


def test_all_unknown_names_are_reported_at_once(file: Any) -> None:
    with pytest.raises(ConfigError, match=r"also: acks, linger\.ms"):
        read_client_config(file("retries=1\nacks=all\nlinger.ms=5\n"))


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_file_that_all_users_may_read_is_a_warning(file: Any, mode: int, warned: bool) -> None:
    found = read_client_config(file(LOGIN, mode))
    assert [str(file(LOGIN, mode)) in warning for warning in found.warnings] == ([True] if warned else [])
    assert read_client_config(file("client.id=x\n", 0o644)).warnings == (), "it holds no secret"


def test_the_command_for_another_user() -> None:
    """Kafka's own tool, quoted for a shell; keys that were not set before are deleted."""
    changes = {"min.cleanable.dirty.ratio": "1", "segment.ms": None, "max.compaction.lag.ms": "5"}
    assert kafka_configs_command("h:1", Path("/etc/my client.properties"), "orders", changes) == (
        "kafka-configs.sh --bootstrap-server h:1 --command-config '/etc/my client.properties' --alter "
        "--entity-type topics --entity-name orders --add-config min.cleanable.dirty.ratio=1,max.compaction.lag.ms=5 "
        "--delete-config segment.ms"
    )
