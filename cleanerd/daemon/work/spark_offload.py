"""Offloads partitions with too many keys for this host to Spark (``cleanerd.spark.threshold.keys``).

``cleanerd spark clean`` runs in its own process and process group, with the daemon's settings, and stages; the plan is
then treated like any staged plan. A live cleaning swaps group by group while the broker runs, which a stored plan does
not support, so live cleanings are not offloaded.

If the daemon is killed, the process continues and stages, which does no harm: it holds the partition's claim, so the
next daemon's worker sees that the partition is in progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.cleaner.estimate import distinct_keys
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.config.written import as_toml, without_settings
from cleanerd.daemon.log_events import LogEvent
from cleanerd.errors import Cause, CleanerdError, ReportedError, machine_error
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cleanerd.cleaner.resources import Resources
    from cleanerd.daemon.work.job import CleaningJob

POLL_SECONDS: Final = 0.2

GRACE_SECONDS: Final = 42.0
"""Longer than ``spark clean`` gives Spark to stop, and shorter than a stop of the daemon waits."""

MOST_ERROR_CHARACTERS: Final = 2000

_log = structlog.get_logger()


class SparkOffload:
    """Gives partitions to Spark, one at a time: a driver needs a gigabyte, and one job uses all of Spark's cores.

    ``require``: raises CleanerdError while Spark cannot be started here. ``command``: as :func:`spark_command`.
    """

    def __init__(
        self,
        require: Callable[[], object] = lambda: None,
        command: Callable[[CleaningJob, Path], list[str]] | None = None,
    ) -> None:
        self._require = require
        self._command = command or spark_command
        self._one = threading.Lock()
        self._warnings: list[str] = []

    def pop_warnings(self) -> list[str]:
        """Warnings for the operator since the last call."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def stage(self, job: CleaningJob, resources: Resources, options: CleaningOptions) -> CleaningResult | None:
        """Have it staged by Spark; None if the worker has to stage it.

        The worker stages cleanings for tombstones only, which ``spark clean`` cannot do, and all cleanings while the
        clock is in doubt.

        Raises:
            Stopped: a stop was requested.
        """
        threshold = job.facts.settings.daemon.cleanerd_spark_threshold_keys
        if threshold is None or job.trigger == "tombstone_removal" or options.clock_doubt_ms:
            return None
        keys = estimated_keys(job, resources, options, threshold)
        if keys < threshold:
            return None
        try:
            self._require()
        except CleanerdError as error:
            self._warnings.append(f"partitions are not offloaded to Spark (cleanerd.spark.threshold.keys): {error}")
            return None
        job.progress.phase("index", job.scan.dirty_bytes)
        with self._turn(job):
            master = job.facts.settings.daemon.cleanerd_spark_master
            _log.info(LogEvent.OFFLOADED_TO_SPARK, partition=str(job.name), keys=round(keys), master=master)
            try:
                return _carried_out(job, self._command)
            except OSError as error:  # no room for its files, or no more processes: not a fault of the log
                what = f"cannot be offloaded to Spark: {error.strerror or error}"
                where = str(error.filename or tempfile.tempdir or "the temporary directory")
                failure = machine_error(error)(what, where=where)
                return CleaningResult.of_error(job.name, str(job.scan.log_dir.path), failure)

    @contextmanager
    def _turn(self, job: CleaningJob) -> Iterator[None]:
        while not self._one.acquire(timeout=POLL_SECONDS):
            job.progress.check()
        try:
            yield
        finally:
            self._one.release()


def estimated_keys(job: CleaningJob, resources: Resources, options: CleaningOptions, threshold: int) -> float:
    """About how many keys are to be cleaned; 0 if they are certainly fewer than ``threshold``.

    Errors are ignored here: the staging reports them.
    """
    with contextlib.suppress(CleanerdError, OSError):
        found = survey(job.scan.log_dir, job.name, job.scan.config, job.store, options)
        # There are at most as many keys as offsets, so usually no record has to be read.
        if found.to_clean and found.end_offset - found.bounds.first_dirty_offset >= threshold:
            with SegmentReader.open(str(found.log.path), chunk_bytes=resources.chunk_bytes) as reader:
                return distinct_keys(make_plan(job.scan.log_dir, found, resources, options, reader))
    return 0.0


def spark_command(job: CleaningJob, settings: Path) -> list[str]:
    """The command line; ``settings``: a file with all of them."""
    words: list[str | Path] = [sys.executable, "-m", "cleanerd", "spark", "clean", job.scan.log_dir.path]
    words += ["--partition", str(job.name), "--unclean", *(["--force"] if job.trigger in {"manual", "erasure"} else [])]
    words += ["--now-ms", str(job.clock.now_ms()), "--wait-for-replicas"]  # its own clock may have jumped ahead
    words += ["--master", job.facts.settings.daemon.cleanerd_spark_master]
    words += ["--config", settings, "--json", "--quiet"]
    return [str(word) for word in words]


def _carried_out(job: CleaningJob, command: Callable[[CleaningJob, Path], list[str]]) -> CleaningResult:
    facts = job.facts
    # The daemon finds the metadata log among all of its directories; the command is given one.
    more = {} if facts.metadata_dir is None else {"cleanerd.metadata.log.dir": str(facts.metadata_dir)}
    with tempfile.TemporaryDirectory(prefix="cleanerd-spark-") as name:
        directory = Path(name)
        settings = directory / "settings.toml"
        settings.write_text(as_toml(facts.settings, more), encoding="utf-8")
        code = _run(command(job, settings), directory, job.progress.check)
        result = (directory / "result").read_bytes()
        complaints = (directory / "errors").read_text(errors="replace")
    return result_of(job, code, result, complaints)


def result_of(job: CleaningJob, code: int, data: bytes, complaints: str) -> CleaningResult:
    """The result of a process that ended with ``code``; ``data``: its output, ``complaints``: its standard error."""
    try:
        (entry,) = json.loads(data)["partitions"]
        result = CleaningResult.from_json(job.name, entry)
    except (ValueError, KeyError, TypeError):
        reason = _last_line(complaints) or "it printed nothing"
        return _failed(job, f"cleanerd spark clean ended with exit code {code}: {reason}")
    if result.error is not None:
        return _failed(job, f"by Spark: {result.reason}", result.error.cause)
    if code != 0:
        return _failed(job, f"by Spark: {result.reason or _last_line(complaints)}")
    return result


def _run(command: Sequence[str], directory: Path, check: Callable[[], None]) -> int:
    """Run the process and return its exit code; an exception, for example from ``check``, ends its process group."""
    # Opened once: the driver opens the stream of errors again to append (spark/launch.py).
    with (directory / "result").open("wb") as out, (directory / "errors").open("ab") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=without_settings(os.environ),
            start_new_session=True,
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(POLL_SECONDS)
                check()
        except BaseException:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM, so that it can end Spark, whose processes are another group; then kill the rest."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _failed(job: CleaningJob, reason: str, cause: Cause = Cause.DATA) -> CleaningResult:
    return CleaningResult.of_error(job.name, str(job.scan.log_dir.path), ReportedError(reason, cause=cause))


def _last_line(text: str) -> str:
    """The last line of output with the error; cleanerd's own message is preferred to Java's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line.removeprefix("cleanerd: ") for line in lines if line.startswith("cleanerd: ")]
    return (own or lines or [""])[-1][-MOST_ERROR_CHARACTERS:]
