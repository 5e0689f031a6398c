"""``cleanerd spark profile``: the logs' keys, and what a cleaning would do. Reads only."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleanerd.cli.clean_end import clean_end_of_logs
from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.cli.selecting import existing_dirs, partition_option, strategy_option
from cleanerd.cli.spark import spark_command
from cleanerd.errors import CorruptionError
from cleanerd.humanize import counted, human_bytes, human_change, human_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.spark.profile import Profile


def _check(given: Mapping[str, Any]) -> None:
    if given["report"] is not None:
        from cleanerd.spark.launch import require_packages  # noqa: PLC0415
        from cleanerd.spark.report.files import require_new  # noqa: PLC0415 - needs pyarrow

        require_packages()
        require_new(given["report"])


@click.command("profile")
@spark_command(alone=lambda _given: True, check=_check)
@existing_dirs("log_dirs", "LOG_DIR...", urls=True)
@partition_option
@strategy_option("offset, timestamp or header:NAME. Default: the settings.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, readable=False),
    metavar="DIR",
    help="Create DIR with a page of charts, and the figures as JSON and Parquet.",
)
def profile(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    strategy: tuple[str, str] | None,
    report: Path | None,
) -> int:
    """Count keys, versions and tombstones in the closed segments of each partition, and show the possible saving.

    It also shows the offset map and the passes that a cleaning needs with this host's settings. Exit code 5 if bytes
    could not be read.
    """
    from cleanerd.spark.api import ReadableLogs  # noqa: PLC0415 - needs pyarrow
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    settings = common.load_settings()
    names = tuple(select_in(partitions, log_dirs))
    with spark_session("cleanerd profile") as session:
        logs = ReadableLogs(
            session, log_dirs, lambda topic: key_rules(settings, topic, strategy), partitions=names or None
        )
        with common.output.progress("profile", total=logs.size_bytes) as advance:
            found = logs.profile(clean_end_of=clean_end_of_logs(settings), advance=advance)
        if report is not None:
            logs.write_report(found, report)
    if common.output.as_json:
        common.output.json({"partitions": [_document(each, settings) for each in found]})
    else:
        _print_report(common, found, settings)
    damaged = [text for each in found for text in each.damaged]
    for text in damaged:
        common.output.warning(text)
    return CorruptionError.exit_code if damaged else 0


def _map(each: Profile, settings: Settings) -> tuple[int, int]:
    """Bytes of a map for all keys, and the number of passes with the configured memory."""
    from cleanerd.spark.profile import map_bytes  # noqa: PLC0415

    daemon = settings.daemon
    needed = map_bytes(each.keys, versioned=each.strategy != "offset", load=daemon.log_cleaner_io_buffer_load_factor)
    return needed, max(1, -(-needed // daemon.log_cleaner_dedupe_buffer_size))


def _document(each: Profile, settings: Settings) -> dict[str, object]:
    needed, passes = _map(each, settings)
    return {**each.document(), "map_bytes": needed, "passes": passes}


def _print_report(common: Common, found: Sequence[Profile], settings: Settings) -> None:
    titles = (
        "records", "keys", "superseded", "tombstones", "no version", "records/key 50% 90% 99% max",
        "bytes/key 50% 90% 99% max", "on disk", "would save", "map", "passes",
    )  # fmt: skip
    common.output.table(
        [Column("partition"), Column("strategy"), *(Column(title, right=True) for title in titles)],
        [_row(each, settings) for each in found],
    )
    for each in found:
        odd = {
            "without a key": each.no_key, "not committed or below the log start": each.unseen,
            "with a malformed version": each.misversioned, "in the active segment": each.active,
        }  # fmt: skip
        oddities = [f"{human_count(count)} {what}" for what, count in odd.items() if count]
        if oddities:
            common.output.line(f"{each.name}: records {', '.join(oddities)}")
        if each.wrong_time:
            common.output.warning(f"{each.name}: {each.wrong_time}")
        if each.repacked.note:
            common.output.warning(f"{each.name}: {each.repacked.note}")
        if each.elsewhere:
            common.output.warning(
                f"{each.name}: {counted(each.elsewhere, 'key')} of {each.keys:,} also have a value in another "
                "partition of the topic, and compaction keeps both (partitions were added, or a producer uses another "
                "partitioner). Write a tombstone to the partition where the key no longer belongs"
            )
    _print_topics(common, found)


def _print_topics(common: Common, found: Sequence[Profile]) -> None:
    from cleanerd.spark.report.topics import by_topic  # noqa: PLC0415 - needs pyarrow

    now_ms = time.time_ns() // 1_000_000
    titles = ("partitions", "on disk", "would save", "share", "other winner", "not cleaned", "for")
    common.output.table(
        [Column("topic"), *(Column(title, right=True) for title in titles)],
        [each.cells(now_ms) for each in by_topic(found)],
    )
    if any(each.overtaken for each in found):
        common.output.line("other winner: keys whose winner is not the last record, which is the one that Kafka keeps")
    stored, saved = sum(each.stored_bytes for each in found), sum(each.saved_bytes for each in found)
    common.output.line(f"{counted(len(found), 'partition')}: {human_change(stored, stored - saved)}")


def _row(each: Profile, settings: Settings) -> list[str]:
    needed, passes = _map(each, settings)
    return [
        str(each.name),
        each.strategy,
        human_count(each.records),
        human_count(each.keys),
        f"{each.superseded_share:.1%}",
        human_count(each.tombstones),
        human_count(each.unversioned) if each.strategy == "header" else "-",
        " ".join(human_count(count) for count in each.records_a_key),
        " ".join(human_bytes(count) for count in each.bytes_a_key),
        human_bytes(each.stored_bytes),
        human_bytes(each.saved_bytes),
        human_bytes(needed),
        str(passes),
    ]
