"""``cleanerd spark audit``: whether a cleaning of any cleaner was correct; or which files still have keys.

Reads only.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from cleanerd.cli.audit import (
    FOUND,
    other_record_places,
    show_found,
    show_key,
    terms_document,
    warn_of_unsearched,
)
from cleanerd.cli.clean_end import CleanEnds
from cleanerd.cli.key_options import find_terms, search_options
from cleanerd.cli.options import Common, now_option
from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.cli.selecting import ExistingPath, partition_option, strategy_option
from cleanerd.cli.spark import spark_command
from cleanerd.errors import CorruptionError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.humanize import counted, human_bytes, human_count
from cleanerd.inspection.report import bytes_fields
from cleanerd.segments.log_dir import partition_names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.spark.audit import AuditedPartition
    from cleanerd.spark.erasure import Erasure
    from cleanerd.verify.audit import Term

_KEY_BYTES: Final = 16


@click.command("audit")
@spark_command(alone=lambda _options: True)
@click.argument("dirs", metavar="BEFORE AFTER | LOG_DIR...", nargs=-1, required=True,
                type=ExistingPath(file_okay=False, urls=True))  # fmt: skip
@partition_option
@click.option("--clean-below", type=click.IntRange(min=0), metavar="OFFSET",
              help="AFTER is clean below this offset. Default: the checkpoint, or cleanerd's own state.")  # fmt: skip
@click.option("--first-dirty", type=click.IntRange(min=0), default=0, metavar="OFFSET",
              help="The cleaning's first dirty offset: keys without a later record are unchanged.")  # fmt: skip
@click.option("--log-start", type=click.IntRange(min=0), default=0, metavar="OFFSET",
              help="Do not check records below this offset. Default: the checkpoints.")  # fmt: skip
@strategy_option("offset, timestamp or header:NAME. Default: the settings.")
@click.option(
    "--many-cleanings", is_flag=True, help="The log was cleaned more than once since: tombstones may be gone."
)
@now_option
@click.option("--examples", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="At most N places per kind and partition; with --key, N records per file.")  # fmt: skip
@click.option(
    "--digest-key",
    metavar="HEX",
    help="16 bytes. Runs with the same key have comparable digests.",
)
@search_options
def audit(
    common: Common,
    dirs: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    clean_below: int | None,
    first_dirty: int,
    log_start: int,
    strategy: tuple[str, str] | None,
    many_cleanings: bool,
    now_ms: int | None,
    examples: int,
    digest_key: str | None,
    expect_absent: bool,
    **search_terms: Any,
) -> int:
    """Check the cleaned logs in AFTER against BEFORE: lost, stale, resurrected, duplicated or altered records.

    BEFORE is a copy of the log directory, or a directory of --keep-replaced. Exit code 5 if something is wrong.
    With --key, --keys-file, --key-prefix or --value-contains it lists every file below the directories that contains
    such records: live, replaced, kept or staged.
    """
    settings = common.load_settings()
    terms = find_terms(**search_terms)
    if terms:
        return _erasure(common, settings, dirs, terms, limit=examples, expect_absent=expect_absent)
    if expect_absent:
        raise click.UsageError("--expect-absent needs --key, --keys-file, --key-prefix or --value-contains")
    if len(dirs) != 2:
        raise click.UsageError("give two directories, BEFORE and AFTER; with --key any number")
    names = _names(partitions, dirs)
    if len(names) != 1 and (clean_below is not None or first_dirty or log_start):
        raise click.UsageError("an offset option needs exactly one --partition")
    from cleanerd.spark.api import ReadableLogs  # noqa: PLC0415 - needs pyspark, which only a driver has
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    before, after = dirs
    hash_key = _digest_key(digest_key)
    with spark_session("cleanerd audit") as session:
        logs = ReadableLogs(
            session, after, lambda topic: key_rules(settings, topic, strategy), partitions=names or None
        )
        compared, notes = logs.compared(before)
        total = sum(sides.size_bytes for sides in compared)
        common.output.note(f"{counted(len(compared), 'partition')}, {human_bytes(total)} to read twice")
        ends = CleanEnds(settings)
        with common.output.progress("audit", total=total) as advance:
            judged = logs.audit(
                before,
                clean_below=partial(ends.at_most, after) if clean_below is None else clean_below,
                cleaned_before=partial(ends.cleaned_before, after, before),
                first_dirty=first_dirty,
                log_start=log_start,
                many_cleanings=many_cleanings,
                now_ms=now_ms,
                examples=examples,
                digest_key=hash_key,
                advance=advance,
            ).partitions
    for note in notes:
        common.output.warning(note)
    if common.output.as_json:
        common.output.json(_document(before, after, hash_key, judged))
    else:
        _print_report(common, judged)
    return CorruptionError.exit_code if any(each.found or each.is_unchecked for each in judged) else 0


def _names(words: Sequence[str], dirs: Sequence[Path]) -> tuple[TopicPartition, ...]:
    """The partitions of ``--partition``. Backups are deeper than a log directory, which the comparison handles."""
    exact = [name for word in words if (name := parse_topic_partition_dir(word)) is not None]
    others = [word for word in words if parse_topic_partition_dir(word) is None]
    return tuple(sorted({*exact, *select_in(others, dirs)}))


def _digest_key(text: str | None) -> bytes:
    if text is None:
        return os.urandom(_KEY_BYTES)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise click.BadParameter("not 32 hexadecimal digits", param_hint="--digest-key")
    return key


def _document(before: Path, after: Path, hash_key: bytes, judged: Sequence[AuditedPartition]) -> dict[str, object]:
    return {
        "before": str(before),
        "after": str(after),
        "digest_key": hash_key.hex(),
        "findings": sum(each.found for each in judged),
        "partitions": [_of_partition(each) for each in judged],
    }


def _of_partition(each: AuditedPartition) -> dict[str, object]:
    from cleanerd.spark.audit import KINDS  # noqa: PLC0415

    def side(name: str) -> dict[str, object]:
        found = getattr(each, name)
        return {
            "segments": found.segments,
            "begin_offset": found.begin,
            "end_offset": found.end_offset,
            "records": found.records,
            "record_bytes": found.record_bytes,
            "digest": found.digest,
        }

    return {
        "topic": each.name.topic,
        "partition": each.name.partition,
        "strategy": each.question.rules.strategy,
        "log_start_offset": each.log_start,
        "clean_below": each.question.clean_end,
        "before": side("before"),
        "after": side("after"),
        "kept_records": each.kept_records,
        "superseded_checked": not each.is_unchecked,
        "attributes_zeroed": each.zeroed,
        "findings": {kind: each.findings[kind] for kind in KINDS},
        "examples": [
            {
                "kind": example.kind,
                "offset": None if example.offset < 0 else example.offset,
                "file": example.file,
                "position": example.position,
                "record": None if example.record < 0 else example.record,
                **({} if example.key is None else bytes_fields("key", example.key)),
                "what": example.what,
            }
            for example in each.examples
        ],
        "damaged": each.damaged,
    }


def _print_report(common: Common, judged: Sequence[AuditedPartition]) -> None:
    from cleanerd.spark.audit import KINDS  # noqa: PLC0415

    output = common.output
    columns = [
        Column("partition"), Column("strategy"), Column("clean below", right=True), Column("before", right=True),
        Column("after", right=True), Column("verdict"),
    ]  # fmt: skip
    output.table(columns, [_row(each) for each in judged])
    for each in judged:
        for example in each.examples:
            key = "" if example.key is None else f" key {show_key(example.key)}"
            offset = "" if example.offset < 0 else f" offset {example.offset}"
            record = "" if example.record < 0 else f" record {example.record}"
            where = f"{example.file} byte {example.position}{record}"
            output.line(f"{each.name} {example.kind}{offset}{key}: {where}: {example.what}")
        shown = tuple(f"{example.file} at byte {example.position}: " for example in each.examples)
        for text in each.damaged:
            if not text.startswith(shown):
                output.line(f"{each.name} damaged: {text}")
        if each.is_lowered:
            end, once = each.question.clean_end, each.question.cleaned_before
            output.warning(
                f"{each.name}: Kafka's checkpoint says clean up to {end}, but the log was clean up to {once} before, "
                f"so superseded records between were not searched; give --clean-below {once} with --partition, or "
                f"--clean-below {end} if the log was truncated since"
            )
        elif each.is_unchecked:
            output.warning(
                f"{each.name}: it is unknown how far it is clean, so superseded and missing records in the clean "
                "section were not searched; give --clean-below OFFSET with --partition"
            )
        if each.is_head_missing:
            output.note(
                f"{each.name}: AFTER begins at offset {each.after.begin}, BEFORE at {each.before.begin}; if retention "
                f"or DeleteRecords removed the records between, give --log-start {each.after.begin}"
            )
        if each.zeroed:
            output.note(f"{each.name}: attributes of {counted(each.zeroed, 'record')} are now 0, as Kafka leaves them")
    kinds = [kind for kind in KINDS if any(each.findings[kind] for each in judged)]
    for kind in kinds:
        output.line(f"{kind}: {KINDS[kind]}")
    if not kinds and not any(each.is_unchecked for each in judged):
        output.line(f"nothing is wrong in {counted(len(judged), 'partition')}")


def _row(each: AuditedPartition) -> list[str]:
    found = [f"{human_count(count)} {kind}" for kind, count in each.findings.items() if count]
    end = each.question.clean_end
    return [
        str(each.name),
        each.question.rules.strategy,
        "?" if end is None else str(end),
        human_count(each.before.records),
        human_count(each.after.records),
        ", ".join(found) or ("not checked" if each.is_unchecked else "right"),
    ]


def _erasure(
    common: Common,
    settings: Settings,
    dirs: Sequence[Path],
    terms: tuple[Term, ...],
    *,
    limit: int,
    expect_absent: bool,
) -> int:
    from cleanerd.spark.api import ReadableLogs  # noqa: PLC0415
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    elsewhere = other_record_places(settings, dirs)
    names = {name for each in dirs for name in partition_names(each)}
    elsewhere = elsewhere.of(names, {str(each.resolve()) for each in dirs})
    kept = [each.path for each in elsewhere.places if not any(each.path.is_relative_to(path) for path in dirs)]
    for path in kept:
        common.output.note(f"{path}: has segments that were kept or copied; it is searched too")
    with spark_session("cleanerd audit") as session, common.output.progress("audit") as advance:
        logs = ReadableLogs(session, [*dirs, *kept], lambda topic: key_rules(settings, topic))
        found = logs.find_records(terms, limit=limit, advance=advance)
    if common.output.as_json:
        unsearched = [each.what for each in elsewhere.unsearched]
        common.output.json({**_erasure_document([*dirs, *kept], terms, found), "unsearched": unsearched})
    else:
        searched = f"{human_count(found.files)} files, {human_bytes(found.size_bytes)}"
        show_found(common.output, terms, found.occurrences, searched, count=found.found)
    if warn_of_unsearched(common.output, found.unread, elsewhere):
        return CorruptionError.exit_code
    return FOUND if expect_absent and found.found else 0


def _erasure_document(paths: list[Path], terms: tuple[Term, ...], found: Erasure) -> dict[str, object]:
    return {
        "paths": [str(path) for path in paths],
        "files": found.files,
        "bytes": found.size_bytes,
        "found": found.found,
        **terms_document(terms, found.occurrences),
        "unread": list(found.unread),
    }
