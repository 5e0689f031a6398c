"""Readers of whole logs, of other files beside them, and of cleanerd's files in them; for hostile bytes.

An input for one of several files begins with a byte that chooses the file. Inputs with checksums are read a second time
with right checksums: the hostile owner can compute them as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from typing import TYPE_CHECKING, Final
from uuid import UUID

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.broker import agent_transport
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import parse_header
from cleanerd.format.control import read_control
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.record import records_of
from cleanerd.format.snapshot import read_snapshot
from cleanerd.fsio import held_file
from cleanerd.inspection.kinds import UnknownFileError, decoder_of
from cleanerd.inspection.report import RowSelection
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.state import in_progress
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.gone_partitions import OtherPlacesOfTopic, delete_gone_state
from cleanerd.state.last_settings import LastSettings
from cleanerd.verify.partition import VerifyRequest, verify_partition
from tests.support.format_bytes import (
    BEGIN,
    END,
    config,
    control_batch,
    feature,
    metadata_batch,
    remove_topic,
    snapshot,
    topic,
)
from tests.torture.more_readers import writer

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.log_dir import LogDir
    from tests.torture.more_readers import Found

_LOG: Final = "00000000000000000000.log"
_NOW_MS: Final = 1_800_000_000_000


def _crc(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8))


def with_right_checksums(data: bytes) -> bytes:
    """``data`` as batches with right checksums, as far as batches can be recognized."""
    out, at = bytearray(data), 0
    while at + 21 < len(out):
        end = at + 12 + int.from_bytes(out[at + 8 : at + 12], "big")
        if not at + 21 < end <= len(out):
            break
        if out[at + 16] >= 2:
            out[at + 17 : at + 21] = _crc(bytes(out[at + 21 : end])).to_bytes(4, "big")
        else:
            out[at + 12 : at + 16] = zlib.crc32(bytes(out[at + 16 : end])).to_bytes(4, "big")
        at = end
    return bytes(out)


def formats(partition: Path) -> list[Found]:
    """Batches and messages record by record, and snapshots: with the given checksums, and with right ones."""
    segments = tuple(path.read_bytes() for path in sorted(partition.glob("*.log")))
    first = tuple(each[: 12 + int.from_bytes(each[8:12], "big")] for each in segments if each)
    old = tuple(_message(magic, codec) for magic, codec in ((0, 0), (1, 0), (1, 1), (0, 1)))
    controls = (control_batch(0, 3, b"\0\0" + bytes(8) + b"\0"), control_batch(5, 1, b"\0\0" + bytes(4)))
    snapshots = tuple(path.read_bytes() for path in partition.glob("*.snapshot"))

    def whole(data: bytes) -> None:
        right = with_right_checksums(data)
        header = parse_header(right)
        for each in records_of(right, limit_bytes=1 << 20):
            if header.is_control:
                read_control(each)
            with contextlib.suppress(CleanerdError):  # most of them are invalid
                read_metadata_record(each.value)

    def message(data: bytes) -> None:
        found = parse_message(with_right_checksums(data))
        records_of_message(found, limit_bytes=1 << 20)

    def producers(data: bytes) -> None:
        read_snapshot(data[:2] + _crc(data[6:]).to_bytes(4, "big") + data[6:], "x")

    return [
        ("batch with right checksums", (*first, *controls, metadata_batch(0, topic("a", UUID(int=1)))), whole),
        ("message of v0 or v1", old, message),
        ("producer snapshot with right checksums", snapshots, producers),
    ]


def _message(magic: int, codec: int) -> bytes:
    value = b"value" if codec == 0 else zlib.compress(_message(magic, 0), wbits=31)
    body = bytes([magic, codec]) + (bytes(8) if magic else b"") + (1).to_bytes(4, "big") + b"k"
    body += len(value).to_bytes(4, "big") + value
    framed = zlib.crc32(body).to_bytes(4, "big") + body
    return bytes(8) + len(framed).to_bytes(4, "big") + framed


def logs(root: Path, partition: Path) -> list[Found]:
    """The metadata log, ``verify`` of a partition, ``inspect`` of every kind of file."""
    root.mkdir()
    return [
        _metadata_log(root / "__cluster_metadata-0"),
        _verified(root / "orders-0", partition),
        _inspected(root, partition),
    ]


def _metadata_log(directory: Path) -> Found:
    directory.mkdir()
    names = (_LOG, "00000000000000000003-0000000001.checkpoint")
    put = [writer(directory / name) for name in names]
    one, two = UUID(int=1), UUID(int=2)
    log = metadata_batch(
        0, topic("a", one), config(2, "a", "cleanup.policy", "compact"), feature("metadata.version", 21)
    )
    log += metadata_batch(3, BEGIN, topic("b", two)) + metadata_batch(5, END, remove_topic(one))
    compact = snapshot(topic("c", two), config(4, "", "log.retention.ms", "5"))

    def read(data: bytes) -> None:
        which = data[0] % 2 if data else 0
        for path in names:
            (directory / path).unlink(missing_ok=True)
        put[0](log if which else with_right_checksums(data[1:]))
        if which:
            put[1](with_right_checksums(data[1:]))
        read_cluster_metadata(directory, only_before_ms=1500, younger=True)

    return "metadata log", (b"\0" + log, b"\1" + compact), read


def _verified(place: Path, partition: Path) -> Found:
    """Replace one file of a small partition with two segments and a snapshot; the other files stay."""
    shutil.copytree(partition, place, ignore=shutil.ignore_patterns(".*"))
    bases = sorted(path.stem for path in place.glob("*.log"))
    for path in place.iterdir():
        if path.stem in bases[:-2] or (path.suffix == ".snapshot" and path.stem != bases[-1]):
            path.unlink()
    names = sorted(path.name for path in place.iterdir() if path.is_file())
    was = {name: (place / name).read_bytes() for name in names}
    puts = {name: writer(place / name) for name in names}
    question = VerifyRequest(_NOW_MS, clean_shutdown=False)

    def read(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        changed = data[1:]
        if name.endswith(".log") and zlib.crc32(data) % 4:
            changed = with_right_checksums(changed)
        puts[name](changed)
        try:
            verify_partition(place, question).to_json()
        finally:
            puts[name](was[name])

    return "verify", tuple(bytes([at]) + was[name] for at, name in enumerate(names)), read


_INSPECTED: Final = (
    _LOG, "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex",
    "00000000000000000009.snapshot", "recovery-point-offset-checkpoint", "leader-epoch-checkpoint", "meta.properties",
    "partition.metadata", ".kafka_cleanshutdown", "quorum-state", "journal",
    "00000000000000000003-0000000001.checkpoint",
)  # fmt: skip


def _inspected(root: Path, partition: Path) -> Found:
    place = root / "inspect"
    place.mkdir()
    puts = [writer(place / name) for name in _INSPECTED]
    selection = RowSelection(records=True, limit=100)
    seeds = []
    for at, name in enumerate(_INSPECTED):
        near = [*partition.glob(f"*{name[name.rfind('.') :]}"), *partition.parent.glob(name), *partition.glob(name)]
        seeds += [bytes([at]) + path.read_bytes() for path in near[:2] if path.is_file()]
    seeds += [
        bytes([0]) + metadata_batch(0, topic("a", UUID(int=1))),
        bytes([0]) + _message(1, 1),
        bytes([9]) + b'{"version":1,"brokerEpoch":2}',
        bytes([10]) + b'{"leaderId":1,"appliedOffset":0,"votes":[{"voterId":1,"x_ms":5}]}',
        bytes([11]) + b"begin x 0 4 00000000\n",
        bytes([12]) + snapshot(topic("c", UUID(int=2))),
    ]

    def read(data: bytes) -> None:
        at = data[0] % len(_INSPECTED) if data else 0
        puts[at](with_right_checksums(data[1:]) if at in (0, 12) and zlib.crc32(data) % 2 else data[1:])
        path = place / _INSPECTED[at]
        try:
            found = decoder_of(path)(path, selection)
        except UnknownFileError:
            return
        json.dumps(found.as_json(), default=str)
        for table in found.tables:
            for row in table.rows:
                for column in table.columns:
                    column.text(row)

    return "inspect", tuple(seeds), read


def beside_logs(root: Path, log_dir: LogDir, state: bytes) -> list[Found]:
    """Small files of cleanerd in log directories and state directories. Unreadable ones must be ignored."""
    root.mkdir()
    store = StateStore(root)
    place = store.directory(log_dir)
    place.mkdir(parents=True)
    gone = place / "name-gone-0.json"
    put_gone, put_marker, put_holder = writer(gone), writer(root / "mark"), writer(root / "held")
    agent = root / ".agent"
    put_agent = writer(agent)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)

    def forget(data: bytes) -> None:
        put_gone(data)
        LastSettings(root).of_name("gone", None)
        delete_gone_state(StateStore(root), log_dir, OtherPlacesOfTopic((log_dir.path,)))

    def marker(data: bytes) -> None:
        put_marker(data)
        in_progress._read("mark", directory)

    def holder(data: bytes) -> None:
        put_holder(data)
        descriptor = os.open(root / "held", os.O_RDONLY)
        try:
            str(held_file._read(descriptor))
        finally:
            os.close(descriptor)

    def announced(data: bytes) -> None:
        put_agent(data)
        agent_transport._read(agent)

    announcement = {"cleanerd_agent": 1, "port": 4711, "secret": "0" * 64, "network": "net:[1]"}
    work = {"format": 1, "deaths": 1, "at_ms": 5, "boot_seconds": 1.5, "left": True}
    who = {"name": "cleanerd run", "pid": 5, "host": "h", "since_ms": 7}
    document = json.loads(state) | {"topic": "gone", "partition": 0, "rules": "other"}
    return [
        ("state of a deleted partition", (json.dumps(document).encode(),), forget),
        ("in-progress marker", (json.dumps(work).encode(),), marker),
        ("holder of a directory", (json.dumps(who).encode(),), holder),
        ("announcement of an agent", (json.dumps(announcement).encode(),), announced),
    ]
