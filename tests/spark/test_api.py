"""``cleanerd.spark.Logs``: a notebook's calls, compared with the data source and the functions of the commands."""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cleanerd.spark
from cleanerd.errors import ConfigError, RefusedError
from cleanerd.spark import Logs
from cleanerd.spark.logs import find_logs
from cleanerd.spark.profile import profile_logs
from cleanerd.spark.strategies import Strategies, keys_of
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.cleaner.driver import NAME
from tests.cli.clean_log_dirs import lock_holder
from tests.spark.audit_model import NOW, Pair
from tests.spark.reading import read_rows
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).resolve().parents[2] / "docs"
STRATEGY = {"users": "header:version"}
ORDERS_ID = uuid.UUID(int=7)


def record(key: str, version: int, value: str | None) -> Record:
    stamp = (b"version", version.to_bytes(8, "big", signed=True))
    return Record(key.encode(), None if value is None else value.encode(), headers=(stamp,))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two topics; of users the older version was written last, and one user was deleted."""
    users = [
        record("a", 5, "new"),
        record("b", 1, "b"),
        record("a", 3, "old"),
        record("c", 1, "c"),
        record("c", 2, None),
    ]
    orders = [Record(b"o%d" % (at % 3), b"%d" % at) for at in range(9)]
    partitions = {
        "users-0": Partition({0: encode_batch(users), 5: encode_batch([record("d", 1, "d")], base_offset=5)}),
        "orders-0": Partition({0: encode_batch(orders), 9: b""}, cleaner_offset=9, topic_id=ORDERS_ID),
        "orders-1": Partition({0: encode_batch(orders), 9: b""}, topic_id=ORDERS_ID),
    }
    return make_log_dir(tmp_path / "data", partitions)


@pytest.mark.long
def test_read_and_latest(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """The DataFrame and the Parquet hold the same retained records, by the topics' strategies."""
    logs = Logs(spark, path, STRATEGY)
    assert logs.read().count() == len(read_rows(path)) == 24
    assert logs.read(view="raw", columns="offset").columns == ["offset"]
    latest = {(row.topic, row.partition, row.offset) for row in logs.latest().dataframe().collect()}
    assert {offset for topic, _, offset in latest if topic == "users"} == {0, 1, 5}
    taken = logs.latest().write_parquet(tmp_path / "out")
    rows = spark.read.schema("topic string, partition int, offset long").parquet(str(tmp_path / "out")).collect()
    assert {(row.topic, row.partition, row.offset) for row in rows} == latest
    assert sum(each.keys for each in taken) == len(latest) == 9
    deleted = logs.latest(tombstones=True).dataframe().where("topic = 'users' AND value IS NULL").collect()
    assert [bytes(row.key) for row in deleted] == [b"c"]
    with pytest.raises(ConfigError, match="exists already"):
        logs.latest().write_parquet(tmp_path / "out")


@pytest.mark.long
def test_profile_and_what_if(spark: SparkSession, path: Path) -> None:
    """As the command's function; under another strategy other records are retained."""
    logs = Logs(spark, [path], STRATEGY, topics=["users"])
    rules = Strategies.of(STRATEGY).rules
    (expected,) = (each for each in profile_logs(spark, find_logs([path], (), rules)) if each.name.topic == "users")
    assert logs.profile() == [expected]
    found = logs.what_if(["offset", "header:version"])
    assert found["header:version"] == [expected]
    assert {name: each[0].strategy for name, each in found.items()} == {"offset": "offset", "header:version": "header"}
    assert {name: each[0].overtaken for name, each in found.items()} == {"offset": 0, "header:version": 1}
    with pytest.raises(ConfigError, match="is not offset"):
        logs.what_if(["newest"])
    frame = logs.profile().to_dataframe()
    assert [(row.topic, row.partition, row.keys, row.saved_bytes) for row in frame.collect()] == [
        (each.name.topic, each.name.partition, each.keys, each.saved_bytes) for each in logs.profile()
    ]
    with pytest.raises(ConfigError, match="needs a Spark session"):
        Logs(None, path).profile().to_dataframe()


def test_what_if_does_not_change_the_first_dirty_offset(path: Path) -> None:
    """It was cleaned by the current strategy, whatever the hypothetical one is."""
    logs = Logs(None, [path], topics=["orders"], partitions=["orders-0"])
    assert {message: each[0].dirty_bytes for message, each in logs.what_if(["offset", "timestamp"]).items()} == {
        "offset": 0,
        "timestamp": 0,
    }


def test_report(path: Path, tmp_path: Path) -> None:
    """From a notebook: the page with a key by its name."""
    logs = Logs(None, [path], STRATEGY)
    logs.write_report(logs.profile(), tmp_path / "report")
    text = (tmp_path / "report" / "profile.html").read_text()
    assert "<b>users</b>: by header another record wins than the last one" in text
    assert "<code>o0</code>" in text
    with pytest.raises(ConfigError, match="exists already"):
        logs.write_report(logs.profile(), tmp_path / "report")


@pytest.mark.long
def test_audit(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Records that a cleaning should have retained are lost, others stale.

    The checkpoint has the first dirty offset.
    """
    cleaned = {2: Record(b"o2", b"2"), 6: Record(b"o0", b"6"), 7: Record(b"o1", b"7")}
    after = make_log_dir(
        tmp_path / "after",
        {"orders-0": Partition({0: b"".join(encode_batch([r], base_offset=at) for at, r in cleaned.items()), 9: b""},
                               cleaner_offset=9)},
    )  # fmt: skip
    logs = Logs(spark, after, topics=["orders"], partitions=["orders-0"])
    audit = logs.audit(path, now_ms=NOW)
    (judged,) = audit.partitions
    assert (judged.question.clean_end, audit.found, dict(judged.findings)) == (9, 1, {"stale": 1})
    assert logs.audit(path, clean_below=0, now_ms=NOW).found == 6  # nothing may be missing there
    with pytest.raises(ConfigError, match="reads one log directory"):
        Logs(spark, [path, after]).audit(path)


def test_stage(spark: SparkSession, tmp_path: Path) -> None:
    """The result of ``cleanerd stage`` with these strategies; a versioned topic must be delegated."""
    log_dir = RichLog(3).write(tmp_path / "logs", 4, 20)
    settings = ["topics.orders.cleanup.policy=compact", f"cleanerd.state.dir={tmp_path}", "cleanerd.disk.reserve=0"]
    how = {"force": True, "from_start": True, "now_ms": NOW_MS}
    (staged,) = Logs(spark, log_dir).stage(settings, **how)
    assert (str(staged.name), staged.outcome) == (NAME, "staged")
    assert staged.removed.superseded > 0
    (plan,) = (log_dir / NAME / ".kstage").glob("*/manifest.json")
    shutil.rmtree(plan.parent)
    assert Logs(spark, log_dir).stage([f"cleanerd.state.dir={tmp_path}"], **how) == [], (
        "no setting says that it is compacted"
    )
    by_version = Logs(spark, log_dir, {"orders": "header:version"}, topics=["orders"])
    (refused,) = by_version.stage(settings, **how)
    assert (refused.outcome, "delegate" in refused.reason) == ("refused", True)
    with pytest.raises(ConfigError, match="unknown key"):
        Logs(spark, log_dir).stage(["cleanerd.state.dri=x"])
    with lock_holder(log_dir), pytest.raises(RefusedError, match="a broker runs"):
        Logs(spark, log_dir).stage(settings, **how)


def test_find_keys(spark: SparkSession, path: Path) -> None:
    """Every place, and no place if there is none."""
    found = Logs(spark, path, STRATEGY).find_keys([b"a", b"nobody"])
    assert [(each.offset, each.visible) for each in found.occurrences] == [(0, True), (2, True)]


def test_arguments(spark: SparkSession, path: Path) -> None:
    """Missing files and invalid arguments are reported at the call."""
    assert [str(log.name) for log in Logs(spark, str(path.parent / "*"), partitions=["orders-1"]).found()] == [
        "orders-1"
    ]
    assert Logs(spark, path).size_bytes == sum(file.stat().st_size for file in path.glob("*/*.log"))
    for made, why in (
        (lambda: Logs(spark, path, partitions=["orders"]), "TOPIC-N"),
        (lambda: Logs(spark, path, topics=["nope"]).found(), "no partition"),
        (lambda: Logs(spark, path / "nowhere").found(), "no such directory"),
        (lambda: Logs(spark, path, {"users": "versions"}), "is not offset"),
    ):
        with pytest.raises(ConfigError, match=why):
            made()
    with pytest.raises(AttributeError):
        _ = cleanerd.spark.Nothing


def test_one_name_or_key_without_a_list(path: Path) -> None:
    """A text is one name, not its letters, and bytes are one key; a value that is not a key proves nothing."""
    logs = Logs(None, path)
    assert Logs(None, path, topics="users").found() == Logs(None, path, topics=["users"]).found()
    assert Logs(None, path, partitions="orders-1").found() == Logs(None, path, partitions=["orders-1"]).found()
    assert logs.find_keys(b"a") == logs.find_keys([b"a"])
    for keys, why in (([], "no key to find"), ("a", "'a' is not bytes"), ([b"b", 5], "not bytes")):
        with pytest.raises(ConfigError, match=why):
            logs.find_keys(keys)  # type: ignore[arg-type]


def test_settings_as_keys_and_back() -> None:
    """The settings that tasks get as a topic's keys equal the original ones."""
    for seed in range(200):
        rules = Pair(seed).rules
        assert Strategies.of({"t": keys_of(rules)}).rules("t") == rules
    assert Strategies.of({}, "timestamp").rules("t") == KeyRules("timestamp")
    assert Strategies.of({"t": "offset"}, "timestamp").rules("t") == KAFKAS_RULES
    assert Strategies.of({}).rules("__cluster_metadata") == KAFKAS_RULES
    assert Strategies.of({}, "timestamp").rules("__consumer_offsets") == KAFKAS_RULES


@pytest.mark.long
@pytest.mark.parametrize("page", ["spark.md", "spark-source.md"])
def test_the_pages_first_lines_work(spark: SparkSession, path: Path, page: str) -> None:
    """The page begins with PySpark code that works unchanged, except for the location of the logs."""
    text = (DOCS / page).read_text()
    (code,) = re.findall(r"\A# [^\n]*\n\n```python\n(.*?)```", text, re.DOTALL)
    places = r'"(/var/lib/kafka|/backup/\*)/data"'
    assert re.search(places, code)
    exec(re.sub(places, repr(str(path)), code), {"spark": spark})  # noqa: S102


@pytest.mark.long
def test_the_pages_notebook_works(spark: SparkSession, tmp_path: Path, path: Path) -> None:
    """Line by line, except for locations: it once merged into a table that no line had created."""
    text = (DOCS / "spark-source.md").read_text()
    (code,) = re.findall(r"\n## Logs: [^\n]*\n\n```python\n(.*?)```", text, re.DOTALL)
    copies = {"/backup/before", "/broker2/data", "/broker3/data"}
    for place in copies:
        shutil.copytree(path, tmp_path / place.strip("/"), copy_function=shutil.copy2)
    places = {"/var/lib/kafka/data", "/tables/orders", "/delta/orders", "/tmp/report", "/var/lib/cleanerd", *copies}  # noqa: S108
    (tmp_path / "tables").mkdir()
    for place in sorted(places, key=len, reverse=True):
        assert place in code
        code = code.replace(place, str(path if place == "/var/lib/kafka/data" else tmp_path / place.strip("/")))
    assert code.count("\n") > 12
    exec(code, {"spark": spark})  # noqa: S102
    assert (tmp_path / "delta/orders/_delta_log").is_dir()
    assert (tmp_path / "tmp/report/profile.html").is_file()
