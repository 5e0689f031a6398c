"""Two workers that share no disk with the driver or each other: shipped packages, logs in an object store.

Standalone clusters run a Python driver where ``spark-submit`` is, so only client mode can be tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import cleanerd
from cleanerd.cli.main import run
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.launch import DRIVER_VARIABLE, environment, require_spark
from cleanerd_lab.demo.ports import free_port
from tests.spark import s3, shipped
from tests.spark.archives import CLEAN, cleaned_locally, files_of, make_archive, only_cleaned_dir, settings
from tests.spark.cluster import Cluster, started_cluster
from tests.spark.reading import read_rows
from tests.spark.rich_log import NOW_MS, RichLog
from tests.spark.s3 import downloaded, from_store
from tests.spark.sessions import ON_A_CLUSTER, QUIET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.spark.s3 import Store

pytestmark = pytest.mark.long

TOP = Path(cleanerd.__file__).parents[1]
DRIVER = TOP / "cleanerd" / "cli" / "submitted" / "cleanerd_driver.py"
HOSTS = ("127.0.0.1", "127.0.0.2")
COLUMNS = "topic,partition,offset,key,value"
READ = """
import json, sys
from pyspark.sql import SparkSession
from cleanerd.spark import register
from shipped_by_py_files import host_and_disk
spark = SparkSession.builder.getOrCreate()
register(spark)
df = spark.read.format("kafka-segments").options(columns="topic,partition,offset,key,value", splitBytes="2000")
df = df.load(sys.argv[1])
df.toPandas().to_parquet(sys.argv[2])
found = df.rdd.map(lambda _row: host_and_disk(*sys.argv[3:])).collect()
print(json.dumps(sorted(set(found))))
"""
HELPER = """
import os, cleanerd
def host_and_disk(*hidden):
    home = os.path.dirname(cleanerd.__file__)
    seen = sum(len(os.listdir(each)) for each in hidden)
    return os.environ["SPARK_LOCAL_IP"], home[: home.index("/app-")], seen
"""


def submitted(
    cluster: Cluster, nodes: Path, mine: Path, arguments: Sequence[object], code: int = 0, **conf: str
) -> str:
    """The output of ``spark-submit`` in ``mine``, whose executors have Spark, its packages and a bare Python."""
    values = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    settings = {**QUIET, **ON_A_CLUSTER, "spark.executorEnv.PYTHONPATH": "packages", **conf}
    settings |= {f"spark.executorEnv.{key}": value for key, value in values.items()}
    command = [str(require_spark()), "--master", cluster.url]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    python = {"PYSPARK_PYTHON": str(nodes / "python"), "PYSPARK_DRIVER_PYTHON": sys.executable}
    inherited = {key: value for key, value in os.environ.items() if key != DRIVER_VARIABLE} | python
    command += map(str, arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=inherited, cwd=mine)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


UNCHECKED = 5
"""An archive has no checkpoint of the partition by timestamp, so superseded records in it are not judged."""


def alone(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """This process's output for it."""
    assert run(["spark", *map(str, arguments), "--json", "--quiet"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_shipped_archive_is_enough(server: Store, tmp_path: Path) -> None:
    """A Python with numpy, pandas, pyarrow and the packages of the archive reads logs in a store as we do."""
    shipped.bare_python(tmp_path)
    packages = shipped.packages(tmp_path)
    logs = RichLog(3, transactions=True).write(tmp_path / "logs", 2, 10)
    url = server.put(logs, "shipped")
    code = "import sys; from cleanerd.spark import Logs; print(Logs(None, sys.argv[1]).profile())"
    inherited = os.environ | {"PYTHONPATH": str(packages)}
    reported = subprocess.run(
        [tmp_path / "python", "-c", code, url], capture_output=True, text=True, check=True, env=inherited, cwd=tmp_path
    ).stdout
    assert reported == f"{ReadableLogs(None, logs).profile()}\n"
    assert "keys=" in reported


def test_commands_on_two_workers(server: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Source, profile, table, cleaned copy, audit: executors with neither our disk nor our packages return the same."""
    nodes, mine, place = tmp_path / "nodes", tmp_path / "mine", tmp_path / "cluster"
    for each in (nodes, mine, place):
        each.mkdir()
    shipped.bare_python(nodes)
    ship = {"spark.archives": f"{shipped.archive_of(shipped.packages(mine, 'deltalake'))}#packages"}
    logs = make_archive(mine / "data", "offset-0", "transactions-1", "time-0")
    url, store = server.put(logs, "two/data"), f"s3://{s3.BUCKET}/two"
    own_python = Path(sys.executable).parent  # nodes have another one
    hidden = [mine, own_python, TOP / "cleanerd", TOP / "pyspark_kafka_segments", TOP / "tests"]
    message = settings(mine / "state")
    with pytest.MonkeyPatch.context() as patch, started_cluster(place, free_port(), hidden=hidden) as cluster:
        patch.setenv("AWS_ALLOW_HTTP", "true")

        def command(*arguments: object, code: int = 0) -> Any:
            words = [DRIVER, "spark", *arguments, "--json", "--quiet", *message]
            reported = submitted(cluster, nodes, mine, words, code, **ship)
            return json.loads(reported[reported.index("{\n") :])  # spark-submit puts warnings before it

        (mine / "read.py").write_text(READ)
        (mine / "shipped_by_py_files.py").write_text(HELPER)
        read = ("--py-files", "shipped_by_py_files.py", "read.py", url, mine / "rows.parquet", mine, TOP / "cleanerd")
        reported = submitted(cluster, nodes, mine, read, **ship).splitlines()[-1]
        assert json.loads(reported) == [[host, f"{place / host}", 0] for host in HOSTS]
        rows = pq.read_table(mine / "rows.parquet").to_pylist()
        expected = read_rows(logs, columns=COLUMNS)
        assert sorted(rows, key=_place_of) == sorted(expected, key=_place_of)
        assert len(expected) > 100

        assert command("profile", url) == alone(capsys, "profile", logs, *message)

        command("snapshot", url, "--format", "delta", "--out", f"{store}/table")
        alone(capsys, "snapshot", logs, "--format", "delta", "--out", mine / "table", *message)
        order = [(name, "ascending") for name in ("topic", "partition", "offset")]
        there, local = (
            DeltaTable(str(each)).to_pyarrow_table().sort_by(order) for each in (f"{store}/table", mine / "table")
        )
        assert there.equals(local)
        assert there.num_rows > 50

        reported = submitted(
            cluster, nodes, mine, [DRIVER, "spark", "snapshot", url, "--out", mine / "parquet"], 3, **ship
        )
        assert "_attempts: is not there on the host of this task, though the driver made it" in reported
        assert not (mine / "parquet").exists()

        command("clean", url, "--output", f"{store}/cleaned", *CLEAN)
        copy = only_cleaned_dir(downloaded(server, "two/cleaned", mine / "cleaned"))
        assert files_of(copy) == cleaned_locally(capsys, from_store(server, url, mine / "downloaded" / "data"))

        judging = ("--now-ms", NOW_MS, "--digest-key", "00" * 16)
        after = f"{store}/cleaned/{copy.relative_to(mine / 'cleaned')}"
        found = command("audit", url, after, *judging, code=UNCHECKED)
        local = alone(capsys, "audit", logs, copy, *judging, *message, code=UNCHECKED)
        assert found["partitions"] == local["partitions"]
        assert (len(found["partitions"]), found["findings"]) == (3, 0)


def test_spark_refuses_its_cluster_mode(tmp_path: Path) -> None:
    """As docs/spark-deploy.md says of a standalone cluster: Spark itself runs no Python driver there."""
    (tmp_path / "job.py").write_text("")
    command = [require_spark(), "--master", "spark://127.0.0.1:9", "--deploy-mode", "cluster", "job.py"]
    inherited = environment(os.environ, tasks=2)
    ended = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=tmp_path, env=inherited
    )
    assert ended.returncode != 0
    assert "Cluster deploy mode is currently not supported for python applications on standalone" in ended.stderr


def _place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"]
