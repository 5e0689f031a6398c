"""Messages and questions of ``delegate`` and ``undelegate``, with a dict as the cluster (brokers: tests/admin)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Self

import pytest

from cleanerd.cli import delegate as module
from cleanerd.cli.main import run
from tests.cli.clean_log_dirs import Typist
from tests.support.dict_cluster import LAG, RATIO, DictCluster

if TYPE_CHECKING:
    from pathlib import Path

OFFSET = ("--set", "topics.orders.compaction.strategy=offset")
HEADER = (
    "--set", "topics.orders.compaction.strategy=header", "--set", "topics.orders.compaction.strategy.header=v",
)  # fmt: skip


ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The topic's id, as Kafka writes it and as names of state files do."""


class Connected(DictCluster):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Connected:
    found = Connected({LAG: "3600000"})
    # No cluster runs here; the answers are those of the tests with brokers.
    monkeypatch.setattr(module, "Cluster", lambda *_requested: found)
    return found


class Cli:
    def __init__(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._settings = ["--set", "bootstrap.servers=here:1", "--set", f"cleanerd.state.dir={state}"]
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, list[str], str]:
        code = run([*arguments, *self._settings])
        captured = self._capsys.readouterr()
        return code, captured.out.splitlines(), captured.err


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(tmp_path / "state", capsys)


def test_a_versioned_topic_is_delegated_without_a_question(cluster: Connected, cli: Cli) -> None:
    """U-8: what was done, key by key, and whose values apply from now on (U-9)."""
    code, out, err = cli("delegate", "orders", *HEADER)
    assert code == 0
    assert out[0] == "orders: delegated"
    assert [line.split() for line in out[2:]] == [
        [RATIO, "not", "set", "1"],
        [LAG, "3600000", str(2**63 - 1)],
        ["segment.ms", "not", "set", "3600000"],
    ]
    assert "on other hosts" in err
    assert cli("delegate", "orders", *HEADER)[1] == ["orders: already delegated"]


def test_a_topic_of_kafkas_strategy_is_delegated_on_request_only(cluster: Connected, cli: Cli) -> None:
    """It needs none, and the broker's cleaner would never touch it again."""
    code, out, err = cli("delegate", "orders")
    assert (code, out) == (4, [])
    assert "--yes" in err
    assert cluster.altered == []
    assert cli("delegate", "orders", "--dry-run")[1][0] == "orders: delegated (dry run: nothing was changed)"
    assert cli("delegate", "orders", "--yes")[0] == 0
    assert cli("delegate", "orders")[0] == 0, "no question is left"


def test_the_purpose_of_delegating_kafkas_strategy(
    cluster: Connected, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-93: before its question, it shows how Kafka's cleaner treats tombstones that wait for a replica."""
    monkeypatch.setattr(sys, "stdin", Typist("n\n"))
    _code, _out, err = cli("delegate", "orders")
    assert "wait for replicas that are away, which Kafka's cleaner does not do" in err
    assert cluster.altered == []


def test_a_versioned_topic_is_undelegated_on_request_only(cluster: Connected, cli: Cli) -> None:
    """U-8: it warns that the broker will retain the highest offset, and asks."""
    cli("delegate", "orders", *HEADER)
    code, out, err = cli("undelegate", "orders", *HEADER)
    assert (code, out) == (4, [])
    assert "keep the highest offset" in err
    assert "--yes" in err
    assert len(cluster.altered) == 1
    code, out, err = cli("undelegate", "orders")
    assert (code, out) == (4, []), "missing settings may be forgotten ones"
    assert "orders is delegated, and these settings do not say by which strategy it is cleaned (was --config" in err
    assert len(cluster.altered) == 1
    assert cli("undelegate", "orders", *OFFSET)[0] == 0, "offset: no question"
    assert cluster.own == {"cleanup.policy": "compact", LAG: "3600000"}


@pytest.mark.parametrize("settings", [(), OFFSET], ids=["forgotten", "by offset now"])
def test_the_former_settings_come_from_the_state_directory(
    cluster: Connected, cli: Cli, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    """U-6, U-8: a partition of it was cleaned by versions, in any directory; an older topic does not count."""
    cli("delegate", "orders", *HEADER)
    remember(tmp_path / "state", "AAAA-1", "strategy=timestamp;tombstone.mode=null")
    remember(tmp_path / "state", "name-orders-extra-1", "strategy=timestamp;tombstone.mode=null")
    remember(tmp_path / "state", f"{ID}-3", "strategy=header;header=v;encoding=long;tombstone.mode=null")
    code, out, err = cli("undelegate", "orders", *settings)
    assert (code, out) == (4, [])
    assert "orders was last cleaned by header:v; these settings say offset (was --config forgotten?)" in err
    assert "timestamp" not in err
    assert len(cluster.altered) == 1
    assert cli("undelegate", "orders", "--dry-run", *settings)[0] == 0
    assert cli("undelegate", "orders", "--yes", *settings)[0] == 0


def remember(state: Path, name: str, fingerprint: str) -> None:
    """Store a checkpoint of a partition in some log directory."""
    directory = state / "partitions" / "some-directory"
    directory.mkdir(parents=True, exist_ok=True)
    document = {"format": 1, "cleanerd_checkpoint": {"fingerprint": fingerprint}}
    (directory / f"{name}.json").write_text(json.dumps(document))


def test_settings_left_as_they_are_are_listed(cluster: Connected, cli: Cli) -> None:
    cli("delegate", "orders", *HEADER)
    cluster.own["segment.ms"] = "77"
    _, out, err = cli("undelegate", "orders", "--yes", *HEADER)
    assert out[0] == "orders: undelegated"
    assert "segment.ms is now 77" in err


@pytest.mark.parametrize("servers", ["here", "here:", "here:99999", "a b:1", ""])
def test_servers_that_are_none(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["delegate", "orders", "--set", f"bootstrap.servers={servers}"]) == 3
    assert "must be a list of host:port" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command, text in (("delegate", "alone cleans it"), ("undelegate", "you have to confirm")):
        assert run([command, "--help"]) == 0
        out: Any = " ".join(capsys.readouterr().out.split())
        assert text in out


def test_former_settings_that_cannot_be_read(cluster: Connected, cli: Cli, tmp_path: Path) -> None:
    """U-6: the broker's cleaner may retain other records; only configured settings remove the doubt."""
    assert cli("delegate", "orders", *HEADER)[0] == 0
    directory = tmp_path / "state" / "partitions" / "one"
    directory.mkdir(parents=True)
    (directory / "name-orders-0.json").write_text("{")
    code, _, err = cli("undelegate", "orders")
    assert code == 4
    assert "the strategy of the last cleaning of orders is unknown, because" in err
    assert str(directory / "name-orders-0.json") in err
    assert cli("undelegate", "orders", *OFFSET, "--set", "topics.orders.tombstone.mode=null")[0] == 0
