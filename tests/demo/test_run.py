"""``cleanerd demo`` from end to end, and its end when it cannot start or is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.judge import KafkaJars, fetch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def jars() -> KafkaJars:
    return fetch("4.3")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path: the live part has sockets in it, whose addresses are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="demo-") as path:
        yield Path(path)


def _start(arguments: list[str], temporary: Path, *, own_group: bool = False) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT)}
    environment.pop("KAFKA_LIBS", None)
    return subprocess.Popen(
        [sys.executable, "-m", "cleanerd", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=temporary,
        start_new_session=own_group,
    )


def _java_in(directory: Path) -> list[int]:
    """Brokers and daemons whose command line names ``directory``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if (b"java" in command or b"cleanerd\0run" in command) and os.fsencode(directory) in command:
                found.append(int(process.name))
    return found


@pytest.mark.long
@pytest.mark.broker
def test_small_from_end_to_end(jars: KafkaJars, tmp_path: Path) -> None:
    """Every codec is cleaned, both clients read the acknowledged records, Kafka's cleaner leaves the same records.

    By versions Kafka's cleaner keeps wrong ones, cleanerd none (KIP-280), and LatestState predicted it (R280-14).
    """
    demo = _start(["--only", "offline", "--records", "24000", "--json", "--kafka-libs", str(jars.libs)], tmp_path)
    stdout, stderr = demo.communicate(timeout=850)
    assert demo.returncode == 0, stderr
    result = json.loads(stdout)
    assert result["schema"] == 1
    assert result["good"] is True
    assert [topic["codec"] for topic in result["topics"]] == ["none", "gzip", "snappy", "lz4", "zstd"]
    for topic in result["topics"]:
        assert topic["acknowledged"] == 4000
        assert topic["deletes"] > 0
        assert topic["cleaned"]["removed"]["superseded"] > 2000
        assert topic["same_records_as_kafka"] is True
    assert {reading["client"] for reading in result["readings"]} == {"confluent-kafka", "kafka-python"}
    assert result["once_more"] == {"written": 500, "read_back": 500}
    assert result["kafka"]["cpu_seconds"] > 0
    _check_strategies(result["strategies"])
    assert result["dataframe"]["good"] is True
    assert result["dataframe"]["records"] > result["dataframe"]["keys"] > 100
    assert result["returned"] == [
        {"topic": "cleaned-by-kafka", "deleted": False},
        {"topic": "cleaned-by-cleanerd", "deleted": True},
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long  # how much it does within its seconds depends on the machine
@pytest.mark.broker
def test_the_live_part(jars: KafkaJars, place: Path) -> None:
    """The daemon cleans under load, the broker swaps, no client notices, every key is right, nothing is left."""
    arguments = ["--only", "live", "--seconds", "12", "--json", "--kafka-libs", str(jars.libs)]
    demo = _start(arguments, place)
    stdout, stderr = demo.communicate(timeout=850)
    assert demo.returncode == 0, stderr
    result = json.loads(stdout)["live"]
    assert result["good"] is True
    assert result["cleanings"] >= 6
    assert result["swaps"] >= 6
    assert result["client_errors"] == []
    assert result["readings"] > 3
    by_offset, by_version = result["topics"]
    assert (by_offset["strategy"], by_version["strategy"]) == ("offset", "header")
    for topic in (by_offset, by_version):
        assert topic["acknowledged"] > 10_000
        assert topic["left"] == topic["keys"]
        assert set(topic["wrong"].values()) == {0}
    # Without versions the order of arrival decides: the effect is visible.
    assert set(by_offset["uncleaned"].values()) == {0}
    assert sum(by_version["uncleaned"].values()) > 10
    assert list(place.iterdir()) == []


@pytest.mark.long
@pytest.mark.broker
def test_stay_until_ctrl_c(jars: KafkaJars, place: Path) -> None:
    """A terminal sends it to the whole group: broker and daemon must ignore it."""
    arguments = ["--only", "live", "--seconds", "5", "--stay", "--kafka-libs", str(jars.libs)]
    demo = _start(arguments, place, own_group=True)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "Ctrl-C ends it" in line:
            break
    time.sleep(1)
    os.killpg(demo.pid, signal.SIGINT)
    stdout, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 0, stderr
    assert "Everything is as it should be" in stdout
    assert list(place.iterdir()) == []


def _check_strategies(result: dict[str, Any]) -> None:
    assert result["delegated"]["min.cleanable.dirty.ratio"] == "1"
    race = result["race"]
    assert race["records"] == 4001
    assert min(race[name] for name in ("out_of_order", "equal", "without_version", "deleted_keys")) > 0
    assert result["cleaned"]["strategy"] == "header"
    wrong = {(view["log"], view["reader"]): view["wrong_keys"] for view in result["views"]}
    by_kafka = wrong.pop(("cleaned by Kafka", "plain consumer"))
    assert by_kafka > 10
    assert wrong == {
        ("not cleaned", "plain consumer"): by_kafka,
        ("not cleaned", "LatestState"): 0,
        ("cleaned by cleanerd", "plain consumer"): 0,
    }
    assert result["as_latest_state_said"] is True
    later = result["a_day_later"]
    assert later["wrong_keys"] == 0
    assert later["tombstones_gone"] > 0
    assert later["tombstones_gone"] + later["tombstones_waiting"] == later["tombstones_before"]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.parametrize(
    ("signal_number", "arguments", "log"),
    [
        (signal.SIGINT, ["--only", "offline", "--records", "3000000"], "cleanerd-demo-*/broker/d1/orders-none-0/*.log"),
        (signal.SIGTERM, ["--seconds", "600"], "cleanerd-demo-*/live/cleanerd.segments"),
    ],
    ids=["offline", "live"],
)
def test_interrupted_it_leaves_no_process_and_no_file(
    jars: KafkaJars, place: Path, signal_number: signal.Signals, arguments: list[str], log: str
) -> None:
    demo = _start([*arguments, "--kafka-libs", str(jars.libs)], place)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(place.glob(log)):
        assert time.monotonic() < deadline
        assert demo.poll() is None
        time.sleep(0.1)
    assert _java_in(place)
    demo.send_signal(signal_number)
    demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 128 + signal_number
    assert _java_in(place) == []
    assert list(place.iterdir()) == []


def test_without_jars_exit_code_3_and_a_way_out(tmp_path: Path) -> None:
    demo = _start(["--kafka-libs", str(tmp_path)], tmp_path)
    _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 3
    assert "make setup" in stderr


@pytest.mark.long
def test_too_long_a_path_for_a_socket_is_reported_at_once(jars: KafkaJars, tmp_path: Path) -> None:
    keep = tmp_path / ("long" * 20)
    demo = _start(["--kafka-libs", str(jars.libs), "--keep", str(keep)], tmp_path)
    _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 3
    assert "too long" in stderr


@pytest.mark.long
def test_keep_refuses_a_directory_that_is_not_empty(jars: KafkaJars, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "mine").touch()
    demo = _start(["--kafka-libs", str(jars.libs), "--keep", str(keep)], tmp_path)
    _, stderr = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 3
    assert "not an empty directory" in stderr
    assert [path.name for path in keep.iterdir()] == ["mine"]
