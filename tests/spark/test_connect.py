"""Spark Connect: a client without Java of its own gets the same results as this process, or a clear refusal."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("grpc_status", reason="Spark Connect's client needs grpcio-status")

from cleanerd.errors import CleanerdError, ConfigError, CorruptionError
from cleanerd.spark import Logs, register, session_info
from cleanerd.spark.task_runner import queries
from tests.spark.archives import cleaned_dir, files_of, partition_of
from tests.spark.audit_model import NOW
from tests.spark.connect_server import started_server
from tests.spark.reading import read_rows
from tests.spark.rich_log import NOW_MS
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.tables import Tables

pytestmark = pytest.mark.long

USERS_ID = uuid.UUID(int=7)
STRATEGY = {"users": "header:version"}


@pytest.fixture(scope="module")
def connect() -> Iterator[SparkSession]:
    """A session of a server in another process."""
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - where its libraries are

    with started_server() as (url, _):
        session = Remote.builder.remote(url).create()
        yield session  # type: ignore[misc]
        session.stop()


def user(key: str, version: int, value: bytes | None) -> Record:
    return Record(key.encode(), value, headers=((b"version", version.to_bytes(8, "big", signed=True)),))


USERS = [user("a", 5, b"new"), user("b", 1, b"b"), user("a", 3, b"old"), user("c", 1, b"c"), user("c", 2, None)]


def make_logs(path: Path, later: list[Record]) -> Path:
    """Of users the older version was written last, and one is deleted; orders has transactions and codecs."""
    users = {0: encode_batch(USERS), 5: encode_batch(later, base_offset=5) if later else b"", 5 + len(later): b""}
    orders = partition_of(scratch=path.parent / "scratch", seed=3, transactions=True, codec=4)
    return make_log_dir(path, {"users-0": Partition(users, topic_id=USERS_ID), "orders-0": orders})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_logs(tmp_path / "data", [])


def test_the_source(connect: SparkSession, path: Path) -> None:
    """By its name alone, as the server finds the module, and registered."""
    expected = len(read_rows(path))
    assert connect.read.format("kafka-segments").load(str(path)).count() == expected
    register(connect)
    logs = Logs(connect, path, STRATEGY)
    assert logs.read().count() == expected
    latest = {(row.topic, row.offset) for row in logs.latest().dataframe().collect()}
    assert {offset for topic, offset in latest if topic == "users"} == {0, 1}


def test_a_stream(connect: SparkSession, path: Path) -> None:
    """A stream of closed segments. Spark gives a worker of a stream ten seconds to start, which can be too short."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - where it is installed

    register(connect)
    stream = connect.readStream.format("kafka-segments").option("columns", "topic,offset").load(str(path))
    for tries_left in reversed(range(5)):
        query = stream.writeStream.format("memory").queryName(f"closed_{tries_left}").trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
            break
        except PySparkException as error:
            if "failed to connect back" not in str(error) or not tries_left:
                raise
    found = {(row.topic, row.offset) for row in connect.table(f"closed_{tries_left}").collect()}
    active = {name: max(int(log.stem) for log in (path / f"{name}-0").glob("*.log")) for name in ("users", "orders")}
    rows = {(row["topic"], row["offset"]) for row in read_rows(path)}
    assert found == {(topic, offset) for topic, offset in rows if offset < active[topic]}
    assert {topic for topic, _ in found} == {"users", "orders"}


def test_jobs_find_what_a_local_run_finds(connect: SparkSession, path: Path, tmp_path: Path) -> None:
    """Profile, audit, comparison and search return the same as without any session; a snapshot has the same records."""
    remote_logs, local = Logs(connect, path, STRATEGY), Logs(None, path, STRATEGY)
    assert remote_logs.profile() == local.profile()
    assert remote_logs.what_if(["offset", "timestamp"]) == local.what_if(["offset", "timestamp"])
    before = make_logs(tmp_path / "before", [user("a", 6, b"lost"), user("b", 0, b"overtaken")])
    audits = [logs.audit(before, clean_below=7, now_ms=NOW) for logs in (remote_logs, local)]
    judged = [[(each.name, each.findings, each.kept_records) for each in audit.partitions] for audit in audits]
    assert judged[0] == judged[1]
    assert audits[0].found > 0
    assert remote_logs.compare_replicas([path]).partitions == local.compare_replicas([path]).partitions
    found = remote_logs.find_keys([b"a", b"key-1"])
    assert found == local.find_keys([b"a", b"key-1"])
    assert {each.offset for each in found.occurrences if each.key == b"a"} == {0, 2}
    taken = remote_logs.latest().write_parquet(tmp_path / "there")
    assert taken == local.latest().write_parquet(tmp_path / "here")
    columns = "topic string, partition int, offset long, value binary"
    rows = [
        sorted(map(tuple, connect.read.schema(columns).parquet(str(tmp_path / place)).collect()))
        for place in ("there", "here")
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == sum(each.keys for each in taken) > 2


def test_a_table_and_a_copy(connect: SparkSession, path: Path, tmp_path: Path, delta: Tables) -> None:
    """Written and merged into; the cleaned copy has the same bytes as one that this process made."""
    users = Logs(connect, path, STRATEGY, topics=["users"])
    users.latest().write_table(delta.uri)
    assert delta.state() == {b"a": 0, b"b": 1}
    make_logs(tmp_path / "later", [user("b", 2, b"newer"), user("a", 4, b"older")])
    shutil.rmtree(path)
    (tmp_path / "later").rename(path)
    users.latest().merge_into(delta.uri)
    assert delta.state() == {b"a": 0, b"b": 5}
    policies = [f"topics.{topic}.cleanup.policy=compact" for topic in ("users", "orders")]
    settings = [*policies, "cleanerd.delegation=assumed", "cleanerd.disk.reserve=0"]
    for session, place in ((connect, "there"), (None, "here")):
        archive = Logs(session, path, STRATEGY).clean(tmp_path / place, settings, now_ms=NOW_MS)
        assert {result.outcome for result in archive.results} == {"cleaned"}
    assert files_of(cleaned_dir(tmp_path / "there")) == files_of(cleaned_dir(tmp_path / "here"))


def test_the_progress_of_jobs_is_reported(connect: SparkSession, path: Path, tmp_path: Path) -> None:
    """All of it is reported at the end, never more; the jobs have a descriptive tag, and nothing stays."""
    reported, tags = [], set()

    def advance(size_bytes: int) -> None:
        reported.append(size_bytes)
        tags.update(connect.getTags())

    logs = Logs(connect, path, STRATEGY)
    logs.latest().write_parquet(tmp_path / "out", advance=advance)
    assert sum(reported) == logs.size_bytes
    (tag,) = tags
    assert tag.startswith("cleanerd snapshot: orders-0; users-0 (cleanerd-")
    assert (connect.getTags(), connect._client._progress_handlers) == (set(), [])  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError), queries(connect, "nothing", 1):
        raise ZeroDivisionError
    assert (connect.getTags(), connect._client._progress_handlers) == (set(), [])  # type: ignore[attr-defined]
    assert session_info.cores_of(connect) == 2


def test_operations_that_connect_refuses(connect: SparkSession, path: Path, tmp_path: Path) -> None:
    """A cleaning next to the segments; damage, with the file and position that this process reports."""
    with pytest.raises(ConfigError, match="stage needs a Spark session in this process") as refused:
        Logs(connect, path).stage([f"cleanerd.state.dir={tmp_path / 'state'}"])
    assert "cleanerd spark clean" in str(refused.value)
    assert not list(path.rglob(".kstage"))
    file = path / "users-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    messages = []
    for number, session in enumerate((connect, None)):
        with pytest.raises(CorruptionError) as damaged:
            Logs(session, path, STRATEGY).latest().write_parquet(tmp_path / f"out{number}")
        messages.append(str(damaged.value))
    assert messages[0] == messages[1]
    assert str(file) in messages[0]


NO_CLEANERD = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cleanerd" and "pyspark.daemon" in sys.orig_argv:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuses())
"""
"""A ``sitecustomize`` of a server whose workers cannot import it."""


def test_a_server_without_cleanerd_and_one_that_is_down(tmp_path: Path) -> None:
    """The message says what to install; the channel's error without a server is one line."""
    from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415 - where its libraries are

    path = make_logs(tmp_path / "data", [])
    (tmp_path / "sitecustomize.py").write_text(NO_CLEANERD)
    with started_server(PYTHONPATH=str(tmp_path)) as (url, process):
        session = Remote.builder.remote(url).create()
        session.client.set_retry_policies([])  # by itself a client retries for some ten minutes, at its exit too
        logs = Logs(session, path)  # type: ignore[arg-type]
        with pytest.raises(CleanerdError, match=r"No module named 'cleanerd.*install cleanerd .* on the executors too"):
            logs.profile()
        process.kill()
        process.wait()
        with pytest.raises(CleanerdError, match=r"^Spark gave up: \w") as gone:
            logs.profile()
        assert "\n" not in str(gone.value)
