"""Archives of several partitions, cleaned copies of them, and the results of ``cleanerd clean`` on the same files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.cli.main import run
from cleanerd.spark.archive.target import MANIFEST
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TOPICS: Final[dict[str, tuple[dict[str, Any], dict[str, str]]]] = {
    "offset-0": ({"seed": 1}, {}),
    "offset-1": ({"seed": 2, "codec": 4}, {}),
    "transactions-0": ({"seed": 3, "transactions": True}, {}),
    "transactions-1": ({"seed": 4, "transactions": True, "codec": 1}, {"segment.bytes": "4000"}),
    "old-0": ({"seed": 5, "legacy": True}, {"delete.retention.ms": "100"}),
    "version-0": (
        {"seed": 6, "transactions": True, "keys": 200},
        {"compaction.strategy": "header", "compaction.strategy.header": "version", "delete.retention.ms": "100"},
    ),
    "time-0": ({"seed": 7, "codec": 3}, {"compaction.strategy": "timestamp"}),
    "flag-0": ({"seed": 8, "codec": 2}, {"tombstone.mode": "flag"}),
}
"""Partitions, the kinds of their logs, and the keys of their topics."""


def partition_of(*, segments: int = 4, batches: int = 20, scratch: Path, **kind: Any) -> Partition:
    """The partition's contents by :data:`TOPICS`."""
    rich = RichLog(**kind)
    rich.write(scratch, segments, batches)
    shutil.rmtree(scratch)
    snapshots = {max(rich.segments): list(rich.last.values())} if rich.last else {}
    return Partition(
        rich.segments, aborted=rich.aborted, snapshots=snapshots, index_interval_bytes=300, mtime_ms=NOW_MS - 10_000
    )


def make_archive(path: Path, *names: str, clean_shutdown: bool = True, **size: int) -> Path:
    """A log directory of all :data:`TOPICS`, or of the named ones."""
    made = {name: partition_of(scratch=path.parent / "scratch", **size, **TOPICS[name][0]) for name in names or TOPICS}
    return make_log_dir(path, made, clean_shutdown=clean_shutdown)


def make_tiny(path: Path, count: int) -> Path:
    """A log directory of ``count`` partitions with three segments of one record each."""
    batches = {
        base: encode_batch([Record(key=b"key", value=b"value-%d" % base)], base_offset=base) for base in (0, 1, 2)
    }
    return make_log_dir(path, {f"offset-{number}": Partition(batches) for number in range(count)})


def settings(state: Path) -> list[str]:
    """Settings of the topics that no directory has."""
    keys = {
        f"topics.{name.rpartition('-')[0]}.{key}": value
        for name, (_, topic) in TOPICS.items()
        for key, value in {"cleanup.policy": "compact", **topic}.items()
    }
    values = {
        **keys, "cleanerd.state.dir": str(state), "cleanerd.disk.reserve": "0", "cleanerd.delegation": "assumed",
    }  # fmt: skip
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


CLEAN: Final = ("--force", "--from-start", "--now-ms", str(NOW_MS), "--json")


def archived(
    capsys: pytest.CaptureFixture[str], source: object, output: object, state: Path, *more: str
) -> tuple[int, Any, str]:
    """Exit code, document and messages of ``spark clean --output``, in this process."""
    sources = [str(each) for each in (source if isinstance(source, list) else [source])]
    words = ["spark", "clean", *sources, "--output", str(output), *CLEAN, *settings(state), *more]
    capsys.readouterr()
    code = run(words)
    reported = capsys.readouterr()
    return code, json.loads(reported.out) if reported.out.startswith("{") else None, reported.err


def cleaned_locally(capsys: pytest.CaptureFixture[str], source: Path, *more: str) -> dict[str, bytes]:
    """The files by name after ``cleanerd clean`` on a copy of a directory."""
    copy = source.parent / "local" / source.name
    shutil.copytree(source, copy, copy_function=shutil.copy2)
    run(["clean", str(copy), "--yes", *CLEAN, *settings(source.parent / "local-state"), *more])
    capsys.readouterr()
    found = files_of(copy)
    shutil.rmtree(copy)
    return found


def files_of(path: Path) -> dict[str, bytes]:
    """All files below a directory except locks, by name."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name not in (".lock", "lock")
    }


def manifest_of(output: Path) -> Any:
    """The manifest of an archive on disk, after a check of all files in it."""
    document = json.loads((output / MANIFEST).read_text())
    listed = set()
    for one in document["log_dirs"]:
        lists = [(one["path"], one["files"]), *((part["path"], part["files"]) for part in one["partitions"])]
        for place, files in lists:
            for file in files:
                data = (output / place / file["name"]).read_bytes()
                assert len(data) == file["size_bytes"]
                assert f"{_kernel.crc32c(np.frombuffer(data, np.uint8)):08x}" == file["crc32c"]
                listed.add(f"{place}/{file['name']}")
    assert listed == {str(each.relative_to(output)) for each in output.rglob("*") if each.is_file()} - {MANIFEST}
    return document


def cleaned_dir(output: Path, name: str = "data") -> Path:
    """The log directory ``name`` of a finished archive."""
    (one,) = [each for each in json.loads((output / MANIFEST).read_text())["log_dirs"] if each["path"].endswith(name)]
    return output / one["path"]


def only_cleaned_dir(output: Path) -> Path:
    (one,) = manifest_of(output)["log_dirs"]
    return output / one["path"]
