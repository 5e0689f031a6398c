"""The matrix: release x mode x operation, each row some tests of this tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RELEASES_CELLS: Final = "tests/differential/test_releases.py"
ZOOKEEPER: Final = "tests/resolution/test_zookeeper.py"
LOADERS: Final = "tests/crash/test_swap_states.py"
DAY: Final = "tests/live/test_families.py"
JVMS: Final = "tests/live/test_jvms.py"


@dataclass(frozen=True, slots=True)
class Row:
    """One row; ``tests`` are arguments of pytest. ``by``: the judge of its result."""

    release: str
    mode: str
    what: str
    by: str
    tests: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key of the row in the results."""
        return f"{self.release} | {self.mode} | {self.what}"


_CLASSES: Final = "its cleaner, loader and log classes"
_BROKER: Final = "a broker"

_DAY: Final = "a hundred swaps under load, kills of broker and cleanerd, replica moves"

ROWS: Final = (
    Row("3.3", "live", "swaps, restart after a kill", _BROKER, ("tests/agent/test_releases.py", "-k", "3.3")),
    Row("3.3", "live", _DAY, _BROKER, (DAY, "-k", "3.3")),
    Row("3.6", "offline", "cleaning, message formats v0 to v2", _CLASSES, (RELEASES_CELLS, "-k", "3.6")),
    Row("3.6", "offline", "swaps cut short at every step", _CLASSES, (LOADERS, "-k", "other_releases and judge_36")),
    Row("3.6", "live", "swaps, restart after a kill", _BROKER, ("tests/agent/test_releases.py", "-k", "3.6")),
    Row("3.6", "live", _DAY, _BROKER, (DAY, "-k", "3.6")),
    Row(
        "3.8",
        "offline, ZooKeeper",
        "cleaning, with the topic settings that the broker reported",
        _BROKER,
        (ZOOKEEPER,),
    ),
    Row("3.8", "live", "swaps, restart after a kill", _BROKER, ("tests/agent/test_releases.py", "-k", "3.8")),
    Row("3.9", "offline", "cleaning", _CLASSES, ("tests/differential/test_kafka_39.py",)),
    Row("3.9", "offline", "swaps cut short at every step", _CLASSES, (LOADERS, "-k", "loader_of_3_9")),
    Row("3.9", "live", "swaps under a reader, restarts", _BROKER, ("tests/agent/test_swap.py", "-k", "3.9")),
    Row("3.9", "live", _DAY, _BROKER, (DAY, "-k", "3.9")),
    Row("3.9", "live", "load: producers, transactions, consumers", _BROKER, ("tests/live/test_load.py", "-k", "39")),
    Row("3.9", "live", "beside the broker's own cleaner", _BROKER, ("tests/live/test_both_cleaners.py", "-k", "39")),
    Row("4.3", "offline", "cleaning, by every test", _CLASSES, ("tests/differential", "--ignore", RELEASES_CELLS)),
    Row(
        "4.3",
        "offline",
        "swaps cut short at every step",
        _CLASSES,
        ("tests/crash", "-k", "not judge_3 and not judge_44"),
    ),
    Row("4.3", "live", "swaps under a reader, restarts", _BROKER, ("tests/agent/test_swap.py", "-k", "4.3")),
    Row("4.3", "live", "load: producers, transactions, consumers", _BROKER, ("tests/live/test_load.py", "-k", "43")),
    Row("4.3", "live", "kills of broker and cleanerd", _BROKER, ("tests/live/test_kills.py",)),
    Row("4.3", "live", "replica moves, deletion, retention during a swap", _BROKER, ("tests/live/test_races.py",)),
    Row("4.3", "live", "beside the broker's own cleaner", _BROKER, ("tests/live/test_both_cleaners.py", "-k", "43")),
    Row("4.4", "offline", "cleaning, message formats v0 to v2", _CLASSES, (RELEASES_CELLS, "-k", "4.4")),
    Row("4.4", "offline", "swaps cut short at every step", _CLASSES, (LOADERS, "-k", "other_releases and judge_44")),
    Row("4.4", "live", "swaps, restart after a kill", _BROKER, ("tests/agent/test_releases.py", "-k", "4.4")),
    Row("4.4", "live", _DAY, _BROKER, (DAY, "-k", "4.4")),
    Row("3.3, 3.6, 3.9", "live", "swaps on Java 11, through a port", _BROKER, (JVMS, "-k", "swaps_on and 11-")),
    Row("3.3, 3.6", "live", "swaps on Java 17, with G1 and ZGC", _BROKER, (JVMS, "-k", "swaps_on and 17-")),
    Row("3.9, 4.4", "live", "swaps on Java 21, with G1 and ZGC", _BROKER, (JVMS, "-k", "swaps_on and 21-")),
    Row("4.4", "live", "swaps on Java 25, with G1 and ZGC", _BROKER, (JVMS, "-k", "swaps_on and 25-")),
    Row("4.4", "live", "a Java without java.instrument (refused)", _BROKER, (JVMS, "-k", "instrument")),
    Row("4.4", "live", "swaps on a Java without jdk.net", _BROKER, (JVMS, "-k", "jdk_net")),
    Row(
        "3.9, 4.4",
        "live",
        "a rolling upgrade of a cluster under load",
        _BROKER,
        ("tests/live/test_upgrades.py",),
    ),
    Row("3.9, 4.3", "live", "a JVM without the attach mechanism (refused)", _BROKER, ("tests/live/test_attach.py",)),
)
