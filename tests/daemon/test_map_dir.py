"""``cleanerd.map.dir`` in a daemon: from a reload of the settings to the operator's view (U-43)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from cleanerd.format.names import TopicPartition
from cleanerd_lab.bench.generate import LogShape, make_log, write_broker_files
from tests.daemon.process import Daemon
from tests.daemon.service import assignments
from tests.support.fake_agent import FakeAgent
from tests.swap.live_round import held

pytestmark = pytest.mark.long

# Space for 6,500 keys.
SMALL_MAP = '"log.cleaner.dedupe.buffer.size" = 1048577\n"log.cleaner.io.buffer.load.factor" = 0.1\n'
CONFIG = f'"cleanerd.map.max.bytes" = 0\n{SMALL_MAP}'


def test_a_reload_turns_it_on(root: Path) -> None:
    """Keys that do not fit take several passes, which are counted; with a file allowed by a reload one is enough."""
    log = make_log(root / "made", LogShape("", "", 128, 16, 0.3), unpacked_bytes=4 << 20, segment_bytes=1 << 20)
    logs = root / "logs"
    logs.mkdir()
    names = [TopicPartition(topic, 0) for topic in ("before", "after")]
    for name in names:
        shutil.copytree(log.partition_dir, logs / str(name))
    write_broker_files(logs, dict.fromkeys(names, log.records))
    config = root / "cleanerd.toml"
    config.write_text(f'{CONFIG}"cleanerd.topics.include" = "before"\n')
    with (
        held(logs),
        FakeAgent(logs, logs / ".cleanerd-agent.sock"),
        tempfile.TemporaryDirectory(dir="/var/tmp") as place,
        Daemon(assignments(logs), root, config=config) as daemon,
    ):
        view = daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 1)
        passes = view["totals"]["key_passes"]
        assert passes > 1
        assert view["history"][0]["result"]["passes"] == passes
        config.write_text(f'{SMALL_MAP}"cleanerd.map.dir" = "{place}"\n')
        assert "cleanerd.map.dir" in daemon.ask("reload")["changed"]
        view = daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 2)
        assert view["totals"]["key_passes"] == passes + 1
        (reported,) = [note for note in view["history"][0]["result"]["notes"] if "written to disk" in note]
        assert reported.startswith("the keys were written to disk in ")
        assert place in reported
        assert not list(Path(place).iterdir())
