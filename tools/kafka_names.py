"""Make cleanerd/config/kafka_names.txt: ``python tools/kafka_names.py [RELEASE...]``, with mvn and a JDK, in minutes.

Every release below is fetched with what it needs, and asked by KafkaNames.java which settings it documents. Only
the names are kept, of all releases together: a file may have been written for any of them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "cleanerd" / "settings" / "kafka_names.txt"
QUESTION = ROOT / "tools" / "KafkaNames.java"
RELEASES = (
    *("2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2"),
    *("4.0.2", "4.1.2", "4.2.1", "4.3.1", "4.4.0"),
)
FEWEST = {"broker": 200, "topic": 25}
"""A release in which fewer are found keeps them elsewhere, and the question has to be written anew."""

AUTHORIZER = ("allow.everyone.if.no.acl.found", "super.users")
"""Documented for brokers, but read by the authorizer, which defines nothing."""

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>cleanerd</groupId><artifactId>kafka-names</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>${kafka.version}</version>
      <exclusions><!-- 4.4.0 names it, and was published without it -->
        <exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""
HEAD = """\
# The settings that Kafka documents, for brokers and for topics, of the releases {releases}.
# Names only. Made by tools/kafka_names.py; not edited by hand.
"""


def names_of(libs: Path) -> set[tuple[str, str]]:
    """(``broker`` or ``topic``, name) of what the release whose jars are in ``libs`` documents.

    Raises:
        ValueError: so few that the question was the wrong one.
    """
    arguments = ["java", "-Xshare:auto", "-cp", f"{libs}/*", str(QUESTION)]
    lines = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    found = {(kind, name) for kind, _, name in (line.partition(" ") for line in lines if line)}
    for kind, least in FEWEST.items():
        if sum(each == kind for each, _ in found) < least:
            raise ValueError(f"{libs}: fewer than {least} {kind} settings; KafkaNames.java asks the wrong classes")
    return found


def fetched(release: str, folder: Path) -> Path:
    """The jars of a release, by Maven."""
    (folder / "pom.xml").write_text(POM)
    libs = folder / f"libs-{release}"
    command = ["mvn", "-q", "-B", "-C", "-f", str(folder / "pom.xml"), f"-Dkafka.version={release}"]
    subprocess.run([*command, "dependency:copy-dependencies", f"-DoutputDirectory={libs}"], check=True)
    return libs


def table(found: set[tuple[str, str]], releases: tuple[str, ...]) -> str:
    """The text of the file."""
    text = HEAD.format(releases=", ".join(releases))
    for kind in FEWEST:
        more = AUTHORIZER if kind == "broker" else ()
        names = sorted({name for each, name in found if each == kind} | set(more))
        text += f"[{kind}]\n" + "".join(f"{name}\n" for name in names)
    return text


def main(releases: tuple[str, ...]) -> None:
    """Ask each release, write the table."""
    found: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory(prefix="kafka-names-") as folder:
        for release in releases:
            new = names_of(fetched(release, Path(folder))) - found
            found |= new
            print(f"{release}: {len(new)} more")  # noqa: T201 - a tool
    TABLE.write_text(table(found, releases))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or RELEASES)
