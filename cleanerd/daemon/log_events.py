"""The events of the daemon's log: fixed names to search for, with their fields (OP-24).

``docs/log-events.md`` has the same table. A field has a number or one of a few values, unless it is a name, a path, or
a text: ``reason``, ``finding``, ``cost`` and ``hint``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LogEvent(StrEnum):
    """The value of ``event`` in a line of the log."""

    DAEMON_STARTED = "daemon_started"
    DAEMON_STOPPED = "daemon_stopped"
    OBSERVE_MODE = "observe_mode"
    SETTINGS_RELOADED = "settings_reloaded"
    SETTING_NOT_APPLIED = "setting_not_applied"
    RELOAD_FAILED = "reload_failed"
    OPERATOR_REQUEST = "operator_request"
    REQUEST_FAILED = "request_failed"
    CLEANING_ENDED = "cleaning_ended"
    CLEANING_NOT_DONE = "cleaning_not_done"
    CLEANING_OBSERVED = "cleaning_observed"
    CLEANING_STOPPED = "cleaning_stopped"
    CLEANINGS_CUT_OFF = "cleanings_cut_off"
    PARTITION_QUARANTINED = "partition_quarantined"
    STAGED_CLEANING_DISCARDED = "staged_cleaning_discarded"
    CLEANING_VERIFIED = "cleaning_verified"
    CLEANING_NOT_VERIFIED = "cleaning_not_verified"
    CANARY_HELD = "canary_held"
    SEGMENT_ROLLED = "segment_rolled"
    STRATEGY_CHANGED = "strategy_changed"
    OFFLOADED_TO_SPARK = "offloaded_to_spark"
    LOG_DIR_UNREADABLE = "log_dir_unreadable"
    LOG_DIR_READABLE = "log_dir_readable"
    MODE_CHANGED = "mode_changed"
    DISK_RESERVE_REACHED = "disk_reserve_reached"
    DISK_RESERVE_CLEARED = "disk_reserve_cleared"
    PARTITIONS_FORGOTTEN = "partitions_forgotten"
    WARNING_RAISED = "warning_raised"
    WARNING_CLEARED = "warning_cleared"
    WATCH_UNAVAILABLE = "watch_unavailable"
    SCAN_FAILED = "scan_failed"
    WORKER_DIED = "worker_died"
    STATE_REMOVAL_FAILED = "state_removal_failed"
    PRUNING_FAILED = "pruning_failed"
    ERASURE_READING_FAILED = "erasure_reading_failed"


@dataclass(frozen=True, slots=True)
class EventFacts:
    """``levels``: the level of its lines; ``fields``: which they may have, besides ``timestamp`` and ``level``."""

    levels: str
    fields: tuple[str, ...]
    meaning: str


EVENTS: Final[Mapping[LogEvent, EventFacts]] = {
    LogEvent.DAEMON_STARTED: EventFacts(
        "info", ("version", "log_dirs", "mode", "control", "page"), "The daemon runs; the first scan begins."
    ),
    LogEvent.DAEMON_STOPPED: EventFacts("info", ("signal",), "The daemon ended after this signal."),
    LogEvent.OBSERVE_MODE: EventFacts("info", ("reason", "hint"), "Nothing is cleaned, because of `cleanerd.mode`."),
    LogEvent.SETTINGS_RELOADED: EventFacts(
        "info", ("changed", "next_start"), "New settings apply; those of `next_start` only after a restart."
    ),
    LogEvent.SETTING_NOT_APPLIED: EventFacts(
        "warning", ("reason",), "A reload did not change this setting, or the new settings were rejected."
    ),
    LogEvent.RELOAD_FAILED: EventFacts("error", ("exception",), "A bug in cleanerd; the earlier settings stay."),
    LogEvent.OPERATOR_REQUEST: EventFacts(
        "info",
        ("operation", "partitions", "uid", "pid", "refused"),
        "`trigger`, `pause` or another command was sent to the daemon; `refused`: why it was refused.",
    ),
    LogEvent.REQUEST_FAILED: EventFacts(
        "error", ("operation", "path", "exception"), "A bug in cleanerd; please report."
    ),
    LogEvent.CLEANING_ENDED: EventFacts(
        "info",
        ("partition", "outcome", "trigger", "bytes_before", "bytes_after", "removed", "seconds"),
        "A cleaning was done; `outcome` is `cleaned`, `staged` or `unchanged`.",
    ),
    LogEvent.CLEANING_NOT_DONE: EventFacts(
        "warning, info or debug",
        ("partition", "outcome", "reason"),
        "`outcome` is `failed` (warning), `refused`, `skipped` or `busy` (info if requested by an operator or if the "
        "log changed, otherwise debug).",
    ),
    LogEvent.CLEANING_OBSERVED: EventFacts(
        "info", ("partition", "trigger", "bytes_before", "bytes_after"), "Observe mode computed what it would save."
    ),
    LogEvent.CLEANING_STOPPED: EventFacts("info", ("partition",), "A cleaning was interrupted; the log is as before."),
    LogEvent.CLEANINGS_CUT_OFF: EventFacts(
        "warning", ("left",), "The daemon stops without waiting for `left` cleanings; no log is damaged."
    ),
    LogEvent.PARTITION_QUARANTINED: EventFacts(
        "warning",
        ("partition", "failures", "reason"),
        "A cleaning failed: the partition is cleaned again only later, or once it changes.",
    ),
    LogEvent.STAGED_CLEANING_DISCARDED: EventFacts(
        "info", ("partition",), "A staged cleaning was too old for `cleanerd apply`."
    ),
    LogEvent.CLEANING_VERIFIED: EventFacts(
        "info",
        ("partition", "log_dir", "compared"),
        "The canary verified the cleaned log; `compared`: also against the replaced segments (`True` or `False`).",
    ),
    LogEvent.CLEANING_NOT_VERIFIED: EventFacts(
        "info", ("partition", "log_dir", "reason"), "The canary cannot verify a partition that was deleted or is new."
    ),
    LogEvent.CANARY_HELD: EventFacts(
        "error", ("partition", "log_dir", "finding"), "Nothing is cleaned any more, because of this finding."
    ),
    LogEvent.SEGMENT_ROLLED: EventFacts(
        "info",
        ("partition", "log_dir", "active_base_offset"),
        "The broker rolled an active segment, because an erasure request waits for it.",
    ),
    LogEvent.STRATEGY_CHANGED: EventFacts(
        "warning", ("partition", "cost"), "The cleaning uses other settings than the last one, with this effect."
    ),
    LogEvent.OFFLOADED_TO_SPARK: EventFacts("info", ("partition", "keys", "master"), "Spark cleans this partition."),
    LogEvent.LOG_DIR_UNREADABLE: EventFacts("warning", ("log_dir", "reason"), "The log directory cannot be read."),
    LogEvent.LOG_DIR_READABLE: EventFacts("info", ("log_dir",), "The log directory can be read again."),
    LogEvent.MODE_CHANGED: EventFacts(
        "info or warning",
        ("log_dir", "mode", "reason"),
        "The swap method of the log directory changed: `live`, `on-start` or `offline` (warning if not live).",
    ),
    LogEvent.DISK_RESERVE_REACHED: EventFacts(
        "warning", ("log_dir", "free_bytes"), "Nothing is cleaned here until space is freed (`cleanerd.disk.reserve`)."
    ),
    LogEvent.DISK_RESERVE_CLEARED: EventFacts("info", ("log_dir", "free_bytes"), "There is enough free space again."),
    LogEvent.PARTITIONS_FORGOTTEN: EventFacts(
        "info", ("log_dir", "partitions"), "The state of so many deleted partitions was removed."
    ),
    LogEvent.WARNING_RAISED: EventFacts(
        "warning",
        ("kind", "reason"),
        "A warning for operators, as in `cleanerd status`. `kind`: `state`, `clock`, `replica` or `event`.",
    ),
    LogEvent.WARNING_CLEARED: EventFacts("info", ("kind", "reason"), "A warning of kind `state` or `clock` ended."),
    LogEvent.WATCH_UNAVAILABLE: EventFacts(
        "warning", ("reason",), "Changes of files are found by scans only, because inotify failed."
    ),
    LogEvent.SCAN_FAILED: EventFacts(
        "error", ("log_dir", "partition", "exception"), "A bug in cleanerd; please report."
    ),
    LogEvent.WORKER_DIED: EventFacts("error", ("partition", "exception"), "A bug in cleanerd; please report."),
    LogEvent.STATE_REMOVAL_FAILED: EventFacts("error", ("exception",), "State of deleted partitions was not removed."),
    LogEvent.PRUNING_FAILED: EventFacts("error", ("exception",), "Replaced segments could not be pruned."),
    LogEvent.ERASURE_READING_FAILED: EventFacts(
        "error", ("exception",), "Erasure requests were not read; the daemon tries again after ten seconds."
    ),
}
