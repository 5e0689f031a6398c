"""The same cleaning staged twice, by this process and by Spark; and the staged files of both."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.manifest import MANIFEST, READY, STAGING
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.spark.clean import stage_by_jobs
from cleanerd.spark.jobs import Jobs
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.removed_tombstones import REMOVED_KEYS
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.spark.inline import InlineJobs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.spark.jobs import Around

PLAN_ID = "20260101t000000-0123abcd"
HASH_KEY = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Staged:
    """Files of a staging directory: content, mode and modification time; and the result."""

    files: dict[str, tuple[Any, int, int]]
    result: CleaningResult


def staged(path: Path, result: CleaningResult) -> Staged:
    """The contents of the staging directory; of the two documents all but times, shards, their maps and seconds."""
    files: dict[str, tuple[Any, int, int]] = {}
    place = path / NAME / STAGING / PLAN_ID
    for file in sorted(place.iterdir()) if place.is_dir() else ():
        status = file.stat()
        content: Any = file.read_bytes()
        times = 0 if file.name == REMOVED_KEYS else status.st_mtime_ns
        if file.name in (MANIFEST, READY):
            content, times = json.loads(content), 0
        if file.name == MANIFEST:
            del content["created_ms"]
        if file.name == READY:
            for name in ("seconds", "passes", "map_utilization"):
                del content["result"][name]
        files[file.name] = (content, status.st_mode, times)
    return Staged(files, result)


def stage_locally(
    path: Path, options: CleaningOptions, topic: TopicConfig | None = None, with_resources: Resources | None = None
) -> Staged:
    """As ``cleanerd stage``; removed again."""
    return _stage(path, options, topic, with_resources, stage_partition)


def stage_by_spark(
    session: SparkSession,
    path: Path,
    options: CleaningOptions,
    topic: TopicConfig | None = None,
    with_resources: Resources | None = None,
    *,
    around: Around | None = None,
    **given: Any,
) -> Staged:
    """As ``cleanerd spark clean``; removed again."""
    jobs_of = functools.partial(Jobs, session, around=around)
    return _stage(
        path,
        options,
        topic,
        with_resources,
        functools.partial(stage_by_jobs, jobs_of=jobs_of, **{"alone_bytes": 0, **given}),
    )


def stage_inline(
    path: Path,
    options: CleaningOptions,
    topic: TopicConfig | None = None,
    with_resources: Resources | None = None,
    *,
    jobs: InlineJobs | None = None,
    **given: Any,
) -> Staged:
    """The same without Spark."""
    stager = functools.partial(stage_by_jobs, jobs_of=jobs or InlineJobs(), **{"alone_bytes": 0, **given})
    return _stage(path, options, topic, with_resources, stager)


def _stage(
    path: Path, options: CleaningOptions, topic: TopicConfig | None, with_resources: Resources | None, stager: Any
) -> Staged:
    partition = parse_topic_partition_dir(NAME)
    assert partition is not None
    store = StateStore(path.parent / "state")
    drawn = replace(with_resources or resources(), new_plan_id=lambda: PLAN_ID, new_hash_key=lambda: HASH_KEY)
    result = stager(read_log_dir(path), store, drawn, partition, topic or config(), options, Silent())
    found = staged(path, result)
    place = path / NAME / STAGING
    left = sorted(each.name for each in place.iterdir()) if place.is_dir() else None
    assert left in (None, [PLAN_ID]), left
    shutil.rmtree(path / NAME / STAGING, ignore_errors=True)
    return found


def assert_same_staged(local: Staged, spark: Staged) -> None:
    """The same files, byte for byte, and the same report."""
    assert spark.result.error is None, spark.result.reason
    assert bool(local.files) == (local.result.outcome == "staged")
    assert spark.files.keys() == local.files.keys()
    for name, facts in local.files.items():
        assert spark.files[name] == facts, name
    counts = ("records_read", "records_kept", "tombstones_kept", "bytes_after", "removed")
    compared = ("outcome", "reason", *counts, "notes", "groups")
    assert {key: getattr(spark.result, key) for key in compared} == {
        key: getattr(local.result, key) for key in compared
    }


def all_dirty(now_ms: int, **wished: Any) -> CleaningOptions:
    """The whole log, whatever its ratio."""
    return CleaningOptions(now_ms=now_ms, force=True, **{"from_start": True, **wished})


def staged_files(log_dir: Path) -> dict[str, bytes]:
    """The files of a staged cleaning except its name: by file name."""
    found = (log_dir / NAME / STAGING).glob("*/*")
    return {path.name: path.read_bytes() for path in found if path.suffix != ".json"}
