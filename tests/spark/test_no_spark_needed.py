"""Commands with little to do on this machine start no Spark, unless an option requests one."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.cli.main import run
from cleanerd.errors import MachineError
from cleanerd.host import memory
from cleanerd.host.memory import Memory
from cleanerd.spark import launch, local_threshold
from cleanerd.spark.clean import local_threshold_bytes
from cleanerd.spark.driver_memory import SMALL_HEAP, SMALL_JAVA
from cleanerd.spark.launch import submit
from tests.cleaner.driver import NAME
from tests.spark.both_engines import staged_files
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, keyed_batch
from tests.support.patience import PATIENCE_SECONDS
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPACT = ("--set", "topics.orders.cleanup.policy=compact", "--set", "cleanerd.disk.reserve=0")
CLEAN = ("--force", "--from-start", "--now-ms", NOW_MS)


def without_java(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Cleanerd without any Java."""
    state = f"cleanerd.state.dir={tmp_path / 'state'}"
    command = [sys.executable, "-m", "cleanerd", *map(str, arguments), "--json", "--quiet", "--set", state, *COMPACT]
    nowhere = os.environ | {"JAVA_HOME": str(tmp_path / "no java")}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=nowhere)


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return RichLog(3, transactions=True).write(tmp_path / "logs", 4, 20)


def test_clean_as_stage(tmp_path: Path, log_dir: Path) -> None:
    """The files that ``stage`` writes, without Java; leftovers of a killed run of Spark are swept too."""
    other = tmp_path / "other" / "logs"
    shutil.copytree(log_dir, other, copy_function=shutil.copy2)
    left = log_dir / NAME / STAGING / "spark-20200101t000000-00000000"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    (ours,) = parsed(without_java(tmp_path, "spark", "clean", log_dir, *CLEAN))["partitions"]
    (theirs,) = parsed(without_java(tmp_path, "stage", other, *CLEAN))["partitions"]
    assert ours["outcome"] == theirs["outcome"] == "staged"
    assert staged_files(log_dir) == staged_files(other)
    assert staged_files(log_dir)
    assert not left.exists()


@pytest.mark.long
def test_unreadable_stored_settings(tmp_path: Path, log_dir: Path) -> None:
    """U-6: refused as by ``stage``, with the name of the file."""
    parsed(without_java(tmp_path, "clean", log_dir, *CLEAN, "--yes"))
    (file,) = (tmp_path / "state" / "partitions").rglob("*.json")
    file.write_text("{")
    done = without_java(tmp_path, "spark", "clean", log_dir, *CLEAN)
    assert done.returncode == 4
    (row,) = json.loads(done.stdout)["partitions"]
    assert str(file.with_suffix("")) in row["reason"]
    assert "the strategy of the last cleaning of orders is unknown" in row["reason"]


@pytest.mark.long
def test_what_if_as_a_report(tmp_path: Path, log_dir: Path) -> None:
    """R280-3, R280-4: under a hypothetical strategy.

    A report that cannot be made is refused before anything is read.
    """
    found = {}
    for strategy in ("offset", "timestamp", "header:version"):
        done = without_java(tmp_path, "spark", "profile", log_dir, "--strategy", strategy)
        (found[strategy],) = parsed(done)["partitions"]
    assert found["offset"]["overtaken"] == 0 < found["header:version"]["overtaken"]
    assert found["timestamp"]["strategy"] == "timestamp"
    command = ("spark", "profile", log_dir, "--strategy", "header:version", "--report", tmp_path / "report")
    (reported,) = parsed(without_java(tmp_path, *command))["partitions"]
    assert reported["overtaken"] == found["header:version"]["overtaken"]
    assert "another record wins than the last one" in (tmp_path / "report" / "profile.html").read_text()
    again = without_java(tmp_path, *command)
    assert (again.returncode, "exists already" in again.stdout + again.stderr) == (3, True)
    wrong = without_java(tmp_path, "spark", "profile", log_dir, "--strategy", "newest")
    assert (wrong.returncode, "is not offset, timestamp or header:NAME" in wrong.stdout + wrong.stderr) == (2, True)


@pytest.mark.long
def test_kafkas_own_topics_keep_the_offset_strategy(tmp_path: Path) -> None:
    """U-11: whatever ``--strategy`` is."""
    names = {"__consumer_offsets-0": Partition({0: b""}), "orders-0": Partition({0: b""})}
    path = make_log_dir(tmp_path / "logs", names)
    found = parsed(without_java(tmp_path, "spark", "profile", path, "--strategy", "timestamp"))["partitions"]
    assert {each["topic"]: each["strategy"] for each in found} == {
        "__consumer_offsets": "offset",
        "orders": "timestamp",
    }


@pytest.mark.long
def test_profile_and_snapshot(tmp_path: Path, log_dir: Path) -> None:
    """The snapshot has the keys that the profile counts, except deleted ones and those of the active segment."""
    (profile,) = parsed(without_java(tmp_path, "spark", "profile", log_dir))["partitions"]
    assert profile["keys"] > profile["deleted_keys"] > 0
    out = tmp_path / "100% out"
    document = parsed(without_java(tmp_path, "spark", "snapshot", log_dir, "--out", out))
    table = pq.read_table(out)
    assert table.num_rows == document["records"] > 0
    assert len(set(table.column("key").to_pylist())) == table.num_rows
    (partition,) = document["partitions"]
    (offsets,) = (json.loads(line) for path in (out / "_cleanerd").glob("*.json") for line in path.open())
    assert offsets == partition
    again = without_java(tmp_path, "spark", "snapshot", log_dir, "--out", out)
    assert (again.returncode, "exists already" in again.stderr) == (3, True)


@pytest.mark.long
def test_audit(tmp_path: Path, log_dir: Path) -> None:
    """U-28: a right cleaning passes; a superseded record that it left, or a lost one, is exit code 5.

    An untouched copy has the digest of its original.
    """
    before = tmp_path / "before"
    shutil.copytree(log_dir, before, copy_function=shutil.copy2)
    key = ("--digest-key", "00" * 16)
    command = ("spark", "audit", before, log_dir, *key)
    (same,) = parsed(without_java(tmp_path, *command))["partitions"]
    assert same["before"]["digest"] == same["after"]["digest"] != "0" * 32
    assert same["kept_records"] == same["before"]["records"] > 0
    unclean = without_java(tmp_path, *command, "--clean-below", 10, "--partition", NAME)
    (judged,) = json.loads(unclean.stdout)["partitions"]
    assert (unclean.returncode, judged["findings"]["duplicated"] > 0) == (5, True)
    parsed(without_java(tmp_path, "clean", log_dir, "--yes", *CLEAN))
    right = parsed(without_java(tmp_path, *command))
    (judged,) = right["partitions"]
    assert right["findings"] == 0
    assert judged["kept_records"] == judged["after"]["records"] < judged["before"]["records"]
    wrong = json.loads((turned := without_java(tmp_path, "spark", "audit", log_dir, before, *key)).stdout)
    assert (turned.returncode, wrong["partitions"][0]["findings"]["invented"] > 0) == (5, True)


@pytest.mark.long
def test_erasure_and_divergence(tmp_path: Path, log_dir: Path) -> None:
    """An existing key is found, and a missing one is proved to be absent; a copy does not diverge."""
    copy = tmp_path / "copy"
    shutil.copytree(log_dir, copy, copy_function=shutil.copy2)
    absent = ("--expect-absent", "--key", "never written")
    assert parsed(without_java(tmp_path, "spark", "audit", log_dir, copy, *absent))["found"] == 0
    out = tmp_path / "state"
    parsed(without_java(tmp_path, "spark", "snapshot", log_dir, "--out", out))
    key = pq.read_table(out).column("key")[0].as_py().hex()
    there = without_java(tmp_path, "spark", "audit", log_dir, copy, "--hex", "--key", key, "--expect-absent")
    document = json.loads(there.stdout)
    assert (there.returncode, document["found"] > 0) == (1, True)
    assert document["found"] == 2 * json.loads(without_java(
        tmp_path, "spark", "audit", log_dir, "--hex", "--key", key).stdout)["found"]  # fmt: skip
    compared = parsed(without_java(tmp_path, "spark", "divergence", log_dir, copy))
    assert compared["findings"] == 0 < compared["partitions"][0]["records_in_both"]


@pytest.mark.long
def test_snapshot_as_a_table(tmp_path: Path, log_dir: Path) -> None:
    """Created, refused a second time, updated, written again; errors are clear messages."""
    arguments = ("spark", "snapshot", log_dir, "--format", "delta", "--out", tmp_path / "table")
    document = parsed(without_java(tmp_path, *arguments))
    assert pq.read_table(list((tmp_path / "table").glob("*.parquet"))).num_rows == document["records"] > 0
    assert "--incremental adds new records" in without_java(tmp_path, *arguments).stderr
    merged = parsed(without_java(tmp_path, *arguments, "--incremental"))
    (partition,) = merged["partitions"]
    assert (merged["written"], merged["removed"]) == (0, 0)
    assert partition["begin_offset"] == partition["end_offset"] == document["partitions"][0]["end_offset"]


@pytest.mark.parametrize(
    ("requested", "words"),
    [
        ([], "--format parquet: give --out DIR"),
        (["--out", "x", "--incremental"], "--incremental and --replace need a table"),
        (["--format", "iceberg", "--out", "x"], "give --table NAMESPACE.NAME"),
        (["--format", "delta", "--out", "x", "--table", "a.b"], "give --out DIR, and no --table"),
        (["--format", "delta", "--out", "x", "--incremental", "--replace"], "cannot be used with --replace"),
    ],
)
def test_options_of_a_snapshot(
    log_dir: Path, capsys: pytest.CaptureFixture[str], requested: list[str], words: str
) -> None:
    """Errors are reported before anything is started."""
    assert run(["spark", "snapshot", str(log_dir), *requested]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    "requested",
    [
        ("clean", "--shards", 1),
        ("profile", "--conf", "spark.driver.memory=1g"),
        ("profile", "--master", "spark://127.0.0.1:9"),
        ("snapshot", "--out", "s3a://bucket/table"),
        ("audit", "--key", "a", "--conf", "spark.driver.memory=1g"),
        ("divergence", "--master", "spark://127.0.0.1:9"),
    ],
)
def test_the_option_starts_spark(tmp_path: Path, log_dir: Path, requested: Sequence[object]) -> None:
    """Which here means that Java is missing."""
    done = without_java(tmp_path, "spark", requested[0], log_dir, *requested[1:])
    assert (done.returncode, "no java there" in done.stderr) == (3, True), done.stderr


def test_which_logs_are_small_enough_for_this_process(tmp_path: Path) -> None:
    """Every file that may hold records counts, in any directory; on a cluster no log is small enough."""
    (tmp_path / "t-0" / "kept").mkdir(parents=True)
    for name in ("1.log", "kept/2.log.deleted", "1.index"):
        (tmp_path / "t-0" / name).write_bytes(b"0123456789")
    assert local_threshold.bytes_below([tmp_path]) == 20
    assert local_threshold.is_little(local_threshold.LOCAL_BYTES)
    assert not local_threshold.is_little(local_threshold.LOCAL_BYTES + 1)
    assert not local_threshold.is_little(None)
    assert not local_threshold.is_short(None)


@pytest.fixture
def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The arguments of ``spark-submit``, recorded by a script that replaces it."""
    script = tmp_path / "home" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/reported\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "home"))
    for name in ("PYSPARK_PYTHON", "SPARK_CONF_DIR", "SPARK_DRIVER_MEMORY", *launch.JAVAS_ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)

    def requested(**how: Any) -> dict[str, str]:
        assert submit(tmp_path / "driver.py", [], **{"master": "local[2]", "conf": {}, **how}) == 0
        words = (tmp_path / "reported").read_text().splitlines()
        settings = dict(word.split("=", 1) for word in words if word.startswith("spark."))
        return {**settings, "master": words[words.index("--master") + 1]}

    return requested


JAVA = "spark.driver.extraJavaOptions"
HEAP = "spark.driver.memory"
WORKERS = "spark.python.daemon.module"
SAME = f"spark.executorEnv.{launch.SAME_WORKERS}"


def test_settings_of_a_short_session(settings_of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on this machine, and never overriding an explicit setting."""
    assert "SerialGC" in settings_of(is_short=True)[JAVA]
    assert JAVA not in settings_of(is_short=False)
    assert {JAVA, WORKERS}.isdisjoint(settings_of(is_short=True, master="spark://127.0.0.1:7077"))
    assert settings_of(is_short=True, conf={JAVA: "-Dx=y"})[JAVA] == "-Dx=y"
    assert WORKERS in settings_of()
    assert settings_of()[SAME] == "1"
    assert SAME not in settings_of(master="spark://127.0.0.1:7077")
    (tmp_path / "home" / "conf").mkdir()
    (tmp_path / "home" / "conf" / "spark-defaults.conf").write_text(f"{JAVA} -XX:+UseG1GC\n")
    assert JAVA not in settings_of(is_short=True)
    (tmp_path / "home" / "conf" / "spark-defaults.conf").unlink()
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseG1GC")
    assert JAVA not in settings_of(is_short=True)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/env/bin/python")
    assert WORKERS not in settings_of()


def test_settings_with_little_memory(
    settings_of: Any, monkeypatch: pytest.MonkeyPatch, with_memory: Callable[[int], None]
) -> None:
    """The least heap and as many tasks as fit next to it; explicit settings stay, and so does another machine's.

    Without an explicit heap, too little memory is an error before anything is started.
    """
    with_memory(1 << 40)
    assert (settings_of(master="local[*]")["master"], HEAP in settings_of()) == ("local[*,4]", False)
    with_memory(1 << 30)
    chosen = settings_of(master="local[*]")
    assert (chosen["master"], chosen[HEAP]) == ("local[1,4]", SMALL_HEAP)
    assert chosen[JAVA] == SMALL_JAVA
    assert settings_of(master="local[2]")["master"] == "local[2,4]"
    message = settings_of(master="local[*]", conf={HEAP: "700m"})
    assert (message["master"], message[HEAP], JAVA in message) == ("local[*,4]", "700m", False)
    assert HEAP not in settings_of(master="spark://127.0.0.1:7077")
    assert settings_of(conf={JAVA: "-Dx=y"})[JAVA] == "-Dx=y"
    with_memory(700 << 20)
    with pytest.raises(MachineError, match="700 MiB are left"):
        settings_of()
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "600m")
    assert HEAP not in settings_of()


def test_no_memory_for_a_session(
    tmp_path: Path, log_dir: Path, monkeypatch: pytest.MonkeyPatch, with_memory: Callable[[int], None]
) -> None:
    """However much there is to read, this process does it by itself; what it cannot do is refused."""
    monkeypatch.setattr("cleanerd.cli.spark.is_little", lambda _bytes: False)  # half a gigabyte would take long
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))
    arguments = ["spark", "profile", str(log_dir), "--set", f"cleanerd.state.dir={tmp_path / 'state'}"]
    assert run(arguments) == 3, "there is memory for a session, so Java is missing"
    with_memory(700 << 20)
    assert run(arguments) == 0


def test_installed_pyspark_is_preferred(tmp_path: Path) -> None:
    """It precedes a zip of the same package; a zip of another Spark stays in front."""
    code = """
import sys
from cleanerd.spark.own_pyspark import prefer_installed
prefer_installed()
print([path for path in sys.path if path.endswith(".zip") and "pyspark" in path])
"""
    own = Path(launch.require_spark()).parents[1] / "python" / "lib" / "pyspark.zip"
    for path, left in ((own, []), (tmp_path / "pyspark.zip", [str(tmp_path / "pyspark.zip")])):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *filter(None, sys.path)])}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
            env=environment,
        )
        assert eval(done.stdout) == left  # noqa: S307 - our own


def test_workers_without_pandas() -> None:
    """pyarrow, which loads pandas with the first array that it is given, does without."""
    code = """
import sys
from cleanerd.spark.worker_daemon import NoPandas
sys.meta_path.insert(0, NoPandas())
import numpy, pyarrow
pyarrow.array(numpy.arange(3)).to_pylist(), pyarrow.array(["a"]), pyarrow.array([None], pyarrow.binary())
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_SECONDS, check=True)


@pytest.mark.parametrize(
    ("master", "by_driver"), [("local[2,4]", 256 << 20), ("local", 256 << 20), ("spark://host:7077", 64 << 20)]
)
def test_partitions_that_the_driver_cleans_itself(master: str, by_driver: int) -> None:
    """Where tasks would use its own cores it does more of it alone; executors elsewhere have cores of their own."""
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert local_threshold_bytes(session) == by_driver


def test_a_large_batch_has_all_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process reads one batch after the other: with eight cores the limit is not an eighth of the memory."""
    large = encode_batch([Record(key=b"a", value=bytes(12 << 20))], codec=1)
    path = make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: large, 1: keyed_batch(1, [("b", "1")])})})
    # No test may limit the memory of its own process, or have eight cores.
    monkeypatch.setattr(memory, "measure", lambda: Memory(512 << 20, "a test"))
    system_call(monkeypatch, "sched_getaffinity", lambda _process: set(range(8)))
    state = f"cleanerd.state.dir={tmp_path / 'state'}"
    memory.worker_share.cache_clear()
    assert 1 << 20 < memory.worker_batch_bytes() < 12 << 20
    assert run(["spark", "audit", str(path), str(path), "--json", "--set", state, *COMPACT]) == 0, capsys.readouterr()
    assert memory.worker_batch_bytes() < 12 << 20
    monkeypatch.undo()
    memory.worker_share.cache_clear()
