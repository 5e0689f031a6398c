"""Cleaning a partition in this process, through everything but the command line."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.cleaner.resources import Resources
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.delegation import Delegation
from cleanerd.config.topic_config import resolve_topic_config
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.policy.grouping import MAX_SEGMENT_BYTES
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

NAME = "orders-0"
DAY_MS = 86_400_000


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory if possible: a property test flushes thousands of files."""
    shm = Path("/dev/shm")  # noqa: S108
    path = Path(tempfile.mkdtemp(prefix="cleanerd-test-", dir=shm if shm.is_dir() else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def config(topic: str = "orders", **values: object) -> TopicConfig:
    """A compacted topic with ``values`` (key with underscores), delegated, so the broker's cleaner skips it (U-8)."""
    texts = {"cleanup.policy": "compact"} | {key.replace("_", "."): str(value) for key, value in values.items()}
    found = resolve_topic_config(topic, overrides={}, topic_configs=texts)
    return replace(found, delegation=Delegation("assumed"))


def resources(
    *,
    map_bytes: int = 1 << 20,
    map_load: float = 0.85,
    chunk_bytes: int = 1 << 20,
    disk_reserve_bytes: int = 0,
    expiration_ms: int = DAY_MS,
    max_unpacked_bytes: int = 1 << 30,
    facts_bytes: int = 1 << 60,
    most_segment_bytes: int = MAX_SEGMENT_BYTES,
) -> Resources:
    """The resources of a cleaning; small enough to be quick."""
    return Resources(
        map_bytes=map_bytes,
        map_load=map_load,
        chunk_bytes=chunk_bytes,
        max_unpacked_bytes=max_unpacked_bytes,
        facts_bytes=facts_bytes,
        most_segment_bytes=most_segment_bytes,
        disk_reserve_bytes=disk_reserve_bytes,
        producer_id_expiration_ms=expiration_ms,
        lease_required=False,
    )


class Silent:
    """Progress that is not shown."""

    def phase(self, name: str, total_bytes: int) -> None:
        """Does nothing."""

    def advance(self, done_bytes: int) -> None:
        """Does nothing."""

    def wrote(self, done_bytes: int) -> None:
        """Does nothing."""


class AfterDecision(Silent):
    """Calls ``what`` after every decision, just before the first group is written."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what

    def phase(self, name: str, total_bytes: int) -> None:  # noqa: ARG002
        """A phase begins."""
        if name == "rewrite":
            self._what()


def clean(
    path: Path,
    options: CleaningOptions,
    topic: TopicConfig | None = None,
    with_resources: Resources | None = None,
    *,
    name: str = NAME,
    state: Path | None = None,
    progress: Progress | None = None,
    lock_type: type[LogDirLock] = LogDirLock,
) -> CleaningResult:
    """Clean one partition of the log directory ``path``."""
    partition = parse_topic_partition_dir(name)
    assert partition is not None
    store = StateStore(path.parent / "state" if state is None else state)
    with lock_type.acquire(path, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(path), lock, store, with_resources or resources())
        return clean_partition(locked, partition, topic or config(), options, progress or Silent())


def clean_all(
    path: Path,
    now_ms: int,
    topic: TopicConfig | None = None,
    with_resources: Resources | None = None,
    **options: object,
) -> CleaningResult:
    """As ``clean``, with a dirty log and without a ratio; it must not fail."""
    wished = CleaningOptions(now_ms=now_ms, force=True, **{"from_start": True, **options})  # type: ignore[arg-type]
    result = clean(path, wished, topic, with_resources)
    assert result.error is None, result.reason
    return result
