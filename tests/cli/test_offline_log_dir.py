"""A log directory that a running broker has dropped because its disk failed: the messages of commands."""

from __future__ import annotations

import re
import threading
import uuid
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.broker.mode import NO_BROKER, SINGLE_TRY, choose_mode
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import lock_holder, make
from tests.cli.findings import findings
from tests.support.log_dirs import with_directory_id
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.broker.mode import ModeChoice
    from tests.cli.clean_log_dirs import Shell


def test_a_log_directory_that_the_broker_has_dropped(root: Path, shell: Shell) -> None:
    """U-38: a broker closes a directory whose disk fails, with its lock, and continues.

    Another node's proves nothing.
    """
    one, two, foreign = make(root / "one"), make(root / "two"), make(root / "foreign")
    with_directory_id(two, uuid.UUID(int=2))
    properties = foreign / "meta.properties"
    properties.write_text(re.sub(r"(?m)^(node\.id|broker\.id)=.*", r"\1=77", properties.read_text()))
    with lock_holder(two), lock_holder(foreign):
        answer = shell("doctor", one, foreign, two, "--json")
        report = {found["where"]: found for found in answer.json["findings"] if found["check"] == "lock"}
        assert report[str(one / ".lock")]["level"] == "warning"
        lost = f", but it runs on {two}: .*it has given this directory up"
        assert re.search(lost, report[str(one / ".lock")]["what"])
        assert report[str(two / ".lock")]["level"] == "note"
        assert findings(shell("doctor", one, foreign, "--json"), "lock")[0] == ("ok", "is free")
        plan = shell("plan", one, two, "--json").json["log_dirs"][0]
        assert (plan["mode"], plan["reason"].partition(f", but it runs on {two}")[0]) == (
            "offline",
            "no broker runs on it",
        )
    assert findings(shell("doctor", one, two, "--json"), "lock") == [("ok", "is free")] * 2


def test_a_broker_that_acquires_its_locks_one_after_the_other(root: Path) -> None:
    """U-31: while it starts, a directory that it has not locked yet does not count as dropped."""
    one, two = make(root / "one"), make(root / "two")
    with_directory_id(two, uuid.UUID(int=2))

    def choice(locks_seconds: float, start_seconds: float = PATIENCE_SECONDS) -> ModeChoice:
        patience = replace(SINGLE_TRY, locks_seconds=locks_seconds, start_seconds=start_seconds)
        return choose_mode(read_log_dir(one), [two], None, patience=patience)

    with ExitStack() as held:
        held.enter_context(lock_holder(two))
        assert "may still be starting, then try again" in choice(0.1).reason
        assert choice(0, start_seconds=0).reason == (
            f"{NO_BROKER}, but it runs on {two}: it has given this directory up, or log.dirs does not name it"
        )
        later = threading.Timer(0.3, lambda: held.enter_context(lock_holder(one)))
        later.start()
        assert choice(PATIENCE_SECONDS).mode == "on-start"
        later.join()


def test_live_beside_a_broker_that_may_still_be_starting(root: Path, shell: Shell) -> None:
    """U-31: no message advises to take a lock that the broker is about to acquire."""
    one, two = make(root / "one"), make(root / "two")
    with_directory_id(two, uuid.UUID(int=2))
    with lock_holder(two):
        answer = shell("clean", one, two, "--live", "--yes")
    assert answer.code == 4
    assert re.search(f"{one}: cannot be cleaned live: .* may still be starting, then try again in a minute", answer.err)
    assert "clean it without --live" not in answer.err


def test_a_copy_beside_the_running_broker_of_the_original(root: Path, shell: Shell) -> None:
    """U-46: a directory that is a copy of one in use was not dropped by the broker."""
    original, copy = make(root / "one"), make(root / "copy")
    with lock_holder(original):
        assert findings(shell("doctor", copy, original, "--json"), "lock")[0] == ("ok", "is free")


def test_a_lock_that_cannot_be_queried_shows_nothing(root: Path, shell: Shell) -> None:
    """U-38: if another directory's lock cannot be queried, it is unknown whether the broker runs."""
    one, two = make(root / "one"), make(root / "two")
    (two / ".lock").unlink(missing_ok=True)
    (two / ".lock").symlink_to("elsewhere")
    assert findings(shell("doctor", one, two, "--json"), "lock")[0] == ("ok", "is free")
