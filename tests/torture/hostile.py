"""Hostile bytes for every reader written in Python: files of Kafka and cleanerd, requests and responses.

    python -m tests.torture.hostile                                    a million inputs each; --reader NAME for one
    python -m tests.torture.hostile --reader manifest --number 17           repeat one input

A reader returns a value or raises a :class:`CleanerdError` (or OSError, if its contract says so). Any other exception
is a bug, as is more than a second of CPU time or a gibibyte of memory. The kernel has ``make fuzz``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zlib
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import structlog

from cleanerd.broker import agent_facts
from cleanerd.broker.agent_client import AgentClient
from cleanerd.cleaner.manifest import Manifest
from cleanerd.cleaner.result import CleaningResult
from cleanerd.daemon.control import ControlServer, Peer
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import parse_header
from cleanerd.format.checkpoint import read_epoch_checkpoint, read_offset_checkpoint
from cleanerd.format.index import read_offset_index, read_time_index, read_txn_index
from cleanerd.format.meta import read_meta_properties, read_partition_metadata
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.format.properties import read_properties
from cleanerd.format.record import records_of
from cleanerd.format.snapshot import read_snapshot
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.state.delegations import Delegations
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.journal import Journal
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.ready_file import ReadyFile
from cleanerd.swap.restore import RestorePlan
from tests.support.fake_agent import FakeAgent
from tests.support.format_bytes import topic as topic_record
from tests.torture import log_readers, outside_readers, spark_readers
from tests.torture.http_reader import http
from tests.torture.jobs import JOBS, NAME, Workspace, impatient, make
from tests.torture.more_readers import kept_by_the_daemon, settings, writer
from tests.torture.mutate import Mutator

if TYPE_CHECKING:
    import socket
    import uuid
    from collections.abc import Callable, Iterator, Sequence

    from tests.torture.more_readers import Found

SLOW_SECONDS: Final = 1.0
"""CPU time, because a busy machine is not a failure."""
MEMORY_BYTES: Final = 1 << 30
PLAN_ID: Final = "20261122t000000-0123abcd"


@dataclass(frozen=True, slots=True)
class Reader:
    """``read`` gets bytes made from one of ``seeds``."""

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], object]


@contextmanager
def readers() -> Iterator[dict[str, Reader]]:
    """All readers by name, with seeds from a cleaned and from a staged log directory."""
    memory = Path("/dev/shm")  # noqa: S108
    root = Path(tempfile.mkdtemp(prefix="cleanerd-hostile-", dir=memory if memory.is_dir() else None))
    configured = structlog.get_config()
    try:
        staged, cleaned = Workspace(root / "staged"), Workspace(root / "cleaned")
        with impatient(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            for workspace, job in ((staged, "stage"), (cleaned, "clean-keep")):
                make(workspace)
                JOBS[job].work(workspace)
        found = [*_kafkas(staged), *_ours(staged, cleaned, root), *_spoken(staged)]
        found += [
            Reader(*each) for each in (*settings(root, read_log_dir(staged.logs)), *kept_by_the_daemon(root / "daemon"))
        ]
        found += [Reader(*each) for each in _further(staged, cleaned, root)]
        with http() as requested:
            found.append(Reader(*requested))
            # Some log a line per input; the jobs that made the seeds have configured logging too.
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
            yield {reader.name: reader for reader in found}
    finally:
        structlog.configure(**configured)
        shutil.rmtree(root)


def _kafkas(workspace: Workspace) -> list[Reader]:
    def seeds(pattern: str) -> tuple[bytes, ...]:
        return tuple(path.read_bytes() for path in sorted(workspace.logs.rglob(pattern)))

    def header(data: bytes) -> None:
        parse_header(data, 0)
        list(records_of(data, limit_bytes=1 << 20))

    record = topic_record("orders", cast("uuid.UUID", SimpleNamespace(bytes=b"\1" * 16)))
    return [
        Reader("offset checkpoint", seeds("*-checkpoint"), lambda data: read_offset_checkpoint(data, "x")),
        Reader("epoch checkpoint", seeds("leader-epoch-checkpoint"), lambda data: read_epoch_checkpoint(data, "x")),
        Reader("offset index", seeds("*.index"), read_offset_index),
        Reader("time index", seeds("*.timeindex"), read_time_index),
        Reader("transaction index", seeds("*.txnindex"), read_txn_index),
        Reader("producer snapshot", seeds("*.snapshot"), lambda data: read_snapshot(data, "x")),
        Reader("meta.properties", seeds("meta.properties"), lambda data: read_meta_properties(data, "x")),
        Reader("partition.metadata", seeds("partition.metadata"), lambda data: read_partition_metadata(data, "x")),
        Reader("properties", (b"a=b\\\n c\n!x\nk\\u0041 : v\n", *seeds("meta.properties")), read_properties),
        Reader("metadata record", (record,), read_metadata_record),
        Reader("batch", tuple(each[: 12 + int.from_bytes(each[8:12], "big")] for each in seeds("*.log")), header),
    ]


def _ours(staged: Workspace, cleaned: Workspace, root: Path) -> list[Reader]:
    (plan,) = (staged.partition / ".kstage").iterdir()
    log_dir = read_log_dir(cleaned.logs)
    name = parse_topic_partition_dir(NAME)
    assert name is not None
    log = read_partition(log_dir, name)
    store = StateStore(cleaned.root / "state")
    state, (entry_file,) = store.path(log_dir, log), (cleaned.root / "state" / "trash").iterdir()
    words = [f"{word} {PLAN_ID} {base} {end}" for word in ("begin", "done") for base, end in ((0, 14), (15, 19))]
    journal = b"".join(line + b" %08x\n" % zlib.crc32(line) for line in map(str.encode, words))
    scratch = root / "scratch"
    place = scratch / ".kstage" / PLAN_ID / "journal"
    place.parent.mkdir(parents=True)
    put = writer(place)

    def from_file(path: Path, read: Callable[[], object]) -> Callable[[bytes], object]:
        path.parent.mkdir(parents=True, exist_ok=True)
        put = writer(path)

        def reader(data: bytes) -> object:
            put(data)
            return read()

        return reader

    def entries() -> object:
        with PartitionFiles(scratch) as files:
            return Journal(files, PLAN_ID).entries()

    def signed(data: bytes) -> object:
        # a hostile owner can compute checksums as well
        lines = (line.rpartition(b" ")[0] for line in data.split(b"\n"))
        put(b"".join(line + b" %08x\n" % zlib.crc32(line) for line in lines))
        return entries()

    def shown(data: bytes) -> object:
        result = ReadyFile.from_json(data, "x").result
        try:
            reported = CleaningResult.from_json(name, result)
        except (KeyError, TypeError, ValueError):
            return None
        return reported.to_json(), reported.removed.total, reported.bytes_before - reported.bytes_after

    restore = {
        "format": 1,
        "plan": PLAN_ID,
        "groups": [{"base": 0, "end": 14, "segments": [{"base": 0, "files": {"log": {"bytes": 1, "crc32c": 2}}}]}],
    }
    change = {"before": None, "effective": "0.5", "after": "1.0"}
    one = {"cluster_id": "c", "topic": "orders", "topic_id": "i", "delegated_ms": 1, "changes": {"a": change}}
    saved = json.dumps({"format": 1, "delegations": [one]}).encode()
    return [
        Reader("manifest", ((plan / "manifest.json").read_bytes(),), lambda data: Manifest.from_json(data, "x")),
        Reader("ready", ((plan / "ready.json").read_bytes(),), lambda data: ReadyFile.from_json(data, "x")),
        Reader("restore plan", (json.dumps(restore).encode(),), lambda data: RestorePlan.from_json(data, "x")),
        Reader("staged result", ((plan / "ready.json").read_bytes(),), shown),
        Reader("journal", (journal,), from_file(place, entries)),
        Reader("journal with right checksums", (journal,), signed),
        Reader("state", (state.read_bytes(),), from_file(state, lambda: StateStore(store.root).load(log_dir, log))),
        Reader("trash", (entry_file.read_bytes(),), from_file(entry_file, lambda: KeptSegments(store.root).entries())),
        Reader(
            "delegations",
            (saved,),
            from_file(root / "delegations" / "delegations.json", lambda: Delegations(root / "delegations").load()),
        ),
    ]


def _further(staged: Workspace, cleaned: Workspace, root: Path) -> Iterator[Found]:
    """The readers of the other modules."""
    log_dir = read_log_dir(staged.logs)
    (trash,) = (cleaned.root / "state" / "trash").glob("*.json")
    (state,) = (cleaned.root / "state" / "partitions").glob("*/*.json")
    yield from outside_readers.words_and_stores(root)
    yield from outside_readers.reported_by_hosts(root / "host")
    yield from outside_readers.reported_by_daemons(root / "daemons")
    yield from log_readers.formats(staged.partition)
    yield from log_readers.logs(root / "logs", staged.partition)
    yield from log_readers.beside_logs(root / "beside", log_dir, state.read_bytes())
    yield from spark_readers.values()
    yield from spark_readers.around_tables(root / "spark", staged.partition, trash.read_bytes())


def _spoken(workspace: Workspace) -> list[Reader]:
    """Messages on sockets: from an agent, and to the daemon."""
    agent = FakeAgent(workspace.logs, workspace.logs / "none.sock")
    request = {"topic": "orders", "partition": 0}

    def requested(ask: Callable[[Any], object]) -> Callable[[bytes], object]:
        def read(data: bytes) -> object:
            left = [b'{"id":1,"ok":true,"result":', data, b"}\n"]
            connection = SimpleNamespace(
                settimeout=lambda _seconds: None,
                sendall=lambda _line: None,
                recv=lambda _most: left.pop(0) if left else b"",
                close=lambda: None,
            )
            return ask(AgentClient(cast("socket.socket", connection), "/x", 30.0))

        return read

    async def refuse(_request: dict[str, Any]) -> dict[str, Any]:
        return {}

    server = ControlServer(Path("/x"), dict.fromkeys(("status", "trigger"), refuse))

    def control(data: bytes) -> None:
        # it never waits, so no event loop is needed
        try:
            server._answer(data, Peer(0, 1)).send(None)
        except StopIteration as ended:
            answer = ended.value
        else:
            raise AssertionError("it waits for something")
        if "unexpected" in str(answer.get("error")):
            raise AssertionError(answer)

    orders = parse_topic_partition_dir(NAME)
    assert orders is not None
    return [
        Reader("agent's info", (_json(agent.do_info({})),), requested(agent_facts.fetch_info)),
        Reader("agent's logs", (_json(agent.do_logs({})),), requested(agent_facts.fetch_logs)),
        Reader(
            "agent's log", (_json(agent.do_log(request)),), requested(lambda asks: agent_facts.fetch_log(asks, orders))
        ),
        Reader("control request", (b'{"op":"status"}', b'{"op":"trigger","partition":"a-0"}'), control),
    ]


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


class TooSlowError(BaseException):
    """Not an Exception, so that a reader cannot catch it."""


def _late(_number: int, _frame: object) -> None:
    raise TooSlowError


def play(reader: Reader, seed: int, number: int) -> str:
    """Read input ``number``: "" if all is well, otherwise the problem."""
    return play_bytes(reader, _mutator(reader.seeds).next(random.Random(f"{seed} {reader.name} {number}")))


@cache
def _mutator(seeds: tuple[bytes, ...]) -> Mutator:
    return Mutator(seeds)


def play_bytes(reader: Reader, data: bytes) -> str:
    """The same for these bytes."""
    signal.setitimer(signal.ITIMER_PROF, SLOW_SECONDS)
    try:
        return outcome(reader, data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def outcome(reader: Reader, data: bytes) -> str:
    """The same, with the time limit of another clock."""
    try:
        reader.read(data)
    except CleanerdError:
        return ""
    except (TooSlowError, MemoryError) as error:
        return f"{type(error).__name__} on {data[:200]!r}"
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{type(error).__name__}: {error} on {data[:400]!r}"
    return ""


def again(reader: str, seed: int, number: int) -> str:
    """The command that repeats it."""
    return f".venv/bin/python -m tests.torture.hostile --reader {reader!r} --seed {seed} --number {number}"


@contextmanager
def limits() -> Iterator[None]:
    """Limits for one input."""
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, _late)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, handler)


def main(arguments: Sequence[str]) -> int:
    """Read one input, or the requested number for each reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=-1)
    parser.add_argument("--count", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    bad = 0
    with readers() as known, limits():
        for name in options.reader or known:
            began = time.monotonic()
            numbers = [options.number] if options.number >= 0 else range(options.count)
            wrong = [(number, reported) for number in numbers if (reported := play(known[name], options.seed, number))]
            for number, reported in wrong[:3]:
                sys.stdout.write(f"{again(name, options.seed, number)}\n  {reported}\n")
            bad += len(wrong)
            sys.stdout.write(f"{name}: {len(numbers)} inputs, {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
    return int(bad > 0)


if __name__ == "__main__":
    np.seterr(all="raise")
    sys.exit(main(sys.argv[1:]))
