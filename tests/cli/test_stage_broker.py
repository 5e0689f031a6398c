"""Staged with a real running broker, applied between its stop and its start, read by a consumer (S-26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.node import wait_until
from tests.cli.broker_topic import CONFIG, PROPERTIES, produce, read
from tests.cli.clean_log_dirs import Answer, Shell
from tests.support.log_dirs import read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

COMPACT = ("--set", "topics.t.cleanup.policy=compact")


def checkpoint(log_dir: Path, name: str) -> int:
    """The broker's checkpoint of the partition."""
    path = log_dir / name
    return read_checkpoint(path).get("t-0", 0) if path.exists() else 0


def call(shell: Shell, command: str, path: Path, *more: str) -> Answer:
    return shell(command, path, "--json", "--quiet", *COMPACT, *more)


def test_stage_stop_apply_start(
    broker_43: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker writes while cleanerd stages, and afterwards; its restart takes renames only."""
    shell = Shell(tmp_path, capsys, monkeypatch)
    broker = broker_43(properties=PROPERTIES)
    (path,) = broker.log_dirs
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=CONFIG)])["t"].result(PATIENCE_SECONDS)
    produce(broker, 0, 4000)
    wait_until("the high watermark is written", lambda: checkpoint(path, "replication-offset-checkpoint") == 4000)
    wait_until("a recovery point is written", lambda: checkpoint(path, "recovery-point-offset-checkpoint") > 0)
    staged = call(shell, "stage", path, "--force")
    (report,) = staged.json["partitions"]
    assert (staged.code, report["outcome"]) == (0, "staged"), report["reason"]
    assert report["records_kept"] < report["records_read"]
    assert call(shell, "apply", path).code == 4, "a broker runs"
    produce(broker, 4000, 1500)
    before = read(broker)
    broker.stop()

    applied = call(shell, "apply", path, "--require")
    (done,) = applied.json["partitions"]
    assert (applied.code, done["outcome"]) == (0, "cleaned"), done["reason"]
    broker.start()
    after = read(broker)
    assert len(after) < len(before)
    assert after.items() <= before.items()
    assert dict(after.values()) == dict(before.values()), "the last value of every key"
    assert min(offset for offset in before.keys() - after.keys()) < done["end_offset"]
    produce(broker, 5500, 100)
    assert len(read(broker)) == len(after) + 100
