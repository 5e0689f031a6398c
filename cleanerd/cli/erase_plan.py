"""``cleanerd erase plan``: where a key is on this host, what removes each copy, and by when (U-85). Reads only."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from cleanerd.cli.audit import HostSearch, search_host, show_key, warn_of_unsearched
from cleanerd.cli.explain import ExplainRequest
from cleanerd.cli.key_options import find_terms
from cleanerd.cli.output import Column, Output
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.humanize import counted, human_ms
from cleanerd.inspection.report import bytes_fields, time_of
from cleanerd.policy.removal import RemovalFacts, Step, bound_of
from cleanerd.resolution.erasure_plan import CopyOutlook, outlook, removal_facts
from cleanerd.resolution.explanation import Explanation
from cleanerd.state.erasure_requests import ErasureRequests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.verify.audit import Term

_NO_BOUND: Final = "no bound"


def plan(
    common: Common,
    topic: str,
    log_dirs: tuple[Path, ...],
    now_ms: int | None,
    *,
    key: str,
    as_hex: bool,
    as_base64: bool,
) -> int:
    """Run ``cleanerd erase plan``; its options are in ``erase_commands.py``."""
    log_dirs = common.log_dirs(log_dirs)
    (term,) = find_terms(keys=(key,), as_hex=as_hex, as_base64=as_base64)
    settings = common.load_settings()
    host = search_host(common, settings, topic, log_dirs, [term])
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    requests = ErasureRequests(settings.daemon.cleanerd_state_dir).load()
    is_requested = any(each.is_open and each.is_about(topic, term.data) for each in requests)
    found = list(_outlooks(common.output, settings, host, log_dirs, at_ms, is_requested=is_requested))
    if common.output.as_json:
        common.output.json(_document(term, found, host))
    else:
        _show(common.output, term, found)
    unread = [what for each in host.places for what in each.found.unread]
    return CorruptionError.exit_code if warn_of_unsearched(common.output, unread, host.elsewhere) else 0


def _outlooks(
    output: Output, settings: Settings, host: HostSearch, log_dirs: Sequence[Path], now_ms: int, *, is_requested: bool
) -> Iterator[tuple[Path, list[CopyOutlook]]]:
    """The outlooks by directory, for directories with copies."""
    for path, (found, rules) in host.by_owner().items():
        if found.occurrences:
            facts, why = _facts(output, settings, path, log_dirs, now_ms, is_requested=is_requested)
            yield path, outlook(found.occurrences, rules, facts, settings, why)


def _facts(
    output: Output, settings: Settings, path: Path, log_dirs: Sequence[Path], now_ms: int, *, is_requested: bool
) -> tuple[RemovalFacts | None, str]:
    """What removes records of the partition in ``path``; None: no cleaning does, with what would change that."""
    if path.parent not in log_dirs or parse_topic_partition_dir(path.name) is None:
        return None, "delete it by hand"
    request = ExplainRequest(output, settings, log_dirs, path.name, now_ms)
    try:
        request.explain_in(request.open(path.parent))
    except CleanerdError as error:
        return None, str(error)
    for answer in request.answers:
        if isinstance(answer.what, Explanation):
            facts = removal_facts(
                answer.what,
                settings,
                now_ms,
                daemon=answer.daemon,
                has_request=is_requested,
                kafka_cleans=request.kafka_cleans,
            )
            return facts, ""
    return None, "cleanup.policy=compact; until then retention.ms and retention.bytes alone remove records"


def _document(term: Term, found: Sequence[tuple[Path, list[CopyOutlook]]], host: HostSearch) -> dict[str, object]:
    partitions = [
        {"path": str(path), "by_ms": _last_bound(outlooks), "copies": [_copy_document(each) for each in outlooks]}
        for path, outlooks in found
    ]
    unsearched = [each.what for each in host.elsewhere.unsearched]
    unsearched += [what for each in host.places for what in each.found.unread]
    return {**bytes_fields("key", term.data), "partitions": partitions, "unsearched": unsearched}


def _copy_document(each: CopyOutlook) -> dict[str, object]:
    copy = each.copy
    return {
        "file": copy.file,
        "state": copy.state,
        "offset": copy.offset,
        "timestamp": copy.timestamp_ms,
        "tombstone": copy.is_tombstone,
        "version": copy.version,
        "by_ms": bound_of(each.steps),
        "steps": [asdict(step) for step in each.steps],
    }


def _last_bound(outlooks: Sequence[CopyOutlook]) -> int | None:
    return bound_of([step for each in outlooks for step in each.steps])


def _show(output: Output, term: Term, found: Sequence[tuple[Path, list[CopyOutlook]]]) -> None:
    for path, outlooks in found:
        output.line(f"{path}: {counted(len(outlooks), 'record')} with the key {show_key(term.data)}")
        columns = [Column("offset", right=True), Column("what"), Column("state"), Column("removed by"), Column("file")]
        rows = [
            [
                str(each.copy.offset),
                "tombstone" if each.copy.is_tombstone else "value",
                each.copy.state,
                _by(bound_of(each.steps)),
                each.copy.file,
            ]
            for each in outlooks
        ]
        output.table(columns, rows)
        by_steps: dict[tuple[Step, ...], list[str]] = {}
        for each in outlooks:
            by_steps.setdefault(each.steps, []).append(str(each.copy.offset))
        for steps, offsets in by_steps.items():
            distinct = list(dict.fromkeys(offsets))
            subject = f"Offset {distinct[0]} is" if len(distinct) == 1 else f"Offsets {', '.join(distinct)} are"
            output.line(f"{subject} removed after:")
            for number, step in enumerate(steps, 1):
                output.item(f"  {number}.", _describe(step))
        output.line()
    if not found:
        output.line(f"{show_key(term.data)}: not found on this host")


def _by(by_ms: int | None) -> str:
    return _NO_BOUND if by_ms is None else time_of(by_ms)


def _describe(step: Step) -> str:
    if step.by_ms is not None:
        return f"{step.event}: by {time_of(step.by_ms)} ({step.setting})"
    if step.wait_ms is not None:
        return f"{step.event}: within {human_ms(step.wait_ms)} after that ({step.setting})"
    since = f", not before {time_of(step.from_ms)}" if step.from_ms > 0 else ""
    return f"{step.event}: {_NO_BOUND}{since} (for a bound: {step.setting})"
