"""Queries to a session besides DataFrames, for local Java and for Spark Connect.

Connect has no ``sparkContext``: facts about the cluster need other queries there.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from cleanerd.errors import ConfigError
from cleanerd.spark.watch import ConnectSession, ProgressWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator
    from pyspark.sql import SparkSession

_MORE_THAN_CORES: Final = 1 << 20
_OF_A_GROUP: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_cores: Final[WeakKeyDictionary[SparkSession, int]] = WeakKeyDictionary()
"""Cached for Connect's sessions, where counting them needs a job."""


def is_connect(session: SparkSession) -> bool:
    """Whether it is a Spark Connect session; checked without Connect's libraries, which may be missing."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def cores_of(session: SparkSession) -> int:
    """How many tasks run at once, at least 1.

    Raises:
        PySparkException: a server of Connect does not answer.
    """
    if not is_connect(session):
        return max(int(session.sparkContext.defaultParallelism), 1)
    if session not in _cores:
        # A Connect server does not report it, but a range has this many parts by default.
        parts = session.range(_MORE_THAN_CORES).selectExpr("spark_partition_id()").distinct()
        _cores[session] = max(parts.count(), 1)
    return _cores[session]


@contextlib.contextmanager
def job_group(context: SparkContext, group: str, description: str) -> Iterator[None]:
    """Assign the block's jobs to this group, with its ``description``; afterwards this thread's earlier group applies.

    After a signal, when Java may be missing or slow, this does not wait for it.
    """
    before = {key: context.getLocalProperty(key) for key in _OF_A_GROUP}

    def put_back() -> None:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None: there was none

    context.setJobGroup(group, description, interruptOnCancel=False)
    try:
        yield
    except Exception:
        with contextlib.suppress(Exception):
            put_back()
        raise
    put_back()


@contextlib.contextmanager
def named_jobs(
    session: SparkSession, description: str, advance: Callable[[int], None], work_bytes: int, steps: int
) -> Iterator[Accumulator[int] | None]:
    """Name the block's jobs ``description`` on Spark's pages; ``advance`` receives their progress, in ``work_bytes``.

    ``work_bytes`` are read ``steps`` times. Tasks add the bytes that they have read to the block's value, because a job
    does not know the following ones. Connect has neither groups nor accumulators: there the name is a tag, the block
    gets None, and each operation is a step.
    """
    name = f"cleanerd-{uuid.uuid4().hex}"
    if not is_connect(session):
        read = session.sparkContext.accumulator(0)
        share = lambda: read.value / max(steps * work_bytes, 1)  # noqa: E731 - asked for again and again
        with job_group(session.sparkContext, name, description), ProgressWatch(share, advance, work_bytes):
            yield read
        return
    tag = f"{description} ({name})".replace(",", ";")  # a tag may not have a comma
    session.addTag(tag)
    try:
        with ConnectSession(session, advance, work_bytes, steps):
            yield None
    finally:
        session.removeTag(tag)


def require_driver_java(session: SparkSession, what: str) -> None:
    """Require a local session, because the driver does ``what`` to the logs and must be able to end its executors.

    Raises:
        ConfigError: it is a session of Spark Connect.
    """
    if is_connect(session):
        raise ConfigError(
            f"{what} needs a Spark session in this process, not one of Spark Connect",
            where="Logs",
            hint="run it with cleanerd spark clean, or in a session without .remote(...)",
        )
