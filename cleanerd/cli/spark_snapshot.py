"""``cleanerd spark snapshot``: writes the latest state of topics, by their strategies, as Parquet or a table.

This module also has the options for decoding, and finds how long a topic's tombstones stay.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, cast

import click

from cleanerd.cli.output import Column
from cleanerd.cli.scope import key_rules, select_in
from cleanerd.cli.selecting import existing_dirs, partition_option
from cleanerd.cli.spark import spark_command
from cleanerd.errors import CleanerdError
from cleanerd.humanize import counted, human_count
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.remote import RemotePath
from cleanerd.spark.launch import require_packages
from cleanerd.spark.values.decode_options import FRAMINGS, LIMIT, Decode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cleanerd.cli.options import Common
    from cleanerd.config.load import Settings
    from cleanerd.spark.snapshot import SnapshotResult
    from cleanerd.spark.tables.merge import Merged
    from cleanerd.spark.tables.target import Delta, Iceberg

_NAMES: Final = ("schemas", "value_schema", "key_schema", "value_message", "key_message", "framing", "undecoded_limit")


def decode_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The decoding options; :func:`decode_from` combines them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def decode_from(given: Mapping[str, Any]) -> Decode | None:
    """The decoding from the options; None: nothing is to be decoded.

    Raises:
        click.UsageError: they contradict each other.
        ConfigError: one is invalid.
    """
    if given["decode"] is None:
        for name in _NAMES:
            if given[name] is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --decode")
        return None
    if given["schemas"] is None:
        raise click.UsageError("--decode needs --schemas: a schema registry's URL, or a directory")
    limit = given["undecoded_limit"]
    return Decode(
        given["schemas"],
        given["decode"],
        value_schema=given["value_schema"],
        key_schema=given["key_schema"],
        value_message=given["value_message"],
        key_message=given["key_message"],
        framing=given["framing"] or FRAMINGS[0],
        limit=LIMIT if limit is None else limit,
    )


_OPTIONS: Final = (
    click.option("--decode", metavar="COLUMNS", help="Decode fields into columns: value, key, or key,value."),
    click.option("--schemas", metavar="URL|DIR", help="A schema registry, or a directory of schemas."),
    click.option(
        "--value-schema", metavar="SUBJECT[:VERSION]", help="Schema of the columns. Default: the latest of TOPIC-value."
    ),
    click.option("--key-schema", metavar="SUBJECT[:VERSION]", help="The same for keys. Default: that of TOPIC-key."),
    click.option("--value-message", metavar="NAME", help="Protobuf: the message's full name. Default: the first."),
    click.option("--key-message", metavar="NAME", help="The same for keys."),
    click.option(
        "--framing",
        type=click.Choice(FRAMINGS),
        help=f"Before a value: a zero byte and a schema's id (confluent), or nothing.  [default: {FRAMINGS[0]}]",
    ),
    click.option(
        "--undecoded-limit",
        type=click.IntRange(min=0),
        metavar="N",
        help=f"Stop if more than N keys and values cannot be decoded.  [default: {LIMIT}]",
    ),
)


_KEY: Final = "delete.retention.ms"
_OF_BROKER: Final = "log.cleaner.delete.retention.ms"


def delete_retention(settings: Settings, log_dirs: Sequence[Path], note: Callable[[str], None]) -> Callable[[str], int]:
    """Each topic's ``delete.retention.ms``: from the settings, else the metadata in ``log_dirs``, else the default.

    If directories differ, the smallest is used. Without any source, this is noted once.
    """
    noted: list[str] = []
    known: list[BrokerFacts] = []
    here = [path for path in log_dirs if not isinstance(path, RemotePath)]
    for path in here:
        with contextlib.suppress(CleanerdError, OSError):  # a copy of some partitions has no metadata
            facts = broker_facts(settings, read_log_dir(path), [other for other in here if other != path])
            if facts.metadata is not None or facts.zk_topics:
                known.append(facts)

    def of_topic(topic: str) -> int:
        if known:
            return min(facts.topic_config(topic).delete_retention_ms for facts in known)
        found = settings.topic_config(topic).delete_retention_ms
        is_set = _KEY in settings.topic_overrides(topic) or _OF_BROKER in settings.broker_defaults()
        if not is_set and not noted:
            noted.append(topic)
            note(
                f"{_KEY} of {topic} is not known here, and treated as {found} ms: if it is lower, deleted keys can "
                f"stay (--set topics.{topic}.{_KEY}=...)"
            )
        return found

    return of_topic


_PARQUET, _DELTA, _ICEBERG = "parquet", "delta", "iceberg"


def _runs_locally(given: Mapping[str, Any]) -> bool:
    """Whether it can run without Spark, which alone can write Parquet files to a URL."""
    return given["format_"] != _PARQUET or "://" not in (given["out"] or "")


def _check(given: Mapping[str, Any]) -> None:
    """Check that the options fit together, and that their packages are installed."""
    decode_from(given)
    target = _Target(**{each.name: given[each.name] for each in fields(_Target)})
    target.require_sense(whole_log=given["whole_log"])
    if target.format_ != _PARQUET:
        require_packages()
    if target.table is not None:
        target.table.require_installed()


@click.command("snapshot")
@spark_command(alone=_runs_locally, check=_check)
@existing_dirs("log_dirs", "LOG_DIR...", urls=True)
@click.option("--out", metavar="DIR", help="A new directory or URL; with --format delta, the table's.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([_PARQUET, _DELTA, _ICEBERG]),
    default=_PARQUET,
    show_default=True,
    help="Parquet files, or a table.",
)
@click.option("--table", "table_name", metavar="NAMESPACE.NAME", help="With --format iceberg: the table.")
@click.option(
    "--catalog",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The catalog's name in pyiceberg's configuration.",
)
@click.option("--incremental", is_flag=True, help="Merge the records since the table's last commit into it.")
@click.option("--replace", is_flag=True, help="Replace all rows of the table.")
@partition_option
@click.option(
    "--whole-log", is_flag=True, help="Read to the end of the log, past high watermark and open transactions."
)
@click.option("--tombstones", is_flag=True, help="Include deleted keys, as the record that deletes them.")
@decode_options
def snapshot(
    common: Common,
    log_dirs: tuple[Path, ...],
    *,
    partitions: tuple[str, ...],
    whole_log: bool,
    tombstones: bool,
    **given: Any,
) -> int:
    """Write the record that the topic's strategy retains for each key: key, value, headers, timestamp, offset.

    The range is that of a read_committed consumer: from the log start to the high watermark, or to the first open
    transaction. Parquet gets one directory per topic; the offsets are in _cleanerd, which is written last. A table gets
    one commit, which stores the offsets; --incremental continues from there.
    """
    target = _Target(**{each.name: given[each.name] for each in fields(_Target)})
    decode = decode_from(given)
    from cleanerd.spark.api import ReadableLogs  # noqa: PLC0415 - needs pyarrow
    from cleanerd.spark.session import spark_session  # noqa: PLC0415

    settings = common.load_settings()
    names = tuple(select_in(partitions, log_dirs))
    with spark_session("cleanerd snapshot") as session:
        logs = ReadableLogs(
            session, log_dirs, lambda topic: key_rules(settings, topic), partitions=names or None, decode=decode
        )
        latest = logs.latest(tombstones=tombstones, whole_log=whole_log)
        with common.output.progress("snapshot", total=logs.size_bytes) as advance:
            done: Sequence[SnapshotResult | Merged]
            if target.table is None:
                done = latest.write_parquet(target.where, advance=advance)
            elif target.incremental:
                retention = delete_retention(settings, log_dirs, common.output.note)
                done = latest.merge_into(target.table, delete_retention_ms=retention, advance=advance)
            else:
                done = latest.write_table(target.table, replace=target.replace, advance=advance)
    if target.incremental:
        _print_merged(common, target, cast("Sequence[Merged]", done))
    else:
        _print_snapshots(common, target, cast("Sequence[SnapshotResult]", done))
    undecoded = sum(each.undecoded for each in done)
    if undecoded and not common.output.as_json:
        common.output.line(f"not decoded: {counted(undecoded, 'value')}, with the reasons in {target.undecoded}")
    return 0


@dataclass(frozen=True, slots=True)
class _Target:
    """The target of the snapshot, from the options."""

    out: str | None
    format_: str
    table_name: str | None
    catalog: str
    incremental: bool
    replace: bool
    decode: str | None

    def require_sense(self, *, whole_log: bool) -> None:
        """Check that the options fit together."""
        if self.format_ == _ICEBERG:
            if self.table_name is None or self.out is not None:
                raise click.UsageError("--format iceberg: give --table NAMESPACE.NAME, and no --out")
        elif self.out is None or self.table_name is not None:
            raise click.UsageError(f"--format {self.format_}: give --out DIR, and no --table")
        if self.format_ == _PARQUET and (self.incremental or self.replace):
            raise click.UsageError("--incremental and --replace need a table: --format delta or iceberg")
        if self.incremental and (self.replace or whole_log):
            raise click.UsageError("--incremental cannot be used with --replace or --whole-log")

    @property
    def table(self) -> Delta | Iceberg | None:
        """The table, None if Parquet files are requested."""
        from cleanerd.spark.tables.target import Delta, Iceberg  # noqa: PLC0415

        if self.format_ == _ICEBERG:
            return Iceberg(str(self.table_name), self.catalog)
        return Delta(self.where) if self.format_ == _DELTA else None

    @property
    def decodes(self) -> bool:
        """Whether some values may not be decodable."""
        return self.decode is not None

    @property
    def undecoded(self) -> str:
        """Where undecoded values are."""
        if self.table is None:
            return f"{self.where}/_undecoded"
        return self.table.undecoded().where

    @property
    def where(self) -> str:
        """Its name in messages: the path or URL if it has one."""
        return str(self.table_name if self.out is None else self.out)


def _print_snapshots(common: Common, target: _Target, taken: Sequence[SnapshotResult]) -> None:
    records = sum(each.keys for each in taken)
    if common.output.as_json:
        rows = [{**_row(target, each), "records": each.keys} for each in taken]
        common.output.json({"out": target.where, "records": records, "partitions": rows})
        return
    titles = [Column("partition"), Column("strategy"), Column("keys", right=True), Column("up to", right=True)]
    common.output.table(
        titles, [[str(each.name), each.strategy, human_count(each.keys), str(each.end_offset)] for each in taken]
    )
    common.output.line(f"{counted(records, 'record')} in {target.where}")


def _print_merged(common: Common, target: _Target, merged: Sequence[Merged]) -> None:
    written, removed = sum(each.written for each in merged), sum(each.removed for each in merged)
    if common.output.as_json:
        rows = [
            {**_row(target, each), "begin_offset": each.begin, "written": each.written, "removed": each.removed}
            for each in merged
        ]
        common.output.json({"out": target.where, "written": written, "removed": removed, "partitions": rows})
        return
    titles = [
        Column("partition"), Column("strategy"), Column("from", right=True), Column("up to", right=True),
        Column("written", right=True), Column("removed", right=True),
    ]  # fmt: skip
    lines = [
        [
            str(each.name), each.strategy, str(each.begin), str(each.end_offset),
            human_count(each.written), human_count(each.removed),
        ]
        for each in merged
    ]  # fmt: skip
    common.output.table(titles, lines)
    common.output.line(f"{counted(written, 'row')} written, {removed} removed in {target.where}")


def _row(target: _Target, each: SnapshotResult | Merged) -> dict[str, Any]:
    return {
        "topic": each.name.topic,
        "partition": each.name.partition,
        "strategy": each.strategy,
        "log_start_offset": each.log_start,
        "end_offset": each.end_offset,
        **({"undecoded": each.undecoded} if target.decodes else {}),
    }
