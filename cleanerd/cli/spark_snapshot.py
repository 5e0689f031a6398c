"""``cleanerd spark snapshot``: the latest state of topics, by their strategies, as Parquet. Changes no log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.cli.selecting import existing_dirs, partition_option
from cleanerd.cli.spark import spark_verb
from cleanerd.words import counted, human_count

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cli.options import Common


@click.command("snapshot")
@spark_verb(alone=lambda given: "://" not in given["out"])
@existing_dirs("log_dirs", "LOG_DIR...", urls=True)
@click.option("--out", required=True, metavar="DIR", help="A new directory, or any URL that Spark can write to.")
@partition_option
@click.option("--whole-log", is_flag=True, help="Past the high watermark and open transactions, to the end of the log.")
@click.option("--tombstones", is_flag=True, help="Deleted keys too, by the record that deletes them.")
def snapshot(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    out: str,
    partitions: tuple[str, ...],
    whole_log: bool,
    tombstones: bool,
) -> int:
    """Write of each key the record that wins it under its topic's strategy: key, value, headers, timestamp, offset.

    What a read_committed consumer would get counts: from the log start to the high watermark, and no further than the
    first open transaction. A topic is a sub-directory; the offsets are in _cleanerd, written last.
    """
    from cleanerd.spark.api import Logs  # noqa: PLC0415 - needs pyarrow
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    settings = common.load_settings()
    names = tuple(select_in(partitions, log_dirs))
    with spark_session("cleanerd snapshot") as session:
        logs = Logs(session, log_dirs, lambda topic: key_rules(settings, topic), partitions=names or None)
        latest = logs.latest(tombstones=tombstones, whole_log=whole_log)
        with common.output.progress("snapshot", total=logs.size_bytes) as advance:
            taken = latest.write_parquet(out, advance=advance)
    if common.output.as_json:
        rows = [
            {
                "topic": each.name.topic,
                "partition": each.name.partition,
                "strategy": each.strategy,
                "log_start_offset": each.log_start,
                "end_offset": each.end_offset,
                "records": each.keys,
            }
            for each in taken
        ]
        common.output.json({"out": out, "records": sum(each.keys for each in taken), "partitions": rows})
    else:
        titles = [Column("partition"), Column("strategy"), Column("keys", right=True), Column("up to", right=True)]
        common.output.table(
            titles, [[str(each.name), each.strategy, human_count(each.keys), str(each.end_offset)] for each in taken]
        )
        common.output.line(f"{counted(sum(each.keys for each in taken), 'record')} in {out}")
    return 0
