"""A real broker with TLS and logins: SCRAM and PLAIN over SASL_SSL, client certificates, users with few rights."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cleanerd.admin import cluster
from cleanerd.admin.client_config import read_client_config
from cleanerd.admin.cluster import AccessDeniedError, Cluster
from cleanerd.cli.main import run
from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.command_config import confluent_options, kafka_python_options
from cleanerd.client.flag_topic import FlagTopic
from cleanerd.client.latest_state import LatestState
from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules
from cleanerd.errors import CleanerdError
from cleanerd_lab.demo.broker import Broker
from cleanerd_lab.demo.ports import free_port
from tests.kafka.judge import fetch_jars
from tests.support.certificates import PASSWORD, Certificates, make_certificates
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

USERS = {"alice": "hun ter2\"'\\", "guest": "guest-hunter2", "reader": "reader-hunter2"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
VERSIONED = TopicRules(strategy="header", version_header="version")
ROUNDS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


class Secured:
    """A broker with a plain listener for the tests' own use, one for logins, one for client certificates."""

    def __init__(self, work_dir: Path) -> None:
        self.made: Certificates = make_certificates(work_dir / "keys")
        self.place = work_dir
        self.sasl, self.mtls, plain, controller = (free_port() for _ in range(4))
        jars = fetch_jars("4.3")
        self.broker = Broker(
            jars.libs,
            work_dir / "broker",
            version=jars.version,
            port=plain,
            properties=self._properties(plain, controller),
        )

    def _properties(self, plain: int, controller: int) -> dict[str, str]:
        ports = {"PLAINTEXT": plain, "LOGIN": self.sasl, "MTLS": self.mtls}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        users = " ".join(f'user_{name}="{_quoted(text)}"' for name, text in USERS.items())
        return {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,MTLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.made.path("server.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.made.path("ca.pem")),
            "listener.name.mtls.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(ROUNDS),
            "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.login.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
            "listener.name.login.plain.sasl.jaas.config": _in_file(f"{PLAIN} required {users};"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        }

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = [
                UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), text.encode())
                for name, text in USERS.items()
            ]
            for done in admin.alter_user_scram_credentials(wanted).values():
                done.result(PATIENCE_SECONDS)
        topics = [NewTopic(name, 1, 1, config={"cleanup.policy": "compact"}) for name in ("orders", "stock", "mine")]
        for done in admin.create_topics(topics).values():
            done.result(PATIENCE_SECONDS)

    def file(self, text: str, mode: int = 0o600) -> Path:
        path = self.place / "client.properties"
        path.write_text(text, encoding="latin-1")
        path.chmod(mode)
        return path

    def login(self, user: str, mechanism: str = "SCRAM-SHA-512", store: str = "ca.pem", **also: str) -> Path:
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        jaas = f'{module} required username="{user}" password="{_quoted(also.pop("password", USERS[user]))}";'
        return self.file(
            f"bootstrap.servers=127.0.0.1:{self.sasl}\nsecurity.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config={_in_file(jaas)}\n{self.trust(store)}"
            + "".join(f"{key.replace('_', '.')}={text}\n" for key, text in also.items())
        )

    def trust(self, store: str) -> str:
        kind = {"pem": "PEM", "p12": "PKCS12", "jks": "JKS"}[store[-3:]]
        password = "" if kind == "PEM" else f"ssl.truststore.password={PASSWORD}\n"
        return f"ssl.truststore.type={kind}\nssl.truststore.location={self.made.path(store)}\n{password}"

    def certificate(self, key: str, store: str) -> Path:
        kind = {"pem": "PEM", "p12": "PKCS12", "jks": "JKS"}[key[-3:]]
        password = "ssl.key.password" if kind == "PEM" else "ssl.keystore.password"
        needs = kind != "PEM" or "encrypted" in key
        return self.file(
            f"bootstrap.servers=127.0.0.1:{self.mtls}\nsecurity.protocol=SSL\n{self.trust(store)}"
            f"ssl.keystore.type={kind}\nssl.keystore.location={self.made.path(key)}\n"
            + (f"{password}={PASSWORD}\n" if needs else "")
        )


def _quoted(text: str) -> str:
    """As in a JAAS value."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _in_file(text: str) -> str:
    """As in a properties file."""
    return text.replace("\\", "\\\\")


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    place = Path(tempfile.mkdtemp(prefix="ops-secured-"))
    made = Secured(place)
    try:
        made.broker.start()
        made.prepare()
        yield made
    finally:
        made.broker.kill()
        shutil.rmtree(place)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*map(str, arguments), "--set", f"cleanerd.state.dir={tmp_path / 'state'}"])
        captured = capsys.readouterr()
        message = captured.out + captured.err
        assert not any(password in message for password in (*USERS.values(), PASSWORD)), "never shown"
        return code, captured.out, captured.err

    return call


def ways(secured: Secured) -> Iterator[tuple[str, Path]]:
    """Every login and every kind of store, one after the other in the same file."""
    for mechanism in ROUNDS:
        yield mechanism, secured.login("alice", mechanism)
    for store in ("trust.p12", "trust.jks"):
        yield store, secured.login("alice", store=store)
    for key, store in (("client.pem", "ca.pem"), ("client-encrypted.pem", "ca.pem"), ("client.p12", "trust.p12"),
                       ("client.jks", "trust.jks")):  # fmt: skip
        yield f"{key} {store}", secured.certificate(key, store)


def test_every_login_with_both_libraries(secured: Secured) -> None:
    """kafka-python for admin requests, librdkafka for clients: SCRAM, PLAIN, mTLS; PEM, PKCS12 and JKS."""
    tried = []
    for name, path in ways(secured):
        client = read_client_config(path)
        assert client.servers is not None
        with Cluster(client.servers, client, connect_seconds=60) as cluster:
            assert cluster.topic("orders") is not None, name
        with Producer(confluent_options(path), VERSIONED) as producer:
            producer.produce("orders", b"key", name.encode(), version=len(tried) + 1)
        tried.append(name)
        with LatestState(BrokerTopic(confluent_options(path), "orders", VERSIONED)) as state:
            state.update()
            assert state[b"key"].value == name.encode()
    with LatestState(FlagTopic("orders", **kafka_python_options(secured.login("alice")))) as state:
        state.update()
        assert state[b"key"].value == tried[-1].encode()
    assert len(tried) == len(ROUNDS) + 2 + 4


def test_delegate_and_undelegate(secured: Secured, shell: Callable[..., tuple[int, str, str]]) -> None:
    """``--command-config FILE`` as Kafka's tools have it; the setting does the same; the file has the brokers."""
    path = secured.login("alice")
    code, out, err = shell("delegate", "orders", "--command-config", path, "--yes", "--json")
    assert (code, json.loads(out)["action"]) == (0, "delegated"), err
    assert "warning" not in err
    path = secured.certificate("client.p12", "trust.p12")
    path.chmod(0o644)
    code, out, err = shell("undelegate", "orders", "--set", f"cleanerd.command.config={path}", "--yes", "--json")
    assert (code, json.loads(out)["action"]) == (0, "undelegated"), err
    assert f"{path}: every user of this host may read the passwords" in err


def test_a_refused_login_shows_kafkas_command(
    secured: Secured, shell: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password, a user without rights: the message has Kafka's own command, and no password."""
    # The closing of the connection mostly overtakes the answer: here always.
    monkeypatch.setattr(cluster._ClusterAnswer, "emit", lambda *_: None)
    # The first TLS connections of a JVM are slow; only a completed one reports a wrong password.
    assert shell("delegate", "nobody", "--command-config", secured.login("alice"), "--yes")[0] == 3
    wrong = secured.login("alice", password="no hunter2")  # noqa: S106
    servers = f"127.0.0.1:{secured.sasl}"
    code, _, err = shell("delegate", "stock", "--command-config", wrong, "--yes")
    assert (code, len(err.splitlines())) == (4, 1), err
    assert "does not let cleanerd in" in err
    expected = (
        f"kafka-configs.sh --bootstrap-server {servers} --command-config {wrong} --alter --entity-type topics "
        "--entity-name stock --add-config min.cleanable.dirty.ratio=1,max.compaction.lag.ms=9223372036854775807"
    )
    assert expected in err
    assert "no hunter2" not in err
    code, out, err = shell("delegate", "stock", "--command-config", secured.login("guest"), "--yes", "--json")
    assert (code, expected in json.loads(out)["error"]["hint"]) == (4, True), out + err
    code, _, err = shell("undelegate", "stock", "--command-config", secured.login("guest"), "--yes")
    assert (code, "kafka-configs" in err) == (4, False), "nothing is saved, so the values to restore are unknown"
    assert shell("delegate", "stock", "--command-config", secured.login("alice"), "--yes")[0] == 0
    code, _, err = shell("undelegate", "stock", "--command-config", secured.login("guest"), "--yes")
    assert code == 4
    assert "--delete-config min.cleanable.dirty.ratio,max.compaction.lag.ms" in err
    shell("undelegate", "stock", "--command-config", secured.login("alice"), "--yes")


def test_a_user_with_read_access_only(secured: Secured, shell: Callable[..., tuple[int, str, str]]) -> None:
    """The command then contains exactly the intended values."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined] # noqa: PLC0415
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )  # fmt: skip

    admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap})
    acls = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in (
            (ResourceType.TOPIC, "mine", AclOperation.DESCRIBE),
            (ResourceType.TOPIC, "mine", AclOperation.DESCRIBE_CONFIGS),
            (ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
        )
    ]
    for done in admin.create_acls(acls).values():
        done.result(PATIENCE_SECONDS)
    code, _, err = shell("delegate", "mine", "--command-config", secured.login("reader"), "--yes")
    assert (code, len(err.splitlines())) == (4, 1)
    assert "--add-config min.cleanable.dirty.ratio=1,max.compaction.lag.ms=9223372036854775807" in err


def test_failed_connections_report_the_reason(secured: Secured) -> None:
    """An authority that we do not trust, no certificate of ours, a listener without TLS, one with TLS."""
    servers = f"127.0.0.1:{secured.sasl}"
    cases = [
        (secured.login("alice").read_text().replace("ca.pem", "stranger.pem"), servers, "certificate"),
        (f"security.protocol=SSL\n{secured.trust('ca.pem')}", f"127.0.0.1:{secured.mtls}", "no broker answers"),
        (f"security.protocol=SSL\n{secured.trust('ca.pem')}", secured.broker.bootstrap, "listener with TLS"),
        ("", servers, "--command-config FILE"),
    ]
    for text, place, message in cases:
        client = read_client_config(secured.file(text))
        with pytest.raises(CleanerdError, match=message) as raised:
            Cluster(place, client, connect_seconds=3)
        assert not isinstance(raised.value, AccessDeniedError)
        assert not any(password in str(raised.value) for password in USERS.values())


def test_the_example_with_a_login(secured: Secured) -> None:
    """``LatestState``'s program accepts the same file."""
    path = secured.login("alice")
    with Producer(confluent_options(path), VERSIONED) as producer:
        producer.produce("mine", b"order-1", b"shipped", version=3)
        producer.produce("mine", b"order-1", b"placed", version=1)
    program = Path(__file__).parents[2] / "examples" / "latest_state.py"
    done = subprocess.run(
        [sys.executable, str(program), f"127.0.0.1:{secured.sasl}", "mine", "0", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "b'order-1' is b'shipped', version 3\n", done.stderr
