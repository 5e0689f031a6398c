"""``cleanerd demo`` ends with exit code 1 when the topic with versions, or a DataFrame, is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cleanerd.cli.output import Output
from cleanerd_lab.bench.process import Cost
from cleanerd_lab.demo.compare import WrongKeys
from cleanerd_lab.demo.dataframe import SparkRead
from cleanerd_lab.demo.kafka_cleaner import KafkaCleaning
from cleanerd_lab.demo.page import Page
from cleanerd_lab.demo.race import RaceFacts
from cleanerd_lab.demo.run import StepRunner, report_end
from cleanerd_lab.demo.story import Cleaned, Demo, KafkaResult, SecondCleaning
from cleanerd_lab.demo.strategies import (
    BY_CLEANERD,
    BY_KAFKA,
    NOT_CLEANED,
    PLAIN,
    Compared,
    DayLater,
    Delegated,
    View,
)

if TYPE_CHECKING:
    from collections.abc import Callable

READ = SparkRead("orders", records=10, keys=5, wrong_records=0, wrong_keys=0, seconds=1.0)
KAFKAS = WrongKeys(other_value=5, deleted_but_back=1)
COMPARED = Compared(
    views=(
        View(NOT_CLEANED, PLAIN, 100, KAFKAS),
        View(NOT_CLEANED, "LatestState", 100, WrongKeys()),
        View(BY_KAFKA, PLAIN, 10, KAFKAS),
        View(BY_CLEANERD, PLAIN, 10, WrongKeys()),
    ),
    as_promised=True,
    kafka_by_its_rules=True,
)
LATER = DayLater(
    late_writes=3,
    late_to_deleted=1,
    tombstones_before=4,
    tombstones_gone=3,
    tombstones_waiting=1,
    wrong=WrongKeys(),
    as_expected=True,
)


def _wrong_view(number: int) -> Compared:
    views = list(COMPARED.views)
    views[number] = replace(views[number], wrong=WrongKeys(live_but_gone=1))
    return replace(COMPARED, views=tuple(views))


def _run(compared: Compared, later: DayLater, read: SparkRead) -> Demo:
    """A demonstration that did nothing, and in which the rest is right."""

    def gives(result: object) -> Callable[..., object]:
        return lambda *_: result

    entry: dict[str, Any] = {"strategy": "header", "records_read": 1, "records_kept": 1, "removed": {"superseded": 0}}
    strategies = SimpleNamespace(
        delegate_and_race=gives(Delegated({"min.cleanable.dirty.ratio": "1"}, RaceFacts(100, 10, 9, 3, 2, 5, 4))),
        clean=gives(entry),
        read_cleaned=gives(None),
        write_late=gives(None),
        let_kafka_clean=gives(compared),
        clean_a_day_later=gives(later),
    )
    cost = Cost(1.0, 1.0)
    run = SimpleNamespace(
        work_dir=Path("nowhere"),
        log_dir=Path("nowhere"),
        start_and_write=gives([]),
        stop_and_copy=gives(None),
        clean=gives(Cleaned({}, {}, cost, cost)),
        start_and_read=gives([]),
        write_once_more=gives(SecondCleaning(1, 1)),
        kafka_cleans=gives(KafkaResult(KafkaCleaning(1.0, 1.0), {}, {})),
        strategies=strategies,
        read_by_spark=gives(read),
    )
    return cast("Demo", run)


@pytest.mark.parametrize(
    ("compared", "later", "read", "exit_code"),
    [
        (COMPARED, LATER, READ, 0),
        (_wrong_view(1), LATER, READ, 1),
        (_wrong_view(2), LATER, READ, 0),
        (_wrong_view(3), LATER, READ, 1),
        (replace(COMPARED, as_promised=False), LATER, READ, 1),
        (replace(COMPARED, kafka_by_its_rules=False), LATER, READ, 1),
        (COMPARED, replace(LATER, wrong=WrongKeys(deleted_but_back=1)), READ, 1),
        (COMPARED, replace(LATER, as_expected=False), READ, 1),
        (COMPARED, LATER, replace(READ, wrong_records=1), 1),
        (COMPARED, LATER, replace(READ, wrong_keys=1), 1),
        (COMPARED, LATER, replace(READ, records=0), 1),
    ],
    ids=[
        "good",
        "LatestState wrong",
        "Kafka wrong, as always",
        "cleanerd wrong",
        "not what LatestState said",
        "Kafka's cleaner broken",
        "a deleted key is back",
        "a tombstone too many",
        "a record of a DataFrame",
        "a key of a DataFrame",
        "an empty DataFrame",
    ],
)
def test_any_difference_is_exit_code_1(
    capsys: pytest.CaptureFixture[str], compared: Compared, later: DayLater, read: SparkRead, exit_code: int
) -> None:
    page = Page(Output())
    good, document = StepRunner(page, _run(compared, later, read)).run()
    assert report_end(Output(), page, good=good, seconds=0.0, document=document) == exit_code
    printed = capsys.readouterr().out
    assert ("SOMETHING DIFFERS" in printed) == bool(exit_code)
    assert "keys wrong" in printed
