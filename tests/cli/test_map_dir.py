"""``cleanerd.map.dir``: from the settings to the note, with the same bytes (U-43)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from cleanerd_lab.bench.generate import PARTITION, LogShape, make_log
from tests.cli.clean_log_dirs import make
from tests.cli.findings import findings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell

NOW_MS = 1_800_000_000_000
SMALL_MAP = ("log.cleaner.dedupe.buffer.size=1048577", "log.cleaner.io.buffer.load.factor=0.1")
"""Space for 6,500 keys."""


def test_the_same_bytes(root: Path, shell: Shell) -> None:
    """``clean`` reports where the offset map was, or why not on disk; the segments are the same."""
    shape = LogShape("", "", 128, 16, 0.3)
    log = make_log(root / "plain", shape, unpacked_bytes=4 << 20, segment_bytes=1 << 20)
    copies = [root / "in-file", root / "nowhere"]
    for copy in copies:
        shutil.copytree(log.log_dir, copy)

    def run(command: str, path: Path, *more: str) -> dict[str, object]:
        given = [*SMALL_MAP, f"topics.{PARTITION.topic}.cleanup.policy=compact", "cleanerd.disk.reserve=0", *more]
        options = [part for assignment in given for part in ("--set", assignment)]
        answer = shell(
            command, *options, "--now-ms", str(NOW_MS), "--json", *(["--yes"] if command == "clean" else []), path
        )
        assert answer.code == 0, answer.err
        (partition,) = json.loads(answer.out)["partitions"]
        return dict(partition)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        reported = run("clean", copies[0], f"cleanerd.map.dir={place}")
        assert reported["passes"] == 1
        assert any("the keys were written to disk in" in str(note) and place in str(note) for note in _notes(reported))
    failed = run("clean", copies[1], "cleanerd.map.dir=/dev/shm/")
    plain = run("clean", log.log_dir, "cleanerd.map.max.bytes=0")
    assert int(str(failed["passes"])) > 1
    why = "the keys were not written to disk in /dev/shm: tmpfs is memory itself"
    assert any(why in str(note) for note in _notes(failed))
    assert not any("written to disk" in str(note) for note in _notes(plain))
    for copy in copies:
        assert _segments(copy) == _segments(log.log_dir)


def _notes(partition: dict[str, object]) -> list[object]:
    notes = partition["notes"]
    assert isinstance(notes, list)
    return notes


def _segments(log_dir: Path) -> dict[str, bytes]:
    path = log_dir / str(PARTITION)
    return {name: (path / name).read_bytes() for name in os.listdir(path) if name.endswith((".log", "index"))}


def test_unsuitable_directories_for_on_disk_maps(root: Path, shell: Shell) -> None:
    """U-43: a warning if it is on the log directory's own disk; a missing directory is an invalid setting."""
    path = make(root)
    (root / "maps").mkdir()
    assert findings(shell("doctor", path, "--json"), "keys on disk") == []
    answer = shell("doctor", path, "--json", "--set", f"cleanerd.map.dir={root / 'maps'}")
    assert [level for level, _ in findings(answer, "keys on disk")] == ["warning"]
    missing = shell("doctor", path, "--json", "--set", f"cleanerd.map.dir={root / 'nowhere'}")
    assert findings(missing, "settings")[0] == ("problem", f"cleanerd.map.dir: {root / 'nowhere'} does not exist")
