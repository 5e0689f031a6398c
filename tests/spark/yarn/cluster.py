"""A real YARN of one node in one JVM, on this machine's loopback."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pyspark

from tests.compatibility.page import TOP
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True)
class YarnCluster:
    """``settings``: the directory for ``HADOOP_CONF_DIR``. ``place``: containers write below it."""

    settings: Path
    place: Path

    def outputs(self, name: str) -> list[str]:
        """The files of that ``name`` (stdout, stderr) that the containers have left."""
        return [path.read_text(errors="replace") for path in sorted(self.place.glob(f"**/container_*/{name}"))]


def jars() -> list[Path]:
    """Of Hadoop's minicluster, downloaded if necessary, with Spark's own for its logging."""
    place = TOP / ".cache" / "spark" / "yarn"
    if not any(place.glob("bcpkix-*.jar")):
        call = ["mvn", "-q", "-B", "-f", _HERE / "pom.xml", "dependency:copy-dependencies"]
        subprocess.run([*call, f"-DoutputDirectory={place}"], check=True)
    logging = Path(pyspark.__path__[0], "jars").glob("log4j-*.jar")
    return [*sorted(place.glob("*.jar")), *sorted(logging)]


@contextlib.contextmanager
def started_yarn(place: Path) -> Iterator[YarnCluster]:
    """It writes into the new directory ``place``; it and all its child processes end with the block."""
    settings = place / "settings"
    settings.mkdir(parents=True)
    (settings / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>file:///</value></property></configuration>"
    )
    with (place / "yarn.log").open("wb") as log:
        call = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, jars()))]
        process = subprocess.Popen(
            [*call, str(_HERE / "Yarn.java"), str(settings / "yarn-site.xml")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=place,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == b"ready", (place / "yarn.log").read_text(errors="replace")[-3000:]
        yield YarnCluster(settings, place)
    finally:
        below = psutil.Process(process.pid).children(recursive=True)
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_SECONDS)
        process.kill()
        process.wait()
        process.stdout.close()
        for each in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
