"""ZooKeeper mode behind TLS and a login: how the running broker is asked, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from cleanerd.admin import cluster as cluster_module
from cleanerd.admin.cluster import KeyValue, NotLetInError, TopicFacts
from cleanerd.log.log_dir import read_log_dir
from cleanerd.scope.told_topics import told_topics
from cleanerd.settings import load_settings
from tests.apply.offline_scene import two_groups
from tests.support.log_dirs import CLUSTER_ID, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.log.log_dir import LogDir
    from cleanerd.settings import Settings

LOGIN = """\
bootstrap.servers=kafka-1:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hunter2";
"""


class Asked:
    """In the place of a connection."""

    def __init__(self, servers: str, client: Any, *, connect_seconds: float) -> None:
        assert connect_seconds > 0
        if client.login is not None and client.login.username == "nobody":
            raise NotLetInError("the cluster does not let cleanerd in", where=servers)
        Asked.by = (servers, client.protocol, client.login.password)

    by: tuple[str, str, str] = ("", "", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def cluster_id(self) -> str:
        return CLUSTER_ID

    def topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "", {"cleanup.policy": KeyValue("compact", "compact", None)}) for name in names}


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDir:
    path = make_log_dir(tmp_path / "d1", {"orders-0": two_groups()})
    meta = path / "meta.properties"
    meta.write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n")
    monkeypatch.setattr(cluster_module, "Cluster", Asked)
    return read_log_dir(path)


def settings(tmp_path: Path, text: str, *more: str) -> Settings:
    path = tmp_path / "client.properties"
    path.write_text(text)
    path.chmod(0o600)
    words = [f"cleanerd.command.config={path}", f"cleanerd.state.dir={tmp_path / 'state'}", *more]
    return load_settings([], words, environ={})


def test_the_broker_is_asked_with_the_login_of_the_file(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: the file names the brokers and the login; bootstrap.servers of the settings counts before it."""
    told = told_topics(settings(tmp_path, LOGIN), log_dir, running=True)
    assert (told.topics["orders"].values, told.warnings) == ({"cleanup.policy": "compact"}, ())
    assert Asked.by == ("kafka-1:9093", "SASL_PLAINTEXT", "hunter2")
    told_topics(settings(tmp_path, LOGIN, "cleanerd.state.dir=" + str(tmp_path / "s2"), "bootstrap.servers=b:1"),
                log_dir, running=True)  # fmt: skip
    assert Asked.by[0] == "b:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOGIN + "ssl.cipher.suites=x\n", "ssl.cipher.suites"),
        (LOGIN.replace('"a"', '"nobody"'), "does not let cleanerd in"),
        ("security.protocol=PLAINTEXT\n", "bootstrap.servers is not set"),
    ],
)
def test_what_is_in_the_way_is_a_warning(tmp_path: Path, log_dir: LogDir, text: str, said: str) -> None:
    """The daemon goes on, and no password is in its log."""
    told = told_topics(settings(tmp_path, text), log_dir, running=True)
    assert told.topics == {}
    (warning,) = told.warnings
    assert said in warning
    assert "hunter2" not in warning
