"""Refusals: new records do not show the latest state any more, so the whole log has to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.errors import RefusedError
from cleanerd.spark.tables.parts import leader_epoch_at, topic_id_of
from cleanerd.spark.tables.remembered import UNKNOWN_EPOCH, TableState, Topic, Watermark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.format.checkpoint import EpochStart
    from cleanerd.spark.logs import Log

_REPLACE_HINT: Final = "--replace writes the table again, in one commit"
_SKEW_MS: Final = 60_000
"""Tolerance between the broker's clock and ours."""


def require_same_topic(where: str, log: Log, was: Topic, now: Topic) -> None:
    """Check that the rows of ``log`` in the table are of the same topic and by the current rules.

    Raises:
        RefusedError: another strategy, another topic of that name, or deleted keys were kept and are not, or vice
            versa.
    """
    if was.rules != now.rules:
        raise _refused(
            f"the rows of {log.name.topic} were chosen by {_describe(was)}, now it is {_describe(now)}: "
            "other records are retained",
            where,
        )
    if None not in (was.topic_id, now.topic_id) and was.topic_id != now.topic_id:
        raise _refused(
            f"{log.name.topic} is another topic than the one in the table: id {now.topic_id}, not {was.topic_id}", where
        )
    if was.keep_deleted != now.keep_deleted:
        kept, option = ("keeps", "with") if was.keep_deleted else ("does not keep", "without")
        raise RefusedError(
            f"the table {kept} rows for the deleted keys of {log.name.topic}",
            where=where,
            hint=f"{option} --tombstones; {_REPLACE_HINT}",
        )


def require_one_topic(where: str, log: Log, topic: Topic) -> None:
    """Check that ``log`` belongs to ``topic``, as other logs of that name do.

    Raises:
        RefusedError: it is left over from a deleted topic of that name.
    """
    found = topic_id_of(log)
    if None not in (found, topic.topic_id) and found != topic.topic_id:
        raise RefusedError(
            f"{log.log_dir / str(log.name)} is of another topic than other partitions of {log.name.topic}: id {found}, "
            f"not {topic.topic_id}",
            where=where,
            hint="leave out the rest of a deleted topic (--partition)",
        )


def require_acknowledged(where: str, remembered: TableState) -> None:
    """Check that all records in the table were acknowledged.

    Raises:
        RefusedError: the leader may have truncated some, and written others.
    """
    if remembered.whole_log:
        raise _refused("the table was written with --whole-log: unacknowledged records may be gone since", where)


def require_range(where: str, log: Log, watermark: Watermark, begin: int, end: int) -> None:
    """Check that ``log``, from ``begin`` to ``end`` (exclusive), continues where the table ends.

    Raises:
        RefusedError: it begins later, or ends before.
    """
    if begin > watermark.end_offset:
        raise _refused(
            f"{log.name} begins at offset {begin}, the table ends at {watermark.end_offset}: the records "
            "between, with their deletions, are missing",
            where,
        )
    if end < watermark.end_offset:
        raise RefusedError(
            f"{log.name} ends at offset {end}, the table has it up to {watermark.end_offset}",
            where=where,
            hint=f"an older copy, another replica, or a log that was cut; if it is right, {_REPLACE_HINT}",
        )


def require_not_cut(where: str, log: Log, watermark: Watermark, epochs: Sequence[EpochStart]) -> None:
    """Check that the table's last offset still has its leader epoch, if that is known.

    ``epochs``: where those of the log begin. After a truncation the new leader writes in a new epoch, which also
    detects a log that has grown beyond ``watermark`` again.

    Raises:
        RefusedError: it was truncated below ``watermark``, and now has other records.
    """
    epoch = leader_epoch_at(epochs, watermark.end_offset - 1)
    if UNKNOWN_EPOCH not in (epoch, watermark.leader_epoch) and epoch != watermark.leader_epoch:
        raise _refused(
            f"{log.name} was cut and has grown again since the table was written: offset {watermark.end_offset - 1} "
            f"is of leader epoch {epoch}, in the table it is of epoch {watermark.leader_epoch}",
            where,
        )


def changed_by_another(what: str, where: str) -> RefusedError:
    """The error after another writer's commit, which is called ``what``."""
    return _refused(
        f"another writer changed rows of the table since ({what}): merging would not give the latest state",
        where,
    )


def partitioned(where: str) -> RefusedError:
    """The error for a partitioned table, which another writer made."""
    return RefusedError(
        "another writer left a partitioning there", where=where, hint="rewrite it without one, or name a new table"
    )


def require_complete(
    where: str, log: Log, watermark: Watermark, missing: int, *, now_ms: int, retention_ms: int
) -> None:
    """Check that no tombstone can have been written and removed since ``watermark``.

    ``missing``: how many offsets have no record. A cleaning gives a tombstone its horizon, ``retention_ms`` later, and
    a later one removes it. Data above the watermark was cleaned after it, if at all. Without missing offsets there was
    no cleaning.

    Raises:
        RefusedError: it may have, and its key is unknown.
    """
    age_ms = now_ms - watermark.as_of_ms
    if missing > 0 and age_ms + _SKEW_MS >= retention_ms:
        raise _refused(
            f"{log.name} was cleaned above offset {watermark.end_offset}, and the table is {age_ms // 60_000} minutes "
            f"old: tombstones are removed after delete.retention.ms, {retention_ms // 60_000} minutes; what they "
            "deleted is unknown",
            where,
        )


def winners_gone(where: str, log_start: int, name: str) -> RefusedError:
    """The error if rows of a versioned topic are below the log start: records that they superseded may win now."""
    return _refused(
        f"retained records of {name} are below the log start {log_start} now: only the whole log shows which older "
        "ones replace them",
        where,
    )


def unknown(where: str) -> RefusedError:
    """The error if no commit of the table is cleanerd's, or it was restored to an earlier version."""
    return _refused("the table does not state its offsets", where)


def _describe(topic: Topic) -> str:
    rules = topic.rules
    header = f":{rules.header.decode('utf-8', 'replace')} ({rules.encoding})" if rules.header is not None else ""
    mode = "" if rules.tombstone_mode == "null" else f", tombstone.mode {rules.tombstone_mode}"
    return f"{rules.strategy}{header}{mode}"


def _refused(why: str, where: str) -> RefusedError:
    return RefusedError(why, where=where, hint=_REPLACE_HINT)
