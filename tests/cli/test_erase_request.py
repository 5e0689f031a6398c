"""``cleanerd erase request`` and ``requests``: questions, stored requests, refusals (U-88); brokers: tests/live."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import pytest

from cleanerd.cli import erase_request as module
from cleanerd.cli.main import run
from cleanerd.client.errors import ClientError
from cleanerd.client.record import ConsumedRecord
from cleanerd.state.erasure_requests import ErasureRequests, read_request
from tests.support.dict_cluster import DictCluster

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.client.rules import TopicRules

KEY = "customer-4711"


class Connected(DictCluster):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@dataclass
class Topic:
    """The brokers' data: a value of the key in partition 1, at offset 5; a tombstone is written at offset 9."""

    winners: dict[int, ConsumedRecord] = field(default_factory=dict)
    rules: TopicRules | None = None
    fails: bool = False
    records = 1

    def __call__(self, topic: str, key: bytes, rules: TopicRules, **_connection: Any) -> Self:
        self.rules = rules
        self._record = ConsumedRecord(topic, 1, 5, 0, key, b"1", (), rules)
        if key == KEY.encode() and not self.winners:
            self.winners[1] = self._record
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def read(self) -> None:
        pass

    @property
    def to_write(self) -> list[int]:
        return [number for number, record in self.winners.items() if record.value is not None]

    def write(self, _now_ms: int) -> None:
        if self.fails:
            raise ClientError("no broker answers")
        record = self._record
        self.winners[1] = ConsumedRecord(record.topic, 1, 9, 0, record.key, None, (), record.rules)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Connected:
    found = Connected({})
    # No cluster runs here; the answers are those of the tests with brokers.
    monkeypatch.setattr(module, "Cluster", lambda *_requested: found)
    return found


@pytest.fixture
def topic(cluster: Connected, monkeypatch: pytest.MonkeyPatch) -> Topic:
    found = Topic()
    monkeypatch.setattr(module, "KeyEraser", found)
    return found


@dataclass
class Erase:
    """``cleanerd erase ...``: exit code, standard output, standard error."""

    state: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self.capsys.readouterr()
        code = run(["erase", *map(str, words), "--set", f"cleanerd.state.dir={self.state}"])
        message = self.capsys.readouterr()
        return code, message.out, message.err

    def request(self, *words: object, key: str = KEY, name: str = "orders") -> tuple[int, str, str]:
        return self("request", name, "--key", key, "--bootstrap-server", "here:1", *words)


@pytest.fixture
def erase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Erase:
    return Erase(tmp_path / "state", capsys)


def test_requested(topic: Topic, erase: Erase, tmp_path: Path) -> None:
    """The tombstone's offset and the deadline are stored, and the key is nowhere."""
    file = tmp_path / "request.json"
    code, out, _ = erase.request("--yes", "--output", file, "--deadline-days", 7)
    assert (code, out.splitlines()[0]) == (0, "orders: tombstone written to orders-1")
    (request,) = ErasureRequests(erase.state).load()
    assert read_request(file) == request
    assert (dict(request.tombstones), request.topic, request.cluster_id) == ({1: 9}, "orders", "cluster-1")
    assert request.deadline_ms - request.requested_ms == 7 * 86_400_000
    assert request.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert request.is_about("orders", KEY.encode())
    assert not any(KEY.encode() in each.read_bytes() for each in [*erase.state.iterdir(), file])


def test_a_second_request_keeps_id_salt_and_deadline(topic: Topic, erase: Erase) -> None:
    """It is the same erasure: certificates for the first one are about the same key hash."""
    erase.request("--yes")
    (first,) = ErasureRequests(erase.state).load()
    code, out, _ = erase.request("--deadline-days", 99)
    assert (code, out.splitlines()[0]) == (0, "orders: a tombstone of the key is there already")
    (second,) = ErasureRequests(erase.state).load()
    assert (second.id, second.key, second.deadline_ms) == (first.id, first.key, first.deadline_ms)
    assert second.requested_ms >= first.requested_ms


def test_it_asks_before_it_writes(topic: Topic, erase: Erase) -> None:
    code, _, err = erase.request()
    assert (code, "pass --yes" in err) == (4, True)
    assert ErasureRequests(erase.state).load() == []
    assert topic.to_write == [1]


def test_a_dry_run_changes_nothing(topic: Topic, erase: Erase) -> None:
    code, out, _ = erase.request("--dry-run")
    assert (code, out) == (0, "orders: tombstone would be written to orders-1\n")
    assert not erase.state.exists()


def test_a_key_that_no_record_has(topic: Topic, erase: Erase) -> None:
    """The request is stored: a replica may have the key nevertheless."""
    document = json.loads(erase.request("--json", key="another")[1])
    assert (document["written_to"], document["tombstones"]) == ([], {})
    assert len(ErasureRequests(erase.state).load()) == 1


def test_a_write_that_fails_leaves_the_request_open(topic: Topic, erase: Erase) -> None:
    topic.fails = True
    code, _, err = erase.request("--yes")
    assert (code, "no broker answers" in err) == (1, True)
    (request,) = ErasureRequests(erase.state).load()
    assert (request.is_open, dict(request.tombstones)) == (True, {})


def test_the_topics_strategy(topic: Topic, erase: Erase) -> None:
    options = ("compaction.strategy=header", "compaction.strategy.header=v", "tombstone.mode=flag")
    erase.request("--yes", *(word for each in options for word in ("--set", f"topics.orders.{each}")))
    assert topic.rules is not None
    assert (topic.rules.strategy, topic.rules.version_header, topic.rules.tombstone_mode) == ("header", "v", "flag")


def test_refused(cluster: Connected, topic: Topic, erase: Erase) -> None:
    """A topic that does not exist, is not compacted, or is Kafka's own; no broker configured.

    Another form of the key.
    """
    assert "is a topic of Kafka's own" in erase.request(name="__consumer_offsets")[2]
    cluster.own["cleanup.policy"] = "delete"
    code, _, err = erase.request()
    assert (code, "cleanup.policy is delete: a tombstone deletes nothing" in err) == (4, True)
    cluster.there = False
    assert erase.request()[::2] == (3, "cleanerd: orders: the cluster has no such topic\n")
    assert erase.request("--hex")[0] == 2
    code, _, err = erase("request", "orders", "--key", "k")
    assert (code, "bootstrap.servers is not set" in err) == (3, True)


def test_a_request_tracked_on_another_host(topic: Topic, erase: Erase, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    erase.request("--yes", "--output", file)
    other = Erase(tmp_path / "other", erase.capsys)
    code, out, _ = other("requests", "--add", file)
    assert (code, out.endswith("1 open request\n")) == (0, True)
    (request,) = json.loads(other("requests", "--json")[1])["requests"]
    assert (request["topic"], request["overdue"], request["tombstones"]) == ("orders", False, {"1": 9})
    assert other("requests", "--forget", request["id"])[1] == "0 open requests\n"
    assert other("requests", "--forget", request["id"])[0] == 3
    file.write_text(file.read_text().replace(request["id"], "x").replace('"salt": "', '"salt": "zz'))
    assert "is not an erasure request" in other("requests", "--add", file)[2]
