"""``cleanerd spark divergence``: whether replicas of several brokers have the same records. Reads only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from cleanerd.cli.audit import show_key
from cleanerd.cli.clean_end import clean_end_of_logs
from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.cli.selecting import existing_dirs, partition_option
from cleanerd.cli.spark import spark_command
from cleanerd.errors import CorruptionError
from cleanerd.humanize import counted, human_count
from cleanerd.inspection.report import bytes_fields

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.spark.divergence import Divergence, Replica, ReplicaComparison


@click.command("divergence")
@spark_command(alone=lambda _options: True)
@existing_dirs("dirs", "LOG_DIR LOG_DIR...", urls=True)
@partition_option
@click.option("--examples", type=click.IntRange(1, 100_000), default=20, show_default=True, metavar="N",
              help="At most N records, with their keys, per kind and pair of replicas.")  # fmt: skip
def divergence(common: Common, dirs: tuple[Path, ...], *, partitions: tuple[str, ...], examples: int) -> int:
    """Compare the replicas in each further LOG_DIR with those in the first one, and name the keys that differ.

    Only offsets that both replicas have are compared, up to the lower high watermark. Differences by retention, by
    cleanings at other times and by expired tombstones are only counted. Exit code 5 if there are others.
    """
    if len(dirs) < 2:
        raise click.UsageError("give at least two directories")
    from cleanerd.spark.api import ReadableLogs  # noqa: PLC0415 - needs pyarrow
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    settings = common.load_settings()
    names = tuple(select_in(partitions, dirs[:1]))

    with spark_session("cleanerd divergence") as session:
        logs = ReadableLogs(session, dirs[0], lambda topic: key_rules(settings, topic), partitions=names or None)
        total = logs.size_bytes * len(dirs)
        with common.output.progress("divergence", total=total) as advance:
            compared = logs.compare_replicas(
                dirs[1:], clean_end_of=clean_end_of_logs(settings), advance=advance, examples=examples
            )
    for note in compared.notes:
        common.output.warning(note)
    if common.output.as_json:
        common.output.json({
            "findings": compared.found,
            "partitions": [_document(each) for each in compared.partitions],
        })  # fmt: skip
    else:
        _print_report(common, compared)
    return CorruptionError.exit_code if compared.found else 0


def _document(each: Divergence) -> dict[str, object]:
    from cleanerd.spark.divergence import KINDS  # noqa: PLC0415

    def replica(side: Replica) -> dict[str, object]:
        return {
            "log_dir": str(side.log_dir),
            "begin_offset": side.begin,
            "stable_end_offset": side.end_offset,
            "clean_below": side.clean_end,
        }

    return {
        "topic": each.name.topic,
        "partition": each.name.partition,
        "one": replica(each.one),
        "other": replica(each.other),
        "begin_offset": each.begin,
        "end_offset": each.end,
        "compared": not each.has_no_common_offset,
        "records_in_both": each.records,
        "cleaned_in_one": each.cleaned,
        "expired_in_one": each.expired,
        "attributes_zeroed": each.zeroed,
        "findings": {kind: each.findings[kind] for kind in KINDS},
        "records": [
            {
                "kind": place.kind,
                "offset": place.offset,
                "file": place.file,
                **({} if place.key is None else bytes_fields("key", place.key)),
                "what": place.what,
            }
            for place in each.places
        ],
        "first_offsets": {kind: offset for kind, offset in each.examples.items() if offset >= 0},
        "damaged": each.damaged,
    }


def _print_report(common: Common, compared: ReplicaComparison) -> None:
    from cleanerd.spark.divergence import KINDS  # noqa: PLC0415

    columns = [
        Column("partition"), Column("against"), Column("offsets"), Column("in both", right=True),
        Column("cleaned in one", right=True), Column("expired in one", right=True), Column("verdict"),
    ]  # fmt: skip
    common.output.table(columns, [_row(each) for each in compared.partitions])
    for each in compared.partitions:
        for place in each.places:
            key = "" if place.key is None else f" key {show_key(place.key)}"
            common.output.line(f"{each.name} {place.kind} offset {place.offset}{key}: {place.file}: {place.what}")
        shown = Counter(place.kind for place in each.places)
        for kind, count in each.findings.items():
            if kind != "damaged" and count > shown[kind]:
                common.output.line(f"{each.name} {kind}: {counted(count - shown[kind], 'more record')} (--examples)")
        for text in each.damaged:
            common.output.line(f"{each.name} damaged: {text}")
    kinds = [kind for kind in KINDS if any(each.findings[kind] for each in compared.partitions)]
    for kind in kinds:
        common.output.line(f"{kind}: {KINDS[kind]}")
    apart = sum(each.has_no_common_offset for each in compared.partitions)
    if apart:
        common.output.line(f"{counted(apart, 'pair')} of replicas without a common offset: not compared")
    if not kinds:
        pairs = counted(len(compared.partitions) - apart, "pair")
        common.output.line(f"{pairs} of replicas: cleanings explain all differences")


def _row(each: Divergence) -> list[str]:
    found = [f"{human_count(count)} {kind}" for kind, count in each.findings.items() if count]
    return [
        str(each.name),
        str(each.other.log_dir),
        f"{each.begin}-{each.end}",
        human_count(each.records),
        human_count(each.cleaned),
        human_count(each.expired),
        ", ".join(found) or ("no offset in both" if each.has_no_common_offset else "the same"),
    ]
