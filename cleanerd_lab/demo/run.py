"""``cleanerd demo``: a real broker, real traffic, and cleanerd; prints the results."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cleanerd.cli.options import Common, common_options
from cleanerd.errors import ConfigError
from cleanerd.humanize import human_bytes, human_count, human_ms
from cleanerd_lab.demo.dataframe import LINES, can_read
from cleanerd_lab.demo.jars import find_kafka
from cleanerd_lab.demo.live import LiveDemo
from cleanerd_lab.demo.live_report import live_document, report_live
from cleanerd_lab.demo.page import Page
from cleanerd_lab.demo.returning import BY_CLEANERD, KEY, RETENTION_MS, Returned, ReturningReplica
from cleanerd_lab.demo.story import OFF_LIMITS, Cleaned, Demo, KafkaResult, SecondCleaning, log_bytes
from cleanerd_lab.demo.strategies_report import (
    report_cleaned,
    report_compared,
    report_day_later,
    report_race,
    strategies_document,
)
from cleanerd_lab.demo.traffic import PRODUCERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cleanerd.cli.output import Output
    from cleanerd_lab.demo.compare import ReadersComparison
    from cleanerd_lab.demo.dataframe import SparkRead
    from cleanerd_lab.demo.traffic import AcknowledgedTopic

FAILED: Final = 1
ONCE_MORE_RECORDS: Final = 100


@click.command("demo")
@common_options
@click.option(
    "--records",
    default=300_000,
    show_default=True,
    type=click.IntRange(min=5_000, max=3_000_000),
    metavar="N",
    help="How many records to write, over all topics.",
)
@click.option(
    "--kafka-libs",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Jars of a Kafka release: an unpacked release, or a directory with libs-X.Y.Z. "
    "Default: $KAFKA_LIBS, otherwise .cache/kafka.",
)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Work in DIR and keep all files.")
@click.option("--seed", default=1, show_default=True, metavar="N", help="Seed of the generated traffic.")
@click.option(
    "--seconds",
    default=30,
    show_default=True,
    type=click.IntRange(min=5, max=86_400),
    metavar="N",
    help="How long the daemon runs.",
)
@click.option("--stay", is_flag=True, help="Keep the daemon running until Ctrl-C, so that you can open its page.")
@click.option("--only", type=click.Choice(["live", "offline"]), help="Show one part. Default: both.")
def demo(
    common: Common,
    *,
    records: int,
    kafka_libs: Path | None,
    keep: Path | None,
    seed: int,
    seconds: int,
    stay: bool,
    only: str | None,
) -> int:
    """Show cleanerd on the logs of real brokers, and compare it with Kafka's own cleaner.

    Live: Kafka runs on 127.0.0.1 with the agent, several producers write, and the daemon cleans. Its status page is
    open. Offline: Kafka is stopped, cleanerd clean runs on five topics, one per codec, and Kafka starts again. What
    consumers read is compared with what was acknowledged, and with a copy that Kafka's own cleaner cleaned. On a sixth
    topic records arrive out of order, and compaction.strategy=header keeps the highest versions. A broker is away while
    a key is deleted: with Kafka's cleaner the key comes back, with cleanerd it does not. If cleanerd[spark] is
    installed, PySpark reads a cleaned topic as a DataFrame. Exit code 1 if anything differs.
    """
    common.load_settings()
    release = find_kafka(kafka_libs)
    if shutil.which("java") is None:
        raise ConfigError("java is missing", hint="install a Java runtime, 17 or newer")
    started = time.monotonic()
    page = Page(common.output)
    good = True
    document: dict[str, object] = {"kafka_version": release.version}
    with _work_dir(keep) as work_dir:
        page.line(f"Kafka {release.version} on 127.0.0.1, all files in {work_dir}")
        if only != "offline":
            page.part("While the broker runs")
            with LiveDemo(release, work_dir / "live", seed=seed) as live:
                result = report_live(page, live, seconds=seconds, stay=stay)
            good, document["live"] = result.good, live_document(result)
        if only != "live":
            page.part("While the broker is stopped, compared with Kafka's own cleaner")
            with Demo(release, work_dir, records=records, seed=seed) as run:
                offline_good, offline = StepRunner(page, run).run()
            with ReturningReplica(release, work_dir / "replicas") as replicas:
                returned = report_returned(page, replicas)
            good = good and offline_good and all(each.is_deleted for each in returned if each.topic == BY_CLEANERD)
            document |= {
                **offline,
                "returned": [{"topic": each.topic, "deleted": each.is_deleted} for each in returned],
            }
    return report_end(common.output, page, good=good, seconds=time.monotonic() - started, document=document)


def report_returned(page: Page, replicas: ReturningReplica) -> list[Returned]:
    """Run the scenario of a replica that returns too late; returns what happened to the deleted key."""
    with page.step("A replica is away while a key is deleted, and returns"):
        replicas.start()
        replicas.delete_while_down()
        returned = replicas.return_as_leader()
    page.print(
        f"Broker 2 stopped. The key {KEY.decode()} was deleted, and broker 1 was cleaned after "
        f"delete.retention.ms ({human_ms(RETENTION_MS)} here). Then broker 2 returned and became the leader, and a "
        "consumer read from it."
    )
    page.table(
        ("topic", "tombstone on broker 1 at the return", "the deleted key on broker 2", ""),
        [
            [
                each.topic,
                "still there" if each.tombstone else "gone",
                "deleted" if each.is_deleted else "the old value is BACK",
                "good" if each.is_deleted else "Kafka's rule",
            ]
            for each in returned
        ],
    )
    page.print("cleanerd keeps a tombstone until every replica has it: docs/deleted-keys.md.")
    return returned


def report_end(output: Output, page: Page, *, good: bool, seconds: float, document: Mapping[str, object]) -> int:
    """Print the last line, or everything as JSON; returns the exit code."""
    page.line()
    page.line(f"{'Everything is as it should be' if good else 'SOMETHING DIFFERS, see above'}. {seconds:.0f} s.")
    if output.as_json:
        output.json({"good": good, "seconds": round(seconds, 3), **document})
    return 0 if good else FAILED


@contextlib.contextmanager
def _work_dir(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="cleanerd-demo-", ignore_cleanup_errors=True) as work_dir:
            yield Path(work_dir)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise ConfigError("exists and is not an empty directory", where=str(keep), hint="give --keep another one")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


class StepRunner:
    """Runs the steps one after the other and reports each result."""

    def __init__(self, page: Page, run: Demo) -> None:
        self._page = page
        self._run = run
        self._bytes_before: dict[str, int] = {}

    def run(self) -> tuple[bool, dict[str, object]]:
        """Run all steps: returns whether all is well, and the document for ``--json``."""
        page, run = self._page, self._run
        with page.step("A broker starts, and producers write"):
            written = run.start_and_write()
        self._report_written(written)
        with page.step("Producers race, and their versions arrive out of order"):
            raced = run.strategies.delegate_and_race()
        report_race(page, raced)
        with page.step("The broker is stopped; cleanerd cleans its log directory"):
            run.stop_and_copy()
            cleaned = run.clean()
            by_version = run.strategies.clean()
        self._report_cleaned(cleaned)
        report_cleaned(page, by_version)
        with page.step("The broker starts on the cleaned directory; consumers read everything"):
            verdicts = run.start_and_read(cleaned)
            run.strategies.read_cleaned()
            run.strategies.write_late()
            once_more = run.write_once_more(ONCE_MORE_RECORDS)
        self._report_read(verdicts, once_more)
        with page.step("Kafka's own cleaner does the same work on a copy"):
            kafka = run.kafka_cleans()
        self._report_kafka(cleaned, kafka)
        with page.step("Kafka's cleaner cleans the topic of the race, on the copy"):
            compared = run.strategies.let_kafka_clean()
        report_compared(page, compared)
        with page.step("Late writes, and a day later"):
            later = run.strategies.clean_a_day_later()
        report_day_later(page, later)
        dataframe = None
        if can_read():
            with page.step("PySpark reads the files of a topic, without a broker"):
                dataframe = run.read_by_spark()
            self._report_dataframe(dataframe)
        else:
            page.print("PySpark is not installed (cleanerd[spark]): its part is skipped.")
        good = (
            all(verdict.good for verdict in verdicts)
            and once_more.read_back == once_more.written
            and all(kafka.same_records.values())
            and compared.good
            and later.good
            and (dataframe is None or dataframe.good)
        )
        document = _document(written, cleaned, verdicts, once_more, kafka)
        document["strategies"] = strategies_document(raced, by_version, compared, later)
        if dataframe is not None:
            document["dataframe"] = {**dataclasses.asdict(dataframe), "good": dataframe.good}
        return good, document

    def _report_dataframe(self, read: SparkRead) -> None:
        self._page.print(LINES.rstrip())
        self._page.print("Compared with every offset, key and value that the broker had acknowledged.")
        self._page.table(
            ("topic", "records", "keys alive", "wrong records", "wrong keys", ""),
            [
                [
                    read.topic,
                    human_count(read.records),
                    human_count(read.keys),
                    human_count(read.wrong_records),
                    human_count(read.wrong_keys),
                    "good" if read.good else "WRONG",
                ]
            ],
        )

    def _report_written(self, written: list[AcknowledgedTopic]) -> None:
        self._bytes_before = {each.topic: log_bytes(self._run.log_dir, each.topic) for each in written}
        off_limits = ", ".join(f"{name}={value}" for name, value in OFF_LIMITS.items())
        self._page.print(
            f"One compacted topic for each codec, with {PRODUCERS} idempotent producers each. Every key is updated "
            f"many times, so most records are superseded. Kafka's own cleaner skips these topics ({off_limits})."
        )
        self._page.table(
            ("topic", "acknowledged", "keys", "deletes", "bytes"),
            [
                [
                    each.topic,
                    human_count(len(each.records)),
                    human_count(len(each.last_values())),
                    human_count(each.deletes),
                    human_bytes(self._bytes_before[each.topic]),
                ]
                for each in written
            ],
        )

    def _report_cleaned(self, cleaned: Cleaned) -> None:
        self._page.print(
            "Superseded: a newer record has the same key. Tombstones (deletes) stay for delete.retention.ms, one day, "
            "so that consumers see them. Then they are removed, too. The active segment is not changed."
        )
        rows = []
        for topic, after in cleaned.bytes_after.items():
            entry = cleaned.partitions[topic]
            dropped = entry["removed"]
            rows.append(
                [
                    topic,
                    human_count(entry["records_read"]),
                    human_count(dropped["superseded"]),
                    human_count(dropped["tombstone"]),
                    human_count(entry["records_kept"]),
                    human_bytes(self._bytes_before[topic]),
                    human_bytes(after),
                    f"-{100 * (1 - after / self._bytes_before[topic]):.0f} %",
                ]
            )
        titles = ("topic", "read", "superseded", "tombstones", "kept", "bytes before", "after", "")
        self._page.table(titles, rows)

    def _report_read(self, verdicts: list[ReadersComparison], once_more: SecondCleaning) -> None:
        self._page.print("Compared with every offset, key and value that the broker had acknowledged.")
        titles = (
            "topic",
            "read with",
            "records",
            "keys",
            "wrong records",
            "wrong keys",
            "repeated keys",
            "missing at the end",
            "",
        )
        self._page.table(
            titles,
            [
                [
                    verdict.topic,
                    verdict.client,
                    human_count(verdict.records),
                    human_count(verdict.keys),
                    human_count(verdict.wrong_records),
                    human_count(verdict.wrong_keys),
                    human_count(verdict.repeated_keys),
                    human_count(verdict.short_of_end),
                    "good" if verdict.good else "WRONG",
                ]
                for verdict in verdicts
            ],
        )
        self._page.print(
            f"Then {once_more.written} more records were written, and {once_more.read_back} of them were read."
        )

    def _report_kafka(self, cleaned: Cleaned, kafka: KafkaResult) -> None:
        self._page.print(
            "cleanerd: the whole process, with its start, fsync, and the verification of everything that it wrote.\n"
            "Kafka: only its cleaner thread, with CPU time from the operating system and time from the broker's log. "
            "The thread had cleaned another topic before, so its JVM was warm."
        )
        start, cost = cleaned.start, cleaned.cost
        self._page.table(
            ("", "CPU", "time", "bytes after"),
            [
                [
                    "cleanerd clean",
                    human_ms(1000 * cost.cpu_seconds),
                    human_ms(1000 * cost.wall_seconds),
                    human_bytes(sum(cleaned.bytes_after.values())),
                ],
                [
                    "  without the start of the process",
                    human_ms(1000 * max(cost.cpu_seconds - start.cpu_seconds, 0)),
                    human_ms(1000 * max(cost.wall_seconds - start.wall_seconds, 0)),
                    "",
                ],
                [
                    "Kafka's cleaner",
                    human_ms(1000 * kafka.cleaning.cpu_seconds),
                    human_ms(1000 * kafka.cleaning.reported_seconds),
                    human_bytes(sum(kafka.bytes_after.values())),
                ],
            ],
        )
        different = [topic for topic, same in kafka.same_records.items() if not same]
        self._page.print(
            f"A consumer does NOT read the same from both: {', '.join(different)}."
            if different
            else "A consumer reads the same from both, record for record, offset for offset."
        )


def _document(
    written: list[AcknowledgedTopic],
    cleaned: Cleaned,
    verdicts: list[ReadersComparison],
    once_more: SecondCleaning,
    kafka: KafkaResult,
) -> dict[str, object]:
    return {
        "topics": [
            {
                "topic": each.topic,
                "codec": each.codec,
                "acknowledged": len(each.records),
                "keys": len(each.last_values()),
                "deletes": each.deletes,
                "cleaned": cleaned.partitions[each.topic],
                "same_records_as_kafka": kafka.same_records[each.topic],
                "bytes_after": cleaned.bytes_after[each.topic],
                "kafka_bytes_after": kafka.bytes_after[each.topic],
            }
            for each in written
        ],
        "readings": [{**dataclasses.asdict(verdict), "good": verdict.good} for verdict in verdicts],
        "once_more": dataclasses.asdict(once_more),
        "cleanerd": {"cost": dataclasses.asdict(cleaned.cost), "start": dataclasses.asdict(cleaned.start)},
        "kafka": dataclasses.asdict(kafka.cleaning),
    }
