"""A real HDFS of one data node in one JVM, on this machine's loopback, and the library with which pyarrow reads it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
import pytest

from tests.compatibility.page import TOP
from tests.spark.yarn.cluster import jars
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE: Final = Path(__file__).parent
_SPARKS: Final = Path(pyspark.__path__[0], "jars")
_SOURCES: Final = (
    "exception.c", "jni_helper.c", "hdfs.c", "jclasses.c",
    "os/posix/mutexes.c", "os/posix/thread.c", "os/posix/thread_local_storage.c",
)  # fmt: skip
_CLIENT: Final = """<configuration>
<property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:{port}</value></property>
<property><name>dfs.client.retry.window.base</name><value>10</value></property>
</configuration>"""


@dataclass(frozen=True)
class HdfsCluster:
    """``environment``: the variables that a reader needs."""

    process: subprocess.Popen[str]
    port: int
    environment: dict[str, str]

    def reported(self, line: str) -> None:
        """``stop`` or ``start`` of ``data`` or ``name``; ``lock``: no user may read /archive/locked."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == "done"


def java_home() -> Path:
    """The home of the installed JDK."""
    found = shutil.which("javac")
    assert found is not None
    return Path(found).resolve().parents[1]


def library() -> Path:
    """The directory with libhdfs.so, compiled if necessary from the version that ``Cargo.toml`` pins."""
    place = TOP / ".cache" / "spark" / "libhdfs"
    pinned = (_HERE / "Cargo.toml").read_text()
    if (place / "Cargo.toml").exists() and (place / "Cargo.toml").read_text() == pinned:
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix="libhdfs.", dir=place.parent))
    (new / "Cargo.toml").write_text(pinned)
    (new / "empty.rs").touch()
    call = ["cargo", "metadata", "--quiet", "--format-version", "1"]
    done = subprocess.run(call, cwd=new, capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(new)
        pytest.skip(f"cargo cannot fetch the sources of libhdfs: {done.stderr[-300:]}")
    (crate,) = (each for each in json.loads(done.stdout)["packages"] if each["name"] == "hdfs-sys")
    top = Path(crate["manifest_path"]).parent / "libhdfs"
    source = top / "hdfs_3_3"
    java = java_home()
    headers = [top, source, source / "include", source / "os", source / "os" / "posix"]
    headers += [java / "include", java / "include" / "linux"]
    call = ["cc", "-w", "-O2", "-shared", "-fPIC", "-fcommon", "-o", str(new / "libhdfs.so")]
    call += [f"-I{each}" for each in headers] + [str(source / each) for each in _SOURCES]
    machine = java / "lib" / "server"
    subprocess.run([*call, f"-L{machine}", "-ljvm", f"-Wl,-rpath,{machine}"], check=True)
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)
    return place


@contextlib.contextmanager
def started_hdfs(place: Path) -> Iterator[HdfsCluster]:
    """It writes into the new directory ``place``, and ends with the block. The client has only Spark's own jars."""
    settings = place / "settings"
    settings.mkdir(parents=True)
    spark = [
        each for name in ("commons-l*", "hadoop-client-*", "log4j-*", "slf4j-*") for each in _SPARKS.glob(f"{name}.jar")
    ]
    with (place / "hdfs.log").open("wb") as log:
        call = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, [*jars(), *spark]))]
        process = subprocess.Popen(
            [*call, str(_HERE / "Hdfs.java"), str(place / "data")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=place, text=True,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        reported = process.stdout.readline().strip()
        assert reported.isdigit(), (place / "hdfs.log").read_text(errors="replace")[-3000:]
        for name in ("core-site.xml", "hdfs-site.xml"):
            (settings / name).write_text(_CLIENT.format(port=reported))
        environment = {
            "ARROW_LIBHDFS_DIR": str(library()),
            "CLASSPATH": ":".join(map(str, [settings, *spark])),
            "HADOOP_USER_NAME": "reader",
            "JAVA_HOME": str(java_home()),
            "LIBHDFS_OPTS": "-Xmx256m -Xrs -XX:+UseSerialGC",
        }
        yield HdfsCluster(process, int(reported), environment)
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
        process.kill()
        process.wait()
        process.stdout.close()
