"""``cleanerd spark snapshot``: the latest state of topics, by their strategies, as Parquet. Changes no log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cleanerd.cli.output import Column, human_count
from cleanerd.cli.scope import key_rules, parse_partitions
from cleanerd.cli.spark import spark_verb
from cleanerd.errors import ConfigError
from cleanerd.words import counted

if TYPE_CHECKING:
    from cleanerd.cli.options import Common


@click.command("snapshot")
@spark_verb
@click.argument(
    "log_dirs",
    metavar="LOG_DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--out", required=True, metavar="DIR", help="A new directory, or any URL that Spark can write to.")
@click.option("--partition", "partitions", multiple=True, metavar="TOPIC-N", help="Only this partition. Repeatable.")
@click.option("--tombstones", is_flag=True, help="Deleted keys too, by the record that deletes them.")
def snapshot(
    common: Common, log_dirs: tuple[Path, ...], *, out: str, partitions: tuple[str, ...], tombstones: bool
) -> int:
    """Write of each key the record that wins it under its topic's strategy: key, value, headers, timestamp, offset.

    Committed records from the log start to the end of the log count, the active segment's too. A topic is a
    sub-directory; timestamps are Kafka's milliseconds.
    """
    if "://" not in out and Path(out).exists():
        raise ConfigError("exists already", where=out, hint="name a new directory: a snapshot replaces nothing")
    from cleanerd.spark.logs import find_logs, size_of_all  # noqa: PLC0415 - needs pyspark, which only a driver has
    from cleanerd.spark.session import spark_session  # noqa: PLC0415
    from cleanerd.spark.snapshot import write_snapshot  # noqa: PLC0415

    settings = common.load_settings()
    logs = find_logs(log_dirs, parse_partitions(partitions), lambda topic: key_rules(settings, topic))
    target = out if "://" in out else Path(out).resolve().as_uri()
    total = size_of_all(logs)
    with spark_session("cleanerd snapshot") as session, common.output.progress("snapshot", total=total) as advance:
        taken = write_snapshot(session, logs, target, tombstones=tombstones, advance=advance)
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
