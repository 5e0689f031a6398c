"""The manifest: every key of the format; invalid names and numbers are refused."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd import __version__
from cleanerd.cleaner.manifest import (
    PLAN_ID,
    FileFact,
    Manifest,
    ManifestGroup,
    staged_name,
    staging_path,
    write_manifest,
)
from cleanerd.errors import CleanerdError, CorruptionError, UnsupportedLogError
from cleanerd.segments.segment import BatchWitness, Witness

if TYPE_CHECKING:
    from pathlib import Path

PLAN = "20261121t001400-0123abcd"


def manifest() -> Manifest:
    witnesses = (
        Witness(0, 64, 1001, 500, 10**18 + 1, 10**18 + 2, BatchWitness(3, 0xFFFFFFFF), BatchWitness(9, 1)),
        Witness(10, 64, 1002, 0, 5, 6, None, None),
        Witness(20, 64, 1003, 700, 5, 6, BatchWitness(20, 7), BatchWitness(29, 8)),
    )
    three = {"log": FileFact(400, 0xE3069283), "index": FileFact(8, 5), "timeindex": FileFact(12, 6)}
    groups = (
        ManifestGroup(0, 20, (0, 10), {**three, "txnindex": FileFact(34, 7)}),  # type: ignore[dict-item]
        ManifestGroup(20, 30, (20,), three),  # type: ignore[arg-type]
    )
    return Manifest(
        plan=PLAN,
        topic="orders.v1",
        topic_id=uuid.UUID(int=5),
        partition=3,
        directory_id=uuid.UUID(int=6),
        log_start_offset=2,
        bound=40,
        strategy_fingerprint="offset/null",
        created_ms=1_000,
        max_age_ms=2_000,
        witnesses=witnesses,
        groups=groups,
    )


def test_a_manifest_reads_back_as_written() -> None:
    """Round trip, absent identities included."""
    for each in (manifest(), replace(manifest(), topic_id=None, directory_id=None, groups=())):
        assert Manifest.from_json(each.to_json(), "x") == each


def test_the_keys_are_those_of_the_format() -> None:
    """Others read it, the agent too: each key, in order, and the version of cleanerd."""
    body = json.loads(manifest().to_json())
    assert list(body) == [
        "format",
        "cleanerd",
        "plan",
        "topic",
        "topic_id",
        "partition",
        "directory_id",
        "log_start_offset",
        "bound",
        "strategy_fingerprint",
        "created_ms",
        "max_age_ms",
        "witnesses",
        "groups",
        "aborted",
    ]
    assert body["format"] == 1
    assert body["cleanerd"] == __version__
    assert body["topic_id"] == "00000000-0000-0000-0000-000000000005"
    assert list(body["witnesses"][0]) == [
        "base",
        "dev",
        "inode",
        "size",
        "mtime_ns",
        "ctime_ns",
        "first_batch",
        "last_batch",
    ]
    assert body["witnesses"][0]["first_batch"] == {"offset": 3, "crc": 0xFFFFFFFF}
    assert body["groups"][1] == {
        "base": 20,
        "end": 30,
        "sources": [20],
        "files": {
            "log": {"bytes": 400, "crc32c": 0xE3069283},
            "index": {"bytes": 8, "crc32c": 5},
            "timeindex": {"bytes": 12, "crc32c": 6},
        },
    }


def changed(path: str, value: Any) -> bytes:
    body = json.loads(manifest().to_json())
    place = body
    *parts, last = path.split(".")
    for part in parts:
        place = place[int(part) if part.isdigit() else part]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(body).encode()


def test_a_newer_format_is_refused() -> None:
    """A reader refuses a higher format, even when the rest of it is invalid."""
    for data in (changed("format", 2), b'{"format": 9, "groups": "elsewhere"}'):
        with pytest.raises(UnsupportedLogError, match=r"format [29]"):
            Manifest.from_json(data, "x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b"[" * 100_000,
        changed("format", 0),
        changed("format", True),
        changed("format", "1"),
        changed("plan", "../../etc"),
        changed("plan", "20261121T001400-0123ABCD"),
        changed("topic_id", "short"),
        changed("topic_id", 5),
        changed("partition", -1),
        changed("bound", "40"),
        changed("bound", 29),
        changed("bound", 2**63),
        changed("created_ms", None),
        changed("surprise", 1),
        changed("witnesses.0.base", None),
        changed("witnesses.0.base", 10),
        changed("witnesses.2.base", 25),
        changed("groups.0.base", 1),
        changed("groups.0.end", 10),
        changed("groups.0.end", 21),
        changed("groups.0.sources", []),
        changed("groups.0.sources", [0, 0]),
        changed("groups.0.sources.1", 11),
        changed("groups.0.files.log", None),
        changed("groups.0.files.timeindex", None),
        changed("groups.0.files.snapshot", {"bytes": 1, "crc32c": 1}),
        changed("groups.0.files.log.bytes", -1),
        changed("groups.0.files.log.bytes", 1.5),
        changed("groups.0.files.log.crc32c", 2**32),
        changed("groups.0.files.log.crc32c", "5"),
        changed("groups.1.surprise", 1),
    ],
    ids=lambda data: data.decode("utf-8", "replace")[:30].replace("\n", " ") if len(data) < 200 else None,
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    """Never a traceback, never a name that leads elsewhere; a group has the base of its first source (S-07)."""
    with pytest.raises(CorruptionError) as caught:
        Manifest.from_json(data, "some/manifest.json")
    assert caught.value.where == "some/manifest.json"


def test_written_to_a_directory_and_read_back(tmp_path: Path) -> None:
    """The second manifest replaces the first, nothing else is left."""
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        write_manifest(directory, replace(manifest(), groups=manifest().groups[:1]))
        write_manifest(directory, manifest())
        assert Manifest.from_json((tmp_path / "manifest.json").read_bytes(), "x") == manifest()
        assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    finally:
        os.close(directory)


def test_writer_and_reader_have_the_same_size_limit(tmp_path: Path) -> None:
    """U-35: a planted one of 250 MB took 2 GiB in every scan of the partition; larger ones are not written either."""
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        write_manifest(directory, manifest())
        too_few = len(manifest().to_json()) - 1
        with pytest.raises(CorruptionError, match="bytes are more than a manifest has"):
            Manifest.from_json(manifest().to_json(), "x", max_bytes=too_few)
        with pytest.raises(UnsupportedLogError, match="3 segments are more than a plan can name"):
            write_manifest(directory, manifest(), max_bytes=too_few)
    finally:
        os.close(directory)


def test_the_old_manifest_stays_when_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    """Tmp + fsync + rename: a name that cannot be written to leaves the old one alone."""
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        write_manifest(directory, manifest())
        (tmp_path / "manifest.json.tmp").mkdir()
        with pytest.raises(CleanerdError, match="cannot be written"):
            write_manifest(directory, replace(manifest(), groups=()), where="p/manifest.json")
        assert Manifest.from_json((tmp_path / "manifest.json").read_bytes(), "x") == manifest()
    finally:
        os.close(directory)


def test_plan_ids_and_names() -> None:
    """YYYYMMDDThhmmss- and 8 hex digits, lower case; no other text ever becomes a path."""
    assert PLAN_ID.fullmatch(PLAN)
    assert staging_path(PLAN) == f".kstage/{PLAN}"
    assert staged_name(PLAN, 20, "txnindex") == f".kstage/{PLAN}/00000000000000000020.txnindex"
    for wrong in ("", "..", f"{PLAN}/..", f"{PLAN}\n", PLAN.upper()):
        with pytest.raises(ValueError, match="not a plan id"):
            staging_path(wrong)
