"""How far a log is clean, for who judges a cleaning by rules of his own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.cli.scope import key_rules
from cleanerd.errors import CleanerdError
from cleanerd.log.clean_point import StateStore, may_be_about
from cleanerd.log.log_dir import CLEANER_CHECKPOINT, META_PROPERTIES, read_log_dir
from cleanerd.log.partition import read_partition
from cleanerd.log.remote import RemotePath
from cleanerd.verify.finding import Findings
from cleanerd.verify.log_dir import read_surroundings
from cleanerd.verify.rules import KAFKAS_RULES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.format.names import TopicPartition
    from cleanerd.settings import Settings
    from cleanerd.spark.logs import Log
    from cleanerd.verify.rules import KeyRules


def clean_end(settings: Settings, path: Path, name: TopicPartition, rules: KeyRules) -> int | None:
    """By Kafka's checkpoint in the log directory where its rules hold, else by cleanerd's own state (U-10)."""
    if rules == KAFKAS_RULES:
        end = read_surroundings(path, Findings()).of(CLEANER_CHECKPOINT, name)
        if end is not None:
            return end
    if isinstance(path, RemotePath):
        return None  # what we know is of directories of this machine
    if not (path / META_PROPERTIES).is_file() or not (path / str(name)).is_dir():
        return None
    try:
        log_dir = read_log_dir(path)
        store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
        log = read_partition(log_dir, name)
        state = store.load(log_dir, log)
    except CleanerdError:
        return None  # whoever judges the partition will say what is wrong with it
    point = None if state is None else state.clean_point
    # A log that was truncated since, and has grown again, was never cleaned there: nobody is to blame for two records.
    return point.offset if point is not None and may_be_about(point, log) else None


def clean_end_of_logs(settings: Settings) -> Callable[[Log], int | None]:
    """How far a log is clean by :func:`clean_end` and the rules of the settings, or by what its directory says."""
    from cleanerd.spark.logs import known_clean_end  # noqa: PLC0415 - needs pyarrow

    def found(log: Log) -> int | None:
        rules = key_rules(settings, log.name.topic)
        end = clean_end(settings, log.log_dir, log.name, rules)
        return known_clean_end(replace(log, rules=rules)) if end is None else end

    return found
