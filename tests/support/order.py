"""In which order the processes of a run get the tests (a plugin of pytest, for xdist's ``loadfile``).

A file is one process's work. xdist begins with the files of the most tests; those that take minutes are few and would
come last, when the other processes have nothing left to do. Tests that share what took a minute to build stay together
too. ``--shuffle SEED`` draws the order instead, so that the last files have their turn in a run with a time limit.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED: Final = ("tests/spark/", "tests/brokers/", "tests/agent/", "tests/client/")
"""Directories whose tests share a story, a broker or a Spark session: one process has it."""

APART: Final = tuple(
    f"tests/spark/test_{name}.py"
    for name in ("archive", "archive_kills", "archive_rules", "archive_stores", "cli", "connect", "no_spark_needed",
                 "report", "stores_by_http", "stores_that_err")
)  # fmt: skip
"""Files in there that take long and share nothing of it: else one process is at work when all others are done."""

LONGEST: Final = (
    "tests/spark/",
    "tests/brokers/",
    "tests/crash/test_swap_states.py",
    "tests/demo/test_run.py",
    "tests/crash/test_recover_states.py",
    "tests/live/test_kills.py",
    "tests/cleaner/test_strategy_histories.py",
    "tests/torn/test_power_cuts.py",
    "tests/live/test_both_cleaners.py",
    "tests/agent/test_releases.py",
    "tests/cli/test_bombs.py",
    "tests/swap/test_versioned_kills.py",
    "tests/crash/test_undo_states.py",
    "tests/cli/test_hostile_names.py",
    "tests/client/test_against_the_cleaner.py",
    "tests/differential/test_legacy.py",
    "tests/live/test_replicas.py",
    "tests/admin/test_on_brokers.py",
    "tests/live/test_races.py",
    "tests/daemon/test_failures.py",
    "tests/daemon/test_start_up.py",
    "tests/kafka/test_broker.py",
    "tests/bench/test_command.py",
    "tests/differential/",
    "tests/live/",
    "tests/agent/",
    "tests/crash/",
    "tests/daemon/",
    "tests/torture/",
    "tests/resolution/test_zookeeper.py",
    "tests/cli/",
)
"""What begins first, by the start of its name; all others come after."""

ALL_LONG: Final = re.compile(r"^pytestmark = .*\bpytest\.mark\.long\b", re.MULTILINE)


def place_of(name: str) -> int:
    """When a test has its turn: the place of its file in `LONGEST`."""
    return next((place for place, start in enumerate(LONGEST) if name.startswith(start)), len(LONGEST))


def work_of(name: str) -> str:
    """What a test is given to a process with: its file, or the directory that shares a story."""
    file = name.partition("::")[0]
    return file if file in APART else next((start for start in SHARED if name.startswith(start)), file)


class InOrder(LoadScopeScheduling):
    """Files in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return work_of(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a new checkout each process begins to compile the tests at another place, and finds what others compiled."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or [Path(arg).name for arg in session.config.args] != ["tests"]:
        return
    files = sorted((session.config.rootpath / "tests").rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in (*files[first:], *files[:first]):
        with suppress(Exception, pytest.skip.Exception):  # reported when it is collected
            import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of long tests alone for a run without long tests: that is a second per process."""
    if "not long" not in config.getoption("markexpr") or not collection_path.match("test_*.py"):
        return None
    return True if ALL_LONG.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="draw the order of the files, not the longest first")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The same in every process; within a file nothing changes."""
    seed = config.getoption("--shuffle")
    if seed is None:
        items.sort(key=lambda item: place_of(item.nodeid))
    else:
        items.sort(key=lambda item: hashlib.sha256(f"{seed} {work_of(item.nodeid)}".encode()).digest())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InOrder | None:
    """None: the command line has another way to distribute."""
    return InOrder(config, log) if config.getvalue("dist") == "loadfile" else None
