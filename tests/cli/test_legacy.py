"""Message formats v0 and v1 through ``clean``: no partition is refused for them (U-18, R534-4)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.resolution.broker_facts import BrokerFacts
from cleanerd.segments.metadata_image import BrokerRegistration, ClusterMetadata
from tests.cli.clean_log_dirs import Shell
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import encode_legacy, encode_wrapper, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

OLD = (
    encode_legacy(0, b"a", b"1", magic=0)
    + encode_wrapper(3, encode_legacy(0, b"a", b"2") + encode_legacy(1, b"b", b"1") + encode_legacy(2, b"c", b"1"))
    + keyed_batch(4, [("a", "3")])
)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, capsys, monkeypatch)


def magics(path: Path) -> list[int]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        found.append(data[at + 16])
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
    return found


@pytest.mark.parametrize(
    ("version", "expected", "words"),
    [
        pytest.param("3.9", [1, 2], "keep their format", id="3.9"),
        pytest.param("4.0", [2, 2], "become v2", id="4.0"),
        pytest.param("auto", [2, 2], "become v2", id="nothing is known"),
    ],
)
def test_cleaned(tmp_path: Path, shell: Shell, version: str, expected: list[int], words: str) -> None:
    """U-18: in the message format of its broker; the result shows the format, and the tombstones' rule of time."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: OLD, 5: b""})})
    answer = shell.clean(path, "--json", "--set", f"cleanerd.broker.version={version}")
    (entry,) = answer.json["partitions"]
    assert (answer.code, entry["outcome"], entry["records_kept"]) == (0, "cleaned", 3)
    assert magics(path / "orders-0" / f"{0:020d}.log") == expected
    (note,) = (note for note in entry["notes"] if "v0 or v1" in note)
    assert "2 batches" in note
    assert words in note
    assert "that of their segments' modification times" in note


def test_plan_is_exact(tmp_path: Path, shell: Shell) -> None:
    """An exact plan counts the messages in wrappers."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: OLD, 5: b""})})
    answer = shell("plan", path, "--exact", "--json", "--set", "topics.orders.cleanup.policy=compact", "--force")
    assert answer.code == 0
    (planned,) = answer.json["partitions"]
    assert (planned["exact"]["records"], planned["exact"]["kept"]) == (5, 3)
    assert "2 batches have message format v0 or v1" in planned["exact"]["notes"][0]


def test_explain(tmp_path: Path, shell: Shell) -> None:
    """R534-4: it shows how their tombstones expire, and does not mention it if there are none."""
    new = Partition({0: keyed_batch(0, [("a", "1")]), 1: b""})
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: OLD, 5: b""}), "orders-1": new})
    for partition, expected in (("orders-0", 1), ("orders-1", 0)):
        answer = shell("explain", partition, path, "--json", "--set", "topics.orders.cleanup.policy=compact")
        notes = [note for note in answer.json["notes"] if "v0 or v1" in note]
        assert len(notes) == expected
        assert all("1 segment begins" in note and "modification times" in note for note in notes)


def facts(*assignments: str, highest: int | None, node_id: int | None = 1) -> BrokerFacts:
    levels = {} if highest is None else {"metadata.version": (1, highest)}
    metadata = ClusterMetadata(
        topics={}, topic_configs={}, broker_default_configs={}, broker_configs={}, features={"metadata.version": 21},
        brokers={1: BrokerRegistration(1, uuid.UUID(int=1), 0, levels)}, as_of=0, as_of_ms=-1,
    )  # fmt: skip
    return BrokerFacts(metadata, node_id, None, load_settings((), assignments, {}))


def test_auto() -> None:
    """U-18: this broker's own registration, then the cluster's level; the setting precedes both."""
    assert facts(highest=27).resources().convert_legacy
    assert not facts(highest=21).resources().convert_legacy
    assert not facts(highest=None).resources().convert_legacy
    assert not facts(highest=27, node_id=None).resources().convert_legacy
    assert not facts("cleanerd.broker.version=3.9", highest=27).resources().convert_legacy
    assert facts(highest=27).resources().profile_origin == "the broker's registration in the cluster metadata"
    assert facts("cleanerd.broker.version=4.1", highest=21).resources().profile_origin == "setting"
